"""The incomplete gamma and beta functions, regularised.

Series and continued fractions go on until they have all digits: about as many steps as
the square root of the parameters is large. Gamma functions of large parameters have an
expansion (`large_gammas.py`).
"""

from __future__ import annotations

import math
from typing import Any

import treadle.numpy as tnp
from treadle.api.branch import cond
from treadle.api.custom import custom_jvp
from treadle.api.linear import jvp
from treadle.np.operands import ArrayLike, cast
from treadle.run.array import Array
from treadle.scipy.operands import floats, single_at_least
from treadle.scipy.special import large_betas, large_gammas
from treadle.scipy.special.elementary import xlog1py, xlogy
from treadle.scipy.special.gammas import betaln, digamma, gammaln, stirling
from treadle.scipy.special.loops import fraction, series

_LARGE = 10.0


def gammainc(a: ArrayLike, x: ArrayLike, /) -> Array:
    """The lower incomplete gamma function, ``∫₀ˣ tᵃ⁻¹ exp(-t) dt / Γ(a)``, for positive
    a. It is differentiable by both.

    >>> import treadle as td
    >>> td.scipy.special.gammainc(1.0, 1.0)
    Array(0.6321, dtype=float32)
    """
    (a, x), dtype = single_at_least(floats("gammainc", a, x))
    return cast(_gammainc(a, x), dtype)


def gammaincc(a: ArrayLike, x: ArrayLike, /) -> Array:
    """The upper incomplete gamma function, ``1 - gammainc(a, x)``, accurate for large
    x."""
    (a, x), dtype = single_at_least(floats("gammaincc", a, x))
    return cast(_gammaincc(a, x), dtype)


def _log_density(a: Any, x: Any) -> Any:
    """``a log(x) - x - log Γ(a)``, not as the difference of large numbers."""
    large = a > _LARGE
    wide = tnp.where(large, a, _LARGE)
    apart = large_gammas.apart((x - wide) / wide, x / wide)
    # The logarithm of Γ by Stirling's formula, less that of the other factors.
    exact = -wide * apart + 0.5 * tnp.log(wide / (2 * math.pi))
    small = tnp.where(large, 1.0, a)
    plain = xlogy(small, x) - x - gammaln(small)
    return tnp.where(large, exact - stirling(wide), plain)


def _lower_series(a: Any, x: Any) -> Any:
    """The lower function in units of `_log_density`, for x up to about a."""
    return series(1 / a, lambda t, k: t * x / (a + k))


def _upper_fraction(a: Any, x: Any, settled: Any = 0.0) -> Any:
    """One over the upper function in units of `_log_density`, for x from about a on."""
    terms = lambda k: (k * (a - k), x + (2 * k + 1) - a)  # noqa: E731
    return fraction(terms, x + 1 - a, settled)


def _settled(x: Any) -> Any:
    """After how many terms of it derivatives have their digits. (At whole parameters it
    ends, and says nothing of them.)"""
    return 20 + 100 / x


def _is_near(a: Any, x: Any, most: Any = math.inf) -> Any:
    close = tnp.abs(x - a) < tnp.minimum(large_gammas.NEAR * a, most)
    return (a >= large_gammas.LEAST) & close


def _parts(a: Any, x: Any, derived: bool) -> tuple[Any, Any, Any]:
    """The lower and the upper function: each where the other would be inaccurate; and
    where the lower one is meant.

    derived: whether derivatives by a are taken.
    """
    good = (a > 0) & (x > 0) & (x < math.inf) & (a < math.inf)
    large = good & _is_near(a, x)
    low = x < a + 1
    near = large_gammas.near(tnp.where(large, a, 1e6), tnp.where(large, x, 1e6))
    a, x = (tnp.where(good & ~large, y, 1.0) for y in (a, x))
    density = tnp.exp(_log_density(a, x))
    lower = density * _lower_series(*_or(low, (a, x), (1.0, 1e-3)))
    b, y = _or(~low, (a, x), (1.0, 10.0))
    upper = density / _upper_fraction(b, y, _settled(y) if derived else 0.0)
    return tnp.where(large, near[0], lower), tnp.where(large, near[1], upper), low


def _or(chosen: Any, values: Any, others: Any) -> list[Any]:
    return [tnp.where(chosen, v, o) for v, o in zip(values, others, strict=True)]


def _edges(a: Any, x: Any, value: Any, at_zero: float) -> Any:
    """The value, where arguments are no limits and not outside."""
    bad = ~(a >= 0) | ~(x >= 0) | ((a == 0) & (x == 0)) | ((a == x) & (a == math.inf))
    zero = (x == 0) | (a == math.inf)
    full = (a == 0) | (x == math.inf)
    value = tnp.where(full, 1 - at_zero, tnp.where(zero, at_zero, value))
    return tnp.where(bad, math.nan, value)


def _lower_of(a: Any, x: Any, derived: bool) -> Any:
    lower, upper, low = _parts(a, x, derived)
    return _edges(a, x, tnp.where(low, lower, 1 - upper), 0.0)


def _upper_of(a: Any, x: Any, derived: bool) -> Any:
    lower, upper, low = _parts(a, x, derived)
    return _edges(a, x, tnp.where(low, 1 - lower, upper), 1.0)


_gammainc = custom_jvp(lambda a, x: _lower_of(a, x, derived=False))
_gammaincc = custom_jvp(lambda a, x: _upper_of(a, x, derived=False))


def _density(a: Any, x: Any) -> Any:
    """The derivative of the lower function by x."""
    inside = (x > 0) & (a > 0) & (x < math.inf)
    safe = tnp.where(inside, x, 1.0)
    some = tnp.where(inside, a, 1.0)
    value = tnp.exp(_log_density(some, safe)) / safe
    limit = tnp.where(a == 1, 1.0, tnp.where(a < 1, math.inf, 0.0))
    return tnp.where(inside, value, tnp.where(x == 0, limit, 0.0))


def _by_first(function: Any, first: Any, *rest: Any) -> Any:
    """The derivative by the first argument, by differentiating series and fractions."""
    return jvp(lambda x: function(x, *rest), (first,), (tnp.ones_like(first),))[1]


@_gammainc.defjvp
def _gammainc_jvp(primals: Any, tangents: Any) -> Any:
    (a, x), (da, dx) = primals, tangents
    tangent = _by_first(_lower_of, a, x, True) * da + _density(a, x) * dx
    return _gammainc(a, x), tangent


@_gammaincc.defjvp
def _gammaincc_jvp(primals: Any, tangents: Any) -> Any:
    (a, x), (da, dx) = primals, tangents
    tangent = _by_first(_upper_of, a, x, True) * da - _density(a, x) * dx
    return _gammaincc(a, x), tangent


def gamma_slope(a: Any, log_x: Any) -> Any:
    """The derivative of log(x) by a, where a number from the lower function's
    distribution keeps its place in it: that of samples by their parameter.

    By M. Figurnov et al., Implicit reparameterization gradients (2018).
    """
    x = tnp.exp(log_x)
    # The density of what is farther away than this underflows.
    large, low = _is_near(a, x, 8 * tnp.sqrt(a)), x < a + 1
    b, y = (tnp.where(large, v, 1e6) for v in (a, x))
    along = -_by_first(lambda a, x: large_gammas.near(a, x)[0], b, y)
    near = along * tnp.exp(-_log_density(b, y))
    a, x, log_x = _or(~large, (a, x, log_x), (1.0, 1.0, 0.0))
    # How the density changes, in units of itself.
    change = _log_ratio(a, x, log_x)
    b, y = _or(low, (a, x), (1.0, 1e-3))
    below = -(change * _lower_series(b, y) + _by_first(_lower_series, b, y))
    b, y = _or(~low, (a, x), (1.0, 10.0))
    one_over = _upper_fraction(b, y)
    slope = _by_first(_upper_fraction, b, y, _settled(y))
    above = (change - slope / one_over) / one_over
    return tnp.where(large, near, tnp.where(low, below, above))


def _log_ratio(a: Any, x: Any, log_x: Any) -> Any:
    """``log(x) - digamma(a)``, not as the difference of large numbers."""
    large = (a > _LARGE) & (x > 0)
    wide, y = _or(large, (a, x), (_LARGE, _LARGE))
    u = 1 / (wide * wide)
    rest = 0.5 / wide + u * (1 / 12 - u * (1 / 120 - u * (1 / 252 - u / 240)))
    small = tnp.where(large, 1.0, a)
    exact = tnp.log1p((y - wide) / wide) + rest
    return tnp.where(large, exact, log_x - digamma(small))


# The incomplete beta function ---------------------------------------------------------


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Array:
    """The incomplete beta function, ``∫₀ˣ tᵃ⁻¹ (1 - t)ᵇ⁻¹ dt / B(a, b)``, for positive
    a and b, and x from 0 to 1. It is differentiable by all three.

    >>> import treadle as td
    >>> td.scipy.special.betainc(1.0, 2.0, 0.25)
    Array(0.4375, dtype=float32)
    """
    (a, b, x), dtype = single_at_least(floats("betainc", a, b, x))
    return cast(_betainc(a, b, x), dtype)


_BETA_SETTLED = 30.0
"""After how many terms derivatives have their digits, at whole parameters too."""


def _nothing(a: Any, b: Any, x: Any) -> Any:
    return 0.0 * x


def _beta_fraction(a: Any, b: Any, x: Any, y: Any, settled: float) -> Any:
    """By which ``xᵃ yᵇ / B(a, b)`` is divided, where y is 1 - x and ``(a + 1) y`` at
    least ``(b + 1) x``, about up to the mean: but for that difference, terms are sums
    of positive numbers [1].

    [1] A. DiDonato, A. Morris, Significant digit computation of the incomplete beta
    function ratios (1992).
    """
    # a y - b x + 1, and not 0 after rounding. (A maximum would halve derivatives at 0.)
    apart = (a + 1) * y - (b + 1) * x
    below = tnp.where(apart >= 0, apart, 0.0) + 2 * x

    def terms(m: Any) -> Any:
        of_a, middle = a + m, a + 2 * m
        share = (b - m) * x
        above = (of_a - 1) / (middle - 1) * ((of_a + b - 1) * x / (middle - 1))
        one = m + m * share / (middle - 1)
        return above * m * share, one + of_a / (middle + 1) * (below + m * (1 + y))

    return fraction(terms, a / (a + 1) * below, settled)


def _betainc_of(a: Any, b: Any, x: Any, settled: float) -> Any:
    good = (a > 0) & (b > 0) & (x > 0) & (x < 1) & (a < math.inf) & (b < math.inf)
    large = good & large_betas.is_near(*_or(good, (a, b, x), (1.0, 1.0, 0.5)))
    near = cond(
        tnp.any(large),
        large_betas.lower,
        _nothing,
        *_or(large, (a, b, x), (1e6, 1e6, 0.5)),
    )
    p, q, y = _or(good & ~large, (a, b, x), (1.0, 1.0, 0.5))
    density = tnp.exp(xlogy(p, y) + xlog1py(q, -y) - betaln(p, q))
    # The fraction converges quickly below the mean, and its mirror image above.
    turned = (p + 1) * (1 - y) < (q + 1) * y
    value = density / _beta_fraction(
        tnp.where(turned, q, p),
        tnp.where(turned, p, q),
        tnp.where(turned, 1 - y, y),
        tnp.where(turned, y, 1 - y),
        settled,
    )
    value = tnp.where(large, near, tnp.where(turned, 1 - value, value))
    value = tnp.where(x <= 0, 0.0, tnp.where(x >= 1, 1.0, value))
    bad = ~(a > 0) | ~(b > 0) | ~(x >= 0) | ~(x <= 1)
    return tnp.where(bad | (a == math.inf) | (b == math.inf), math.nan, value)


_betainc = custom_jvp(lambda a, b, x: _betainc_of(a, b, x, settled=0.0))


@_betainc.defjvp
def _betainc_jvp(primals: Any, tangents: Any) -> Any:
    (a, b, x), (da, db, dx) = primals, tangents
    inside = (x > 0) & (x < 1)
    y = tnp.where(inside, x, 0.5)
    by_x = tnp.exp(xlogy(a - 1, y) + xlog1py(b - 1, -y) - betaln(a, b))
    by_a = _by_first(_betainc_of, a, b, x, _BETA_SETTLED)
    by_b = _by_first(lambda b: _betainc_of(a, b, x, _BETA_SETTLED), b)
    by_x = tnp.where(inside, by_x, 0.0)
    return _betainc(a, b, x), by_a * da + by_b * db + by_x * dx
