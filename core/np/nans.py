"""Sums, means and extremes of the elements that are numbers."""

from __future__ import annotations

import math
from typing import Any

from treadle import dtypes
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np import reductions
from treadle.np.binary import maximum, select_where
from treadle.np.elementwise import isnan, logical_not, square
from treadle.np.operands import ArrayLike, Axis, as_inexact, broadcast, cast, operand
from treadle.np.statistics import one_of
from treadle.ops.arithmetic import div, sub
from treadle.ops.unary import abs_, sqrt
from treadle.run.array import Array
from treadle.trace.value import typeof


def _present(name: str, x: Any, neutral: float) -> tuple[Any, Any]:
    x = as_inexact(name, x)
    missing = isnan(x)
    return select_where(missing, typeof(x).dtype.type(neutral), x), missing


def _is_exact(name: str, x: Any) -> bool:
    return not dtypes.is_differentiable(typeof(operand(name, x)).dtype)


def nansum(
    x: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    where: ArrayLike | None = None,
    initial: ArrayLike | None = None,
) -> Array:
    """The sum of the elements that are numbers. The options are those of `sum`."""
    x = x if _is_exact("nansum", x) else _present("nansum", x, 0)[0]
    return reductions.sum(x, axis, dtype, keepdims, initial, where)


def nanprod(
    x: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    where: ArrayLike | None = None,
    initial: ArrayLike | None = None,
) -> Array:
    """The product of the elements that are numbers. The options are those of `prod`."""
    x = x if _is_exact("nanprod", x) else _present("nanprod", x, 1)[0]
    return reductions.prod(x, axis, dtype, keepdims, initial, where)


def nanmean(
    x: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The mean of the elements that are numbers. dtype: in which it is computed;
    `where` selects elements."""
    present, missing = _present("nanmean", _of_dtype("nanmean", x, dtype), 0)
    total = reductions.sum(present, axis, None, keepdims, where=where)
    there = cast(logical_not(missing), typeof(present).dtype)
    return div(total, reductions.sum(there, axis, None, keepdims, where=where))


def _of_dtype(name: str, x: Any, dtype: DTypeLike | None) -> Any:
    if dtype is None:
        return x
    wanted = dtypes.canonical(dtype)
    if not dtypes.is_differentiable(wanted):
        raise TypeError(
            f"{name}: dtype {wanted.name} can't hold an average{at(user_source())}"
        )
    return cast(operand(name, x), wanted)


def nanvar(
    x: ArrayLike,
    axis: Axis = None,
    *,
    dtype: DTypeLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """The variance of the elements that are numbers. `where` selects elements; the
    options are those of `var`."""
    x = as_inexact("nanvar", _of_dtype("nanvar", x, dtype))
    centre = mean
    if centre is None:
        centre = nanmean(x, axis, True, where=where)
    centre = cast(centre, typeof(x).dtype)
    missing = isnan(x)
    # What is missing is replaced before, not behind: the distance of an infinity from
    # the mean is not a number either, and counts.
    present = select_where(missing, typeof(x).dtype.type(0), x)
    distances = square(abs_(sub(*broadcast("nanvar", (present, centre)))))
    distances = select_where(missing, typeof(distances).dtype.type(0), distances)
    there = cast(logical_not(missing), typeof(distances).dtype)
    less = float(one_of(ddof, correction))
    count = sub(reductions.sum(there, axis, None, keepdims, where=where), less)
    # Of too few elements not a number, as of none.
    total = reductions.sum(distances, axis, None, keepdims, where=where)
    return div(total, maximum(count, 0.0))


def nanstd(
    x: ArrayLike,
    axis: Axis = None,
    *,
    dtype: DTypeLike | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """The standard deviation of the elements that are numbers: the square root of
    `nanvar`, whose options it has."""
    variance = nanvar(
        x,
        axis,
        dtype=dtype,
        ddof=ddof,
        keepdims=keepdims,
        where=where,
        mean=mean,
        correction=correction,
    )
    return sqrt(variance)


def nanmax(
    x: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    initial: ArrayLike | None = None,
) -> Array:
    """The largest of the elements that are numbers; not-a-number where there is none.
    The options are those of `max`."""
    return _extreme("nanmax", x, axis, keepdims, where, initial)


def nanmin(
    x: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    initial: ArrayLike | None = None,
) -> Array:
    """The smallest of the elements that are numbers; not-a-number where there is none.
    The options are those of `min`."""
    return _extreme("nanmin", x, axis, keepdims, where, initial)


def _extreme(
    name: str, x: Any, axis: Axis, keepdims: bool, where: Any, initial: Any
) -> Any:
    extreme = reductions.max if name == "nanmax" else reductions.min
    if _is_exact(name, x):
        return extreme(x, axis, keepdims, initial, where)
    neutral = -math.inf if name == "nanmax" else math.inf
    present, missing = _present(name, x, neutral)
    found = extreme(present, axis, keepdims, initial, where)
    if initial is not None:
        return found
    nothing = reductions.all(missing, axis, keepdims)
    return select_where(nothing, typeof(found).dtype.type(math.nan), found)


def nanargmax(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the largest of the elements that are numbers is; -1 where none is."""
    return _place_of_extreme("nanargmax", x, axis, keepdims)


def nanargmin(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the smallest of the elements that are numbers is; -1 where none is."""
    return _place_of_extreme("nanargmin", x, axis, keepdims)


def _place_of_extreme(name: str, x: Any, axis: int | None, keepdims: bool) -> Any:
    largest = name == "nanargmax"
    present, missing = _present(name, x, -math.inf if largest else math.inf)
    find = reductions.argmax if largest else reductions.argmin
    nothing = reductions.all(missing, axis, keepdims)
    place = find(present, axis, keepdims)
    return select_where(nothing, typeof(place).dtype.type(-1), place)
