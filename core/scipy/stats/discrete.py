"""Distributions of whole numbers."""

from __future__ import annotations

import math
from typing import Any

import treadle.numpy as tnp
from treadle.np.operands import ArrayLike
from treadle.run.array import Array
from treadle.scipy.operands import reals
from treadle.scipy.special.elementary import xlog1py, xlogy
from treadle.scipy.special.gammas import betaln, betaln_with, gammaln
from treadle.scipy.special.incomplete import betainc, gammaincc
from treadle.scipy.stats.distribution import Discrete

_FROM_ZERO = (0.0, math.inf)


class _Bernoulli(Discrete):
    """A distribution whose quantiles are either of two numbers."""

    def ppf(self, q: ArrayLike, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The least number up to which there is at least probability q."""
        u, p, loc = self._arguments("ppf", q, args, named)
        value = tnp.where(u > 1 - p, 1.0, 0.0 * u)
        value = tnp.where(u == 0, -1.0, value)
        valid = (u >= 0) & (u <= 1) & (p >= 0) & (p <= 1)
        return tnp.where(valid, value + loc, math.nan)


bernoulli = _Bernoulli(
    "bernoulli",
    "1 with probability p, else 0.",
    ("p",),
    proper=lambda p: (p >= 0) & (p <= 1),
    support=(0.0, 1.0),
    logpmf=lambda k, p: xlogy(k, p) + xlog1py(1 - k, -p),
    cdf=lambda k, p: tnp.where(k < 1, 1 - p, 1.0),
)


def _log_choices(n: Any, k: Any) -> Any:
    """The logarithm of in how many ways k of n can be chosen."""
    return -betaln_with(n - k + 1, k + 1, n + 2) - tnp.log1p(n)


binom = Discrete(
    "binom",
    "How many of n happen, each with probability p.",
    ("n", "p"),
    proper=lambda n, p: (n >= 0) & (p >= 0) & (p <= 1),
    support=lambda n, p: (0.0, n),
    logpmf=lambda k, n, p: _log_choices(n, k) + xlogy(k, p) + xlog1py(n - k, -p),
    cdf=lambda k, n, p: _binomial_cdf(k, n, p),
)


def _binomial_cdf(k: Any, n: Any, p: Any) -> Any:
    below = k < n
    rest = tnp.where(below, n - k, 1.0)
    return tnp.where(below, betainc(rest, k + 1, 1 - p), 1.0)


betabinom = Discrete(
    "betabinom",
    "How many of n happen, with a probability that is drawn from a beta distribution.",
    ("n", "a", "b"),
    proper=lambda n, a, b: (n >= 0) & (a > 0) & (b > 0),
    support=lambda n, a, b: (0.0, n),
    logpmf=lambda k, n, a, b: (
        _log_choices(n, k) + betaln(k + a, n - k + b) - betaln(a, b)
    ),
)

nbinom = Discrete(
    "nbinom",
    "How often it fails before the n-th success, each with probability p.",
    ("n", "p"),
    proper=lambda n, p: (n > 0) & (p > 0) & (p <= 1),
    support=_FROM_ZERO,
    logpmf=lambda k, n, p: (
        xlogy(n, p) + xlog1py(k, -p) - betaln(n, k + 1) - tnp.log(n + k)
    ),
    cdf=lambda k, n, p: betainc(n, k + 1, p),
)

geom = Discrete(
    "geom",
    "At which try it succeeds first, each with probability p.",
    ("p",),
    proper=lambda p: (p > 0) & (p <= 1),
    support=(1.0, math.inf),
    inside=1.0,
    logpmf=lambda k, p: xlog1py(k - 1, -p) + tnp.log(p),
    cdf=lambda k, p: -tnp.expm1(xlog1py(k, -p)),
)


class _Poisson(Discrete):
    """A distribution with a formula for its entropy."""

    def entropy(self, *args: ArrayLike, **named: ArrayLike) -> Array:
        """The entropy: for large rates by its series in 1 / mu, else by its sum."""
        _, mu, _ = self._arguments("entropy", 0.0, args, named)
        large = mu > _LARGE_RATE
        rate = tnp.where(large, 1.0, mu)
        k = tnp.arange(_TERMS, dtype=mu.dtype)
        log = self._logpmf(k, rate[..., None])
        terms = tnp.where(log > -math.inf, tnp.exp(log) * log, 0.0)
        near = -tnp.sum(terms, axis=-1)
        u = 1 / tnp.where(large, mu, 1.0)
        series = -u * (1 / 12 + u * (1 / 24 + u * (19 / 360 + u * (9 / 80))))
        far = 0.5 * tnp.log(2 * math.pi * math.e * tnp.where(large, mu, 1.0)) + series
        return tnp.where(mu >= 0, tnp.where(large, far, near), math.nan)


_LARGE_RATE = 100.0
_TERMS = 256

poisson = _Poisson(
    "poisson",
    "How often it happens, mu times on average.",
    ("mu",),
    proper=lambda mu: mu >= 0,
    support=_FROM_ZERO,
    logpmf=lambda k, mu: xlogy(k, mu) - gammaln(k + 1) - mu,
    cdf=lambda k, mu: gammaincc(k + 1, mu),
)


class Multinomial:
    """How often each of some results comes in n tries."""

    def logpmf(self, x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
        """The logarithm of the probability of the counts x, whose sum is n.

        Args:
          x, p: counts and probabilities, along the last axis.
        """
        counts, total, shares = reals("multinomial", x, n, p)
        whole = tnp.all((counts >= 0) & (tnp.floor(counts) == counts), axis=-1)
        fits = whole & (tnp.sum(counts, axis=-1) == total)
        terms = xlogy(counts, shares) - gammaln(tnp.where(counts >= 0, counts, 0.0) + 1)
        value = gammaln(total + 1) + tnp.sum(terms, axis=-1)
        return tnp.where(fits, value, -math.inf)

    def pmf(self, x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
        """The probability of the counts x."""
        return tnp.exp(self.logpmf(x, n, p))


multinomial = Multinomial()
