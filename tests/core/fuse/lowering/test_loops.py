"""Loops and branches as kernels: what they run, on what, and what is in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, program_of, traced
from treadle.backends.cpu.device import CPUTarget
from treadle.compile import stages
from treadle.errors import InternalError
from treadle.fuse.lowering import loops, overwriting
from treadle.fuse.lowering.check import check_kernels
from treadle.fuse.lowering.launches import Kernels, Repeat
from treadle.ir.graph import Equation, Graph, Lit
from treadle.ops.dynamic import dynamic_slice, dynamic_update_slice
from treadle.trace.lowering import Branch, Scan, While

X = array(5, 4)
TARGET = CPUTarget()
NONE = Kernels((), (), (), {})


def loop(graph: Graph) -> Equation:
    (found,) = [
        eq
        for eq in graph.equations
        if isinstance(eq.op.lowering, Scan | While | Branch)
    ]
    return found


def repeated(
    function: Callable[..., Any], *args: Any
) -> tuple[Graph, Equation, Any, Any]:
    graph = traced(function, *args)
    eq = loop(graph)
    (body,) = loops.bodies(eq)
    idle = NONE._replace(inputs=body.inputs, results=body.outputs)
    return graph, eq, *loops.repeat(eq, idle, program_of(graph))


def lowered(function: Callable[..., Any], *args: Any) -> Repeat:
    """The only loop of a function, with its body's kernels."""
    entries = stages(traced(function, *args), CPUTarget()).kernels.entries
    (found,) = [e.kernel for e in entries if isinstance(e.kernel, Repeat)]
    return found


def scanned(x: Any, w: Any, first: Any) -> Any:
    """With a constant, a carry that stays, two that move, rows in and out."""

    def body(c: Any, r: Any) -> Any:
        a, kept, b = c
        return (a + r, kept, b * kept + w), a * 2.0

    return td.scan(body, (first, w, w), x, reverse=True)


def test_a_scan_by_role() -> None:
    graph, eq, repeat, same = repeated(scanned, X, array(4), array(4))
    n = eq.params["n_consts"]
    assert (repeat.length, repeat.reverse) == (5, True)
    assert repeat.consts == (*eq.inputs[:n], graph.inputs[1])
    assert repeat.rows == (graph.inputs[0],)
    assert repeat.carries.results == (eq.outputs[0], eq.outputs[2])
    assert len(repeat.carries.init) == len(repeat.carries.in_place) == 2
    assert repeat.new_rows == (eq.outputs[3],)
    # What no iteration changes is the operand itself.
    assert same == {eq.outputs[1]: (graph.inputs[1], 0)}


def test_the_body_takes_constants_then_carries_then_rows() -> None:
    graph = traced(scanned, X, array(4), array(4))
    eq = loop(graph)
    inner = eq.params["graph"]
    (body,) = loops.bodies(eq)
    n = eq.params["n_consts"]
    first, kept, second = inner.inputs[n : n + 3]
    assert body.inputs == (*inner.inputs[:n], kept, first, second, inner.inputs[-1])
    outs = inner.outputs
    assert body.outputs == (outs[0], outs[2], outs[3])
    assert body.equations is inner.equations


def test_what_an_equation_runs() -> None:
    graph = traced(
        lambda x: td.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x), X
    )
    eq = loop(graph)
    assert loops.bodies(eq) == [eq.params["test"], eq.params["body"]]
    graph = traced(lambda x: td.cond(x.sum() > 0, lambda a: a + 1, tnp.sin, x), X)
    eq = loop(graph)
    assert loops.bodies(eq) == list(eq.params["branches"])
    assert loops.bodies(graph.equations[0]) == []
    graph = traced(lambda x: td.scan(lambda c, r: (c + r, r), x[0], x[:0]), X)
    assert loops.bodies(loop(graph)) == []


def test_zeros_need_no_memory() -> None:
    def function(x: Any) -> Any:
        first = (tnp.zeros(4), tnp.ones(4), tnp.zeros(4), x[0])
        step = lambda c, r: ((c[0] + r, c[1] + r, c[2], c[3] + c[2]), None)  # noqa: E731
        return td.scan(step, first, x)

    graph = traced(function, X)
    eq, flow = loop(graph), program_of(graph)
    n = eq.params["n_consts"]
    # Nor what stays as it is: that is read.
    assert loops.zero_inits(eq, flow) == {n}
    graph = traced(
        lambda x: td.while_loop(
            lambda c: c[0].sum() < x.sum(),
            lambda c: (c[0] + x, c[1]),
            (tnp.zeros(4), x),
        ),
        array(4),
    )
    eq, flow = loop(graph), program_of(graph)
    first = eq.params["n_test_consts"] + eq.params["n_body_consts"]
    assert first == 2
    assert loops.zero_inits(eq, flow) == {first}
    assert isinstance(loops.begin(eq.inputs[first], flow), Lit)
    assert loops.begin(eq.inputs[first + 1], flow) is graph.inputs[0]
    (add, *_) = eq.params["body"].equations
    assert loops.zero_inits(add, flow) == set()


def test_an_empty_loop_begins_with_zeros_that_stay() -> None:
    def function(x: Any) -> Any:
        return td.scan(lambda c, r: (c, r), (tnp.zeros(4), x[0]), x[:0])

    graph = traced(function, X)
    eq = loop(graph)
    assert loops.zero_inits(eq, program_of(graph)) == {eq.params["n_consts"]}


def test_a_while_by_role() -> None:
    def function(x: Any, y: Any, z: Any) -> Any:
        test = lambda c: c[0].sum() < y.sum()  # noqa: E731
        return td.while_loop(test, lambda c: (c[0] + z, c[1] * x), (x, y))

    graph = traced(function, *[array(4)] * 3)
    x, y, z = graph.inputs
    found = loops.repeat_while(
        loop(graph), NONE, NONE._replace(inputs=(x,)), program_of(graph)
    )
    assert found.test_consts == (y,)
    assert set(found.body_consts) == {x, z}
    assert found.carries.init == (x, y)
    assert found.carries.results == loop(graph).outputs
    assert (found.test.inputs, found.body.inputs) == ((), (x,))


def test_a_choice_by_role() -> None:
    graph = traced(lambda x, i: td.switch(i, [tnp.sin, tnp.cos], x), X, np.int32(1))
    eq = loop(graph)
    found = loops.choose(eq, [NONE, NONE], program_of(graph))
    assert (found.which, *found.operands) == eq.inputs
    assert found.results == eq.outputs
    assert len(found.branches) == 2


STEPS: dict[str, tuple[bool, Callable[[Any, Any, Any], Any]]] = {
    "set": (True, lambda a, i, x: (a.at[i].set(x), x)),
    "add": (True, lambda a, i, x: (a.at[i].add(x), x)),
    "multiplied": (True, lambda a, i, x: (a.at[i].multiply(x), x)),
    "given back as it was": (True, lambda a, i, x: (a.at[i].set(x), a[:1])),
    "all given back": (False, lambda a, i, x: (a.at[i].set(x), a)),
    "not scattered": (True, lambda a, i, x: (a + x, x)),
    "made of itself, twice": (True, lambda a, i, x: (tnp.sin(a) * a, x)),
    "made of other elements": (False, lambda a, i, x: (a[::-1] + x, x)),
    "made of some of its elements": (False, lambda a, i, x: (a + a[:1] + x, x)),
    "made of all, not of itself": (True, lambda a, i, x: (a.sum(0) * x + a, x)),
    "not read": (True, lambda a, i, x: (tnp.zeros_like(a) + x, x)),
    "made of itself and given back": (False, lambda a, i, x: (a + x, a)),
    "scaled by its largest": (True, lambda a, i, x: (a / (a.max() + x), x)),
    "row read": (True, lambda a, i, x: (a.at[i].set(x), a[i])),
    "all read": (True, lambda a, i, x: (a.at[i].set(x), a.sum(0))),
    "another scattered": (False, lambda a, i, x: ((a * 2).at[i].set(x), x)),
    "a row of it turned": (True, lambda a, i, x: (a.at[i].set(a[i, ::-1]), x)),
    "put where it is read": (
        True,
        lambda a, i, x: (_put(a, x + _get(a, i, 0), i, 0), x),
    ),
    "put elsewhere": (True, lambda a, i, x: (_put(a, x + _get(a, i, 0), i + 1, 0), x)),
    "put at another constant": (
        True,
        lambda a, i, x: (_put(a, _get(a, i, 1), i, 0), x),
    ),
    "put at an equal constant": (
        True,
        lambda a, i, x: (_put(a, x + _get(a, i, 1), i, 1), x),
    ),
    "smaller": (True, lambda a, i, x: (_put(a, (x + _get(a, i, 0))[:, :2], i, 0), x)),
    "given back": (
        True,
        lambda a, i, x: (lambda r: (_put(a, r, i, 0), r))(_get(a, i, 0) + x),
    ),
    "not by element": (
        True,
        lambda a, i, x: (_put(a, tnp.cumsum(_get(a, i, 0), 1), i, 0), x),
    ),
}


def _get(a: Any, i: Any, j: Any) -> Any:
    return dynamic_slice(a, i, tnp.asarray(j, "int32"), sizes=(1, 4))


def _put(a: Any, row: Any, i: Any, j: Any) -> Any:
    return dynamic_update_slice(a, row, i, tnp.asarray(j, "int32"))


@pytest.mark.parametrize("name", STEPS)
def test_carries_that_are_written_into_are_in_place(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(overwriting, "LARGE", 0)
    wanted, step = STEPS[name]

    def body(c: Any, r: Any) -> Any:
        a, i = c
        a, y = step(a, i, r)
        return (a, i + 1), y

    def function(x: Any) -> Any:
        return td.scan(body, (x, tnp.asarray(0, "int32")), x)

    assert lowered(function, X).carries.in_place[0] is wanted
    x = tnp.asarray(np.random.default_rng(0).normal(size=X.shape).astype("float32"))
    carry, rows = (x, tnp.asarray(0, "int32")), []
    for row in x:
        carry, y = body(carry, row)
        rows.append(y)
    (found, _), found_rows = td.jit(function)(x)
    assert np.allclose(found, carry[0], rtol=1e-6)
    assert np.allclose(found_rows, tnp.stack(rows), rtol=1e-6)


@pytest.mark.parametrize("name", STEPS)
def test_a_carry_in_place_is_not_read_once_it_is_written_over(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The checkers refuse what is wrongly said to be in place, if one memory for both
    is said to be right everywhere."""
    monkeypatch.setattr(overwriting, "LARGE", 0)
    wanted, step = STEPS[name]

    def function(x: Any) -> Any:
        def body(c: Any, r: Any) -> Any:
            a, y = step(c[0], c[1], r)
            return (a, c[1] + 1), y

        return td.scan(body, (x, tnp.asarray(0, "int32")), x)

    check_kernels(stages(traced(function, X), TARGET).kernels)
    right = overwriting.written_over
    wrong = lambda *args: [True, *right(*args)[1:]]  # noqa: E731
    monkeypatch.setattr(loops, "written_over", wrong)
    kernels = stages(traced(function, X), TARGET).kernels
    if wanted:
        check_kernels(kernels)
        return
    with pytest.raises(InternalError, match=r"a carry|that was written over"):
        check_kernels(kernels)


def test_large_carries_are_in_place() -> None:
    def function(x: Any) -> Any:
        step = lambda c, r: ((c[0] + r, c[1] * 2.0), None)  # noqa: E731
        return td.scan(step, (tnp.zeros((1024, 4)), x[0]), x)[0]

    assert lowered(function, X).carries.in_place == (True, False)


def test_what_stays_comes_after_the_constants() -> None:
    def function(x: Any, w: Any, kept: Any) -> Any:
        def body(c: Any, r: Any) -> Any:
            a, k, i = c
            return (a.at[i].set(r * w + k), k, i + 1), None

        return td.scan(body, (x, kept, tnp.asarray(0, "int32")), x)

    graph, _, repeat, _ = repeated(function, X, array(4), array(4))
    _, w, kept = graph.inputs
    assert repeat.consts == (w, kept)
    assert lowered(function, X, array(4), array(4)).carries.in_place == (True, False)


def test_constants_that_are_zeros_are_in_memory() -> None:
    def scan(x: Any, w: Any) -> Any:
        return td.scan(lambda c, r: (c + r * w, None), tnp.zeros(4), x)

    graph = traced(scan, X, array(4))
    eq = loop(graph)
    assert eq.params["n_consts"] == 1
    assert loops.zero_inits(eq, program_of(graph)) == {1}

    def loops_on(x: Any) -> Any:
        z = tnp.zeros(4)
        return td.while_loop(lambda c: c.sum() < 9, lambda c: c + tnp.sin(z), x)

    graph = traced(loops_on, array(4))
    eq = loop(graph)
    assert eq.params["n_body_consts"] == 1
    assert loops.zero_inits(eq, program_of(graph)) == set()
