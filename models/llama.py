"""Llama: a language model with rotary positions, grouped heads and gated units
(Touvron 2023)."""

from __future__ import annotations

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.models.parts import INIT, for_heads


def rotary_frequencies(size: int, base: float = 10000.0) -> tuple[float, ...]:
    """How fast each pair of a head's numbers turns from place to place (Su 2021).

    >>> rotary_frequencies(4)
    (1.0, 0.01)
    """
    return tuple(base ** (-i / size) for i in range(0, size, 2))


def rotate(x: td.Array, frequencies: tuple[float, ...]) -> td.Array:
    """Heads, turned by their places: the i-th number with the one half a head later.

    Shapes: ``(..., length, heads, size) -> (..., length, heads, size)``. Angles are
    computed in float32.

    >>> import treadle.numpy as tnp
    >>> rotate(tnp.array([[[1.0, 0.0]], [[1.0, 0.0]]]), (1.0,))
    Array([[[1.    , 0.    ]],
    <BLANKLINE>
           [[0.5403, 0.8415]]], dtype=float32)
    """
    places = tnp.arange(x.shape[-3]).astype(tnp.float32)
    angles = places[:, None, None] * tnp.array(frequencies, tnp.float32)
    cos, sin = (f(angles).astype(x.dtype) for f in (tnp.cos, tnp.sin))
    first, second = tnp.split(x, 2, -1)
    return tnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


class LlamaAttention(nn.Module):
    """Causal attention with fewer heads of keys and values than of queries.

    Shapes: ``(batch, length, width) -> (batch, length, width)``.
    """

    heads: int
    kv_heads: int
    size: int
    frequencies: tuple[float, ...]
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    out: nn.Linear

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int,
        frequencies: tuple[float, ...],
        *,
        bias: bool,
        key: rng.Key,
    ) -> None:
        if heads % kv_heads:
            raise ValueError(f"Llama: {heads} heads can't share {kv_heads} of keys")
        self.heads, self.kv_heads = heads, kv_heads
        self.size, self.frequencies = 2 * len(frequencies), frequencies
        shapes = [
            (width, heads * self.size),
            (width, kv_heads * self.size),
            (width, kv_heads * self.size),
            (heads * self.size, width),
        ]
        self.query, self.key, self.value, self.out = (
            nn.Linear(*shape, bias=bias, weight_init=INIT, key=k)
            for shape, k in zip(shapes, rng.split(key, 4), strict=True)
        )

    def __call__(self, x: td.Array, mask: td.Array | None) -> td.Array:
        lead = x.shape[:-1]
        query = self.query(x).reshape(*lead, self.heads, self.size)
        key = self.key(x).reshape(*lead, self.kv_heads, self.size)
        value = self.value(x).reshape(*lead, self.kv_heads, self.size)
        shared = self.heads // self.kv_heads
        mixed = nn.attention(
            rotate(query, self.frequencies),
            tnp.repeat(rotate(key, self.frequencies), shared, -2),
            tnp.repeat(value, shared, -2),
            mask=mask,
            causal=True,
        )
        return self.out(mixed.reshape(*lead, self.heads * self.size))


class LlamaBlock(nn.Module):
    """Attention and gated units, each normalised before and added after.

    Shapes: ``(batch, length, width) -> (batch, length, width)``.
    """

    attention_norm: nn.RMSNorm
    attention: LlamaAttention
    norm: nn.RMSNorm
    gate: nn.Linear
    up: nn.Linear
    down: nn.Linear

    def __init__(
        self,
        attention: LlamaAttention,
        width: int,
        hidden: int,
        *,
        bias: bool,
        eps: float,
        key: rng.Key,
    ) -> None:
        keys = rng.split(key, 3)
        self.attention_norm = nn.RMSNorm(width, eps=eps)
        self.attention = attention
        self.norm = nn.RMSNorm(width, eps=eps)
        self.gate, self.up = (
            nn.Linear(width, hidden, bias=bias, weight_init=INIT, key=k)
            for k in keys[:2]
        )
        self.down = nn.Linear(hidden, width, bias=bias, weight_init=INIT, key=keys[2])

    def __call__(self, x: td.Array, mask: td.Array | None) -> td.Array:
        x = x + self.attention(self.attention_norm(x), mask)
        normed = self.norm(x)
        return x + self.down(nn.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    """Tells which token comes next, at each place of a text.

    Shapes: tokens ``(batch, length)`` of integers ``-> (batch, length, entries)``,
    logits. A jitted model has one program for all lengths.

    Args:
      entries: the number of tokens that there are.
      depth: the number of layers.
      hidden: the number of gated units of a layer.
      kv_heads: the heads of keys and values; by default as many as of queries.
      frequencies: of the rotary positions, for half of the numbers of a head; by
        default `rotary_frequencies` of heads of ``width // heads`` numbers.
      tied: whether logits are made by the table of tokens.
      attention_bias, bias: whether linear layers have one, those of attention and the
        others.

    Of a call, `mask`, (batch, length), is 1 or True at tokens and 0 at padding, which
    stands behind them.

    >>> from treadle import models, rng
    >>> llama = models.Llama(100, 16, 2, 4, 48, kv_heads=2, key=rng.key(0))
    >>> llama([[5, 6, 7]]).shape
    (1, 3, 100)
    """

    tokens: nn.Embedding
    layers: list[LlamaBlock]
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
        frequencies: tuple[float, ...] | None = None,
        tied: bool = False,
        attention_bias: bool = False,
        bias: bool = False,
        eps: float = 1e-6,
        key: rng.Key,
    ) -> None:
        token_key, head_key, layers_key = rng.split(key, 3)
        self.tokens = nn.Embedding(entries, width, key=token_key)
        self.layers = []
        for layer_key in rng.split(layers_key, depth):
            attention_key, block_key = rng.split(layer_key)
            attention = LlamaAttention(
                width,
                heads,
                kv_heads or heads,
                frequencies or rotary_frequencies(width // heads),
                bias=attention_bias,
                key=attention_key,
            )
            self.layers.append(
                LlamaBlock(attention, width, hidden, bias=bias, eps=eps, key=block_key)
            )
        self.norm = nn.RMSNorm(width, eps=eps)
        self.head = (
            None
            if tied
            else nn.Linear(width, entries, bias=False, weight_init=INIT, key=head_key)
        )

    def __call__(
        self, tokens: tnp.ArrayLike, mask: tnp.ArrayLike | None = None
    ) -> td.Array:
        x = self.encode(tokens, mask)
        return self.tokens.attend(x) if self.head is None else self.head(x)

    def encode(
        self, tokens: tnp.ArrayLike, mask: tnp.ArrayLike | None = None
    ) -> td.Array:
        """The vectors that logits are made of: ``(batch, length, width)``."""
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, for_heads(mask))
        return self.norm(x)
