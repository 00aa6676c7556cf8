"""Stacks of few numbers: made by one kernel, of the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.device import CPUTarget
from treadle.check import check
from treadle.compile import stages
from treadle.plan.steps import NestStep, walk


def nests(f: Any, *args: Any) -> int:
    made = stages(td.trace(f)(*args), CPUTarget())
    check(made)
    return sum(isinstance(step, NestStep) for _, step in walk(made.plan.steps))


def turned(x: Any) -> Any:
    a, b = tnp.cos(x[0]), tnp.sin(x[1])
    return tnp.stack([a * x[0] - b * x[1], b * x[0] + a * x[1], x[2] / 2])


def test_a_small_state_takes_few_kernels() -> None:
    def steps(x: Any) -> Any:
        return td.scan(lambda c, _: (turned(c + 0.1 * turned(c)), None), x, length=9)[0]

    x = np.array([0.3, -1.2, 5.0], np.float32)
    assert nests(steps, x) <= 3
    expected = x
    for _ in range(9):
        inner = expected + np.float32(0.1) * np.asarray(turned(tnp.asarray(expected)))
        expected = np.asarray(turned(tnp.asarray(inner)))
    np.testing.assert_allclose(td.jit(steps)(x), expected, 1e-4)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float64", "complex64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_values(dtype: str, axis: int) -> None:
    rng = np.random.default_rng(axis)
    parts = [rng.normal(0, 3, (3, 2)).astype(dtype) for _ in range(4)]

    def f(*xs: Any) -> Any:
        return tnp.stack([xs[0], xs[1], xs[0], xs[3]], axis), xs[2]

    found = td.jit(f)(*parts)[0]
    expected = np.stack([parts[0], parts[1], parts[0], parts[3]], axis)
    np.testing.assert_array_equal(found, expected)


def test_pieces_that_are_empty_or_longer() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for pieces in ([x[:, :0], x], [x, x[:, :0]], [x[:, :1], x[:, 1:], x[:, :1]]):
        found = td.jit(lambda *xs: tnp.concatenate(xs, 1))(*pieces)
        np.testing.assert_array_equal(found, np.concatenate(pieces, 1))


def test_derivatives_by_all_pieces() -> None:
    weights = np.array([1.0, 10.0, 100.0])

    def f(x: Any) -> Any:
        return (turned(x) * weights).sum()

    td.check_grads(td.jit(f), (np.array([0.2, 0.7, -1.1]),), order=2)


def test_what_is_no_number_stays_where_it_is() -> None:
    x = np.array([np.nan, -np.inf, -0.0], np.float32)
    found = np.asarray(td.jit(lambda x: tnp.stack([x[2], x[0], x[1], x[2]]))(x))
    assert found.tobytes() == x[[2, 0, 1, 2]].tobytes()


@pytest.mark.parametrize(("axis", "count"), [(0, 3), (-1, 1)])
def test_pieces_of_long_stacks_are_made_where_they_belong(
    axis: int, count: int
) -> None:
    """Those that lie among each other are written by one kernel."""

    def change(s: Any) -> Any:
        x, y, z = s
        return tnp.stack([10 * (y - x), x * (28 - z) - y, x * y - z / 3], axis)

    s = np.random.default_rng(0).normal(size=(3, 100)).astype(np.float32)
    assert nests(change, s) == count
    x, y, z = s
    expected = np.stack([10 * (y - x), x * (28 - z) - y, x * y - z / 3], axis)
    static = td.jit(change)(s)
    np.testing.assert_allclose(static, expected, 1e-5, 1e-5)
    sized = td.jit(change, dynamic={"s": (None, "n")})
    assert np.array_equal(sized(s), static)
    assert np.array_equal(sized(s[:, :70]), td.jit(change)(s[:, :70]))


def test_what_others_read_is_computed_once() -> None:
    def both(x: Any) -> Any:
        a, b = tnp.exp(x), tnp.sin(x)
        return tnp.stack([a, b]), a

    x = np.linspace(-1, 1, 100, dtype=np.float32)
    found = stages(td.trace(both)(x), CPUTarget())
    check(found)
    assert [eq.op.name for eq in found.graph.equations].count("exp") == 1
    stacked, a = td.jit(both)(x)
    np.testing.assert_allclose(stacked, np.stack([np.exp(x), np.sin(x)]), 1e-5, 1e-6)
    np.testing.assert_array_equal(stacked[0], a)


def test_pieces_that_are_one_number_each() -> None:
    """Of long arrays as well: what a number is made of has no shape to change."""

    def state(y: Any, t: Any) -> Any:
        return tnp.concatenate([y, tnp.reshape(t * tnp.exp(y[0]), (1,))])

    y, t = np.linspace(0, 1, 100, dtype=np.float32), np.float32(0.5)
    expected = np.append(y, t * np.exp(y[0]))
    np.testing.assert_allclose(td.jit(state)(y, t), expected, 1e-6)
