"""Slices whose start is known only when the program runs.

A negative start counts from the end; then the slice is moved so that it lies inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.lax.operands import Ints, array, ints, place
from treadle.np.index import from_start
from treadle.np.operands import ArrayLike, as_array, operand
from treadle.ops import dynamic
from treadle.ops.movement import reshape
from treadle.run.array import Array
from treadle.trace.value import Value, typeof


def _starts(name: str, starts: Any, shape: Ints) -> list[Any]:
    if isinstance(starts, Value | np.ndarray) and typeof(starts).ndim == 1:
        starts = [starts[i] for i in range(typeof(starts).shape[0])]
    found = [operand(name, s) for s in starts]
    if len(found) != len(shape):
        raise ValueError(
            f"{name}: {len(found)} start indices for an array of shape {shape}: there "
            f"must be one for each axis{at(user_source())}"
        )
    return [_start(name, s, n) for s, n in zip(found, shape, strict=True)]


def _start(name: str, start: Any, n: int) -> Any:
    t = typeof(start)
    if t.shape or not dtypes.is_integer(t.dtype):
        raise TypeError(
            f"{name}: a start index is an integer scalar, got {t}{at(user_source())}"
        )
    return from_start(as_array(start), n)


def dynamic_slice(
    operand: ArrayLike, start_indices: Any, slice_sizes: Sequence[int]
) -> Array:
    """``operand[start : start + size, …]``, where the starts may be traced.

    Args:
      start_indices: an integer scalar for each axis, or a vector of them.
      slice_sizes: the shape of the result, known while tracing.

    Raises:
      ValueError: if there are not as many of each as axes, or the slice is larger than
        the array.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x = tnp.arange(12).reshape(3, 4)
    >>> td.jit(lambda i: td.lax.dynamic_slice(x, (i, 1), (2, 2)))(1)
    Array([[ 5,  6],
           [ 9, 10]], dtype=int32)
    """
    x = array("dynamic_slice", operand)
    sizes = ints("dynamic_slice", "slice_sizes", slice_sizes, x.ndim)
    starts = _starts("dynamic_slice", start_indices, x.shape)
    return dynamic.dynamic_slice(x, *starts, sizes=sizes)


def dynamic_update_slice(
    operand: ArrayLike, update: ArrayLike, start_indices: Any
) -> Array:
    """The operand with `update`, of the same dtype, in the place of a slice of its
    shape. Compiled, in place where the operand is not used again."""
    x = array("dynamic_update_slice", operand)
    new = array("dynamic_update_slice", update)
    starts = _starts("dynamic_update_slice", start_indices, x.shape)
    return dynamic.dynamic_update_slice(x, new, *starts)


def dynamic_slice_in_dim(
    operand: ArrayLike, start_index: ArrayLike, slice_size: int, axis: int = 0
) -> Array:
    """`dynamic_slice` along one axis, of the others everything.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x = tnp.arange(5)
    >>> td.jit(lambda i: td.lax.dynamic_slice_in_dim(x, i, 2))(1)
    Array([1, 2], dtype=int32)
    """
    x = array("dynamic_slice_in_dim", operand)
    number = place("dynamic_slice_in_dim", axis, x.ndim)
    sizes = [*x.shape]
    (sizes[number],) = ints("dynamic_slice_in_dim", "slice_size", (slice_size,))
    return dynamic_slice(x, _along(number, start_index, x.ndim), sizes)


def dynamic_index_in_dim(
    operand: ArrayLike, index: ArrayLike, axis: int = 0, keepdims: bool = True
) -> Array:
    """The elements at one index along an axis, which stays with length 1 or goes."""
    x = array("dynamic_index_in_dim", operand)
    number = place("dynamic_index_in_dim", axis, x.ndim)
    out = dynamic_slice_in_dim(x, index, 1, number)
    if keepdims:
        return out
    return reshape(out, shape=(*x.shape[:number], *x.shape[number + 1 :]))


def dynamic_update_slice_in_dim(
    operand: ArrayLike, update: ArrayLike, start_index: ArrayLike, axis: int
) -> Array:
    """`dynamic_update_slice` along one axis."""
    x = array("dynamic_update_slice_in_dim", operand)
    number = place("dynamic_update_slice_in_dim", axis, x.ndim)
    return dynamic_update_slice(x, update, _along(number, start_index, x.ndim))


def dynamic_update_index_in_dim(
    operand: ArrayLike, update: ArrayLike, index: ArrayLike, axis: int
) -> Array:
    """The operand with `update` at one index along an axis, which the update may lack
    or have with length 1."""
    x = array("dynamic_update_index_in_dim", operand)
    new = array("dynamic_update_index_in_dim", update)
    number = place("dynamic_update_index_in_dim", axis, x.ndim)
    if new.ndim != x.ndim:
        lengths = (*new.shape[:number], 1, *new.shape[number:])
        new = reshape(new, shape=lengths)
    return dynamic_update_slice_in_dim(x, new, index, number)


def _along(axis: int, start: Any, rank: int) -> list[Any]:
    return [start if a == axis else 0 for a in range(rank)]
