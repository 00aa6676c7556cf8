"""Sorting, searching, interpolation, and what works on known values only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import (
    Case,
    check,
    check_batched,
    check_gradient,
    floats,
    ints,
    same,
)

X = floats(5, 7)
TIES = ints(4, 9, low=0, high=4)
GRID = np.array([-1.0, 0.0, 0.5, 2.0], np.float32)
VALUES = np.array([1.0, -1.0, 3.0, 0.0], np.float32)

CASES = [
    Case("sort", lambda np, x: np.sort(x), (X,)),
    Case("sort-axis", lambda np, x: np.sort(x, 0), (X,)),
    Case("sort-flat", lambda np, x: np.sort(x, None), (X,)),
    Case("sort-descending", lambda np, x: np.sort(x, descending=True), (X,)),
    Case("argsort", lambda np, x: np.argsort(x), (TIES,)),
    Case("argsort-axis", lambda np, x: np.argsort(x, 0), (X,)),
    Case("argsort-descending", lambda np, x: np.argsort(x, descending=True), (TIES,)),
    *[
        Case(
            f"searchsorted-{side}",
            lambda np, a, v, s=side: np.searchsorted(a, v, side=s),
            (GRID, np.concatenate([GRID, X.ravel()[:6]]).reshape(2, 5)),
        )
        for side in ("left", "right")
    ],
    Case("digitize", lambda np, x, b: np.digitize(x, b), (X, GRID)),
    Case("bincount", lambda np, x: np.bincount(x, length=5), (TIES.ravel(),)),
    Case(
        "bincount-weights",
        lambda np, x, w: np.bincount(x, length=5, weights=w),
        (TIES[0], X.ravel()[:9]),
    ),
    Case("isin", lambda np, x, v: np.isin(x, v), (TIES, np.array([1, 3], np.int32))),
    Case("isclose", lambda np, x, y: np.isclose(x, y), (X, X + np.float32(1e-6))),
    Case("allclose", lambda np, x, y: np.allclose(x, y), (X, X + np.float32(1))),
    Case("array_equal", lambda np, x, y: np.array_equal(x, y), (X, X)),
    Case("quantile", lambda np, x: np.quantile(x, 0.3), (X,)),
    Case("quantile-axis", lambda np, x: np.quantile(x, 0.3, axis=1), (X,)),
    Case("quantile-keep", lambda np, x: np.quantile(x, 0.5, 0, keepdims=True), (X,)),
    Case(
        "quantile-several",
        lambda np, x, q: np.quantile(x, q, axis=0),
        (X, np.float32([0, 0.25, 1])),
    ),
    Case("percentile", lambda np, x: np.percentile(x, 70, axis=1), (X,), close=16),
    *[
        Case(f"norm-{o}", lambda np, x, o=o: np.linalg.norm(x, o, axis=1), (X,))
        for o in (None, 1, 2, 3, 0, np.inf, -np.inf)
    ],
    Case("norm-all", lambda np, x: np.linalg.norm(x), (X,)),
    Case("norm-keep", lambda np, x: np.linalg.norm(x, "fro", (0, 1), True), (X,)),
    Case(
        "select",
        lambda np, x: np.select([x > 1, x < -1], [x, 2 * x], 0.5),
        (X,),
    ),
    Case("trapezoid", lambda np, x: np.trapezoid(x, dx=0.5, axis=0), (X,)),
    Case("trapezoid-x", lambda np, y, x: np.trapezoid(y, x), (X[:, :4], GRID)),
    Case("unravel_index", lambda np, i: np.unravel_index(i, (2, 3, 5)), (TIES,)),
    Case("interp", lambda np, x, a, b: np.interp(x, a, b), (X, GRID, VALUES)),
    Case(
        "interp-on",
        lambda np, x, a, b: np.interp(x, a, b, "extrapolate", "extrapolate"),
        (X * 3, GRID, VALUES),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_batched(case: Case) -> None:
    check_batched(case)


SMOOTH = [
    *("sort", "sort-axis", "sort-descending", "interp", "select", "trapezoid-x"),
    *("quantile-axis", "norm-None", "norm-3"),
]


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient(name: str) -> None:
    check_gradient(next(c for c in CASES if c.name == name))


def test_top_k() -> None:
    values, places = tnp.top_k(tnp.array(X), 2, axis=0)
    same(values, np.sort(X, 0)[::-1][:2])
    same(places, np.argsort(-X, 0)[:2].astype(np.int32))
    with pytest.raises(ValueError, match="k is 9, but the axis has length 7"):
        tnp.top_k(tnp.array(X), 9)


def test_ravel_multi_index() -> None:
    places = tnp.unravel_index(tnp.arange(30), (2, 3, 5))
    assert tnp.ravel_multi_index(places, (2, 3, 5)).tolist() == list(range(30))
    with pytest.raises(ValueError, match=r"3 indices for the shape \(6, 5\)"):
        tnp.ravel_multi_index(places, (6, 5))


def test_isclose_of_infinities_and_nans() -> None:
    x = tnp.array([tnp.inf, -tnp.inf, tnp.nan, 1.0])
    y = tnp.array([tnp.inf, tnp.inf, tnp.nan, 1.0])
    assert tnp.isclose(x, y).tolist() == [True, False, False, True]
    assert tnp.isclose(x, y, equal_nan=True).tolist() == [True, False, True, True]


def test_known_values() -> None:
    x = tnp.array([[3, 0], [0, 3]])
    same([i.tolist() for i in tnp.nonzero(x)], [[0, 1], [0, 1]])
    assert tnp.where(x > 0)[0].tolist() == [0, 1]
    assert tnp.flatnonzero(x).tolist() == [0, 3]
    assert tnp.argwhere(x).tolist() == [[0, 0], [1, 1]]
    assert tnp.unique(x).tolist() == [0, 3]
    found = tnp.unique(x, return_index=True, return_inverse=True, return_counts=True)
    expected = np.unique(
        np.asarray(x), return_index=True, return_inverse=True, return_counts=True
    )
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_array_equal(f, e)


@pytest.mark.parametrize("function", [tnp.nonzero, tnp.unique, tnp.where, tnp.argwhere])
def test_values_that_are_traced(function: Any) -> None:
    with pytest.raises(TypeError, match=r"depends on the values[\s\S]*tnp\.where"):
        td.jit(function)(X)


@pytest.mark.parametrize("which", [0, 1])
def test_interp_takes_no_complex_places(which: int) -> None:
    args = [np.array([0.5]), np.array([0.0, 1.0]), np.array([1j, 2.0])]
    np.testing.assert_allclose(tnp.interp(*args), [1 + 0.5j])
    args[which] = args[which] * (1 + 1j)
    with pytest.raises(TypeError, match=f"interp: {('x', 'xp')[which]} must be real"):
        tnp.interp(*args)


def test_bincount_of_unsigned_integers() -> None:
    x = np.uint8([0, 3, 3])
    np.testing.assert_array_equal(tnp.bincount(x), np.bincount(x))
    assert tnp.bincount(x[:0]).shape == (0,)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 63, 64, 65, 66, 127, 128, 129, 257])
def test_places_in_vectors_of_any_length(n: int, dtype: str) -> None:
    rng = np.random.default_rng(n)
    keys = np.sort(rng.integers(0, n + 1, n).astype(dtype))
    values = rng.integers(-2, n + 3, 50).astype(dtype)
    if dtype == "float32":
        values[:2] = np.nan, np.inf
        keys[n - n // 8 :] = np.nan
    for side in ("left", "right"):
        found = td.jit(lambda k, v, side=side: tnp.searchsorted(k, v, side))(
            keys, values
        )
        np.testing.assert_array_equal(found, np.searchsorted(keys, values, side))
