"""Counting: how often numbers occur, and how many samples lie in each bin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.np.binary import select_where
from treadle.np.join import stack
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_inexact,
    as_shape,
    cast,
    none,
    operand,
    promoted,
    static_integer,
)
from treadle.np.places import known
from treadle.np.reductions import max as max_of
from treadle.np.reductions import min as min_of
from treadle.np.reductions import sum as sum_of
from treadle.np.running import diff
from treadle.np.search import searchsorted
from treadle.np.segments import segments
from treadle.np.shapes import ravel, reshape
from treadle.np.spacing import linspace
from treadle.ops.compare import eq
from treadle.ops.movement import broadcast_in_dim, full
from treadle.ops.reduce import reduce_sum
from treadle.ops.scatter import scatter_add
from treadle.ops.shape import iota
from treadle.run.array import Array
from treadle.trace.value import typeof


def bincount(
    x: ArrayLike,
    weights: ArrayLike | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
) -> Array:
    """How often each of the numbers 0, 1, 2… occurs (or the sum of its weights).

    Args:
      minlength: the least length of the result, which goes to the largest number.
      length: the length of the result; needed under `jit`. Other numbers don't count.

    >>> import treadle.numpy as tnp
    >>> tnp.bincount(tnp.array([0, 2, 2]), length=4)
    Array([1, 0, 2, 0], dtype=int32)
    """
    array = as_array(operand("bincount", x))
    if array.ndim != 1:
        raise ValueError(
            f"bincount counts the elements of a vector, got {array.type}"
            f"{at(user_source())}\nFlatten it: `x.ravel()`."
        )
    if not dtypes.is_integer(array.dtype) and array.dtype != dtypes.bool_:
        raise TypeError(
            f"bincount counts integers, got {array.type}{at(user_source())}"
        )
    if length is None:
        values = known("bincount", array, "length")
        least = static_integer("bincount", "minlength", minlength)
        length = max(int(values.max()) + 1 if values.size else 0, least)
        if values.size and values.min() < 0:
            raise ValueError(
                f"bincount: {values.min()} is negative{at(user_source())}\n"
                "Negative numbers are left out where `length=` is given."
            )
    (count,) = as_shape("bincount", length)
    if weights is None:
        ones: Any = full(array.shape, 1, dtypes.of_index(array.size))
    else:
        ones = as_array(ravel(operand("bincount", weights)))
        if ones.dtype == dtypes.bool_:
            ones = cast(ones, dtypes.int32)
    if ones.shape != array.shape:
        raise ValueError(
            f"bincount: {ones.size} weights for {array.size} numbers{at(user_source())}"
        )
    nothing = full((count,), 0, ones.dtype)
    if none(array.size) or none(count):
        return nothing
    if weights is None and not is_dim(count) and count <= _FEW:
        return _compared(cast(segments(array, count), dtypes.int32), count, ones.dtype)
    places = {"axes": (0,), "sizes": (None,), "batch_dims": 0, "mode": "drop"}
    return scatter_add(nothing, ones, segments(array, count), **places)


_FEW = 32
"""Numbers that every element is compared with. More of them are counted in a table,
where an element has to wait if the one before has been equal."""


def _compared(x: Any, count: int, dtype: np.dtype) -> Any:
    """How many elements of a vector are equal to each number below `count`."""
    wide = (typeof(x).size, count)
    number = iota(shape=wide, axis=1, dtype=typeof(x).dtype)
    same = eq(broadcast_in_dim(x, shape=wide, dims=(0,)), number)
    return reduce_sum(cast(same, dtype), axes=(0,))


Range = Sequence[ArrayLike] | None


def histogram_bin_edges(
    x: ArrayLike, bins: Any = 10, range: Range = None, weights: Any = None
) -> Array:
    """The edges of the bins that `histogram` uses.

    Args:
      bins: how many, of equal width; or the increasing edges themselves; or one of
        NumPy's names of estimators ("auto", "fd"…), where the values are known.
      range: from where to where; by default from the smallest element to the largest.
    """
    if isinstance(bins, str):
        values = known("histogram_bin_edges", x, "bins")
        span: Any = range
        edges = np.histogram_bin_edges(values, bins, span, weights)
        return Array(edges.astype(typeof(as_inexact("histogram", x)).dtype))
    if np.ndim(bins):
        return as_array(as_inexact("histogram", _as_operand(bins)))
    array = as_array(as_inexact("histogram", ravel(x)))
    dtype = dtypes.float32 if array.dtype.itemsize == 2 else array.dtype
    if range is not None:
        low, high = (cast(operand("histogram", v), dtype) for v in range)
    elif none(array.size):
        low, high = dtype.type(0), dtype.type(1)
    else:
        low, high = cast(min_of(array), dtype), cast(max_of(array), dtype)
    same = low == high
    low, high = (select_where(same, v + d, v) for v, d in ((low, -0.5), (high, 0.5)))
    (count,) = as_shape("histogram", bins)
    if none(count):
        raise ValueError(
            f"histogram: there must be one bin or more, got bins={bins!r}"
            f"{at(user_source())}"
        )
    return cast(linspace(low, high, count + 1), array.dtype)


def _as_operand(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, list | tuple) else x


def histogram(
    x: ArrayLike,
    bins: Any = 10,
    range: Range = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """How many elements lie in each bin, and the edges of the bins.

    An element on an edge is in the bin above it; one on the last edge in the last bin.

    Args:
      bins, range: as in `histogram_bin_edges`.
      density: divide by the bins' widths and by the total, so that the integral is 1.
      weights: what each element counts, of the shape of x.

    The counts are float32 (of float64 arrays float64), as are weights of other dtypes.

    >>> import treadle.numpy as tnp
    >>> tnp.histogram(tnp.array([1.0, 2.0, 2.5]), bins=2, range=(0, 4))[0]
    Array([1., 2.], dtype=float32)
    """
    flat = as_array(as_inexact("histogram", ravel(x)))
    edges = histogram_bin_edges(flat, bins, range)
    ones = full(flat.shape, 1, flat.dtype) if weights is None else ravel(weights)
    if typeof(ones).shape != flat.shape:
        raise ValueError(
            f"histogram: weights of shape {typeof(weights).shape} for an array of "
            f"shape {typeof(x).shape}{at(user_source())}"
        )
    length = typeof(edges).shape[0] - 1
    numbers, ones = _bins(flat, edges), as_inexact("histogram", ones)
    # Whole numbers are counted beyond what floats can be counted up to.
    each = None if weights is None else ones
    counts = cast(bincount(numbers, each, length=length), typeof(ones).dtype)
    if density:
        counts = counts / diff(edges) / sum_of(counts)
    return counts, edges


def _bins(x: Any, edges: Any) -> Any:
    """The number of the bin of each element, -1 if there is none."""
    x, edges = promoted("histogram", x, edges)
    last = typeof(edges).shape[0] - 1
    place = searchsorted(edges, x, "right") - 1
    place = select_where(x == edges[-1], last - 1, place)
    return select_where(x > edges[-1], -1, select_where(x == x, place, -1))


def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: Any = 10,
    range: Any = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Array, Array, Array]:
    """How many points lie in each bin of a grid, and the edges along x and y.

    Args:
      bins: how many, or the edges, for both axes; or a pair of these.
      range: a pair (from, to) for each axis.
      density, weights: as in `histogram`.
    """
    if np.ndim(bins) == 1 and len(bins) not in (1, 2):
        bins = [bins, bins]
    points = stack([_vector("histogram2d", v) for v in (x, y)], 1)
    counts, edges = histogramdd(points, bins, range, density, weights)
    return counts, edges[0], edges[1]


def _vector(name: str, x: Any) -> Any:
    x = operand(name, _as_operand(x))
    if typeof(x).ndim != 1:
        raise ValueError(
            f"{name} takes a vector for each axis, got {typeof(x)}{at(user_source())}"
        )
    return x


def histogramdd(
    sample: ArrayLike,
    bins: Any = 10,
    range: Any = None,
    density: bool = False,
    weights: ArrayLike | None = None,
) -> tuple[Array, list[Array]]:
    """How many points lie in each bin of a grid, and the edges along each axis.

    Args:
      sample: the points, one row each (of a vector: one number each).
      bins: how many along all axes, or a list: for each axis how many, or the edges.
      range: a pair (from, to), or None, for each axis.
      density, weights: as in `histogram`.
    """
    points = as_array(as_inexact("histogramdd", _as_operand(sample)))
    points = points if points.ndim > 1 else points[:, None]
    if points.ndim != 2:
        raise ValueError(
            f"histogramdd takes a matrix of points, got {points.type}"
            f"{at(user_source())}"
        )
    count, axes = points.shape
    several = bins if isinstance(bins, list | tuple) else [bins] * axes
    ranges = [None] * axes if range is None else range
    if len(several) != axes or len(ranges) != axes:
        raise ValueError(
            f"histogramdd: {len(several)} bins and {len(ranges)} ranges for {axes} "
            f"axes{at(user_source())}"
        )
    place: Any = full((count,), 0, dtypes.int32)
    outside, edges = None, []
    for k, (wanted, span) in enumerate(zip(several, ranges, strict=True)):
        found = histogram_bin_edges(points[:, k], wanted, span)
        number, n = _bins(points[:, k], found), typeof(found).shape[0] - 1
        out = number < 0
        outside = out if outside is None else outside | out
        place = place * n + number
        edges.append(found)
    lengths = tuple([typeof(e).shape[0] - 1 for e in edges])
    ones = full((count,), 1, points.dtype) if weights is None else ravel(weights)
    place = place if outside is None else select_where(outside, -1, place)
    total = math.prod(lengths)
    ones = as_inexact("histogramdd", ones)
    counts = reshape(bincount(place, ones, length=total), lengths)
    if density:
        counts = counts / sum_of(counts)
        for k, found in enumerate(edges):
            widths = diff(found)
            aligned = [1] * axes
            aligned[k] = lengths[k]
            counts = counts / reshape(widths, tuple(aligned))
    return counts, edges
