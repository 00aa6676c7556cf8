"""Floating-point numbers as a fraction and a power of two, and as whole and rest."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np.binary import copysign
from treadle.np.elementwise import floor
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_inexact,
    broadcast,
    cast,
    operand,
)
from treadle.ops.arithmetic import add, mul, sub
from treadle.ops.binary import maximum
from treadle.ops.cast import bitcast
from treadle.ops.compare import (
    bitwise_and,
    eq,
    is_finite,
    lt,
    select,
    shift_left,
    shift_right_logical,
)
from treadle.ops.unary import abs_
from treadle.run.array import Array
from treadle.trace.value import typeof


def _real(name: str, x: Any) -> tuple[Any, np.dtype]:
    """The operand as an array of float32 or float64, and its own dtype."""
    x = as_array(as_inexact(name, x))
    if dtypes.is_complex(x.dtype):
        raise TypeError(
            f"{name} is not defined for complex numbers: {x.type}{at(user_source())}"
        )
    return (cast(x, dtypes.float32) if x.dtype.itemsize == 2 else x), x.dtype


def _layout(dtype: np.dtype) -> tuple[np.dtype, int, int]:
    """The integers that hold the bits of a float, the bits of its fraction, and what is
    added to its exponent."""
    info = ml_dtypes.finfo(dtype)
    return np.dtype(f"int{8 * dtype.itemsize}"), info.nmant, 1 - info.minexp


def _power_of_two(exponent: Any, dtype: np.dtype) -> Any:
    """``2 ** exponent`` exactly, where that is a normal number."""
    bits, fraction, bias = _layout(dtype)
    place = add(cast(exponent, bits), bits.type(bias))
    return bitcast(shift_left(place, bits.type(fraction)), dtype=dtype)


def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """A fraction from 0.5 to 1 (with the sign of x), and the exponent (int32):
    ``x = fraction * 2 ** exponent``.

    The fraction of 0, infinities and not-a-number is x, their exponent 0.
    """
    x, dtype = _real("frexp", x)
    exponent = _exponent(x)
    return cast(_scaled(x, -exponent), dtype), exponent


def _exponent(x: Any) -> Any:
    bits, fraction, bias = _layout(x.dtype)
    # Subnormal numbers have no exponent of their own.
    small = lt(abs_(x), x.dtype.type(ml_dtypes.finfo(x.dtype).tiny))
    normal = select(small, mul(x, x.dtype.type(2.0**fraction)), x)
    raw = shift_right_logical(bitcast(normal, dtype=bits), bits.type(fraction))
    raw = bitwise_and(raw, bits.type(2 * bias + 1))
    lifted = select(small, bits.type(bias - 1 + fraction), bits.type(bias - 1))
    usual = bitwise_and(is_finite(x), eq(eq(x, x.dtype.type(0)), False))
    return cast(select(usual, sub(raw, lifted), bits.type(0)), dtypes.int32)


def ldexp(x: ArrayLike, exponent: ArrayLike, /) -> Array:
    """``x * 2 ** exponent``; the exponent is an integer."""
    x, dtype = _real("ldexp", x)
    exponent = operand("ldexp", exponent)
    if not dtypes.is_integer(typeof(exponent).dtype):
        raise TypeError(
            f"ldexp: the exponent is an integer, got {typeof(exponent)}"
            f"{at(user_source())}"
        )
    limit = 2**30
    if not np.can_cast(typeof(exponent).dtype, np.int32):
        wide = typeof(exponent).dtype.type
        exponent = select(lt(exponent, wide(limit)), exponent, wide(limit))
        if not dtypes.is_unsigned(typeof(exponent).dtype):
            exponent = maximum(exponent, wide(-limit))
    x, exponent = broadcast("ldexp", (x, as_array(cast(exponent, dtypes.int32))))
    return cast(_scaled(x, exponent), dtype)


def _scaled(x: Any, exponent: Any) -> Any:
    """In steps that are normal numbers; the first ones stop short of subnormal
    results, which would be rounded twice."""
    dtype = typeof(x).dtype
    _, fraction, bias = _layout(dtype)
    low, high = fraction + 1 - bias, bias
    for last in (False, False, True):
        least = np.int32(1 - bias if last else low)
        step = select(lt(exponent, least), least, exponent)
        step = select(lt(step, np.int32(high)), step, np.int32(high))
        x = mul(x, _power_of_two(step, dtype))
        exponent = sub(exponent, step)
    return x


def modf(x: ArrayLike, /) -> tuple[Array, Array]:
    """What is behind the point, and the whole number before it; both have the sign of
    x."""
    array = as_array(as_inexact("modf", x))
    one, zero, infinity = map(array.dtype.type, (1, 0, math.inf))
    # As a factor it has no part in the derivative, which is 1 at whole numbers, too.
    sign = copysign(one, array)
    size = mul(array, sign)
    whole = floor(size)
    rest = select(eq(size, infinity), zero, sub(size, whole))
    return mul(rest, sign), mul(whole, sign)


def spacing(x: ArrayLike, /) -> Array:
    """The distance from x to the next number that is further from 0, with x's sign."""
    array, dtype = _real("spacing", x)
    info = ml_dtypes.finfo(dtype)
    finest = np.int32(info.minexp - info.nmant)
    exponent = sub(_exponent(array), np.int32(1 + info.nmant))
    exponent = select(eq(array, array.dtype.type(0)), finest, exponent)
    step = maximum(exponent, finest)
    one = select(is_finite(array), array.dtype.type(1), array.dtype.type(math.nan))
    return cast(copysign(_scaled(one, step), array), dtype)
