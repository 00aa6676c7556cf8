"""Losses that ask for a margin, and nothing beyond it."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.losses.operands import chosen, narrow, same

Array = td.Array


def hinge(scores: tnp.ArrayLike, targets: tnp.ArrayLike) -> Array:
    """``max(0, 1 - targets · scores)`` for targets of -1 and 1. Elementwise.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> hinge(tnp.array([0.5, 3.0]), tnp.array([1, -1]))
    Array([0.5, 4. ], dtype=float32)
    """
    x, y = same("hinge", scores, targets)
    return narrow(tnp.maximum(1 - y * x, 0), scores)


def squared_hinge(scores: tnp.ArrayLike, targets: tnp.ArrayLike) -> Array:
    """The square of `hinge`. Elementwise.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> squared_hinge(tnp.array([0.5, 3.0]), tnp.array([1, -1]))
    Array([ 0.25, 16.  ], dtype=float32)
    """
    x, y = same("squared_hinge", scores, targets)
    return narrow(tnp.square(tnp.maximum(1 - y * x, 0)), scores)


def _classes(name: str, scores: Any, labels: Any) -> tuple[Array, Array, Array]:
    """Scores, which of them is the label's, and the label's score (..., 1)."""
    scores, labels = check.as_array(scores), check.as_array(labels)
    fits = td.dtypes.is_integer(labels.dtype) and labels.shape == scores.shape[:-1]
    if not fits:
        raise ValueError(
            f"{name} takes scores (..., classes) and integer labels (...); got scores "
            f"{td.typeof(scores)} and labels {td.typeof(labels)}{at(user_source())}"
        )
    wide = check.wide(scores)
    mine = chosen(labels, wide.shape[-1])
    picked = tnp.where(mine, wide, 0).sum(-1, keepdims=True)
    return wide, mine, tnp.where(mine.any(-1, keepdims=True), picked, tnp.nan)


def multiclass_hinge(scores: tnp.ArrayLike, labels: tnp.ArrayLike) -> Array:
    """How far the label's score is from being 1 above all others.

    ``max_i (scores_i + [i ≠ label]) - scores_label``. Shapes: scores (..., classes),
    labels (...) of integers. A label that is no class gives NaN.

    Crammer and Singer, *On the Algorithmic Implementation of Multiclass Kernel-based
    Vector Machines*, 2001.

    Raises:
      ValueError: if the shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> multiclass_hinge(tnp.array([[3.0, 1.0], [3.0, 1.0]]), tnp.array([0, 1]))
    Array([0., 3.], dtype=float32)
    """
    wide, mine, picked = _classes("multiclass_hinge", scores, labels)
    loss = tnp.where(mine, wide, wide + 1).max(-1) - picked[..., 0]
    return narrow(loss, scores)


def multi_margin(
    scores: tnp.ArrayLike, labels: tnp.ArrayLike, margin: float = 1.0, power: int = 1
) -> Array:
    """The mean over all classes of how far each is inside the label's margin.

    ``Σ_{i ≠ label} max(0, margin - scores_label + scores_i)**power / classes``. Shapes:
    scores (..., classes), labels (...) of integers. A label that is no class gives NaN.

    Raises:
      ValueError: if the shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> multi_margin(tnp.array([[3.0, 1.0], [3.0, 1.0]]), tnp.array([0, 1]))
    Array([0. , 1.5], dtype=float32)
    """
    check.positive("multi_margin", "power", power)
    check.within("multi_margin", "margin", margin)
    wide, mine, picked = _classes("multi_margin", scores, labels)
    inside = tnp.maximum(margin - picked + wide, 0) ** power
    return narrow(tnp.where(mine, 0, inside).mean(-1), scores)


def margin_ranking(
    first: tnp.ArrayLike,
    second: tnp.ArrayLike,
    targets: tnp.ArrayLike,
    margin: float = 0.0,
) -> Array:
    """``max(0, margin - targets · (first - second))``: 1 for a first that should be
    larger, -1 for a second that should. Elementwise.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> margin_ranking(tnp.array([2.0, 2.0]), tnp.array([1.0, 1.0]), tnp.array([1, -1]))
    Array([0., 1.], dtype=float32)
    """
    check.within("margin_ranking", "margin", margin)
    x, y, sign = same("margin_ranking", first, second, targets)
    return narrow(tnp.maximum(margin - sign * (x - y), 0), first)


def triplet_margin(
    anchors: tnp.ArrayLike,
    positives: tnp.ArrayLike,
    negatives: tnp.ArrayLike,
    margin: float = 1.0,
    *,
    order: float = 2.0,
    eps: float = 1e-6,
) -> Array:
    """How far the positive is from being nearer than the negative by a margin.

    ``max(0, d(a, p) - d(a, n) + margin)``, ``d(x, y) = (Σ |x - y|**order + eps)**(1 /
    order)``. Shapes: three of (..., features); the result (...).

    Balntas et al., *Learning shallow convolutional feature descriptors with triplet
    losses*, 2016.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> triplet_margin(tnp.zeros(2), tnp.array([3.0, 4.0]), tnp.array([0.0, 2.0]))
    Array(4., dtype=float32)
    """
    check.positive("triplet_margin", "order", order)
    check.within("triplet_margin", "margin", margin)
    check.within("triplet_margin", "eps", eps)
    a, p, n = same("triplet_margin", anchors, positives, negatives)

    def distance(y: Array) -> Array:
        powers = tnp.abs(a - y) ** order if order != 2 else tnp.square(a - y)
        return (powers.sum(-1) + eps) ** (1 / order)

    return narrow(tnp.maximum(distance(p) - distance(n) + margin, 0), anchors)
