"""Functions of each element by itself: operands have one dtype and one shape."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.lax.operands import alike, array
from treadle.np.elementwise import trunc as _trunc
from treadle.np.made import named
from treadle.np.operands import ArrayLike, as_array, cast, operand
from treadle.ops import arithmetic, binary, compare, unary
from treadle.ops import complex as parts
from treadle.ops.movement import expand
from treadle.run.array import Array
from treadle.trace.op import Op
from treadle.trace.value import typeof

Unary = Callable[[ArrayLike], Array]
Binary = Callable[[ArrayLike, ArrayLike], Array]


def _unary(op: Op, name: str, doc: str) -> Unary:
    def function(x: ArrayLike, /) -> Array:
        return op(array(name, x))

    return named(function, name, doc)


def _binary(op: Op, name: str, doc: str) -> Binary:
    def function(x: ArrayLike, y: ArrayLike, /) -> Array:
        return op(*alike(name, x, y))

    return named(function, name, f"{doc} Both of one dtype and shape, or scalars.")


abs = _unary(unary.abs_, "abs", "The absolute value.")
neg = _unary(arithmetic.neg, "neg", "``-x``.")
sign = _unary(unary.sign, "sign", "-1, 0 or 1; of complex numbers, the direction.")
floor = _unary(unary.floor, "floor", "The next whole number below.")
ceil = _unary(unary.ceil, "ceil", "The next whole number above.")
exp = _unary(unary.exp, "exp", "The exponential function.")
exp2 = _unary(unary.exp2, "exp2", "2 to the power of each element.")
expm1 = _unary(unary.expm1, "expm1", "``exp(x) - 1``, accurate near 0.")
log = _unary(unary.log, "log", "The natural logarithm.")
log1p = _unary(unary.log1p, "log1p", "``log(1 + x)``, accurate near 0.")
sqrt = _unary(unary.sqrt, "sqrt", "The square root.")
rsqrt = _unary(unary.rsqrt, "rsqrt", "One by the square root.")
cbrt = _unary(unary.cbrt, "cbrt", "The cube root.")
sin = _unary(unary.sin, "sin", "The sine.")
cos = _unary(unary.cos, "cos", "The cosine.")
tan = _unary(unary.tan, "tan", "The tangent.")
asin = _unary(unary.asin, "asin", "The inverse of the sine.")
acos = _unary(unary.acos, "acos", "The inverse of the cosine.")
atan = _unary(unary.atan, "atan", "The inverse of the tangent.")
sinh = _unary(unary.sinh, "sinh", "The hyperbolic sine.")
cosh = _unary(unary.cosh, "cosh", "The hyperbolic cosine.")
tanh = _unary(unary.tanh, "tanh", "The hyperbolic tangent.")
asinh = _unary(unary.asinh, "asinh", "The inverse of the hyperbolic sine.")
acosh = _unary(unary.acosh, "acosh", "The inverse of the hyperbolic cosine.")
atanh = _unary(unary.atanh, "atanh", "The inverse of the hyperbolic tangent.")
logistic = _unary(unary.logistic, "logistic", "``1 / (1 + exp(-x))``.")
erf = _unary(unary.erf, "erf", "The error function.")
erfc = _unary(unary.erfc, "erfc", "``1 - erf(x)``, accurate for large x.")
erf_inv = _unary(unary.erf_inv, "erf_inv", "The inverse of the error function.")
lgamma = _unary(unary.lgamma, "lgamma", "The logarithm of the gamma function's size.")
digamma = _unary(unary.digamma, "digamma", "The derivative of `lgamma`.")
real = _unary(parts.real, "real", "The real part of complex numbers.")
imag = _unary(parts.imag, "imag", "The imaginary part of complex numbers.")
is_finite = _unary(
    compare.is_finite, "is_finite", "Whether x is neither infinite nor not-a-number."
)
bitwise_not = _unary(compare.bitwise_not, "bitwise_not", "``~x``.")
population_count = _unary(
    compare.population_count, "population_count", "How many bits of an integer are 1."
)
clz = _unary(compare.clz, "clz", "How many of an integer's highest bits are 0.")

add = _binary(arithmetic.add, "add", "``x + y``.")
sub = _binary(arithmetic.sub, "sub", "``x - y``.")
mul = _binary(arithmetic.mul, "mul", "``x * y``.")
div = _binary(
    arithmetic.div, "div", "``x / y``; of integers towards 0, and -1 for y = 0."
)
rem = _binary(binary.rem, "rem", "What `div` leaves; it has the sign of x.")
max = _binary(binary.maximum, "max", "The larger one; not-a-number beats all.")
min = _binary(binary.minimum, "min", "The smaller one; not-a-number beats all.")
atan2 = _binary(binary.atan2, "atan2", "The angle of the point (y, x): y comes first.")
nextafter = _binary(
    binary.nextafter, "nextafter", "The next number after x in the direction of y."
)
eq = _binary(compare.eq, "eq", "``x == y``.")
ne = _binary(compare.ne, "ne", "``x != y``.")
lt = _binary(compare.lt, "lt", "``x < y``.")
le = _binary(compare.le, "le", "``x <= y``.")
gt = _binary(compare.gt, "gt", "``x > y``.")
ge = _binary(compare.ge, "ge", "``x >= y``.")
bitwise_and = _binary(compare.bitwise_and, "bitwise_and", "``x & y``.")
bitwise_or = _binary(compare.bitwise_or, "bitwise_or", "``x | y``.")
bitwise_xor = _binary(compare.bitwise_xor, "bitwise_xor", "``x ^ y``.")
shift_left = _binary(
    compare.shift_left, "shift_left", "``x << y``; 0 if y is the width or more."
)
shift_right_logical = _binary(
    compare.shift_right_logical, "shift_right_logical", "``x >> y``; zeros come in."
)
shift_right_arithmetic = _binary(
    compare.shift_right_arithmetic,
    "shift_right_arithmetic",
    "``x >> y``; copies of the sign come in.",
)
complex = _binary(
    parts.complex_, "complex", "Complex numbers of real and imaginary parts."
)


def conj(x: ArrayLike, /) -> Array:
    """The conjugate, as complex numbers."""
    found = array("conj", x)
    if dtypes.is_complex(found.dtype):
        return parts.conj(found)
    zero = expand(found.dtype.type(0), found.shape)
    return parts.complex_(found, zero)


def square(x: ArrayLike, /) -> Array:
    """``x * x``."""
    found = array("square", x)
    return arithmetic.mul(found, found)


def reciprocal(x: ArrayLike, /) -> Array:
    """``1 / x``."""
    return arithmetic.div(1.0, array("reciprocal", x))


def integer_pow(x: ArrayLike, y: int) -> Array:
    """x to the power of an integer that is known while tracing."""
    return unary.integer_pow(array("integer_pow", x), n=int(y))


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of `digamma` of order m, a whole number known while tracing.

    Raises:
      ValueError: if m is negative.
    """
    n = int(np.asarray(m))
    if n < 0:
        raise ValueError(f"polygamma of order {n}{at(user_source())}")
    found = array("polygamma", x)
    return unary.polygamma(found, n=n) if n else unary.digamma(found)


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """``x ** y``. The exponents of floats may be integers.

    Raises:
      TypeError: for integers to the power of anything.
    """
    base, exponent = operand("pow", x), operand("pow", y)
    if dtypes.is_integer(typeof(exponent).dtype):
        exponent = cast(exponent, typeof(base).dtype)
    return binary.pow_(*alike("pow", base, exponent))


class RoundingMethod(enum.IntEnum):
    """Where `round` goes from the middle between two whole numbers."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(
    x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO
) -> Array:
    """The nearest whole number; from the middle, by default, the one further from 0.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x = tnp.array([0.5, 1.5])
    >>> td.lax.round(x), td.lax.round(x, td.lax.RoundingMethod.TO_NEAREST_EVEN)
    (Array([1., 2.], dtype=float32), Array([0., 2.], dtype=float32))
    """
    found = array("round", x)
    if RoundingMethod(rounding_method) is RoundingMethod.TO_NEAREST_EVEN:
        return unary.round_(found)
    whole = _trunc(found)
    rest = unary.abs_(arithmetic.sub(found, whole))
    further = arithmetic.add(whole, unary.sign(found))
    return compare.select(compare.ge(rest, 0.5), further, whole)


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """x, but at least `min` and at most `max`, which may be scalars."""
    return binary.clamp(*alike("clamp", min, x, max))


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Elements of `on_true` where a condition (or a scalar one) holds, of `on_false`
    elsewhere."""
    # An array first: a Python bool alone takes the dtype of what it stands beside.
    return compare.select(array("select", pred), *alike("select", on_true, on_false))


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """The elements of the case whose number stands in `which`: bools for two cases,
    int32 for any number. Numbers out of range take the nearest case.

    Raises:
      TypeError: if there is no case, or `which` can't choose among them.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.lax.select_n(tnp.array([2, 0]), *tnp.array([[1, 2], [3, 4], [5, 6]]))
    Array([5, 2], dtype=int32)
    """
    number = array("select_n", which)
    known = number.dtype == dtypes.bool_ and len(cases) <= 2
    if not cases or not (known or number.dtype == dtypes.int32):
        raise TypeError(
            f"select_n: `which` is {number.type} for {len(cases)} cases"
            f"{at(user_source())}\nOne case or more; by int32, or by bool for two."
        )
    if not known:
        return _chosen(number, alike("select_n", *cases))
    *first, last = alike("select_n", *cases)
    return compare.select(number, last, first[0]) if first else as_array(last)


def _chosen(number: Any, cases: list[Any]) -> Any:
    out = as_array(cases[0])
    for i, case in enumerate(cases[1:], 1):
        out = compare.select(compare.ge(number, np.int32(i)), case, out)
    return out


def convert_element_type(operand_: ArrayLike, new_dtype: Any) -> Array:
    """The array with another dtype; floats saturate towards integers.

    Raises:
      TypeError: from complex to real numbers: take `real` first.
    """
    dtype = dtypes.canonical(new_dtype)
    return as_array(cast(operand("convert_element_type", operand_), dtype))
