"""A kernel of LAPACK's has what its matrices may need, and gives the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.lapack import kernel
from treadle.backends.cpu.lapack.library import library
from treadle.plan.steps import CallsStep

pytestmark = pytest.mark.skipif(library() is None, reason="there is no LAPACK")


def matrices(*shape: int) -> np.ndarray:
    x = np.random.default_rng(shape[-1]).standard_normal(shape)
    x = x @ np.swapaxes(x, -1, -2) + shape[-1] * np.eye(shape[-1])
    return x.astype(np.float32)


def symbols(function: Callable[..., Any], x: np.ndarray) -> list[str]:
    steps = td.jit(function).lower(tnp.asarray(x)).plan.steps
    calls = [step.call for step in steps if isinstance(step, CallsStep)]
    return [kernel.source(call.script, call.times).symbol for call in calls]


@pytest.mark.parametrize(
    ("shape", "has"),
    [
        ((300, 300), "lapack_calls"),
        ((4, 4), "lapack_calls_cholesky_float32_alone"),
        ((2, 4, 4), "lapack_calls_cholesky_float32_alone"),
        ((100, 4, 4), "lapack_calls_cholesky_float32_many_alone"),
    ],
)
def test_known_sizes_need_less(shape: tuple[int, ...], has: str) -> None:
    assert symbols(tnp.linalg.cholesky, matrices(*shape)) == [has]


@pytest.mark.parametrize("name", ["cholesky", "inv", "qr"])
def test_every_way_gives_the_bits_of_a_matrix_alone(name: str) -> None:
    f = getattr(tnp.linalg, name)
    many = matrices(40, 5, 5)
    opened = td.jit(lambda x: f(x), dynamic={"x": ("count", "n", "n")})
    found = []
    for g in (td.jit(f), opened, f):
        found += [td.tree.leaves(g(tnp.asarray(many[:n])))[0] for n in (1, 3, 40)]
    first = np.asarray(found[0])[0]
    for each in found:
        assert np.asarray(each)[0].tobytes() == first.tobytes()
    expected = getattr(np.linalg, name)(many[0].astype(np.float64))
    np.testing.assert_allclose(
        np.abs(first), np.abs(expected[0] if name == "qr" else expected), rtol=2e-4
    )


@pytest.mark.parametrize("sides", [1, 64, 65])
def test_triangles_with_many_right_sides(sides: int) -> None:
    a = np.tril(matrices(12, 12))
    b = np.random.default_rng(0).standard_normal((12, sides)).astype(np.float32)
    solve = td.jit(lambda a, b: td.scipy.linalg.solve_triangular(a, b, lower=True))
    found = np.asarray(solve(tnp.asarray(a), tnp.asarray(b)))
    expected = np.linalg.solve(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
