"""Exponential, sine, cosine and dilogarithmic integrals."""

from __future__ import annotations

import math
from typing import Any

import treadle.numpy as tnp
from treadle.api.custom import custom_jvp
from treadle.np.made import floating_function
from treadle.np.operands import ArrayLike, cast
from treadle.ops import exponential_integrals as ops
from treadle.ops import unary
from treadle.run.array import Array
from treadle.scipy.operands import floats, single_at_least
from treadle.scipy.special.loops import fraction, series

exp1 = floating_function(
    ops.exp1, "exp1", "The exponential integral ``∫ₓ∞ exp(-t) / t dt``, for x > 0."
)
expi = floating_function(
    ops.expi,
    "expi",
    "The exponential integral ``∫₋∞ˣ exp(t) / t dt``, its principal value for x > 0.",
)
spence = floating_function(
    ops.spence,
    "spence",
    "Spence's function ``∫₁ˣ log(t) / (1 - t) dt``, the dilogarithm of 1 - x.",
)


def sici(x: ArrayLike, /) -> tuple[Array, Array]:
    """The sine integral ``∫₀ˣ sin(t) / t dt``, and the cosine integral
    ``c + log|x| + ∫₀ˣ (cos(t) - 1) / t dt`` with Euler's constant c.

    >>> import treadle as td
    >>> td.scipy.special.sici(1.0)
    (Array(0.9461, dtype=float32), Array(0.3374, dtype=float32))
    """
    (x,) = floats("sici", x)
    return ops.sine_integral(x), ops.cosine_integral(tnp.abs(x))


def expn(n: ArrayLike, x: ArrayLike, /) -> Array:
    """The exponential integrals ``∫₁∞ exp(-x t) / tⁿ dt``, for whole n and x not
    negative. There is no derivative by n."""
    (n, x), dtype = single_at_least(floats("expn", n, x))
    return cast(_expn(tnp.round(n), x), dtype)


def _expn_of(n: Any, x: Any) -> Any:
    plain = tnp.exp(-x) / tnp.where(x == 0, 1.0, x)
    by_parts = tnp.where(x > 1, _fraction(n, x), _series(n, x))
    value = tnp.where(n == 0, tnp.where(x == 0, math.inf, plain), by_parts)
    at_zero = tnp.where(n > 1, 1 / tnp.where(n > 1, n - 1, 1.0), math.inf)
    value = tnp.where((x == 0) & (n > 0), at_zero, value)
    value = tnp.where(x == math.inf, 0.0, value)
    return tnp.where((x >= 0) & (n >= 0), value, math.nan)


def _fraction(n: Any, x: Any) -> Any:
    """exp(-x) / (x + n - 1·n / (x + n + 2 - 2 (n + 1) / (x + n + 4 - …)))"""
    inside = (x > 1) & (x < math.inf) & (n > 0)
    x, n = tnp.where(inside, x, 2.0), tnp.where(inside, n, 1.0)
    found = fraction(lambda k: (-k * (n - 1 + k), x + n + 2 * k), x + n)
    return tnp.exp(-x) / found


def _series(n: Any, x: Any) -> Any:
    """The powers of -x, that of n - 1 with a logarithm."""
    inside = (x > 0) & (x <= 1) & (n > 0)
    x, n = tnp.where(inside, x, 0.5), tnp.where(inside, n, 1.0)

    def divided(term: Any, k: Any) -> Any:
        below = k - n + 1
        return tnp.where(below == 0, 0.0, term / tnp.where(below == 0, 1.0, below))

    total = series(1.0 + 0.0 * x, lambda t, k: t * -x / k, divided)
    sign = tnp.where(tnp.round(n * 0.5) * 2 == n, -1.0, 1.0)
    power = sign * tnp.exp((n - 1) * tnp.log(x) - unary.lgamma(n))
    return power * (unary.digamma(n) - tnp.log(x)) - total


_expn = custom_jvp(_expn_of)


@_expn.defjvp
def _expn_jvp(primals: Any, tangents: Any) -> Any:
    (n, x), (_, dx) = primals, tangents
    less = _expn(tnp.where(n > 0, n - 1, 0.0), x)
    by_x = tnp.where(n > 0, less, tnp.exp(-x) * (1 + x) / tnp.where(x == 0, 1.0, x * x))
    return _expn(n, x), -by_x * dx
