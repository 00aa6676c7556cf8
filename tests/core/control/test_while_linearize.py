"""What reverse mode remembers of loops whose length nobody knows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from treadle.control.counted import counted_scan, going_scan
from treadle.control.remat import remat
from treadle.control.while_linearize import Memory, linearize_while
from treadle.control.while_loop import while_loop
from treadle.ir.graph import Equation, Graph
from treadle.trace.op import Zero
from treadle.trace.value import typeof

ONE = np.ones((), np.float32)


@pytest.mark.parametrize(
    ("max_steps", "steps", "levels", "rows"),
    [
        (1, False, 2, 1),
        (2, False, 2, 2),
        (4, False, 2, 2),
        (5, False, 2, 3),
        (4096, False, 2, 64),
        (4097, False, 3, 17),
        (2**18, False, 3, 64),
        (2**18 + 1, False, 4, 23),
        (10**6, False, 4, 32),
        (7, True, 1, 7),
        (5000, True, 1, 5000),
    ],
)
def test_the_root_of_the_bound_is_kept(
    max_steps: int, steps: bool, levels: int, rows: int
) -> None:
    memory = Memory(max_steps, steps)
    assert (memory.levels, memory.rows) == (levels, rows)
    assert rows**levels >= max_steps > (rows - 1) ** levels


def step(lib: Any, w: Any, i: Any, x: Any) -> Any:
    return i + 1, lib.sin(x) * w + x


TEST = traced(lambda n, i, x: i < n, np.int32(0), np.int32(0), ONE)
BODY = traced(lambda w, i, x: step(tnp, w, i, x), ONE, np.int32(0), ONE)


def rule(n: Any, w: Any, x: Any, tangents: Any, memory: Memory) -> Any:
    zero = Zero(typeof(np.int32(0)))
    return linearize_while(
        (n, w, np.int32(0), x),
        (zero, tangents[0], zero, tangents[1]),
        test=TEST,
        body=BODY,
        n_test_consts=1,
        n_body_consts=1,
        memory=memory,
    )


def loop(n: Any, w: Any, x: Any, memory: Memory) -> Any:
    return while_loop(
        *(n, w, np.int32(0), x),
        test=TEST,
        body=BODY,
        n_test_consts=1,
        n_body_consts=1,
        memory=memory,
    )[1]


def theirs(n: int, w: Any, x: Any) -> Any:
    for i in range(n):
        _, x = step(jnp, w, i, x)
    return x


MEMORIES = {
    "steps": Memory(9, True),
    "marks": Memory(9, False),
    "more": Memory(10, False),
    "three levels": Memory(4097, False),
}


@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
@pytest.mark.parametrize("n", [0, 1, 3, 4, 9])
def test_derivatives_of_as_many_steps_as_there_were(n: int, memory: Memory) -> None:
    w, x, ts = np.float32(0.5), np.float32(2), (np.float32(3), np.float32(-1))
    wanted, moved = jax.jvp(lambda w, x: theirs(n, w, x), (w, x), ts)
    outs, found = rule(np.int32(n), w, x, ts, memory)
    assert int(outs[0]) == n and isinstance(found[0], Zero)
    np.testing.assert_allclose([outs[1], found[1]], [wanted, moved], 1e-5)
    grads = td.grad(lambda w, x: loop(np.int32(n), w, x, memory), (0, 1))(w, x)
    right = jax.grad(lambda w, x: theirs(n, w, x), (0, 1))(w, x)
    np.testing.assert_allclose(grads, right, 1e-5, 1e-6)


@pytest.mark.parametrize("memory", ["steps", "marks"])
def test_no_more_than_it_is_prepared_for(memory: str) -> None:
    """Nine are three times three; a tenth is one too many, where it goes backwards."""
    slope = td.grad(lambda x: loop(np.int32(10), ONE, x, MEMORIES[memory]))
    with pytest.raises(RuntimeError, match="more iterations than it is prepared for"):
        slope(ONE)
    found = td.grad(lambda x: loop(np.int32(10), ONE, x, MEMORIES["more"]))(ONE)
    right = jax.grad(lambda x: theirs(10, ONE, x))(ONE)
    np.testing.assert_allclose(found, right, 1e-5, 1e-6)


def nested(graph: Graph) -> list[Equation]:
    """The equations of a graph and all inside."""
    found = []
    for eq in graph.equations:
        found += [eq, *(inner for g in eq.graphs for inner in nested(g))]
    return found


def backward(memory: Memory) -> Graph:
    function = td.grad(lambda n, w, x: loop(n, w, x, memory), 2)
    return traced(function, np.int32(0), ONE, ONE)


def test_each_step_is_kept_in_a_row() -> None:
    found = nested(backward(MEMORIES["steps"]))
    loops = [eq for eq in found if eq.op in (going_scan, counted_scan)]
    assert [eq.op for eq in loops] == [going_scan, counted_scan]
    assert [eq.params["length"] for eq in loops] == [9, 9]
    assert not [eq for eq in found if eq.op is remat]
    # What is kept of each are its carry's cosine and no more.
    assert [v.type.shape for v in loops[0].outputs[4:]] == [(9,)]


@pytest.mark.parametrize(("memory", "levels"), [("marks", 2), ("three levels", 3)])
def test_only_marks_are_kept(memory: str, levels: int) -> None:
    rows = MEMORIES[memory].rows
    graph = backward(MEMORIES[memory])
    (first,) = [eq for eq in graph.equations if eq.op is going_scan]
    assert first.params["length"] == rows
    # Of each segment the carry that it began with: where it is, and x.
    kept = sum(v.type.size for v in first.outputs[4:])
    assert kept <= 2 * rows
    # On the way there, loops are in each other, as deep as there are levels.
    depth, eq = 1, first
    while inner := [e for e in nested(eq.params["graph"]) if e.op is going_scan]:
        depth, eq = depth + 1, inner[0]
        assert eq.params["length"] == rows
    assert depth == levels
    segments = [e for e in nested(first.params["graph"]) if e.op is remat]
    assert len(segments) == levels - 1
    assert [e for e in graph.equations if e.op is counted_scan]


def test_what_the_test_depends_on_decides_and_no_more() -> None:
    """A limit that moves, of a carry that moves too."""

    def function(limit: Any, x: Any) -> Any:
        return td.while_loop(lambda x: x < limit, lambda x: x * 3, x)

    slope = td.jit(td.grad(function, (0, 1)))
    assert np.asarray(slope(np.float32(10), np.float32(2))).tolist() == [0, 9]
    assert np.asarray(slope(np.float32(1), np.float32(2))).tolist() == [0, 1]


def test_bodies_are_made_once() -> None:
    memory = MEMORIES["marks"]
    firsts = []
    for _ in range(2):
        equations = backward(memory).equations
        firsts.append(next(eq for eq in equations if eq.op is going_scan))
    assert firsts[0].params["graph"] is firsts[1].params["graph"]
    keys = [k for k in BODY.cache if k[0] == "nested" and memory in k]
    assert len(keys) == len({k[-1] for k in keys}) > 0
    # Another test is another loop, of the same body.
    test = traced(lambda n, i, x: i < n - 1, np.int32(0), np.int32(0), ONE)

    def function(n: Any, x: Any) -> Any:
        outs = while_loop(
            *(n, ONE, np.int32(0), x),
            test=test,
            body=BODY,
            n_test_consts=1,
            n_body_consts=1,
            memory=memory,
        )
        return outs[1]

    found = td.grad(function, 1)(np.int32(4), ONE)
    np.testing.assert_allclose(found, jax.grad(lambda x: theirs(3, ONE, x))(ONE), 1e-5)


def asked(memory: Any, where: str) -> Any:
    """The gradient of a loop that uses what a callback gives."""
    double = lambda x: td.io_callback(  # noqa: E731
        lambda v: 2 * v, td.ShapeDtype((), "float32"), td.stop_gradient(x)
    )

    def test(x: Any) -> Any:
        return (double(x) if where == "test" else x * 2) < 20

    def body(x: Any) -> Any:
        return x * x + (double(x) if where == "body" else td.stop_gradient(x * 2))

    return td.jit(td.grad(lambda x: td.while_loop(test, body, x, **memory)))


@pytest.mark.parametrize("where", ["test", "body"])
def test_what_a_callback_has_said_is_not_asked_again(where: str) -> None:
    steps = {"max_steps": 5, "remember": "steps"}
    assert float(asked(steps, where)(2.0)) == 4 * 16
    with pytest.raises(TypeError, match=r'(?s)callback.*test_while_linea.*"steps"'):
        asked({}, where)(2.0)


def test_effects_happen_on_the_way_there_alone() -> None:
    seen: list[float] = []

    def body(x: Any) -> Any:
        td.debug.callback(lambda v: seen.append(float(v)), x)
        return x * x

    for memory in ({}, {"max_steps": 9, "remember": "steps"}, {"max_steps": 4097}):
        seen.clear()
        loop = lambda x: td.while_loop(lambda x: x < 99, body, x, **memory)  # noqa: B023, E731
        assert float(td.jit(td.grad(loop))(2.0)) == 8 * 2.0**7
        assert seen == [2, 4, 16]
