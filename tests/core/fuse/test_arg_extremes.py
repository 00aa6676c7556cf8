"""argmax and argmin along any axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse.native import runs_natively, shares_kernels

rng = np.random.default_rng(0)
DTYPES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "bool",
    "int8",
    "uint32",
    "int64",
]


def draw(*shape: int, dtype: str = "float32") -> Any:
    # Few values: most extremes are there several times.
    return tnp.asarray(rng.integers(-3, 4, size=shape)).astype(dtype)


def both(axis: int) -> Any:
    return lambda x: (tnp.argmax(x, axis=axis), tnp.argmin(x, axis=axis))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_ties_go_to_the_first(axis: int, dtype: str) -> None:
    runs_natively(both(axis), draw(5, 9, 70, dtype=dtype))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 6, 7, 1), (3, 1, 1, 5), (4, 5, 0, 2)])
def test_short_and_empty_axes(axis: int, shape: tuple[int, ...]) -> None:
    if shape[axis]:
        runs_natively(both(axis), draw(*shape))


@pytest.mark.parametrize("axis", [0, 1])
def test_not_a_number_is_extreme(axis: int) -> None:
    x = np.array(rng.normal(size=(20, 33)), "float32")
    x[rng.random(x.shape) < 0.1] = np.nan
    x[:, 3], x[4] = np.inf, -np.inf
    runs_natively(both(axis), tnp.asarray(x))


def test_of_views_and_with_neighbours() -> None:
    def function(x: Any) -> Any:
        y = tnp.exp(x.T)
        regrouped = tnp.reshape(y, (3, 8, 10))
        return tnp.argmax(y, axis=0), tnp.argmin(regrouped, axis=1), tnp.max(y, axis=0)

    runs_natively(function, draw(10, 24))


def test_of_an_axis_that_is_split_by_another_reader() -> None:
    def function(x: Any) -> Any:
        y = tnp.sin(x)
        return tnp.sum(tnp.reshape(y, (4, 6, 40)), axis=(0, 1)), tnp.argmax(y, axis=0)

    runs_natively(function, draw(24, 40))


def test_one_kernel_for_all_sizes() -> None:
    shares_kernels(both(0), [draw(5, 9)], [draw(300, 17)])
