"""Continuous distributions, by their standard forms."""

from __future__ import annotations

import math
from typing import Any

import treadle.numpy as tnp
from treadle.scipy.special.bessel import i0e
from treadle.scipy.special.elementary import expit, logit, xlog1py, xlogy
from treadle.scipy.special.error_functions import log_ndtr, ndtr, ndtri
from treadle.scipy.special.gammas import betaln, gammaln
from treadle.scipy.special.incomplete import betainc, gammainc, gammaincc
from treadle.scipy.stats.distribution import Continuous

_LOG_TWO_PI = math.log(2 * math.pi)
_POSITIVE = (0.0, math.inf)


def _normal(y: Any) -> Any:
    return -0.5 * (y * y + _LOG_TWO_PI)


norm = Continuous(
    "norm",
    "The normal distribution.",
    logpdf=_normal,
    cdf=ndtr,
    sf=lambda y: ndtr(-y),
    logcdf=log_ndtr,
    logsf=lambda y: log_ndtr(-y),
    ppf=ndtri,
    isf=lambda q: -ndtri(q),
)

uniform = Continuous(
    "uniform",
    "The uniform distribution from `loc` to ``loc + scale``.",
    support=(0.0, 1.0),
    logpdf=lambda y: 0.0 * y,
    cdf=lambda y: y,
    sf=lambda y: 1 - y,
    ppf=lambda q: q,
    isf=lambda q: 1 - q,
)

expon = Continuous(
    "expon",
    "The exponential distribution.",
    support=_POSITIVE,
    logpdf=lambda y: -y,
    cdf=lambda y: -tnp.expm1(-y),
    logsf=lambda y: -y,
    ppf=lambda q: -tnp.log1p(-q),
    isf=lambda q: -tnp.log(q),
)

laplace = Continuous(
    "laplace",
    "Laplace's distribution, exponential on both sides.",
    logpdf=lambda y: -tnp.abs(y) - math.log(2),
    cdf=lambda y: _two_sided(y, 0.5 * tnp.exp(-tnp.abs(y))),
    sf=lambda y: _two_sided(-y, 0.5 * tnp.exp(-tnp.abs(y))),
    ppf=lambda q: _laplace_inverse(q, 1 - q),
    isf=lambda q: _laplace_inverse(1 - q, q),
)


def _two_sided(y: Any, tail: Any) -> Any:
    """A distribution function, by that at -|y| of a symmetric distribution."""
    return tnp.where(y < 0, tail, 1 - tail)


def _laplace_inverse(q: Any, rest: Any) -> Any:
    value = tnp.log(2 * tnp.minimum(q, rest))
    return tnp.where(q < rest, value, -value)


logistic = Continuous(
    "logistic",
    "The logistic distribution.",
    logpdf=lambda y: -tnp.abs(y) - 2 * tnp.log1p(tnp.exp(-tnp.abs(y))),
    cdf=expit,
    sf=lambda y: expit(-y),
    logcdf=lambda y: -tnp.logaddexp(tnp.zeros_like(y), -y),
    logsf=lambda y: -tnp.logaddexp(tnp.zeros_like(y), y),
    ppf=logit,
    isf=lambda q: -logit(q),
)

cauchy = Continuous(
    "cauchy",
    "Cauchy's distribution.",
    logpdf=lambda y: -math.log(math.pi) - tnp.log1p(y * y),
    cdf=lambda y: tnp.arctan2(tnp.ones_like(y), -y) / math.pi,
    sf=lambda y: tnp.arctan2(tnp.ones_like(y), y) / math.pi,
    ppf=lambda q: _cauchy_inverse(q, 1 - q),
    isf=lambda q: _cauchy_inverse(1 - q, q),
)


def _cauchy_inverse(q: Any, rest: Any) -> Any:
    value = 1 / tnp.tan(math.pi * tnp.minimum(q, rest))
    return tnp.where(q < rest, -value, value)


gumbel_r = Continuous(
    "gumbel_r",
    "Gumbel's distribution, of a maximum.",
    logpdf=lambda y: -y - tnp.exp(-y),
    logcdf=lambda y: -tnp.exp(-y),
    sf=lambda y: -tnp.expm1(-tnp.exp(-y)),
    ppf=lambda q: -tnp.log(-tnp.log(q)),
    isf=lambda q: -tnp.log(-tnp.log1p(-q)),
)

gumbel_l = Continuous(
    "gumbel_l",
    "Gumbel's distribution, of a minimum.",
    logpdf=lambda y: y - tnp.exp(y),
    logsf=lambda y: -tnp.exp(y),
    cdf=lambda y: -tnp.expm1(-tnp.exp(y)),
    ppf=lambda q: tnp.log(-tnp.log1p(-q)),
    isf=lambda q: tnp.log(-tnp.log(q)),
)

pareto = Continuous(
    "pareto",
    "Pareto's distribution with exponent b, from 1 on.",
    ("b",),
    support=(1.0, math.inf),
    inside=2.0,
    logpdf=lambda y, b: tnp.log(b) - (b + 1) * tnp.log(y),
    cdf=lambda y, b: -tnp.expm1(-b * tnp.log(y)),
    logsf=lambda y, b: -b * tnp.log(y),
    ppf=lambda q, b: tnp.exp(-tnp.log1p(-q) / b),
    isf=lambda q, b: tnp.exp(-tnp.log(q) / b),
)

gamma = Continuous(
    "gamma",
    "The gamma distribution with shape a.",
    ("a",),
    support=_POSITIVE,
    logpdf=lambda y, a: xlogy(a - 1, y) - y - gammaln(a),
    cdf=lambda y, a: gammainc(a, y),
    sf=lambda y, a: gammaincc(a, y),
)

chi2 = Continuous(
    "chi2",
    "The chi-squared distribution with df degrees of freedom.",
    ("df",),
    support=_POSITIVE,
    logpdf=lambda y, df: (
        xlogy(df / 2 - 1, y / 2) - y / 2 - gammaln(df / 2) - math.log(2)
    ),
    cdf=lambda y, df: gammainc(df / 2, y / 2),
    sf=lambda y, df: gammaincc(df / 2, y / 2),
)

beta = Continuous(
    "beta",
    "The beta distribution with shapes a and b, from 0 to 1.",
    ("a", "b"),
    support=(0.0, 1.0),
    logpdf=lambda y, a, b: xlogy(a - 1, y) + xlog1py(b - 1, -y) - betaln(a, b),
    cdf=lambda y, a, b: betainc(a, b, y),
    sf=lambda y, a, b: betainc(b, a, 1 - y),
)


def _student(y: Any, df: Any) -> Any:
    tail = -(df + 1) / 2 * tnp.log1p(y * y / df)
    return tail - 0.5 * tnp.log(df) - betaln(df / 2, tnp.full_like(df, 0.5))


def _student_tail(y: Any, df: Any) -> Any:
    half = tnp.full_like(df, 0.5)
    return 0.5 * betainc(df / 2, half, df / (df + y * y))


t = Continuous(
    "t",
    "Student's distribution with df degrees of freedom.",
    ("df",),
    logpdf=_student,
    cdf=lambda y, df: _two_sided(y, _student_tail(y, df)),
    sf=lambda y, df: _two_sided(-y, _student_tail(y, df)),
)


def _power(y: Any, beta: Any) -> Any:
    return tnp.exp(xlogy(beta, tnp.abs(y)))


def _generalised_tail(y: Any, beta: Any) -> Any:
    return 0.5 * gammaincc(1 / beta, _power(y, beta))


gennorm = Continuous(
    "gennorm",
    "The generalised normal distribution, ``exp(-|y| ** beta)``.",
    ("beta",),
    logpdf=lambda y, beta: tnp.log(beta / 2) - gammaln(1 / beta) - _power(y, beta),
    cdf=lambda y, beta: _two_sided(y, _generalised_tail(y, beta)),
    sf=lambda y, beta: _two_sided(-y, _generalised_tail(y, beta)),
)


def log_mass(a: Any, b: Any) -> Any:
    """The logarithm of the probability that a normal number is between a and b."""
    # By symmetry both are in the lower tail, or on the two sides of 0.
    upper = a > 0
    a, b = tnp.where(upper, -b, a), tnp.where(upper, -a, b)
    both = b <= 0
    low, high = log_ndtr(a), log_ndtr(tnp.where(both, b, 0.0))
    nothing = low >= high
    apart = tnp.where(nothing, -1.0, low - high)
    tail = tnp.where(nothing, -math.inf, high + tnp.log(-tnp.expm1(apart)))
    return tnp.where(both, tail, tnp.log1p(-ndtr(a) - ndtr(-b)))


truncnorm = Continuous(
    "truncnorm",
    "The normal distribution between `a` and `b` (in standard units).",
    ("a", "b"),
    proper=lambda a, b: a < b,
    support=lambda a, b: (a, b),
    inside=lambda a, b: tnp.clip(0.0 * a, a, b),
    logpdf=lambda y, a, b: _normal(y) - log_mass(a, b),
    logcdf=lambda y, a, b: log_mass(a, y) - log_mass(a, b),
    logsf=lambda y, a, b: log_mass(y, b) - log_mass(a, b),
)

vonmises = Continuous(
    "vonmises",
    "Von Mises' distribution on a circle, with concentration kappa.",
    ("kappa",),
    proper=lambda kappa: kappa >= 0,
    logpdf=lambda y, kappa: (
        kappa * (tnp.cos(y) - 1) - _LOG_TWO_PI - tnp.log(i0e(kappa))
    ),
)

wrapcauchy = Continuous(
    "wrapcauchy",
    "Cauchy's distribution wrapped around a circle, from 0 to 2π.",
    ("c",),
    proper=lambda c: (c > 0) & (c < 1),
    support=(0.0, 2 * math.pi),
    logpdf=lambda y, c: (
        tnp.log1p(-c * c) - _LOG_TWO_PI - tnp.log1p(c * (c - 2 * tnp.cos(y)))
    ),
)
