"""Looking things up: in sorted vectors, in tables, in flat arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from treadle import dtypes
from treadle.dims import equal_shapes, is_dim
from treadle.errors import at, user_source
from treadle.np.binary import clip, mod, select_where
from treadle.np.complex_parts import real
from treadle.np.elementwise import isnan, logical_not
from treadle.np.index import position
from treadle.np.indexing import getitem
from treadle.np.join import concatenate
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_inexact,
    as_shape,
    cast,
    none,
    operand,
    promoted,
)
from treadle.np.reductions import sum as sum_of
from treadle.ops import sort as sorts
from treadle.ops.arithmetic import add
from treadle.ops.compare import bitwise_and, bitwise_or, gt, le, lt, select
from treadle.ops.gather import gather
from treadle.ops.movement import broadcast_in_dim, full
from treadle.run.array import Array
from treadle.trace.value import typeof

_FEW = 64
"""Keys that every value is compared with. In more of them halves are looked for."""


def searchsorted(
    sorted_array: ArrayLike,
    values: ArrayLike,
    side: str = "left",
    sorter: ArrayLike | None = None,
) -> Array:
    """Where values would have to be inserted into a sorted vector to keep its order.

    Args:
      side: before elements that are equal ("left"), or after them ("right").
      sorter: the indices that sort the vector, if it is not sorted.

    Not-a-number comes last. The places are int32; in a vector of 2³¹ elements or more,
    int64.
    """
    if side not in ("left", "right"):
        raise ValueError(
            f"searchsorted: side {side!r} is neither 'left' nor 'right'"
            f"{at(user_source())}"
        )
    keys, v = promoted("searchsorted", sorted_array, values)
    if typeof(keys).ndim != 1:
        raise ValueError(
            f"searchsorted: {typeof(keys)} is no vector{at(user_source())}"
        )
    if sorter is not None:
        keys = getitem(keys, sorter)
    n = typeof(keys).shape[0]
    if is_dim(n) or n <= _FEW:
        return _by_count(keys, v, side)
    return _by_halves(keys, v, side)


def _before(keys: Any, v: Any, side: str) -> Any:
    """Whether the place of values is behind keys of equal shape."""
    found = (lt if side == "left" else le)(keys, v)
    if not dtypes.is_float(typeof(v).dtype):
        return found
    last = isnan(v)
    if side == "left":
        last = bitwise_and(last, logical_not(isnan(keys)))
    return bitwise_or(found, last)


def _by_count(keys: Any, v: Any, side: str) -> Any:
    # Keys come first, so that vectors run along the values.
    shape, (n,) = typeof(v).shape, typeof(keys).shape
    wide = (n, *shape)
    before = _before(
        broadcast_in_dim(keys, shape=wide, dims=(0,)),
        broadcast_in_dim(v, shape=wide, dims=tuple(range(1, len(wide)))),
        side,
    )
    return sum_of(before, 0)


def _by_halves(keys: Any, v: Any, side: str) -> Any:
    """Of the elements that are left, those of the first half are passed if the last one
    of them is before the value."""
    (left,) = typeof(keys).shape
    dtype = dtypes.of_index(left)
    where = {"axes": (0,), "sizes": (None,), "batch_dims": 0, "mode": "clip"}
    place = full(typeof(v).shape, 0, dtype)
    while left:
        half = (left + 1) // 2
        key = gather(keys, add(place, dtype.type(half - 1)), **where)
        further = _before(key, as_array(v), side)
        place = select(further, add(place, dtype.type(half)), place)
        left -= half
    return place


def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False) -> Array:
    """The number of the bin that each element lies in; `bins` are edges, increasing or
    decreasing.

    Args:
      right: whether the upper edge (of decreasing bins: the lower) belongs to a bin.
    """
    x, edges = promoted("digitize", x, bins)
    if typeof(edges).ndim != 1:
        raise ValueError(
            f"digitize: bins are a vector of edges, got {typeof(edges)}"
            f"{at(user_source())}"
        )
    n = typeof(edges).shape[0]
    side = "left" if right else "right"
    if none(n):
        return full(typeof(x).shape, 0, dtypes.int32)
    up = searchsorted(edges, x, side)
    down = n - searchsorted(edges[::-1], x, side)
    return select_where(edges[-1] >= edges[0], up, down)


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | str | None = None,
    right: ArrayLike | str | None = None,
    period: float | None = None,
) -> Array:
    """Linear interpolation in a table of increasing `xp` and their values `fp`.

    Args:
      left, right: the value before and behind the table; by default that of its end.
        "extrapolate": as the first or the last two go on.
      period: of x and `xp`, which need not be in order then.

    Raises:
      TypeError: if x or `xp` are complex; `fp` may be.
      ValueError: if `left` or `right` is another word, or `xp` and `fp` are no vectors
        of one length.
    """
    for name, value in (("x", x), ("xp", xp)):
        if dtypes.is_complex(typeof(as_array(value)).dtype):
            raise TypeError(
                f"interp: {name} must be real, got {typeof(as_array(value))}"
                f"{at(user_source())}"
            )
    at_x, keys, values = (
        as_array(as_inexact("interp", as_array(v)))
        for v in promoted("interp", x, xp, fp)
    )
    if typeof(keys).ndim != 1 or not equal_shapes(
        typeof(keys).shape, typeof(values).shape
    ):
        raise ValueError(
            f"interp: xp and fp are vectors of one length, got {typeof(keys)} and "
            f"{typeof(values)}{at(user_source())}"
        )
    if dtypes.is_complex(typeof(values).dtype):
        at_x, keys = real(at_x), real(keys)
    if period is not None:
        at_x, keys = (mod(v, abs(period)) for v in (at_x, keys))
        order = sorts.argsort(keys, 0)
        keys, values = keys[order], values[order]
        keys = concatenate([keys[-1:] - abs(period), keys, keys[:1] + abs(period)])
        values = concatenate([values[-1:], values, values[:1]])
    last = typeof(keys).shape[0] - 1
    if not last:
        inner = broadcast_in_dim(values[0], shape=typeof(at_x).shape, dims=())
    else:
        i = searchsorted(keys, at_x, "right").clip(1, last)
        start, bottom = keys[i - 1], values[i - 1]
        width = keys[i] - start
        share = (at_x - start) / select_where(width == 0, 1, width)
        inner = bottom + share * (values[i] - bottom)
        if period is not None:
            return inner
    outside = (
        (left, lt(at_x, keys[0]), values[0]),
        (right, gt(at_x, keys[last]), values[last]),
    )
    for given, there, end in outside:
        if isinstance(given, str):
            if given != "extrapolate":
                raise ValueError(
                    f"interp: {given!r} is no value beside the table, nor 'extrapolate'"
                    f"{at(user_source())}"
                )
            continue
        inner = select_where(there, end if given is None else given, inner)
    return inner


# Places in flat arrays ----------------------------------------------------------------


def unravel_index(
    index: ArrayLike, shape: Sequence[int], order: str = "C"
) -> tuple[Array, ...]:
    """The index in each axis of a shape, from the index in the flat array.

    Args:
      order: whether the last index counts fastest ("C"), or the first ("F").

    Indices out of range are those of the nearest element if they are an array of
    Treadle's (traced, or not); others raise IndexError.
    """
    lengths, found = as_shape("unravel_index", shape), []
    _check_counting("unravel_index", order)
    rest = _inside(operand("unravel_index", index), math.prod(lengths))
    for n in lengths if order == "F" else reversed(lengths):
        found.append(rest % n)
        rest = rest // n
    return tuple(found if order == "F" else reversed(found))


def _check_counting(name: str, order: str) -> None:
    if order not in ("C", "F"):
        raise ValueError(
            f"{name}: order is 'C' or 'F', got {order!r}{at(user_source())}"
        )


def ravel_multi_index(
    index: Sequence[ArrayLike],
    dims: Sequence[int],
    mode: str | Sequence[str] = "raise",
    order: str = "C",
) -> Array:
    """The index in the flat array, from the index in each axis of a shape.

    Args:
      mode: what is meant by an index out of range: as in `unravel_index` ("raise"),
        the nearest element ("clip"), or counted on from the other end ("wrap"); for
        all axes, or one for each.
      order: whether the last index counts fastest ("C"), or the first ("F").
    """
    lengths = as_shape("ravel_multi_index", dims)
    _check_counting("ravel_multi_index", order)
    modes = (mode,) * len(lengths) if isinstance(mode, str) else tuple(mode)
    if len(index) != len(lengths):
        raise ValueError(
            f"ravel_multi_index: {len(index)} indices for the shape {lengths}"
            f"{at(user_source())}"
        )
    if len(modes) != len(lengths) or not {*modes} <= {"raise", "clip", "wrap"}:
        raise ValueError(
            f"ravel_multi_index: mode {mode!r} is none of 'raise', 'clip' and 'wrap', "
            f"nor one for each of {len(lengths)} axes{at(user_source())}"
        )
    dtype = dtypes.of_index(math.prod(lengths))
    flat: Any = as_array(dtype.type(0))
    axes = list(zip(index, lengths, modes, strict=True))
    for i, n, meant in axes if order == "C" else reversed(axes):
        i = operand("ravel_multi_index", i)
        if meant == "raise":
            i = _inside(i, n)
        else:
            i = mod(i, n) if meant == "wrap" else clip(i, 0, max(n - 1, 0))
        flat = flat * n + cast(i, dtype)
    return flat


def _inside(index: Any, n: int) -> Any:
    """Places along an axis of length n: counted from 0, and moved inside."""
    places = as_array(position(index, 0, (n,)))
    return clip(places, 0, max(n - 1, 0))
