"""Elementwise functions of one operand, and the roundings."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike, as_array, as_inexact, cast, operand
from treadle.ops import compare, unary
from treadle.ops import complex as parts
from treadle.ops.arithmetic import add, div, mul, neg
from treadle.ops.cast import bitcast
from treadle.ops.movement import full
from treadle.ops.unary import integer_pow
from treadle.run.array import Array
from treadle.trace.op import Op
from treadle.trace.value import typeof

Unary = Callable[[ArrayLike], Array]


def named(function: Any, name: str, doc: str) -> Any:
    """Gives a function made by another the name and docstring that users see."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def floating_function(op: Op, name: str, doc: str) -> Unary:
    """A function whose result is inexact: integers become float32."""

    def function(x: ArrayLike, /) -> Array:
        return op(as_inexact(name, x))

    return named(function, name, doc)


exp = floating_function(unary.exp, "exp", "The exponential function.")
exp2 = floating_function(unary.exp2, "exp2", "2 to the power of each element.")
expm1 = floating_function(unary.expm1, "expm1", "``exp(x) - 1``, accurate near 0.")
log = floating_function(unary.log, "log", "The natural logarithm.")
log1p = floating_function(unary.log1p, "log1p", "``log(1 + x)``, accurate near 0.")
sqrt = floating_function(unary.sqrt, "sqrt", "The square root.")
rsqrt = floating_function(unary.rsqrt, "rsqrt", "``1 / sqrt(x)``.")
cbrt = floating_function(unary.cbrt, "cbrt", "The cube root.")
sin = floating_function(unary.sin, "sin", "The sine of an angle in radians.")
cos = floating_function(unary.cos, "cos", "The cosine of an angle in radians.")
tan = floating_function(unary.tan, "tan", "The tangent of an angle in radians.")
arcsin = floating_function(unary.asin, "arcsin", "The inverse of the sine.")
arccos = floating_function(unary.acos, "arccos", "The inverse of the cosine.")
arctan = floating_function(unary.atan, "arctan", "The inverse of the tangent.")
sinh = floating_function(unary.sinh, "sinh", "The hyperbolic sine.")
cosh = floating_function(unary.cosh, "cosh", "The hyperbolic cosine.")
tanh = floating_function(unary.tanh, "tanh", "The hyperbolic tangent.")
arcsinh = floating_function(
    unary.asinh, "arcsinh", "The inverse of the hyperbolic sine."
)
arccosh = floating_function(
    unary.acosh, "arccosh", "The inverse of the hyperbolic cosine."
)
arctanh = floating_function(
    unary.atanh, "arctanh", "The inverse of the hyperbolic tangent."
)
# The names of the array API.
acos, asin, atan = arccos, arcsin, arctan
acosh, asinh, atanh = arccosh, arcsinh, arctanh


def _of_parts(function: Callable[[Any], Any], x: Any) -> Any:
    """The complex number whose parts are a function of those of x."""
    return parts.complex_(function(parts.real(x)), function(parts.imag(x)))


def _scaled(op: Op | None, factor: float, name: str, doc: str) -> Unary:
    def function(x: ArrayLike, /) -> Array:
        x = as_inexact(name, x)
        out = x if op is None else op(x)
        if dtypes.is_complex(typeof(out).dtype):
            # A product of complex numbers makes infinities not-a-number.
            return _of_parts(lambda part: mul(part, factor), out)
        return mul(out, factor)

    return named(function, name, doc)


_complex_log2 = _scaled(unary.log, 1 / math.log(2), "log2", "")


def log2(x: ArrayLike, /) -> Array:
    """The logarithm to base 2; exact for powers of two."""
    x = as_inexact("log2", x)
    return _complex_log2(x) if dtypes.is_complex(typeof(x).dtype) else unary.log2(x)


log10 = _scaled(unary.log, 1 / math.log(10), "log10", "The logarithm to base 10.")
deg2rad = _scaled(None, math.pi / 180, "deg2rad", "Degrees to radians.")
rad2deg = _scaled(None, 180 / math.pi, "rad2deg", "Radians to degrees.")
radians, degrees = deg2rad, rad2deg


def _unless_integer(op: Op, name: str, doc: str) -> Unary:
    def function(x: ArrayLike, /) -> Array:
        x = operand(name, x)
        return op(x) if dtypes.is_float(typeof(x).dtype) else _whole(name, x)

    return named(function, name, doc)


def _whole(name: str, x: Any) -> Any:
    """Integers round to themselves."""
    t = typeof(x)
    if dtypes.is_complex(t.dtype):
        raise TypeError(f"{name} is not defined for dtype {t.dtype.name}")
    return as_array(x)


floor = _unless_integer(unary.floor, "floor", "The largest integer not above x.")
ceil = _unless_integer(unary.ceil, "ceil", "The smallest integer not below x.")


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
    if dtypes.is_complex(typeof(x).dtype):
        return _of_parts(lambda part: round(part, decimals), x)
    if not dtypes.is_float(typeof(x).dtype) and decimals >= 0:
        return _whole("round", x)
    if decimals == 0:
        return unary.round_(x)
    factor = float(10 ** max(decimals, -decimals))
    y = as_inexact("round", x)
    if decimals > 0:
        return div(unary.round_(mul(y, factor)), factor)
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
    # The branch not taken must not divide by zero: its derivative would be NaN.
    safe = compare.select(small, 1.0, x)
    square = integer_pow(x, n=2)
    # Taylor's series: the quotient has no derivatives at 0, and no digits beside it.
    series = 1.0
    for n in (12, 10, 8, 6, 4, 2):
        series = add(mul(mul(square, -1 / (n * (n + 1))), series), 1.0)
    return compare.select(small, series, div(unary.sin(safe), safe))


def sign(x: ArrayLike, /) -> Array:
    """-1, 0 or 1, by the sign of each element."""
    return unary.sign(operand("sign", x))


def square(x: ArrayLike, /) -> Array:
    """``x * x``."""
    return integer_pow(operand("square", x), n=2)


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


def signbit(x: ArrayLike, /) -> Array:
    """True where the sign is negative, also for -0.0."""
    x = operand("signbit", x)
    t = typeof(x)
    if dtypes.is_float(t.dtype):
        x = bitcast(x, dtype=np.dtype(f"int{8 * t.dtype.itemsize}"))
    return compare.lt(x, 0)


def nan_to_num(
    x: ArrayLike,
    *,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Array:
    """Replaces what is not finite; by default infinities by the largest numbers."""
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
    x = compare.select(compare.ne(x, x), dtype.type(nan), x)
    x = compare.select(compare.eq(x, math.inf), dtype.type(high), x)
    return compare.select(compare.eq(x, -math.inf), dtype.type(low), x)
