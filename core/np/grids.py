"""Coordinates of grids, and the indices of parts of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy import index_exp as index_exp
from numpy import s_ as s_

from treadle import dtypes
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np.creation import arange, array, ones
from treadle.np.join import concatenate, stack
from treadle.np.matrices import (
    diag_indices,
    tril_indices,
    triu_indices,
)
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_shape,
    broadcast_to_shape,
    cast,
    operand,
    result_type,
)
from treadle.np.places import nonzero
from treadle.np.shapes import reshape
from treadle.np.spacing import linspace
from treadle.ops.shape import iota
from treadle.run.array import Array
from treadle.trace.value import typeof


@overload
def indices(
    dimensions: Sequence[int],
    dtype: DTypeLike | None = None,
    sparse: Literal[False] = False,
) -> Array: ...
@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, *, sparse: Literal[True]
) -> tuple[Array, ...]: ...
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: bool = False
) -> Any:
    """For each axis of a grid, the index of every element: (axes, *dimensions).

    Args:
      sparse: a tuple of arrays that broadcast to the grid instead.

    int32 by default; int64 if an axis has 2³¹ elements or more.
    """
    shape = as_shape("indices", dimensions)
    wide = any([dtypes.of_index(n) == dtypes.int64 for n in shape])
    want = dtypes.canonical(
        (dtypes.int64 if wide else dtypes.int32) if dtype is None else dtype
    )
    if not sparse:
        each = [iota(shape=shape, axis=i, dtype=want) for i in range(len(shape))]
        return stack(each) if each else ones((0,), want)
    lines = [iota(shape=(n,), axis=0, dtype=want) for n in shape]
    return tuple(_along(x, i, len(shape)) for i, x in enumerate(lines))


def _along(x: Any, axis: int, ndim: int) -> Any:
    """A vector as an array with a number of axes, one of which it fills."""
    shape = [1] * ndim
    shape[axis] = typeof(x).shape[0]
    return reshape(x, tuple(shape))


def ix_(*vectors: ArrayLike) -> tuple[Array, ...]:
    """Index arrays that select a grid: ``x[tnp.ix_(rows, columns)]``.

    Masks stand for the places where they are true.

    >>> import treadle.numpy as tnp
    >>> tnp.arange(6).reshape(2, 3)[tnp.ix_(tnp.array([1, 0]), tnp.array([2]))].tolist()
    [[5], [2]]
    """
    out: list[Any] = []
    for k, v in enumerate(vectors):
        if isinstance(v, list | tuple | range):
            v = np.asarray(v, None if len(v) else np.int32)
        v = as_array(operand("ix_", v))
        if v.ndim != 1:
            raise ValueError(f"ix_ takes vectors, got {v.type}{at(user_source())}")
        if v.dtype == dtypes.bool_:
            (v,) = nonzero(v)
        out.append(_along(v, k, len(vectors)))
    return tuple(out)


class _Grid:
    """Ranges as slices: ``start:stop:step``, or ``start:stop:5j`` for five numbers with
    both ends."""

    def __init__(self, sparse: bool) -> None:
        self._sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _ranged(key)
        lines = [_ranged(part) for part in key]
        dtype = result_type(*lines) if lines else dtypes.int32
        spread = [_along(cast(x, dtype), i, len(lines)) for i, x in enumerate(lines)]
        if self._sparse:
            return spread
        shape = tuple([typeof(x).shape[0] for x in lines])
        return stack([broadcast_to_shape(x, shape) for x in spread])


def _ranged(part: slice) -> Any:
    start = 0 if part.start is None else part.start
    step = 1 if part.step is None else part.step
    if isinstance(step, complex):
        return linspace(start, part.stop, int(abs(step)))
    return arange(start, part.stop, step)


mgrid = _Grid(sparse=False)
"""A grid of coordinates: ``tnp.mgrid[0:2, 0:3]`` has shape (2, 2, 3)."""
ogrid = _Grid(sparse=True)
"""The same as arrays that broadcast to it: ``tnp.ogrid[0:2, 0:3]``."""


class _Joined:
    """Arrays and ranges joined by an index expression."""

    def __init__(self, columns: bool) -> None:
        self._columns = columns

    def __getitem__(self, key: Any) -> Array:
        items = key if isinstance(key, tuple) else (key,)
        axis, ndim = (-1, 2) if self._columns else (0, 1)
        if items and isinstance(items[0], str):
            raise TypeError(
                f"{'c_' if self._columns else 'r_'}: directives such as {items[0]!r} "
                f"are not supported{at(user_source())}\n"
                "Use `tnp.concatenate` or `tnp.stack`."
            )
        parts: list[Any] = []
        for item in items:
            if isinstance(item, slice):
                part = _ranged(item)
            elif isinstance(item, list | tuple):
                part = array(item)
            else:
                part = operand("r_", item)
            shape = typeof(part).shape or (1,)
            if len(shape) < ndim:
                shape = (*shape, 1)
            parts.append(reshape(part, shape))
        return concatenate(parts, axis)


r_ = _Joined(columns=False)
"""Arrays, numbers and ranges joined along the first axis: ``tnp.r_[0:3, x, 9]``."""
c_ = _Joined(columns=True)
"""The same along the last axis, vectors as columns: ``tnp.c_[x, y]``."""


# Indices of parts of matrices ---------------------------------------------------------


def _matrix(name: str, x: Any) -> tuple[int, int]:
    shape = typeof(operand(name, x)).shape
    if len(shape) != 2:
        raise ValueError(
            f"{name} takes a matrix, got an array of shape {shape}{at(user_source())}"
        )
    return shape[0], shape[1]


def tril_indices_from(x: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """The indices (rows, columns) of the lower triangle of a matrix like x."""
    n, m = _matrix("tril_indices_from", x)
    return tril_indices(n, k, m)


def triu_indices_from(x: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """The indices (rows, columns) of the upper triangle of a matrix like x."""
    n, m = _matrix("triu_indices_from", x)
    return triu_indices(n, k, m)


def diag_indices_from(x: ArrayLike) -> tuple[Array, ...]:
    """The indices of the diagonal of an array like x, whose axes are equally long."""
    shape = typeof(operand("diag_indices_from", x)).shape
    if len(shape) < 2 or any([n != shape[0] for n in shape]):
        raise ValueError(
            f"diag_indices_from: shape {shape} has no diagonal: two axes or more of "
            f"equal lengths are needed{at(user_source())}"
        )
    return diag_indices(shape[0], len(shape))


def mask_indices(
    n: int, function: Callable[..., Any], k: Any = 0, *, size: int | None = None
) -> tuple[Array, ...]:
    """The indices where `function` (such as `tnp.triu`) leaves ones of an n by n matrix
    of them.

    Args:
      k: the function's second argument.
      size: as in `nonzero`.
    """
    return nonzero(function(ones((n, n)), k), size=size)
