"""Relatives of the error function, each with its derivative beside it.

The series are Chebyshev's, fitted to 32 digits (see `chebyshev_tables`); that of erfcx
is of Shepherd and Laframboise's form [1].

[1] M. M. Shepherd, J. G. Laframboise, Chebyshev approximation of (1 + 2x) exp(x²)
erfc x, Mathematics of Computation 36 (1981).
"""

from __future__ import annotations

import math
from typing import Any

from treadle.ops import chebyshev_tables as tables
from treadle.ops.arithmetic import add, div, mul, neg, sub
from treadle.ops.compare import gt, lt, select
from treadle.ops.formula import HALF_PI, chebyshev, formula_op, odd
from treadle.ops.unary import abs_, cos, exp, integer_pow, sin

_ROOT_HALF = math.sqrt(0.5)
_ROOT_PI = math.sqrt(math.pi)
_TAIL = 0.0228
_UNDERFLOW = 40.0
"""Where the normal distribution has no density but 0."""
_FAR = 20.0
"""Where the series of inverse powers below have all digits."""


def _square(x: Any) -> Any:
    return mul(x, x)


def _inverse_powers(x: Any, coefficients: tuple[float, ...]) -> Any:
    """A polynomial of 1 / x², from the highest power to the constant."""
    u = div(1.0, _square(x))
    total: Any = coefficients[0]
    for c in coefficients[1:]:
        total = add(mul(total, u), c)
    return total


# erfcx --------------------------------------------------------------------------------


def _upper_erfcx(m: Any, y: Any) -> Any:
    """erfcx of y >= 0."""
    # (y - k) / (y + k), which infinity does not spoil.
    t = 1.0 - 7.5 / (y + 3.75)
    return chebyshev(m, tables.ERFCX, t) / (1.0 + 2.0 * y)


def _erfcx(m: Any, x: Any) -> Any:
    y = m.abs(x)
    upper = _upper_erfcx(m, y)
    # exp(-x²) underflows long after exp(x²) overflows.
    lower = 2.0 * m.exp(y * y) - upper
    return m.where(x < 0.0, lower, upper)


def _erfcx_partial(g: Any, out: Any, x: Any) -> Any:
    """2 x erfcx(x) - 2 / √π, whose terms cancel each other far from 0."""
    far = gt(x, _FAR)
    safe = select(far, x, _FAR)
    series = _inverse_powers(safe, (10395 / 64, -945 / 32, 105 / 16, -15 / 8, 3 / 4))
    tail = mul(add(neg(mul(series, _square(div(1.0, safe)))), 0.5), -2 / _ROOT_PI)
    tail = div(tail, _square(safe))
    near = sub(mul(mul(2.0, x), out), 2 / _ROOT_PI)
    return mul(g, select(far, tail, near))


erfcx = formula_op("erfcx", _erfcx, [_erfcx_partial])
"""``exp(x²) erfc(x)``, which does not underflow."""


# dawsn --------------------------------------------------------------------------------


def _dawsn(m: Any, x: Any) -> Any:
    u = x * x
    small = x * chebyshev(m, tables.DAWSN_SMALL, u)
    large = chebyshev(m, tables.DAWSN_LARGE, 1.0 / u) * (0.5 / x)
    return m.where(u < 25.0, small, large)


def _dawsn_partial(g: Any, out: Any, x: Any) -> Any:
    """1 - 2 x dawsn(x), whose terms cancel each other far from 0."""
    far = gt(abs_(x), _FAR)
    safe = select(far, x, _FAR)
    series = _inverse_powers(safe, (10395 / 64, 945 / 32, 105 / 16, 15 / 8, 3 / 4, 0.5))
    tail = neg(div(series, _square(safe)))
    return mul(g, select(far, tail, sub(1.0, mul(mul(2.0, x), out))))


dawsn = formula_op("dawsn", _dawsn, [_dawsn_partial])
"""Dawson's integral, ``exp(-x²) ∫₀ˣ exp(t²) dt``."""


# The normal distribution --------------------------------------------------------------


def _ndtri(m: Any, p: Any) -> Any:
    less = m.where(p < 0.5, p, 1.0 - p)
    y = m.sqrt(-2.0 * m.log(less))
    tail = y * chebyshev(m, tables.NDTRI, 1.0 / y)
    # At 0 the series meets infinity.
    tail = m.where(less > 0.0, tail, y)
    central = 2.0 * _ROOT_HALF * m.erf_inv(1.0 - 2.0 * less)
    return odd(m, p - 0.5, m.where(less < _TAIL, tail, central))


ndtri = formula_op(
    "ndtri",
    _ndtri,
    [
        lambda g, out, p: mul(
            g, mul(2 * _ROOT_HALF * _ROOT_PI, exp(mul(0.5, _square(out))))
        )
    ],
)
"""The inverse of the distribution function of the normal distribution."""


def _log_ndtr(m: Any, x: Any) -> Any:
    low, y = x < 0.0, m.abs(x)
    scaled = 0.5 * _upper_erfcx(m, _ROOT_HALF * y)
    # exp(-x² / 2), with what the square has lost in rounding; beyond, it is 0.
    near = m.where(y < _UNDERFLOW, y, _UNDERFLOW)
    half = 0.5 * near
    square = half * near
    rest = m.exp(-square)
    rest = rest - rest * m.multiply_add(half, near, -square)
    above = rest * scaled
    # log(1 - above), with what is rounded off in 1 - above: one logarithm for both.
    value = m.where(low, scaled, 1.0 - above)
    lost = ((1.0 - value) - above) / value
    return m.log(value) + m.where(low, -(0.5 * y) * y, lost)


def _log_ndtr_partial(g: Any, out: Any, x: Any) -> Any:
    """The density by the distribution function, whose logarithms are both large in the
    lower tail."""
    low = lt(x, -1.0)
    y = mul(select(low, x, -1.0), -_ROOT_HALF)
    tail = div(2 * _ROOT_HALF / _ROOT_PI, erfcx(y))
    high = select(low, -1.0, x)
    log_value = select(low, 0.0, out)
    ratio = exp(sub(mul(-0.5, _square(high)), log_value))
    return mul(g, select(low, tail, mul(_ROOT_HALF / _ROOT_PI, ratio)))


log_ndtr = formula_op("log_ndtr", _log_ndtr, [_log_ndtr_partial])
"""The logarithm of the distribution function of the normal distribution."""


# Fresnel's integrals ------------------------------------------------------------------

_MIDDLE = 1.6
_QUARTIC = _MIDDLE**4


def _fresnel(sine: bool) -> Any:
    table = tables.FRESNEL_S if sine else tables.FRESNEL_C

    def formula(m: Any, x: Any) -> Any:
        y = m.abs(x)
        square = y * y
        quartic = square * square
        small = chebyshev(m, table, quartic)
        small = small * (y * square if sine else y)
        # The phase π y² / 2 has period 4 in y².
        phase = HALF_PI * (square - 4.0 * m.round(0.25 * square))
        u = 1.0 / quartic
        f = chebyshev(m, tables.FRESNEL_F, u) / (math.pi * y)
        g = chebyshev(m, tables.FRESNEL_G, u) / (math.pi**2 * y * square)
        s, c = m.sin(phase), m.cos(phase)
        large = 0.5 - f * c - g * s if sine else 0.5 + f * s - g * c
        # The square of what is large in single precision overflows.
        large = m.where(y > 1e15, 0.5, large)
        return odd(m, x, m.where(y < _MIDDLE, small, large))

    return formula


def _phase(x: Any) -> Any:
    return mul(HALF_PI, integer_pow(x, n=2))


fresnel_sin = formula_op(
    "fresnel_sin", _fresnel(True), [lambda g, out, x: mul(g, sin(_phase(x)))]
)
"""``∫₀ˣ sin(π t² / 2) dt``."""

fresnel_cos = formula_op(
    "fresnel_cos", _fresnel(False), [lambda g, out, x: mul(g, cos(_phase(x)))]
)
"""``∫₀ˣ cos(π t² / 2) dt``."""
