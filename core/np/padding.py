"""Padding: elements put around an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.np import reductions
from treadle.np.elementwise import floor, round
from treadle.np.operands import (
    ArrayLike,
    as_array,
    cast,
    operand,
    several,
    static_integer,
)
from treadle.np.quantiles import median
from treadle.np.statistics import mean
from treadle.ops import shape as ops
from treadle.ops.arithmetic import add, mul, sub
from treadle.ops.movement import broadcast_in_dim, reverse
from treadle.ops.shape import iota
from treadle.run.array import Array
from treadle.trace.value import Value, typeof


def pad(
    x: ArrayLike,
    pad_width: Any,
    mode: str = "constant",
    constant_values: Any = 0,
    *,
    end_values: Any = 0,
    stat_length: Any = None,
    reflect_type: str = "even",
) -> Array:
    """Adds elements around an array.

    Args:
      pad_width: ``(before, after)`` for each axis, or one pair or number for all.
      mode: "constant", "edge" (repeats the last element), "reflect" (mirrors without
        it), "symmetric" (mirrors with it), "wrap", "linear_ramp" (to `end_values`),
        "maximum", "minimum", "mean" or "median" (of the elements along the axis), or
        "empty" (zeros).
      constant_values, end_values: the added values for modes "constant" and
        "linear_ramp": a number, or ``(before, after)`` as for `pad_width`.
      stat_length: of how many elements at either end the extreme, mean or median is; of
        all, by default.
      reflect_type: whether mirrored elements are those of x ("even"), or their mirror
        images at the end ("odd"): twice the last element less them.
    """
    x = operand("pad", x)
    t = typeof(x)
    widths = _widths(pad_width, t.ndim)
    if mode == "empty":
        mode, constant_values = "constant", 0
    if mode == "constant" and not np.ndim(constant_values):
        value = cast(operand("pad", constant_values), t.dtype)
        return ops.pad(x, value, padding=tuple([(a, b, 0) for a, b in widths]))
    if reflect_type not in ("even", "odd"):
        raise ValueError(
            f"pad: reflect_type is 'even' or 'odd', got {reflect_type!r}"
            f"{at(user_source())}"
        )
    values = constant_values if mode == "constant" else end_values
    pairs = _pairs("pad", values, t.ndim)
    lengths = [(None, None)] * t.ndim
    if stat_length is not None:
        lengths = _pairs("pad", stat_length, t.ndim)
    for axis, width in enumerate(widths):
        if not any([is_dim(n) or n for n in width]):
            continue
        if mode in ("constant", "linear_ramp"):
            x = _ended(x, axis, width, pairs[axis], mode)
        elif mode in _STATISTICS:
            x = _averaged(x, axis, width, lengths[axis], mode)
        elif mode not in _SIDES:
            raise ValueError(_NO_MODE.format(mode, at(user_source())))
        elif reflect_type == "odd" and mode in ("reflect", "symmetric"):
            x = _reflected_oddly(x, axis, width, mode)
        else:
            x = _padded(x, axis, *width, mode)
    return as_array(x)


_STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": reductions.max,
    "minimum": reductions.min,
    "mean": mean,
    "median": median,
}
_SIDES = ("edge", "reflect", "symmetric", "wrap")
_MODES = ("constant", *_SIDES, "linear_ramp", *_STATISTICS, "empty")
_NO_MODE = f"pad: mode {{0!r}} is none of {', '.join(map(repr, _MODES))}{{1}}"


def _pairs(name: str, values: Any, ndim: int) -> list[Any]:
    """A pair for each axis, of a number, a pair, or pairs."""
    if isinstance(values, Value):
        values = np.asarray(values)
    try:
        return np.broadcast_to(np.asarray(values), (ndim, 2)).tolist()
    except ValueError:
        raise ValueError(
            f"{name}: {values!r:.60} is no pair for each of {ndim} axes"
            f"{at(user_source())}"
        ) from None


def _joined(x: Any, axis: int, left: Any, right: Any) -> Any:
    parts = [p for p in (left, x, right) if p is not None]
    return ops.concatenate(*parts, axis=axis) if len(parts) > 1 else x


def _ended(x: Any, axis: int, width: Any, values: Any, mode: str) -> Any:
    """With numbers on either side, or ramps that lead to them."""
    dtype, n = typeof(x).dtype, typeof(x).shape[axis]
    sides: list[Any] = [None, None]
    for k, count in enumerate(width):
        if not is_dim(count) and not count:
            continue
        end = as_array(cast(values[k], dtype))
        start = 0 if k == 0 else n - 1
        edge = _spread(ops.slice_axis(x, axis, start, start + 1), axis, count)
        flat = broadcast_in_dim(end, shape=typeof(edge).shape, dims=())
        sides[k] = flat if mode == "constant" else _ramp(edge, flat, axis, count, k)
    return _joined(x, axis, *sides)


def _ramp(edge: Any, end: Any, axis: int, count: int, side: int) -> Any:
    dtype = typeof(edge).dtype
    wide = np.dtype(np.float32) if dtype.kind in "iub" else dtype
    whole = dtype.kind in "iu"
    place = iota(shape=typeof(edge).shape, axis=axis, dtype=wide)
    share = place / count if side == 0 else (place + 1) / count
    near, far = cast(edge, wide), cast(end, wide)
    first, last = (far, near) if side == 0 else (near, far)
    out = add(first, mul(sub(last, first), share))
    return cast(floor(out) if whole else out, dtype)


def _averaged(x: Any, axis: int, width: Any, lengths: Any, mode: str) -> Any:
    """With a statistic of the elements next to either side."""
    dtype, n = typeof(x).dtype, typeof(x).shape[axis]
    sides: list[Any] = [None, None]
    for k, count in enumerate(width):
        if not is_dim(count) and not count:
            continue
        few = n if lengths[k] is None else min(lengths[k], n)
        part = ops.slice_axis(x, axis, *((0, few) if k == 0 else (n - few, n)))
        value = _STATISTICS[mode](part, axis, keepdims=True)
        if typeof(value).dtype != dtype:
            value = cast(round(value) if dtype.kind != "b" else value, dtype)
        sides[k] = _spread(value, axis, count)
    return _joined(x, axis, *sides)


def _reflected_oddly(
    x: Any, axis: int, width: Any, mode: str, period: int | None = None
) -> Any:
    """Mirrored at a point: what is beyond is as far from the last element as its mirror
    image, on the other side. period: the length of what was mirrored first."""
    before, after = width
    n = typeof(x).shape[axis]
    longest = n - 1 if mode == "reflect" else n
    if is_dim(n) or not n:
        raise ValueError(
            f"pad: reflect_type='odd' needs elements along the axis, whose number is "
            f"known, got {typeof(x)}{at(user_source())}"
        )
    if not longest:
        return _padded(x, axis, before, after, "edge")
    period = longest if period is None else period
    longest = longest // period * period
    if max(before, after) > longest:
        # What was mirrored is mirrored again, where a whole number of periods ends.
        first, last = min(before, longest), min(after, longest)
        x = _reflected_oddly(x, axis, (first, last), mode, period)
        return _reflected_oddly(x, axis, (before - first, after - last), mode, period)
    even = _padded(x, axis, before, after, mode)
    left = ops.slice_axis(even, axis, 0, before)
    right = ops.slice_axis(even, axis, before + n, before + n + after)
    first = ops.slice_axis(x, axis, 0, 1)
    last = ops.slice_axis(x, axis, n - 1, n)
    left = sub(_spread(add(first, first), axis, before), left)
    right = sub(_spread(add(last, last), axis, after), right)
    return ops.concatenate(left, x, right, axis=axis)


def _widths(width: Any, ndim: int) -> list[tuple[int, int]]:
    # Broadcast by their places: no array of NumPy's holds sizes that are not fixed.
    numbers: list[Any] = []

    def places(x: Any) -> Any:
        if several(x):
            return [places(y) for y in x]
        numbers.append(x)
        return len(numbers) - 1

    try:
        given = np.broadcast_to(places(width), (ndim, 2))
    except ValueError:
        raise ValueError(
            f"pad: pad_width {width} for {ndim} axes: give (before, after) for each "
            f"axis{at(user_source())}"
        ) from None
    numbers = [static_integer("pad", "a width", n) for n in numbers]
    widths = [(numbers[a], numbers[b]) for a, b in given]
    if any(a < 0 or b < 0 for a, b in widths):
        raise ValueError(f"pad: negative pad_width {width}{at(user_source())}")
    return widths


def _padded(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    n = typeof(x).shape[axis]
    if not n:
        raise ValueError(f"pad: axis {axis} is empty: nothing to {mode}")
    if mode == "edge":
        left = [_spread(ops.slice_axis(x, axis, 0, 1), axis, before)]
        right = [_spread(ops.slice_axis(x, axis, n - 1, n), axis, after)]
        return ops.concatenate(*left, x, *right, axis=axis)
    own = 1 if mode == "reflect" else 0
    if before <= n - own and after <= n - own:
        return _joined(x, axis, *_beside(x, axis, before, after, mode))
    # What lies beyond either end repeats with a period; take whole periods, then cut.
    mirrored = reverse(x, axes=(axis,))
    if mode == "reflect":
        if n == 1:
            return _padded(x, axis, before, after, "edge")
        inner = ops.slice_axis(mirrored, axis, 1, n - 1)
        period = ops.concatenate(x, inner, axis=axis) if n > 2 else x
    elif mode == "symmetric":
        period = ops.concatenate(x, mirrored, axis=axis)
    else:
        period = x
    length = typeof(period).shape[axis]
    ahead = _periods(before, length)
    copies = ahead + _periods(n + after, length)
    whole = ops.concatenate(*[period] * copies, axis=axis) if copies > 1 else period
    start = ahead * length - before
    return ops.slice_axis(whole, axis, start, start + before + n + after)


def _beside(x: Any, axis: int, before: int, after: int, mode: str) -> list[Any]:
    """What lies beyond either end, no further than x reaches from there."""
    n = typeof(x).shape[axis]
    if mode == "wrap":
        spans = (n - before, n), (0, after)
    else:
        own = 1 if mode == "reflect" else 0
        spans = (own, own + before), (n - own - after, n - own)
    sides = [ops.slice_axis(x, axis, *span) for span in spans]
    if mode == "wrap":
        return sides
    return [reverse(side, axes=(axis,)) for side in sides]


def _periods(count: int, length: int) -> int:
    """How many periods of a length hold so many elements."""
    periods = 0
    while periods * length < count:
        periods += 1
    return periods


def _spread(x: Any, axis: int, times: int) -> Any:
    t = typeof(x)
    shape = (*t.shape[:axis], times, *t.shape[axis + 1 :])
    return broadcast_in_dim(x, shape=shape, dims=tuple(range(t.ndim)))
