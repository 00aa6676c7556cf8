"""Attention that is computed block by block: which is, and how it is asked for."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.dims import is_dim, is_one, is_symbolic, one
from treadle.nn.layers.dropout import kept_of
from treadle.nn.layers.masks import Window, both_ways


class Masks(NamedTuple):
    """Which keys a query sees, and by how much less."""

    bias: Any
    seen: Any
    causal: bool
    window: Window | None


def fits_blocks(query: Any, key: Any, value: Any, bias: Any, dropout: float) -> bool:
    """Whether blocks are right for operands, and worth it."""
    dtype = td.typeof(query).dtype
    alike = all([td.typeof(x).dtype == dtype for x in (key, value)])
    if not alike or not td.dtypes.is_float(dtype) or dropout == 1:
        return False
    wide = _wide(dtype)
    if bias is not None and tnp.promote_types(td.typeof(bias).dtype, wide) != wide:
        return False
    queries, keys = query.shape[-3], key.shape[-3]
    if is_one(queries):
        # A row of scores is little: so a text is written, key by key.
        return is_one(keys)
    return is_dim(queries * keys) or queries * keys > 0


def in_blocks(
    query: td.Array,
    key: td.Array,
    value: td.Array,
    masks: Masks,
    scale: Any,
    random: tuple[float, rng.Key | None],
) -> td.Array:
    """`attention` of what `fits_blocks`. random: the rate of dropout, and its key."""
    *lead, queries, heads, _ = query.shape
    scores = (*lead, heads, queries, key.shape[-3])
    if not isinstance(scale, int | float) or is_symbolic(scale):
        query, scale = query * scale, 1.0
    before, after = None, None
    if masks.window is not None:
        before, after = both_ways(masks.window)
    after = 0 if masks.causal else after
    kept, (dropout, dropout_key) = None, random
    if dropout:
        kept = kept_of("Dropout", dropout_key, 1 - dropout, scores)
    bias = masks.bias
    if bias is not None:
        bias = tnp.asarray(bias).astype(_wide(query.dtype))
    out = td.lax.attention(
        *(_in_a_row(x, 3) for x in (query, key, value)),
        bias=_of_four(bias, lead),
        seen=_of_four(masks.seen, lead),
        kept=_of_four(kept, lead),
        scale=scale,
        before=before,
        after=after,
        rate=1 / (1 - dropout),
    )
    return out.reshape(*lead, queries, heads, value.shape[-1])


def _wide(dtype: Any) -> Any:
    return tnp.float32 if dtype.itemsize == 2 else dtype


def _in_a_row(x: td.Array, rest: int) -> td.Array:
    """All leading axes as one."""
    lead = x.shape[: x.ndim - rest]
    return x.reshape(math.prod(lead), *x.shape[x.ndim - rest :])


def _of_four(mask: Any, lead: list[int]) -> Any:
    """A mask with one axis for the batch: of one element, if it is one for all."""
    if mask is None:
        return None
    mask = tnp.asarray(mask)
    own = (*[1] * max(4 - mask.ndim, 0), *mask.shape)
    mask = mask.reshape(own)
    if all([one(n) for n in own[:-3]]):
        return mask.reshape(1, *own[-3:])
    return _in_a_row(tnp.broadcast_to(mask, (*lead, *own[-3:])), 3)
