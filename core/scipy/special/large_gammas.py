"""The incomplete gamma functions of large parameters, near to these.

By Temme's expansion (DLMF 8.12), uniform in x: an error function, and a correction in
powers of 1/a whose coefficients are series in η, where η²/2 = x/a - 1 - log(x/a).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import treadle.numpy as tnp
from treadle.scipy.special.error_functions import erfc

LEAST = 1e4
"""Parameters from which on three terms have all digits."""
NEAR = 0.3
"""How far x may be from a, in units of a: beyond, few terms of a series are enough."""

_STIRLING = (Fraction(1), Fraction(1, 12), Fraction(1, 288))
_POWERS = 16


@cache
def _coefficients() -> tuple[tuple[float, ...], ...]:
    """For each power of 1/a the coefficients of powers of η, low ones first."""
    count = _POWERS + 2 * len(_STIRLING) + 1
    # x/a - 1 = Σ alpha[n] ηⁿ, of which the derivative is η / (1 - a/x).
    alpha = [Fraction(0), Fraction(1)]
    for n in range(2, count + 2):
        # Of the power n of μ μ' = η (1 + μ) the one unknown is alpha[n].
        known = sum(
            [alpha[i] * (n + 1 - i) * alpha[n + 1 - i] for i in range(2, n)],
            Fraction(0),
        )
        alpha.append((alpha[n - 1] - known) / (n + 1))
    first = [Fraction(-1, 3)]
    first += [(n + 2) * alpha[n + 2] for n in range(1, count - 2)]
    rows, sign = [first], 1
    for stirling in _STIRLING[1:]:
        last, sign = rows[-1], -sign
        shifted = [(n + 2) * last[n + 2] for n in range(len(last) - 2)]
        rows.append(
            [sign * stirling * f + s for f, s in zip(first, shifted, strict=False)]
        )
    return tuple([tuple(map(float, row[:_POWERS])) for row in rows])


def _power_series(coefficients: Any, x: Any) -> Any:
    total: Any = 0.0
    for c in reversed(coefficients):
        total = total * x + c
    return total


def deviation(mu: Any) -> Any:
    """η for μ = x/a - 1, of at most `NEAR`: about as large, and smooth at 0."""
    # log1p(μ) is 2 atanh(r): what is left of it without μ is a series of r.
    q = 1 / (2 + mu)
    r = mu * q
    series = _power_series([1 / (2 * k + 3) for k in range(11)], r * r)
    return mu * tnp.sqrt(2 * q - 4 * q * q * r * series)


def apart(mu: Any, ratio: Any) -> Any:
    """``μ - log(1 + μ)``, which is η²/2, with all its digits, given ``1 + μ`` with its
    own: those of μ are none near -1."""
    close = tnp.abs(mu) < NEAR
    eta = deviation(tnp.where(close, mu, 0.0))
    return tnp.where(close, 0.5 * eta * eta, mu - tnp.log(ratio))


def near(a: Any, x: Any) -> tuple[Any, Any]:
    """The lower and the upper function."""
    eta = deviation((x - a) / a)
    terms = [_power_series(c, eta) for c in _coefficients()]
    size = tnp.exp(-0.5 * a * eta * eta) / tnp.sqrt(2 * math.pi * a)
    correction = size * _power_series(terms, 1 / a)
    place = eta * tnp.sqrt(0.5 * a)
    return 0.5 * erfc(-place) - correction, 0.5 * erfc(place) + correction
