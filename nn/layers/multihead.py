"""Attention with several heads, and projections of what goes in and out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.layers.attention import attention
from treadle.nn.layers.kv_cache import ContextCache, KVCache
from treadle.nn.layers.linear import Linear
from treadle.nn.layers.masks import Window, combine_masks
from treadle.nn.layers.rotary import RotaryEmbedding
from treadle.nn.module import Module
from treadle.nn.state import State

_NO_CONTEXT = """\
MultiHeadAttention was made for a context of its own width (context_width={}), and was \
called without one{}
Call it `layer(x, context)`; for self-attention make it without `context_width`."""


class MultiHeadAttention(Module):
    """Every place looks at the others, or at those of a context, with several heads.

    Shapes: ``(..., length, width) -> (..., length, width)``; `context` is (..., other
    length, context_width).

    Args:
      heads: in how many parts the queries are split; each part attends on its own.
      kv_heads: how many heads the keys and values have, by default as many; each serves
        as many heads of the queries (grouped-query attention; 1: multi-query).
      head_size: by default ``width // heads``.
      context_width: of a layer for cross-attention alone, the width of the context.
      bias, out_bias: whether the projections to query, key and value, and that of the
        result, have one; the second by default as the first.
      qk_norm: makes norms of the heads of queries and keys: ``nn.RMSNorm``.
      rotary: turns queries and keys by their places (in self-attention).
      position_bias: a layer of query places and key places whose result is added to
        the scores: `ALiBi`, `RelativePositionBias` (in self-attention).
      window: which places are seen, as in `attention`.
      scale, soft_cap: those of `attention`.
      dropout: the share of the attention weights that is left out in training.
      weight_init, bias_init: draw the parameters of the projections, as in `Linear`.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    Of a call, `mask`, `causal` and `lengths` (how many keys each example has) are those
    of `attention`; `context` is what the keys and values are made of (cross-attention),
    by default the input (self-attention); `key` is for dropout.

    With a cache (`nn.with_cache`) it attends to the places of earlier calls, too: see
    `extend`.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> layer = nn.MultiHeadAttention(8, 2, key=rng.key(0))
    >>> layer(tnp.ones((4, 5, 8)), causal=True).shape
    (4, 5, 8)
    >>> layer(tnp.ones((4, 5, 8)), tnp.ones((4, 7, 8))).shape
    (4, 5, 8)
    """

    width: int
    heads: int
    kv_heads: int
    head_size: int
    context_width: int | None
    window: Window | None
    scale: float | None
    soft_cap: float | None
    dropout: float
    inference: bool
    dtype: Any
    query: Linear
    key: Linear
    value: Linear
    out: Linear
    query_norm: Callable[..., td.Array] | None
    key_norm: Callable[..., td.Array] | None
    rotary: RotaryEmbedding | None
    position_bias: Callable[[Any, Any], td.Array] | None
    cache: State | None

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_size: int | None = None,
        context_width: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        qk_norm: Callable[..., Callable[..., td.Array]] | None = None,
        rotary: RotaryEmbedding | None = None,
        position_bias: Callable[[Any, Any], td.Array] | None = None,
        window: Window | None = None,
        scale: float | None = None,
        soft_cap: float | None = None,
        dropout: float = 0.0,
        weight_init: init.Initializer = init.fan_in_uniform,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        kv_heads = heads if kv_heads is None else kv_heads
        _check_sizes(width, heads, kv_heads, head_size, dropout)
        size = width // heads if head_size is None else head_size
        self.width, self.heads, self.kv_heads = width, heads, kv_heads
        self.head_size, self.context_width = size, context_width
        self.window, self.scale, self.soft_cap = window, scale, soft_cap
        self.dropout, self.inference = dropout, False
        self.dtype = check.dtype(dtype)
        options: Any = {
            "weight_init": weight_init,
            "bias_init": bias_init,
            "dtype": dtype,
            "param_dtype": param_dtype,
        }
        source = width if context_width is None else context_width
        keys = rng.split(key, 4)
        self.query = Linear(width, heads * size, bias=bias, key=keys[0], **options)
        self.key = Linear(source, kv_heads * size, bias=bias, key=keys[1], **options)
        self.value = Linear(source, kv_heads * size, bias=bias, key=keys[2], **options)
        out_bias = bias if out_bias is None else out_bias
        self.out = Linear(heads * size, width, bias=out_bias, key=keys[3], **options)
        self.query_norm = self.key_norm = None
        if qk_norm is not None:
            norm = partial(qk_norm, size, dtype=dtype, param_dtype=param_dtype)
            self.query_norm, self.key_norm = norm(), norm()
        self.rotary, self.position_bias, self.cache = rotary, position_bias, None

    def __call__(
        self,
        x: tnp.ArrayLike,
        context: tnp.ArrayLike | None = None,
        *,
        mask: tnp.ArrayLike | None = None,
        causal: bool = False,
        lengths: tnp.ArrayLike | None = None,
        key: rng.Key | None = None,
    ) -> td.Array:
        x = check.last_axis("MultiHeadAttention", x, self.width, "width")
        if context is not None:
            return self._across(x, context, mask, causal, lengths, key)
        if self.context_width is not None:
            raise TypeError(_NO_CONTEXT.format(self.context_width, at(user_source())))
        if self.cache is not None:
            out, self.cache.value = self.extend(
                x, self.cache.value, mask=mask, lengths=lengths, key=key
            )
            return out
        query, (keys, values) = self._queries(x), self._sources(x)
        if self.rotary is not None:
            query, keys = self.rotary(query), self.rotary(keys)
        if self.position_bias is not None:
            places = tnp.arange(x.shape[-2])
            mask = combine_masks(mask, self.position_bias(places, places))
        return self._attend(
            query, keys, values, mask, key, causal, self.window, lengths
        )

    def extend(
        self,
        x: tnp.ArrayLike,
        cache: KVCache,
        *,
        mask: tnp.ArrayLike | None = None,
        lengths: tnp.ArrayLike | None = None,
        key: rng.Key | None = None,
    ) -> tuple[td.Array, KVCache]:
        """The result for further places, which see those in the cache and themselves up
        to their own, and the cache with them. Calls do it with the layer's own cache.

        Args:
          x: (*batch, count, width), at the places that follow those in the cache.
          mask: as in `attention`, over all places of the cache: (..., heads, count,
            max_length).
          lengths: how many of x's places each example has, (*batch); those after are
            padding, and are overwritten by the next call.

        >>> from treadle import nn, rng
        >>> import treadle.numpy as tnp
        >>> layer = nn.MultiHeadAttention(8, 2, key=rng.key(0))
        >>> cache = layer.new_cache((4,), 16)
        >>> out, cache = layer.extend(tnp.ones((4, 5, 8)), cache)
        >>> out.shape, cache.length.tolist()
        ((4, 5, 8), [5, 5, 5, 5])
        """
        x = check.last_axis("MultiHeadAttention", x, self.width, "width")
        query, (keys, values) = self._queries(x), self._sources(x)
        places = cache.places(x.shape[-2])
        if self.rotary is not None:
            query, keys = self.rotary(query, places), self.rotary(keys, places)
        if self.position_bias is not None:
            everywhere = tnp.arange(cache.max_length)
            mask = combine_masks(mask, self.position_bias(places, everywhere))
        mask = combine_masks(mask, cache.seen(places, self.window))
        cache = cache.extend(keys, values, lengths)
        keys, values = (y.astype(query.dtype) for y in (cache.key, cache.value))
        return self._attend(query, keys, values, mask, key), cache

    def new_cache(
        self, batch: tuple[int, ...], length: int, dtype: Any = None
    ) -> KVCache | None:
        """An empty cache for so many places; None for attention to a context, whose
        first call makes a `ContextCache`."""
        if self.context_width is not None:
            return None
        computed = self.key.weight.dtype if self.dtype is None else self.dtype
        return KVCache(
            batch,
            length,
            self.kv_heads,
            self.head_size,
            dtype=computed if dtype is None else dtype,
        )

    def _across(
        self, x: td.Array, context: Any, mask: Any, causal: bool, lengths: Any, key: Any
    ) -> td.Array:
        width = self.key.in_features
        context = check.last_axis("MultiHeadAttention", context, width, "context_width")
        query, (keys, values) = self._queries(x), self._of_context(context)
        return self._attend(query, keys, values, mask, key, causal, None, lengths)

    def _of_context(self, context: td.Array) -> tuple[td.Array, td.Array]:
        """Keys and values of a context: with a cache, those of the first call."""
        if self.cache is None or self.context_width is None:
            return self._sources(context)
        if self.cache.value is None:
            self.cache.value = ContextCache(*self._sources(context))
        kept = self.cache.value
        if kept.key.shape[:-2] != context.shape[:-1]:
            raise ValueError(
                f"MultiHeadAttention: the cache holds {td.typeof(kept.key)}, the keys "
                f"of another context than {td.typeof(context)}{at(user_source())}\n"
                "For another context make the caches anew: `nn.with_cache(model, ...)`."
            )
        return kept.key, kept.value

    def _queries(self, x: td.Array) -> td.Array:
        """(..., length, heads, size)"""
        query = self._split(self.query(x), self.heads)
        return query if self.query_norm is None else self.query_norm(query)

    def _sources(self, x: td.Array) -> tuple[td.Array, td.Array]:
        """Keys and values: (..., length, kv_heads, size)."""
        key = self._split(self.key(x), self.kv_heads)
        value = self._split(self.value(x), self.kv_heads)
        return key if self.key_norm is None else self.key_norm(key), value

    def _split(self, x: td.Array, heads: int) -> td.Array:
        return x.reshape(*x.shape[:-1], heads, self.head_size)

    def _attend(
        self,
        query: td.Array,
        keys: td.Array,
        values: td.Array,
        mask: Any,
        key: rng.Key | None,
        causal: bool = False,
        window: Window | None = None,
        lengths: Any = None,
    ) -> td.Array:
        mixed = attention(
            query,
            keys,
            values,
            mask,
            causal,
            window=window,
            lengths=lengths,
            scale=self.scale,
            soft_cap=self.soft_cap,
            dropout=0.0 if self.inference else self.dropout,
            dropout_key=key,
        )
        return self.out(mixed.reshape(*mixed.shape[:-2], self.heads * self.head_size))


def _check_sizes(
    width: int, heads: int, kv_heads: int, head_size: int | None, dropout: float
) -> None:
    if heads < 1 or (head_size is None and width % heads):
        raise ValueError(
            f"MultiHeadAttention: a width of {width} can't be split in {heads} heads"
            f"{at(user_source())}\nSay how large a head is: `head_size=`."
        )
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(
            f"MultiHeadAttention: {heads} heads can't share {kv_heads} heads of keys "
            f"and values: kv_heads divides heads{at(user_source())}"
        )
    if not 0 <= dropout <= 1:
        raise ValueError(
            f"MultiHeadAttention: dropout is from 0 to 1, got {dropout!r}"
            f"{at(user_source())}"
        )
