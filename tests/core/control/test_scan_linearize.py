"""What loops remember for their linear parts, and these parts, beside JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from treadle.control.scan import scan
from treadle.control.scan_linearize import linearize_scan
from treadle.ir.graph import Equation

RNG = np.random.default_rng(0)
F4 = np.dtype(np.float32)
N = 4
W, C, D = (RNG.normal(size=2).astype(F4) for _ in range(3))
XS = RNG.normal(size=(N, 2)).astype(F4)


def step(lib: Any, w: Any, c: Any, d: Any, x: Any) -> Any:
    new = lib.sin(c * w) + x
    return new, d + lib.cos(w), new * d, x * 2


def body(lib: Any = tnp) -> Any:
    return lambda *args: step(lib, *args)


BODY = traced(body(), W, C, D, XS[0])


def loop(graph: Any = BODY, n_consts: int = 1, n_carry: int = 2, **params: Any) -> Any:
    params = {"length": N, "reverse": False} | params

    def function(*args: Any) -> Any:
        sizes = {"n_consts": n_consts, "n_carry": n_carry}
        return tuple(scan(*args, graph=graph, **sizes, **params))

    return function


def theirs(w: Any, c: Any, d: Any, xs: Any, reverse: bool = False) -> Any:
    rows: list[Any] = [None] * N
    for i in reversed(range(N)) if reverse else range(N):
        c, d, *rows[i] = step(jnp, w, c, d, xs[i])
    return c, d, *(jnp.stack(ys) for ys in zip(*rows, strict=True))


def close(found: Any, wanted: Any) -> None:
    for a, b in zip(td.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


ARGS, TS = (W, C, D, XS), (C, D, W, XS[::-1].copy())
ALL = (True,) * 4


def moved(flags: Any, function: Any) -> tuple[Any, Any, Any]:
    """A function of those arguments that move, with these and their tangents."""

    def of(*moving: Any) -> Any:
        rest = iter(moving)
        return function(
            *(next(rest) if f else a for a, f in zip(ARGS, flags, strict=True))
        )

    pick = lambda xs: tuple(x for x, f in zip(xs, flags, strict=True) if f)  # noqa: E731
    return of, pick(ARGS), pick(TS)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("flags", ["1111", "1000", "0100", "0010", "0001", "0110"])
def test_tangents_are_those_of_jax(flags: str, reverse: bool) -> None:
    own = [f == "1" for f in flags]
    function, args, ts = moved(own, loop(reverse=reverse))
    outs, linear = td.linearize(function, *args)
    wanted = jax.jvp(moved(own, lambda *xs: theirs(*xs, reverse=reverse))[0], args, ts)
    close((outs, linear(*ts)), wanted)


def loops(function: Any, *args: Any) -> list[Equation]:
    """The loops of a function's values, and of its linear part."""

    def both(*args: Any) -> Any:
        outs, linear = td.linearize(function, *args)
        return outs, linear(*args)

    return [eq for eq in traced(both, *args).equations if eq.op is scan]


def rows(eq: Equation) -> list[tuple[int, ...]]:
    """The shapes of what a loop takes row by row."""
    n = eq.params["n_consts"] + eq.params["n_carry"]
    return [a.type.shape for a in eq.inputs[n:]]


def test_what_is_dear_and_changes_is_stored() -> None:
    """Sines and cosines of `c * w`, and both carries. x is there anyway."""
    known, linear = loops(loop(), *ARGS)
    stored = known.outputs[4:]
    assert [v.type.shape for v in stored] == [(N, 2)] * 4
    assert {*stored, known.inputs[3]} == set(linear.inputs[-6:-1])
    # Of w two things are needed, and its tangent.
    sizes = linear.params["n_consts"], linear.params["n_carry"]
    assert sizes == (3, 2)
    assert len(linear.inputs) == 3 + 2 + 6
    assert linear.params["length"] == N


def test_what_no_iteration_changes_is_computed_once() -> None:
    graph = traced(lambda w, c, x: (c * tnp.exp(w), c), W, C, XS[0])
    known, linear = loops(lambda c: loop(graph, 1, 1)(W, c, XS), C)
    assert len(known.outputs) == 2
    assert linear.params["n_consts"] == 1
    assert rows(linear) == []
    made = lambda c: loop(graph, 1, 1)(W, c, XS)  # noqa: E731
    _, tangent = td.linearize(made, C)
    close(tangent(D)[0], D * np.exp(W) ** N)


def test_rows_that_are_there_are_read_again() -> None:
    """The scanned array, and results that are stacked anyway."""
    graph = traced(lambda c, x: (c * x, c), C, XS[0])
    known, linear = loops(lambda c: loop(graph, 0, 1)(c, XS), C)
    assert len(known.outputs) == 2
    assert rows(linear) == [(N, 2)]
    assert linear.inputs[-1] not in known.outputs
    graph = traced(lambda c, x: (lambda y: (tnp.sin(y) + c, y))(tnp.exp(c)), C, XS[0])
    made = lambda c: loop(graph, 0, 1)(c, XS)  # noqa: E731
    known, linear = loops(made, C)
    assert set(linear.inputs) & {known.outputs[1]}

    def other(c: Any) -> Any:
        ys = []
        for _ in range(N):
            ys.append(jnp.exp(c))
            c = jnp.sin(ys[-1]) + c
        return c, jnp.stack(ys)

    _, tangent = td.linearize(made, C)
    close(tangent(D), jax.jvp(other, (C,), (D,))[1])


def test_a_carry_that_is_stacked_too_is_read_from_the_stack() -> None:
    graph = traced(lambda c, x: (lambda n: (n, n * x, n))(tnp.sin(c)), C, XS[0])

    def other(c: Any) -> Any:
        ys = []
        for x in XS:
            c = jnp.sin(c)
            ys.append((c * x, c))
        return c, jnp.stack([y for y, _ in ys]), jnp.stack([c for _, c in ys])

    made = lambda c: loop(graph, 0, 1)(c, XS)  # noqa: E731
    outs, tangent = td.linearize(made, C)
    close((outs, tangent(D)), jax.jvp(other, (C,), (D,)))
    _, back = td.vjp(made, C)
    cts = (C, XS, XS + 1)
    close(back(cts), jax.vjp(other, C)[1](cts))


def test_what_does_not_move_has_no_linear_part() -> None:
    """A carry that never meets what moves, and results that don't depend on it."""
    graph = traced(lambda c, d, x: (tnp.sin(c), tnp.sin(d), c, d), C, D, XS[0])
    _, linear = loops(lambda d: loop(graph, 0, 2)(C, d, XS), D)
    assert linear.params["n_carry"] == 1
    assert len(linear.params["graph"].outputs) == 2
    _, tangent = td.linearize(lambda d: loop(graph, 0, 2)(C, d, XS), D)
    found = tangent(D)
    assert not np.any(found[0]) and not np.any(found[2])
    assert np.any(found[1]) and np.any(found[3])
    # Nothing at all.
    graph = traced(lambda c, x: (tnp.sin(c), tnp.floor(x)), C, XS[0])
    (only,) = loops(lambda x: loop(graph, 0, 1)(C, x), XS)
    assert len(only.outputs) == 2
    _, tangent = td.linearize(lambda x: loop(graph, 0, 1)(C, x), XS)
    assert not any(np.any(t) for t in tangent(XS))


def test_tangents_of_carries_begin_with_zeros() -> None:
    """Two carries, each made of the other: one moves at first."""
    graph = traced(lambda c, d, x: (d, tnp.sin(c), c * d), C, D, XS[0])

    def other(d: Any) -> Any:
        c, ys = C, []
        for _ in range(N):
            ys.append(c * d)
            c, d = d, jnp.sin(c)
        return c, d, jnp.stack(ys)

    outs, tangent = td.linearize(lambda d: loop(graph, 0, 2)(C, d, XS), D)
    close((outs, tangent(W)), jax.jvp(other, (D,), (W,)))
    # A carry that forgets: its tangent is zero from the first iteration on.
    graph = traced(lambda c, x: (x * 2, c * x), C, XS[0])

    def forgets(c: Any) -> Any:
        ys = []
        for x in XS:
            ys.append(c * x)
            c = x * 2
        return c, jnp.stack(ys)

    _, tangent = td.linearize(lambda c: loop(graph, 0, 1)(c, XS), C)
    close(tangent(D), jax.jvp(forgets, (C,), (D,))[1])


def test_a_linear_part_may_be_carried_out_by_another() -> None:
    seen: list[Any] = []

    def bind(*args: Any, **params: Any) -> Any:
        seen.append(("known", params["length"]))
        return scan(*args, **params)

    def bind_linear(outs: Any) -> Any:
        assert len(outs) == 4

        def carried(*args: Any, **params: Any) -> Any:
            seen.append(("linear", params["reverse"]))
            return scan(*args, **params)

        return carried

    def rule(**more: Any) -> Any:
        return linearize_scan(
            *(ARGS, TS),
            bind=bind,
            graph=BODY,
            n_consts=1,
            n_carry=2,
            length=N,
            reverse=True,
            **more,
        )

    wanted = jax.jvp(lambda *xs: theirs(*xs, reverse=True), ARGS, TS)
    close(rule(bind_linear=bind_linear), wanted)
    assert seen == [("known", N), ("linear", True)]
    seen.clear()
    close(rule(), wanted)
    assert [kind for kind, _ in seen] == ["known", "known"]


def test_jitted_functions_in_bodies_are_opened() -> None:
    """What they remember is stored like anything else."""
    inner = td.jit(lambda c: tnp.sin(c) * 2)
    graph = traced(lambda c, x: (inner(c), c), C, XS[0])
    assert any(eq.graphs for eq in graph.equations)
    known, linear = loops(lambda c: loop(graph, 0, 1)(c, XS), C)
    for eq in (known, linear):
        assert not any(inside.graphs for inside in eq.params["graph"].equations)


def test_a_body_is_split_once() -> None:
    splits = [loops(loop(), *ARGS)[0].params["graph"] for _ in range(2)]
    assert splits[0] is splits[1]
    assert loops(lambda c: loop()(W, c, D, XS), C)[0].params["graph"] is not splits[0]
