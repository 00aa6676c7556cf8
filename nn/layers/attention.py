"""Attention."""

from __future__ import annotations

import math
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.functions.activation import softmax
from treadle.nn.layers.linear import Linear
from treadle.nn.module import Module
from treadle.np.operands import broadcasts


def attention(
    query: td.Array,
    key: td.Array,
    value: td.Array,
    mask: tnp.ArrayLike | None = None,
    causal: bool = False,
) -> td.Array:
    """``softmax(query keyᵀ / sqrt(depth)) value``, for each head (Vaswani 2017).

    Shapes: query (..., length, heads, depth), key (..., other length, heads, depth),
    value (..., other length, heads, value depth); the result (..., length, heads, value
    depth). Dtypes promote.

    Args:
      mask: booleans that broadcast to (..., heads, length, other length), False where a
        query must not see a key; or floats, which are added to the scores (a bias, or
        -inf where a query must not see a key).
      causal: whether a query sees only keys at its own place and before; of two
        different lengths, the last places coincide.

    A query that sees nothing gets the mean of all values (if the mask is of booleans).

    Raises:
      ValueError: if the shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> query, key = tnp.ones((5, 2, 4)), tnp.ones((7, 2, 4))
    >>> attention(query, key, key, causal=True).shape
    (5, 2, 4)
    """
    _check(query, key, value, mask)
    depth = query.shape[-1]
    query = query * (1 / math.sqrt(depth))
    scores = tnp.einsum("...qhd,...khd->...hqk", query, key)
    seen: Any = _causal_mask(query.shape[-3], key.shape[-3]) if causal else None
    if mask is not None and td.dtypes.is_float(td.typeof(mask).dtype):
        scores = scores + mask
    elif mask is not None:
        seen = mask if seen is None else tnp.logical_and(seen, mask)
    if seen is not None:
        # Not -inf: a query that sees nothing gets the mean of all, not NaN.
        scores = tnp.where(seen, scores, float(tnp.finfo(scores.dtype).min))
    return tnp.einsum("...hqk,...khd->...qhd", softmax(scores), value)


def _causal_mask(queries: int, keys: int) -> td.Array:
    places = tnp.arange(keys - queries, keys)
    return places[:, None] >= tnp.arange(keys)[None, :]


def _check(query: Any, key: Any, value: Any, mask: Any) -> None:
    q, k, v = (tuple(x.shape) for x in (query, key, value))
    fits = (
        min(map(len, (q, k, v))) >= 3
        and k[:-1] == v[:-1]
        and (*q[:-3], *q[-2:]) == (*k[:-3], *k[-2:])
    )
    if not fits:
        raise ValueError(
            "attention takes a query (..., length, heads, depth), a key (..., other "
            "length, heads, depth) and a value (..., other length, heads, any depth); "
            "got "
            f"{', '.join(repr(td.typeof(x)) for x in (query, key, value))}"
            f"{at(user_source())}"
        )
    scores = (*q[:-3], q[-2], q[-3], k[-3])
    found = () if mask is None else td.typeof(mask).shape
    if not broadcasts(found, scores):
        raise ValueError(
            f"attention: a mask {td.typeof(mask)} does not broadcast to (..., heads, "
            f"length, other length) = {scores}{at(user_source())}"
        )


class MultiHeadAttention(Module):
    """Every place looks at the others, or at those of a context, with several heads.

    Shapes: ``(..., length, width) -> (..., length, width)``; `context` is (..., other
    length, width).

    Args:
      heads: in how many parts the width is split; each part attends on its own.

    Of a call, `mask` and `causal` are those of `attention`; `context` is what the keys
    and values are made of (cross-attention), by default the input (self-attention).

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> layer = nn.MultiHeadAttention(8, 2, key=rng.key(0))
    >>> layer(tnp.ones((4, 5, 8)), causal=True).shape
    (4, 5, 8)
    >>> layer(tnp.ones((4, 5, 8)), context=tnp.ones((4, 7, 8))).shape
    (4, 5, 8)
    """

    width: int
    heads: int
    qkv: Linear
    out: Linear

    def __init__(self, width: int, heads: int, *, key: rng.Key) -> None:
        if heads < 1 or width % heads:
            raise ValueError(
                f"MultiHeadAttention: a width of {width} can't be split in {heads} "
                "heads"
            )
        self.width, self.heads = width, heads
        qkv_key, out_key = rng.split(key)
        self.qkv = Linear(width, 3 * width, key=qkv_key)
        self.out = Linear(width, width, key=out_key)

    def __call__(
        self,
        x: tnp.ArrayLike,
        mask: tnp.ArrayLike | None = None,
        causal: bool = False,
        context: tnp.ArrayLike | None = None,
    ) -> td.Array:
        x = check.last_axis("MultiHeadAttention", x, self.width, "width")
        if context is None:
            query, key, value = self._split(self.qkv(x))
        else:
            context = check.last_axis(
                "MultiHeadAttention", context, self.width, "width"
            )
            (query,) = self._split(self._part(0, 1)(x))
            key, value = self._split(self._part(1, 3)(context))
        mixed = attention(query, key, value, mask, causal)
        return self.out(mixed.reshape(*x.shape[:-1], self.width))

    def _part(self, first: int, last: int) -> Linear:
        """The projection to query (0), key (1) and value (2), or some of them."""
        columns = slice(first * self.width, last * self.width)
        weight, bias = self.qkv.weight, self.qkv.bias
        return self.qkv.replace(
            out_features=(last - first) * self.width,
            weight=weight[:, columns],
            bias=None if bias is None else bias[columns],
        )

    def _split(self, projected: td.Array) -> list[td.Array]:
        """Parts of the width, each split into heads."""
        lead, n = projected.shape[:-1], projected.shape[-1] // self.width
        parts = projected.reshape(*lead, n, self.heads, self.width // self.heads)
        return [parts[..., i, :, :] for i in range(n)]
