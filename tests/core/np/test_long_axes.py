"""Places and counts along axes that are longer than int32 can count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

N = 2**31 + 10
LONG = td.ShapeDtype((N,), tnp.int8)

PLACES: dict[str, Callable[[Any], Any]] = {
    "argmax": tnp.argmax,
    "argmin": lambda x: tnp.argmin(x[None], axis=1),
    "argmax of a matrix": lambda x: tnp.argmax(x.reshape(2, -1)),
    "argsort": tnp.argsort,
    "argsort, descending": lambda x: tnp.argsort(x, descending=True),
    "top_k": lambda x: tnp.top_k(x, 2)[1],
    "searchsorted": lambda x: tnp.searchsorted(x, np.int8(1)),
    "count_nonzero": tnp.count_nonzero,
    "sum": lambda x: (x > 0).sum(),
    "sum over two axes": lambda x: (x > 0).reshape(2, -1).sum((0, 1)),
    "cumsum": lambda x: tnp.cumsum(x > 0),
    "indices": lambda x: tnp.indices(x.shape),
    "diag_indices": lambda x: tnp.diag_indices(N),
    "arange": lambda x: tnp.arange(N),
    "take_along_axis": lambda x: tnp.take_along_axis(tnp.argsort(x), tnp.argsort(x)),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_along_long_axes_are_int64(name: str) -> None:
    function = PLACES[name]
    found = td.eval_shape(function, LONG)
    assert {t.dtype.name for t in td.tree.flatten(found)[0]} == {"int64"}


SHORT = [n for n in PLACES if n not in ("diag_indices", "arange")]


@pytest.mark.parametrize("name", SHORT)
def test_places_along_other_axes_are_int32(name: str) -> None:
    found = td.eval_shape(PLACES[name], td.ShapeDtype((1000,), tnp.int8))
    assert {t.dtype.name for t in td.tree.flatten(found)[0]} == {"int32"}


def test_short_axes_of_large_arrays_are_counted_with_int32() -> None:
    large = td.ShapeDtype((2**16, 2**16), tnp.int8)
    for f in (tnp.argmax, tnp.argsort, lambda x, a: tnp.cumsum(x > 0, a)):
        assert td.eval_shape(lambda x, f=f: f(x, 0), large).dtype == tnp.int32


@pytest.mark.parametrize("k", [2**31 - 1, -(2**31), 2**40, 2, -2])
def test_far_diagonals(k: int) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(tnp.tril(x, k), np.tril(x, k))
    np.testing.assert_array_equal(tnp.triu(x, k), np.triu(x, k))
    np.testing.assert_array_equal(tnp.eye(3, 4, k), np.eye(3, 4, min(max(k, -9), 9)))


@pytest.mark.parametrize("index", [2**31, -(2**31), 2**32, 2**40 + 1, 1])
def test_branches_far_out_of_range(index: int) -> None:
    branches = [lambda x: x, lambda x: x * 2, lambda x: x * 3]
    choose = td.jit(lambda i, x: td.switch(i, branches, x))
    expected = min(max(index, 0), 2) + 1
    assert choose(np.int64(index), 1.0) == expected
    if index >= 0:
        assert choose(np.uint64(index), 1.0) == expected


@pytest.mark.slow
def test_values_far_along() -> None:
    """Compiled, of numbers that are made where they are read."""
    place = N - 3
    first = td.jit(lambda k: tnp.argmax(tnp.arange(N) == k))(np.int64(place))
    assert (first.dtype, int(first)) == (np.int64, place)
    count = td.jit(lambda k: tnp.count_nonzero(tnp.arange(N) != k))(np.int64(place))
    assert (count.dtype, int(count)) == (np.int64, N - 1)


@pytest.mark.slow
def test_elements_far_along() -> None:
    """Eagerly and compiled, in 2 GiB."""
    x = np.zeros((N,), np.int8)
    x[-5:-3] = 7, -3
    held = tnp.asarray(x)
    for how in (lambda f: f, td.jit):
        assert int(how(tnp.argmax)(held)) == N - 5
        assert int(how(tnp.argmin)(held)) == N - 4
    far = np.array([-5, -4, 2**40, 7])
    near = np.array([-5, -4, 7], np.int8)
    i, j = np.array([-1, 2**16, 7], np.int32), np.array([-5, -4, 0], np.int32)
    block = np.zeros((2**16 + 1, 2**15), np.int8)
    block[-1, -5:-3] = 7, -3
    matrix = tnp.asarray(block)
    for how in (lambda f: f, td.jit):
        assert how(lambda x, i: x[i])(held, tnp.asarray(far)).tolist() == [7, -3, 0, 0]
        assert how(tnp.take)(held, tnp.asarray(far)).tolist() == [7, -3, -128, 0]
        assert how(lambda x, i: x[i])(held, tnp.asarray(near)).tolist() == [7, -3, 0]
        both = how(lambda x, i, j: x[i, j])(matrix, tnp.asarray(i), tnp.asarray(j))
        assert both.tolist() == [7, -3, 0]
