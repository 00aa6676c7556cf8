"""Repeating, rolling and padding."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from treadle.dims import is_dim, same_shape
from treadle.errors import at, user_source
from treadle.np.indexing import take
from treadle.np.operands import ArrayLike, as_array, cast, one_axis, operand
from treadle.np.shapes import ravel, reshape
from treadle.ops import shape as ops
from treadle.ops.movement import broadcast_in_dim, reverse
from treadle.run.array import Array
from treadle.trace.value import typeof


def tile(x: ArrayLike, reps: int | Sequence[int]) -> Array:
    """Repeats the whole array along each axis."""
    x = operand("tile", x)
    times = tuple(reps) if isinstance(reps, Sequence) else (reps,)
    shape = typeof(x).shape
    rank = max(len(shape), len(times))
    shape = (1,) * (rank - len(shape)) + shape
    times = (1,) * (rank - len(times)) + times
    # Each axis of length n becomes (times, n), then the two are one.
    wide = tuple(v for pair in zip(times, shape, strict=True) for v in pair)
    spread = broadcast_in_dim(
        reshape(x, shape), shape=wide, dims=tuple(range(1, 2 * rank, 2))
    )
    return reshape(spread, tuple(r * n for r, n in zip(times, shape, strict=True)))


def repeat(x: ArrayLike, repeats: int, axis: int | None = None) -> Array:
    """Repeats each element along an axis (None: of the flat array)."""
    x = operand("repeat", x)
    if axis is None or (not typeof(x).ndim and axis in (0, -1)):
        x, axis = ravel(x), 0
    t = typeof(x)
    number = one_axis("repeat", axis, t.ndim)
    try:
        times = repeats if is_dim(repeats) else index(repeats)
    except TypeError:
        return _repeat_each(x, repeats, number)
    wide = (*t.shape[: number + 1], times, *t.shape[number + 1 :])
    dims = tuple(i + (i > number) for i in range(t.ndim))
    spread = broadcast_in_dim(x, shape=wide, dims=dims)
    n = t.shape[number] * times
    return reshape(spread, (*t.shape[:number], n, *t.shape[number + 1 :]))


def _repeat_each(x: Any, repeats: Any, axis: int) -> Any:
    """Different numbers of repetitions, which must be known while tracing."""
    counts = np.asarray(repeats)
    return take(x, np.repeat(np.arange(typeof(x).shape[axis]), counts), axis)


def roll(x: ArrayLike, shift: Any, axis: Any = None) -> Array:
    """Moves elements along axes; what leaves at the end comes in at the start."""
    x = operand("roll", x)
    t = typeof(x)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), t.shape)
    shifts = shift if isinstance(shift, Sequence) else [shift]
    axes = axis if isinstance(axis, Sequence) else [axis]
    if len(shifts) == 1:
        shifts = list(shifts) * len(axes)
    for by, a in zip(shifts, axes, strict=True):
        number = one_axis("roll", a, t.ndim)
        n = t.shape[number]
        x = _rolled(x, number, n, by if is_dim(by) else index(by)) if n else x
    return as_array(x)


def _rolled(x: Any, axis: int, n: int, by: int) -> Any:
    # A remainder of sizes is a number of its own: most shifts need none.
    by = by % n if not -n <= by <= n else by + n if by < 0 else by
    if same_shape((by,), (0,)) or same_shape((by,), (n,)):
        return x
    tail, head = ops.slice_axis(x, axis, n - by, n), ops.slice_axis(x, axis, 0, n - by)
    return ops.concatenate(tail, head, axis=axis)


# Padding ------------------------------------------------------------------------------


def pad(
    x: ArrayLike,
    pad_width: Any,
    mode: str = "constant",
    constant_values: ArrayLike = 0,
) -> Array:
    """Adds elements around an array.

    Args:
      pad_width: ``(before, after)`` for each axis, or one pair or number for all.
      mode: "constant", "edge" (repeats the last element), "reflect" (mirrors without
        it), "symmetric" (mirrors with it) or "wrap".
      constant_values: the added value, for mode "constant".
    """
    x = operand("pad", x)
    t = typeof(x)
    widths = _widths(pad_width, t.ndim)
    if mode == "constant":
        value = cast(operand("pad", constant_values), t.dtype)
        if typeof(value).shape:
            raise ValueError(f"pad: constant_values is one number{at(user_source())}")
        return ops.pad(x, value, padding=tuple([(a, b, 0) for a, b in widths]))
    if mode not in _SIDES:
        raise ValueError(
            f"pad: mode {mode!r} is none of 'constant', "
            f"{', '.join(map(repr, _SIDES))}{at(user_source())}"
        )
    for axis, (before, after) in enumerate(widths):
        if any([is_dim(n) or n for n in (before, after)]):
            x = _padded(x, axis, before, after, mode)
    return as_array(x)


def _widths(width: Any, ndim: int) -> list[tuple[int, int]]:
    # Broadcast by their places: no array of NumPy's holds sizes that are not fixed.
    numbers: list[Any] = []

    def places(x: Any) -> Any:
        if isinstance(x, Sequence | np.ndarray):
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
    numbers = [n if is_dim(n) else index(n) for n in numbers]
    widths = [(numbers[a], numbers[b]) for a, b in given]
    if any(a < 0 or b < 0 for a, b in widths):
        raise ValueError(f"pad: negative pad_width {width}{at(user_source())}")
    return widths


_SIDES = ("edge", "reflect", "symmetric", "wrap")


def _padded(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    n = typeof(x).shape[axis]
    if not n:
        raise ValueError(f"pad: axis {axis} is empty: nothing to {mode}")
    if mode == "edge":
        left = [_spread(ops.slice_axis(x, axis, 0, 1), axis, before)]
        right = [_spread(ops.slice_axis(x, axis, n - 1, n), axis, after)]
        return ops.concatenate(*left, x, *right, axis=axis)
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
