"""Sorts of pairs of real numbers are NumPy's of complex ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.passes.parts import INF, NAN, grid, joined, pair
from treadle.passes.pair_sorts import sort_pairs
from treadle.passes.pairs import Pair


def shuffled(parts: list[float]) -> np.ndarray:
    return np.random.default_rng(0).permutation(grid(parts))


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return all(
        np.array_equal(x, y, equal_nan=True)
        for x, y in ((a.real, b.real), (a.imag, b.imag))
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_by_real_then_imaginary_parts_and_what_is_no_number_last(axis: int) -> None:
    z = shuffled([0.0, 1.0, -2.0, INF, -INF, NAN]).reshape(6, 6)
    (found,) = sort_pairs(pair(z), axis=axis, num_keys=1)
    assert same(joined(found), np.sort(z, axis))


def test_what_goes_along() -> None:
    z = shuffled([1.0, 2.0, NAN])
    places, more = np.arange(9), z * 2
    found, order, other = sort_pairs(pair(z), places, pair(more), axis=0, num_keys=1)
    wanted = np.argsort(z, kind="stable")
    assert not isinstance(order, Pair)
    assert np.array_equal(order, wanted)
    assert same(joined(found), z[wanted])
    assert same(joined(other), more[wanted])


def test_several_keys() -> None:
    first = np.array([1, 0, 1, 0, 1, 0])
    z = np.array([2 + 1j, 3, 2 - 1j, 1j, 2 + 1j, 3])
    found = sort_pairs(first, pair(z), np.arange(6), axis=0, num_keys=2)
    wanted = np.lexsort([z.imag, z.real, first])
    assert np.array_equal(found[0], first[wanted])
    assert same(joined(found[1]), z[wanted])
    assert np.array_equal(found[2], wanted)
    found = sort_pairs(pair(z), first, axis=0, num_keys=2)
    wanted = np.lexsort([first, z.imag, z.real])
    assert np.array_equal(found[1], first[wanted])
