"""Repeating and rolling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import hint, is_dim, same_shape
from treadle.errors import at, user_source
from treadle.np.binary import mod
from treadle.np.index import counted
from treadle.np.indexing import moved_inside, take
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_shape,
    broadcast_to_shape,
    cast,
    none,
    one_axis,
    operand,
    static_integer,
)
from treadle.np.places import known
from treadle.np.search import searchsorted
from treadle.np.shapes import ravel, reshape
from treadle.ops import cumulative
from treadle.ops import shape as ops
from treadle.ops.dynamic import dynamic_slice_axis
from treadle.ops.movement import broadcast_in_dim
from treadle.run.array import Array
from treadle.trace.value import Tracer, Value, typeof


def tile(x: ArrayLike, reps: int | Sequence[int]) -> Array:
    """Repeats the whole array along each axis."""
    x = operand("tile", x)
    times = as_shape("tile", reps)
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


def repeat(
    x: ArrayLike,
    repeats: Any,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
) -> Array:
    """Repeats each element along an axis (None: of the flat array).

    Args:
      repeats: how often: a number, or one for each element.
      total_repeat_length: the length of the result along the axis, which is cut off, or
        goes on with the last element. Needed where `repeats` is traced.
    """
    x = operand("repeat", x)
    if axis is None or (not typeof(x).ndim and axis in (0, -1)):
        x, axis = ravel(x), 0
    t = typeof(x)
    number = one_axis("repeat", axis, t.ndim)
    if total_repeat_length is not None:
        return _repeat_to(x, repeats, number, total_repeat_length)
    if isinstance(repeats, Value) and repeats.ndim:
        repeats = known("repeat", repeats, "total_repeat_length")
    try:
        times = repeats if is_dim(repeats) else index(repeats)
    except TypeError:
        if not isinstance(repeats, Sequence) and not typeof(repeats).ndim:
            static_integer("repeat", "`repeats`", repeats)
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


def _repeat_to(x: Any, repeats: Any, axis: int, total: int) -> Any:
    """So many places, each with the first element that is not used up there."""
    (total,) = as_shape("repeat", total)
    n = typeof(x).shape[axis]
    counts = np.asarray(repeats) if isinstance(repeats, list | tuple) else repeats
    counts = as_array(operand("repeat", counts))
    counts = broadcast_to_shape(cast(counts, dtypes.of_index(total)), (n,))
    ends = cumulative.cumsum(counts, axis=0, reverse=False)
    places = searchsorted(ends, counted(total), "right")
    return take(x, as_array(places), axis, mode="clip")


_ROW = 16
"""Elements that are better moved by rows: a vector of them."""


def roll(x: ArrayLike, shift: Any, axis: Any = None) -> Array:
    """Moves elements along axes; what leaves at the end comes in at the start.

    Raises:
      TypeError: for a shift that is no whole number. ValueError: for more of them than
        axes, or fewer.
    """
    x = operand("roll", x)
    t = typeof(x)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), t.shape)
    if isinstance(shift, Value | np.ndarray) and shift.ndim:
        shift = list(shift)
    shifts = shift if isinstance(shift, Sequence) else [shift]
    axes = axis if isinstance(axis, Sequence) else [axis]
    for a in axes:
        one_axis("roll", a, t.ndim)
    for by in shifts:
        _check_shift(by)
    if len(shifts) == 1:
        shifts = list(shifts) * len(axes)
    elif len(axes) == 1:
        axes = list(axes) * len(shifts)
    elif len(shifts) != len(axes):
        raise ValueError(
            f"roll: {len(shifts)} shifts for {len(axes)} axes{at(user_source())}"
        )
    for by, a in zip(shifts, axes, strict=True):
        number = one_axis("roll", a, t.ndim)
        n = t.shape[number]
        if isinstance(by, Tracer) and by.concrete() is None:
            x = _rolled_by(x, number, n, by)
        elif n:
            x = _rolled(x, number, n, by if is_dim(by) else index(by))
    return as_array(x)


def _check_shift(by: Any) -> None:
    if is_dim(by):
        return
    t = typeof(operand("roll", by))
    if t.shape or not (dtypes.is_integer(t.dtype) or t.dtype == dtypes.bool_):
        raise TypeError(
            f"roll: a shift is {by!r}, of type {t}, not a whole number"
            f"{at(user_source())}"
        )


def _rolled_by(x: Any, axis: int, n: int, by: Any) -> Any:
    """By a number that is traced: rows are taken from their places; single elements, or
    a few, from the array behind itself."""
    if none(n):
        return x
    if typeof(by).dtype == dtypes.bool_:
        by = cast(by, dtypes.int32)
    if dtypes.is_integer(typeof(by).dtype):
        by = moved_inside(by, n, "wrap")
    if math.prod([hint(m) for m in typeof(x).shape[axis + 1 :]]) >= _ROW:
        return take(x, mod(as_array(counted(n)) - by, n), axis)
    twice = ops.concatenate(x, x, axis=axis)
    return dynamic_slice_axis(twice, n - as_array(by), n, axis)


def _rolled(x: Any, axis: int, n: int, by: int) -> Any:
    # A remainder of sizes is a number of its own: most shifts need none.
    by = by % n if not -n <= by <= n else by + n if by < 0 else by
    if same_shape((by,), (0,)) or same_shape((by,), (n,)):
        return x
    tail, head = ops.slice_axis(x, axis, n - by, n), ops.slice_axis(x, axis, 0, n - by)
    return ops.concatenate(tail, head, axis=axis)
