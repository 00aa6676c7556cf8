"""Elementary functions of complex numbers as pairs of real ones.

Branch cuts and special values are those of C99's Annex G, as NumPy has them: a zero's
sign says on which side of a cut a number lies, and an infinity with not-a-number beside
it is an infinity still. What could overflow on the way is scaled by powers of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.ops import unary
from treadle.ops.arithmetic import add, div, mul, multiply_add, neg, sub
from treadle.ops.binary import atan2, maximum, minimum, pow_
from treadle.ops.cast import bitcast
from treadle.ops.compare import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    eq,
    ge,
    gt,
    is_finite,
    lt,
    ne,
    select,
)
from treadle.ops.unary import abs_, cosh, exp, expm1, log, log1p, sinh
from treadle.passes.pairs import Pair, choose, divide, multiply
from treadle.trace.op import Op
from treadle.trace.value import typeof

_INF, _NAN = math.inf, math.nan


def _dtype(x: Any) -> np.dtype:
    return typeof(x).dtype


def _number(condition: Any, yes: Any, no: Any, like: Any) -> Any:
    """One of two numbers, of the dtype of a value."""
    return select(condition, _dtype(like).type(yes), no)


def _is_inf(x: Any) -> Any:
    return eq(abs_(x), _INF)


def _both(x: Any, y: Any) -> Any:
    return bitwise_and(x, y)


def _wild(x: Any) -> Any:
    """Whether it is infinite or not a number."""
    return bitwise_not(is_finite(x))


def _copy_sign(x: Any, y: Any) -> Any:
    """The size of x with the sign of y; x may be a number."""
    dtype = _dtype(y)
    word = np.dtype(f"u{dtype.itemsize}")
    minus = word.type(1 << (8 * dtype.itemsize - 1))
    size = bitcast(dtype.type(x) if isinstance(x, float) else x, dtype=word)
    sign = bitwise_and(bitcast(y, dtype=word), minus)
    return bitcast(bitwise_or(bitwise_and(size, ~minus), sign), dtype=dtype)


def _largest(x: Pair) -> Any:
    return maximum(abs_(x.re), abs_(x.im))


def _times(x: Pair, factor: Any) -> Pair:
    return Pair(mul(x.re, factor), mul(x.im, factor))


def _turned(x: Pair) -> Pair:
    """i x"""
    return Pair(neg(x.im), x.re)


def _turned_back(x: Pair) -> Pair:
    """-i x"""
    return Pair(x.im, neg(x.re))


def hypotenuse(x: Pair) -> Any:
    """The absolute value: of the parts over a power of two that is near the larger."""
    dtype = _dtype(x.re)
    word, info = np.dtype(f"i{dtype.itemsize}"), np.finfo(dtype)
    top = (1 << info.iexp) - 2

    def exponent(n: int) -> Any:
        return word.type(n << info.nmant)

    near = bitwise_and(bitcast(_largest(x), dtype=word), exponent(top + 1))
    # Its inverse is a normal number, too.
    near = minimum(maximum(near, exponent(1)), exponent(top - 2))
    power = bitcast(near, dtype=dtype)
    a, b = _times(x, bitcast(sub(exponent(top), near), dtype=dtype))
    found = mul(power, unary.sqrt(add(mul(a, a), mul(b, b))))
    infinite = bitwise_or(_is_inf(x.re), _is_inf(x.im))
    return select(infinite, _INF, found)


def _sign(x: Pair) -> Pair:
    large = _largest(x)
    y = _times(x, _number(gt(large, 1.0), 0.25, 1.0, large))
    zero = eq(large, 0.0)
    size = select(zero, 1.0, hypotenuse(y))
    # Of one infinite part the direction is known, of two it is not.
    of_parts = [select(_is_inf(a), _copy_sign(1.0, a), 0.0) for a in x]
    unknown = _both(_is_inf(x.re), _is_inf(x.im))
    return Pair(
        *[
            select(
                _is_inf(size),
                select(unknown, _NAN, known),
                select(zero, 0.0, div(a, size)),
            )
            for a, known in zip(y, of_parts, strict=True)
        ]
    )


# exp, log, sqrt, powers ---------------------------------------------------------------


def _past(x: Any) -> tuple[Any, float]:
    """Where the exponential function is out of range, or nearly so; and a number that
    is taken from the exponent there, so that a small factor may come in between."""
    limit = math.floor(math.log(float(np.finfo(_dtype(x)).max))) - 2.0
    return gt(x, limit), limit / 2


def _exp(x: Pair) -> Pair:
    past, shift = _past(x.re)
    size = exp(select(past, sub(x.re, shift), x.re))
    rest = _number(past, math.exp(shift), 1.0, size)
    re = mul(mul(size, unary.cos(x.im)), rest)
    im = mul(mul(size, unary.sin(x.im)), rest)
    # No angle turns nothing into something, nor makes an infinity small.
    at_end = _both(_is_inf(x.re), _wild(x.im))
    re = select(at_end, size, re)
    im = select(_both(at_end, lt(x.re, 0.0)), _copy_sign(0.0, x.im), im)
    return Pair(re, select(eq(x.im, 0.0), x.im, im))


def _square_less_one(large: Any, small: Any) -> Any:
    """large² + small² - 1, for a sum near 1: what rounding takes off the squares comes
    in at the end."""
    a, b = mul(large, large), mul(small, small)
    rest = add(
        multiply_add(large, large, a, minus="term"),
        multiply_add(small, small, b, minus="term"),
    )
    return add(add(sub(a, 1.0), b), rest)


def _log_of_size(x: Pair) -> Any:
    large = _largest(x)
    small = minimum(abs_(x.re), abs_(x.im))
    near_one = _both(
        _both(gt(large, 0.5), lt(large, 1.5)),
        gt(add(mul(large, large), mul(small, small)), 0.5),
    )
    near = mul(0.5, log1p(_square_less_one(large, small)))
    power = 64 if _dtype(large).itemsize == 4 else 512
    huge, tiny = gt(large, 2.0**power), lt(large, 2.0**-power)
    factor = select(huge, 2.0**-power, _number(tiny, 2.0**power, 1.0, large))
    shift = power * math.log(2.0)
    rest = select(huge, shift, _number(tiny, -shift, 0.0, large))
    return select(near_one, near, add(log(hypotenuse(_times(x, factor))), rest))


def _log(x: Pair) -> Pair:
    return Pair(_log_of_size(x), atan2(x.im, x.re))


def _log1p(x: Pair) -> Pair:
    return _log(Pair(add(x.re, 1.0), x.im))


def _sqrt(x: Pair) -> Pair:
    large, tiny = _largest(x), np.finfo(_dtype(x.re)).tiny
    huge, small = gt(large, float(0.125 / tiny)), lt(large, float(tiny * 2.0**30))
    factor = select(huge, 2.0**-4, _number(small, 2.0**52, 1.0, large))
    back = select(huge, 2.0**2, _number(small, 2.0**-26, 1.0, large))
    y = _times(x, factor)
    size = unary.sqrt(mul(0.5, add(abs_(y.re), hypotenuse(y))))
    other = div(mul(0.5, abs_(y.im)), size)
    right = ge(x.re, 0.0)
    re = mul(select(right, size, other), back)
    im = mul(select(right, other, size), back)
    infinite = _is_inf(x.im)
    re, im = select(infinite, _INF, re), select(infinite, _INF, im)
    zero = eq(large, 0.0)
    return Pair(select(zero, 0.0, re), select(zero, x.im, _copy_sign(im, x.im)))


def _one(x: Pair) -> Pair:
    t = _dtype(x.re).type
    return Pair(t(1), t(0))


def _rsqrt(x: Pair) -> Pair:
    return divide(_one(x), _sqrt(x))


def _exp2(x: Pair) -> Pair:
    return _exp(_times(x, math.log(2.0)))


def _expm1(x: Pair) -> Pair:
    half = unary.sin(mul(x.im, 0.5))
    re = sub(mul(expm1(x.re), unary.cos(x.im)), mul(2.0, mul(half, half)))
    near = Pair(add(re, 0.0), mul(exp(x.re), unary.sin(x.im)))
    far = _exp(x)
    small = _both(lt(abs_(x.re), 1.0), is_finite(x.im))
    return choose(small, near, Pair(sub(far.re, 1.0), far.im))


def _integer_pow(x: Pair, *, n: int) -> Pair:
    if n < 0:
        return divide(_one(x), _integer_pow(x, n=-n))
    if n == 0:
        return _times(_one(x), unary.exp(mul(x.re, 0.0)))
    result: Pair | None = None
    while n:
        if n & 1:
            result = multiply(result, x) if result else x
        x, n = multiply(x, x), n >> 1
    assert result is not None
    return result


_MOST = 100
"""Powers to whole numbers below this are products."""


def _pow(x: Pair, y: Pair) -> Pair:
    count = abs_(y.re)
    whole = _both(_both(eq(y.im, 0.0), lt(count, float(_MOST))), _is_whole(count))
    product, power, begun = _one(x), x, None
    for _ in range(_MOST.bit_length()):
        half = mul(count, 0.5)
        odd = bitwise_not(_is_whole(half))
        # Not the first factor: that times one may have other signs of zeros.
        times = power
        if begun is not None:
            times = choose(begun, multiply(product, power), power)
        begun = odd if begun is None else bitwise_or(begun, odd)
        product = choose(odd, times, product)
        count = unary.floor(half)
        power = multiply(power, power)
    product = choose(lt(y.re, 0.0), divide(_one(x), product), product)
    result = choose(whole, product, _exp(multiply(y, _log(x))))
    nothing = _number(gt(y.re, 0.0), 0.0, _NAN, y.re)
    zero = _both(eq(x.re, 0.0), eq(x.im, 0.0))
    result = choose(zero, Pair(nothing, nothing), result)
    return choose(_both(eq(y.re, 0.0), eq(y.im, 0.0)), _one(x), result)


def _is_whole(x: Any) -> Any:
    return eq(unary.floor(x), x)


# Hyperbolic and trigonometric functions -----------------------------------------------


def _sinh_cosh(x: Any) -> tuple[Any, Any, Any]:
    """sinh and cosh, both without a factor that would make them overflow; this."""
    past, shift = _past(abs_(x))
    large = mul(0.5, exp(sub(abs_(x), shift)))
    s = select(past, _copy_sign(large, x), sinh(x))
    return s, select(past, large, cosh(x)), _number(past, math.exp(shift), 1.0, x)


def _sinh(x: Pair) -> Pair:
    s, c, rest = _sinh_cosh(x.re)
    re = mul(mul(s, unary.cos(x.im)), rest)
    im = mul(mul(c, unary.sin(x.im)), rest)
    wild = _wild(x.im)
    re = select(_both(_is_inf(x.re), wild), _INF, re)
    re = select(_both(eq(x.re, 0.0), wild), x.re, re)
    return Pair(re, select(eq(x.im, 0.0), x.im, im))


def _cosh(x: Pair) -> Pair:
    s, c, rest = _sinh_cosh(x.re)
    re = mul(mul(c, unary.cos(x.im)), rest)
    im = mul(mul(s, unary.sin(x.im)), rest)
    wild = _wild(x.im)
    re = select(_both(_is_inf(x.re), wild), _INF, re)
    im = select(_both(eq(x.re, 0.0), wild), 0.0, im)
    return Pair(re, select(eq(x.im, 0.0), mul(x.im, _copy_sign(1.0, x.re)), im))


def _sin(x: Pair) -> Pair:
    re, im = _turned_back(_sinh(_turned(x)))
    # Signs that C99 leaves open are those of the GNU library.
    return Pair(re, select(_both(_is_inf(x.im), _wild(x.re)), _INF, im))


def _cos(x: Pair) -> Pair:
    re, im = _cosh(_turned(x))
    return Pair(re, select(_both(eq(x.re, 0.0), ne(x.im, x.im)), x.re, im))


def _tanh_of_c(x: Pair) -> Pair:
    # 1 to the last bit, from here on.
    limit = 0.35 * (np.finfo(_dtype(x.re)).nmant + 4)
    large = gt(abs_(x.re), limit)
    a = select(large, 1.0, x.re)
    s, c = unary.sin(x.im), unary.cos(x.im)
    sh, ch = sinh(a), cosh(a)
    below = add(mul(sh, sh), mul(c, c))
    near = Pair(div(mul(sh, ch), below), div(mul(s, c), below))
    small = mul(mul(4.0, mul(s, c)), exp(mul(-2.0, abs_(x.re))))
    wild, infinite = _wild(x.im), _is_inf(x.re)
    small = select(_both(wild, infinite), _copy_sign(0.0, x.im), small)
    lost = _both(wild, bitwise_not(infinite))
    far = Pair(select(lost, _NAN, _copy_sign(1.0, x.re)), small)
    found = choose(large, far, near)
    re = select(_both(eq(x.re, 0.0), wild), x.re, found.re)
    return Pair(re, select(eq(x.im, 0.0), x.im, found.im))


def _tanh(x: Pair) -> Pair:
    """With the array API's zeros at infinities, where C libraries differ."""
    re, im = _tanh_of_c(x)
    return Pair(re, select(_is_inf(x.re), _copy_sign(0.0, x.im), im))


def _tan(x: Pair) -> Pair:
    return _turned_back(_tanh_of_c(_turned(x)))


# Their inverses, by W. Kahan, "Branch cuts for complex elementary functions" (1987) ---


def _one_minus(x: Pair) -> Pair:
    return Pair(sub(1.0, x.re), neg(x.im))


def _one_plus(x: Pair) -> Pair:
    return Pair(add(1.0, x.re), x.im)


def _crosswise(x: Pair, y: Pair) -> Any:
    """The imaginary part of the product of the conjugate of x with y."""
    return sub(mul(x.re, y.im), mul(x.im, y.re))


def _is_large(x: Pair) -> Any:
    limit = 2.0 / float(np.finfo(_dtype(x.re)).eps)
    return bitwise_or(gt(abs_(x.re), limit), gt(abs_(x.im), limit))


def _is_lost(x: Pair) -> Any:
    """Whether it is not a number, on the imaginary axis."""
    return _both(eq(x.re, 0.0), ne(x.im, x.im))


def _asinh(x: Pair) -> Pair:
    return _turned_back(_asin(_turned(x)))


def _asin(x: Pair) -> Pair:
    a, b = _sqrt(_one_minus(x)), _sqrt(_one_plus(x))
    re = atan2(x.re, sub(mul(a.re, b.re), mul(a.im, b.im)))
    near = Pair(re, unary.asinh(_crosswise(a, b)))
    far = Pair(
        atan2(x.re, abs_(x.im)),
        _copy_sign(add(_log_of_size(x), math.log(2.0)), x.im),
    )
    found = choose(_is_large(x), far, near)
    return Pair(select(_is_lost(x), x.re, found.re), found.im)


def _acos(x: Pair) -> Pair:
    a, b = _sqrt(_one_minus(x)), _sqrt(_one_plus(x))
    near = Pair(mul(2.0, atan2(a.re, b.re)), unary.asinh(_crosswise(b, a)))
    far = Pair(
        atan2(abs_(x.im), x.re),
        _copy_sign(add(_log_of_size(x), math.log(2.0)), neg(x.im)),
    )
    found = choose(_is_large(x), far, near)
    return Pair(select(_is_lost(x), math.pi / 2, found.re), found.im)


def _acosh(x: Pair) -> Pair:
    a, b = _sqrt(Pair(sub(x.re, 1.0), x.im)), _sqrt(_one_plus(x))
    re = unary.asinh(add(mul(a.re, b.re), mul(a.im, b.im)))
    near = Pair(re, mul(2.0, atan2(a.im, b.re)))
    far = Pair(add(_log_of_size(x), math.log(2.0)), atan2(x.im, x.re))
    found = choose(_is_large(x), far, near)
    return Pair(found.re, select(_is_lost(x), math.pi / 2, found.im))


def _atan(x: Pair) -> Pair:
    return _turned_back(_atanh(_turned(x)))


def _atanh(x: Pair) -> Pair:
    a, b = abs_(x.re), abs_(x.im)
    tiny = float(np.finfo(_dtype(a)).tiny)
    less = sub(1.0, a)
    re = mul(0.25, log1p(div(mul(4.0, a), add(mul(less, less), mul(b, b)))))
    im = mul(0.5, atan2(mul(2.0, b), sub(mul(less, add(1.0, a)), mul(b, b))))
    # Near 1 the square of b is out of range.
    pole = _both(eq(a, 1.0), lt(b, math.sqrt(tiny)))
    re = select(pole, mul(0.5, sub(math.log(2.0), log(b))), re)
    # Far out, what is left is 1 / x.
    size = hypotenuse(x)
    rest = div(div(a, size), size)
    far = bitwise_or(gt(a, 1 / math.sqrt(tiny)), gt(b, 1 / math.sqrt(tiny)))
    infinite = bitwise_or(_is_inf(a), _is_inf(b))
    re = select(far, select(infinite, 0.0, rest), re)
    lost = _both(bitwise_or(ne(a, a), ne(b, b)), bitwise_not(infinite))
    no_angle = bitwise_or(ne(b, b), lost)
    im = select(far, _number(no_angle, _NAN, math.pi / 2, b), im)
    re = select(eq(a, 0.0), 0.0, select(lost, _NAN, re))
    return Pair(_copy_sign(re, x.re), _copy_sign(im, x.im))


FUNCTIONS: dict[Op, Callable[..., Any]] = {
    unary.abs_: hypotenuse,
    unary.sign: _sign,
    unary.exp: _exp,
    unary.exp2: _exp2,
    unary.expm1: _expm1,
    unary.log: _log,
    unary.log1p: _log1p,
    unary.sqrt: _sqrt,
    unary.rsqrt: _rsqrt,
    unary.integer_pow: _integer_pow,
    pow_: _pow,
    unary.sinh: _sinh,
    unary.cosh: _cosh,
    unary.tanh: _tanh,
    unary.sin: _sin,
    unary.cos: _cos,
    unary.tan: _tan,
    unary.asin: _asin,
    unary.acos: _acos,
    unary.asinh: _asinh,
    unary.acosh: _acosh,
    unary.atan: _atan,
    unary.atanh: _atanh,
}
"""What ops make of complex numbers."""
