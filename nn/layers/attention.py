"""Attention as a function."""

from __future__ import annotations

import math
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.functions.activation import softmax
from treadle.nn.layers.blocks import Masks, fits_blocks, in_blocks
from treadle.nn.layers.dropout import Dropout
from treadle.nn.layers.masks import Window, hidden, padding_mask, sees
from treadle.np.operands import broadcasts


def attention(
    query: td.Array,
    key: td.Array,
    value: td.Array,
    mask: tnp.ArrayLike | None = None,
    causal: bool = False,
    *,
    window: Window | None = None,
    lengths: tnp.ArrayLike | None = None,
    query_lengths: tnp.ArrayLike | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    dropout: float = 0.0,
    dropout_key: rng.Key | None = None,
) -> td.Array:
    """``softmax(query keyᵀ / sqrt(depth)) value``, for each head (Vaswani 2017).

    Shapes: query (..., length, heads, depth), key (..., other length, shared heads,
    depth), value (..., other length, shared heads, value depth); the result (...,
    length, heads, value depth). Where keys and values have fewer heads, each serves as
    many following heads of the queries (Ainslie 2023); nothing is copied. Dtypes
    promote; of halves, scores and their softmax are computed in float32.

    Args:
      mask: booleans that broadcast to (..., heads, length, other length), False where a
        query must not see a key; or floats, which are added to the scores (a bias, or
        -inf where a query must not see a key). `combine_masks` makes one of several.
      causal: whether a query sees only keys at its own place and before; of two
        different lengths, the last places coincide.
      window: how many places before its own a query sees, and how many after; one
        number for both.
      lengths: how many keys each example has, (...) integers; those after are padding,
        and are not seen.
      query_lengths: how many queries each example has; the result is 0 for those after.
      scale: what the products are multiplied with, by default 1 / sqrt(depth).
      soft_cap: scores are ``soft_cap * tanh(scores / soft_cap)``, so never larger.
      dropout: the share of the weights that is left out, with the random `dropout_key`,
        by default one from the `nn.stateful` scope.

    A query that sees nothing gets the mean of all values (if the mask is of booleans).

    Raises:
      ValueError: if the shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> query, key = tnp.ones((5, 2, 4)), tnp.ones((7, 1, 4))
    >>> attention(query, key, key, causal=True).shape
    (5, 2, 4)
    """
    check.within("attention", "dropout", dropout, 0, 1)
    check.positive("attention", "soft_cap", soft_cap)
    lengths, query_lengths = _array(lengths), _array(query_lengths)
    _check(query, key, value, mask)
    _check_lengths(query.shape[:-3], lengths=lengths, query_lengths=query_lengths)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    bias, seen = _told_apart(mask, lengths, key.shape[-3])
    masks = Masks(bias, seen, causal, window)
    random = dropout, dropout_key
    if soft_cap is None and fits_blocks(query, key, value, masks.bias, dropout):
        out = in_blocks(query, key, value, masks, scale, random)
    else:
        out = _plain(query, key, value, masks, scale, random, soft_cap)
    if query_lengths is None:
        return out
    real = tnp.arange(query.shape[-3]) < query_lengths[..., None]
    return tnp.where(real[..., None, None], out, 0)


def _told_apart(mask: Any, lengths: Any, keys: int) -> tuple[Any, Any]:
    """A mask of floats, and one of booleans that hides padding, too."""
    bias = seen = None
    if mask is not None and td.dtypes.is_float(td.typeof(mask).dtype):
        bias = mask
    else:
        seen = mask
    if lengths is not None:
        real = padding_mask(lengths, keys)
        seen = real if seen is None else tnp.logical_and(real, seen)
    return bias, seen


def _plain(
    query: td.Array,
    key: td.Array,
    value: td.Array,
    masks: Masks,
    scale: Any,
    random: tuple[float, rng.Key | None],
    soft_cap: float | None,
) -> td.Array:
    """By way of all scores."""
    queries, keys = query.shape[-3], key.shape[-3]
    scores = _scores(query * scale, key)
    if soft_cap is not None:
        scores = soft_cap * tnp.tanh(scores / soft_cap)
    seen = masks.seen
    if masks.causal or masks.window is not None:
        places = tnp.arange(keys - queries, keys)
        near = sees(places, tnp.arange(keys), masks.causal, masks.window)
        seen = near if seen is None else tnp.logical_and(near, seen)
    if masks.bias is not None:
        scores = scores + masks.bias
    if seen is not None:
        scores = hidden(scores, seen)
    weights = softmax(scores)
    dropout, dropout_key = random
    if dropout:
        weights = Dropout(dropout)(weights, key=dropout_key)
    return _mixed(weights, value, query.dtype)


def _array(lengths: tnp.ArrayLike | None) -> td.Array | None:
    return None if lengths is None else tnp.asarray(lengths)


def _scores(query: td.Array, key: td.Array) -> td.Array:
    """(..., heads, queries, keys), in float32 for halves."""
    half = {query.dtype.itemsize, key.dtype.itemsize} == {2}
    wide = tnp.float32 if half else None
    *lead, queries, heads, depth = query.shape
    shared = key.shape[-2]
    if heads == shared:
        formula = "...qhd,...khd->...hqk"
        return tnp.einsum(formula, query, key, preferred_element_type=wide)
    # Queries of all heads that share one are the rows of one product.
    query = tnp.swapaxes(query, -3, -2)
    query = query.reshape(*lead, shared, heads // shared * queries, depth)
    formula = "...hqd,...khd->...hqk"
    scores = tnp.einsum(formula, query, key, preferred_element_type=wide)
    return scores.reshape(*lead, heads, queries, key.shape[-3])


def _mixed(weights: td.Array, value: td.Array, dtype: Any) -> td.Array:
    """The values by their weights (..., heads, queries, keys)."""
    if dtype.itemsize == 2:
        weights = weights.astype(dtype)
    *lead, heads, queries, keys = weights.shape
    shared = value.shape[-2]
    if heads == shared:
        return tnp.einsum("...hqk,...khd->...qhd", weights, value)
    weights = weights.reshape(*lead, shared, heads // shared * queries, keys)
    out = tnp.einsum("...hqk,...khd->...hqd", weights, value)
    return tnp.swapaxes(out.reshape(*lead, heads, queries, value.shape[-1]), -3, -2)


def _check(query: Any, key: Any, value: Any, mask: Any) -> None:
    q, k, v = (tuple(x.shape) for x in (query, key, value))
    fits = (
        min(map(len, (q, k, v))) >= 3
        and k[:-1] == v[:-1]
        and (*q[:-3], q[-1]) == (*k[:-3], k[-1])
        and k[-2]
        and q[-2] % k[-2] == 0
    )
    if not fits:
        raise ValueError(
            "attention takes a query (..., length, heads, depth), a key (..., other "
            "length, heads, depth) and a value (..., other length, heads, any depth), "
            "where key and value may have fewer heads, of which the query's are a "
            "multiple; got "
            f"{', '.join(repr(td.typeof(x)) for x in (query, key, value))}"
            f"{at(user_source())}"
        )
    scores = (*q[:-3], q[-2], q[-3], k[-3])
    found = () if mask is None else td.typeof(mask).shape
    if not broadcasts(found, scores):
        raise ValueError(
            f"attention: a mask {td.typeof(mask)} does not broadcast to (..., heads, "
            f"length, other length) = {scores}{at(user_source())}\nIf it has examples "
            "and keys alone, give `mask[:, None, None]`; if examples, queries and "
            "keys, `mask[:, None]`."
        )


def _check_lengths(batch: tuple[int, ...], **lengths: Any) -> None:
    for name, value in lengths.items():
        if value is not None and not broadcasts(td.typeof(value).shape, batch):
            raise ValueError(
                f"attention: {name} are integers, one for each example {batch}, got "
                f"{td.typeof(value)}{at(user_source())}"
            )
