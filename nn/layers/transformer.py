"""Blocks of attention and feed-forward networks, and stacks of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.nn.layers.dropout import Dropout, DropPath
from treadle.nn.layers.feedforward import FeedForward
from treadle.nn.layers.multihead import MultiHeadAttention
from treadle.nn.layers.norm import LayerNorm
from treadle.nn.module import Module

Layer = Callable[..., td.Array]
Make = Callable[..., Layer]


class Added(Module):
    """Adds to x what a part makes of it: ``x + part(norm(x))``, or (post-norm)
    ``norm(x + part(x))``."""

    pre_norm: bool
    dropout: Dropout
    drop_path: DropPath

    def to(self, x: td.Array, norm: Layer, part: Layer) -> td.Array:
        change = part(norm(x) if self.pre_norm else x)
        # What a block computes in follows from its layers, not from its input.
        x = x.astype(change.dtype) + self.drop_path(self.dropout(change))
        return x if self.pre_norm else norm(x)


class TransformerEncoderBlock(Module):
    """Self-attention, then a feed-forward network; each adds to what it reads. With
    ``causal=True`` it is the block of a model that reads from left to right (GPT).

    Shapes: ``(..., length, width) -> (..., length, width)``.

    Args:
      hidden: of the feed-forward network, by default ``4 * width``.
      pre_norm: whether each part is given normed values (as in GPT-2 and later), or the
        sum with what it made of them is normed (as in the original and BERT).
      norm, attention, mlp: make the parts: ``norm(width)``, ``attention(width, heads)``
        and ``mlp(width, hidden)``, with `dropout`, `dtype`, `param_dtype` and `key` by
        name. Options by `functools.partial`: ``mlp=partial(nn.GatedMLP, bias=True)``.
      dropout: the share that is left out of attention weights, hidden features, and of
        what each part adds.
      drop_path: the share of examples for which a part adds nothing (`DropPath`).
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    Of a call, `mask`, `causal` and `lengths` are those of `MultiHeadAttention`.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> block = nn.TransformerEncoderBlock(8, 2, key=rng.key(0))
    >>> block(tnp.ones((4, 5, 8)), causal=True).shape
    (4, 5, 8)
    """

    attention_norm: Layer
    attention: Layer
    mlp_norm: Layer
    mlp: Layer
    added: Added

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int | None = None,
        *,
        pre_norm: bool = True,
        norm: Make = LayerNorm,
        attention: Make = MultiHeadAttention,
        mlp: Make = FeedForward,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        options: Any = {"dropout": dropout, **dtypes}
        attention_key, mlp_key = rng.split(key)
        self.attention_norm = norm(width, **dtypes)
        self.attention = attention(width, heads, key=attention_key, **options)
        self.mlp_norm = norm(width, **dtypes)
        self.mlp = mlp(width, _hidden(width, hidden), key=mlp_key, **options)
        self.added = Added(pre_norm, Dropout(dropout), DropPath(drop_path))

    def __call__(
        self,
        x: td.Array,
        *,
        mask: tnp.ArrayLike | None = None,
        causal: bool = False,
        lengths: tnp.ArrayLike | None = None,
    ) -> td.Array:
        def attend(x: td.Array) -> td.Array:
            return self.attention(x, mask=mask, causal=causal, lengths=lengths)

        x = self.added.to(x, self.attention_norm, attend)
        return self.added.to(x, self.mlp_norm, self.mlp)


class TransformerDecoderBlock(Module):
    """Causal self-attention, attention to a context, then a feed-forward network; each
    adds to what it reads.

    Shapes: ``(..., length, width) -> (..., length, width)``; the context is (..., other
    length, context_width).

    Args:
      context_width: by default the width.

    The others are those of `TransformerEncoderBlock`. Of a call, `mask` and `lengths`
    are for the self-attention, `context_mask` and `context_lengths` for that to the
    context.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> block = nn.TransformerDecoderBlock(8, 2, key=rng.key(0))
    >>> block(tnp.ones((4, 5, 8)), tnp.ones((4, 7, 8))).shape
    (4, 5, 8)
    """

    attention_norm: Layer
    attention: Layer
    context_norm: Layer
    context_attention: Layer
    mlp_norm: Layer
    mlp: Layer
    added: Added

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int | None = None,
        *,
        context_width: int | None = None,
        pre_norm: bool = True,
        norm: Make = LayerNorm,
        attention: Make = MultiHeadAttention,
        mlp: Make = FeedForward,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        options: Any = {"dropout": dropout, **dtypes}
        context_width = width if context_width is None else context_width
        first, second, third = rng.split(key, 3)
        self.attention_norm = norm(width, **dtypes)
        self.attention = attention(width, heads, key=first, **options)
        self.context_norm = norm(width, **dtypes)
        self.context_attention = attention(
            width, heads, context_width=context_width, key=second, **options
        )
        self.mlp_norm = norm(width, **dtypes)
        self.mlp = mlp(width, _hidden(width, hidden), key=third, **options)
        self.added = Added(pre_norm, Dropout(dropout), DropPath(drop_path))

    def __call__(
        self,
        x: td.Array,
        context: td.Array,
        *,
        mask: tnp.ArrayLike | None = None,
        context_mask: tnp.ArrayLike | None = None,
        causal: bool = True,
        lengths: tnp.ArrayLike | None = None,
        context_lengths: tnp.ArrayLike | None = None,
    ) -> td.Array:
        def attend(x: td.Array) -> td.Array:
            return self.attention(x, mask=mask, causal=causal, lengths=lengths)

        def look(x: td.Array) -> td.Array:
            return self.context_attention(
                x, context, mask=context_mask, lengths=context_lengths
            )

        x = self.added.to(x, self.attention_norm, attend)
        x = self.added.to(x, self.context_norm, look)
        return self.added.to(x, self.mlp_norm, self.mlp)


def _hidden(width: int, hidden: int | None) -> int:
    return 4 * width if hidden is None else hidden


class _Layers(Module):
    """Equal blocks, one after the other, and for pre-norm ones a norm behind them."""

    layers: list[Layer]
    norm: Layer | None

    def __init__(
        self,
        make: Make,
        depth: int,
        width: int,
        heads: int,
        hidden: int | None,
        options: dict[str, Any],
        key: rng.Key,
    ) -> None:
        self.layers = [
            make(width, heads, hidden, key=k, **options) for k in rng.split(key, depth)
        ]
        dtypes = {n: options[n] for n in ("dtype", "param_dtype") if n in options}
        norm = options.get("norm", LayerNorm)
        self.norm = norm(width, **dtypes) if options.get("pre_norm", True) else None

    def __call__(self, x: td.Array, *context: Any, **options: Any) -> td.Array:
        for layer in self.layers:
            x = layer(x, *context, **options)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Layers):
    """A `TransformerEncoderBlock` after the other, and for pre-norm ones a norm at the
    end.

    Shapes: ``(..., length, width) -> (..., length, width)``.

    Args:
      depth: the number of blocks.
      options: those of the blocks. Of a call, too.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> encoder = nn.TransformerEncoder(3, 8, 2, norm=nn.RMSNorm, key=rng.key(0))
    >>> encoder(tnp.ones((4, 5, 8)), lengths=tnp.array([5, 3, 1, 2])).shape
    (4, 5, 8)
    """

    def __init__(
        self,
        depth: int,
        width: int,
        heads: int,
        hidden: int | None = None,
        *,
        key: rng.Key,
        **options: Any,
    ) -> None:
        make = TransformerEncoderBlock
        super().__init__(make, depth, width, heads, hidden, options, key)


class TransformerDecoder(_Layers):
    """A `TransformerDecoderBlock` after the other, and for pre-norm ones a norm at the
    end.

    Shapes: ``(..., length, width) -> (..., length, width)``; the context is (..., other
    length, context_width).

    Args:
      depth: the number of blocks.
      options: those of the blocks. Of a call, too.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> decoder = nn.TransformerDecoder(3, 8, 2, dropout=0.1, key=rng.key(0))
    >>> x, context = tnp.ones((4, 5, 8)), tnp.ones((4, 7, 8))
    >>> nn.inference(decoder)(x, context).shape
    (4, 5, 8)
    """

    def __init__(
        self,
        depth: int,
        width: int,
        heads: int,
        hidden: int | None = None,
        *,
        key: rng.Key,
        **options: Any,
    ) -> None:
        make = TransformerDecoderBlock
        super().__init__(make, depth, width, heads, hidden, options, key)
