"""Elementwise functions of two operands and more, with broadcasting and promotion."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np.elementwise import signbit
from treadle.np.operands import (
    ArrayLike,
    as_array,
    broadcast,
    cast,
    inexact_pair,
    operand,
    pair,
    promoted,
)
from treadle.np.ufunc import ufunc
from treadle.ops import arithmetic, binary, compare, unary
from treadle.ops.compare import bitwise_and as and_
from treadle.ops.compare import bitwise_or as or_
from treadle.ops.compare import ne, select
from treadle.run.array import Array
from treadle.trace.value import typeof


@ufunc
def add(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x + y``; for booleans, or."""
    x, y = pair("add", x, y)
    return or_(x, y) if typeof(x).dtype == dtypes.bool_ else arithmetic.add(x, y)


@ufunc
def subtract(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x - y``."""
    return arithmetic.sub(*pair("subtract", x, y))


@ufunc
def multiply(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x * y``; for booleans, and."""
    x, y = pair("multiply", x, y)
    return and_(x, y) if typeof(x).dtype == dtypes.bool_ else arithmetic.mul(x, y)


@ufunc
def maximum(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The larger of two numbers.

    Of equal ones it is the first (zeros may differ in their signs); they
    share the derivative. Not-a-number wins. Complex numbers are ordered by their real
    parts, then by their imaginary parts.
    """
    x, y = pair("maximum", x, y)
    return or_(x, y) if typeof(x).dtype == dtypes.bool_ else binary.maximum(x, y)


@ufunc
def minimum(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The smaller of two numbers.

    Of equal ones it is the first (zeros may differ in their signs); they
    share the derivative. Not-a-number wins. Complex numbers are ordered by their real
    parts, then by their imaginary parts.
    """
    x, y = pair("minimum", x, y)
    return and_(x, y) if typeof(x).dtype == dtypes.bool_ else binary.minimum(x, y)


def _ordered(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """The operands of a comparison: an integer beyond the reach of an array's dtype is
    as far away as infinity."""
    try:
        return pair(name, x, y)
    except OverflowError:
        arrays = [v for v in (x, y) if type(v) is not int]
        if not all([dtypes.is_integer(typeof(v).dtype) for v in arrays]):
            raise
        x, y = (_far(v) if type(v) is int else v for v in (x, y))
        return pair(name, x, y)


def _far(number: int) -> float:
    return math.inf if number > 0 else -math.inf


@ufunc
def equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x == y``."""
    return compare.eq(*_ordered("equal", x, y))


@ufunc
def not_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x != y``."""
    return compare.ne(*_ordered("not_equal", x, y))


@ufunc
def less(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x < y``."""
    return compare.lt(*_ordered("less", x, y))


@ufunc
def less_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x <= y``."""
    return compare.le(*_ordered("less_equal", x, y))


@ufunc
def greater(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x > y``."""
    return compare.gt(*_ordered("greater", x, y))


@ufunc
def greater_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x >= y``."""
    return compare.ge(*_ordered("greater_equal", x, y))


@ufunc
def bitwise_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x & y``."""
    return and_(*pair("bitwise_and", x, y))


@ufunc
def bitwise_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x | y``."""
    return or_(*pair("bitwise_or", x, y))


@ufunc
def bitwise_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x ^ y``."""
    return compare.bitwise_xor(*pair("bitwise_xor", x, y))


@ufunc
def left_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x << y``."""
    return compare.shift_left(*pair("left_shift", x, y))


bitwise_left_shift = left_shift


@ufunc
def right_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x >> y``; signed integers keep their sign."""
    x, y = pair("right_shift", x, y)
    if dtypes.is_unsigned(typeof(x).dtype):
        return compare.shift_right_logical(x, y)
    return compare.shift_right_arithmetic(x, y)


bitwise_right_shift = right_shift


@ufunc
def divide(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x / y``; of integers, as float32."""
    return arithmetic.div(*inexact_pair("divide", x, y))


true_divide = divide


@ufunc
def arctan2(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The angle of the point (y, x), in its right quadrant."""
    return binary.atan2(*inexact_pair("arctan2", x, y))


atan2 = arctan2


@ufunc
def nextafter(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The next number after x in the direction of y."""
    return binary.nextafter(*inexact_pair("nextafter", x, y))


def _truths(name: str, x: Any, y: Any) -> Any:
    """The operands of a function of truth values: numbers count as ``x != 0``."""
    return broadcast(name, [cast(operand(name, v), dtypes.bool_) for v in (x, y)])


@ufunc
def logical_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    """True where x and y are."""
    return and_(*_truths("logical_and", x, y))


@ufunc
def logical_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    """True where x or y is."""
    return or_(*_truths("logical_or", x, y))


@ufunc
def logical_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """True where one of them is."""
    return compare.bitwise_xor(*_truths("logical_xor", x, y))


@ufunc
def fmax(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The larger of two numbers; a number wins over not-a-number."""
    x, y = pair("fmax", x, y)
    return select(ne(y, y), x, select(ne(x, x), y, maximum(x, y)))


@ufunc
def fmin(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The smaller of two numbers; a number wins over not-a-number."""
    x, y = pair("fmin", x, y)
    return select(ne(y, y), x, select(ne(x, x), y, minimum(x, y)))


# Integer division and remainders ------------------------------------------------------


def _floored(x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient and remainder rounded towards minus infinity."""
    dtype = typeof(x).dtype
    if dtypes.is_float(dtype):
        return _floored_float(x, y)
    unsigned = dtypes.is_unsigned(dtype)
    number = int(y) if isinstance(y, np.integer) else 0
    if number > 0 and number & (number - 1) == 0:
        shift = (compare.shift_right_arithmetic, compare.shift_right_logical)[unsigned]
        quotient = shift(x, dtype.type(number.bit_length() - 1))
        return quotient, and_(x, dtype.type(number - 1))
    quotient = arithmetic.div(x, y)
    rest = arithmetic.sub(x, arithmetic.mul(quotient, y))
    if unsigned:
        return quotient, rest
    wrong = and_(ne(rest, 0), ne(compare.lt(rest, 0), compare.lt(y, 0)))
    return (
        select(wrong, arithmetic.sub(quotient, 1), quotient),
        select(wrong, arithmetic.add(rest, y), rest),
    )


def _floored_float(x: Any, y: Any) -> tuple[Any, Any]:
    plain = unary.floor(arithmetic.div(x, y))
    negative = compare.lt(y, 0)
    x, y = (select(negative, arithmetic.neg(v), v) for v in (x, y))
    rest = binary.rem(x, y)
    below = compare.lt(rest, 0)
    quotient = unary.round_(arithmetic.div(arithmetic.sub(x, rest), y))
    quotient = select(below, arithmetic.sub(quotient, 1), quotient)
    # The division above may have been rounded up to a whole number, so that its floor
    # counts only where nothing is left to round: at zeros, which it gives their sign,
    # and at infinities (and not-a-number).
    special = or_(compare.eq(quotient, 0), ne(quotient, quotient))
    special = or_(special, compare.eq(y, math.inf))
    # Adding zero leaves no negative one.
    rest = arithmetic.add(select(below, arithmetic.add(rest, y), rest), 0.0)
    return (
        select(special, plain, quotient),
        select(negative, arithmetic.neg(rest), rest),
    )


def numbers(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    x, y = pair(name, x, y)
    if typeof(x).dtype == dtypes.bool_:
        return cast(x, dtypes.int32), cast(y, dtypes.int32)
    return x, y


def _divided(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Of which the quotient is rounded: numbers that have an order."""
    x, y = numbers(name, x, y)
    if dtypes.is_complex(typeof(x).dtype):
        raise TypeError(f"{name}: complex numbers are not ordered{at(user_source())}")
    return x, y


@ufunc
def floor_divide(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x // y``: the quotient rounded towards minus infinity.

    Of infinities it is ``floor(x / y)``, as the array API standard prefers:
    ``inf // 1`` is inf and ``-1 // inf`` is -0.0, where NumPy has nan and -1.
    """
    return _floored(*_divided("floor_divide", x, y))[0]


@ufunc
def remainder(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x % y``, with the sign of y, also if it is zero; of integers by 0 it is 0."""
    x, y = _divided("remainder", x, y)
    return _by_zero(_floored(x, y)[1], y)


mod = remainder


def divmod(x: ArrayLike, y: ArrayLike, /) -> tuple[Array, Array]:
    """``(x // y, x % y)``."""
    x, y = _divided("divmod", x, y)
    quotient, rest = _floored(x, y)
    return quotient, _by_zero(rest, y)


@ufunc
def fmod(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The remainder with the sign of x; of integers by 0 it is 0."""
    x, y = _divided("fmod", x, y)
    return _by_zero(binary.rem(x, y), y)


def _by_zero(rest: Any, y: Any) -> Any:
    """NumPy's remainder of integers by zero, where CPUs and `lax.rem` give x."""
    dtype = typeof(rest).dtype
    if not dtypes.is_integer(dtype) or (isinstance(y, np.generic) and y != 0):
        return rest
    return select(ne(y, 0), rest, dtype.type(0))


# Where, clip, and the numerically careful ---------------------------------------------


def clip(
    x: ArrayLike,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
) -> Array:
    """Limits x to the interval from `min` to `max`; either may be left out.

    Where x equals a limit, the two share the derivative, as in `maximum`. Python's
    integers that x can't reach are no limits.
    """
    if type(min) is int or type(max) is int:
        dtype = typeof(operand("clip", x)).dtype
        if dtypes.is_integer(dtype):
            reach = np.iinfo(dtype)
            min = None if type(min) is int and min < reach.min else min
            max = None if type(max) is int and max > reach.max else max
    if max is None:
        return maximum(x, min) if min is not None else as_array(operand("clip", x))
    if min is None:
        return minimum(x, max)
    low, y, high = promoted("clip", min, x, max)
    if typeof(low).shape or typeof(high).shape:
        low, y, high = broadcast("clip", (low, y, high))
    return binary.clamp(low, y, high)


def _wide_pair(name: str, x: Any, y: Any) -> tuple[Any, Any, np.dtype]:
    """The operands as they are computed with (halves as float32, or they would be
    rounded many times), and the dtype of the result."""
    x, y = inexact_pair(name, x, y)
    dtype = typeof(x).dtype
    if dtype.itemsize == 2:
        x, y = cast(x, dtypes.float32), cast(y, dtypes.float32)
    return x, y, dtype


@ufunc
def hypot(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``sqrt(x**2 + y**2)`` without overflow on the way. Its derivative at (0, 0) is 0.

    Of an infinity it is inf, even if the other is not a number.
    """
    x, y, dtype = _wide_pair("hypot", x, y)
    if dtypes.is_complex(dtype):
        x, y = unary.abs_(x), unary.abs_(y)
    sizes = unary.abs_(x), unary.abs_(y)
    # Selected, with their signs: extremes and absolute values have no second derivative
    # where they have a kink, and the result has none there.
    first = compare.ge(*sizes)
    large, small = select(first, x, y), select(first, y, x)
    one, infinity = map(typeof(large).dtype.type, (1, math.inf))
    zero, size = and_(*(compare.eq(s, 0) for s in sizes)), unary.abs_(large)
    ratio = arithmetic.div(small, select(zero, one, large))
    root = unary.sqrt(arithmetic.add(arithmetic.mul(ratio, ratio), 1))
    usual = select(zero, size, arithmetic.mul(size, root))
    infinite = or_(*(compare.eq(s, infinity) for s in sizes))
    return cast(select(infinite, infinity, usual), dtypes.to_real(dtype))


def _log_of_sum(
    name: str, x: Any, y: Any, of_difference: Callable[[Any], Any]
) -> Array:
    """The logarithm of a sum of powers; of_difference: that of 1 plus a power."""
    x, y, dtype = _wide_pair(name, x, y)
    if dtypes.is_complex(dtype):
        raise TypeError(f"{name}: complex numbers are not ordered{at(user_source())}")
    # Selected: an extreme and an absolute value have no second derivative where they
    # have a kink, and the result has none there.
    first = compare.ge(x, y)
    large, small = select(first, x, y), select(first, y, x)
    difference = arithmetic.sub(small, large)
    # Equal infinities: their sum. Of a nan the result is one, and so are derivatives.
    lost = ne(difference, difference)
    zero, one, nan = map(typeof(x).dtype.type, (0, 1, math.nan))
    usual = arithmetic.add(large, of_difference(select(lost, zero, difference)))
    factor = select(or_(ne(x, x), ne(y, y)), nan, one)
    total = arithmetic.mul(arithmetic.add(x, y), factor)
    return cast(select(lost, total, usual), dtype)


@ufunc
def logaddexp(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``log(exp(x) + exp(y))`` without overflow on the way."""
    return _log_of_sum("logaddexp", x, y, unary.softplus)


@ufunc
def logaddexp2(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``log2(2**x + 2**y)`` without overflow on the way."""
    return _log_of_sum("logaddexp2", x, y, _softplus_to_base_2)


def _softplus_to_base_2(x: Any) -> Any:
    return arithmetic.mul(unary.log1p(unary.exp2(x)), 1 / math.log(2))


def _reals(name: str, x: ArrayLike, y: ArrayLike) -> tuple[Any, Any]:
    """Operands that have a sign.

    Raises:
      TypeError: for complex numbers.
    """
    x, y = inexact_pair(name, x, y)
    if dtypes.is_complex(typeof(x).dtype):
        raise TypeError(
            f"{name} is defined for real numbers, got {typeof(x)}{at(user_source())}"
        )
    return x, y


@ufunc
def copysign(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The absolute value of x with the sign of y."""
    x, y = _reals("copysign", x, y)
    size = unary.abs_(x)
    return select(signbit(y), arithmetic.neg(size), size)


@ufunc
def heaviside(x: ArrayLike, y: ArrayLike, /) -> Array:
    """0 where x < 0, 1 where x > 0, and y where x is 0."""
    x, y = _reals("heaviside", x, y)
    one, zero = typeof(x).dtype.type(1), typeof(x).dtype.type(0)
    side = select(compare.lt(x, 0), zero, select(compare.gt(x, 0), one, x))
    return select(compare.eq(x, 0), y, side)


def select_where(condition: Any, x: Any, y: Any) -> Any:
    """``where`` with three arguments."""
    condition = cast(operand("where", condition), dtypes.bool_)
    x, y = promoted("where", x, y)
    return select(*broadcast("where", (condition, x, y)))
