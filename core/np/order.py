"""Sorting, and what is read off a sorted array."""

from __future__ import annotations

from typing import Any

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np.binary import add, multiply, select_where
from treadle.np.operands import (
    ArrayLike,
    Shape,
    as_inexact,
    cast,
    one_axis,
    operand,
)
from treadle.np.reductions import sum as sum_of
from treadle.np.shapes import flip, moveaxis, ravel, reshape
from treadle.np.statistics import mean
from treadle.ops import sort as sorts
from treadle.ops.arithmetic import mul, sub
from treadle.ops.compare import eq
from treadle.ops.shape import slice_axis
from treadle.ops.unary import ceil, floor
from treadle.run.array import Array
from treadle.trace.value import typeof


def along(name: str, x: Any, axis: int | None) -> tuple[Any, int]:
    """The operand and the number of an axis; None flattens."""
    x = operand(name, x)
    if axis is None:
        return ravel(x), 0
    return x, one_axis(name, axis, typeof(x).ndim)


def sort(x: ArrayLike, axis: int | None = -1, descending: bool = False) -> Array:
    """The elements in ascending order along an axis; not-a-number comes last."""
    x, number = along("sort", x, axis)
    out = sorts.sort(x, axis=number, num_keys=1)[0]
    return flip(out, number) if descending else out


def argsort(x: ArrayLike, axis: int | None = -1, descending: bool = False) -> Array:
    """The indices that sort along an axis. Equal elements keep their order.

    int32; along an axis of 2³¹ elements or more, int64.
    """
    x, number = along("argsort", x, axis)
    if not descending:
        return sorts.argsort(x, number)
    # Sorted from the end and turned round, equal elements keep their order.
    n = typeof(x).shape[number]
    return (n - 1) - flip(sorts.argsort(flip(x, number), number), number)


def median(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Array:
    """The middle element, or the mean of the two middle ones."""
    whole = typeof(operand("median", x))
    x, number = along("median", as_inexact("median", x), axis)
    n = typeof(x).shape[number]
    if not n:
        raise ValueError(f"median of no elements{at(user_source())}")
    ordered = sort(x, number)
    middle = slice_axis(ordered, number, (n - 1) // 2, n // 2 + 1)
    out = mean(middle, number)
    out = _spoiled(out, ordered, number)
    return reshape(out, _kept(whole.shape, axis, number)) if keepdims else out


def _spoiled(out: Any, ordered: Any, axis: int) -> Any:
    """A single not-a-number makes the result one: sorted, it is last."""
    n = typeof(ordered).shape[axis]
    last = sum_of(slice_axis(ordered, axis, n - 1, n), axis)
    return select_where(eq(last, last), out, last)


def _kept(shape: Shape, axis: int | None, number: int) -> Shape:
    return tuple([1 if axis is None or i == number else n for i, n in enumerate(shape)])


def quantile(
    x: ArrayLike, q: ArrayLike, axis: int | None = None, keepdims: bool = False
) -> Array:
    """The value below which a share q of the elements lies, interpolated linearly.

    q may be an array, whose axes come first in the result.
    """
    whole = typeof(operand("quantile", x)).shape
    x, number = along("quantile", as_inexact("quantile", x), axis)
    t = typeof(x)
    n = t.shape[number]
    if not n:
        raise ValueError(f"quantile of no elements{at(user_source())}")
    ordered = sort(x, number)
    place = mul(cast(operand("quantile", q), t.dtype), n - 1)
    before = (slice(None),) * number
    low, rank = floor(place), typeof(place).ndim
    share = sub(place, low)
    below, above = (
        _first(ordered[(*before, cast(i, dtypes.of_index(n)))], number, rank)
        for i in (low, ceil(place))
    )
    share = reshape(share, (*typeof(share).shape, *(1,) * (t.ndim - 1)))
    out = add(multiply(below, sub(1.0, share)), multiply(above, share))
    out = _spoiled(out, ordered, number)
    if not keepdims:
        return out
    return reshape(out, (*typeof(place).shape, *_kept(whole, axis, number)))


def _first(x: Any, axis: int, count: int) -> Any:
    """Moves `count` neighbouring axes to the front."""
    return moveaxis(x, tuple(range(axis, axis + count)), tuple(range(count)))


def percentile(
    x: ArrayLike, q: ArrayLike, axis: int | None = None, keepdims: bool = False
) -> Array:
    """The value below which q percent of the elements lie."""
    share = multiply(as_inexact("percentile", q), 0.01)
    return quantile(x, share, axis, keepdims)


def top_k(x: ArrayLike, k: int, axis: int = -1) -> tuple[Array, Array]:
    """The k largest elements along an axis, in descending order, and their indices
    (int32; along an axis of 2³¹ elements or more, int64)."""
    x, number = along("top_k", x, axis)
    n = typeof(x).shape[number]
    if not 0 <= k <= n:
        raise ValueError(
            f"top_k: k is {k}, but the axis has length {n}{at(user_source())}"
        )
    values, places = sorts.top_k(moveaxis(x, number, -1), k=k)
    return moveaxis(values, -1, number), moveaxis(places, -1, number)
