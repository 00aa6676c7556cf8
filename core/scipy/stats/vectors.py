"""Distributions of vectors, and densities estimated from samples."""

from __future__ import annotations

import math
from typing import Any

import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike
from treadle.run.array import Array
from treadle.scipy.operands import floats, reals
from treadle.scipy.special.elementary import xlogy
from treadle.scipy.special.error_functions import ndtr
from treadle.scipy.special.gammas import gammaln
from treadle.scipy.special.sums import logsumexp

_LOG_TWO_PI = math.log(2 * math.pi)


class Dirichlet:
    """Shares that add up to 1."""

    def logpdf(self, x: ArrayLike, alpha: ArrayLike) -> Array:
        """The logarithm of the density.

        Args:
          x: shares along the first axis, or all but the last of them.
          alpha: as many positive numbers.

        Raises:
          ValueError: if there are more or fewer numbers.
        """
        shares, shapes = reals("dirichlet", x, alpha)
        fits = shapes.ndim == 1 and shares.ndim
        if not fits or shapes.shape[0] - shares.shape[0] not in (0, 1):
            raise ValueError(
                f"dirichlet: shares of shape {shares.shape} for alpha of shape "
                f"{shapes.shape}{at(user_source())}\n"
                "alpha is a vector; shares lie along the first axis."
            )
        if shares.shape[0] == shapes.shape[0] - 1:
            shares = tnp.concatenate(
                [shares, 1 - tnp.sum(shares, axis=0, keepdims=True)]
            )
        shapes = shapes.reshape(-1, *[1] * (shares.ndim - 1))
        inside = tnp.all(shares >= 0, axis=0)
        inside = inside & (tnp.abs(tnp.sum(shares, axis=0) - 1) < _SUM_TOLERANCE)
        safe = tnp.where(shares >= 0, shares, 1.0)
        norm = tnp.sum(gammaln(shapes), axis=0) - gammaln(tnp.sum(shapes, axis=0))
        value = tnp.sum(xlogy(shapes - 1, safe), axis=0) - norm
        return tnp.where(inside, value, -math.inf)

    def pdf(self, x: ArrayLike, alpha: ArrayLike) -> Array:
        """The density."""
        return tnp.exp(self.logpdf(x, alpha))


_SUM_TOLERANCE = 1e-5

dirichlet = Dirichlet()


class MultivariateNormal:
    """The normal distribution of vectors."""

    def logpdf(self, x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The logarithm of the density.

        Args:
          x, mean: vectors along the last axis; a scalar mean is that of all elements.
          cov: positive definite matrices in the last two axes, or one variance for all
            elements. Where a matrix is not positive definite, the result is not a
            number.

        >>> import treadle as td
        >>> import treadle.numpy as tnp
        >>> normal = td.scipy.stats.multivariate_normal
        >>> normal.logpdf(tnp.zeros(2), tnp.zeros(2), tnp.eye(2))
        Array(-1.8379, dtype=float32)
        """
        points, centre, spread = reals("multivariate_normal", x, mean, cov)
        rest = tnp.atleast_1d(points - centre)
        n = rest.shape[-1]
        if not spread.ndim:
            square = tnp.sum(rest * rest, axis=-1) / spread
            return -0.5 * (square + n * (_LOG_TWO_PI + tnp.log(spread)))
        factor = tnp.linalg.cholesky(spread)
        return _normal_by_factor(rest, factor)

    def pdf(self, x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The density."""
        return tnp.exp(self.logpdf(x, mean, cov))


def _normal_by_factor(rest: Any, factor: Any) -> Any:
    """The log-density of what is left of vectors, by their covariance's factor."""
    shape = tnp.broadcast_shapes(rest.shape[:-1], factor.shape[:-2])
    n = rest.shape[-1]
    factor = tnp.broadcast_to(factor, (*shape, n, n))
    rest = tnp.broadcast_to(rest, (*shape, n))
    y = tnp.linalg.solve_triangular(factor, rest[..., None], lower=True)[..., 0]
    log_det = tnp.sum(tnp.log(tnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    return -0.5 * (tnp.sum(y * y, axis=-1) + n * _LOG_TWO_PI) - log_det


multivariate_normal = MultivariateNormal()


class gaussian_kde:
    """The density of which samples are, estimated by a normal bump at each.

    Args:
      dataset: samples along the last axis; with two axes, vectors along the first.
      bw_method: the width of the bumps beside the spread of the samples: "scott" (the
        default), "silverman", a number, or a function of this object.
      weights: of the samples; equal by default.

    Raises:
      ValueError: for fewer than two samples, or weights of another shape.

    >>> import treadle as td
    >>> import treadle.numpy as tnp
    >>> kde = td.scipy.stats.gaussian_kde(tnp.array([0.0, 1.0, 2.0]))
    >>> kde.evaluate(tnp.array([1.0]))
    Array([0.3182], dtype=float32)
    """

    def __init__(
        self, dataset: ArrayLike, bw_method: Any = None, weights: Any = None
    ) -> None:
        (samples,) = floats("gaussian_kde", dataset)
        self.dataset = tnp.atleast_2d(samples)
        self.d, self.n = self.dataset.shape
        if self.n < 2:
            raise ValueError(
                f"gaussian_kde takes two samples or more, got shape {samples.shape}"
                f"{at(user_source())}"
            )
        if weights is None:
            self.weights = tnp.full((self.n,), 1 / self.n, self.dataset.dtype)
        else:
            (weights,) = floats("gaussian_kde", weights)
            if weights.shape != (self.n,):
                raise ValueError(
                    f"gaussian_kde: weights of shape {weights.shape} for {self.n} "
                    f"samples{at(user_source())}"
                )
            self.weights = weights / tnp.sum(weights)
        self.neff = 1 / tnp.sum(self.weights * self.weights)
        self.factor = self._factor(bw_method)
        spread = tnp.cov(self.dataset, bias=False, aweights=self.weights)
        self.covariance = tnp.atleast_2d(spread) * self.factor**2
        self._cholesky = tnp.linalg.cholesky(self.covariance)

    def _factor(self, bw_method: Any) -> Any:
        if bw_method is None or bw_method == "scott":
            return self.neff ** (-1 / (self.d + 4))
        if bw_method == "silverman":
            return (self.neff * (self.d + 2) / 4) ** (-1 / (self.d + 4))
        if callable(bw_method):
            return bw_method(self)
        if isinstance(bw_method, str):
            raise ValueError(
                f"gaussian_kde: bw_method is 'scott', 'silverman', a number or a "
                f"function, got {bw_method!r}{at(user_source())}"
            )
        return bw_method

    def logpdf(self, points: ArrayLike) -> Array:
        """The logarithm of the density at points, which lie along the last axis."""
        given = self._points(*floats("gaussian_kde", points))
        rest = (given[:, :, None] - self.dataset[:, None, :]).transpose(1, 2, 0)
        logs = _normal_by_factor(rest, self._cholesky)
        return logsumexp(logs + tnp.log(self.weights), axis=1)  # type: ignore[return-value]

    def evaluate(self, points: ArrayLike) -> Array:
        """The density at points, which lie along the last axis."""
        return tnp.exp(self.logpdf(points))

    pdf = __call__ = evaluate

    def _points(self, points: Any) -> Any:
        points = tnp.atleast_2d(points)
        if points.shape[0] != self.d and self.d == points.shape[1] == points.size:
            points = points.reshape(self.d, 1)
        if points.shape[0] != self.d:
            raise ValueError(
                f"gaussian_kde: points of shape {points.shape} for samples of "
                f"dimension {self.d}{at(user_source())}"
            )
        return points

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """The probability between two numbers, if samples are numbers.

        Raises:
          ValueError: if they are vectors.
        """
        if self.d != 1:
            raise ValueError(
                f"gaussian_kde: samples of dimension {self.d} lie in no interval"
                f"{at(user_source())}"
            )
        width = self._cholesky[0, 0]
        ends = [ndtr((end - self.dataset[0]) / width) for end in (high, low)]
        return tnp.sum(self.weights * (ends[0] - ends[1]))

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The integral of the density times that of a normal distribution."""
        mean, cov = reals("gaussian_kde", mean, cov)
        mean = tnp.atleast_1d(mean)
        factor = tnp.linalg.cholesky(self.covariance + tnp.atleast_2d(cov))
        log = _normal_by_factor(self.dataset.T - mean, factor)
        return tnp.sum(self.weights * tnp.exp(log))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two densities."""
        factor = tnp.linalg.cholesky(self.covariance + other.covariance)
        rest = (self.dataset[:, :, None] - other.dataset[:, None, :]).transpose(1, 2, 0)
        values = tnp.exp(_normal_by_factor(rest, factor))
        return tnp.sum(self.weights[:, None] * other.weights * values)
