"""Losses: one value per example. Average them: ``nn.cross_entropy(...).mean()``."""

from __future__ import annotations

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.functions.activation import log_softmax, softplus, top

Array = td.Array


def cross_entropy(
    logits: tnp.ArrayLike, labels: tnp.ArrayLike, smoothing: float = 0.0
) -> Array:
    """The negative log-probability of the labels.

    Shapes: logits (..., classes); labels (...) of integers, or (..., classes) of
    probabilities; the result (...).

    Args:
      smoothing: the share of the label's probability that is spread evenly over all
        classes (Szegedy 2015).

    Halves are computed in float32. A label that is no class gives NaN; where some
    examples don't count, choose: ``tnp.where(labels >= 0, losses, 0)``.

    Raises:
      ValueError: if the shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> cross_entropy(tnp.array([[0.0, 0.0], [9.0, -9.0]]), tnp.array([0, 0]))
    Array([0.6931, 0.    ], dtype=float32)
    """
    logits, labels = tnp.asarray(logits), tnp.asarray(labels)
    by_number = td.dtypes.is_integer(labels.dtype)
    if labels.shape != (logits.shape[:-1] if by_number else logits.shape):
        raise ValueError(
            "cross_entropy takes logits (..., classes) and integer labels (...), or "
            f"probabilities (..., classes); got logits {td.typeof(logits)} and labels "
            f"{td.typeof(labels)}{at(user_source())}"
        )
    classes = logits.shape[-1]
    if not by_number:
        if smoothing:
            labels = (1 - smoothing) * labels + smoothing / classes
        return -(labels * log_softmax(logits)).sum(-1)
    if labels.dtype.itemsize < 4:  # can't count to the number of classes, perhaps
        labels = labels.astype(tnp.int32)
    wide = check.wide(logits)
    largest = top(wide, -1)
    # A masked sum rather than a gather: it fuses with the pass over the row, and so
    # does its derivative, which would be a scatter.
    chosen = labels[..., None] == tnp.arange(classes, dtype=labels.dtype)
    picked = tnp.where(chosen, wide, 0).sum(-1)
    if smoothing:
        picked = (1 - smoothing) * picked + smoothing * wide.mean(-1)
    # Relative to the largest: the difference of two large numbers loses digits.
    rest = tnp.log(tnp.exp(wide - largest).sum(-1))
    loss = tnp.where(chosen.any(-1), rest - (picked - largest[..., 0]), tnp.nan)
    return check.narrow(loss, logits)


def binary_cross_entropy(logits: tnp.ArrayLike, labels: tnp.ArrayLike) -> Array:
    """The negative log-probability of labels 0 and 1 (or probabilities between), where
    ``sigmoid(logits)`` is the probability of 1. Elementwise.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> binary_cross_entropy(tnp.array([0.0, 100.0]), tnp.array([1, 0]))
    Array([  0.6931, 100.    ], dtype=float32)
    """
    logits, labels = _same("binary_cross_entropy", logits, labels)
    return softplus(logits) - labels * logits


def squared_error(prediction: tnp.ArrayLike, target: tnp.ArrayLike) -> Array:
    """``(prediction - target) ** 2``, elementwise.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> squared_error(tnp.array([1.0, 5.0]), tnp.array([1.0, 3.0]))
    Array([0., 4.], dtype=float32)
    """
    prediction, target = _same("squared_error", prediction, target)
    return tnp.square(prediction - target)


def absolute_error(prediction: tnp.ArrayLike, target: tnp.ArrayLike) -> Array:
    """``|prediction - target|``, elementwise.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> absolute_error(tnp.array([1.0, 5.0]), tnp.array([1.0, 3.0]))
    Array([0., 2.], dtype=float32)
    """
    prediction, target = _same("absolute_error", prediction, target)
    return tnp.abs(prediction - target)


def huber(
    prediction: tnp.ArrayLike, target: tnp.ArrayLike, delta: float = 1.0
) -> Array:
    """Half the squared error up to `delta`, linear beyond (Huber 1964). Elementwise.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> huber(tnp.array([0.5, 5.0]), tnp.array([0.0, 0.0]))
    Array([0.125, 4.5  ], dtype=float32)
    """
    prediction, target = _same("huber", prediction, target)
    distance = tnp.abs(prediction - target)
    near = tnp.minimum(distance, delta)
    return near * (distance - 0.5 * near)


def kl_divergence(log_q: tnp.ArrayLike, log_p: tnp.ArrayLike) -> Array:
    """The divergence KL(p || q) over the last axis, from log-probabilities.

    Shapes: ``(..., classes), (..., classes) -> (...)``.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> log_p, log_q = tnp.log(tnp.array([0.5, 0.5])), tnp.log(tnp.array([0.25, 0.75]))
    >>> kl_divergence(log_q, log_p)
    Array(0.1438, dtype=float32)
    """
    log_q, log_p = _same("kl_divergence", log_q, log_p)
    # What is impossible under p contributes nothing, not 0 · inf.
    there = log_p > -tnp.inf
    gap = tnp.where(there, log_p, 0) - tnp.where(there, log_q, 0)
    return (tnp.exp(log_p) * gap).sum(-1)


def _same(name: str, x: tnp.ArrayLike, y: tnp.ArrayLike) -> tuple[Array, Array]:
    """Both as arrays of one shape: to broadcast (n,) against (n, 1) is a slip."""
    x, y = tnp.asarray(x), tnp.asarray(y)
    if x.shape != y.shape:
        raise ValueError(
            f"{name} takes two arrays of one shape; got {td.typeof(x)} and "
            f"{td.typeof(y)}{at(user_source())}\n"
            "Broadcasting is not meant here: `x[..., None]` or `x.reshape(...)` first."
        )
    return x, y if td.dtypes.is_differentiable(y.dtype) else y.astype(x.dtype)
