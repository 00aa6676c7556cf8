"""Medians and other quantiles: what is read off a sorted array."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np.binary import (
    add,
    clip,
    divide,
    maximum,
    minimum,
    multiply,
    select_where,
)
from treadle.np.elementwise import absolute, isfinite, isnan, logical_not
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
    promote_types,
)
from treadle.np.order import argsort, sort
from treadle.np.reductions import sum as sum_of
from treadle.np.running import cumsum
from treadle.np.shapes import moveaxis, ravel, reshape
from treadle.np.statistics import beside, mean
from treadle.ops.arithmetic import mul, sub
from treadle.ops.compare import eq
from treadle.ops.shape import slice_axis
from treadle.ops.unary import floor, round_
from treadle.run.array import Array
from treadle.trace.value import typeof


class _Rule(NamedTuple):
    """How a quantile between two elements is found.

    alpha, beta: the place of a share q of n elements, counted from 0, is
      ``n * q + alpha + q * (1 - alpha - beta) - 1``.
    part: how much of the element above is taken, of which part of the way to it the
      place is and of the place of the element below.
    jumps: the place is on one of the elements if a share that is rounded may be there.
    """

    alpha: float = 1.0
    beta: float = 1.0
    part: Callable[[Any, Any], Any] = lambda part, low: part
    jumps: bool = False


def _all_or_none(above: Any) -> Any:
    return select_where(above, 1.0, 0.0)


METHODS = {
    "linear": _Rule(),
    "lower": _Rule(part=lambda part, low: 0.0 * part, jumps=True),
    "higher": _Rule(part=lambda part, low: _all_or_none(part > 0), jumps=True),
    "midpoint": _Rule(
        part=lambda part, low: select_where(part > 0, 0.5, 0.0), jumps=True
    ),
    "nearest": _Rule(part=lambda part, low: _all_or_none(part > 0.5)),
    "hazen": _Rule(0.5, 0.5),
    "weibull": _Rule(0.0, 0.0),
    "median_unbiased": _Rule(1 / 3, 1 / 3),
    "normal_unbiased": _Rule(3 / 8, 3 / 8),
    "interpolated_inverted_cdf": _Rule(0.0, 1.0),
    "inverted_cdf": _Rule(0.0, 1.0, lambda part, low: _all_or_none(part > 0), True),
    "averaged_inverted_cdf": _Rule(
        0.0, 1.0, lambda part, low: select_where(part > 0, 1.0, 0.5), True
    ),
    "closest_observation": _Rule(
        -0.5, 1.5, lambda part, low: _all_or_none((part > 0) | (low % 2 == 0)), True
    ),
}
"""The nine of Hyndman and Fan (Sample Quantiles in Statistical Packages, 1996), and the
four that choose on the way of "linear"."""


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


def _known(out: Any, share: Any, rank: int) -> Any:
    """What lies at a share that is not a number, isn't one."""
    lead, rest = typeof(share).shape[:rank], typeof(out).ndim - rank
    share = reshape(share, (*lead, *(1,) * rest))
    return select_where(eq(share, share), out, math.nan)


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
    weights: ArrayLike | None = None,
) -> Array:
    """The value below which a share q of the elements lies, over axes (all of them, by
    default).

    q may be an array, whose axes come first in the result, or a list of numbers.

    Args:
      method: what is between two elements: "linear", "lower", "higher", "midpoint",
        "nearest"; or another of NumPy's ("hazen", "weibull", "inverted_cdf"…).
      weights: how much each element counts, in the shape of x or along the one axis.
        The method is "inverted_cdf" then: the first element at which the weights so far
        are a share q of all; not-a-number if they are all 0.

    Raises:
      ValueError: of no elements, for an unknown method, for a known q that is not from
        0 to 1, for weights of another shape or with another method.

    >>> import treadle.numpy as tnp
    >>> x = tnp.array([1.0, 2.0, 4.0])
    >>> tnp.quantile(x, 0.5, method="inverted_cdf", weights=tnp.array([1, 1, 3]))
    Array(4., dtype=float32)
    """
    rule = _rule("quantile", method)
    if weights is not None:
        return _weighted("quantile", x, q, axis, keepdims, method, weights)
    x, number, kept = _lined("quantile", x, axis)
    t = typeof(x)
    n = t.shape[number]
    if not n:
        raise ValueError(f"quantile of no elements{at(user_source())}")
    ordered = sort(x, number)
    share = _share("quantile", q, t.dtype)
    low, high, part = _places(share, n, rule)
    before = (slice(None),) * number
    rank = typeof(share).ndim
    below, above = (
        _first(ordered[(*before, cast(i, dtypes.of_index(n)))], number, rank)
        for i in (low, high)
    )
    part = cast(part, t.dtype)
    part = reshape(part, (*typeof(part).shape, *(1,) * (t.ndim - 1)))
    out = _known(_between(below, above, part), share, rank)
    out = _spoiled(out, ordered, number)
    return reshape(out, (*typeof(share).shape, *kept)) if keepdims else out


def _share(name: str, q: Any, dtype: np.dtype) -> Any:
    """Shares, in which places are computed: float16 has no place beyond 2048."""
    _check_shares(name, _listed(q), 1)
    return as_array(cast(operand(name, _listed(q)), promote_types(dtype, _AT_LEAST)))


def _check_shares(name: str, q: Any, most: int) -> None:
    """
    Raises:
      ValueError: for shares that are known while tracing, and aren't from 0 to all.
    """
    if type(q) not in (int, float, np.ndarray) or np.asarray(q).dtype.kind not in "iuf":
        return
    if (
        wrong := np.extract(~(np.greater_equal(q, 0) & np.less_equal(q, most)), q)
    ).size:
        raise ValueError(
            f"{name}: q is from 0 to {most}, got {wrong[0].item()!r}{at(user_source())}"
        )


_AT_LEAST = dtypes.float32


def _places(share: Any, n: Any, rule: _Rule) -> tuple[Any, Any, Any]:
    """Where a share of n elements ends: the elements below and above that, counted from
    0, and which part of the one above is taken."""
    place = _place(share, n, rule)
    if rule.jumps:
        close = ml_dtypes.finfo(typeof(place).dtype).eps * 2
        whole = round_(place)
        place = select_where(
            absolute(place - whole) <= close * (absolute(place) + 2), whole, place
        )
    low = floor(place)
    part = rule.part(sub(place, low), low)
    found = [
        clip(add(low, cast(more, typeof(low).dtype)), 0, n - 1)
        for more in (part == 1, part > 0)
    ]
    return found[0], found[1], part


def _place(share: Any, n: Any, rule: _Rule) -> Any:
    """Where a share of n elements ends, counted from 0."""
    if rule.alpha == rule.beta == 1:
        return mul(share, n - 1) if not hasattr(n, "dtype") else multiply(share, n - 1)
    slope = multiply(share, n + (1 - rule.alpha - rule.beta))
    return add(slope, rule.alpha - 1)


def _between(below: Any, above: Any, part: Any) -> Any:
    """Part of the way from one element to the next; on an element, that: what is
    infinite has no half."""
    between = add(multiply(below, sub(1.0, part)), multiply(above, part))
    return select_where((part > 0) & (part < 1), between, below)


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
    weights: ArrayLike | None = None,
) -> Array:
    """The value below which q percent of the elements lie; as `quantile`."""
    share = _of_percent("percentile", x, q)
    return quantile(x, share, axis, keepdims, method=method, weights=weights)


def _of_percent(name: str, x: Any, q: Any) -> Any:
    """Shares that have as many digits as the elements."""
    q = operand(name, _listed(q))
    _check_shares(name, q, 100)
    if type(q) in (int, float, np.ndarray):
        return np.asarray(q, np.float64) / 100
    if dtypes.is_integer(typeof(q).dtype):
        q = cast(q, promote_types(typeof(as_inexact(name, x)).dtype, _AT_LEAST))
    return divide(as_inexact(name, q), 100)


def _listed(q: Any) -> Any:
    """Shares in a list or tuple, which are numbers of Python's mostly, as an array."""
    if type(q) in (list, tuple) and all([type(v) in (int, float) for v in q]):
        return np.array(q, np.float64)
    return q


# With weights -------------------------------------------------------------------------


def _weighted(
    name: str,
    x: Any,
    q: Any,
    axis: Axis,
    keepdims: bool,
    method: str,
    weights: Any,
    without: bool = False,
) -> Array:
    """The first element at which the weights so far are a share q of all.

    without: leave out what is not a number.
    """
    if method != "inverted_cdf":
        raise ValueError(
            f"{name}: method {method!r} takes no weights{at(user_source())}\n"
            "With weights it is method='inverted_cdf'."
        )
    weights = as_inexact(name, weights)
    if dtypes.is_complex(typeof(weights).dtype):
        raise TypeError(f"{name}: weights are real numbers{at(user_source())}")
    weights = beside(name, weights, typeof(operand(name, x)), axis)
    x, number, kept = _lined(name, x, axis)
    weights, _, _ = _lined(name, weights, axis)
    dtype = typeof(x).dtype
    shares = _share(name, q, dtype)
    order = argsort(x, number)
    ordered, weights = (
        moveaxis(take_along_axis(v, order, number), number, -1)
        for v in (x, cast(weights, typeof(shares).dtype))
    )
    if not ordered.shape[-1]:
        raise ValueError(f"{name} of no elements{at(user_source())}")
    if without:
        weights = select_where(isnan(ordered), 0.0, weights)
    so_far = cumsum(weights, -1)
    whole = so_far[..., -1:]
    so_far = divide(so_far, whole)
    lead = typeof(shares).shape
    shares = reshape(shares, (*lead, *(1,) * ordered.ndim))
    # What weighs nothing at the start is not even a share of 0.
    place = sum_of((so_far < shares) | (so_far == 0), -1)
    place = minimum(place, ordered.shape[-1] - 1)
    out = _at_places(ordered, place, lead)
    out = select_where(isfinite(so_far[..., -1]), out, math.nan)
    out = _known(out, shares, len(lead))
    if not without:
        out = _spoiled(out, ordered, ordered.ndim - 1)
    return reshape(out, (*lead, *kept)) if keepdims else out


# Ignoring what is not a number --------------------------------------------------------


def nanquantile(
    x: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    method: str = "linear",
    weights: ArrayLike | None = None,
) -> Array:
    """The `quantile` of the elements that are numbers; not-a-number where none is."""
    rule = _rule("nanquantile", method)
    if weights is not None:
        return _weighted("nanquantile", x, q, axis, keepdims, method, weights, True)
    x, number, kept = _lined("nanquantile", x, axis)
    dtype = typeof(x).dtype
    ordered = moveaxis(sort(x, number), number, -1)
    if none(ordered.shape[-1]):
        raise ValueError(f"nanquantile of no elements{at(user_source())}")
    share = _share("nanquantile", q, dtype)
    count = sum_of(cast(logical_not(isnan(ordered)), typeof(share).dtype), -1)
    lead = share.shape
    share = reshape(share, (*lead, *(1,) * count.ndim))
    low, high, part = _places(share, maximum(count, 1), rule)
    below, above = (_at_places(ordered, i, lead) for i in (low, high))
    out = _known(_between(below, above, cast(part, dtype)), share, len(lead))
    return reshape(out, (*lead, *kept)) if keepdims else out


def _at_places(ordered: Any, places: Any, lead: Shape) -> Any:
    """Elements of the last axis, one for each of some leading axes."""
    places = broadcast_to_shape(places, (*lead, *ordered.shape[:-1]))
    index = moveaxis(
        reshape(places, (math.prod(lead), *places.shape[len(lead) :])), 0, -1
    )
    dtype = dtypes.of_index(ordered.shape[-1])
    found = take_along_axis(ordered, cast(index, dtype), -1)
    return reshape(moveaxis(found, -1, 0), places.shape)


def nanpercentile(
    x: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    method: str = "linear",
    weights: ArrayLike | None = None,
) -> Array:
    """The `percentile` of the elements that are numbers; not-a-number where none is."""
    share = _of_percent("nanpercentile", x, q)
    return nanquantile(x, share, axis, keepdims, method=method, weights=weights)


def nanmedian(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The `median` of the elements that are numbers; not-a-number where none is."""
    return nanquantile(x, 0.5, axis, keepdims)
