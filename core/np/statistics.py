"""Means, spreads, and what else is averaged."""

from __future__ import annotations

import math
from typing import Any, Literal, overload

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import equal_shapes, is_dim
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np import reductions
from treadle.np.binary import maximum, multiply, select_where
from treadle.np.complex_parts import conj, real
from treadle.np.contract import matmul
from treadle.np.elementwise import square
from treadle.np.join import concatenate
from treadle.np.matrices import diagonal
from treadle.np.operands import (
    ArrayLike,
    Axis,
    all_axes,
    as_inexact,
    broadcast,
    broadcast_to_shape,
    cast,
    none,
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
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """The mean over axes (all of them, by default). `where` selects elements."""
    reductions.check_keepdims("mean", keepdims)
    x, result = _working("mean", x, dtype)
    t = typeof(x)
    total = reductions.sum(x, axis, None, keepdims, where=where)
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
    dtype: DTypeLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """The variance over axes: the mean squared distance from the mean.

    Args:
      ddof: what is taken off the number of elements in the divisor (1 for the
        unbiased estimate). The array API calls it `correction`.
      where: selects elements.
      mean: the mean, if it is known: with its axes kept.
    """
    x, result = _working("var", x, dtype)
    out = _variance("var", x, axis, one_of(ddof, correction), keepdims, where, mean)
    return out if typeof(out).dtype == result else cast(out, dtypes.to_real(result))


def std(
    x: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """The standard deviation: the square root of the variance, whose options it has."""
    x, result = _working("std", x, dtype)
    spread = _variance("std", x, axis, one_of(ddof, correction), keepdims, where, mean)
    out = sqrt(spread)
    return out if typeof(out).dtype == result else cast(out, dtypes.to_real(result))


def one_of(ddof: float, correction: float | None) -> float:
    if correction is None:
        return ddof
    if ddof:
        raise ValueError(
            f"ddof and correction are one thing: give one of them{at(user_source())}"
        )
    return correction


def _variance(
    name: str, x: Any, axis: Axis, ddof: float, keepdims: bool, where: Any, centre: Any
) -> Any:
    reductions.check_keepdims(name, keepdims)
    if ddof is None:
        raise reductions.misplaced(name, "ddof", "a number", ddof)
    t = typeof(x)
    axes = all_axes(name, axis, t.ndim)
    n: Any = _count(t.shape, axes)
    if where is not None:
        there = select_where(where, full(t.shape, 1, t.dtype), t.dtype.type(0))
        n = reductions.sum(real(there), axes, None, True)
    # Two passes: subtracting the squared mean from the mean square loses digits.
    if centre is not None:
        centred = x - cast(operand(name, centre), t.dtype)
    elif where is not None:
        centred = x - reductions.sum(x, axes, None, True, where=where) / n
    else:
        centre = div(reductions.sum(x, axes), _number(n))
        centred = sub(x, restore_axes(centre, t.shape, axes) if axes else centre)
    distances = square(abs_(centred)) if dtypes.is_complex(t.dtype) else square(centred)
    total = reductions.sum(distances, axes, None, keepdims, where=where)
    if where is None:
        return div(total, _number(max(n - ddof, 0)))
    left = maximum(n - ddof, 0)
    return total / (left if keepdims else squeeze(left, axes))


@overload
def average(
    x: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    returned: Literal[False] = False,
) -> Array: ...
@overload
def average(
    x: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    returned: Literal[True],
) -> tuple[Array, Array]: ...
def average(
    x: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    keepdims: bool = False,
    *,
    returned: bool = False,
) -> Any:
    """The mean with weights: ``sum(x * weights) / sum(weights)``.

    `weights` has the shape of x, or is a vector along the one axis. With `returned`,
    also the sums of the weights.
    """
    if weights is None:
        out = mean(x, axis, None, keepdims)
        if not returned:
            return out
        t = typeof(x)
        count = _count(t.shape, all_axes("average", axis, t.ndim))
        return out, full(out.shape, 1, out.dtype) * count
    x, weights = promoted("average", as_inexact("average", x), weights)
    weights = beside("average", weights, typeof(x), axis)
    total = reductions.sum(multiply(x, weights), axis, None, keepdims)
    whole = reductions.sum(weights, axis, None, keepdims)
    return (div(total, whole), whole) if returned else div(total, whole)


def beside(name: str, weights: Any, t: ArrayType, axis: Axis) -> Any:
    """Weights in the shape of an array of type t: given so, or as a vector along the
    one axis.

    Raises:
      ValueError: if they have another shape.
    """
    w = typeof(weights)
    if w.ndim == t.ndim and w.ndim != 1 and equal_shapes(w.shape, t.shape):
        return weights
    axes = all_axes(name, axis, t.ndim)
    if len(axes) != 1 or not equal_shapes(w.shape, (t.shape[axes[0]],)):
        raise ValueError(
            f"{name}: weights of shape {w.shape} for an array of shape {t.shape} "
            f"over axis {axis}{at(user_source())}\n"
            "Weights have the shape of the array, or are a vector along one axis."
        )
    aligned = [1] * t.ndim
    aligned[axes[0]] = w.shape[0]
    return broadcast_to_shape(reshape(weights, shape=tuple(aligned)), t.shape)


# Of samples ---------------------------------------------------------------------------


def cov(
    x: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """The covariances of variables, given as rows (or columns, unless `rowvar`).

    Args:
      y: more variables, of the same form.
      bias, ddof: the divisor is the number of samples less ddof: less 1 by default, all
        of them with `bias`.
      fweights: how often each sample counts.
      aweights: how much each sample weighs.
      dtype: in which it is computed, rather than that of the variables.
    """
    variables = promoted("cov", x) if y is None else promoted("cov", x, y)
    if dtype is not None:
        variables = [cast(v, dtypes.canonical(dtype)) for v in variables]
    x, *more = [_variables("cov", v, rowvar) for v in variables]
    if none(typeof(x).shape[0]):
        return full((0, 0), 0, typeof(x).dtype)
    if more:
        x = concatenate([x, *more])
    if ddof is None:
        ddof = 0 if bias else 1
    weights = _weights(x, fweights, aweights)
    if weights is None:
        centred = sub(*broadcast("cov", (x, mean(x, 1, None, True))))
        return squeeze(div(matmul(centred, conj(transpose(centred))), _left(x, ddof)))
    total = reductions.sum(weights)
    centred = x - average(x, 1, weights, True)
    left = total - ddof
    if aweights is not None and ddof:
        left = total - ddof * reductions.sum(weights * aweights) / total
    product = matmul(centred * weights, conj(transpose(centred)))
    return squeeze(product / maximum(left, 0))


def _variables(name: str, x: Any, rowvar: bool) -> Any:
    x = operand(name, x)
    is_vector = typeof(x).ndim < 2
    x = atleast_2d(as_inexact(name, x))
    if typeof(x).ndim > 2:
        raise ValueError(
            f"{name} takes a vector or a matrix, got {typeof(x)}{at(user_source())}"
        )
    return x if rowvar or is_vector else transpose(x)


def _weights(x: Any, fweights: Any, aweights: Any) -> Any:
    """What each sample counts, as a row; None if all count alike."""
    dtype, out = dtypes.to_real(typeof(x).dtype), None
    for weights in (fweights, aweights):
        if weights is None:
            continue
        found = cast(operand("cov", weights), dtype)
        if typeof(found).shape != typeof(x).shape[1:]:
            raise ValueError(
                f"cov: weights of shape {typeof(found).shape} for "
                f"{typeof(x).shape[1]} samples{at(user_source())}"
            )
        out = found if out is None else multiply(out, found)
    return out


def _left(x: Any, ddof: int) -> Any:
    return _number(max(typeof(x).shape[1] - ddof, 0))


def corrcoef(
    x: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """The correlations of variables: covariances divided by both deviations. The
    arguments are those of `cov`."""
    products = cov(x, y, rowvar, dtype=dtype)
    if not typeof(products).ndim:
        return div(products, products)
    deviations = sqrt(real(diagonal(products)))
    return products / multiply(deviations[:, None], deviations)
