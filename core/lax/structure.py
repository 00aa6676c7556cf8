"""Shapes: broadcasting, reshaping, cutting, joining; and arrays that only count."""

from __future__ import annotations

import math
from builtins import slice as span
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import index
from typing import Any

from treadle import dtypes
from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.lax.operands import Ints, array, ints, place, places, scalar_of
from treadle.np.operands import ArrayLike, as_shape, cast, operand, type_of
from treadle.ops import movement, shape
from treadle.run.array import Array
from treadle.trace.value import typeof


def iota(dtype: Any, size: int) -> Array:
    """``0, 1, …, size - 1``.

    >>> import treadle as td
    >>> td.lax.iota("float32", 3)
    Array([0., 1., 2.], dtype=float32)
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int) -> Array:
    """An array of some shape in which each element is its index along an axis."""
    lengths = as_shape("broadcasted_iota", shape)
    axis = place("broadcasted_iota", dimension, len(lengths))
    return _shape_iota(shape=lengths, axis=axis, dtype=dtypes.canonical(dtype))


_shape_iota = shape.iota


def full(shape: Sequence[int], fill_value: ArrayLike, dtype: Any = None) -> Array:
    """A scalar, as often as a shape has elements."""
    value = operand("full", fill_value)
    wanted = typeof(value).dtype if dtype is None else dtypes.canonical(dtype)
    value = cast(value, wanted)
    return movement.broadcast_in_dim(value, shape=as_shape("full", shape), dims=())


def full_like(
    x: ArrayLike,
    fill_value: ArrayLike,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
) -> Array:
    """`full`, with the shape and dtype of an array or a `td.ShapeDtype` unless
    others are given."""
    t = type_of("full_like", x)
    return full(t.shape if shape is None else shape, fill_value, dtype or t.dtype)


def broadcast(operand: ArrayLike, sizes: Sequence[int]) -> Array:
    """An array repeated along new axes in front."""
    x, lengths = array("broadcast", operand), as_shape("broadcast", sizes)
    dims = range(len(lengths), len(lengths) + x.ndim)
    return broadcast_in_dim(x, (*lengths, *x.shape), tuple(dims))


def broadcast_in_dim(
    operand: ArrayLike, shape: Sequence[int], broadcast_dimensions: Sequence[int]
) -> Array:
    """An array of another shape, of which some axes are those of the operand, or repeat
    them.

    Args:
      broadcast_dimensions: for each axis of the operand, its place in the result, in
        increasing order. Its length is that of the result, or 1.

    Raises:
      ValueError: if they do not fit.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.lax.broadcast_in_dim(tnp.array([1, 2]), (2, 3), (0,))
    Array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
    name = "broadcast_in_dim"
    x, lengths = array(name, operand), as_shape(name, shape)
    dims = ints(name, "broadcast_dimensions", broadcast_dimensions, x.ndim)
    if list(dims) != sorted(set(dims)) or any(not 0 <= d < len(lengths) for d in dims):
        raise ValueError(
            f"{name}: broadcast_dimensions {dims} must increase, and be axes of the "
            f"shape {lengths}{at(user_source())}"
        )
    return movement.broadcast_in_dim(x, shape=lengths, dims=dims)


def reshape(
    operand: ArrayLike,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
) -> Array:
    """The elements in row-major order, in another shape.

    dimensions: the order in which the operand's axes are taken, if not as they are.
    """
    x = array("reshape", operand)
    x = x if dimensions is None else transpose(x, dimensions)
    return movement.reshape(x, shape=as_shape("reshape", new_sizes))


def collapse(
    operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None
) -> Array:
    """Neighbouring axes, from one to before another, made one.

    Raises:
      ValueError: if there are no such axes.
    """
    x = array("collapse", operand)
    start, stop, _ = span(start_dimension, stop_dimension).indices(x.ndim)
    if start >= stop:
        raise ValueError(
            f"collapse: no axes from {start_dimension} to before {stop_dimension} in "
            f"an array of {x.ndim} axes{at(user_source())}"
        )
    merged = math.prod(x.shape[start:stop])
    return movement.reshape(x, shape=(*x.shape[:start], merged, *x.shape[stop:]))


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """New axes of length 1; `dimensions` are their places in the result."""
    x = operand("expand_dims", array)
    rank = typeof(x).ndim + len(tuple(dimensions))
    new = places("expand_dims", dimensions, rank)
    have = iter(typeof(x).shape)
    lengths = tuple([1 if i in new else next(have) for i in range(rank)])
    return movement.reshape(x, shape=lengths)


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Without some axes of length 1.

    Raises:
      ValueError: if one has another length.
    """
    x = operand("squeeze", array)
    lengths = typeof(x).shape
    gone = places("squeeze", dimensions, len(lengths))
    if any(lengths[a] != 1 for a in gone):
        raise ValueError(
            f"squeeze: axes {gone} of an array of shape {lengths} have not all length 1"
            f"{at(user_source())}"
        )
    kept = tuple([n for a, n in enumerate(lengths) if a not in gone])
    return movement.reshape(x, shape=kept)


def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """The axes in another order; negative ones count from the end."""
    x = array("transpose", operand)
    order = places("transpose", permutation, x.ndim)
    return movement.transpose(x, permutation=order)


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The elements in reverse order along some axes."""
    x = array("rev", operand)
    return movement.reverse(x, axes=places("rev", dimensions, x.ndim))


def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Array:
    """Arrays of one dtype, one behind the other along an axis."""
    xs = [array("concatenate", x) for x in operands]
    if not xs:
        raise ValueError(f"concatenate of no arrays{at(user_source())}")
    axis = place("concatenate", dimension, xs[0].ndim)
    return shape.concatenate(*xs, axis=axis)


def pad(
    operand: ArrayLike,
    padding_value: ArrayLike,
    padding_config: Sequence[tuple[int, int, int]],
) -> Array:
    """An array with a value around and between its elements.

    Args:
      padding_value: a scalar of the same dtype.
      padding_config: for each axis how many before, after, and between two elements.
        Negative ones before and after cut.

    Raises:
      ValueError: if they do not fit, or more is cut than there is.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.lax.pad(tnp.array([1, 2, 3]), 0, [(-1, 2, 1)])
    Array([0, 2, 0, 3, 0, 0], dtype=int32)
    """
    x = array("pad", operand)
    value = scalar_of("pad", padding_value, x.dtype)
    config = [ints("pad", "padding_config", p, 3) for p in padding_config]
    if len(config) != x.ndim or any(inner < 0 for _, _, inner in config):
        raise ValueError(
            f"pad of {x.type} by {config}: three numbers for each axis, of which the "
            f"last is not negative{at(user_source())}"
        )
    return shape.pad(x, value, padding=tuple(config))


def slice(
    operand: ArrayLike,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Array:
    """``operand[start:limit:stride, …]`` for numbers that are known while tracing.

    Raises:
      ValueError: unless ``0 <= start <= limit <= length`` and strides are positive.
      TracerError: for traced numbers: use `dynamic_slice`.
    """
    x = array("slice", operand)
    starts = ints("slice", "start_indices", start_indices, x.ndim)
    limits = ints("slice", "limit_indices", limit_indices, x.ndim)
    steps = (1,) * x.ndim if strides is None else ints("slice", "strides", strides)
    return shape.slice_(x, starts=starts, limits=limits, steps=steps)


def slice_in_dim(
    operand: ArrayLike,
    start_index: int | None,
    limit_index: int | None,
    stride: int = 1,
    axis: int = 0,
) -> Array:
    """``operand[..., start:limit:stride, ...]`` along one axis; negative numbers count
    from the end, None is the end."""
    x = array("slice_in_dim", operand)
    number = place("slice_in_dim", axis, x.ndim)
    n = x.shape[number]
    start = 0 if start_index is None else _from_end(start_index, n)
    limit = n if limit_index is None else _from_end(limit_index, n)
    return shape.slice_axis(x, number, start, limit, index(stride))


def _from_end(i: Any, n: int) -> Any:
    i = i if is_dim(i) else index(i)
    return i + n if i < 0 else i


def index_in_dim(
    operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True
) -> Array:
    """The elements at one index along an axis, which stays with length 1 or goes.

    Raises:
      IndexError: if the index is out of range.
    """
    x = array("index_in_dim", operand)
    number = place("index_in_dim", axis, x.ndim)
    n = x.shape[number]
    start = _from_end(index, n)
    if not 0 <= start < n:
        raise IndexError(
            f"index_in_dim: index {index} is out of range for axis {number} of length "
            f"{n}{at(user_source())}"
        )
    out = shape.slice_axis(x, number, start, start + 1)
    return out if keepdims else squeeze(out, (number,))


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Pieces of some lengths along an axis.

    Raises:
      ValueError: if they do not add up to its length.
    """
    x = array("split", operand)
    number = place("split", axis, x.ndim)
    lengths = ints("split", "sizes", sizes)
    if sum(lengths) != x.shape[number]:
        raise ValueError(
            f"split: sizes {lengths} of an axis of length {x.shape[number]}"
            f"{at(user_source())}"
        )
    cuts = pairwise(accumulate(lengths, initial=0))
    return [shape.slice_axis(x, number, a, b) for a, b in cuts]


def tile(operand: ArrayLike, reps: Sequence[int]) -> Array:
    """An array repeated as a whole, for each axis some times."""
    x = array("tile", operand)
    counts: Ints = ints("tile", "reps", reps, x.ndim)
    dims = tuple(range(1, 2 * x.ndim, 2))
    lengths = [n for pair in zip(counts, x.shape, strict=True) for n in pair]
    wide = movement.broadcast_in_dim(x, shape=tuple(lengths), dims=dims)
    whole = [c * n for c, n in zip(counts, x.shape, strict=True)]
    return movement.reshape(wide, shape=tuple(whole))
