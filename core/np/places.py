"""Where elements are not zero, and the elements there.

How many there are depends on values. Outside of tracing that is no matter; a traced
program says with `size=` how many places it wants: what is left of them is filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim
from treadle.errors import TracerError, at, user_source
from treadle.np.binary import select_where
from treadle.np.indexing import getitem
from treadle.np.join import stack
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_shape,
    cast,
    none,
    one_axis,
    operand,
)
from treadle.np.shapes import ravel
from treadle.ops import cumulative
from treadle.ops.compare import lt, select
from treadle.ops.movement import broadcast_in_dim, full
from treadle.ops.scatter import scatter_set
from treadle.ops.shape import iota
from treadle.run.array import Array, as_numpy
from treadle.trace.value import Tracer, typeof


def known(name: str, x: Any, option: str = "size") -> np.ndarray:
    """The values of an array that are known now: of a concrete one, or of one that is
    only differentiated.

    Args:
      option: the argument by which the function can do without.

    Raises:
      TracerError: while tracing, where nobody knows them.
    """
    x = operand(name, x)
    value = x.concrete() if isinstance(x, Tracer) else x
    if value is None:
        raise TracerError(
            f"{name}: the shape of the result depends on the values of an array of "
            f"type {typeof(x)}, which are not known while tracing{at(user_source())}\n"
            f"{_SIZED.format(name, option)}"
        )
    return np.asarray(as_numpy(value))


_SIZED = (
    "Say how many elements there are: `tnp.{}(..., {}=n)`. Or call it outside `jit`,\n"
    "or use `tnp.where(condition, a, b)`, `where=` of a reduction, or a sort: their "
    "results have fixed shapes."
)


def indices_of(found: Any, length: int) -> Array:
    """Indices into, or counts of, so many elements."""
    return Array(np.asarray(found, dtypes.of_index(length)))


def as_size(name: str, size: Any) -> int:
    """A number of elements that was asked for."""
    (n,) = as_shape(name, size)
    return n


def index_dtype(*lengths: int) -> np.dtype:
    """The dtype of places along axes of several lengths."""
    wide = dtypes.int64 in map(dtypes.of_index, lengths)
    return dtypes.int64 if wide else dtypes.int32


def first_places(mask: Any, size: int) -> tuple[Any, Any]:
    """The first `size` places where a flat mask is true (0 beyond their end), and which
    of these there are."""
    n = typeof(mask).shape[0]
    dtype = index_dtype(n, size)
    if none(n) or none(size):
        return full((size,), 0, dtype), full((size,), False, dtypes.bool_)
    counts = cumulative.cumsum(cast(mask, dtype), axis=0, reverse=False)
    target = select(mask, counts - 1, cast(size, dtype))
    places = scatter_set(
        full((size,), 0, dtype),
        iota(shape=(n,), axis=0, dtype=dtype),
        target,
        axes=(0,),
        sizes=(None,),
        batch_dims=0,
        mode="drop",
    )
    return places, lt(iota(shape=(size,), axis=0, dtype=dtype), counts[-1])


def nonzero(
    x: ArrayLike, *, size: int | None = None, fill_value: Any = None
) -> tuple[Array, ...]:
    """The indices of the elements that are not zero, per axis.

    Args:
      size: how many indices the result holds; needed under `jit`, where their number
        is not known. If there are more, the first stay.
      fill_value: what fills the rest: a number (0 by default), or one for each axis.

    int32; along an axis of 2³¹ elements or more, int64.

    >>> import treadle.numpy as tnp
    >>> tnp.nonzero(tnp.array([0, 5, 0, 7]), size=3, fill_value=-1)
    (Array([ 1,  3, -1], dtype=int32),)
    """
    x = operand("nonzero", x)
    shape = typeof(x).shape
    if not shape:
        raise ValueError(
            f"nonzero: a scalar has no axis to count along{at(user_source())}\n"
            "Give it one: `tnp.atleast_1d(x)`."
        )
    if size is None:
        found = np.nonzero(known("nonzero", x))
        return tuple(indices_of(i, n) for i, n in zip(found, shape, strict=True))
    mask = cast(ravel(x), dtypes.bool_)
    flat, there = first_places(mask, as_size("nonzero", size))
    fills = (
        fill_value if isinstance(fill_value, Sequence) else [fill_value] * len(shape)
    )
    if len(fills) != len(shape):
        raise ValueError(
            f"nonzero: {len(fills)} fill values for {len(shape)} axes"
            f"{at(user_source())}"
        )
    out: list[Any] = []
    for n, fill in reversed([*zip(shape, fills, strict=True)]):
        place = cast(flat % n, dtypes.of_index(n))
        value = cast(operand("nonzero", 0 if fill is None else fill), place.dtype)
        out.append(select_where(there, place, value))
        flat = flat // n
    return tuple(reversed(out))


def flatnonzero(
    x: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Array:
    """The indices of what is not zero in the flat array; `size` is as in `nonzero`."""
    fill = None if fill_value is None else (fill_value,)
    return nonzero(ravel(x), size=size, fill_value=fill)[0]


def argwhere(x: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The indices of what is not zero, one row each; `size` is as in `nonzero`."""
    x = operand("argwhere", x)
    if size is None:
        values = known("argwhere", x)
        return indices_of(np.argwhere(values), max(values.shape, default=0))
    if not typeof(x).ndim:
        return nonzero(ravel(x), size=size)[0][:, None][:, :0]
    return stack(nonzero(x, size=size, fill_value=fill_value), 1)


@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike) -> Array: ...
@overload
def where(
    condition: ArrayLike, *, size: int | None = None, fill_value: Any = None
) -> tuple[Array, ...]: ...
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Elements of x where the condition holds, of y elsewhere.

    With the condition alone: `nonzero` of it, which says what `size` is.
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise TypeError(f"where takes one argument or three{at(user_source())}")
    if size is not None or fill_value is not None:
        raise TypeError(
            f"where takes size and fill_value with one argument only{at(user_source())}"
        )
    return select_where(condition, x, y)


def extract(
    condition: ArrayLike,
    x: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
) -> Array:
    """The elements of the flat array where a condition of its size holds.

    Args:
      size: how many elements the result has; needed under `jit`.
      fill_value: what fills the rest.

    >>> import treadle.numpy as tnp
    >>> x = tnp.array([3, -1, 4])
    >>> tnp.extract(x > 0, x)
    Array([3, 4], dtype=int32)
    """
    return compress(ravel(condition), ravel(x), 0, size=size, fill_value=fill_value)


def compress(
    condition: ArrayLike,
    x: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
) -> Array:
    """The slices along an axis (None: elements of the flat array) where a vector of
    conditions holds; `size` is as in `extract`.

    Raises:
      ValueError: if the condition is no vector, or longer than the axis.
    """
    x, mask = operand("compress", x), condition
    if isinstance(mask, list | tuple):
        mask = np.asarray(mask)
    mask = as_array(cast(operand("compress", mask), dtypes.bool_))
    if axis is None:
        x, axis = ravel(x), 0
    number = one_axis("compress", axis, typeof(x).ndim)
    n = typeof(x).shape[number]
    if mask.ndim != 1 or (not is_dim(n) and mask.shape[0] > n):
        raise ValueError(
            f"compress: a condition of shape {mask.shape} for axis {number} of an "
            f"array of shape {typeof(x).shape}{at(user_source())}\n"
            "It has one element for each along the axis."
        )
    before = (slice(None),) * number
    if size is None:
        places: Any = np.flatnonzero(known("compress", mask))
        return getitem(x, (*before, places))
    places, there = first_places(mask, as_size("compress", size))
    dtype = typeof(x).dtype
    if none(n):
        shape = (*typeof(x).shape[:number], size, *typeof(x).shape[number + 1 :])
        return full(shape, 0, dtype) + cast(fill_value, dtype)
    rows = getitem(x, (*before, places))
    kept = broadcast_in_dim(there, shape=typeof(rows).shape, dims=(number,))
    return select_where(kept, rows, cast(operand("compress", fill_value), dtype))


def take_where(x: Any, places: Any, there: Any, fill: Any) -> Any:
    """The rows of x at places, and a fill value where there is none (by default the
    first of them)."""
    rows = getitem(x, places)
    t = typeof(rows)
    if none(t.shape[0]):
        return rows
    value = rows[0] if fill is None else cast(fill, t.dtype)
    kept = broadcast_in_dim(there, shape=t.shape, dims=(0,))
    return select_where(kept, rows, value)
