"""remat: the same derivatives, fewer things remembered."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import PROPERTIES, array, check, close
from tests.refused import refused
from treadle.errors import TracerError
from treadle.ir.check import check as check_graph
from treadle.ir.graph import Graph


def mlp(lib: Any) -> Any:
    def layer(w: Any, x: Any) -> Any:
        return lib.np.tanh(lib.np.sin(x @ w) @ w)

    return lambda w, x: lib.remat(layer)(w, lib.remat(layer)(w, x))


def in_scan(lib: Any) -> Any:
    @lib.remat
    def block(w: Any, h: Any) -> Any:
        return lib.np.exp(-(lib.np.sin(h @ w) ** 2))

    def run(h: Any, ws: Any) -> Any:
        return lib.scan(lambda h, w: (block(w, h), None), h, ws)[0]

    return run


def around_scan(lib: Any) -> Any:
    @lib.remat
    def run(x: Any, ys: Any) -> Any:
        return lib.scan(lambda c, y: (lib.np.sin(c * y), c), x, ys)

    return run


CASES: dict[str, tuple[Any, list[np.ndarray]]] = {
    "mlp": (mlp, [array(3, 3), array(2, 3)]),
    "in scan": (in_scan, [array(2, 3), array(4, 3, 3)]),
    "around scan": (around_scan, [array(), array(4)]),
}


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("case", CASES)
def test_agrees(case: str, name: str) -> None:
    build, args = CASES[case]
    check(build, args, name)


def residual_bytes(function: Any, *args: Any) -> int:
    """What the backward pass of a function remembers, its arguments apart."""
    _, pullback = td.vjp(function, *args)
    given = {id(a) for a in args}
    kept = [r for r in td.tree.leaves(pullback) if id(r) not in given]
    return sum(np.asarray(r).nbytes for r in kept)


def chain(w: Any, x: Any) -> Any:
    return tnp.sum(tnp.sin(tnp.exp(tnp.tanh(x @ w)) @ w))


@pytest.mark.parametrize(
    ("policy", "arrays"),
    [
        (None, 0),
        (td.nothing_saveable, 0),
        (td.dots_saveable, 2),
        (td.everything_saveable, None),
    ],
)
def test_policies(policy: Any, arrays: int | None) -> None:
    w, x = tnp.array(array(4, 4)), tnp.array(array(8, 4))
    kept = residual_bytes(td.remat(chain, policy=policy), w, x)
    plain = residual_bytes(chain, w, x)
    wanted = plain if arrays is None else arrays * x.nbytes
    assert kept <= wanted
    close(td.grad(td.remat(chain, policy=policy))(w, x), td.grad(chain)(w, x))


def test_own_policy() -> None:
    asked = set()

    def policy(op: Any, *types: Any, **params: Any) -> bool:
        asked.add(op.name)
        return op.name == "exp"

    w, x = tnp.array(array(4, 4)), tnp.array(array(8, 4))
    assert residual_bytes(td.remat(chain, policy=policy), w, x) == x.nbytes
    assert {"tanh", "dot_general"} <= asked


def named(w: Any, x: Any) -> Any:
    """A chain whose derivative needs the very values that have names."""
    h = td.checkpoint_name(tnp.exp(x @ w), "h")
    g = td.checkpoint_name({"g": tnp.exp(h @ w)}, "g")["g"]
    return tnp.sum(tnp.sin(g @ w))


NAMED: dict[str, tuple[Any, list[str]]] = {
    "only": (td.save_only_these_names("h", "other"), ["named 'h'"]),
    "any but": (td.save_any_names_but_these("h"), ["named 'g'"]),
    "except": (
        td.save_anything_except_these_names("h"),
        ["dot_general", "named 'g'", "cos"],
    ),
    "except both": (
        td.save_anything_except_these_names("h", "g"),
        ["dot_general", "dot_general", "cos"],
    ),
    "both": (
        td.save_from_both_policies(td.dots_saveable, td.save_only_these_names("g")),
        ["dot_general", "named 'g'", "dot_general"],
    ),
    "none": (td.save_only_these_names(), []),
    "dots without batch": (td.dots_without_batch_saveable, ["dot_general"] * 3),
}


def saved(function: Any, *args: Any, capsys: Any) -> list[str]:
    """What made each array that the backward pass remembers, the arguments apart."""
    td.print_saved_residuals(function, *args)
    lines = capsys.readouterr().out.splitlines()[1:]
    rows = [re.split(r"  +", line.strip()) for line in lines]
    return [row[2] for row in rows if not row[2].startswith("argument")]


@pytest.mark.parametrize("name", NAMED)
def test_policies_by_name(name: str, capsys: Any) -> None:
    policy, wanted = NAMED[name]
    w, x = tnp.array(0.1 * array(4, 4)), tnp.array(array(8, 4))
    function = td.remat(named, policy=policy)
    assert saved(function, w, x, capsys=capsys) == wanted
    assert residual_bytes(function, w, x) == len(wanted) * x.nbytes
    wanted = td.grad(named)(w, x)
    close(td.grad(function)(w, x), wanted)
    close(td.jit(td.grad(function))(w, x), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["only", "except", "both"])
def test_second_derivatives_with_names(name: str) -> None:
    w, x = 0.1 * array(3, 3).astype(float), array(2, 3).astype(float)
    td.check_grads(td.jit(td.remat(named, policy=NAMED[name][0])), (w, x), order=2)


def test_named_values_of_an_iteration(capsys: Any) -> None:
    """Kept of each one, if `remat` is around the body."""

    @td.remat(policy=td.save_only_these_names("k"))
    def block(w: Any, h: Any) -> Any:
        return tnp.tanh(td.checkpoint_name(tnp.sin(h @ w), "k"))

    def run(ws: Any, h: Any) -> Any:
        return tnp.sum(td.scan(lambda h, w: (block(w, h), None), h, ws)[0])

    assert saved(run, array(3, 4, 4), array(8, 4), capsys=capsys) == [
        "scan",
        "named 'k'",
    ]


IN_LOOP: dict[str, tuple[Any, list[str]]] = {
    "nothing": (td.nothing_saveable, []),
    "everything": (td.everything_saveable, ["scan", "exp", "cos"]),
    "dots": (td.dots_saveable, ["dot_general", "dot_general"]),
    "only": (td.save_only_these_names("h"), ["named 'h'"]),
}


@pytest.mark.parametrize("name", IN_LOOP)
def test_policies_open_loops(name: str, capsys: Any) -> None:
    """What a policy asks for in a body is stacked, and not computed again."""

    def layer(h: Any, w: Any) -> Any:
        h = td.checkpoint_name(tnp.exp(h @ w), "h")
        return tnp.sin(h @ w), None

    def run(x: Any, ws: Any) -> Any:
        return tnp.sum(td.scan(lambda c, _: td.scan(layer, c, ws), x, None, 2)[0])

    policy, wanted = IN_LOOP[name]
    x, ws = array(8, 4), 0.1 * array(3, 4, 4)
    function = td.remat(run, policy=policy)
    found = saved(function, x, ws, capsys=capsys)
    assert sorted(found) == sorted(wanted)
    back = td.grad(function, (0, 1))
    check_graph(td.trace(back)(x, ws))
    wanted_grads = td.jit(td.grad(run, (0, 1)))(x, ws)
    close(td.jit(back)(x, ws), wanted_grads)
    if name == "only":
        close(back(x, ws), wanted_grads)
        graph = td.trace(back)(x, ws)
        assert count(graph, "exp") == 1, "it is there already"


@pytest.mark.parametrize("policy", [td.everything_saveable, NAMED["only"][0]])
def test_effects_in_opened_loops_happen_once(policy: Any) -> None:
    seen = []

    def step(c: Any, w: Any) -> Any:
        c = td.checkpoint_name(tnp.sin(c @ w), "h")
        number = td.ShapeDtype((), "float32")
        asked = td.io_callback(np.float32, number, td.stop_gradient(tnp.sum(c)))
        td.debug.callback(lambda x: seen.append(x.item()), tnp.sum(c))
        return c * asked, None

    def run(x: Any, ws: Any) -> Any:
        return tnp.sum(td.scan(step, x, ws)[0])

    x, ws = array(2, 3), array(3, 3, 3)
    back = td.grad(td.remat(run, policy=policy), (0, 1))
    close(td.jit(back)(x, ws), td.grad(run, (0, 1))(x, ws), 1e-4)
    assert len(seen) == 2 * len(ws)


def test_names_change_nothing() -> None:
    """Not what is computed, nor how: they are gone when kernels are made."""

    def plain(w: Any, x: Any) -> Any:
        return tnp.sum(tnp.sin(tnp.exp(tnp.exp(x @ w) @ w) @ w))

    w, x = array(4, 4), array(8, 4)
    for of in (lambda f: f, td.grad):
        wanted, found = (
            td.jit(of(f)).explain(w, x).replace(f.__name__, "") for f in (plain, named)
        )
        lines = [
            re.sub(r"test_remat.py:\d+|\d+ equations", "", t) for t in (wanted, found)
        ]
        assert lines[0] == lines[1]


def test_equal_policies_share_programs() -> None:
    assert td.save_only_these_names("a", "b") == td.save_only_these_names("b", "a")
    assert td.save_only_these_names("a") != td.save_any_names_but_these("a")
    either = [
        td.save_from_both_policies(td.dots_saveable, td.save_only_these_names("a"))
        for _ in range(2)
    ]
    assert either[0] == either[1] and hash(either[0]) == hash(either[1])


def test_saved_residuals_are_listed(capsys: Any) -> None:
    def loss(params: Any, x: Any, power: int, *, scale: Any) -> Any:
        inner = td.jit(lambda x: tnp.sin(x) * scale)
        return tnp.sum(inner(params["w"] * x) ** power)

    w, x = array(3), array(3, seed=1)
    td.print_saved_residuals(loss, {"w": w}, x, 3, scale=2.0)
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith(f"loss saves {len(rows)} arrays, ")
    text = "\n".join(rows)
    assert "f32[3]     12  argument `params['w']` of loss" in text
    assert "  f32[]       4  argument `scale` of loss" in text
    assert re.search(r"cos  test_remat.py:\d+  inner = td.jit\(lambda x", text)
    back = td.jit(lambda w, x: td.vjp(lambda w, x: loss(w, x, 3, scale=2.0), w, x)[1])
    total = sum(leaf.nbytes for leaf in td.tree.leaves(back({"w": w}, x)))
    assert f"{total + 4:,} bytes" in first  # There, the scale is a constant.


def test_static_arguments() -> None:
    def f(x: Any, rate: float, *, factor: float = 1.0) -> Any:
        return math.sqrt(rate) * factor * tnp.sin(x) if rate > 0.5 else x

    g = td.remat(f, static=("rate", "factor"))
    for wrap in (lambda h: h, td.jit):
        found = wrap(td.grad(lambda x: g(x, 4.0, factor=3.0)))(0.0)
        close(found, np.float32(6))
    close(td.grad(td.remat(f, static=1))(0.0, 0.25), np.float32(1))
    refused(lambda: td.grad(td.remat(f))(0.0, 4.0), TracerError, at=f)
    refused(lambda: td.remat(f, static="speed"), ValueError, "no such argument")


MISUSE: dict[str, tuple[Any, str]] = {
    "policy of a list": (
        lambda: td.save_only_these_names(["h"]),
        "strings; got a list",
    ),  # type: ignore[arg-type]
    "one policy": (
        lambda: td.save_from_both_policies("a", "b"),  # type: ignore[arg-type]
        "takes two policies",
    ),
    "name": (lambda: td.checkpoint_name(1.0, 3), "names that are strings"),  # type: ignore[arg-type]
    "no array": (lambda: td.checkpoint_name("a", "h"), "what is to be named 'h'"),
    "no function": (lambda: td.remat(3.0), "remat takes a function"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse(name: str) -> None:
    mistake, part = MISUSE[name]
    refused(mistake, TypeError, part)


def count(graph: Graph, op: str) -> int:
    inner = [
        g for eq in graph.equations for g in eq.params.values() if isinstance(g, Graph)
    ]
    return sum(eq.op.name == op for eq in graph.equations) + sum(
        count(g, op) for g in inner
    )


def test_computed_again_behind_a_barrier() -> None:
    w, x = array(4, 4), array(8, 4)
    graph = td.trace(td.grad(td.remat(chain)))(w, x)
    check_graph(graph)
    plain = td.trace(td.grad(chain))(w, x)
    assert count(graph, "optimization_barrier") == 1
    assert count(graph, "tanh") == 2 * count(plain, "tanh")


def test_scan_of_remat_stores_the_carry_only() -> None:
    from tests.core.control.both import TREADLE

    build, args = CASES["in scan"]
    graph = td.trace(td.grad(lambda h, ws: tnp.sum(build(TREADLE)(h, ws))))(*args)
    forward = next(eq for eq in graph.equations if eq.op.name == "scan")
    stored = sum(v.type.nbytes for v in forward.outputs[1:])
    assert stored == 4 * args[0].nbytes


def test_flags_and_functions_pass_through() -> None:
    @td.remat
    def f(function: Any, x: Any, double: bool = False) -> Any:
        return function(x) * 2 if double else function(x)

    close(td.grad(lambda x: f(tnp.sin, x, double=True))(0.0), np.float32(2))


def test_decorator_with_policy() -> None:
    @td.remat(policy=td.dots_saveable)
    def f(x: Any) -> Any:
        return tnp.sin(x)

    close(td.grad(f)(0.0), np.float32(1))


def test_a_policy_by_name_is_refused() -> None:
    def mistake() -> Any:
        return td.remat(lambda x: x, policy="dots")  # type: ignore[call-overload]

    refused(mistake, TypeError, "got 'dots'", "td.dots_saveable")
