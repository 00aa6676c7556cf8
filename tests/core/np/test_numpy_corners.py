"""Corners of NumPy's functions where an earlier version went its own way: values, types
and errors are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

X = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
HOLES = np.array([[np.inf, -np.inf, 1], [np.inf, np.nan, 1], [1, np.nan, 4]])
TRUTHS = np.random.default_rng(0).random((3, 4)) < 0.5
FEW = np.array([10.0, 20.0, 30.0], np.float32)
OUTSIDE = np.array([2, -1, 7, -9])
PLACES = tuple(np.array(p) for p in ([0, 1], [2, 1], [3, 0]))
SHAPE = (2, 3, 4)
BESIDE = (np.array([0, 7]), np.array([-2, 9]), PLACES[2])
MODES = ("wrap", "clip", "raise")

SAME = {
    "linspace, whole": lambda np: np.linspace(1, 10, 4, dtype=np.int32),
    "linspace, small": lambda np: np.linspace(-5, 5, 11, dtype=np.int8),
    "geomspace, complex": lambda np: np.geomspace(-1, 1 + 0j, 5),
    "geomspace, spirals": lambda np: np.geomspace(1 + 1j, 8, 3, endpoint=False),
    "nanvar": lambda np: np.nanvar(np.asarray(HOLES), axis=1),
    "nanstd": lambda np: np.nanstd(np.asarray(HOLES), axis=1),
    "nan_to_num": lambda np: np.nan_to_num(np.array(HOLES), copy=False, nan=7.0),
    "pad, ramps": lambda np: np.pad(np.asarray(TRUTHS), 2, mode="linear_ramp"),
    "pad, means": lambda np: np.pad(np.asarray(TRUTHS), 2, mode="mean"),
    "pad, odd": lambda np: np.pad(
        np.asarray(X), ((2, 9), (13, 1)), mode="reflect", reflect_type="odd"
    ),
    "pad, odd with ends": lambda np: np.pad(
        np.asarray(FEW), 8, mode="symmetric", reflect_type="odd"
    ),
    "pad, odd of one": lambda np: np.pad(
        np.asarray(FEW[:1]), 3, mode="reflect", reflect_type="odd"
    ),
    "take, clip": lambda np: np.take(np.asarray(FEW), np.asarray(OUTSIDE), mode="clip"),
    "take, list": lambda np: np.take(np.asarray(FEW), [-1, 7], mode="clip"),
    "take, wrap": lambda np: np.take(np.asarray(FEW), [-1, 7], mode="wrap"),
    "take, truths": lambda np: np.take(np.asarray(FEW), np.asarray([True, False])),
    "unravel_index, F": lambda np: np.unravel_index(np.asarray([5, 17]), SHAPE, "F"),
    "ravel_multi_index": lambda np: np.ravel_multi_index(PLACES, SHAPE, order="F"),
    "a mode each": lambda np: np.ravel_multi_index(BESIDE, SHAPE, MODES),
    "sort": lambda np: np.sort(np.asarray(X), kind="stable"),
    "argsort": lambda np: np.argsort(np.asarray(X), kind="mergesort"),
    "polyder": lambda np: np.polyder(np.asarray([True, False, True])),
    "poly, matrix": lambda np: np.poly(np.asarray(X)),
    "unique": lambda np: np.unique(np.asarray(OUTSIDE), sorted=True),
    "insert, one place": lambda np: np.insert(np.asarray(FEW), [1], np.asarray(FEW)),
    "insert, one column": lambda np: np.insert(
        np.asarray(X), [1], np.asarray(X[:, :1]), axis=1
    ),
    "cov of nothing": lambda np: np.cov(np.asarray(X[:0])),
    "corrcoef of nothing": lambda np: np.corrcoef(np.asarray(X[:0]), np.asarray(FEW)),
    "size": lambda np: np.asarray(np.size(np.asarray(X), (0, 1))),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", SAME)
def test_agrees_with_numpy(name: str) -> None:
    found, expected = SAME[name](tnp), SAME[name](np)
    parts = expected if isinstance(expected, tuple) else (expected,)
    for f, e in zip(
        found if isinstance(found, tuple) else (found,), parts, strict=True
    ):
        assert f.dtype.kind == e.dtype.kind
        np.testing.assert_allclose(np.asarray(f), e, rtol=1e-5, atol=1e-5)


def test_linspace_of_whole_numbers_is_numpys() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        first, last, n = (int(v) for v in rng.integers(-50, 50, 3))
        asked: Any = (first, last, abs(n), bool(rng.integers(2)))
        found = np.asarray(tnp.linspace(*asked, dtype="int32"))
        np.testing.assert_array_equal(found, np.linspace(*asked, dtype=np.int32))


def test_what_replaces_may_be_traced() -> None:
    found = td.jit(lambda x, v: tnp.nan_to_num(x, nan=v))(HOLES[1], 5.0)
    np.testing.assert_allclose(np.asarray(found)[1:], [5, 1])


def test_indices_of_a_mode_in_compiled_code() -> None:
    for dtype in ("int8", "int32", "int64"):
        places = tnp.array(OUTSIDE, dtype)
        for mode in ("clip", "wrap"):
            read = td.jit(lambda x, i, mode=mode: tnp.take(x, i, mode=mode))
            expected = np.take(np.arange(200.0), OUTSIDE, mode=mode)
            np.testing.assert_array_equal(read(tnp.arange(200.0), places), expected)


def test_where_no_number_is() -> None:
    assert tnp.nanargmax(tnp.array([np.nan, np.nan])) == -1
    assert tnp.nanargmin(tnp.array(HOLES[:2]), 0, keepdims=True).shape == (1, 3)


def test_the_derivative_of_a_characteristic_polynomial() -> None:
    found = td.grad(lambda a: tnp.poly(a)[-1])(X.astype(float))
    expected = np.linalg.det(X) * np.linalg.inv(X).T
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4)


def test_known_bounds_of_parts_inside_a_trace() -> None:
    bounds = tnp.array([1, 3])
    parts = td.jit(lambda x: tnp.split(x, bounds))(tnp.arange(5.0))
    assert [p.shape for p in parts] == [(1,), (2,), (2,)]


def test_places_out_of_range_are_put_by_mode() -> None:
    places = tnp.array([[1], [9]])
    found = tnp.put_along_axis(
        tnp.zeros((2, 3)), places, 7.0, 1, inplace=False, mode="clip"
    )
    assert found.tolist() == [[0, 7, 0], [0, 0, 7]]


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: tnp.rot90(tnp.ones((2, 3)), axes=(0, -2)), ValueError, "no plane"),
        (lambda: tnp.signbit(tnp.array([1j])), TypeError, "c64"),
        (lambda: tnp.i0(tnp.array([1j])), TypeError, "c64"),
        (lambda: tnp.max(X[:0, :0], axis=0), ValueError, "no elements"),
        (lambda: tnp.bincount(OUTSIDE[None]), ValueError, r"i64\[1,4\]"),
        (lambda: tnp.digitize(FEW, X), ValueError, r"f32\[4,4\]"),
        (lambda: tnp.lexsort([FEW, FEW[:1]]), ValueError, r"\(3,\), \(1,\)"),
        (lambda: tnp.interp(FEW, FEW[:1], FEW), ValueError, "one length"),
        (lambda: tnp.histogram(FEW, 0), ValueError, "one bin"),
        (lambda: tnp.histogram2d(X, X), ValueError, "vector for each axis"),
        (lambda: tnp.zeros(3, 0), TypeError, "0 is not a dtype"),
        (lambda: tnp.full_like(X, 1, ""), TypeError, "'' is not a dtype"),
        (lambda: tnp.sin(X.astype(">f4")), TypeError, "newbyteorder"),
        (lambda: tnp.nanmean(X, dtype=int), TypeError, "average"),
        (lambda: tnp.sort(X, kind="bubble"), ValueError, "'stable'"),
        (lambda: tnp.unravel_index(3, (2, 2), "K"), ValueError, "'K'"),
        (
            lambda: tnp.ravel_multi_index(PLACES, SHAPE, ("clip", "wrap")),
            ValueError,
            "3 axes",
        ),
    ],
)
def test_errors(use: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        use()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "q", [10, 33.3, [10, 90], (1, 2.5), np.array([20, 70])], ids=str
)
def test_percents_have_the_digits_of_the_elements(q: Any, dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(dtype)
    close = 8 * np.finfo(dtype).eps
    for name in ("percentile", "nanpercentile"):
        wanted = getattr(np, name)(x, q, axis=0)
        function = getattr(tnp, name)
        np.testing.assert_allclose(function(x, q, axis=0), wanted, close, close)
        found = td.jit(lambda x, f=function: f(x, q, axis=0))(x)
        np.testing.assert_allclose(found, wanted, close, close)
        assert found.dtype == dtype
    if isinstance(q, np.ndarray):
        found = td.jit(lambda x, q: tnp.percentile(x, q, axis=0))(x, q)
        np.testing.assert_allclose(found, np.percentile(x, q, axis=0), close, close)
    if isinstance(q, list):
        shares = [v / 100 for v in q]
        found = tnp.quantile(x, shares, axis=1)
        np.testing.assert_allclose(found, np.quantile(x, shares, axis=1), close, close)
