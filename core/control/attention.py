"""Attention as one operation, so that a device may compute it block by block.

`attention` gives what it mixes and, for each query, what its weights can be computed
again from; `attention_grad` is the derivative by queries, keys and values, of these.
What either means is written once, as other operations (`formula`): that is what they do
where a device has no kernel, and of what second derivatives, and derivatives by a bias,
are taken. `attention_tangent` is linear, and there to be transposed.

Shapes: query (batch, queries, heads, depth), key (batch, keys, shared heads, depth),
value (batch, keys, shared heads, value depth). Masks are (batch or 1, heads or 1,
queries or 1, keys or 1). Params::

    scale   what the products of queries and keys are multiplied with
    before  how many places before its own a query sees, or None; of two different
            lengths, the last places coincide
    after   and how many after
    masks   which of "bias" (added to the scores), "seen" (booleans: the other scores
            are the least number) and "kept" (booleans: the other weights are left out)
            follow the value, in this order
    rate    what the weights that are kept are multiplied with
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import is_dim
from treadle.ir.graph import Graph
from treadle.ops.arithmetic import add, div, mul, sub
from treadle.ops.binary import maximum
from treadle.ops.cast import convert
from treadle.ops.compare import bitwise_and, ge, gt, lt, select
from treadle.ops.dot import dot_general
from treadle.ops.movement import (
    broadcast_in_dim,
    instantiate,
    move_axis,
    reshape,
    transpose,
)
from treadle.ops.reduce import reduce_max, reduce_sum
from treadle.ops.shape import concatenate, iota
from treadle.ops.unary import exp
from treadle.run.eager import evaluate
from treadle.trace.lowering import Blocked
from treadle.trace.op import Linear, Op, Zero
from treadle.trace.routine import Attention
from treadle.trace.stage import stage
from treadle.trace.value import typeof
from treadle.transforms.jvp import jvp_flat, zero_of
from treadle.transforms.linearize import linearize_flat
from treadle.transforms.transpose import backward

LOWEST = -1e30
"""The score of what is not seen, in units of log(2)."""

_Shape = tuple[int, ...]


class Masks(NamedTuple):
    """What follows the value among the operands."""

    bias: Any = None
    seen: Any = None
    kept: Any = None


def wide(dtype: np.dtype) -> np.dtype:
    """In which dtype scores are computed."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


# What it means ------------------------------------------------------------------------


def formula(query: Any, key: Any, value: Any, *masks: Any, **params: Any) -> list[Any]:
    """`attention` as other operations."""
    dtype = typeof(query).dtype
    weights, peak, total = _softened(_masked(query, key, *masks, params=params))
    out = _mixed(_kept(weights, masks, params), value, typeof(query).shape)
    peak = maximum(mul(peak, 1 / math.log(2)), LOWEST)
    pair = [_row(peak), _row(div(1.0, total))]
    return [convert(out, dtype=dtype), concatenate(*pair, axis=2)]


def _given(masks: Sequence[Any], params: dict[str, Any]) -> Masks:
    return Masks(**dict(zip(params["masks"], masks, strict=True)))


def _masked(query: Any, key: Any, *masks: Any, params: dict[str, Any]) -> Any:
    """The scores, with masks."""
    given, dtype = _given(masks, params), wide(typeof(query).dtype)
    query, key = convert(query, dtype=dtype), convert(key, dtype=dtype)
    scores = _scores(query, key, params)
    shape = typeof(scores).shape
    lowest = dtype.type(LOWEST * math.log(2))
    if given.bias is not None:
        bias = _spread(given.bias, shape)
        # What a large negative number hides is no less than what is not seen.
        low = bitwise_and(lt(bias, lowest), gt(bias, -math.inf))
        scores = select(low, lowest, add(scores, bias))
    seen = _seen(given.seen, shape, params)
    return scores if seen is None else select(seen, scores, lowest)


def _softened(scores: Any) -> tuple[Any, Any, Any]:
    """Weights, the largest score of each row, and its sum of exponentials."""
    shape = typeof(scores).shape
    peak = reduce_max(scores, axes=(3,))
    weights = exp(sub(scores, _along(peak, shape)))
    total = reduce_sum(weights, axes=(3,))
    return div(weights, _along(total, shape)), peak, total


def _kept(weights: Any, masks: Sequence[Any], params: dict[str, Any]) -> Any:
    kept = _given(masks, params).kept
    if kept is None:
        return weights
    kept = _spread(kept, typeof(weights).shape)
    return select(kept, mul(weights, params["rate"]), 0.0)


def _scores(query: Any, key: Any, params: dict[str, Any]) -> Any:
    """(batch, heads, queries, keys); queries of all heads that share one are rows."""
    batch, queries, heads, depth = typeof(query).shape
    keys, shared = typeof(key).shape[1:3]
    rows = transpose(mul(query, params["scale"]), permutation=(0, 2, 1, 3))
    rows = reshape(rows, shape=(batch, shared, heads // shared * queries, depth))
    scores = dot_general(rows, key, contract=((3,), (3,)), batch=((0, 1), (0, 2)))
    return reshape(scores, shape=(batch, heads, queries, keys))


def _mixed(weights: Any, value: Any, shape: _Shape) -> Any:
    batch, queries, heads, _ = shape
    keys, shared, depth = typeof(value).shape[1:]
    value = convert(value, dtype=typeof(weights).dtype)
    rows = reshape(weights, shape=(batch, shared, heads // shared * queries, keys))
    out = dot_general(rows, value, contract=((3,), (1,)), batch=((0, 1), (0, 2)))
    out = reshape(out, shape=(batch, heads, queries, depth))
    return transpose(out, permutation=(0, 2, 1, 3))


def _seen(seen: Any, shape: _Shape, params: dict[str, Any]) -> Any:
    """Which scores count, as booleans of this shape; None if all do."""
    found = [] if seen is None else [_spread(seen, shape)]
    queries, keys = shape[2:]
    int32 = np.dtype(np.int32)
    if params["before"] is not None or params["after"] is not None:
        rows = add(iota(shape=(queries, keys), dtype=int32, axis=0), keys - queries)
        columns = iota(shape=(queries, keys), dtype=int32, axis=1)
        for reach, ahead in ((params["before"], 1), (params["after"], -1)):
            if reach is not None:
                gap = sub(rows, columns) if ahead > 0 else sub(columns, rows)
                found.append(broadcast_in_dim(ge(reach, gap), shape=shape, dims=(2, 3)))
    while len(found) > 1:
        found.append(bitwise_and(found.pop(), found.pop()))
    return found[0] if found else None


def _spread(mask: Any, shape: _Shape) -> Any:
    """A mask of the scores' shape."""
    own = typeof(mask).shape
    dims = tuple([i for i in range(4) if not _is_repeated(own[i], shape[i])])
    mask = reshape(mask, shape=tuple([own[i] for i in dims]))
    return broadcast_in_dim(mask, shape=shape, dims=dims)


def _is_repeated(own: int, length: int) -> bool:
    return not is_dim(own) and own == 1 and (is_dim(length) or length != 1)


def _along(x: Any, shape: _Shape) -> Any:
    return broadcast_in_dim(x, shape=shape, dims=(0, 1, 2))


def _row(x: Any) -> Any:
    batch, heads, queries = typeof(x).shape
    return reshape(x, shape=(batch, heads, 1, queries))


def _tangent(dq: Any, dk: Any, dv: Any, *args: Any, **params: Any) -> list[Any]:
    """`attention_tangent` as other operations."""
    primals = [*args[:3], *args[5:]]
    tangents = [dq, dk, dv, *map(zero_of, args[5:])]
    return [jvp_flat(partial(formula, **params), primals, tangents)[1][0]]


def _gradient(ct: Any, *args: Any, **params: Any) -> list[Any]:
    """`attention_grad` as other operations."""
    primals = [*args[:3], *args[5:]]
    moving = [i < 3 for i in range(len(primals))]
    split = linearize_flat(lambda *xs: formula(*xs, **params)[:1], primals, moving)
    given = [*split.residuals, *(Linear(typeof(x)) for x in primals[:3])]
    return backward(split.graph, given, [ct])[len(split.residuals) :]


# The operations -----------------------------------------------------------------------


def _check(q: ArrayType, k: ArrayType, v: ArrayType, *masks: ArrayType) -> None:
    if q.ndim != 4 or k.shape[:3] != v.shape[:3]:
        raise ValueError(f"attention of {q}, {k}, {v}")
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ValueError(f"attention of {q}, {k}: batch or depth differ")
    if not dtypes.is_float(q.dtype) or not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"attention of {q}, {k}, {v}: they have one dtype, of floats")


def _type(
    q: ArrayType, k: ArrayType, v: ArrayType, *masks: ArrayType, **params: Any
) -> Sequence[ArrayType]:
    _check(q, k, v, *masks)
    batch, queries, heads, _ = q.shape
    rows = ArrayType((batch, heads, 2, queries), wide(q.dtype))
    return [ArrayType((batch, queries, heads, v.shape[3]), q.dtype), rows]


def _tangent_type(*types: ArrayType, **params: Any) -> Sequence[ArrayType]:
    return [types[6]]


def _grad_type(ct: ArrayType, *types: ArrayType, **params: Any) -> Sequence[ArrayType]:
    return [ArrayType(t.shape, t.dtype) for t in types[:3]]


def _run(meaning: Callable[..., list[Any]]) -> Callable[..., Sequence[Any]]:
    @lru_cache(maxsize=64)
    def graph_of(types: tuple[ArrayType, ...], params: tuple) -> Graph:
        return stage(partial(meaning, **dict(params)), types, closed=True)[0]

    def run(*arrays: Any, **params: Any) -> Sequence[Any]:
        types = tuple([ArrayType(a.shape, a.dtype) for a in arrays])
        return evaluate(graph_of(types, tuple(params.items())), arrays)

    return run


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    if not all([isinstance(t, Zero) for t in tangents[3:]]):
        return _jvp_by_bias(primals, tangents, params)
    out, rows = attention(*primals, **params)
    moving = map(instantiate, tangents[:3])
    args = [*moving, *primals[:3], out, rows, *primals[3:]]
    return [out, rows], [attention_tangent(*args, **params)[0], zero_of(rows)]


def _jvp_by_bias(primals: Any, tangents: Any, params: dict[str, Any]) -> Any:
    """With all scores. Written with the weights alone, so that a backward pass keeps
    nothing else of that size."""
    query, key, value, *masks = primals
    (scores,), (moved,) = jvp_flat(
        lambda *xs: [_masked(*xs, params=params)],
        [query, key, *masks],
        [*tangents[:2], *tangents[3:]],
    )
    weights, _, _ = _softened(scores)
    product = reduce_sum(mul(weights, moved), axes=(3,))
    moved = mul(weights, sub(moved, _along(product, typeof(scores).shape)))
    dtype, shape = typeof(query).dtype, typeof(query).shape
    tangent = _mixed(_kept(moved, masks, params), value, shape)
    if not isinstance(tangents[2], Zero):
        mixed = _mixed(_kept(weights, masks, params), tangents[2], shape)
        tangent = add(tangent, mixed)
    outs = formula(*primals, **params)
    return outs, [convert(tangent, dtype=dtype), zero_of(outs[1])]


def _jvp_of(
    meaning: Callable[..., list[Any]], op: Callable[[], Op], linear: int
) -> Callable[..., Any]:
    """The rule of an operation that is linear in its first operands, and takes what
    `attention` has given after three others, which those depend on."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        if all([isinstance(t, Zero) for t in tangents[linear:]]):
            moving = map(instantiate, tangents[:linear])
            outs = op()(*primals, **params)
            return outs, op()(*moving, *primals[linear:], **params)
        at = linear + 3
        fixed = [*tangents[:at], *map(zero_of, primals[at : at + 2])]
        return jvp_flat(
            partial(meaning, **params), primals, [*fixed, *tangents[at + 2 :]]
        )

    return jvp


def _tangent_transpose(cts: Any, *args: Any, **params: Any) -> list[Any]:
    found = attention_grad(instantiate(cts[0]), *args[3:], **params)
    pairs = zip(found, args[:3], strict=True)
    moved = [ct if isinstance(a, Linear) else None for ct, a in pairs]
    return [*moved, *[None] * len(args[3:])]


def _grad_transpose(cts: Any, ct: Any, *args: Any, **params: Any) -> list[Any]:
    (found,) = attention_tangent(*map(instantiate, cts), *args, **params)
    return [found, *[None] * len(args)]


def _batch_of(op: Callable[[], Op], masked: int) -> Callable[..., Any]:
    """The examples of a new axis are further ones of the batch.

    masked: the number of the first mask among the operands.
    """

    def batch(size: int, args: Any, axes: Any, **params: Any) -> Any:
        length = next(
            n
            for i, (x, axis) in enumerate(zip(args, axes, strict=True))
            for n in [_length(x, axis)]
            if i < masked
        )
        merged = [
            _merged(x, axis, size, length, i >= masked)
            for i, (x, axis) in enumerate(zip(args, axes, strict=True))
        ]
        outs = op()(*merged, **params)
        split = [reshape(x, shape=(size, length, *typeof(x).shape[1:])) for x in outs]
        return split, [0] * len(split)

    return batch


def _length(x: Any, axis: int | None) -> int:
    """The length of the first axis of an example."""
    return typeof(x).shape[1 if axis == 0 else 0]


def _merged(x: Any, axis: int | None, size: int, length: int, mask: bool) -> Any:
    own = typeof(x).shape
    rest = own[1:] if axis is None else _without(own, axis)[1:]
    if axis is None:
        if mask and not is_dim(own[0]) and own[0] == 1:
            return x
        x = broadcast_in_dim(x, shape=(size, *own), dims=tuple(range(1, len(own) + 1)))
    else:
        x = move_axis(x, axis, 0)
    if mask and _is_repeated(typeof(x).shape[1], length):
        x = reshape(x, shape=(size, *rest))
        dims = (0, *range(2, len(own) + (axis is None)))
        x = broadcast_in_dim(x, shape=(size, length, *rest), dims=dims)
    return reshape(x, shape=(size * length, *rest))


def _without(shape: _Shape, axis: int) -> _Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _script(first: int, backward: bool) -> Callable[..., Attention]:
    """What a kernel is told; `first` is the query's number among the operands."""

    def script(types: Any, outs: Any, params: dict[str, Any]) -> Attention:
        q, k, v = types[first : first + 3]
        masks = types[-len(params["masks"]) :] if params["masks"] else ()
        return Attention(
            q.dtype,
            backward,
            q.shape,
            (*k.shape[1:3], v.shape[3]),
            params["scale"],
            (params["before"], params["after"]),
            tuple(zip(params["masks"], [m.shape for m in masks], strict=True)),
            params["rate"],
        )

    return script


attention = Op(
    "attention",
    _type,
    _run(formula),
    jvp=_jvp,
    batch=_batch_of(lambda: attention, 3),
    lowering=Blocked(_script(0, backward=False), formula),
    multiple=True,
)
"""What the values amount to by their weights, (batch, queries, heads, value depth), and
for each query the largest score in units of log(2) and 1 / the sum of the powers of two
above it, (batch, heads, 2, queries)."""

attention_tangent = Op(
    "attention_tangent",
    _tangent_type,
    _run(_tangent),
    jvp=_jvp_of(_tangent, lambda: attention_tangent, 3),
    transpose=_tangent_transpose,
    batch=_batch_of(lambda: attention_tangent, 8),
    lowering=Blocked(None, _tangent),
    multiple=True,
)
"""How `attention` changes with query, key and value: three tangents, query, key, value,
both results of `attention`, masks."""

attention_grad = Op(
    "attention_grad",
    _grad_type,
    _run(_gradient),
    jvp=_jvp_of(_gradient, lambda: attention_grad, 1),
    transpose=_grad_transpose,
    batch=_batch_of(lambda: attention_grad, 6),
    lowering=Blocked(_script(1, backward=True), _gradient),
    multiple=True,
)
"""The cotangents of query, key and value: one of the result, query, key, value, both
results of `attention`, masks."""
