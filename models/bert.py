"""BERT: an encoder of text that sees in both directions (Devlin 2018)."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.models.parts import (
    INIT,
    Activation,
    exact_gelu,
    for_heads,
)


class BertLayer(nn.Module):
    """Attention and a feed-forward part, each added and then normalised.

    Shapes: ``(batch, length, width) -> (batch, length, width)``.
    """

    attention: nn.MultiHeadAttention
    attention_norm: nn.LayerNorm
    feed_forward: nn.FeedForward
    norm: nn.LayerNorm
    dropout: nn.Dropout

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        *,
        activation: Activation,
        eps: float,
        dropout: float,
        dtype: Any,
        param_dtype: Any,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        attention_key, forward_key = rng.split(key)
        self.attention = nn.MultiHeadAttention(
            width, heads, key=attention_key, **dtypes
        )
        self.attention_norm = nn.LayerNorm(width, eps=eps, **dtypes)
        self.feed_forward = nn.FeedForward(
            width,
            hidden,
            activation=activation,
            weight_init=INIT,
            key=forward_key,
            **dtypes,
        )
        self.norm = nn.LayerNorm(width, eps=eps, **dtypes)
        self.dropout = nn.Dropout(dropout)

    def __call__(self, x: td.Array, mask: td.Array | None) -> td.Array:
        x = self.attention_norm(x + self.dropout(self.attention(x, mask=mask)))
        return self.norm(x + self.dropout(self.feed_forward(x)))


class Bert(nn.Module):
    """Vectors for the tokens of a text, of which each knows all others.

    Shapes: tokens ``(batch, length)`` of integers ``-> (batch, length, width)``. Any
    length up to `positions`; a jitted model has one program for all.

    Args:
      entries: the number of tokens that there are.
      depth: the number of layers.
      hidden: the width inside of the feed-forward parts; by default ``4 * width``.
      positions, segments: the largest length, and the number of kinds of text.
      pooler: whether there is a layer for `pool`.
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    Of a call, `mask`, (batch, length), is 1 or True at tokens and 0 at padding;
    `segments`, of the shape of the tokens, says which kind of text each is of.

    >>> from treadle import models, nn, rng
    >>> bert = nn.inference(models.Bert(100, 16, 2, 4, key=rng.key(0)))
    >>> bert([[5, 6, 7], [8, 9, 0]], mask=[[1, 1, 1], [1, 1, 0]]).shape
    (2, 3, 16)
    """

    tokens: nn.Embedding
    positions: nn.PositionalEmbedding
    segments: nn.Embedding
    norm: nn.LayerNorm
    layers: list[BertLayer]
    pooler: nn.Linear | None
    dropout: nn.Dropout

    def __init__(
        self,
        entries: int,
        width: int,
        depth: int,
        heads: int,
        *,
        hidden: int | None = None,
        positions: int = 512,
        segments: int = 2,
        pooler: bool = True,
        activation: Activation = exact_gelu,
        eps: float = 1e-12,
        dropout: float = 0.1,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        keys = rng.split(key, 4)
        self.tokens = nn.Embedding(entries, width, key=keys[0], **dtypes)
        self.positions = nn.PositionalEmbedding(positions, width, key=keys[1], **dtypes)
        self.segments = nn.Embedding(segments, width, key=keys[2], **dtypes)
        self.norm = nn.LayerNorm(width, eps=eps, **dtypes)
        *layer_keys, pooler_key = rng.split(keys[3], depth + 1)
        self.layers = [
            BertLayer(
                width,
                heads,
                hidden or 4 * width,
                activation=activation,
                eps=eps,
                dropout=dropout,
                key=layer_key,
                **dtypes,
            )
            for layer_key in layer_keys
        ]
        self.pooler = (
            nn.Linear(width, width, weight_init=INIT, key=pooler_key, **dtypes)
            if pooler
            else None
        )
        self.dropout = nn.Dropout(dropout)

    def __call__(
        self,
        tokens: tnp.ArrayLike,
        mask: tnp.ArrayLike | None = None,
        segments: tnp.ArrayLike | None = None,
    ) -> td.Array:
        tokens = tnp.asarray(tokens)
        kinds = tnp.zeros_like(tokens) if segments is None else segments
        x = self.positions(self.tokens(tokens) + self.segments(kinds))
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x, for_heads(mask))
        return x

    def pool(self, x: td.Array) -> td.Array:
        """A vector for the text, made of that of its first token.

        Shapes: ``(batch, length, width) -> (batch, width)``.
        """
        if self.pooler is None:
            raise ValueError("this Bert was made without a pooler: `pooler=True`")
        return tnp.tanh(self.pooler(x[..., 0, :]))


class BertMaskedLM(nn.Module):
    """A `Bert` that tells which tokens fit at each place. What is added has its dtypes.

    Shapes: tokens ``(batch, length) -> (batch, length, entries)``, logits.

    >>> from treadle import models, nn, rng
    >>> k1, k2 = rng.split(rng.key(0))
    >>> bert = models.Bert(100, 16, 2, 4, key=k1)
    >>> nn.inference(models.BertMaskedLM(bert, key=k2))([[5, 6, 7]]).shape
    (1, 3, 100)
    """

    bert: Bert
    transform: nn.Linear
    norm: nn.LayerNorm
    bias: td.Array
    activation: Activation

    def __init__(
        self, bert: Bert, *, activation: Activation = exact_gelu, key: rng.Key
    ) -> None:
        width, param_dtype = bert.tokens.features, bert.tokens.weight.dtype
        dtypes: Any = {"dtype": bert.tokens.dtype, "param_dtype": param_dtype}
        self.bert, self.activation = bert, activation
        self.transform = nn.Linear(width, width, weight_init=INIT, key=key, **dtypes)
        self.norm = nn.LayerNorm(width, eps=bert.norm.eps, **dtypes)
        self.bias = tnp.zeros(bert.tokens.entries, param_dtype)

    def __call__(
        self,
        tokens: tnp.ArrayLike,
        mask: tnp.ArrayLike | None = None,
        segments: tnp.ArrayLike | None = None,
    ) -> td.Array:
        x = self.activation(self.transform(self.bert(tokens, mask, segments)))
        logits = self.bert.tokens.attend(self.norm(x))
        return logits + self.bias.astype(logits.dtype)


class BertClassifier(nn.Module):
    """A `Bert` that tells of which class a text is. What is added has its
    dtypes.

    Shapes: tokens ``(batch, length) -> (batch, classes)``, logits.

    >>> from treadle import models, nn, rng
    >>> k1, k2 = rng.split(rng.key(0))
    >>> bert = models.Bert(100, 16, 2, 4, key=k1)
    >>> nn.inference(models.BertClassifier(bert, 3, key=k2))([[5, 6, 7]]).shape
    (1, 3)
    """

    bert: Bert
    dropout: nn.Dropout
    head: nn.Linear

    def __init__(
        self, bert: Bert, classes: int, *, dropout: float = 0.1, key: rng.Key
    ) -> None:
        self.bert, self.dropout = bert, nn.Dropout(dropout)
        width = bert.tokens.features
        self.head = nn.Linear(
            width,
            classes,
            weight_init=INIT,
            dtype=bert.tokens.dtype,
            param_dtype=bert.tokens.weight.dtype,
            key=key,
        )

    def __call__(
        self,
        tokens: tnp.ArrayLike,
        mask: tnp.ArrayLike | None = None,
        segments: tnp.ArrayLike | None = None,
    ) -> td.Array:
        pooled = self.bert.pool(self.bert(tokens, mask, segments))
        return self.head(self.dropout(pooled))
