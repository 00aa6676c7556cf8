"""Running totals, searching, and what depends on values: cumsum, unique, nonzero."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.errors import TracerError, at, user_source
from treadle.np.binary import clip, select_where
from treadle.np.elementwise import named
from treadle.np.index import position
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_inexact,
    as_shape,
    cast,
    operand,
    promoted,
)
from treadle.np.order import along
from treadle.np.reductions import accumulator
from treadle.np.reductions import sum as sum_of
from treadle.np.shapes import moveaxis, ravel
from treadle.ops import cumulative
from treadle.ops.compare import eq, gt, le, lt
from treadle.ops.movement import broadcast_in_dim
from treadle.ops.shape import iota, slice_axis
from treadle.run.array import Array
from treadle.trace.op import Op
from treadle.trace.value import Value, typeof


def _running(op: Op, name: str, doc: str) -> Callable[..., Array]:
    def function(
        x: ArrayLike, axis: int | None = None, dtype: Any = None, reverse: bool = False
    ) -> Array:
        x, number = along(name, x, axis)
        have = typeof(x).dtype
        if dtype is None:
            want = accumulator(have, typeof(x).shape[number])
        else:
            want = dtypes.canonical(dtype)
        if have != want:
            x = cast(x, want)
        return op(x, axis=number, reverse=reverse)

    doc += " along an axis (None: of the flat array).\n\n"
    doc += "    `reverse` runs from the end.\n    "
    return named(function, name, doc)


cumsum = _running(cumulative.cumsum, "cumsum", "The running sum")
cumprod = _running(cumulative.cumprod, "cumprod", "The running product")


def diff(x: ArrayLike, n: int = 1, axis: int = -1) -> Array:
    """The differences of neighbours along an axis, taken n times."""
    x, number = along("diff", x, axis)
    for _ in range(n):
        length = typeof(x).shape[number]
        later = slice_axis(x, number, min(1, length), length)
        x = later - slice_axis(x, number, 0, max(length - 1, 0))
    return as_array(x)


def searchsorted(
    sorted_array: ArrayLike, values: ArrayLike, side: str = "left"
) -> Array:
    """Where values would have to be inserted into a sorted vector to keep its order.

    Args:
      side: before elements that are equal ("left"), or after them ("right").

    The places are int32; in a vector of 2³¹ elements or more, int64.
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side {side!r} is neither 'left' nor 'right'")
    keys, v = promoted("searchsorted", sorted_array, values)
    n, shape = typeof(keys).shape[0], typeof(v).shape
    rank = len(shape)
    wide = (*shape, n)
    before = (lt if side == "left" else le)(
        broadcast_in_dim(keys, shape=wide, dims=(rank,)),
        broadcast_in_dim(v, shape=wide, dims=tuple(range(rank))),
    )
    return sum_of(before, -1)


def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False) -> Array:
    """The number of the bin that each element lies in; `bins` are increasing edges."""
    return searchsorted(bins, x, "left" if right else "right")


def bincount(x: ArrayLike, length: int, weights: ArrayLike | None = None) -> Array:
    """How often each of the numbers 0…length-1 occurs (or the sum of its weights)."""
    x = ravel(x)
    if typeof(x).dtype.itemsize < 4:  # can't count to the length, perhaps
        x = cast(x, dtypes.of_index(length))
    hits = eq(
        broadcast_in_dim(x, shape=(typeof(x).size, length), dims=(0,)),
        iota(shape=(typeof(x).size, length), axis=1, dtype=typeof(x).dtype),
    )
    if weights is None:
        return sum_of(hits, 0)
    weights = ravel(weights)
    return sum_of(select_where(hits, weights[:, None], 0), 0)


# The shape of these results depends on values, so the values must be known ------------


def known(name: str, x: Any) -> np.ndarray:
    """The values of a concrete array.

    Raises:
      TracerError: under a transform that traces.
    """
    x = operand(name, x)
    if isinstance(x, Value) and not isinstance(x, Array):
        raise TracerError(
            f"{name}: the shape of the result depends on the values of an array of "
            f"type {typeof(x)}, which are not known while tracing{at(user_source())}\n"
            "Call it outside `jit`, or use `tnp.where(condition, a, b)`, `where=` of a "
            "reduction, or a sort: their results have fixed shapes."
        )
    return np.asarray(x)


def _integers(found: Any, length: int) -> Array:
    """Indices into, or counts of, so many elements."""
    return Array(np.asarray(found, dtypes.of_index(length)))


def nonzero(x: ArrayLike) -> tuple[Array, ...]:
    """The indices of the elements that are not zero, per axis. Not under `jit`.

    int32; along an axis of 2³¹ elements or more, int64.
    """
    values = known("nonzero", x)
    found = zip(np.nonzero(values), values.shape, strict=True)
    return tuple([_integers(i, n) for i, n in found])


def flatnonzero(x: ArrayLike) -> Array:
    """The indices of what is not zero in the flat array. Not under `jit`."""
    return nonzero(ravel(x))[0]


def argwhere(x: ArrayLike) -> Array:
    """The indices of what is not zero, one row each. Not under `jit`."""
    values = known("argwhere", x)
    return _integers(np.argwhere(values), max(values.shape, default=0))


def unique(
    x: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """The different elements in ascending order. Not under `jit`.

    Returns them, followed by what is asked for: the index of each one's first
    occurrence, the indices that rebuild x, and how often each occurs.
    """
    distinct: Any = np.unique
    values = known("unique", x)
    found = distinct(values, return_index, return_inverse, return_counts, axis)
    if not isinstance(found, tuple):
        return Array(found)
    n = values.size if axis is None else values.shape[axis]
    return (Array(found[0]), *[_integers(i, n) for i in found[1:]])


def where(
    condition: ArrayLike, x: ArrayLike | None = None, y: ArrayLike | None = None
) -> Any:
    """Elements of x where the condition holds, of y elsewhere.

    With the condition alone: `nonzero` of it.
    """
    if x is None and y is None:
        return nonzero(condition)
    if x is None or y is None:
        raise TypeError(f"where takes one argument or three{at(user_source())}")
    return select_where(condition, x, y)


def isin(x: ArrayLike, values: ArrayLike) -> Array:
    """Which elements of x occur among the values."""
    x, values = promoted("isin", x, ravel(values))
    t, n = typeof(x), typeof(values).size
    wide = (*t.shape, n)
    same = eq(
        broadcast_in_dim(x, shape=wide, dims=tuple(range(t.ndim))),
        broadcast_in_dim(values, shape=wide, dims=(t.ndim,)),
    )
    return sum_of(same, -1) > 0


def interp(x: ArrayLike, xp: ArrayLike, fp: ArrayLike) -> Array:
    """Linear interpolation in a table of increasing `xp` and their values `fp`;
    constant outside."""
    at_x, keys, values = (
        as_inexact("interp", v) for v in promoted("interp", x, xp, fp)
    )
    last = typeof(keys).shape[0] - 1
    if not last:
        return broadcast_in_dim(values[0], shape=typeof(at_x).shape, dims=())
    i = searchsorted(keys, at_x, "right").clip(1, last)
    left, bottom = keys[i - 1], values[i - 1]
    width = keys[i] - left
    share = (at_x - left) / select_where(width == 0, 1, width)
    inner = bottom + share * (values[i] - bottom)
    out = select_where(lt(at_x, keys[0]), values[0], inner)
    return select_where(gt(at_x, keys[last]), values[last], out)


def select(
    conditions: Sequence[ArrayLike], choices: Sequence[ArrayLike], default: Any = 0
) -> Array:
    """Elements of the first choice whose condition holds, of the default elsewhere."""
    if len(conditions) != len(choices) or not conditions:
        raise ValueError(
            f"select takes as many choices as conditions; got {len(choices)} and "
            f"{len(conditions)}{at(user_source())}"
        )
    out = default
    for condition, choice in reversed([*zip(conditions, choices, strict=True)]):
        out = select_where(condition, choice, out)
    return out


def trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
) -> Array:
    """The integral of samples along an axis by the trapezoidal rule.

    Args:
      x: where the samples are, a vector or of the shape of y; by default `dx` apart.
    """
    y, number = along("trapezoid", as_inexact("trapezoid", y), axis)
    y = moveaxis(y, number, -1)
    if x is not None:
        x = operand("trapezoid", x)
        dx = diff(x if typeof(x).ndim == 1 else moveaxis(x, number, -1))
    return sum_of((y[..., 1:] + y[..., :-1]) * dx, -1) * 0.5


def unravel_index(index: ArrayLike, shape: Sequence[int]) -> tuple[Array, ...]:
    """The index in each axis of a shape, from the index in the flat array.

    Indices out of range are those of the nearest element if they are an array of
    Treadle's (traced, or not); others raise IndexError.
    """
    lengths, found = as_shape("unravel_index", shape), []
    rest = _inside(operand("unravel_index", index), math.prod(lengths))
    for n in reversed(lengths):
        found.append(rest % n)
        rest = rest // n
    return tuple(reversed(found))


def ravel_multi_index(index: Sequence[ArrayLike], shape: Sequence[int]) -> Array:
    """The index in the flat array, from the index in each axis of a shape.

    What is out of range is as in `unravel_index`.
    """
    lengths = as_shape("ravel_multi_index", shape)
    if len(index) != len(lengths):
        raise ValueError(
            f"ravel_multi_index: {len(index)} indices for the shape {lengths}"
            f"{at(user_source())}"
        )
    dtype = dtypes.of_index(math.prod(lengths))
    flat: Any = as_array(dtype.type(0))
    for i, n in zip(index, lengths, strict=True):
        flat = flat * n + cast(_inside(operand("ravel_multi_index", i), n), dtype)
    return flat


def _inside(index: Any, n: int) -> Any:
    """Places along an axis of length n: counted from 0, and moved inside."""
    places = as_array(position(index, 0, (n,)))
    return clip(places, 0, max(n - 1, 0))
