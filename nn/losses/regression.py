"""Losses of real values. All are elementwise."""

from __future__ import annotations

import math

import treadle as td
import treadle.numpy as tnp
from treadle.nn import check
from treadle.nn.functions.activation import softplus
from treadle.nn.losses.operands import narrow, same

Array = td.Array


def squared_error(prediction: tnp.ArrayLike, target: tnp.ArrayLike) -> Array:
    """``(prediction - target) ** 2``, elementwise.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> squared_error(tnp.array([1.0, 5.0]), tnp.array([1.0, 3.0]))
    Array([0., 4.], dtype=float32)
    """
    x, y = same("squared_error", prediction, target)
    return narrow(tnp.square(x - y), prediction)


def absolute_error(prediction: tnp.ArrayLike, target: tnp.ArrayLike) -> Array:
    """``|prediction - target|``, elementwise.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> absolute_error(tnp.array([1.0, 5.0]), tnp.array([1.0, 3.0]))
    Array([0., 2.], dtype=float32)
    """
    x, y = same("absolute_error", prediction, target)
    return narrow(tnp.abs(x - y), prediction)


def huber(
    prediction: tnp.ArrayLike, target: tnp.ArrayLike, delta: float = 1.0
) -> Array:
    """Half the squared error up to `delta`, linear beyond (Huber 1964). Elementwise.

    Raises:
      ValueError: if the shapes differ, or the option is out of range.

    >>> import treadle.numpy as tnp
    >>> huber(tnp.array([0.5, 5.0]), tnp.array([0.0, 0.0]))
    Array([0.125, 4.5  ], dtype=float32)
    """
    check.positive("huber", "delta", delta)
    x, y = same("huber", prediction, target)
    distance = tnp.abs(x - y)
    near = tnp.minimum(distance, delta)
    return narrow(near * (distance - 0.5 * near), prediction)


def log_cosh(prediction: tnp.ArrayLike, target: tnp.ArrayLike) -> Array:
    """``log(cosh(prediction - target))``: half the squared error near 0, the absolute
    error less log 2 far from it. Elementwise, without overflow.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> log_cosh(tnp.array([0.1, 500.0]), tnp.array([0.0, 0.0]))
    Array([  0.005 , 499.3069], dtype=float32)
    """
    x, y = same("log_cosh", prediction, target)
    error = x - y
    return narrow(error + softplus(-2 * error) - math.log(2), prediction)


def quantile_error(
    prediction: tnp.ArrayLike, target: tnp.ArrayLike, quantile: float = 0.5
) -> Array:
    """The error whose mean is least at a quantile of the targets (the pinball loss).

    ``max(quantile · e, (quantile - 1) · e)``, ``e = target - prediction``. Elementwise.

    Koenker and Bassett, *Regression Quantiles*, 1978.

    Raises:
      ValueError: if the shapes differ, or the option is out of range.

    >>> import treadle.numpy as tnp
    >>> quantile_error(tnp.array([0.0, 0.0]), tnp.array([1.0, -1.0]), 0.9)
    Array([0.9, 0.1], dtype=float32)
    """
    check.within("quantile_error", "quantile", quantile, 0, 1)
    x, y = same("quantile_error", prediction, target)
    error = y - x
    return narrow(tnp.maximum(quantile * error, (quantile - 1) * error), prediction)


def poisson_nll(
    log_rate: tnp.ArrayLike, target: tnp.ArrayLike, full: bool = False
) -> Array:
    """The negative log-likelihood of counts under Poisson distributions.

    ``exp(log_rate) - target · log_rate``. Elementwise.

    Args:
      full: whether to add Stirling's approximation of ``log(target!)``, for targets
        above 1; what does not depend on the rate is left out otherwise.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> poisson_nll(tnp.array([0.0, 1.0]), tnp.array([2, 2]))
    Array([1.    , 0.7183], dtype=float32)
    """
    x, y = same("poisson_nll", log_rate, target)
    loss = tnp.exp(x) - y * x
    if full:
        many = tnp.maximum(y, 1)
        stirling = many * tnp.log(many) - many + 0.5 * tnp.log(2 * math.pi * many)
        loss = loss + tnp.where(y > 1, stirling, 0)
    return narrow(loss, log_rate)


def gaussian_nll(
    mean: tnp.ArrayLike,
    target: tnp.ArrayLike,
    variance: tnp.ArrayLike,
    full: bool = False,
    eps: float = 1e-6,
) -> Array:
    """The negative log-likelihood of values under normal distributions.

    ``½ (log v + (mean - target)² / v)``, ``v = max(variance, eps)``. Elementwise.

    Args:
      full: whether to add ``½ log 2π``.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> one = tnp.ones(2)
    >>> gaussian_nll(tnp.array([0.0, 3.0]), one, one)
    Array([0.5, 2. ], dtype=float32)
    """
    check.within("gaussian_nll", "eps", eps)
    x, y, variance = same("gaussian_nll", mean, target, variance)
    variance = tnp.maximum(variance, eps)
    loss = 0.5 * (tnp.log(variance) + tnp.square(x - y) / variance)
    return narrow(loss + 0.5 * math.log(2 * math.pi) if full else loss, mean)
