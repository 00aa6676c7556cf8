"""Medians and other quantiles: what is read off a sorted array."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np.binary import add, clip, maximum, multiply, select_where
from treadle.np.elementwise import isnan, logical_not
from treadle.np.indexing import take_along_axis
from treadle.np.operands import (
    ArrayLike,
    Axis,
    Shape,
    all_axes,
    as_array,
    as_inexact,
    broadcast_to_shape,
    cast,
    none,
    operand,
)
from treadle.np.order import sort
from treadle.np.reductions import sum as sum_of
from treadle.np.shapes import moveaxis, ravel, reshape
from treadle.np.statistics import mean
from treadle.ops.arithmetic import mul, sub
from treadle.ops.compare import eq
from treadle.ops.shape import slice_axis
from treadle.ops.unary import ceil, floor
from treadle.run.array import Array
from treadle.trace.value import typeof


class _Rule(NamedTuple):
    """How a quantile between two elements is found.

    alpha, beta: the place of a share q of n elements, counted from 0, is
      ``n * q + alpha + q * (1 - alpha - beta) - 1``.
    between: how it is chosen there.
    """

    alpha: float = 1.0
    beta: float = 1.0
    between: str = "linear"


METHODS = {
    "linear": _Rule(),
    "lower": _Rule(between="lower"),
    "higher": _Rule(between="higher"),
    "midpoint": _Rule(between="midpoint"),
    "nearest": _Rule(between="nearest"),
    "hazen": _Rule(0.5, 0.5),
    "weibull": _Rule(0.0, 0.0),
    "median_unbiased": _Rule(1 / 3, 1 / 3),
    "normal_unbiased": _Rule(3 / 8, 3 / 8),
    "interpolated_inverted_cdf": _Rule(0.0, 1.0),
}


def _rule(name: str, method: str) -> _Rule:
    if method not in METHODS:
        raise ValueError(
            f"{name}: method {method!r} is none of {', '.join(map(repr, METHODS))}"
            f"{at(user_source())}"
        )
    return METHODS[method]


def _lined(name: str, x: Any, axis: Axis) -> tuple[Any, int, Shape]:
    """The operand with all axes that are named as one, the number of that, and the
    shape of the result with its axes kept."""
    x = as_inexact(name, x)
    t = typeof(x)
    axes = all_axes(name, axis, t.ndim)
    kept = tuple([1 if i in axes else n for i, n in enumerate(t.shape)])
    if dtypes.is_complex(t.dtype):
        raise TypeError(f"{name}: complex numbers are not ordered{at(user_source())}")
    if axis is None:
        return ravel(x), 0, kept
    if len(axes) == 1:
        return x, axes[0], kept
    rest = [n for i, n in enumerate(t.shape) if i not in axes]
    last = moveaxis(x, axes, tuple(range(-len(axes), 0)))
    count = math.prod([t.shape[i] for i in axes]) if none(t.size) else -1
    return reshape(last, (*rest, count)), len(rest), kept


def _spoiled(out: Any, ordered: Any, axis: int) -> Any:
    """A single not-a-number makes the result one: sorted, it is last."""
    n = typeof(ordered).shape[axis]
    last = sum_of(slice_axis(ordered, axis, n - 1, n), axis)
    return select_where(eq(last, last), out, last)


def median(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The middle element over axes (all of them, by default), or the mean of the two
    middle ones."""
    x, number, kept = _lined("median", x, axis)
    n = typeof(x).shape[number]
    if not n:
        raise ValueError(f"median of no elements{at(user_source())}")
    ordered = sort(x, number)
    middle = slice_axis(ordered, number, (n - 1) // 2, n // 2 + 1)
    out = mean(middle, number)
    out = _spoiled(out, ordered, number)
    return reshape(out, kept) if keepdims else out


def quantile(
    x: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    method: str = "linear",
) -> Array:
    """The value below which a share q of the elements lies, over axes (all of them, by
    default).

    q may be an array, whose axes come first in the result.

    Args:
      method: what is between two elements: "linear", "lower", "higher", "midpoint",
        "nearest"; or another of NumPy's that is continuous ("hazen", "weibull"…).
    """
    rule = _rule("quantile", method)
    x, number, kept = _lined("quantile", x, axis)
    t = typeof(x)
    n = t.shape[number]
    if not n:
        raise ValueError(f"quantile of no elements{at(user_source())}")
    ordered = sort(x, number)
    share = as_array(cast(operand("quantile", q), t.dtype))
    place = _place(share, n, rule)
    before = (slice(None),) * number
    low, rank = floor(place), typeof(place).ndim
    below, above = (
        _first(ordered[(*before, cast(i, dtypes.of_index(n)))], number, rank)
        for i in (low, ceil(place))
    )
    part = sub(place, low)
    part = reshape(part, (*typeof(part).shape, *(1,) * (t.ndim - 1)))
    out = _between(below, above, part, rule)
    out = _spoiled(out, ordered, number)
    return reshape(out, (*typeof(place).shape, *kept)) if keepdims else out


def _place(share: Any, n: Any, rule: _Rule) -> Any:
    """Where a share of n elements ends, counted from 0."""
    if rule.alpha == rule.beta == 1:
        return mul(share, n - 1) if not hasattr(n, "dtype") else multiply(share, n - 1)
    slope = multiply(share, n + (1 - rule.alpha - rule.beta))
    return clip(add(slope, rule.alpha - 1), 0, n - 1)


def _between(below: Any, above: Any, part: Any, rule: _Rule) -> Any:
    if rule.between == "lower":
        return below
    if rule.between == "higher":
        return above
    if rule.between == "midpoint":
        return multiply(add(below, above), 0.5)
    if rule.between == "nearest":
        return select_where(part <= 0.5, below, above)
    return add(multiply(below, sub(1.0, part)), multiply(above, part))


def _first(x: Any, axis: int, count: int) -> Any:
    """Moves `count` neighbouring axes to the front."""
    return moveaxis(x, tuple(range(axis, axis + count)), tuple(range(count)))


def percentile(
    x: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    method: str = "linear",
) -> Array:
    """The value below which q percent of the elements lie; as `quantile`."""
    share = multiply(as_inexact("percentile", q), 0.01)
    return quantile(x, share, axis, keepdims, method=method)


# Ignoring what is not a number --------------------------------------------------------


def nanquantile(
    x: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    method: str = "linear",
) -> Array:
    """The `quantile` of the elements that are numbers; not-a-number where none is."""
    rule = _rule("nanquantile", method)
    x, number, kept = _lined("nanquantile", x, axis)
    dtype = typeof(x).dtype
    ordered = moveaxis(sort(x, number), number, -1)
    n = ordered.shape[-1]
    if none(n):
        raise ValueError(f"nanquantile of no elements{at(user_source())}")
    count = sum_of(cast(logical_not(isnan(ordered)), dtype), -1)
    share = as_array(cast(operand("nanquantile", q), dtype))
    lead = share.shape
    wide = (*lead, *count.shape)
    share = reshape(share, (*lead, *(1,) * count.ndim))
    place = broadcast_to_shape(_place(share, maximum(count, 1), rule), wide)
    low = floor(place)
    below, above = (_at_places(ordered, i, lead, n) for i in (low, ceil(place)))
    out = _between(below, above, sub(place, low), rule)
    return reshape(out, (*lead, *kept)) if keepdims else out


def _at_places(ordered: Any, places: Any, lead: Shape, n: Any) -> Any:
    """Elements of the last axis, one for each of some leading axes."""
    index = moveaxis(
        reshape(places, (math.prod(lead), *places.shape[len(lead) :])), 0, -1
    )
    found = take_along_axis(ordered, cast(index, dtypes.of_index(n)), -1)
    return reshape(moveaxis(found, -1, 0), places.shape)


def nanpercentile(
    x: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    method: str = "linear",
) -> Array:
    """The `percentile` of the elements that are numbers; not-a-number where none is."""
    share = multiply(as_inexact("nanpercentile", q), 0.01)
    return nanquantile(x, share, axis, keepdims, method=method)


def nanmedian(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The `median` of the elements that are numbers; not-a-number where none is."""
    return nanquantile(x, 0.5, axis, keepdims)
