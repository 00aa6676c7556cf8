"""Loops whose iterations are counted when they run, beside NumPy's and JAX's loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from treadle.arraytype import ArrayType
from treadle.control.counted import (
    BOOL,
    I32,
    checked_count,
    counted_scan,
    going_scan,
)
from treadle.control.scan import scan
from treadle.trace.stage import stage

W = np.float32([0.5, -2])
ROWS = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
N = 5


def step(lib: Any, w: Any, c: Any, x: Any) -> Any:
    new = lib.sin(c) * w + x
    return new, new * x


BODY = traced(lambda w, c, x: step(tnp, w, c, x), W, W, W)


def counted(count: Any, w: Any, c: Any, xs: Any, reverse: bool = False) -> Any:
    return counted_scan(
        *(count, w, c, xs),
        graph=BODY,
        n_consts=1,
        n_carry=1,
        length=N,
        reverse=reverse,
    )


def counting(
    lib: Any, count: int, w: Any, c: Any, xs: Any, reverse: bool = False
) -> Any:
    """The same by Python's loop."""
    ys = [lib.zeros(2, np.float32)] * N
    rows = range(min(count, N))
    for i in reversed(rows) if reverse else rows:
        c, ys[i] = step(lib, w, c, xs[i])
    return c, lib.stack(ys)


def close(found: Any, wanted: Any) -> None:
    for a, b in zip(td.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


# counted_scan -------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3, 5, 9])
def test_as_many_iterations_as_are_counted(count: int, reverse: bool) -> None:
    found = counted(np.int32(count), W, W, ROWS, reverse)
    close(found, counting(np, count, W, W, ROWS, reverse))


@pytest.mark.parametrize("count", [np.float32(2), np.int32([2, 3]), np.array(2)])
def test_a_count_is_an_int32(count: Any) -> None:
    with pytest.raises(TypeError, match="count must be an int32 scalar, got"):
        traced(lambda n: counted(n, W, W, ROWS), np.asarray(count))


@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_of_counted_iterations(reverse: bool) -> None:
    n = np.int32(3)
    args, ts = (W, W, ROWS), (W[::-1].copy(), 3 * W, ROWS[::-1].copy())
    ours = lambda *args: tuple(counted(n, *args, reverse))  # noqa: E731
    theirs = lambda *args: counting(jnp, 3, *args, reverse)  # noqa: E731
    wanted, moved = jax.jvp(theirs, args, ts)
    close(td.jvp(ours, args, ts), (wanted, moved))
    outs, linear = td.linearize(ours, *args)
    close(outs, wanted)
    close(linear(*ts), moved)
    cts = W + 1, ROWS - 1
    _, back = td.vjp(ours, *args)
    close(back(cts), jax.vjp(theirs, *args)[1](cts))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "axes", [(0, None, None, 0), (0, 1, 0, 1), (None, None, 0, None)]
)
def test_examples_have_counts_of_their_own(axes: Any, reverse: bool) -> None:
    full = (
        np.int32([2, 0, 5]),
        np.stack([W, -W, W + 1], 1),
        np.stack([W + 2, W, W * 2]),
        np.stack([ROWS, -ROWS, ROWS + 1], 0 if axes[-1] == 0 else 1),
    )
    single = (np.int32(3), W, W, ROWS)
    args = [s if a is None else f for a, f, s in zip(axes, full, single, strict=True)]
    found = td.vmap(lambda *args: counted(*args, reverse), axes)(*args)
    for i in range(3):
        own = [
            x if a is None else np.take(x, i, a)
            for a, x in zip(axes, args, strict=True)
        ]
        close(
            [np.asarray(x)[i] for x in found],
            counting(np, int(own[0]), *own[1:], reverse),
        )
    # Without counts of their own there is no more in the body than there was.
    graph = traced(td.vmap(lambda *args: counted(*args, reverse), axes), *args)
    (eq,) = [eq for eq in graph.equations if eq.op is counted_scan]
    assert eq.params["n_consts"] == (1 if axes[0] is None else 2)
    assert ("select" in str(eq.params["graph"])) == (axes[0] is not None)


def test_the_body_that_stops_is_made_once() -> None:
    mapped = td.vmap(counted, (0, None, None, None))
    for length in (2, 2):
        traced(mapped, np.int32([1] * length), W, W, ROWS)
    keys = [k for k in BODY.cache if k[0] == "rows_below"]
    assert keys == [("rows_below", 1, 1)]


def noisy(seen: list[float]) -> Any:
    def function(c: Any) -> Any:
        td.debug.callback(lambda v: seen.append(float(v)), c)
        return c + 1

    return traced(function, np.zeros((), np.float32))


def test_what_is_not_wanted_counts_nothing() -> None:
    seen: list[float] = []
    body = noisy(seen)

    def each(p: Any, c: Any) -> Any:
        def inside(c: Any) -> Any:
            params = {"n_consts": 0, "n_carry": 1, "length": 9, "reverse": False}
            return counted_scan(np.int32(2), c, graph=body, **params)[0]

        return td.cond(p, inside, lambda c: -c, c)

    found = td.vmap(each)(np.array([True, False]), np.float32([10, 20]))
    assert np.asarray(found).tolist() == [12, -20]
    assert sorted(seen) == [10, 11]


# going_scan ---------------------------------------------------------------------------


def grow(lib: Any, w: Any, x: Any) -> Any:
    return x * w + 0.5


def turn(lib: Any, limit: Any, w: Any, i: Any, x: Any) -> Any:
    new = grow(lib, w, x)
    return lib.sum(new) < limit, i + 1, new, x * 2


LIMIT = np.float32(30)
GROW = np.float32([1.5, 1.25])
TURN = traced(
    lambda limit, w, going, i, x: turn(tnp, limit, w, i, x),
    *(LIMIT, GROW, np.bool_(True), np.int32(0), W),
)


def going(limit: Any, w: Any, x: Any, first: Any = True, bind: Any = going_scan) -> Any:
    return bind(
        *(limit, w, np.bool_(first), np.int32(0), x),
        graph=TURN,
        n_consts=2,
        n_carry=3,
        length=N,
        reverse=False,
    )


def went(lib: Any, limit: Any, w: Any, x: Any, first: bool = True) -> Any:
    """The same by Python's loop: iterations, the last carry, rows."""
    ys, i, more = [lib.zeros(2, np.float32)] * N, 0, first
    while more:
        y = x * 2
        x = grow(lib, w, x)
        if i < N:
            ys[i] = y
        i, more = i + 1, bool(x.sum() < limit)
    return i, x, lib.stack(ys)


@pytest.mark.parametrize("limit", [-9, 1, 5, 9, 30, 200])
def test_it_goes_on_until_it_ends(limit: float) -> None:
    more, *found = going(np.float32(limit), GROW, W + 3)
    close(found, went(np, limit, GROW, W + 3))
    assert not more
    assert int(found[0]) == {-9: 1, 1: 1, 5: 1, 9: 2, 30: 5, 200: 10}[limit]


def test_it_need_not_begin() -> None:
    found = going(LIMIT, GROW, W, False)[1:]
    close(found, (0, W, np.zeros((N, 2))))


def test_derivatives_of_as_many_iterations_as_there_were() -> None:
    """Rows from the last one that is kept on have none."""
    args, ts = (GROW, W + 3), (W, 2 * W + 1)
    ours = lambda w, x: tuple(going(np.float32(9), w, x)[2:])  # noqa: E731
    theirs = lambda w, x: went(jnp, 9, w, x)[1:]  # noqa: E731

    def still(w: Any, x: Any) -> Any:
        """As many as at the point."""
        ys = [jnp.zeros(2)] * N
        for i in range(2):
            ys[i], x = x * 2, grow(jnp, w, x)
        return x, jnp.stack(ys)

    close(still(*args), theirs(*args))
    wanted, moved = jax.jvp(still, args, ts)
    close(td.jvp(ours, args, ts), (wanted, moved))
    outs, linear = td.linearize(ours, *args)
    close((outs, linear(*ts)), (wanted, moved))
    cts = W - 1, ROWS
    close(td.vjp(ours, *args)[1](cts), jax.vjp(still, *args)[1](cts))


def test_the_linear_part_is_a_counted_loop() -> None:
    def function(x: Any) -> Any:
        return td.vjp(lambda x: going(np.float32(9), GROW, x)[2], x)[1](x)

    loops = going_scan, counted_scan, scan, checked_count
    found = [eq.op for eq in traced(function, W).equations if eq.op in loops]
    assert found == [going_scan, counted_scan]


@pytest.mark.parametrize(
    "axes", [(0, None, None), (None, 1, None), (None, None, 0), (0, 1, 0)]
)
def test_examples_end_when_they_end(axes: Any) -> None:
    full = np.float32([9, 1, 200]), np.stack([GROW, GROW + 1, GROW * 2], 1)
    starts = np.stack([W + 3, W + 1, W + 9])
    args = [
        s if a is None else f
        for a, f, s in zip(axes, (*full, starts), (LIMIT, GROW, W + 3), strict=True)
    ]
    found = td.vmap(going, axes)(*args)
    counts = []
    for i in range(3):
        own = [
            x if a is None else np.take(x, i, a)
            for a, x in zip(axes, args, strict=True)
        ]
        wanted = went(np, *own)
        counts.append(wanted[0])
        close([np.asarray(x)[i] for x in found], (False, *wanted))
    assert len(set(counts)) > 1


def test_examples_that_end_together_have_one_condition() -> None:
    def function(x: Any) -> Any:
        return going_scan(
            *(np.bool_(True), np.int32(0), x),
            graph=traced(
                lambda g, i, x: (i < 3, i + 1, x * 2), np.bool_(True), np.int32(0), W
            ),
            n_consts=0,
            n_carry=3,
            length=0,
            reverse=False,
        )

    found = td.vmap(function)(ROWS)
    close(found, (np.zeros(5), np.full(5, 4), ROWS * 16))
    graph = traced(td.vmap(function), ROWS)
    (eq,) = [eq for eq in graph.equations if eq.op is going_scan]
    assert [v.type.shape for v in eq.outputs] == [(), (), (5, 2)]


def test_ended_examples_have_derivatives_of_what_they_did() -> None:
    """The root of what is negative where an example has ended."""

    def shrink(limit: Any, x: Any) -> Any:
        body = lambda limit, g, i, x: (tnp.sqrt(x - 1) > limit, i + 1, tnp.sqrt(x - 1))  # noqa: E731
        one = np.float32(1)
        graph = traced(body, one, np.bool_(True), np.int32(0), one)
        outs = going_scan(
            *(limit, np.bool_(True), np.int32(0), x),
            graph=graph,
            n_consts=1,
            n_carry=3,
            length=4,
            reverse=False,
        )
        return outs[2]

    def theirs(limit: Any, x: Any) -> Any:
        x = jnp.sqrt(x - 1)
        while bool(jax.lax.stop_gradient(x) > limit):
            x = jnp.sqrt(x - 1)
        return x

    limits, xs = np.float32([1.5, 1.05]), np.float32([1.2, 20])
    found = td.vmap(td.grad(shrink, 1))(limits, xs)
    wanted = [1 / 2 / np.sqrt(0.2)]
    x = 20.0
    slope = 1.0
    while True:
        slope, x = slope / 2 / np.sqrt(x - 1), np.sqrt(x - 1)
        if not x > 1.05:
            break
    np.testing.assert_allclose(found, [*wanted, slope], 1e-5)


def test_examples_that_speak_to_each_other_keep_their_values() -> None:
    """One that has ended is still heard, and has a derivative by what it says."""
    one = ArrayType((), np.dtype(np.float32))

    def each(x: Any) -> Any:
        def body(going: Any, i: Any, x: Any) -> list[Any]:
            new = x * x + td.psum(x, "many") / 8
            return [new < 4, i + 1, new]

        graph, _ = stage(body, [BOOL, I32, one], closed=True)
        params = {"n_consts": 0, "n_carry": 3, "length": 9, "reverse": False}
        return going_scan(np.bool_(True), np.int32(0), x, graph=graph, **params)[2]

    def ours(xs: Any) -> Any:
        return (td.vmap(each, axis_name="many")(xs) * np.float32([1, 10])).sum()

    def theirs(xs: Any) -> Any:
        xs = [*xs]
        going = [True, True]
        while any(going):
            new = [x * x + sum(xs) / 8 for x in xs]
            xs = [n if g else x for g, n, x in zip(going, new, xs, strict=True)]
            going = [g and bool(x < 4) for g, x in zip(going, xs, strict=True)]
        return xs[0] + xs[1] * 10

    xs = np.float32([3, 1])
    close(ours(xs), theirs(xs))
    close(td.grad(ours)(xs), jax.grad(theirs)(xs))


def test_in_a_branch_examples_that_do_not_come_by_do_not_begin() -> None:
    seen: list[float] = []

    def body(g: Any, i: Any, c: Any) -> Any:
        td.debug.callback(lambda v: seen.append(float(v)), c)
        return i < 1, i + 1, c + 1

    one = np.float32(1)
    graph = traced(body, np.bool_(True), np.int32(0), one)

    def each(p: Any, c: Any) -> Any:
        def inside(c: Any) -> Any:
            params = {"n_consts": 0, "n_carry": 3, "length": 0, "reverse": False}
            return going_scan(np.bool_(True), np.int32(0), c, graph=graph, **params)[2]

        return td.cond(p, inside, lambda c: -c, c)

    found = td.vmap(each)(np.array([True, False]), np.float32([10, 20]))
    assert np.asarray(found).tolist() == [12, -20]
    assert sorted(seen) == [10, 11]


def test_examples_that_have_ended_do_nothing() -> None:
    """Nor in a derivative, which keeps what each iteration needs, or runs it again."""
    seen: list[float] = []

    def doubled(x: Any) -> Any:
        td.debug.callback(lambda v: seen.append(float(v)), x)
        return x * 2

    def loop(memory: Any) -> Any:
        return lambda x: td.while_loop(lambda x: x < 10, doubled, x, **memory)

    def chosen(memory: Any) -> Any:
        return lambda p, x: td.cond(p, loop(memory), lambda x: -x, x)

    flags, xs = np.array([True, False, True]), np.float32([4, 3, 20])
    for memory in ({}, {"max_steps": 8, "remember": "steps"}, {"max_steps": 5000}):
        seen.clear()
        slopes = td.vmap(td.grad(loop(memory)))(xs)
        assert np.asarray(slopes).tolist() == [4, 4, 1]
        assert sorted(seen) == [3, 4, 6, 8]
        seen.clear()
        slopes = td.vmap(td.grad(chosen(memory), 1))(flags, xs)
        assert np.asarray(slopes).tolist() == [4, -1, 1]
        assert sorted(seen) == [4, 8]


def test_the_way_back_of_examples_that_have_ended_does_nothing() -> None:
    seen: list[float] = []

    @td.custom_vjp
    def doubled(x: Any) -> Any:
        return x * 2

    def back(residuals: Any, ct: Any) -> Any:
        td.debug.callback(lambda v: seen.append(float(v)), ct)
        return (ct * 2,)

    doubled.defvjp(lambda x: (x * 2, ()), back)
    loop = lambda x: td.while_loop(lambda x: x < 10, doubled, x, max_steps=9)  # noqa: E731
    slopes = td.vmap(td.grad(loop))(np.float32([4, 1, 20]))
    assert np.asarray(slopes).tolist() == [4, 16, 1]
    assert sorted(seen) == [1, 1, 2, 2, 4, 8]


# checked_count ------------------------------------------------------------------------


def test_more_than_can_be_remembered_is_an_error_where_it_is_used() -> None:
    for count in (np.int32(4), np.int32([1, 4]), np.zeros(0, np.int32)):
        found = checked_count(count, limit=4, source="a.py:1")
        assert np.array_equal(found, count)
    with pytest.raises(RuntimeError, match=r"(?s)more iterations.*at a.py:1\nSay"):
        checked_count(np.int32([1, 5]), limit=4, source="a.py:1")
    mapped = td.vmap(lambda n: checked_count(n, limit=4, source=""), 1, 1)
    counts = np.int32([[1, 2, 3]])
    assert np.array_equal(mapped(counts), counts)

    def function(x: Any, limit: Any) -> Any:
        """As many iterations as the logarithm of its limit."""
        loop = td.while_loop(
            lambda x: x < limit, lambda x: x * 2, x, max_steps=4, remember="steps"
        )
        return loop * loop

    one = np.ones((), np.float32)
    slope = td.jit(td.grad(function))
    assert float(slope(one, 16)) == 512
    with pytest.raises(RuntimeError, match=r"test_counted.py:\d+\nSay"):
        slope(one, 17)
    # Without derivatives there may be more.
    assert float(td.jit(function)(one, 17)) == 1024
