"""Losses of classifiers, from logits, and divergences of distributions."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle.nn import check
from treadle.nn.functions.activation import (
    log_softmax,
    sigmoid,
    softmax,
    softplus,
    top,
)
from treadle.nn.losses.operands import among, by_number, chosen, narrow, same

Array = td.Array


def cross_entropy(
    logits: tnp.ArrayLike,
    labels: tnp.ArrayLike,
    smoothing: float = 0.0,
    *,
    where: tnp.ArrayLike | None = None,
    class_weights: tnp.ArrayLike | None = None,
) -> Array:
    """The negative log-probability of the labels.

    Shapes: logits (..., classes); labels (...) of integers, or (..., classes) of
    probabilities (or of relevances, for a ranking of lists); the result (...).

    Args:
      smoothing: the share of the label's probability that is spread evenly over all
        classes (Szegedy 2015).
      where: the classes that there are, like the logits; the others have probability 0.
        Where there is none, the loss is 0.
      class_weights: (classes,), what the part of each class is multiplied by.

    A label that is no class gives NaN; where some examples don't count, choose:
    ``losses.mean(where=labels >= 0)``. What has probability 0 in the labels adds 0,
    even if its logit is minus infinity.

    Raises:
      ValueError: if the shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> cross_entropy(tnp.array([[0.0, 0.0], [9.0, -9.0]]), tnp.array([0, 0]))
    Array([0.6931, 0.    ], dtype=float32)
    """
    check.within("cross_entropy", "smoothing", smoothing, 0, 1)
    logits, labels = check.as_array(logits), check.as_array(labels)
    numbers = by_number("cross_entropy", logits, labels)
    if numbers and where is None and class_weights is None:
        return check.narrow(_of_numbers(check.wide(logits), labels, smoothing), logits)
    wide = _allowed(check.wide(logits), where)
    q, known = _probabilities(wide, labels, numbers, where)
    if smoothing:
        there = among(tnp.ones(wide.shape, wide.dtype), where)
        evenly = there / tnp.maximum(there.sum(-1, keepdims=True), 1)
        q = (1 - smoothing) * q + smoothing * evenly
    if class_weights is not None:
        q = q * tnp.asarray(class_weights).astype(q.dtype)
    loss = tnp.where(known, -_weighted(q, log_softmax(wide)).sum(-1), tnp.nan)
    if where is not None:
        loss = tnp.where(tnp.asarray(where).any(-1), loss, 0)
    return check.narrow(loss, logits)


def _of_numbers(wide: Array, labels: Array, smoothing: float) -> Array:
    """Without a logarithm for each class."""
    largest = top(wide, -1)
    mine = chosen(labels, wide.shape[-1])
    picked = tnp.where(mine, wide, 0).sum(-1)
    if smoothing:
        picked = (1 - smoothing) * picked + smoothing * wide.mean(-1)
    # Relative to the largest: the difference of two large numbers loses digits.
    rest = tnp.log(tnp.exp(wide - largest).sum(-1))
    return tnp.where(mine.any(-1), rest - (picked - largest[..., 0]), tnp.nan)


def _allowed(wide: Array, where: Any) -> Array:
    """Logits with those of classes that there are not at minus infinity."""
    if where is None:
        return wide
    where = tnp.asarray(where)
    # Zeros where there is none: a row of infinities has no derivative.
    return tnp.where(
        where, wide, tnp.where(where.any(-1, keepdims=True), -tnp.inf, 0.0)
    ).astype(wide.dtype)


def _probabilities(
    wide: Array, labels: Array, numbers: bool, where: Any
) -> tuple[Array, Any]:
    """The labels as probabilities of what there is, and whether they are any."""
    if not numbers:
        return among(labels.astype(wide.dtype), where), True
    mine = chosen(labels, wide.shape[-1])
    mine = mine if where is None else mine & where
    return mine.astype(wide.dtype), mine.any(-1)


def _weighted(q: Array, log_p: Array) -> Array:
    """``q · log p``, and 0 where both are impossible."""
    impossible = (q == 0) & (log_p == -tnp.inf)
    return q * tnp.where(impossible, 0, log_p)


def binary_cross_entropy(
    logits: tnp.ArrayLike,
    labels: tnp.ArrayLike,
    smoothing: float = 0.0,
    *,
    positive_weight: tnp.ArrayLike | None = None,
) -> Array:
    """The negative log-probability of labels 0 and 1 (or probabilities between), where
    ``sigmoid(logits)`` is the probability of 1. Elementwise.

    Args:
      smoothing: labels become ``(1 - smoothing) · labels + smoothing / 2``.
      positive_weight: what the part of the label 1 is multiplied by, a number or one
        for each class (of the last axis).

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> binary_cross_entropy(tnp.array([0.0, 100.0]), tnp.array([1, 0]))
    Array([  0.6931, 100.    ], dtype=float32)
    """
    check.within("binary_cross_entropy", "smoothing", smoothing, 0, 1)
    x, y = same("binary_cross_entropy", logits, labels)
    if smoothing:
        y = (1 - smoothing) * y + smoothing / 2
    if positive_weight is None:
        return narrow(softplus(x) - y * x, logits)
    weight = tnp.asarray(positive_weight).astype(x.dtype)
    return narrow((1 - y) * x + (1 + (weight - 1) * y) * softplus(-x), logits)


def poly_cross_entropy(
    logits: tnp.ArrayLike,
    labels: tnp.ArrayLike,
    epsilon: float = 2.0,
    *,
    where: tnp.ArrayLike | None = None,
) -> Array:
    """``cross_entropy + epsilon · (1 - p)``, p the probability of the label.

    Below -1, `epsilon` would make good guesses better by making them worse.

    Shapes and `where` as for `cross_entropy`.

    Leng et al., *PolyLoss: A Polynomial Expansion Perspective of Classification Loss
    Functions*, 2022.

    Raises:
      ValueError: if the shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> poly_cross_entropy(tnp.array([[0.0, 0.0]]), tnp.array([0]), epsilon=1.0)
    Array([1.1931], dtype=float32)
    """
    check.within("poly_cross_entropy", "epsilon", epsilon, -1)
    logits, labels = check.as_array(logits), check.as_array(labels)
    numbers = by_number("poly_cross_entropy", logits, labels)
    wide = _allowed(check.wide(logits), where)
    q, _ = _probabilities(wide, labels, numbers, where)
    missing = (q * (1 - softmax(wide))).sum(-1)
    entropy = cross_entropy(check.wide(logits), labels, where=where)
    return check.narrow(entropy + epsilon * missing, logits)


def _power(x: Array, exponent: Any) -> Array:
    """``x**exponent`` of what is never negative, with a derivative at 0."""
    return tnp.maximum(x, 1e-37) ** exponent


def focal(
    logits: tnp.ArrayLike,
    labels: tnp.ArrayLike,
    gamma: float = 2.0,
    *,
    class_weights: tnp.ArrayLike | None = None,
) -> Array:
    """`cross_entropy` in which what is classified well counts little.

    ``-Σ w q (1 - p)**gamma log p`` over the classes, with probabilities q of the labels
    and p of the model. Shapes as for `cross_entropy`.

    Lin et al., *Focal Loss for Dense Object Detection*, 2017.

    Raises:
      ValueError: if the shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> focal(tnp.array([[0.0, 0.0], [4.0, 0.0]]), tnp.array([0, 0]))
    Array([0.1733, 0.    ], dtype=float32)
    """
    check.within("focal", "gamma", gamma)
    logits, labels = check.as_array(logits), check.as_array(labels)
    numbers = by_number("focal", logits, labels)
    wide = check.wide(logits)
    q, known = _probabilities(wide, labels, numbers, None)
    if class_weights is not None:
        q = q * tnp.asarray(class_weights).astype(q.dtype)
    log_p = log_softmax(wide)
    parts = _weighted(q * _power(-tnp.expm1(log_p), gamma), log_p)
    return check.narrow(tnp.where(known, -parts.sum(-1), tnp.nan), logits)


def binary_focal(
    logits: tnp.ArrayLike,
    labels: tnp.ArrayLike,
    gamma: float = 2.0,
    alpha: float | None = None,
) -> Array:
    """`binary_cross_entropy` in which what is classified well counts little.

    ``(1 - p)**gamma · binary_cross_entropy``, with p the probability of the label.
    Elementwise.

    Args:
      alpha: the weight of the label 1, and ``1 - alpha`` that of 0; None for no
        weights.

    Lin et al., *Focal Loss for Dense Object Detection*, 2017.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> binary_focal(tnp.array([0.0, 4.0]), tnp.array([1, 1]))
    Array([0.1733, 0.    ], dtype=float32)
    """
    check.within("binary_focal", "gamma", gamma)
    check.within("binary_focal", "alpha", alpha, 0, 1)
    x, y = same("binary_focal", logits, labels)
    missed = (1 - y) * sigmoid(x) + y * sigmoid(-x)
    loss = _power(missed, gamma) * (softplus(x) - y * x)
    if alpha is not None:
        loss = (alpha * y + (1 - alpha) * (1 - y)) * loss
    return narrow(loss, logits)


def kl_divergence(
    log_q: tnp.ArrayLike, log_p: tnp.ArrayLike, *, where: tnp.ArrayLike | None = None
) -> Array:
    """The divergence KL(p || q) over the last axis, from log-probabilities.

    Shapes: ``(..., classes), (..., classes) -> (...)``. Of probabilities p take the
    logarithm, also of zeros.

    Args:
      where: the classes that count, like `log_q`.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> log_p, log_q = tnp.log(tnp.array([0.5, 0.5])), tnp.log(tnp.array([0.25, 0.75]))
    >>> kl_divergence(log_q, log_p)
    Array(0.1438, dtype=float32)
    """
    q, p = same("kl_divergence", log_q, log_p)
    return narrow(among(_divergence(q, p), where).sum(-1), log_q)


def _divergence(log_q: Array, log_p: Array) -> Array:
    # What is impossible under p contributes nothing, not 0 · inf.
    there = log_p > -tnp.inf
    gap = tnp.where(there, log_p, 0) - tnp.where(there, log_q, 0)
    return tnp.exp(log_p) * gap


def generalized_kl_divergence(
    log_q: tnp.ArrayLike, log_p: tnp.ArrayLike, *, where: tnp.ArrayLike | None = None
) -> Array:
    """`kl_divergence` of measures that need not sum to 1: ``Σ p log(p / q) + q - p``.

    It is convex in q and p together, and never negative.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> log_p, log_q = tnp.log(tnp.array([0.5, 0.5])), tnp.log(tnp.array([0.5, 1.0]))
    >>> generalized_kl_divergence(log_q, log_p)
    Array(0.1534, dtype=float32)
    """
    q, p = same("generalized_kl_divergence", log_q, log_p)
    parts = _divergence(q, p) + tnp.exp(q) - tnp.exp(p)
    return narrow(among(parts, where).sum(-1), log_q)
