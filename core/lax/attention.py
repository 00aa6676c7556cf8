"""Attention as one operation."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.control import attention as ops
from treadle.dims import one
from treadle.errors import at, user_source
from treadle.lax.operands import array
from treadle.np.operands import ArrayLike
from treadle.run.array import Array
from treadle.trace.value import typeof

_SHAPES = """\
attention takes a query (batch, queries, heads, depth), a key (batch, keys, shared \
heads, depth) and a value (batch, keys, shared heads, any depth) of one dtype, of \
floats, where the shared heads divide the heads; got {}{}
`nn.attention` takes other numbers of axes, and promotes dtypes."""

_MASK = """\
attention: {} is {} with axes (batch, heads, queries, keys), of lengths {} or 1; got \
{}{}"""


def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    seen: ArrayLike | None = None,
    kept: ArrayLike | None = None,
    scale: float,
    before: int | None = None,
    after: int | None = None,
    rate: float = 1.0,
) -> Array:
    """``softmax(scale * query keyᵀ + bias) value``, of which compiled programs never
    have all weights in memory (Dao 2022). `jax.lax` has nothing like it; `nn.attention`
    is what layers use.

    Shapes: query (batch, queries, heads, depth), key (batch, keys, shared heads,
    depth), value (batch, keys, shared heads, value depth); the result (batch, queries,
    heads, value depth). All masks are (batch, heads, queries, keys), or 1 in the place
    of any of these. Halves are computed in float32.

    Args:
      bias: is added to the scores; floats, of the queries' dtype (float32 for halves).
      seen: booleans, False where a query must not see a key.
      kept: booleans, False for weights that are left out; the others are multiplied
        with `rate` (dropout).
      before, after: how many places before and after its own a query sees, all by
        default; of two different lengths, the last places coincide.

    A query that sees nothing gets the mean of all values.

    Raises:
      ValueError: if shapes don't fit each other, or dtypes differ.

    >>> import treadle as td, treadle.numpy as tnp
    >>> query, key = tnp.ones((1, 5, 4, 8)), tnp.ones((1, 7, 2, 8))
    >>> td.lax.attention(query, key, key, scale=0.5, after=0).shape
    (1, 5, 4, 8)
    """
    q, k, v = (array("attention", x) for x in (query, key, value))
    _check(typeof(q), typeof(k), typeof(v))
    shape = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    given = {
        "bias": (bias, ops.wide(q.dtype)),
        "seen": (seen, np.dtype(np.bool_)),
        "kept": (kept, np.dtype(np.bool_)),
    }
    masks = {
        name: _mask(name, x, shape, dtype)
        for name, (x, dtype) in given.items()
        if x is not None
    }
    out, _ = ops.attention(
        *(q, k, v, *masks.values()),
        scale=float(scale),
        before=before,
        after=after,
        masks=tuple(masks),
        rate=float(rate),
    )
    return out


def _check(q: Any, k: Any, v: Any) -> None:
    fits = (
        q.ndim == k.ndim == v.ndim == 4
        and k.shape[:3] == v.shape[:3]
        and (q.shape[0], q.shape[3]) == (k.shape[0], k.shape[3])
        and k.shape[2]
        and q.shape[2] % k.shape[2] == 0
        and q.dtype == k.dtype == v.dtype
        and dtypes.is_float(q.dtype)
    )
    if not fits:
        given = ", ".join(map(repr, (q, k, v)))
        raise ValueError(_SHAPES.format(given, at(user_source())))


def _mask(name: str, x: ArrayLike, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    mask = array("attention", x)
    own = mask.shape
    lined = zip(own, shape, strict=False)
    fits = len(own) == 4 and all([one(m) or m == n for m, n in lined])
    if not fits or mask.dtype != dtype:
        given = typeof(mask), at(user_source())
        raise ValueError(_MASK.format(name, dtype.name, shape, *given))
    return mask
