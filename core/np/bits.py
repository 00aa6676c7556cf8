"""Functions of bit patterns: what random number generators are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import same_shape
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike, as_array, cast, matched, operand
from treadle.ops import cast as casts
from treadle.ops import random_bits
from treadle.ops.compare import bitwise_and, shift_left, shift_right_logical
from treadle.ops.movement import reshape, spread
from treadle.ops.reduce import reduce_or
from treadle.ops.shape import iota
from treadle.run.array import Array
from treadle.trace.value import typeof


def bitcast(x: ArrayLike, dtype: Any) -> Array:
    """The same bits read as another dtype of the same width."""
    x, dtype = operand("bitcast", x), dtypes.canonical(dtype)
    return as_array(x) if typeof(x).dtype == dtype else casts.bitcast(x, dtype=dtype)


def view(x: Any, dtype: Any, *lengths: Any) -> Array:
    """The same bits read as another dtype. Of a narrower or a wider one, the last axis
    is longer or shorter, as in NumPy.

    Raises:
      TypeError: for bools; for complex numbers to another width; for a shape, which
        PyTorch's `view` takes.
      ValueError: if the last axis holds no whole number of elements.
    """
    if lengths or isinstance(dtype, int | tuple):
        shape = str((dtype, *lengths))[1:-1].rstrip(",")
        raise TypeError(
            f"view: reads the bits of {typeof(x)} as another dtype, got "
            f"{shape}{at(user_source())}\nThe same elements in another shape: "
            f"`x.reshape({shape})`."
        )
    x, dtype = as_array(operand("view", x)), dtypes.canonical(dtype)
    have, want = x.dtype.itemsize, dtype.itemsize
    if have == want:
        return bitcast(x, dtype)
    for d in (x.dtype, dtype):
        if d == dtypes.bool_ or dtypes.is_complex(d):
            raise TypeError(
                f"view of {x.type} as {dtype.name} is not defined{at(user_source())}"
            )
    *rest, n = x.shape or (0,)
    if not x.ndim or n * have % want:
        raise ValueError(
            f"view of {x.type} as {dtype.name}: the last axis must hold a whole number "
            f"of elements{at(user_source())}"
        )
    if have > want:
        return reshape(narrowed(x, dtype), shape=(*rest, n * (have // want)))
    count = want // have
    return widened("view", reshape(x, shape=(*rest, n // count, count)), dtype)


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"uint{8 * dtype.itemsize}")


def _as(x: Any, dtype: np.dtype) -> Any:
    return x if typeof(x).dtype == dtype else casts.bitcast(x, dtype=dtype)


def _shifts(shape: tuple[int, ...], dtype: np.dtype, width: int) -> Any:
    """Along the last axis: 0, then `width` more from each element to the next."""
    place = iota(shape=shape, axis=len(shape) - 1, dtype=dtype)
    return place * dtype.type(width)


def narrowed(x: Any, dtype: np.dtype) -> Any:
    """Each element as several of a narrower dtype, along an axis more."""
    wide, narrow = _unsigned(x.dtype), _unsigned(dtype)
    count, width = x.dtype.itemsize // dtype.itemsize, 8 * dtype.itemsize
    word = spread(_as(x, wide), x.ndim, count)
    word = shift_right_logical(word, _shifts(typeof(word).shape, wide, width))
    lowest = bitwise_and(word, wide.type(2**width - 1))
    return _as(cast(lowest, narrow), dtype)


def widened(name: str, x: Any, dtype: np.dtype) -> Any:
    """The elements along the last axis as one of a wider dtype.

    Raises:
      ValueError: if there are more or less of them than make one.
    """
    wide, narrow = _unsigned(dtype), _unsigned(x.dtype)
    count, width = dtype.itemsize // x.dtype.itemsize, 8 * x.dtype.itemsize
    if not x.ndim or not same_shape(x.shape[-1:], (count,)):
        raise ValueError(
            f"{name} of {x.type} to {dtype.name}: the last axis must have length "
            f"{count}{at(user_source())}"
        )
    word = cast(_as(x, narrow), wide)
    word = shift_left(word, _shifts(x.shape, wide, width))
    return _as(reduce_or(word, axes=(x.ndim - 1,)), dtype)


def threefry2x32(
    k0: ArrayLike, k1: ArrayLike, x0: ArrayLike, x1: ArrayLike, word: str
) -> Array:
    """Threefry-2x32: encrypts the counter (x0, x1) with the key (k0, k1), all uint32.

    word: which word of the result to return: "first", "second", or "xor" of both.
    """
    return random_bits.threefry2x32(*matched("threefry2x32", k0, k1, x0, x1), word=word)
