"""Reductions, means and spreads agree with JAX's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
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
    positive,
)

X = floats(3, 4, 5)
MISSING = np.where(floats(3, 4) > 1, np.nan, floats(3, 4)).astype(np.float32)
AXES: list[Any] = [None, 0, -1, (0, 2), ()]


def over_axes(name: str, x: Any, **options: Any) -> list[Case]:
    return [
        Case(
            f"{name}-{axis}-{keep}-{x.dtype}",
            lambda np, x, a=axis, k=keep: getattr(np, name)(x, axis=a, keepdims=k),
            (x,),
            **options,
        )
        for axis in AXES
        for keep in (False, True)
    ]


CASES = [
    *over_axes("sum", X),
    *over_axes("mean", X),
    *over_axes("max", X),
    *over_axes("min", X),
    *over_axes("var", X, close=8),
    *[
        c
        for c in over_axes("std", X, close=8)
        if "()" not in c.name  # the derivative of a root at zero
    ],
    *over_axes("prod", positive(3, 4, 5), close=8),
    *over_axes("any", bools(3, 4, 5)),
    *over_axes("all", bools(3, 4, 5)),
    *over_axes("sum", ints(3, 4, 5)),
    *over_axes("mean", ints(3, 4, 5)),
    *over_axes("sum", bools(3, 4, 5)),
    *over_axes("count_nonzero", ints(3, 4, 5)),
    Case("argmax", lambda np, x: np.argmax(x), (X,)),
    Case("argmax-axis", lambda np, x: np.argmax(x, 1), (X,)),
    Case("argmin-keep", lambda np, x: np.argmin(x, -1, keepdims=True), (X,)),
    Case("argmax-bool", lambda np, x: np.argmax(x, 0), (bools(5, 4),)),
    Case("max-bool", lambda np, x: np.max(x, 0), (bools(5, 4),)),
    Case("ptp", lambda np, x: np.ptp(x, axis=1), (X,)),
    Case("median", lambda np, x: np.median(x), (X,)),
    Case("median-axis", lambda np, x: np.median(x, axis=2), (X,)),
    Case("median-keep", lambda np, x: np.median(x, 1, keepdims=True), (X,)),
    Case("std-ddof", lambda np, x: np.std(x, 1, ddof=1), (X,), close=8),
    Case("var-ddof", lambda np, x: np.var(x, 1, ddof=1), (X,), close=8),
    Case("sum-where", lambda np, x, m: np.sum(x, 1, where=m), (X, bools(3, 4, 5))),
    Case("mean-where", lambda np, x: np.mean(x, 1, where=x > -1.5), (X,)),
    Case(
        "max-where",
        lambda np, x, m: np.max(x, 1, where=m, initial=-1.0),
        (X, bools(3, 4, 5)),
    ),
    Case(
        "max-bool-where",
        lambda np, x, m: np.max(m, 1, where=x > 0, initial=False),
        (X, bools(3, 4, 5)),
    ),
    Case(
        "min-bool-initial",
        lambda np, x: np.min(x | (x == x), 0, initial=False),
        (bools(5, 4),),
    ),
    Case("max-initial", lambda np, x: np.max(x, 1, initial=0.5), (X,)),
    Case("sum-bool", lambda np, x: np.sum(x, 1, dtype=bool), (ints(4, 5, high=-8),)),
    Case("prod-bool", lambda np, x: np.prod(x, 0, dtype=bool), (ints(4, 5),)),
    Case(
        "sum-bool-initial",
        lambda np, x: np.sum(x * 0, 1, dtype=bool, initial=2),
        (ints(4, 5),),
    ),
    Case("sum-dtype", lambda np, x: np.sum(x, dtype="float32"), (ints(4, 5),)),
    Case("average", lambda np, x: np.average(x, 1), (X,)),
    Case(
        "average-weights",
        lambda np, x, w: np.average(x, 1, weights=w),
        (X, positive(4)),
    ),
    Case(
        "average-full",
        lambda np, x, w: np.average(x, weights=w),
        (X, positive(3, 4, 5)),
    ),
    Case("nansum", lambda np, x: np.nansum(x, 0), (MISSING,), smooth=False),
    Case("nanmean", lambda np, x: np.nanmean(x, 0), (MISSING,), smooth=False),
    Case("nanmax", lambda np, x: np.nanmax(x, 0), (MISSING,), smooth=False),
    Case("nanmin", lambda np, x: np.nanmin(x, 0), (MISSING,), smooth=False),
    Case("nanprod", lambda np, x: np.nanprod(x, 1), (MISSING,), smooth=False),
    Case("nanvar", lambda np, x: np.nanvar(x, 1), (MISSING,), smooth=False),
    Case("nanvar-ddof", lambda np, x: np.nanvar(x, ddof=1), (MISSING,), smooth=False),
    Case("nanstd", lambda np, x: np.nanstd(x, 0), (MISSING,), smooth=False),
    Case("nanargmax", lambda np, x: np.nanargmax(x, 1), (MISSING,), smooth=False),
    Case("nanargmin", lambda np, x: np.nanargmin(x, 1), (MISSING,), smooth=False),
    Case("cov", lambda np, x: np.cov(x), (X[0],)),
    Case("cov-columns", lambda np, x: np.cov(x, rowvar=False, ddof=0), (X[0],)),
    Case("cov-one", lambda np, x: np.cov(x), (X[0, 0],)),
    Case("corrcoef", lambda np, x: np.corrcoef(x), (X[0],), close=16),
    Case("cumsum", lambda np, x: np.cumsum(x), (X,), close=16),
    Case("cumsum-axis", lambda np, x: np.cumsum(x, 1), (X,)),
    Case("cumsum-int", lambda np, x: np.cumsum(x, 1), (ints(3, 4),)),
    Case("cumsum-bool", lambda np, x: np.cumsum(x, 1), (bools(3, 4),)),
    Case("cumprod", lambda np, x: np.cumprod(x, -1), (X,)),
    Case("diff", lambda np, x: np.diff(x, 2), (X,)),
    Case("trace", lambda np, x: np.trace(x), (X,)),
]
SMOOTH = [c for c in CASES if c.smooth and c.args[0].dtype == np.float32]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_batched(case: Case) -> None:
    check_batched(case)


@pytest.mark.parametrize("case", SMOOTH, ids=lambda c: c.name)
def test_gradient(case: Case) -> None:
    check_gradient(case)


def test_imaginary_numbers_are_true() -> None:
    assert tnp.any(tnp.array([0, 1j])).item() and not tnp.all(tnp.array([0, 1j])).item()


def test_small_integers_are_summed_as_int32() -> None:
    x = tnp.full((300,), 100, "int8")
    assert tnp.sum(x).item() == 30000 and tnp.sum(x).dtype == tnp.int32


def test_narrow_floats_are_averaged_in_float32() -> None:
    x = np.full(4096, 1.0 / 3).astype(ml_dtypes.bfloat16)
    assert tnp.mean(tnp.array(x)).item() == np.float32(x[0])
    assert tnp.std(tnp.array(x)).item() == 0
    assert tnp.mean(tnp.array(x)).dtype == tnp.bfloat16


def test_extremes_of_nothing() -> None:
    with pytest.raises(ValueError, match=r"max of no elements.*shape \(0, 3\)"):
        tnp.max(tnp.zeros((0, 3)), 0)
    assert tnp.max(tnp.zeros((0, 3)), 1).shape == (0,)
    assert tnp.max(tnp.zeros((0, 3)), 0, initial=2.0).tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match="initial"):
        tnp.min(tnp.ones(3), where=tnp.array([True, False, True]))


def test_axis_errors_name_function_axis_and_rank() -> None:
    x = tnp.ones((2, 3))
    with pytest.raises(ValueError, match=r"sum: axis 2 is out of range.*2 axes"):
        x.sum(2)
    with pytest.raises(ValueError, match="max: an axis appears twice"):
        tnp.max(x, (0, -2))
    with pytest.raises(TypeError, match=r"sum: axis must be an integer, got 1\.0"):
        x.sum(1.0)


def test_what_cov_does_not_take() -> None:
    with pytest.raises(ValueError, match=r"cov takes a vector or a matrix, got f32\["):
        tnp.cov(X)
    with pytest.raises(ValueError, match=r"weights of shape \(2,\) for 4 samples"):
        tnp.cov(X[0, :, :4], aweights=X[0, 0, :2])


@pytest.mark.parametrize("name", ["nanmean", "nanvar", "nanstd"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_statistics_in_double_precision(name: str, dtype: str) -> None:
    x = MISSING.astype(dtype)
    for f in (getattr(tnp, name), td.jit(getattr(tnp, name))):
        expected = getattr(np, name)(x)
        assert f(x).dtype == expected.dtype
        np.testing.assert_allclose(f(x), expected, rtol=1e-12)
