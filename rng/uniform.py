"""Uniform distributions, of real numbers and of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

import treadle.numpy as tnp
from treadle import Array, dtypes, typeof
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np.bits import bitcast
from treadle.rng.key import Key, as_shape, check_key, compiled, random_bits, split


def float_dtype(name: str, dtype: Any) -> np.dtype:
    """The dtype, if it is a real floating-point one.

    Raises:
      TypeError: if it is not.
    """
    found = dtypes.canonical(dtype)
    if not dtypes.is_float(found):
        raise TypeError(
            f"{name}: dtype must be a real floating-point type, got {found.name}"
            f"{at(user_source())}"
        )
    return found


def fitting_shape(name: str, shape: Any, *parameters: Any) -> tuple[int, ...]:
    """The shape of the result: that of the parameters, if `shape` is None.

    Raises:
      ValueError: if the parameters don't broadcast to the shape.
    """
    needed = tnp.broadcast_shapes(*[typeof(p).shape for p in parameters])
    if shape is None:
        return needed
    wanted = as_shape(name, shape)
    try:
        fits = tnp.broadcast_shapes(wanted, needed) == wanted
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name}: parameters of shape {needed} don't broadcast to shape {wanted}"
            f"{at(user_source())}"
        )
    return wanted


@compiled
def unit(key: Key, *, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Numbers in [0, 1): random mantissa bits behind the exponent of 1, minus 1."""
    info = ml_dtypes.finfo(dtype)
    pattern = np.dtype(f"uint{info.bits}")
    width = 8 if info.nmant < 8 else info.bits
    mantissa = random_bits(key, shape=shape, dtype=np.dtype(f"uint{width}")).astype(
        pattern
    )
    mantissa = mantissa >> (width - info.nmant)
    one = np.ones((), dtype).view(pattern)[()]
    return bitcast(mantissa | one, dtype) - 1


def uniform(
    key: Key,
    shape: Sequence[int] = (),
    dtype: DTypeLike = tnp.float32,
    minval: Any = 0.0,
    maxval: Any = 1.0,
) -> Array:
    """Numbers spread evenly over [minval, maxval).

    Differentiable in `minval` and `maxval`, which broadcast to `shape`.
    """
    check_key("uniform", key)
    wanted = float_dtype("uniform", dtype)
    shape = fitting_shape("uniform", shape, minval, maxval)
    if type(minval) is float and type(maxval) is float and (minval, maxval) == (0, 1):
        return unit(key, shape=shape, dtype=wanted)
    low, high = (tnp.asarray(v).astype(wanted) for v in (minval, maxval))
    return _uniform(key, low, high, shape=shape, dtype=wanted)


@compiled
def _uniform(
    key: Key, low: Any, high: Any, *, shape: tuple[int, ...], dtype: np.dtype
) -> Array:
    return between(key, low, high, shape=shape, dtype=dtype).astype(dtype)


def between(
    key: Key, low: Any, high: Any, *, shape: tuple[int, ...], dtype: np.dtype
) -> Array:
    """`uniform` without its checks, for use in compiled functions.

    The numbers of a 16-bit dtype come as float32 with the precision of the dtype.
    """
    wide = working_dtype(dtype)
    low, high = low.astype(wide), high.astype(wide)
    scaled = unit(key, shape=shape, dtype=dtype).astype(wide) * rounded(
        high - low, dtype
    )
    if dtype == dtypes.bfloat16:
        scaled = rounded(scaled, dtype)
    # Rounding may fall below the interval.
    return tnp.maximum(low, rounded(scaled + low, dtype))


def working_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which formulas for numbers of a dtype are computed."""
    return dtypes.float32 if dtype.itemsize == 2 else dtype


def rounded(x: Any, dtype: np.dtype) -> Any:
    """Numbers of the working dtype, with the precision of the dtype.

    A fused kernel keeps float32 between the operations on 16-bit numbers. The numbers
    of a key are to be the same in every program, and in others that round.
    """
    return x.astype(dtype).astype(x.dtype) if dtype != x.dtype else x


def randint(
    key: Key,
    shape: Sequence[int],
    minval: Any,
    maxval: Any,
    dtype: DTypeLike = tnp.int32,
) -> Array:
    """Integers spread evenly over [minval, maxval)."""
    check_key("randint", key)
    wanted = dtypes.canonical(dtype)
    if not dtypes.is_integer(wanted):
        raise TypeError(
            f"randint: dtype must be an integer type, got {wanted.name}"
            f"{at(user_source())}"
        )
    shape = fitting_shape("randint", shape, minval, maxval)
    if wanted.itemsize < 4:
        # With few bits the remainder would be biased.
        low = _within(minval, wanted).astype(tnp.int32)
        high = _within(maxval, wanted).astype(tnp.int32) + _beyond(maxval, wanted)
        return randint(key, shape, low, high).astype(wanted)
    low, high = _within(minval, wanted), _within(maxval, wanted)
    beyond = _beyond(maxval, wanted)
    return _integers(key, low, high, beyond, shape=shape, dtype=wanted)


@compiled
def _integers(
    key: Key, low: Any, high: Any, beyond: Any, *, shape: Any, dtype: np.dtype
) -> Array:
    """beyond: whether `high` is one more than it says, which the dtype can't hold."""
    pattern = np.dtype(f"uint{8 * dtype.itemsize}")
    some = high > low
    span = tnp.where(some, (high - low).astype(pattern), pattern.type(1))
    span = tnp.where(beyond & some, span + pattern.type(1), span)
    # Twice the bits that the dtype has, so that the remainder is nearly unbiased:
    # (upper * 2**width + lower) mod span, without overflow.
    upper, lower = (random_bits(k, shape=shape, dtype=pattern) for k in split(key))
    half = tnp.fmod(pattern.type(2 ** (4 * pattern.itemsize)), span)
    width = tnp.fmod(half * half, span)
    offset = tnp.fmod(tnp.fmod(upper, span) * width + tnp.fmod(lower, span), span)
    return low + offset.astype(dtype)


def _beyond(limit: Any, dtype: np.dtype) -> Any:
    largest = int(np.iinfo(dtype).max)
    if isinstance(limit, int):
        return tnp.asarray(limit > largest)
    if largest > int(np.iinfo(typeof(limit).dtype).max):
        return tnp.asarray(False)
    return tnp.asarray(limit) > typeof(limit).dtype.type(largest)


def _within(limit: Any, dtype: np.dtype) -> Any:
    """The limit, cut down to what the dtype can hold."""
    info = np.iinfo(dtype)
    if isinstance(limit, int):
        return tnp.asarray(min(max(limit, int(info.min)), int(info.max)), dtype)
    have = typeof(limit).dtype
    if not dtypes.is_integer(have):
        raise TypeError(
            f"randint: limits are integers, got {typeof(limit)}{at(user_source())}"
        )
    other = np.iinfo(have)
    low, high = max(info.min, other.min), min(info.max, other.max)
    return tnp.clip(limit, have.type(low), have.type(high)).astype(dtype)
