"""Sentence embeddings: a vector for a whole text (Reimers and Gurevych 2019)."""

from __future__ import annotations

from typing import Literal

import treadle as td
import treadle.numpy as tnp
from treadle import nn
from treadle.models.bert import Bert

Pooling = Literal["mean", "first", "max"]
_POOLINGS = ("mean", "first", "max")


class SentenceEncoder(nn.Module):
    """One vector for a text, of those that a `Bert` gives for its tokens.

    Shapes: tokens ``(batch, length)`` of integers ``-> (batch, width)``. `mask` and
    `segments` are those of `Bert`; padding takes no part.

    Args:
      pooling: the mean of the vectors, the first, or the largest of each number.
      normalize: whether vectors get length 1; their products are then cosines.

    >>> from treadle import models, nn, rng
    >>> bert = models.Bert(100, 16, 2, 4, key=rng.key(0))
    >>> encoder = nn.inference(models.SentenceEncoder(bert))
    >>> encoder([[5, 6, 7], [8, 9, 0]], mask=[[1, 1, 1], [1, 1, 0]]).shape
    (2, 16)
    """

    bert: Bert
    pooling: Pooling
    normalize: bool

    def __init__(
        self, bert: Bert, *, pooling: Pooling = "mean", normalize: bool = True
    ) -> None:
        if pooling not in _POOLINGS:
            raise ValueError(
                f"SentenceEncoder: pooling is one of {', '.join(_POOLINGS)}; got "
                f"{pooling!r}"
            )
        self.bert, self.pooling, self.normalize = bert, pooling, normalize

    def __call__(
        self,
        tokens: tnp.ArrayLike,
        mask: tnp.ArrayLike | None = None,
        segments: tnp.ArrayLike | None = None,
    ) -> td.Array:
        x = self._pooled(self.bert(tokens, mask, segments), mask)
        if not self.normalize:
            return x
        length = tnp.sqrt(tnp.square(x).sum(-1, keepdims=True))
        return x / tnp.maximum(length, 1e-12)

    def _pooled(self, x: td.Array, mask: tnp.ArrayLike | None) -> td.Array:
        if self.pooling == "first":
            return x[..., 0, :]
        seen = tnp.ones(x.shape[:-1], bool) if mask is None else tnp.asarray(mask)
        seen = seen.astype(tnp.bool_)[..., None]
        if self.pooling == "max":
            lowest = float(tnp.finfo(x.dtype).min)
            return tnp.where(seen, x, lowest).max(-2)
        # A text without tokens has the vector 0.
        count = tnp.maximum(seen.sum(-2), 1).astype(x.dtype)
        return tnp.where(seen, x, 0).sum(-2) / count
