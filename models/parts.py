"""What several models are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng

Activation = Callable[[td.Array], td.Array]

INIT = nn.init.normal(0.02)
"""How BERT and the GPT models draw their weights."""


def exact_gelu(x: td.Array) -> td.Array:
    """`nn.gelu` by the error function.

    >>> import treadle.numpy as tnp
    >>> exact_gelu(tnp.array([-1.0, 2.0]))
    Array([-0.1587,  1.9545], dtype=float32)
    """
    return nn.gelu(x, approximate=False)


class PreNormBlock(nn.Module):
    """Attention and a feed-forward part, each normalised before and added after.

    Shapes: ``(batch, length, width) -> (batch, length, width)``. `mask`, `causal`
    and `lengths` are those of `nn.attention`.

    >>> from treadle import rng
    >>> import treadle.numpy as tnp
    >>> block = PreNormBlock(4, 2, key=rng.key(0))
    >>> nn.inference(block)(tnp.ones((2, 3, 4)), causal=True).shape
    (2, 3, 4)
    """

    attention_norm: nn.LayerNorm
    attention: nn.MultiHeadAttention
    norm: nn.LayerNorm
    feed_forward: nn.FeedForward
    dropout: nn.Dropout

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        hidden: int | None = None,
        attention_bias: bool = True,
        activation: Activation = exact_gelu,
        eps: float = 1e-5,
        dropout: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        attention_key, forward_key = rng.split(key)
        self.attention_norm = nn.LayerNorm(width, eps=eps, **dtypes)
        self.attention = nn.MultiHeadAttention(
            width,
            heads,
            bias=attention_bias,
            out_bias=True,
            key=attention_key,
            **dtypes,
        )
        self.norm = nn.LayerNorm(width, eps=eps, **dtypes)
        self.feed_forward = nn.FeedForward(
            width,
            hidden,
            activation=activation,
            weight_init=INIT,
            key=forward_key,
            **dtypes,
        )
        self.dropout = nn.Dropout(dropout)

    def __call__(
        self,
        x: td.Array,
        mask: tnp.ArrayLike | None = None,
        causal: bool = False,
        lengths: tnp.ArrayLike | None = None,
    ) -> td.Array:
        mixed = self.attention(
            self.attention_norm(x), mask=mask, causal=causal, lengths=lengths
        )
        x = x + self.dropout(mixed)
        return x + self.dropout(self.feed_forward(self.norm(x)))


def for_heads(mask: tnp.ArrayLike | None) -> td.Array | None:
    """A mask of tokens, (batch, length), as attention takes it: for every head and
    every place that looks.

    >>> for_heads([[1, 1, 0]])
    Array([[[[ True,  True, False]]]], dtype=bool)
    """
    if mask is None:
        return None
    return tnp.asarray(mask).astype(tnp.bool_)[..., None, None, :]


def cropped(images: td.Array, like: td.Array) -> td.Array:
    """Images without what exceeds the height and width of others.

    >>> import treadle.numpy as tnp
    >>> cropped(tnp.ones((2, 4, 4, 3)), tnp.ones((2, 3, 4, 8))).shape
    (2, 3, 4, 3)
    """
    return images[..., : like.shape[-3], : like.shape[-2], :]
