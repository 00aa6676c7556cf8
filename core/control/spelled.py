"""Attention that users spell as ``softmax(scores) @ value``: the product with the
values is recorded as the operation `attention`, of what the weights were made of.

Where nobody else reads the weights, what has made them is dead, and compiled programs
never have them in memory. This happens where the user's function is traced, before any
transform takes it apart, so that derivatives are those of `attention`.
"""

from __future__ import annotations

import math
from typing import Any

from treadle.control import spelled_values, spelled_weights
from treadle.control.attention import attention, wide
from treadle.control.spelled_parts import Parts, alike, joined, operands, parts_of
from treadle.control.spelled_values import band
from treadle.control.spelled_weights import Spelled, spelled
from treadle.dims import is_dim
from treadle.ops.arithmetic import add, mul
from treadle.ops.cast import convert
from treadle.ops.compare import bitwise_not, bitwise_or, select
from treadle.ops.dot import Pairs, dot_general
from treadle.ops.movement import reshape
from treadle.ops.reduce import reduce_or
from treadle.trace.interpreter import state
from treadle.trace.value import typeof

for _op in (*spelled_values.REMEMBERED, *spelled_weights.REMEMBERED):
    _op.remembered = True

_LOW = -1e20
"""Less than any score, and more than what is hidden."""


def product(x: Any, y: Any, *, contract: Pairs, batch: Pairs) -> Any:
    """`dot_general` of values that a user multiplies."""
    writer = state.interpreter.writer
    if writer is not None and len(contract[0]) == 1:
        for side, weights in enumerate((x, y)):
            if not hasattr(weights, "origin"):
                continue
            found = spelled(weights, contract[side][0], writer)
            if found is None:
                continue
            parts = parts_of(found, (y, x)[side], side, contract, batch)
            if parts is not None:
                return _mixed(found, parts)
    return dot_general(x, y, contract=contract, batch=batch)


def _mixed(found: Spelled, parts: Parts) -> Any:
    """What attention gives, with the axes of the product."""
    query, key, value = operands(found, parts)
    masks = {"bias": _bias(found, parts)}
    before, after, masks["seen"] = _seen(found, parts)
    masks["kept"] = joined(found.kept, parts, parts.order)
    masks = {name: mask for name, mask in masks.items() if mask is not None}
    out, _ = attention(
        *(query, key, value, *masks.values()),
        scale=found.scale * parts.scale,
        before=before,
        after=after,
        masks=tuple(masks),
        rate=found.rate,
    )
    return parts.spread(_without_hidden(out, found, parts))


def _bias(found: Spelled, parts: Parts) -> Any:
    dtype, total = wide(parts.dtype), None
    for seen, scale in found.biases:
        bias = mul(convert(seen.value, dtype=dtype), scale)
        bias = parts.arranged(seen.of(bias), parts.order)
        total = bias if total is None else add(*alike(total, bias))
    for condition in found.low if found.hidden else ():
        low = select(joined([condition], parts, parts.order), 0.0, dtype.type(_LOW))
        total = low if total is None else add(*alike(total, low))
    return total


def _seen(found: Spelled, parts: Parts) -> tuple[int | None, int | None, Any]:
    """How many keys before and after its own place a query sees, and which of them."""
    reach: list[list[int]] = [[], []]
    rest = []
    row, ahead = found.scores.axes[parts.queries], parts.ahead
    for condition in found.hidden or found.low:
        near = None if row is None else band(condition, row, found.columns)
        found_reach = near and _reach(*near, ahead)
        if found_reach is None:
            rest.append(condition)
            continue
        for known, n in zip(reach, found_reach, strict=True):
            known += [] if n is None else [n]
    before, after = (min(known, default=None) for known in reach)
    return before, after, joined(rest, parts, parts.order)


def _reach(before: Any, after: Any, ahead: Any) -> tuple[Any, Any] | None:
    """Counted from the place that attention gives a query: the last places of queries
    and keys coincide. None if these are no numbers of places."""
    before = None if before is None else before + ahead
    after = None if after is None else after - ahead
    known = [n for n in (before, after) if n is not None]
    if any([is_dim(n) or n < 0 for n in known]):
        return None
    return before, after


def _without_hidden(out: Any, found: Spelled, parts: Parts) -> Any:
    """Not-a-number where a query has no key whose score is finite."""
    if not found.hidden or _sees_something(found, parts):
        return out
    order = [parts.batch, [parts.queries], parts.heads, [parts.keys]]
    seen = reduce_or(joined(found.hidden, parts, order), axes=(3,))
    if found.kept:
        kept = reduce_or(joined(found.kept, parts, order), axes=(3,))
        seen = bitwise_or(*alike(seen, bitwise_not(kept)))
    seen = alike(reshape(seen, shape=(*typeof(seen).shape, 1)), out)[0]
    return select(seen, out, typeof(out).dtype.type(math.nan))


def _sees_something(found: Spelled, parts: Parts) -> bool:
    """Whether each query is known to see its own place, or the first one."""
    row, looks_back = found.scores.axes[parts.queries], True
    for condition in found.hidden:
        near = None if row is None else band(condition, row, found.columns)
        if near is None or any([is_dim(n) or n < 0 for n in near if n is not None]):
            return False
        looks_back = looks_back and near[0] is None
    return looks_back or (not is_dim(parts.ahead) and parts.ahead >= 0)
