"""Equations that a solver of the user's solves: values and derivatives by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from treadle.control.linear_solve import linear_solve
from treadle.ir.graph import Graph
from treadle.trace.op import Linear
from treadle.trace.value import typeof

RNG = np.random.default_rng(0)
A = RNG.normal(size=(3, 3)) + 4 * np.eye(3)
DA = RNG.normal(size=(3, 3))
B, DB = RNG.normal(size=(2, 3))
BS = RNG.normal(size=(4, 3))
ONE = np.ones(())


def solver(a: Any, b: Any) -> Any:
    """And what tells how it went, and of the equation alone."""
    x = tnp.linalg.solve(a, b)
    return x, tnp.abs(a @ x - b).sum() + 7, tnp.trace(a)


SOLVE, MATVEC = traced(solver, A, B), traced(lambda a, x: a @ x, A, B)
TURNED: tuple[Graph, ...] = (
    traced(lambda a, ct: tnp.linalg.solve(a.T, ct), A, B),
    traced(lambda a, ct: a.T @ ct, A, B),
)


def solved(a: Any, b: Any, turned: tuple[Graph, ...] = TURNED) -> Any:
    return linear_solve(
        a, b, graph=SOLVE, matvec=MATVEC, turned=turned, n_consts=1, name="by_a"
    )


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, 1e-9, 1e-12)


def test_it_is_its_solver() -> None:
    x, told, trace = solved(A, B)
    close(x, np.linalg.solve(A, B))
    close((told, trace), (7, np.trace(A)))


@pytest.mark.parametrize("moving", ["b", "a", "both"])
def test_derivatives_are_those_of_the_equation(moving: str) -> None:
    da, db = DA * (moving != "b"), DB * (moving != "a")
    x = np.linalg.solve(A, B)
    wanted = np.linalg.solve(A, db - da @ x)
    if moving == "both":
        function, args, ts = solved, (A, B), (da, db)
    elif moving == "a":
        function, args, ts = lambda a: solved(a, B), (A,), (da,)
    else:
        function, args, ts = lambda b: solved(A, b), (B,), (db,)
    (out, told, _), (found, none, _) = td.jvp(function, args, ts)
    close(out, x)
    close(told, 7)
    close(found, wanted)
    # What the solver tells besides has none.
    assert np.array_equal(none, 0.0)
    graph = traced(lambda *ts: td.jvp(function, args, ts)[1][0], *ts)
    kinds = [eq.params for eq in graph.equations if eq.op is linear_solve]
    assert all(p["graph"] is SOLVE and p["matvec"] is MATVEC for p in kinds)


def test_one_of_two_constants_may_move() -> None:
    graph = traced(lambda a, s, b: tnp.linalg.solve(a, b) / s, A, np.ones(()), B)
    matvec = traced(lambda a, s, x: (a @ x) * s, A, ONE, B)

    def function(s: Any) -> Any:
        params = {"graph": graph, "matvec": matvec, "turned": (), "n_consts": 2}
        return linear_solve(A, s, B, name="", **params)[0]

    _, found = td.jvp(function, (np.array(2.0),), (np.array(3.0),))
    close(found, -np.linalg.solve(A, B) * 3 / 4)


def test_without_tangents_nothing_more_is_solved() -> None:
    def function(b: Any, c: Any) -> Any:
        return solved(A, td.stop_gradient(b))[0] * c

    (_, found) = td.jvp(function, (B, 2.0), (DB, 1.0))
    close(found, np.linalg.solve(A, B))
    graph = traced(lambda b, c: td.jvp(function, (b, c), (b, c)), B, ONE)
    assert [eq.op for eq in graph.equations].count(linear_solve) == 1


def test_cotangents_are_found_by_the_transposed_solver() -> None:
    ct = np.float64([1, -2, 3])
    ga, gb = td.grad(lambda a, b: (solved(a, b)[0] * ct).sum(), (0, 1))(A, B)
    y = np.linalg.solve(A.T, ct)
    close(gb, y)
    close(ga, -np.outer(y, np.linalg.solve(A, B)))
    # And those of that one by the first.
    second = td.grad(
        lambda c: (td.grad(lambda b: (solved(A, b)[0] * c).sum())(B) * B).sum()
    )
    close(second(ct), np.linalg.solve(A, B))


def test_a_cotangent_of_zero_is_solved_too() -> None:
    """Of two results of two equations only one is used."""
    solve = traced(lambda b, c: (b / 2, c / 4), ONE, ONE)
    times = traced(lambda x, y: (x * 2, y * 4), ONE, ONE)

    def both(b: Any, c: Any) -> Any:
        return linear_solve(
            *(b, c),
            graph=solve,
            matvec=times,
            turned=(solve, times),
            n_consts=0,
            name="",
        )

    gb, gc = td.grad(lambda b, c: both(b, c)[1] * 3, (0, 1))(ONE, ONE)
    assert (float(gb), float(gc)) == (0, 0.75)
    # A right side that does not move has no cotangent.
    assert float(td.grad(lambda c: both(ONE, c)[1] * 3)(ONE)) == 0.75
    _, (x, y) = td.jvp(lambda c: both(ONE, c), (ONE,), (ONE,))
    assert (float(x), float(y)) == (0, 0.25)


def test_without_a_transposed_solver_there_is_only_forward_mode() -> None:
    function = lambda b: solved(A, b, ())[0].sum()  # noqa: E731
    close(td.jvp(function, (B,), (DB,))[1], np.linalg.solve(A, DB).sum())
    with pytest.raises(TypeError, match=r"(?s)of by_a, which.*symmetric=True"):
        td.grad(function)(B)


def test_it_is_linear_in_the_right_side_alone() -> None:
    params = {"graph": SOLVE, "matvec": MATVEC, "turned": TURNED, "n_consts": 1}
    linear = Linear(typeof(A)), Linear(typeof(B))
    with pytest.raises(TypeError, match="linear in b alone"):
        linear_solve.transpose([DB], linear[0], B, name="", **params)
    none, found = linear_solve.transpose([DB], A, linear[1], name="", **params)
    assert none is None
    close(found, np.linalg.solve(A.T, DB))
    (found,) = td.linear_transpose(lambda b: solved(A, b)[0], B)(DB)
    close(found, np.linalg.solve(A.T, DB))


@pytest.mark.parametrize(
    ("axes", "a", "b"),
    [
        ((None, 0), A, BS),
        ((0, None), np.stack([A, A + DA / 9]), B),
        ((2, 1), np.stack([A, A + DA / 9], 2), BS[:2].T),
    ],
)
def test_each_example_has_its_own(axes: Any, a: np.ndarray, b: np.ndarray) -> None:
    wide = [
        [x] * (4 if axes[0] is None else 2) if axis is None else np.moveaxis(x, axis, 0)
        for x, axis in zip((a, b), axes, strict=True)
    ]
    pairs = list(zip(*wide, strict=True))
    x, told, traces = td.vmap(solved, axes)(a, b)
    close(x, [np.linalg.solve(*pair) for pair in pairs])
    close(told, [7.0] * len(pairs))
    close(traces, [np.trace(pair[0]) for pair in pairs])
    ct = np.float64([1, -2, 3])
    one = td.grad(lambda a, b: (solved(a, b)[0] * ct).sum(), 1)
    close(td.vmap(one, axes)(a, b), [np.linalg.solve(p[0].T, ct) for p in pairs])
    _, found = td.jvp(lambda b: td.vmap(solved, axes)(a, b)[0], (b,), (b,))
    close(found, x)
    _, found = td.jvp(lambda a: td.vmap(solved, axes)(a, b)[0], (a,), (a,))
    close(found, -np.asarray(x))


def test_effects_of_the_solver_are_those_of_examples_that_come_by() -> None:
    seen: list[float] = []

    def noisy(b: Any) -> Any:
        td.debug.callback(lambda v: seen.append(float(v)), b)
        return b / 2

    def noted(b: Any) -> Any:
        td.debug.callback(lambda v: seen.append(-float(v)), b)
        return b * 2

    graphs = traced(noisy, ONE), traced(noted, ONE)

    def each(p: Any, b: Any) -> Any:
        def inside(b: Any) -> Any:
            return linear_solve(
                b, graph=graphs[0], matvec=graphs[1], turned=graphs, n_consts=0, name=""
            )[0]

        return td.cond(p, inside, lambda b: b, b)

    flags, bs = np.array([True, False, True]), np.float64([2, 4, 6])
    mapped = td.vmap(each)
    close(mapped(flags, bs), [1, 4, 3])
    assert sorted(seen) == [2, 6]
    seen.clear()
    grads = td.vmap(td.grad(lambda b, p: each(p, b)))(bs, flags)
    close(grads, [0.5, 1, 0.5])
    assert sorted(seen)[-2:] == [2, 6] and 4 not in seen
    grads = td.grad(lambda bs: mapped(flags, bs).sum())(bs)
    close(grads, [0.5, 1, 0.5])
