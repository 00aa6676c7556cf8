"""Means, spreads, and what else is averaged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import equal_shapes, is_dim
from treadle.errors import at, user_source
from treadle.np import reductions
from treadle.np.binary import maximum, multiply, select_where
from treadle.np.complex_parts import conj, real
from treadle.np.contract import matmul
from treadle.np.elementwise import isnan, logical_not, square
from treadle.np.matrices import diagonal
from treadle.np.operands import (
    ArrayLike,
    Axis,
    all_axes,
    as_inexact,
    broadcast,
    broadcast_to_shape,
    cast,
    operand,
    promoted,
)
from treadle.np.shapes import atleast_2d, squeeze, transpose
from treadle.ops.arithmetic import div, sub
from treadle.ops.movement import full, reshape, restore_axes
from treadle.ops.unary import abs_, sqrt
from treadle.run.array import Array
from treadle.trace.value import typeof


def _working(name: str, x: Any, dtype: Any) -> tuple[Any, np.dtype]:
    """The operand as it is averaged (halves as float32), and the result's dtype."""
    x = as_inexact(name, x)
    result = typeof(x).dtype if dtype is None else dtypes.canonical(dtype)
    if not dtypes.is_differentiable(result):
        raise TypeError(
            f"{name}: dtype {result.name} can't hold an average{at(user_source())}"
        )
    wide = dtypes.float32 if result.itemsize == 2 else result
    return cast(x, wide) if typeof(x).dtype != wide else x, result


def _number(n: float) -> Any:
    return n if is_dim(n) else float(n)


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return math.prod([shape[a] for a in axes])


def mean(
    x: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """The mean over axes (all of them, by default). `where` selects elements."""
    x, result = _working("mean", x, dtype)
    t = typeof(x)
    total = reductions.sum(x, axis, None, keepdims, where)
    if where is None:
        axes = all_axes("mean", axis, t.ndim)
        out = div(total, _number(_count(t.shape, axes)))
    else:
        chosen = select_where(where, full(t.shape, 1, t.dtype), t.dtype.type(0))
        out = div(total, reductions.sum(chosen, axis, None, keepdims))
    return out if t.dtype == result else cast(out, result)


def var(
    x: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> Array:
    """The variance over axes: the mean squared distance from the mean.

    Args:
      ddof: what is taken off the number of elements in the divisor (1 for the
        unbiased estimate).
    """
    x, result = _working("var", x, dtype)
    out = _variance("var", x, axis, ddof, keepdims)
    return out if typeof(out).dtype == result else cast(out, dtypes.to_real(result))


def std(
    x: ArrayLike,
    axis: Axis = None,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> Array:
    """The standard deviation: the square root of the variance."""
    x, result = _working("std", x, dtype)
    out = sqrt(_variance("std", x, axis, ddof, keepdims))
    return out if typeof(out).dtype == result else cast(out, dtypes.to_real(result))


def _variance(name: str, x: Any, axis: Axis, ddof: float, keepdims: bool) -> Any:
    t = typeof(x)
    axes = all_axes(name, axis, t.ndim)
    n = _count(t.shape, axes)
    # Two passes: subtracting the squared mean from the mean square loses digits.
    centre = div(reductions.sum(x, axes), _number(n))
    centred = sub(x, restore_axes(centre, t.shape, axes) if axes else centre)
    distances = square(abs_(centred)) if dtypes.is_complex(t.dtype) else square(centred)
    total = reductions.sum(distances, axes, None, keepdims)
    return div(total, _number(max(n - ddof, 0)))


def average(
    x: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    keepdims: bool = False,
) -> Array:
    """The mean with weights: ``sum(x * weights) / sum(weights)``.

    `weights` has the shape of x, or is a vector along the one axis.
    """
    if weights is None:
        return mean(x, axis, None, keepdims)
    x, weights = promoted("average", as_inexact("average", x), weights)
    t, w = typeof(x), typeof(weights)
    if w.ndim != t.ndim or w.ndim == 1 or not equal_shapes(w.shape, t.shape):
        axes = all_axes("average", axis, t.ndim)
        if len(axes) != 1 or not equal_shapes(w.shape, (t.shape[axes[0]],)):
            raise ValueError(
                f"average: weights of shape {w.shape} for an array of shape {t.shape} "
                f"over axis {axis}{at(user_source())}\n"
                "Weights have the shape of the array, or are a vector along one axis."
            )
        aligned = [1] * t.ndim
        aligned[axes[0]] = w.shape[0]
        weights = reshape(weights, shape=tuple(aligned))
        weights = broadcast_to_shape(weights, t.shape)
    total = reductions.sum(multiply(x, weights), axis, None, keepdims)
    return div(total, reductions.sum(weights, axis, None, keepdims))


# Ignoring what is not a number --------------------------------------------------------


def _present(name: str, x: Any, neutral: float) -> tuple[Any, Any]:
    x = as_inexact(name, x)
    missing = isnan(x)
    return select_where(missing, typeof(x).dtype.type(neutral), x), missing


def nansum(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The sum of the elements that are numbers."""
    if not dtypes.is_differentiable(typeof(operand("nansum", x)).dtype):
        return reductions.sum(x, axis, None, keepdims)
    return reductions.sum(_present("nansum", x, 0)[0], axis, None, keepdims)


def nanmean(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The mean of the elements that are numbers."""
    present, missing = _present("nanmean", x, 0)
    total = reductions.sum(present, axis, None, keepdims)
    there = cast(logical_not(missing), typeof(present).dtype)
    return div(total, reductions.sum(there, axis, None, keepdims))


def nanmax(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The largest of the elements that are numbers."""
    return _nan_extreme("nanmax", x, axis, keepdims, -math.inf)


def nanmin(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The smallest of the elements that are numbers."""
    return _nan_extreme("nanmin", x, axis, keepdims, math.inf)


def nanprod(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The product of the elements that are numbers."""
    if not dtypes.is_differentiable(typeof(operand("nanprod", x)).dtype):
        return reductions.prod(x, axis, None, keepdims)
    return reductions.prod(_present("nanprod", x, 1)[0], axis, None, keepdims)


def nanvar(
    x: ArrayLike, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False
) -> Array:
    """The variance of the elements that are numbers."""
    x = as_inexact("nanvar", x)
    distances = square(abs_(sub(*broadcast("nanvar", (x, nanmean(x, axis, True))))))
    there = cast(logical_not(isnan(x)), typeof(distances).dtype)
    count = sub(reductions.sum(there, axis, None, keepdims), float(ddof))
    # Of too few elements not a number, as of none.
    return div(nansum(distances, axis, keepdims), maximum(count, 0.0))


def nanstd(
    x: ArrayLike, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False
) -> Array:
    """The standard deviation of the elements that are numbers."""
    return sqrt(nanvar(x, axis, ddof=ddof, keepdims=keepdims))


def nanargmax(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the largest of the elements that are numbers is; 0 where none is."""
    return reductions.argmax(_present("nanargmax", x, -math.inf)[0], axis, keepdims)


def nanargmin(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the smallest of the elements that are numbers is; 0 where none is."""
    return reductions.argmin(_present("nanargmin", x, math.inf)[0], axis, keepdims)


def _nan_extreme(name: str, x: Any, axis: Axis, keepdims: bool, neutral: float) -> Any:
    extreme = reductions.max if neutral < 0 else reductions.min
    if not dtypes.is_differentiable(typeof(operand(name, x)).dtype):
        return extreme(x, axis, keepdims)
    present, missing = _present(name, x, neutral)
    found = extreme(present, axis, keepdims)
    nothing = reductions.all(missing, axis, keepdims)
    return select_where(nothing, typeof(found).dtype.type(math.nan), found)


# Of samples ---------------------------------------------------------------------------


def cov(x: ArrayLike, *, rowvar: bool = True, ddof: int = 1) -> Array:
    """The covariances of variables, given as rows (or columns, unless `rowvar`)."""
    x = atleast_2d(as_inexact("cov", x))
    if typeof(x).ndim > 2:
        raise ValueError(
            f"cov takes a vector or a matrix, got {typeof(x)}{at(user_source())}"
        )
    x = x if rowvar or typeof(x).shape[0] == 1 else transpose(x)
    centred = sub(*broadcast("cov", (x, mean(x, 1, None, True))))
    return squeeze(div(matmul(centred, conj(transpose(centred))), _left(x, ddof)))


def _left(x: Any, ddof: int) -> Any:
    return _number(max(typeof(x).shape[1] - ddof, 0))


def corrcoef(x: ArrayLike, *, rowvar: bool = True) -> Array:
    """The correlations of variables: covariances divided by both deviations."""
    products = cov(x, rowvar=rowvar)
    if not typeof(products).ndim:
        return div(products, products)
    deviations = sqrt(real(diagonal(products)))
    return products / multiply(deviations[:, None], deviations)
