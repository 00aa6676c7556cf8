"""GPT-2: a language model that reads from left to right (Radford 2019)."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.models.parts import INIT, Activation, PreNormBlock


class GPT2(nn.Module):
    """Tells which token comes next, at each place of a text.

    Shapes: tokens ``(batch, length)`` of integers ``-> (batch, length, entries)``,
    logits. Any length up to `positions`; a jitted model
    has one program for all.

    Args:
      entries: the number of tokens that there are.
      depth: the number of layers.
      hidden: the width inside of the feed-forward parts; by default ``4 * width``.
      positions: the largest length.
      tied: whether logits are made by the table of tokens.
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    Of a call, `lengths`, (batch), is how many tokens each text has; those behind them
    are padding. With caches (`nn.with_cache`) it is called with new tokens alone, as
    `generate` does.

    >>> from treadle import models, nn, rng
    >>> gpt = nn.inference(models.GPT2(100, 16, 2, 4, key=rng.key(0)))
    >>> gpt([[5, 6, 7]]).shape
    (1, 3, 100)
    """

    tokens: nn.Embedding
    positions: nn.PositionalEmbedding
    layers: list[PreNormBlock]
    norm: nn.LayerNorm
    head: nn.Linear | None
    dropout: nn.Dropout

    def __init__(
        self,
        entries: int,
        width: int,
        depth: int,
        heads: int,
        *,
        hidden: int | None = None,
        positions: int = 1024,
        tied: bool = True,
        activation: Activation = nn.gelu,
        eps: float = 1e-5,
        dropout: float = 0.1,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        token_key, position_key, layers_key = rng.split(key, 3)
        self.tokens = nn.Embedding(
            entries, width, weight_init=INIT, key=token_key, **dtypes
        )
        self.positions = nn.PositionalEmbedding(
            positions, width, key=position_key, **dtypes
        )
        self.layers = [
            PreNormBlock(
                width,
                heads,
                hidden=hidden,
                activation=activation,
                eps=eps,
                dropout=dropout,
                key=layer_key,
                **dtypes,
            )
            for layer_key in rng.split(layers_key, depth)
        ]
        self.norm = nn.LayerNorm(width, eps=eps, **dtypes)
        head: Any = {"bias": False, "weight_init": INIT, "key": rng.fold_in(key, 3)}
        self.head = None if tied else nn.Linear(width, entries, **head, **dtypes)
        self.dropout = nn.Dropout(dropout)

    def __call__(
        self, tokens: tnp.ArrayLike, lengths: tnp.ArrayLike | None = None
    ) -> td.Array:
        x = self.encode(tokens, lengths)
        return self.tokens.attend(x) if self.head is None else self.head(x)

    def encode(
        self, tokens: tnp.ArrayLike, lengths: tnp.ArrayLike | None = None
    ) -> td.Array:
        """The vectors that logits are made of: ``(batch, length, width)``."""
        x = self.dropout(self.positions(self.tokens(tokens), lengths=lengths))
        for layer in self.layers:
            x = layer(x, causal=True, lengths=lengths)
        return self.norm(x)
