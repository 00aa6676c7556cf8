"""Attention."""

from __future__ import annotations

import math
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.activation import softmax
from treadle.nn.linear import Linear
from treadle.nn.module import Module


def attention(
    query: td.Array,
    key: td.Array,
    value: td.Array,
    mask: td.Array | None = None,
    causal: bool = False,
) -> td.Array:
    """``softmax(query keyᵀ / sqrt(depth)) value``, for each head (Vaswani 2017).

    Shapes: query (..., length, heads, depth); key and value (..., other length, heads,
    depth); the result is like the query.

    Args:
      mask: booleans that broadcast to (..., heads, length, other length): False where a
        query must not see a key.
      causal: whether a query sees only keys at its own place and before; of two
        different lengths, the last places coincide.
    """
    _check(query, key, value)
    depth = query.shape[-1]
    query = query * (1 / math.sqrt(depth))
    scores = tnp.einsum("...qhd,...khd->...hqk", query, key)
    seen = _causal_mask(query.shape[-3], key.shape[-3]) if causal else None
    if mask is not None:
        seen = mask if seen is None else tnp.logical_and(seen, mask)
    if seen is not None:
        # Not -inf: a query that sees nothing gets the mean of all, not NaN.
        scores = tnp.where(seen, scores, float(tnp.finfo(scores.dtype).min))
    return tnp.einsum("...hqk,...khd->...qhd", softmax(scores), value)


def _causal_mask(queries: int, keys: int) -> td.Array:
    places = tnp.arange(keys - queries, keys)
    return places[:, None] >= tnp.arange(keys)[None, :]


def _check(query: Any, key: Any, value: Any) -> None:
    shapes = [x.shape for x in (query, key, value)]
    fits = (
        all(len(s) >= 3 for s in shapes)
        and shapes[1] == shapes[2]
        and (*shapes[0][:-3], *shapes[0][-2:]) == (*shapes[1][:-3], *shapes[1][-2:])
    )
    if not fits:
        raise ValueError(
            "attention takes query, key and value of shapes (..., length, heads, "
            "depth) that differ in the query's length at most; got "
            f"{', '.join(repr(td.typeof(x)) for x in (query, key, value))}"
            f"{at(user_source())}"
        )


class MultiHeadAttention(Module):
    """Self-attention: every place looks at the others, with several heads.

    Shapes: ``(..., length, width) -> (..., length, width)``.

    Args:
      heads: in how many parts the width is split; each part attends on its own.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> layer = nn.MultiHeadAttention(8, 2, key=rng.key(0))
    >>> layer(tnp.ones((4, 5, 8)), causal=True).shape
    (4, 5, 8)
    """

    width: int
    heads: int
    qkv: Linear
    out: Linear

    def __init__(self, width: int, heads: int, *, key: Any) -> None:
        if width % heads:
            raise ValueError(
                f"MultiHeadAttention: a width of {width} can't be split in {heads} "
                "heads"
            )
        self.width, self.heads = width, heads
        qkv_key, out_key = rng.split(key)
        self.qkv = Linear(width, 3 * width, key=qkv_key)
        self.out = Linear(width, width, key=out_key)

    def __call__(
        self, x: td.Array, mask: td.Array | None = None, causal: bool = False
    ) -> td.Array:
        x = check.last_axis("MultiHeadAttention", x, self.width, "width")
        lead = x.shape[:-1]
        split = self.qkv(x).reshape(*lead, 3, self.heads, self.width // self.heads)
        query, key, value = (split[..., i, :, :] for i in range(3))
        mixed = attention(query, key, value, mask, causal)
        return self.out(mixed.reshape(*lead, self.width))
