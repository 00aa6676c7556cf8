"""Elementwise functions of one operand, and the roundings."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.errors import at, user_source
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_inexact,
    broadcast,
    cast,
    operand,
    static_integer,
)
from treadle.ops import compare, unary
from treadle.ops import complex as parts
from treadle.ops.arithmetic import add, div, mul, neg
from treadle.ops.cast import bitcast
from treadle.ops.movement import full
from treadle.ops.unary import integer_pow
from treadle.run.array import Array
from treadle.trace.value import typeof


def exp(x: ArrayLike, /) -> Array:
    """The exponential function."""
    return unary.exp(as_inexact("exp", x))


def exp2(x: ArrayLike, /) -> Array:
    """2 to the power of each element."""
    return unary.exp2(as_inexact("exp2", x))


def expm1(x: ArrayLike, /) -> Array:
    """``exp(x) - 1``, accurate near 0."""
    return unary.expm1(as_inexact("expm1", x))


def log(x: ArrayLike, /) -> Array:
    """The natural logarithm."""
    return unary.log(as_inexact("log", x))


def log1p(x: ArrayLike, /) -> Array:
    """``log(1 + x)``, accurate near 0."""
    return unary.log1p(as_inexact("log1p", x))


def sqrt(x: ArrayLike, /) -> Array:
    """The square root."""
    return unary.sqrt(as_inexact("sqrt", x))


def cbrt(x: ArrayLike, /) -> Array:
    """The cube root."""
    return unary.cbrt(as_inexact("cbrt", x))


def sin(x: ArrayLike, /) -> Array:
    """The sine of an angle in radians."""
    return unary.sin(as_inexact("sin", x))


def cos(x: ArrayLike, /) -> Array:
    """The cosine of an angle in radians."""
    return unary.cos(as_inexact("cos", x))


def tan(x: ArrayLike, /) -> Array:
    """The tangent of an angle in radians."""
    return unary.tan(as_inexact("tan", x))


def arcsin(x: ArrayLike, /) -> Array:
    """The inverse of the sine."""
    return unary.asin(as_inexact("arcsin", x))


def arccos(x: ArrayLike, /) -> Array:
    """The inverse of the cosine."""
    return unary.acos(as_inexact("arccos", x))


def arctan(x: ArrayLike, /) -> Array:
    """The inverse of the tangent."""
    return unary.atan(as_inexact("arctan", x))


def sinh(x: ArrayLike, /) -> Array:
    """The hyperbolic sine."""
    return unary.sinh(as_inexact("sinh", x))


def cosh(x: ArrayLike, /) -> Array:
    """The hyperbolic cosine."""
    return unary.cosh(as_inexact("cosh", x))


def tanh(x: ArrayLike, /) -> Array:
    """The hyperbolic tangent."""
    return unary.tanh(as_inexact("tanh", x))


def arcsinh(x: ArrayLike, /) -> Array:
    """The inverse of the hyperbolic sine."""
    return unary.asinh(as_inexact("arcsinh", x))


def arccosh(x: ArrayLike, /) -> Array:
    """The inverse of the hyperbolic cosine."""
    return unary.acosh(as_inexact("arccosh", x))


def arctanh(x: ArrayLike, /) -> Array:
    """The inverse of the hyperbolic tangent."""
    return unary.atanh(as_inexact("arctanh", x))


# The names of the array API.
acos, asin, atan = arccos, arcsin, arctan
acosh, asinh, atanh = arccosh, arcsinh, arctanh


def _of_parts(function: Callable[[Any], Any], x: Any) -> Any:
    """The complex number whose parts are a function of those of x."""
    return parts.complex_(function(parts.real(x)), function(parts.imag(x)))


def _scaled(x: Any, factor: float) -> Any:
    if dtypes.is_complex(typeof(x).dtype):
        # A product of complex numbers makes infinities not-a-number.
        return _of_parts(lambda part: mul(part, factor), x)
    return mul(x, factor)


def log2(x: ArrayLike, /) -> Array:
    """The logarithm to base 2; exact for powers of two."""
    x = as_inexact("log2", x)
    if dtypes.is_complex(typeof(x).dtype):
        return _scaled(unary.log(x), 1 / math.log(2))
    return unary.log2(x)


def log10(x: ArrayLike, /) -> Array:
    """The logarithm to base 10."""
    return _scaled(unary.log(as_inexact("log10", x)), 1 / math.log(10))


def deg2rad(x: ArrayLike, /) -> Array:
    """Degrees to radians."""
    return _scaled(as_inexact("deg2rad", x), math.pi / 180)


def rad2deg(x: ArrayLike, /) -> Array:
    """Radians to degrees."""
    return _scaled(as_inexact("rad2deg", x), 180 / math.pi)


radians, degrees = deg2rad, rad2deg


def _whole(name: str, x: Any) -> Any:
    """Integers round to themselves."""
    t = typeof(x)
    if dtypes.is_complex(t.dtype):
        raise TypeError(
            f"{name} is not defined for complex numbers, got {t}{at(user_source())}\n"
            "Take their parts: `tnp.real(x)`, `tnp.imag(x)`."
        )
    return as_array(x)


def floor(x: ArrayLike, /) -> Array:
    """The largest integer not above x."""
    x = operand("floor", x)
    return unary.floor(x) if dtypes.is_float(typeof(x).dtype) else _whole("floor", x)


def ceil(x: ArrayLike, /) -> Array:
    """The smallest integer not below x."""
    x = operand("ceil", x)
    return unary.ceil(x) if dtypes.is_float(typeof(x).dtype) else _whole("ceil", x)


def rint(x: ArrayLike, /) -> Array:
    """The nearest integer; halves to even. Complex numbers by parts."""
    x = as_inexact("rint", x)
    if dtypes.is_complex(typeof(x).dtype):
        return _of_parts(unary.round_, x)
    return unary.round_(x)


def trunc(x: ArrayLike, /) -> Array:
    """The integer part: rounds towards zero."""
    x = operand("trunc", x)
    if not dtypes.is_float(typeof(x).dtype):
        return _whole("trunc", x)
    return compare.select(
        compare.lt(x, 0.0),
        unary.ceil(x),
        unary.floor(x),
    )


def round(x: ArrayLike, decimals: int = 0) -> Array:
    """Rounds to a number of decimals; halves to even. Complex numbers by parts."""
    x = operand("round", x)
    decimals = static_integer("round", "`decimals`", decimals)
    if dtypes.is_complex(typeof(x).dtype):
        return _of_parts(lambda part: round(part, decimals), x)
    if not dtypes.is_float(typeof(x).dtype) and decimals >= 0:
        return _whole("round", x)
    if decimals == 0:
        return unary.round_(x)
    factor = float(10 ** max(decimals, -decimals))
    y = as_inexact("round", x)
    if decimals > 0 and factor > float(ml_dtypes.finfo(typeof(y).dtype).max):
        return as_array(y)
    if decimals > 0:
        scaled = mul(y, factor)
        # Of what overflows so, all digits stay.
        inside = compare.is_finite(scaled)
        return compare.select(inside, div(unary.round_(scaled), factor), y)
    return cast(mul(unary.round_(div(y, factor)), factor), typeof(x).dtype)


around = round


def negative(x: ArrayLike, /) -> Array:
    """``-x``."""
    return neg(operand("negative", x))


def positive(x: ArrayLike, /) -> Array:
    """``+x``: x itself."""
    return as_array(operand("positive", x))


def abs(x: ArrayLike, /) -> Array:
    """The absolute value; for complex numbers the modulus. Its derivative at 0 is 0."""
    x = operand("abs", x)
    return as_array(x) if typeof(x).dtype == dtypes.bool_ else unary.abs_(x)


absolute = abs


def fabs(x: ArrayLike, /) -> Array:
    """The absolute value of a real number, as a float."""
    x = as_inexact("fabs", x)
    if dtypes.is_complex(typeof(x).dtype):
        raise TypeError(
            f"fabs is not defined for complex numbers, got {typeof(x)}"
            f"{at(user_source())}\nUse `tnp.abs`."
        )
    return unary.abs_(x)


def sinc(x: ArrayLike, /) -> Array:
    """``sin(π x) / (π x)``, 1 at 0."""
    x = mul(as_inexact("sinc", x), math.pi)
    small = compare.lt(unary.abs_(x), 0.25)
    # The branch not taken must neither divide by zero nor overflow: its derivative
    # would be NaN.
    safe = compare.select(small, 1.0, x)
    square = integer_pow(compare.select(small, x, 0.0), n=2)
    # Taylor's series: the quotient has no derivatives at 0, and no digits beside it.
    series = 1.0
    for n in (12, 10, 8, 6, 4, 2):
        series = add(mul(mul(square, -1 / (n * (n + 1))), series), 1.0)
    return compare.select(small, series, div(unary.sin(safe), safe))


def sign(x: ArrayLike, /) -> Array:
    """-1, 0 or 1, by the sign of each element."""
    return unary.sign(operand("sign", x))


def square(x: ArrayLike, /) -> Array:
    """``x * x``; True counts as 1."""
    x = operand("square", x)
    if typeof(x).dtype == dtypes.bool_:
        x = cast(x, dtypes.int32)
    return integer_pow(x, n=2)


def reciprocal(x: ArrayLike, /) -> Array:
    """``1 / x``."""
    return div(1, as_inexact("reciprocal", x))


def logical_not(x: ArrayLike, /) -> Array:
    """True where x is zero (or False)."""
    return compare.bitwise_not(cast(operand("logical_not", x), dtypes.bool_))


def bitwise_not(x: ArrayLike, /) -> Array:
    """Flips each bit; for booleans, not."""
    return compare.bitwise_not(operand("bitwise_not", x))


invert = bitwise_invert = bitwise_not


def _everywhere(value: bool, x: Any) -> Any:
    return full(typeof(x).shape, value, dtypes.bool_)


def isnan(x: ArrayLike, /) -> Array:
    """True where x is not a number."""
    x = operand("isnan", x)
    if not dtypes.is_differentiable(typeof(x).dtype):
        return _everywhere(False, x)
    return compare.ne(x, x)


def isfinite(x: ArrayLike, /) -> Array:
    """True where x is neither infinite nor not-a-number."""
    x = operand("isfinite", x)
    if dtypes.is_complex(typeof(x).dtype):
        both = isfinite(parts.real(x)), isfinite(parts.imag(x))
        return compare.bitwise_and(*both)
    if not dtypes.is_float(typeof(x).dtype):
        return _everywhere(True, x)
    return compare.is_finite(x)


def isinf(x: ArrayLike, /) -> Array:
    """True where x is positive or negative infinity."""
    x = operand("isinf", x)
    if not dtypes.is_differentiable(typeof(x).dtype):
        return _everywhere(False, x)
    return compare.eq(unary.abs_(x), math.inf)


def isposinf(x: ArrayLike, /) -> Array:
    """True where x is positive infinity."""
    return compare.eq(as_inexact("isposinf", x), math.inf)


def isneginf(x: ArrayLike, /) -> Array:
    """True where x is negative infinity."""
    return compare.eq(as_inexact("isneginf", x), -math.inf)


def no_complex(name: str, t: ArrayType) -> None:
    """Raises TypeError for complex numbers."""
    if dtypes.is_complex(t.dtype):
        raise TypeError(
            f"{name}: complex numbers are not supported, got {t}{at(user_source())}"
        )


def signbit(x: ArrayLike, /) -> Array:
    """True where the sign is negative, also for -0.0.

    Raises:
      TypeError: for complex numbers, which have no sign.
    """
    x = operand("signbit", x)
    t = typeof(x)
    no_complex("signbit", t)
    if dtypes.is_float(t.dtype):
        x = bitcast(x, dtype=np.dtype(f"int{8 * t.dtype.itemsize}"))
    return compare.lt(x, typeof(x).dtype.type(0))


def nan_to_num(
    x: ArrayLike,
    *,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
    copy: bool = True,
) -> Array:
    """Replaces what is not finite; by default infinities by the largest numbers.

    Args:
      nan, posinf, neginf: the replacements: numbers, which may be traced, or arrays.
      copy: has no effect: arrays do not change.
    """
    x = operand("nan_to_num", x)
    dtype = typeof(x).dtype
    if dtypes.is_complex(dtype):
        of_one = partial(nan_to_num, nan=nan, posinf=posinf, neginf=neginf)
        return _of_parts(of_one, x)
    if not dtypes.is_float(dtype):
        return as_array(x)
    limits = ml_dtypes.finfo(dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf
    where = (compare.ne(x, x), compare.eq(x, math.inf), compare.eq(x, -math.inf))
    for there, value in zip(where, (nan, high, low), strict=True):
        x = compare.select(*broadcast("nan_to_num", (there, cast(value, dtype), x)))
    return as_array(x)
