"""Integrals of exponentials, sines, cosines and logarithms by x, each with its
derivative beside it.

The series are Chebyshev's, fitted to 32 digits (see `chebyshev_tables`).
"""

from __future__ import annotations

import math
from typing import Any

from treadle.ops import chebyshev_tables as tables
from treadle.ops.arithmetic import div, mul, neg, sub
from treadle.ops.compare import eq, lt, select
from treadle.ops.formula import EULER, HALF_PI, chebyshev, formula_op, odd
from treadle.ops.unary import abs_, cos, exp, log, log1p, sin


def _exp1(m: Any, x: Any) -> Any:
    small = x * chebyshev(m, tables.EXP1_SMALL, x) - m.log(x) - EULER
    series = chebyshev(m, tables.EXP1_LARGE, 1.0 / x)
    return m.where(x > 2.0, m.exp(-x) * series / x, small)


exp1 = formula_op("exp1", _exp1, [lambda g, out, x: neg(mul(g, div(exp(neg(x)), x)))])
"""``∫ₓ∞ exp(-t) / t dt``, for positive x."""


def _expi(m: Any, x: Any) -> Any:
    small = x * chebyshev(m, tables.EXPI_SMALL, x) + m.log(x) + EULER
    u = 1.0 / x
    middle = chebyshev(m, tables.EXPI_MIDDLE, u)
    large = chebyshev(m, tables.EXPI_LARGE, u)
    # Halves of the exponent: the quotient overflows later than the exponential.
    half = m.exp(0.5 * x)
    large = half * (m.where(x < 16.0, middle, large) / x) * half
    upper = m.where(x < 6.0, small, m.where(x > 1e4, m.exp(x), large))
    return m.where(x < 0.0, -_exp1(m, -x), upper)


expi = formula_op("expi", _expi, [lambda g, out, x: mul(g, div(exp(x), x))])
"""The principal value of ``∫₋∞ˣ exp(t) / t dt``."""


def _auxiliary(m: Any, y: Any) -> tuple[Any, Any]:
    u = 1.0 / (y * y)
    t = u
    return chebyshev(m, tables.SICI_F, t) / y, chebyshev(m, tables.SICI_G, t) * u


def _si(m: Any, x: Any) -> Any:
    y = m.abs(x)
    small = y * chebyshev(m, tables.SI_SMALL, y * y)
    f, g = _auxiliary(m, y)
    large = HALF_PI - f * m.cos(y) - g * m.sin(y)
    large = m.where(y > 1e15, HALF_PI, large)
    return odd(m, x, m.where(y < 4.0, small, large))


def _ci(m: Any, x: Any) -> Any:
    square = x * x
    small = square * chebyshev(m, tables.CI_SMALL, square)
    small = small + m.log(x) + EULER
    f, g = _auxiliary(m, x)
    large = f * m.sin(x) - g * m.cos(x)
    large = m.where(x < math.inf, large, 0.0 * f)
    return m.where(x > 4.0, large, small)


def _sine_by_x(x: Any) -> Any:
    zero = eq(x, 0.0)
    safe = select(zero, 1.0, x)
    return select(zero, 1.0, div(sin(safe), safe))


sine_integral = formula_op(
    "sine_integral", _si, [lambda g, out, x: mul(g, _sine_by_x(x))]
)
"""``∫₀ˣ sin(t) / t dt``."""

cosine_integral = formula_op(
    "cosine_integral", _ci, [lambda g, out, x: mul(g, div(cos(x), x))]
)
"""``Euler's constant + log(x) + ∫₀ˣ (cos(t) - 1) / t dt``, for positive x."""


def _spence(m: Any, x: Any) -> Any:
    # By x → 1/x and x → 1 - x the argument comes to between 1/2 and 3/2.
    y = m.where(x > 1.5, 1.0 / x, x)
    r = m.where(y < 0.5, 1.0 - y, y)
    base = (1.0 - r) * chebyshev(m, tables.SPENCE, r)
    positive = m.where(y > 0.0, y, 1.0)
    mirrored = math.pi**2 / 6 - m.log(positive) * m.log1p(-positive) - base
    mirrored = m.where(y > 0.0, mirrored, math.pi**2 / 6 + 0.0 * m.sqrt(y))
    value = m.where(y < 0.5, mirrored, base)
    log = m.log(m.where(x > 1.5, x, 1.0))
    return m.where(x > 1.5, -0.5 * log * log - value, value)


def _spence_partial(g: Any, out: Any, x: Any) -> Any:
    """log(x) / (1 - x), by its series near 1: there are derivatives of all orders."""
    w = sub(x, 1.0)
    near = lt(abs_(w), 0.03)
    safe = select(near, 1.0, w)
    series: Any = 1 / 12
    for n in range(11, 0, -1):
        series = sub(1 / n, mul(w, series))
    # Near 0 the difference from 1 has no digits of x.
    small = lt(x, 0.5)
    below, above = select(small, x, 1.0), select(small, 1.0, safe)
    logarithm = select(small, log(below), log1p(above))
    return neg(mul(g, select(near, series, div(logarithm, safe))))


spence = formula_op("spence", _spence, [_spence_partial])
"""Spence's function, ``∫₁ˣ log(t) / (1 - t) dt``."""
