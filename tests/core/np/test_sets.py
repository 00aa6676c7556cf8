"""Places of elements, sets, and counts: with a known size against JAX, without one
against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import (
    Case,
    bools,
    check,
    check_batched,
    check_gradient,
    floats,
    ints,
    same,
)

I = ints(4, 5, low=0, high=6)  # noqa: E741
J = ints(9, low=2, high=9, seed=5)
LONG = ints(40, low=-20, high=20, seed=6)
B = bools(4, 5)
X = floats(4, 5)
GAPS = np.float32([np.nan, 1, np.nan, -np.inf, 1, 0, -0.0, np.inf])
EMPTY = np.zeros((0,), np.float32)
Z = (ints(6, low=0, high=2) + 1j * ints(6, low=0, high=2, seed=8)).astype("complex64")

SIDES = ("left", "right")


def in_list(found: Any) -> list[Any]:
    """Counts (of JAX's integers, where NumPy has floats) and edges, in one list."""
    counts, *edges = found
    edges = edges[0] if isinstance(edges[0], list) else edges
    return [counts.astype("float32"), *edges]


SIZED = [
    Case("nonzero", lambda np, x: np.nonzero(x, size=12), (I,)),
    Case("nonzero, few", lambda np, x: np.nonzero(x, size=3), (I,)),
    Case("nonzero, fill", lambda np, x: np.nonzero(x, size=20, fill_value=7), (I,)),
    Case(
        "nonzero, fills",
        lambda np, x: np.nonzero(x, size=20, fill_value=(-1, 9)),
        (B,),
    ),
    Case("flatnonzero", lambda np, x: np.flatnonzero(x, size=20), (X > 0,)),
    Case("argwhere", lambda np, x: np.argwhere(x, size=9, fill_value=-1), (B,)),
    Case("where", lambda np, x: np.where(x, size=5), (B,)),
    Case("extract", lambda np, b, x: np.extract(b, x, size=7), (B, X)),
    Case(
        "compress",
        lambda np, b, x: np.compress(b, x, axis=1, size=4, fill_value=2),
        (B[0], X),
    ),
    Case("compress, flat", lambda np, b, x: np.compress(b, x, size=4), (B[0], X)),
    Case("unique", lambda np, x: np.unique(x, size=8), (I,)),
    Case("unique, few", lambda np, x: np.unique(x, size=2), (I,)),
    Case(
        "unique, all",
        lambda np, x: np.unique(x, True, True, True, size=8, fill_value=-3),
        (I,),
    ),
    Case("unique, nan", lambda np, x: np.unique(x, size=7), (GAPS,)),
    Case(
        "unique, each nan",
        lambda np, x: np.unique(x, size=8, equal_nan=False, return_counts=True),
        (GAPS,),
    ),
    Case(
        "unique rows",
        lambda np, x: np.unique(x, True, True, True, axis=0, size=4),
        (I % 2,),
    ),
    Case("unique columns", lambda np, x: np.unique(x, axis=1, size=4), (I[:2] % 2,)),
    Case("unique_all", lambda np, x: tuple(np.unique_all(x, size=8)), (I,)),
    Case("unique_counts", lambda np, x: tuple(np.unique_counts(x, size=8)), (I,)),
    Case("unique_inverse", lambda np, x: tuple(np.unique_inverse(x, size=8)), (I,)),
    Case("unique_values", lambda np, x: np.unique_values(x, size=8), (I,)),
    Case("union1d", lambda np, x, y: np.union1d(x, y, size=12), (I, J)),
    Case("intersect1d", lambda np, x, y: np.intersect1d(x, y, size=5), (I, J)),
    Case(
        "intersect1d, indices",
        lambda np, x, y: np.intersect1d(x, y, return_indices=True, size=5),
        (I, J),
    ),
    Case("setdiff1d", lambda np, x, y: np.setdiff1d(x, y, size=5), (I, J)),
    Case("setxor1d", lambda np, x, y: np.setxor1d(x, y, size=8), (I, J)),
]
COUNTS = [
    Case("isin", lambda np, x, y: np.isin(x, y), (I, J)),
    Case("isin, long", lambda np, x, y: np.isin(x, y), (I, LONG)),
    Case("isin, invert", lambda np, x, y: np.isin(x, y, invert=True), (I, J)),
    Case("isin, nothing", lambda np, x, y: np.isin(x, y), (X, EMPTY)),
    Case("bincount", lambda np, x: np.bincount(x, length=4), (J,)),
    Case(
        "bincount, weights", lambda np, x, w: np.bincount(x, w, length=9), (J[:5], X[0])
    ),
    Case("digitize, down", lambda np, x: np.digitize(x, np.array([1.0, 0, -1])), (X,)),
    Case(
        "digitize, down, right",
        lambda np, x, b: np.digitize(x, b, right=True),
        (I, np.int32([5, 3, 1])),
    ),
    Case("histogram", lambda np, x: np.histogram(x), (X,)),
    Case(
        "histogram, density",
        lambda np, x: np.histogram(x, 4, range=(-1, 2), density=True),
        (X,),
        16,
    ),
    Case(
        "histogram, weights",
        lambda np, x, w: np.histogram(x, np.array([-1.0, 0, 0.5, 2]), weights=w),
        (X, X**2),
    ),
    Case("histogram, one value", lambda np, x: np.histogram(x, 3), (X[:1, :1],)),
    Case("histogram_bin_edges", lambda np, x: np.histogram_bin_edges(x, 7), (X,)),
    Case(
        "histogram2d", lambda np, x, y: in_list(np.histogram2d(x, y, 3)), (X[0], X[1])
    ),
    Case(
        "histogram2d, ranges",
        lambda np, x, y: in_list(
            np.histogram2d(x, y, (3, 2), ((-1, 1), (-2, 2)), density=True)
        ),
        (X[0], X[1]),
    ),
    Case(
        "histogramdd",
        lambda np, x: in_list(np.histogramdd(x, 2, density=True)),
        (X[:, :3],),
        16,
    ),
    Case(
        "histogramdd, weights",
        lambda np, x, w: in_list(np.histogramdd(x, (2, 3), weights=w)),
        (X[:, :2], X[:, 4] ** 2),
    ),
    Case(
        "searchsorted, long",
        lambda np, a, v: np.searchsorted(np.sort(a), v),
        (LONG, I),
    ),
    Case(
        "searchsorted, long, right",
        lambda np, a, v: np.searchsorted(np.sort(a), v, side="right"),
        (LONG, I),
    ),
    Case(
        "searchsorted, sorter",
        lambda np, a, v: np.searchsorted(a, v, sorter=np.argsort(a)),
        (LONG, I),
    ),
    Case(
        "searchsorted, nan",
        lambda np, a, v: [np.searchsorted(np.sort(a), v, side=s) for s in SIDES],
        (GAPS, GAPS),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", SIZED + COUNTS, ids=lambda c: c.name)
def test_agrees_with_jax(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", SIZED + COUNTS, ids=lambda c: c.name)
def test_batched(case: Case) -> None:
    check_batched(case)


@pytest.mark.parametrize("name", ["extract", "compress"])
def test_gradients(name: str) -> None:
    case = next(c for c in SIZED if c.name == name)
    function = lambda np, x, b: case.function(np, b, x)  # noqa: E731
    check_gradient(Case(name, function, (case.args[1], case.args[0])))


def every(cases: list[Case], args: list[Any]) -> list[Any]:
    return [c.function(tnp, *a) for c, a in zip(cases, args, strict=True)]


def test_compiled() -> None:
    """All in one program."""
    args = [[np.asarray(a) for a in c.args] for c in SIZED]
    found = td.jit(lambda args: every(SIZED, args))(args)
    same(found, every(SIZED, [[tnp.array(a) for a in part] for part in args]))


def test_sized_results_begin_with_the_known_ones() -> None:
    known = {
        "unique": np.unique(I),
        "union1d": np.union1d(I, J),
        "intersect1d": np.intersect1d(I, J),
        "setdiff1d": np.setdiff1d(I, J),
        "setxor1d": np.setxor1d(I, J),
        "extract": X[B],
        "nonzero": np.nonzero(I)[0].astype(np.int32),
        "flatnonzero": np.flatnonzero(X > 0).astype(np.int32),
        "unique rows": np.unique(I % 2, axis=0),
    }
    for case in SIZED:
        if case.name in known:
            found = case.function(tnp, *map(tnp.array, case.args))
            found = found[0] if isinstance(found, tuple) else found
            n = min(len(known[case.name]), len(found))
            assert n
            same(found[:n], known[case.name][:n])


def test_counts_by_numpy() -> None:
    flat = X.ravel()
    found = tnp.histogram(tnp.array(X), 6, weights=X**2)
    for f, e in zip(found, np.histogram(flat, 6, weights=flat**2), strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-5)
    points, weights = X[:, :2], X[:, 4] ** 2
    for options in ({}, {"density": True}, {"weights": weights}):
        counts, edges = tnp.histogramdd(points, (2, 3), **options)
        expected = np.histogramdd(points, (2, 3), **options)
        np.testing.assert_allclose(counts, expected[0], rtol=1e-5)
        for f, e in zip(edges, expected[1], strict=True):
            np.testing.assert_allclose(f, e, rtol=1e-5)
    edges = np.float32([1, 0, -1])
    for right in (False, True):
        for bins in (edges, edges[::-1]):
            found = tnp.digitize(X.round(), bins, right)
            np.testing.assert_array_equal(found, np.digitize(X.round(), bins, right))
    keys = np.sort(np.concatenate([GAPS, flat]))
    for side in SIDES:
        found = tnp.searchsorted(keys, keys, side)
        np.testing.assert_array_equal(found, np.searchsorted(keys, keys, side))
    np.testing.assert_array_equal(tnp.isin(I, LONG), np.isin(I, LONG))


KNOWN = [
    lambda np, x, y: np.nonzero(x),
    lambda np, x, y: np.flatnonzero(x),
    lambda np, x, y: np.argwhere(x),
    lambda np, x, y: np.where(x),
    lambda np, x, y: np.extract(x > 0, x),
    lambda np, x, y: np.unique(x, True, True, True),
    lambda np, x, y: np.unique(x.reshape(-1, 1), True, True, True, axis=0),
    lambda np, x, y: tuple(np.unique_all(x)),
    lambda np, x, y: tuple(np.unique_inverse(x)),
    lambda np, x, y: np.union1d(x, y),
    lambda np, x, y: np.intersect1d(x, y),
    lambda np, x, y: np.intersect1d(x, y, return_indices=True),
    lambda np, x, y: np.setdiff1d(x, y),
    lambda np, x, y: np.setdiff1d(x, y, assume_unique=True),
    lambda np, x, y: np.setdiff1d(x, y * 1.5),
    lambda np, x, y: np.setxor1d(x, y),
    lambda np, x, y: np.trim_zeros(x),
    lambda np, x, y: np.trim_zeros(x, "f"),
    lambda np, x, y: np.trim_zeros(x, "b"),
    lambda np, x, y: np.delete(x, y > 3) if y.shape == x.shape else x,
]
PAIRS = [
    (I.ravel(), J),
    (np.float32([0, 0, 2, 1, 0, 2, 0]), np.float32([2, 7, 2])),
    (GAPS, np.float32([1, 0, 5])),
    (EMPTY, np.float32([1, 1])),
    (J, J[:0]),
    (np.int32([0, 0]), np.int32([0])),
    (Z, Z[:2]),
    (np.array([True, False, True]), np.array([False])),
]


@pytest.mark.parametrize("pair", PAIRS, ids=range(len(PAIRS)))
@pytest.mark.parametrize("function", KNOWN, ids=range(len(KNOWN)))
def test_sizes_that_depend_on_values(function: Any, pair: Any) -> None:
    x, y = pair
    if x.dtype.kind == "c" and "extract" in function.__code__.co_names:
        pytest.skip("not ordered")
    expected = function(np, x, y)
    found = function(tnp, tnp.array(x), tnp.array(y))
    if not isinstance(expected, list | tuple):
        expected, found = [expected], [found]
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == (np.int32 if e.dtype == np.int64 else e.dtype)
        np.testing.assert_array_equal(f, e)


NEED_SIZES = [
    ("nonzero", lambda x: tnp.nonzero(x), "size"),
    ("argwhere", lambda x: tnp.argwhere(x), "size"),
    ("unique", lambda x: tnp.unique(x), "size"),
    ("union1d", lambda x: tnp.union1d(x, x), "size"),
    ("intersect1d", lambda x: tnp.intersect1d(x, x), "size"),
    ("setdiff1d", lambda x: tnp.setdiff1d(x, x), "size"),
    ("setxor1d", lambda x: tnp.setxor1d(x, x), "size"),
    ("compress", lambda x: tnp.extract(x > 0, x), "size"),
    ("bincount", lambda x: tnp.bincount(x), "length"),
]


@pytest.mark.parametrize(("name", "function", "option"), NEED_SIZES)
def test_a_traced_program_names_the_size(name: str, function: Any, option: str) -> None:
    message = rf"{name}: the shape(.|\n)*at {__file__}(.|\n)*tnp\.{name}\(.*{option}=n"
    with pytest.raises(td.errors.TracerError, match=message):
        td.jit(function)(J)


def test_values_that_are_only_differentiated_are_known() -> None:
    x = tnp.array([3.0, 1.0, 3.0])
    grad = td.grad(lambda x: (tnp.unique(x) * tnp.array([5.0, 7.0])).sum())(x)
    assert grad.tolist() == [7.0, 5.0, 0.0]
    assert td.grad(lambda x: x[tnp.nonzero(x > 2)].sum())(x).tolist() == [1, 0, 1]


def test_counts_of_known_numbers() -> None:
    x = tnp.array([0, 5, 2])
    same(tnp.bincount(x), np.bincount(np.asarray(x)).astype(np.int32))
    same(tnp.bincount(x, minlength=9), np.int32([1, 0, 1, 0, 0, 1, 0, 0, 0]))
    with pytest.raises(ValueError, match="-1 is negative"):
        tnp.bincount(tnp.array([-1]))
    edges = tnp.histogram_bin_edges(tnp.array(X), "fd")
    np.testing.assert_allclose(edges, np.histogram_bin_edges(X, "fd"), rtol=1e-6)


def test_nothing() -> None:
    """No elements, no places, and none wanted."""
    sized = [
        lambda x, n: tnp.unique(x, True, True, True, size=n),
        lambda x, n: tnp.nonzero(x, size=n, fill_value=5),
        lambda x, n: tnp.intersect1d(x, x, return_indices=True, size=n),
        lambda x, n: tnp.setxor1d(x, x, size=n),
        lambda x, n: tnp.setdiff1d(x, x, size=n, fill_value=3),
        lambda x, n: tnp.compress(x > 0, x, size=n),
        lambda x, n: tnp.bincount(x.astype(int), length=n),
    ]
    for x in (EMPTY, np.zeros(3, np.float32), np.float32([1, 2])):
        for n in (0, 2):
            each = lambda x, n=n: [f(x, n) for f in sized]  # noqa: E731
            found = each(tnp.array(x))
            same(td.jit(each)(x), found)
            assert found[0][0].shape == found[-1].shape == (n,)
    assert found[4].tolist() == [3, 3] and found[1][0].tolist() == [0, 1]
    assert each(tnp.array(EMPTY))[1][0].tolist() == [5, 5]


DTYPES = "bool uint64 bfloat16 float64 complex64"


@pytest.mark.parametrize("dtype", DTYPES.split())
def test_dtypes(dtype: str) -> None:
    def each(x: Any) -> Any:
        return [
            tnp.unique(x, True, True, True, size=4),
            tnp.isin(x, x[:2]),
            tnp.intersect1d(x, x[:2], size=3),
            tnp.nonzero(x, size=3),
            tnp.extract(x == x[0], x, size=3),
        ]

    x = tnp.array([3, 1, 3, 0]).astype(dtype)
    found = each(x)
    assert found[0][0].dtype == found[2].dtype == found[4].dtype == x.dtype
    same(td.jit(each)(x), found)
    expected = np.unique(np.asarray(x).astype(complex))
    assert found[0][0].astype(complex).tolist()[: len(expected)] == expected.tolist()


def test_wrong_arguments() -> None:
    x = tnp.array(X)
    with pytest.raises(ValueError, match="a scalar has no axis"):
        tnp.nonzero(tnp.array(1.0))
    with pytest.raises(ValueError, match="3 fill values for 2 axes"):
        tnp.nonzero(x, size=2, fill_value=(1, 2, 3))
    with pytest.raises(ValueError, match=r"a condition of shape \(9,\) for axis 0"):
        tnp.compress(tnp.ones(9), x, 0)
    with pytest.raises(TypeError, match="one argument only"):
        tnp.where(x > 0, x, x, size=3)
    with pytest.raises(ValueError, match="2 bins and 5 ranges for 5 axes"):
        tnp.histogramdd(x, (2, 2))


@pytest.mark.parametrize("n", [0, 1, 20, 256, 257])
@pytest.mark.parametrize("shape", [(), (5,), (40, 3)])
def test_few_and_many_values_that_may_occur(shape: tuple[int, ...], n: int) -> None:
    rng = np.random.default_rng(n)
    x, values = rng.integers(0, 300, shape), rng.integers(0, 300, n)
    for invert in (False, True):
        found = td.jit(lambda x, v, i=invert: tnp.isin(x, v, invert=i))(x, values)
        np.testing.assert_array_equal(found, np.isin(x, values, invert=invert))
