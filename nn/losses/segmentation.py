"""Losses of masks: how little regions overlap."""

from __future__ import annotations

import treadle as td
import treadle.numpy as tnp
from treadle.nn import check
from treadle.nn.losses.operands import among, narrow, same


def dice(
    probabilities: tnp.ArrayLike,
    targets: tnp.ArrayLike,
    *,
    alpha: float = 0.5,
    beta: float = 0.5,
    smooth: float = 1.0,
    where: tnp.ArrayLike | None = None,
) -> td.Array:
    """How little regions overlap, for each example and class.

    ``1 - (∩ + s) / (∩ + alpha (Σp - ∩) + beta (Σt - ∩) + s)`` with ``∩ = Σ p t``.
    Halves for `alpha` (of what is found wrongly) and `beta` (of what is missed) give
    the Dice loss; others Tversky's.

    Shapes: both (batch, ..., classes), summed over the axes between; the result
    (batch, classes). Probabilities are `softmax` or `sigmoid` of logits; a background
    class is left out by ``[:, 1:]`` of the result, and classes are weighted by
    ``tnp.average(losses, axis=-1, weights=...)``.

    Args:
      where: the positions that count, broadcast against the probabilities.

    Milletari et al., *V-Net: Fully Convolutional Neural Networks for Volumetric Medical
    Image Segmentation*, 2016; Salehi et al., *Tversky loss function for image
    segmentation*, 2017.

    Raises:
      ValueError: if the shapes differ.

    >>> import treadle.numpy as tnp
    >>> p, t = tnp.array([[[0.5], [0.5]]]), tnp.array([[[1.0], [0.0]]])
    >>> dice(p, t)
    Array([[0.25]], dtype=float32)
    """
    check.within("dice", "alpha", alpha)
    check.within("dice", "beta", beta)
    check.within("dice", "smooth", smooth)
    p, t = same("dice", probabilities, targets)
    axes = tuple(range(1, p.ndim - 1))
    p, t = among(p, where), among(t, where)
    both = (p * t).sum(axes)
    wrong, missed = p.sum(axes) - both, t.sum(axes) - both
    overlap = (both + smooth) / (both + alpha * wrong + beta * missed + smooth)
    return narrow(tnp.subtract(1, overlap), probabilities)
