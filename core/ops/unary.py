"""Elementwise functions of one operand, each with its derivative beside it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.ops.arithmetic import add, div, mul, neg, sub
from treadle.ops.compare import eq, select
from treadle.ops.complex import complex_, conj, imag, real
from treadle.ops.elementwise import elementwise, floating, inexact, number
from treadle.ops.movement import zeros_like
from treadle.ops.special import (
    digamma_run,
    erf_inv_run,
    erf_run,
    erfc_run,
    expm1_run,
    lgamma_run,
    polygamma_run,
    sign_run,
    tanh_run,
)
from treadle.trace.value import typeof

_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)


def _square(x: Any) -> Any:
    return mul(x, x)


def _one_minus_square(x: Any) -> Any:
    return sub(1.0, mul(x, x))


def _logistic(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _abs_partial(g: Any, out: Any, x: Any) -> Any:
    if dtypes.is_complex(typeof(x).dtype):
        return real(mul(g, conj(sign(x))))
    return mul(g, sign(x))


abs_ = elementwise(
    "abs",
    np.abs,
    [_abs_partial],
    accepts=number,
    result=dtypes.to_real,
)


def _sign_partial(g: Any, out: Any, x: Any) -> Any:
    """A complex sign turns: of g, only what is across the direction of x counts."""
    if not dtypes.is_complex(typeof(x).dtype):
        return None
    zero = eq(x, 0.0)
    across = imag(mul(conj(out), g))
    turn = div(across, select(zero, 1.0, abs_(x)))
    return mul(complex_(zeros_like(typeof(turn)), turn), out)


sign = elementwise("sign", sign_run, [_sign_partial])
floor = elementwise("floor", np.floor, [None], accepts=floating)
ceil = elementwise("ceil", np.ceil, [None], accepts=floating)
round_ = elementwise("round", np.round, [None], accepts=floating)

exp = elementwise("exp", np.exp, [lambda g, out, x: mul(g, out)], accepts=inexact)
exp2 = elementwise(
    "exp2",
    np.exp2,
    [lambda g, out, x: mul(g, mul(out, math.log(2.0)))],
    accepts=inexact,
)
expm1 = elementwise(
    "expm1", expm1_run, [lambda g, out, x: mul(g, add(out, 1.0))], accepts=inexact
)
log = elementwise("log", np.log, [lambda g, out, x: div(g, x)], accepts=inexact)
log2 = elementwise(
    "log2",
    np.log2,
    [lambda g, out, x: div(mul(g, 1 / math.log(2.0)), x)],
    accepts=floating,
)
log1p = elementwise(
    "log1p", np.log1p, [lambda g, out, x: div(g, add(x, 1.0))], accepts=inexact
)
sqrt = elementwise(
    "sqrt", np.sqrt, [lambda g, out, x: div(mul(g, 0.5), out)], accepts=inexact
)
rsqrt = elementwise(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    [lambda g, out, x: mul(g, mul(-0.5, div(out, x)))],
    accepts=inexact,
)
cbrt = elementwise(
    "cbrt",
    np.cbrt,
    [lambda g, out, x: div(g, mul(3.0, _square(out)))],
    accepts=floating,
)

sin = elementwise("sin", np.sin, [lambda g, out, x: mul(g, cos(x))], accepts=inexact)
cos = elementwise(
    "cos", np.cos, [lambda g, out, x: neg(mul(g, sin(x)))], accepts=inexact
)
tan = elementwise(
    "tan", np.tan, [lambda g, out, x: mul(g, add(1.0, _square(out)))], accepts=inexact
)
asin = elementwise(
    "asin",
    np.arcsin,
    [lambda g, out, x: mul(g, rsqrt(_one_minus_square(x)))],
    accepts=inexact,
)
acos = elementwise(
    "acos",
    np.arccos,
    [lambda g, out, x: neg(mul(g, rsqrt(_one_minus_square(x))))],
    accepts=inexact,
)
atan = elementwise(
    "atan",
    np.arctan,
    [lambda g, out, x: div(g, add(1.0, _square(x)))],
    accepts=inexact,
)
sinh = elementwise(
    "sinh", np.sinh, [lambda g, out, x: mul(g, cosh(x))], accepts=inexact
)
cosh = elementwise(
    "cosh", np.cosh, [lambda g, out, x: mul(g, sinh(x))], accepts=inexact
)
tanh = elementwise(
    "tanh",
    tanh_run,
    [lambda g, out, x: mul(g, _one_minus_square(out))],
    accepts=inexact,
)
asinh = elementwise(
    "asinh",
    np.arcsinh,
    [lambda g, out, x: mul(g, rsqrt(add(_square(x), 1.0)))],
    accepts=inexact,
)
acosh = elementwise(
    "acosh",
    np.arccosh,
    [lambda g, out, x: mul(g, mul(rsqrt(sub(x, 1.0)), rsqrt(add(x, 1.0))))],
    accepts=inexact,
)
atanh = elementwise(
    "atanh",
    np.arctanh,
    [lambda g, out, x: div(g, _one_minus_square(x))],
    accepts=inexact,
)

logistic = elementwise(
    "logistic",
    _logistic,
    [lambda g, out, x: mul(g, mul(out, sub(1.0, out)))],
    accepts=floating,
)
softplus = elementwise(
    "softplus",
    _softplus,
    [lambda g, out, x: mul(g, logistic(x))],
    accepts=floating,
)
"""log(1 + exp(x))."""
erf = elementwise(
    "erf",
    erf_run,
    [lambda g, out, x: mul(g, mul(_TWO_OVER_SQRT_PI, exp(neg(_square(x)))))],
    accepts=floating,
)
erfc = elementwise(
    "erfc",
    erfc_run,
    [lambda g, out, x: mul(g, mul(-_TWO_OVER_SQRT_PI, exp(neg(_square(x)))))],
    accepts=floating,
)
erf_inv = elementwise(
    "erf_inv",
    erf_inv_run,
    [lambda g, out, x: mul(g, mul(1 / _TWO_OVER_SQRT_PI, exp(_square(out))))],
    accepts=floating,
)
lgamma = elementwise(
    "lgamma", lgamma_run, [lambda g, out, x: mul(g, digamma(x))], accepts=floating
)
digamma = elementwise(
    "digamma",
    digamma_run,
    [lambda g, out, x: mul(g, polygamma(x, n=1))],
    accepts=floating,
)
polygamma = elementwise(
    "polygamma",
    polygamma_run,
    [lambda g, out, x, *, n: mul(g, polygamma(x, n=n + 1))],
    accepts=floating,
)
"""The n-th derivative of digamma, n >= 1."""


def _integer_pow_partial(g: Any, out: Any, x: Any, *, n: int) -> Any:
    if n == 0:
        return mul(g, 0.0)
    power = x if n == 2 else integer_pow(x, n=n - 1)
    return mul(g, mul(float(n), power))


def _integer_pow_run(x: Any, *, n: int) -> Any:
    if n < 0:
        return 1 / _integer_pow_run(x, n=-n)
    if n == 2:  # NumPy's power loses the signs of complex zeros.
        return np.square(x)
    return np.power(x, np.asarray(n).astype(x.dtype) if x.dtype.kind in "iu" else n)


integer_pow = elementwise("integer_pow", _integer_pow_run, [_integer_pow_partial])
