"""Llama: a language model with rotary positions, grouped heads and gated units
(Touvron 2023)."""

from __future__ import annotations

from functools import partial
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.models.parts import INIT, Activation


class Llama(nn.Module):
    """Tells which token comes next, at each place of a text.

    Shapes: tokens ``(batch, length)`` of integers ``-> (batch, length, entries)``,
    logits. A jitted model has one program for all lengths.

    Args:
      entries: the number of tokens that there are.
      depth: the number of layers.
      hidden: the number of gated units of a layer.
      kv_heads: the heads of keys and values; by default as many as of queries.
      rotary: turns queries and keys by their places; by default a
        `nn.RotaryEmbedding` of heads of ``width // heads`` numbers. For longer texts
        `nn.RotaryEmbedding(size, base=500000.0, scaling=nn.Llama3Scaling(8.0))`.
      tied: whether logits are made by the table of tokens.
      attention_bias, bias: whether linear layers have one, those of attention and the
        others.
      activation: of the gates.
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    Of a call, `lengths`, (batch), is how many tokens each text has; those behind them
    are padding. With caches (`nn.with_cache`) it is called with new tokens alone, as
    `generate` does.

    >>> from treadle import models, rng
    >>> llama = models.Llama(100, 16, 2, 4, 48, kv_heads=2, key=rng.key(0))
    >>> llama([[5, 6, 7]]).shape
    (1, 3, 100)
    """

    tokens: nn.Embedding
    layers: list[nn.TransformerEncoderBlock]
    norm: nn.RMSNorm
    head: nn.Linear | None

    def __init__(
        self,
        entries: int,
        width: int,
        depth: int,
        heads: int,
        hidden: int,
        *,
        kv_heads: int | None = None,
        rotary: nn.RotaryEmbedding | None = None,
        tied: bool = False,
        attention_bias: bool = False,
        bias: bool = False,
        activation: Activation = nn.silu,
        eps: float = 1e-6,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        token_key, head_key, layers_key = rng.split(key, 3)
        if rotary is None:
            rotary = nn.RotaryEmbedding(width // heads)
        block = partial(
            nn.TransformerEncoderBlock,
            norm=partial(nn.RMSNorm, eps=eps),
            attention=partial(
                nn.MultiHeadAttention,
                kv_heads=kv_heads,
                head_size=rotary.size,
                rotary=rotary,
                bias=attention_bias,
                weight_init=INIT,
            ),
            mlp=partial(
                nn.GatedMLP, bias=bias, activation=activation, weight_init=INIT
            ),
        )
        self.tokens = nn.Embedding(
            entries, width, weight_init=INIT, key=token_key, **dtypes
        )
        self.layers = [
            block(width, heads, hidden, key=k, **dtypes)
            for k in rng.split(layers_key, depth)
        ]
        self.norm = nn.RMSNorm(width, eps=eps, **dtypes)
        self.head = (
            None
            if tied
            else nn.Linear(
                width, entries, bias=False, weight_init=INIT, key=head_key, **dtypes
            )
        )

    def __call__(
        self, tokens: tnp.ArrayLike, lengths: tnp.ArrayLike | None = None
    ) -> td.Array:
        x = self.encode(tokens, lengths)
        return self.tokens.attend(x) if self.head is None else self.head(x)

    def encode(
        self, tokens: tnp.ArrayLike, lengths: tnp.ArrayLike | None = None
    ) -> td.Array:
        """The vectors that logits are made of: ``(batch, length, width)``."""
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, causal=True, lengths=lengths)
        return self.norm(x)
