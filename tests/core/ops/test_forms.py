"""The functions that are written with primitives, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.ops.dynamic import dynamic_slice_axis, dynamic_update_axis
from treadle.ops.gather import take, take_along_axis
from treadle.ops.sort import argsort

X = np.random.default_rng(0).normal(size=(4, 5, 6)).astype("float32")


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_take(axis: int, shape: tuple[int, ...]) -> None:
    indices = np.random.default_rng(1).integers(0, 4, size=shape, dtype="int32")
    np.testing.assert_array_equal(take(X, indices, axis), np.take(X, indices, axis))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_along_axis(axis: int) -> None:
    order = np.argsort(X, axis)
    np.testing.assert_array_equal(
        take_along_axis(X, order, axis), np.take_along_axis(X, order, axis)
    )
    np.testing.assert_array_equal(argsort(X, axis % 3), order)


def test_dynamic_axis() -> None:
    start = np.int32(2)
    np.testing.assert_array_equal(dynamic_slice_axis(X, start, 3, 1), X[:, 2:5])
    wanted = X.copy()
    wanted[:, :, 2:3] = 1
    ones = np.ones((4, 5, 1), "float32")
    np.testing.assert_array_equal(dynamic_update_axis(X, ones, start, 2), wanted)
