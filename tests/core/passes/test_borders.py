"""Elementwise work on rolled, shifted and padded arrays, block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from tests.core.fuse.lowering.alone import normal as array
from tests.core.passes.shown import opened, untouched
from treadle.backends.cpu.device import CPUTarget
from treadle.check import check
from treadle.compile import stages
from treadle.ir.check import check as check_graph
from treadle.passes.borders import compute_in_blocks
from treadle.run.eager import evaluate

SHAPES = (5000, 1), (90, 130), (9, 60, 40)


def ops(function: Callable[..., Any], *args: Any) -> list[str]:
    """What computes a function in blocks, which must be what it was."""
    graph = traced(function, *args)
    found = compute_in_blocks(graph)
    check_graph(found)
    for a, b in zip(evaluate(found, args), evaluate(graph, args), strict=True):
        np.testing.assert_array_equal(a, b)
    return [eq.op.name for eq in found.equations]


def laplace(x: Any, lib: Any = tnp) -> Any:
    moved = [lib.roll(x, s, axis) for axis in range(x.ndim) for s in (1, -1)]
    return sum(moved[1:], moved[0]) - 2 * x.ndim * x


def test_a_stencil_has_a_block_for_each_border() -> None:
    found = ops(laplace, array(100, 100))
    assert "concatenate" not in found
    assert found.count("assemble") == 1
    assert found.count("sub") == 9
    assert found[-1] == "assemble"


def test_rolls_of_rolls_and_pieces_of_padded_arrays_are_not_made() -> None:
    def life(x: Any) -> Any:
        moved = [tnp.roll(tnp.roll(x, i, 0), j, 1) for i in (-1, 1) for j in (-1, 1)]
        return sum(moved[1:], moved[0])

    def padded(x: Any) -> Any:
        p = tnp.pad(x, 1, constant_values=0.5)
        return p[2:, 1:-1] - p[:-2, 1:-1] * p[1:-1, 2:]

    for f in (life, padded):
        found = ops(f, array(100, 100))
        assert not {"concatenate", "pad"} & set(found)
        assert found.count("assemble") == 1


def test_pieces_may_be_every_other_row() -> None:
    def f(x: Any, y: Any) -> Any:
        return tnp.concatenate([x[1::2], x[::2]], 0) - y

    x, y = array(100, 100), array(100, 100, seed=1)
    assert "concatenate" not in ops(f, x, y)
    expected = np.concatenate([x[1::2], x[::2]]) - y
    np.testing.assert_array_equal(td.jit(f)(x, y), expected)


def test_pieces_of_pieces_are_seen_through() -> None:
    """Of what is no moved array itself: the first is a whole result, padded; the second
    every third column of every other one."""

    def padded(x: Any, y: Any) -> Any:
        p = tnp.pad(tnp.maximum(x, y), 1)
        return p[2:][:100, :-2] * tnp.roll(x, 1, 0)

    def stepped(x: Any, y: Any) -> Any:
        halves = x[:, 2:62:2], x[:, 1::2][:, 2:38:3], x[:, 40:]
        return tnp.concatenate(halves, 1)[:, :100] - y

    x, y = array(100, 100), array(100, 100, seed=1)
    for f, expected in (
        (padded, np.pad(np.maximum(x, y), 1)[2:, :-2] * np.roll(x, 1, 0)),
        (
            stepped,
            np.concatenate([x[:, 2:62:2], x[:, 5:77:6], x[:, 40:]], 1)[:, :100] - y,
        ),
    ):
        assert "assemble" in ops(f, x, y)
        np.testing.assert_array_equal(td.jit(f)(x, y), expected)


def test_long_programs_take_no_longer_than_they_are() -> None:
    """Rolls of rolls end in as many places as there are, not in twice as many each;
    groups of many equations, and blocks that are far too many, are only counted."""

    def rolls(x: Any) -> Any:
        v = x
        for i in range(80):
            v = tnp.roll(v, 1, i % 2)
        return v + x

    def chain(x: Any) -> Any:
        v = tnp.roll(x, 1, 0)
        for _ in range(3000):
            v = v * x
        return v

    def windows(x: Any) -> Any:
        return sum(tnp.roll(x, i, axis) for axis in range(4) for i in range(1, 31))

    for f, shape in ((rolls, (100, 100)), (chain, (100, 100)), (windows, (31,) * 4)):
        assert untouched(compute_in_blocks, f, array(*shape))


def test_what_is_read_as_a_whole_is_made_as_a_whole() -> None:
    x = array(100, 100)
    for f in (
        lambda x: (tnp.roll(x, 1, 0) * x).sum(),  # a sum of all would be stored before
        lambda x: tnp.roll(x, 1, 0),
        lambda x: (moved := tnp.roll(x, 1, 0), moved + x),
        lambda x: (tnp.roll(x, 1, 0) + x).T,
        lambda x: ((moved := tnp.roll(x, 1, 0)).sum(1), moved + x),
    ):
        assert untouched(compute_in_blocks, f, x)


def test_what_saves_little_stays() -> None:
    for shape in ((20, 20), (3000, 8), (0, 5)):
        assert untouched(compute_in_blocks, laplace, array(*shape))
    graph, _ = opened(lambda x: tnp.roll(x, 1, 0) + x, ("n", 200), n=300)
    assert compute_in_blocks(graph) is graph


def test_dear_work_is_not_cut_where_rows_fill_vectors_badly() -> None:
    def dear(x: Any) -> Any:
        return tnp.tanh(tnp.roll(x, 1, 1) - x) + tnp.exp(tnp.sin(x))

    for columns in (24, 36, 52):
        assert untouched(compute_in_blocks, dear, array(1000, columns))
        assert "assemble" in ops(lambda x: tnp.roll(x, 1, 1) - x, array(1000, columns))
    for columns in (33, 49, 80):
        assert "assemble" in ops(dear, array(1000, columns))


def test_what_is_computed_first_is_stored_for_what_rolls_it() -> None:
    def f(x: Any) -> Any:
        d = tnp.roll(x, -1, 0) - x
        h = d / (1 + d * d)
        return x + h - tnp.roll(h, 1, 0)

    found = ops(f, array(100, 100))
    assert "concatenate" not in found
    assert found.count("assemble") == 2


def test_products_and_loops_read_whole_results() -> None:
    def f(x: Any, w: Any) -> Any:
        y = (tnp.roll(x, 1, 0) - x) @ w
        return td.fori_loop(0, 3, lambda i, c: laplace(c) / 8, y), y

    x, w = array(100, 120), array(120, 100)
    assert ops(f, x, w).count("assemble") == 1
    y = (np.roll(x, 1, 0) - x) @ w
    expected = y
    for _ in range(3):
        expected = laplace(expected, np) / 8
    for found, wanted in zip(td.jit(f)(x, w), (expected, y), strict=True):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


def test_blocks_are_made_in_their_places() -> None:
    """No copy but those of the arguments and results of a loop."""

    def f(u: Any, v: Any) -> Any:
        def step(_: Any, c: Any) -> Any:
            v = c[1] + 0.1 * laplace(c[0])
            return c[0] + 0.1 * v, v

        return td.fori_loop(0, 4, step, (u, v))

    args = array(100, 100), array(100, 100)
    made = stages(td.trace(f)(*args), CPUTarget())
    check(made)
    (loop,) = [eq for eq in made.graph.equations if eq.graphs]
    names = [
        k.names
        for body in loop.graphs
        for k in stages(body, CPUTarget()).kernels.entries
    ]
    assert not [n for n in names if "assemble" in n]


def moves(rng: np.random.Generator, ndim: int) -> Callable[[Any, Any], Any]:
    """A random way to move an array's elements."""
    axis, shift = int(rng.integers(ndim)), int(rng.choice([-7, -2, -1, 1, 1, 3]))
    kind = rng.integers(5)
    take = lambda x, cut: x[(slice(None),) * axis + (cut,)]  # noqa: E731
    if kind == 0:
        return lambda x, lib: lib.roll(lib.roll(x, shift, axis), 1, 0)
    if kind == 1:
        filled = lambda x, lib: lib.pad(x, 2, constant_values=3)  # noqa: E731
        inside = [slice(2, -2)] * ndim
        inside[axis] = slice(1, -3)
        return lambda x, lib: filled(x, lib)[tuple(inside)]
    if kind == 2:
        none = lambda x, lib: lib.zeros_like(take(x, slice(0, 1)))  # noqa: E731
        return lambda x, lib: lib.concatenate([none(x, lib), take(x, slice(-1))], axis)
    if kind == 3:
        ends = slice(0, 1), slice(None, None, 1), slice(-1, None)
        return lambda x, lib: take(
            lib.concatenate([take(x, e) for e in ends], axis), slice(2, None)
        )
    return lambda x, lib: lib.roll(x, shift, axis)


def program(seed: int, ndim: int) -> Callable[[Any, Any, Any], Any]:
    rng = np.random.default_rng(seed)
    moved = [moves(rng, ndim) for _ in range(6)]
    kinds, picks = rng.integers(4, size=6), rng.integers(100, size=(6, 2))

    def f(lib: Any, x: Any, y: Any) -> Any:
        values = [x, y]
        for move, kind, (i, j) in zip(moved, kinds, picks, strict=True):
            a, b = move(values[i % len(values)], lib), values[j % len(values)]
            if kind == 0:
                values.append(a - b)
            elif kind == 1:
                values.append(lib.minimum(a, b) + a)
            elif kind == 2:
                values.append(lib.where(a > b, a, 2 * b))
            else:
                values.append(a + move(b, lib))
        return tuple(values[-1 - int(picks[0, 0]) % 3 :])

    return f


@pytest.mark.parametrize("seed", range(9))
def test_random_programs(seed: int) -> None:
    shape, f = SHAPES[seed % 3], program(seed, len(SHAPES[seed % 3]))
    dtype = ["int32", "float32", "float16", "int8"][seed % 4]
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(-3, 4, shape).astype(dtype) for _ in range(2))
    for found, expected in zip(
        td.jit(lambda x, y: f(tnp, x, y))(x, y), f(np, x, y), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_gradients_of_a_stencil_in_a_loop() -> None:
    """The Laplace operator is its own adjoint."""
    x, w = array(80, 90), array(80, 90, seed=1)

    def loss(x: Any) -> Any:
        x = td.scan(lambda c, _: (laplace(c) / 8, None), x, length=3)[0]
        return (x * w).sum()

    expected = w
    for _ in range(3):
        expected = laplace(expected, np) / 8
    np.testing.assert_allclose(td.jit(td.grad(loss))(x), expected, 1e-4, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_gradients_in_loops(seed: int) -> None:
    f = program(seed, 2)
    x, y = array(80, 90), array(80, 90) * 0.5

    def loss(lib: Any, scan: Any, x: Any, y: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return tuple([v / 4 for v in (*f(lib, *c), *c)[:2]]), None

        u, v = scan(step, (x, y), None, length=3)[0]
        return (u * u + lib.sin(v)).sum()

    found = td.jit(td.grad(lambda x, y: loss(tnp, td.scan, x, y), (0, 1)))(x, y)
    expected = jax.grad(lambda x, y: loss(jnp, jax.lax.scan, x, y), (0, 1))(x, y)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)


def test_equal_layers_of_a_batch() -> None:
    x = array(3, 60, 80)
    batched = td.jit(td.vmap(laplace))(x)
    for i in range(3):
        np.testing.assert_array_equal(batched[i], td.jit(laplace)(x[i]))
