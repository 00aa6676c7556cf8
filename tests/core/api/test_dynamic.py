"""Sizes that vary from call to call: the ways in which Python uses a size, and what is
traced for them."""

from __future__ import annotations

import functools
import gc
import math
import statistics
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treadle as td
import treadle.numpy as tnp
from tests.core.api.sized import check, random, same
from treadle import rng, tree
from treadle.dims import Scope
from treadle.errors import DonatedError, LeakError
from treadle.ir.graph import Graph

NAMES = {4: "four", 6: "six", 8: "eight"}


@functools.lru_cache
def cached(n: int) -> float:
    return float(n) * 2


@dataclass(frozen=True)
class Key:
    size: int


@td.tree.register_dataclass
@dataclass
class Pair:
    a: Any
    b: Any


def matched(x: Any) -> Any:
    match x.shape:
        case (6, _):
            return x * 6
        case (n, _) if n > 10:
            return x - n
    return x


def caught(x: Any) -> Any:
    try:
        return x * NAMES[x.shape[0]].count("i")
    except:  # noqa: E722 - as users do
        return x - 1


def counted(x: Any) -> Any:
    total, n = 0, x.shape[0]
    while n > 1:
        n, total = n // 2, total + 1
    return x + total


def grouped(x: Any) -> Any:
    groups = defaultdict(list)
    groups[x.shape[0]].append(x)
    return groups[x.shape[0]][0] + Counter(x.shape)[x.shape[0]]


# How a program uses a size n = x.shape[0], and how many programs serve 4, 6, 1, 2, 3, 8
# and 17: that for 4, which is static, and those that are for all others, if one is.
SYMBOLIC = {
    "sum and mean": lambda x: x.sum(0) / x.shape[0] - x.mean(0),
    "reciprocal": lambda x: x * (1 / x.shape[0]),
    "inverse root": lambda x: x * x.shape[0] ** -0.5,
    "np.sqrt": lambda x: x / np.sqrt(x.shape[0]),
    "sum with a float": lambda x: x * (0.1 * x.shape[0] + 2.5),
    "int beside an array": lambda x: x + x.shape[0] - x.shape[0] // 2,
    "remainder": lambda x: x * (x.shape[0] % 3),
    "power": lambda x: x * x.shape[0] ** 2,
    "size": lambda x: x.sum() / x.size + x.ndim,
    "math.prod": lambda x: x * math.prod(x.shape),
    "nbytes": lambda x: x * (x.nbytes // 4),
    "unpacked shape": lambda x: x * (lambda n, m: n + m)(*x.shape),
    "reshape to one axis": lambda x: x.reshape(x.shape[0] * x.shape[1]),
    "reshape with -1": lambda x: x.reshape(-1),
    "zeros": lambda x: tnp.zeros(x.shape) + x,
    "zeros of a size": lambda x: tnp.zeros((x.shape[0], 2)),
    "arange": lambda x: tnp.arange(x.shape[0]) + x[:, 0],
    "a size as an operand": lambda x: tnp.minimum(x, x.shape[0]),
    "max with 0": lambda x: x * max(x.shape[0], 0),
    "divmod": lambda x: x + divmod(x.shape[0], 4)[0],
    "floor of a half": lambda x: x * math.floor(x.shape[0] / 2),
    "sum of sizes": lambda x: x * sum(x.shape),
    "equal sizes of two arrays": lambda x: x + x * (x.shape == x.shape),
    "isinstance": lambda x: x if isinstance(x.shape[0], int) else 2 * x,
    "returned": lambda x: (x.sum(), x.shape[0], 2 / x.shape[0]),
    "a function of a size": lambda x: x * tnp.sqrt(x.shape[0]) + tnp.array(x.shape[1]),
    "filled with a size": lambda x: tnp.full(x.shape, 1 / x.shape[0]),
    "chosen from sizes": lambda x: tnp.where(x > 0, x.shape[0], 1 / x.shape[0]),
    "halves": lambda x: x.astype("bfloat16") * x.shape[0] ** -0.5 + x.shape[0],
    "beside integers": lambda x: (x > 0) + tnp.arange(3) * x.shape[0],
    "a nested jit": lambda x: td.jit(lambda y, n: y * n)(x, x.shape[0]),
    "a static argument": lambda x: td.jit(lambda y, n: y * n, static="n")(
        x, n=x.shape[0]
    ),
    "vmap": lambda x: td.vmap(lambda r: r / r.shape[0] + x.shape[0])(x),
    "grad": lambda x: td.grad(lambda y: (y * y).mean())(x),
    "first half": lambda x: x[: (x.shape[0] + 1) // 2],
    "all but none": lambda x: x[0:],
    "a carry": lambda x: td.scan(lambda c, r: (c + 1, r * c), x.shape[0], x),
    "a carry of while_loop": lambda x: td.while_loop(
        lambda c: c[0] > 0, lambda c: (c[0] - 3, c[1] * 2), (x.shape[0], 1 / x.shape[0])
    ),
    "an operand of cond": lambda x: td.cond(
        x.sum() > 0, lambda n: n * 2, lambda n: n + 1, x.shape[0]
    ),
    "tangents": lambda x: td.jvp(lambda s: x * s, (2 / x.shape[0],), (x.shape[0] / 2,)),
    "among others": lambda x: tnp.array([x.shape[0], 2.5, 1 / x.shape[0]]),
    "an array of a quotient": lambda x: tnp.asarray(1 / x.shape[0]),
    "given to a callback": lambda x: td.pure_callback(
        lambda n: np.float32(n) * 2, td.ShapeDtype((), np.float32), x.shape[0]
    ),
    "a seed": lambda x: rng.uniform(rng.key(x.shape[0]), (3,)),
    "folded into a key": lambda x: rng.bits(rng.fold_in(rng.key(0), x.shape[0])),
    "an integer power": lambda x: tnp.power(x.shape[0], 2) + x,
    "fori_loop": lambda x: td.fori_loop(0, x.shape[0], lambda i, c: c + x[i], x[0]),
}
GUARDED = {
    "if": lambda x: x + 1 if x.shape[0] > 3 else x - 1,
    "if on a real": lambda x: x + 1 if 1 / x.shape[0] < 0.3 else x - 1,
    "min": lambda x: x * min(x.shape[0], 5),
    "even sizes": lambda x: x.sum() if x.shape[0] % 2 else x.reshape(-1, 2, 3),
    "first two": lambda x: x[:2],
    "while": counted,
    "clamped slice": lambda x: x[-3:],
    "in a range": lambda x: x if 2 <= x.shape[0] < 8 else -x,
    "bool": lambda x: x if x.shape[0] - 1 else -x,
    "sorted": lambda x: x * sorted([x.shape[0], 5])[0],
}
FIXED = {
    "len": lambda x: x * len(x),
    "int": lambda x: x * int(x.shape[0]),
    "float": lambda x: x * float(x.shape[0]),
    "math.sqrt": lambda x: x / math.sqrt(x.shape[0]),
    "math.log": lambda x: x * math.log(x.shape[0] + 1),
    "range": lambda x: sum((x[i] * i for i in range(x.shape[0])), x[0]),
    "iteration": lambda x: sum(list(x), x[0]),
    "comprehension": lambda x: tnp.stack([row * 2 for row in x]),
    "dict": lambda x: x * len(NAMES.get(x.shape[0], "")),
    "set": lambda x: x * (x.shape[0] in {2, 6}),
    "tuple": lambda x: x * (x.shape[0] in (2, 6)),
    "own dict": lambda x: x * {x.shape[0]: 2}[x.shape[0]],
    "grouping": grouped,
    "dict of results": lambda x: {f"n{x.shape[0]}": x},
    "key of a result": lambda x: {x.shape[0]: x},
    "f-string": lambda x: x * len(f"{x.shape[0]:>3}{x.shape}"),
    "percent": lambda x: x * len("%d of %s" % (x.shape[0], x.shape)),  # noqa: UP031
    "str": lambda x: x * int(str(x.shape[0])),
    "repetition": lambda x: tnp.concatenate([x] + [x[:1]] * x.shape[0]),
    "list index": lambda x: x * list(range(20))[x.shape[0]],
    "np.ones": lambda x: x * np.ones((x.shape[0], 1), np.float32),
    "np.prod": lambda x: x * float(np.prod(x.shape)),
    "lru_cache": lambda x: x * cached(x.shape[0]),
    "hash of a dataclass": lambda x: x * {Key(6): 2}.get(Key(x.shape[0]), 1),
    "a function of the standard library": lambda x: (
        x * float(statistics.mean([x.shape[0], 2]))
    ),
    "match": matched,
    "a bare except": caught,
    "bit_length": lambda x: x * x.shape[0].bit_length(),
    "is equal": lambda x: x * 2 if x.shape[0] == 6 else x,
    "equal to a shape": lambda x: x * 2 if x.shape == (6, 3) else x,
}


def rows(n: int) -> tuple[Any]:
    return (random(n, 3),)


@pytest.mark.parametrize("name", SYMBOLIC)
def test_one_program_serves_all_sizes(name: str) -> None:
    report = check(SYMBOLIC[name], rows)
    assert report.traces == 2, report
    assert report.programs[1].symbolic and report.programs[1].sizes == 6


@pytest.mark.parametrize("name", GUARDED)
def test_a_program_for_each_answer(name: str) -> None:
    report = check(GUARDED[name], rows)
    assert 3 <= report.traces <= 7, report
    assert any(p.sizes > 1 for p in report.programs)
    # What the compiler asks has no line.
    guards = [g for p in report.programs for g in p.guards if g.source]
    asked = [g for g in guards if g.reason != "is 1"]
    assert all(g.source.startswith(__file__) for g in asked)


@pytest.mark.parametrize("name", FIXED)
def test_who_needs_the_number_gets_a_program_for_it(name: str) -> None:
    report = check(FIXED[name], rows, sizes=(4, 6, 1, 3))
    fixed = [g for p in report.programs for g in p.guards if g.reason != "is 1"]
    assert any(g.op == "==" and g.holds for g in fixed)
    assert all(g.source.startswith(__file__) for g in fixed)


ROWS = {
    "scaled": lambda x: x * x.shape[0] ** -0.5,
    "centred": lambda x: x - x.sum(0) / x.shape[0],
    "reversed": lambda x: x[::-1],
    "shifted": lambda x: tnp.concatenate([x[1:], x[:1]]),
    "halves": lambda x: tnp.concatenate([x[x.shape[0] // 2 :], x[: x.shape[0] // 2]]),
    "flat and back": lambda x: x.reshape(-1).reshape(x.shape[0], -1),
    "turned": lambda x: x.T.reshape(x.shape),
    "parity": lambda x: x + 1 if x.shape[0] % 2 else x.reshape(-1, 6).reshape(-1, 3),
    "clipped": lambda x: tnp.minimum(x, 1 / x.shape[0]),
    "running": lambda x: tnp.cumsum(x, 0),
    "numbered": lambda x: x + tnp.arange(x.shape[0])[:, None],
    "product": lambda x: (x @ x.T) @ x,
    "gradient": lambda x: td.grad(lambda y: (y * y.mean()).sum())(x),
    "scanned": lambda x: td.scan(lambda c, r: (c + r, c * r), x[0], x)[1],
    "each": lambda x: td.vmap(lambda r: r / (1 + x.shape[0]))(x),
    "few": lambda x: x * 2 if x.shape[0] < 4 else tnp.tanh(x),
}


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(list(ROWS)), min_size=2, max_size=4))
def test_any_of_them_in_a_row(names: list[str]) -> None:
    def f(x: Any) -> Any:
        for name in names:
            x = ROWS[name](x)
        return x

    report = check(f, rows, sizes=(5, 8, 1, 3, 2, 6))
    assert report.traces <= 6


def test_the_report_says_what_fixed_a_size() -> None:
    report = check(FIXED["len"], rows, sizes=(4, 6))
    assert "x.shape[0] == 6, for len(x) (not so `x.shape[0]`)" in str(report)
    assert __file__ in str(report)


def test_the_first_program_keeps_its_size_and_0_is_static() -> None:
    report = check(lambda x: x * 2, rows, sizes=(4, 6, 4, 0, 4, 0, 7))
    signatures = [p.signature for p in report.programs]
    assert signatures == ["x: f32[4,3]", "x: f32[x.shape[0],3]", "x: f32[0,3]"]
    assert [p.calls for p in report.programs] == [3, 2, 2]


def test_axes_that_are_always_equal_are_one_dimension() -> None:
    def f(x: Any, y: Any) -> Any:
        return x @ y

    report = check(f, lambda n: (random(2, n), random(n, n)), sizes=(4, 6, 9))
    assert report.traces == 2
    assert report.programs[1].signature == "x: f32[2,x.shape[1]], y: " + (
        "f32[x.shape[1],x.shape[1]]"
    )
    apart = td.jit(lambda x, y: (x.sum(), y.sum()))
    static = td.jit(lambda x, y: (x.sum(), y.sum()), dynamic=False)
    for m, n in ((2, 2), (3, 3), (3, 4), (5, 6), (7, 7)):
        same(apart(random(m), random(n)), static(random(m), random(n)))
    assert apart.report().traces == 3
    assert apart.report().programs[2].signature == (
        "x: f32[x.shape[0]], y: f32[y.shape[0]]"
    )


def test_sizes_that_must_be_equal_are_one_and_others_an_error() -> None:
    f = td.jit(lambda x, y: x + y)
    for m, n in ((2, 5), (3, 4), (6, 6), (7, 7)):
        if m == n:
            same(f(random(m), random(n)), random(m) + random(n))
        else:
            with pytest.raises(ValueError, match=rf"\({m},\).*\({n},\)"):
                f(random(m), random(n))
    (program,) = f.report().programs[-1:]
    x, y = program.signature.split(", ")
    assert x.removeprefix("x: ") == y.removeprefix("y: ")


def test_a_size_may_be_found_to_be_a_multiple_of_another_and_more() -> None:
    f = td.jit(lambda x, y: y[1:].reshape(3, -1, 2).sum(0) + x)
    for n in (8, 3, 5, 17, 2):
        x, y = random(n, 2), random(3 * n + 1, 2)
        same(f(x, y), y[1:].reshape(3, -1, 2).sum(0) + x)
    assert f.report().traces == 2
    guards = {str(g) for g in f.report().programs[1].guards}
    assert "y.shape[0] == 3*x.shape[0] + 1" in guards


def test_broadcasting_against_1_is_another_program() -> None:
    def arguments(n: int) -> Any:
        return random(17, 3), random(n, 3)

    report = check(lambda x, y: x + y, arguments, sizes=(17, 1, 17, 1))
    assert report.traces == 2
    x = [random(n, 1) for n in (3, 5, 1, 4)]
    f = td.jit(lambda x: x + tnp.ones((4, 1)) * 2)
    for a in (x[2], x[3], x[2]):
        same(f(a), td.jit(lambda x: x + tnp.ones((4, 1)) * 2, dynamic=False)(a))


def test_after_eight_programs_it_is_one_for_each_size() -> None:
    f = td.jit(lambda x: x * int(x.shape[0]))
    for n in range(1, 13):
        same(f(random(n)), random(n) * np.float32(n))
    report = f.report()
    assert report.traces == 12
    assert sum(p.symbolic for p in report.programs) == 8
    (note,) = report.notes
    assert "8 programs were traced for sizes that vary" in note
    assert "a program for each size" in str(report)


def test_what_can_not_be_traced_for_all_sizes_is_for_each() -> None:
    def f(x: Any) -> Any:
        return x * float(str(__import__("decimal").Decimal(x.shape[0])))

    dynamic = td.jit(f)
    for n in (3, 4, 5):
        same(dynamic(random(n)), random(n) * np.float32(n))
    assert "failed with TypeError" in dynamic.report().notes[0]


def test_an_error_of_the_user_has_numbers_in_it() -> None:
    f = td.jit(lambda x: x @ tnp.ones((3, 2)))
    f(random(4, 3))
    with pytest.raises(ValueError, match=r"\(6, 4\)|\[6,4\]"):
        f(random(6, 4))


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_a_size_that_leaves_the_trace_is_an_error() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x.shape[0])
        return x * x.shape[0]

    dynamic = td.jit(f)
    for n in (3, 4):
        dynamic(random(n))
    size = kept[-1]
    later = td.jit(lambda x: x + tnp.zeros((size, 2)).sum())
    for use in (
        lambda: size + 1,
        lambda: range(size),
        lambda: tnp.ones(2) * size,
        lambda: tnp.zeros(size),
        lambda: later(tnp.ones(2)),
        lambda: td.jit(lambda x: x * (x.shape[0] + size), dynamic={"x": ("n",)})(
            tnp.ones(2)
        ),
    ):
        with pytest.raises(LeakError, match=r"x\.shape\[0\].*after that trace"):
            use()


def test_sizes_inside_of_a_trace_belong_to_it() -> None:
    inner = td.jit(lambda y: y * y.shape[0])
    outer = td.jit(lambda x: inner(x) + inner(x[:, 0]).sum())

    def expected(x: Any) -> Any:
        return td.jit(
            lambda x: x * x.shape[0] + (x[:, 0] * x.shape[0]).sum(), dynamic=False
        )(x)

    for n in (3, 4, 5, 6):
        same(outer(random(n, 2)), expected(random(n, 2)))
    assert outer.report().traces == 2
    for n in (3, 4, 5):
        same(inner(random(n)), random(n) * np.float32(n))
    for transform in (td.grad, td.vmap, lambda f: td.vmap(td.grad(f))):
        whole = transform(lambda x: inner(x).sum())
        one = transform(lambda x: (x * x.shape[0]).sum())
        for n in (3, 4):
            same(whole(random(2, n)), one(random(2, n)))


def test_donation_statics_and_trees() -> None:
    def step(state: Any, x: Any, flag: bool) -> Any:
        total = state["sum"] + (x.a.sum(0) if flag else x.b.mean())
        return {"sum": total, "count": state["count"] + x.a.shape[0]}

    f = td.jit(step, donate="state", static="flag")
    for flag in (True, False):
        for n in (3, 4, 5):
            pair = Pair(random(n, 2), random(n))
            state = {"sum": tnp.ones(2), "count": tnp.array(n)}
            expected = td.jit(step, static="flag", dynamic=False)(state, pair, flag)
            same(f(state, pair, flag), expected)
            with pytest.raises(DonatedError):
                state["sum"] + 1
    assert f.report().traces == 4


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_traces_of_one_function_from_several_threads() -> None:
    traced: list[int] = []

    def f(x: Any) -> Any:
        traced.append(1)
        return (x * x.shape[0]).sum(0) if x.shape[0] > 5 else x.mean(0)

    static = td.jit(f, dynamic=False)
    wanted = {n: np.asarray(static(random(n, 3))) for n in range(1, 12)}
    dynamic, errors = td.jit(f), []
    barrier = threading.Barrier(8)

    def work(seed: int) -> None:
        barrier.wait()
        for n in np.random.default_rng(seed).permutation(np.arange(1, 12)).tolist():
            if np.asarray(dynamic(random(n, 3))).tobytes() != wanted[n].tobytes():
                errors.append(n)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert dynamic.report().traces <= 4


def test_programs_are_kept_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    f = td.jit(lambda x: x * 2)
    made = f._programs.kept.made
    monkeypatch.setattr(made.entries, "most", 5)
    monkeypatch.setattr(made.families, "most", 3)
    for n in range(1, 12):
        same(f(random(n)), random(n) * 2)
    for rank in range(1, 6):
        f(np.ones((2,) * rank, np.float32))
    assert len(made.entries) == 5 and len(made.families) == 3
    assert f.report().programs[1].sizes == 11  # 2, twice: it was forgotten
    same(f(random(2)), random(2) * 2)


def alive(kind: type) -> int:
    gc.collect()
    return sum(type(x) is kind for x in gc.get_objects())


@pytest.mark.usefixtures("only_new_objects")
def test_sizes_and_what_was_made_of_them_go_with_their_function() -> None:
    def called() -> None:
        inner = td.jit(lambda x: tnp.sin(x) @ tnp.ones((4, 30)))
        f = td.jit(lambda x: inner(x)[0, :4] + inner(x[::-1]).T @ x)
        for n in (3, 5, 8):
            f(random(n, 4))

    called()
    before = alive(Scope), alive(Graph)
    called()
    assert (alive(Scope), alive(Graph)) == before


def test_a_captured_array_and_disable_jit() -> None:
    w = tnp.array(random(3, 2))
    f = td.jit(lambda x: x @ w * x.shape[0])
    for n in (4, 5, 6):
        got = f(random(n, 3))
        with td.disable_jit():
            np.testing.assert_allclose(got, f(random(n, 3)), rtol=1e-5)
    assert f.report().traces == 2


def test_explain_and_lower_know_the_sizes_of_their_arguments() -> None:
    f = td.jit(lambda x: x @ x.T)
    for n in (4, 5, 6):
        f(random(n, 3))
    program = f.lower(td.ShapeDtype((7, 3))).compile().program
    assert f.lower(random(7, 3)).compile().program is program
    assert "kernel" in f.explain(td.ShapeDtype((7, 3)))
    (out,) = program([tnp.array(random(7, 3))])
    assert out.shape == (7, 7) and tree.leaves(out)[0].shape[0] == 7


def test_a_function_of_open_sizes_is_called_inside_of_others() -> None:
    inner = td.jit(lambda x: tnp.sum(x * 2) / x.shape[0])
    for n in (2, 3, 4):
        inner(np.ones(n, np.float32))
    assert inner.report().traces == 2
    x = np.arange(3, dtype=np.float32)
    assert td.jit(lambda x: inner(x) + 1)(x) == 3
    np.testing.assert_allclose(td.grad(inner)(x), np.full(3, 2 / 3), rtol=1e-6)
    np.testing.assert_allclose(td.vmap(inner)(np.stack([x, x + 1])), [2, 4])
    assert str(inner.graph(x).in_types[0]) == "f32[3]"
    assert inner(np.ones(5, np.float32)) == 2
