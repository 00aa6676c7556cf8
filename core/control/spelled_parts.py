"""Operands of attention, of those of the products that users spell it with: which axes
are those of examples, heads, queries and keys, and all of them in one order.

Axes are counted as those of the scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.control.attention import wide
from treadle.control.spelled_values import (
    Condition,
    Seen,
    above,
    constant,
    factor,
    origin,
)
from treadle.control.spelled_weights import Spelled
from treadle.dims import is_dim, is_one, one, same_shape
from treadle.ops.arithmetic import div, mul
from treadle.ops.cast import convert
from treadle.ops.compare import bitwise_and, bitwise_not
from treadle.ops.dot import Pairs, free_axes
from treadle.ops.movement import broadcast_in_dim, reshape, transpose
from treadle.records import record
from treadle.trace.value import typeof

DEPTH, VALUE_DEPTH = -1, -2
"""Axes that the scores don't have."""

Order = Sequence[Sequence[int]]


@record
class Parts:
    """Operands, and what their axes are.

    sizes: of all axes, by their numbers.
    batch: those of examples. shared: those of heads that keys have, too.
    groups: those that only queries have.
    of_weights: for axes of the weights, which these are.
    out: for each axis of the product, which it is.
    dtype: what attention computes in. scale: what is taken from its operands.
    """

    query: Seen
    key: Seen
    value: Seen
    sizes: dict[int, int]
    batch: list[int]
    shared: list[int]
    groups: list[int]
    queries: int
    keys: int
    of_weights: dict[int, int]
    out: list[int | None]
    dtype: np.dtype
    result: np.dtype
    scale: float = 1.0

    @property
    def heads(self) -> list[int]:
        return [*self.shared, *self.groups]

    @property
    def order(self) -> Order:
        """Of masks."""
        return [self.batch, self.heads, [self.queries], [self.keys]]

    @property
    def ahead(self) -> Any:
        """How many more keys than queries there are."""
        return self.sizes[self.keys] - self.sizes[self.queries]

    def arranged(self, seen: Seen, order: Order) -> Any:
        """A value with axes of the weights, as one with an axis for each of some kinds,
        of length 1 where it is the same for all."""
        axes = tuple([None if i is None else self.of_weights.get(i) for i in seen.axes])
        return self.in_order(Seen(seen.value, axes), order)

    def in_order(self, seen: Seen, order: Order) -> Any:
        """The same of a value with axes of the scores."""
        x = seen.value
        if None in seen.axes:
            named = [i for i, axis in enumerate(seen.axes) if axis is not None]
            x = reshaped(x, tuple([typeof(x).shape[i] for i in named]))
            seen = Seen(x, tuple([seen.axes[i] for i in named]))
        # Of heads, keys may have fewer.
        sizes = self.sizes | dict(zip(seen.axes, typeof(x).shape, strict=True))
        kinds = [[i for i in kind if i in seen.axes] for kind in order]
        flat = [i for kind in kinds for i in kind]
        x = transposed(x, tuple([seen.axes.index(i) for i in flat]))
        lined = zip(kinds, order, strict=True)
        whole = [list(kind) if own else [] for own, kind in lined]
        every = [i for kind in whole for i in kind]
        if every != flat:
            shape = tuple([sizes[i] for i in every])
            dims = tuple([every.index(i) for i in flat])
            x = broadcast_in_dim(x, shape=shape, dims=dims)
        shape = tuple([math.prod([sizes[i] for i in kind]) for kind in whole])
        return reshaped(x, shape)

    def spread(self, out: Any) -> Any:
        """The result of attention, with the axes of the product."""
        order = [*self.batch, self.queries, *self.heads, VALUE_DEPTH]
        order = [i for i in order if i in self.out]
        out = reshaped(out, tuple([self.sizes[i] for i in order]))
        named = [i for i in self.out if i is not None]
        out = transposed(out, tuple([order.index(i) for i in named]))
        shape = [1 if i is None else self.sizes[i] for i in self.out]
        out = reshaped(out, tuple(shape))
        same = typeof(out).dtype == self.result
        return out if same else convert(out, dtype=self.result)


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """A value with another shape, if it is another."""
    return x if same_shape(typeof(x).shape, shape) else reshape(x, shape=shape)


def transposed(x: Any, order: tuple[int, ...]) -> Any:
    """A value with its axes in another order, if it is another."""
    return x if order == tuple(range(len(order))) else transpose(x, permutation=order)


def alike(*xs: Any) -> list[Any]:
    """Values of as many axes, repeated along those of length 1 in one but not in
    others."""
    shapes = [typeof(x).shape for x in xs]
    shape = tuple(
        [next((n for n in ns if not one(n)), 1) for ns in zip(*shapes, strict=True)]
    )
    dims = tuple(range(len(shape)))
    return [
        x if same_shape(own, shape) else broadcast_in_dim(x, shape=shape, dims=dims)
        for x, own in zip(xs, shapes, strict=True)
    ]


def joined(conditions: Sequence[Condition], parts: Parts, order: Order) -> Any:
    """Whether all conditions hold, with axes in an order; None if there are none."""
    found = None
    for seen, negated in conditions:
        mask = parts.arranged(seen, order)
        mask = bitwise_not(mask) if negated else mask
        found = mask if found is None else bitwise_and(*alike(found, mask))
    return found


# What is what -------------------------------------------------------------------------


def parts_of(
    found: Spelled, value: Any, side: int, contract: Pairs, batch: Pairs
) -> Parts | None:
    """The operands, if the product of weights (its operand number `side`) with values
    is one for each query, and blocks are worth it."""
    scores, shape = found.scores, typeof(found.weights).shape
    of_weights = {axis: i for i, axis in enumerate(scores.axes) if axis is not None}
    if any([i not in of_weights and not one(n) for i, n in enumerate(shape)]):
        return None
    keys = of_weights.get(found.columns)
    if keys is None:
        return None
    told = _told_apart(scores.value, keys)
    if told is None:
        return None
    query, key = told
    shared = [i for i in query.axes if i in key.axes and i != DEPTH]
    groups = [i for i in query.axes if i not in key.axes]
    value, out = _product_axes(value, of_weights, side, contract, batch, len(shape))
    mapped = {i for i in shared if scores.axes[i] is not None}
    if (
        not groups
        or value is None
        or {*value.axes} - {None, keys, VALUE_DEPTH} != mapped
    ):
        return None
    queries = max(
        groups, key=lambda i: -1 if scores.axes[i] is None else scores.axes[i]
    )
    groups.remove(queries)
    sizes = dict(enumerate(typeof(scores.value).shape))
    for seen, axis in ((query, DEPTH), (value, VALUE_DEPTH)):
        sizes[axis] = typeof(seen.value).shape[seen.axes.index(axis)]
    if not _is_worth_it(sizes, sizes[queries], sizes[keys]):
        return None
    result = typeof(value.value).dtype
    parts = Parts(
        *(query, key, value, sizes, [], sorted(shared), sorted(groups)),
        *(queries, keys, of_weights, out, result, result),
    )
    _settle(parts, found)
    return parts


def _is_worth_it(sizes: dict[int, int], queries: int, keys: int) -> bool:
    if not same_shape((queries,), (keys,)) and is_one(queries):
        # A row of scores is little: so a text is written, key by key. Lengths don't
        # count else: a program of any length has the same bits as one of that length.
        return one(keys)
    return all([is_dim(n) or n > 0 for n in sizes.values()])


def _told_apart(scores: Any, keys: int) -> tuple[Seen, Seen] | None:
    """The queries and the keys of a product of both."""
    _, args, params = origin(scores)
    contract, batch = params["contract"], params["batch"]
    if len(contract[0]) != 1:
        return None
    start, both = len(batch[0]), []
    for side, x in enumerate(args):
        axes = [DEPTH] * typeof(x).ndim
        for i, axis in enumerate(batch[side]):
            axes[axis] = i
        own = free_axes(len(axes), contract[side], batch[side])
        for i, axis in enumerate(own, start):
            axes[axis] = i
        start += len(own)
        both.append((Seen(x, tuple(axes)), len(own)))
    for (query, _), (key, free) in (both, both[::-1]):
        if keys in key.axes and free == 1 and keys not in query.axes:
            return query, key
    return None


def _product_axes(
    value: Any,
    of_weights: dict[int, int],
    side: int,
    contract: Pairs,
    batch: Pairs,
    ndim: int,
) -> tuple[Seen | None, list[int | None]]:
    """The values, if they have one axis of their own, and the axes of the product."""
    axes: list[int | None] = [VALUE_DEPTH] * typeof(value).ndim
    for i, j in ((contract, contract), (batch, batch)):
        for own, other in zip(i[side], j[1 - side], strict=True):
            axes[other] = of_weights.get(own)
    if axes.count(VALUE_DEPTH) != 1:
        return None, []
    rows = [of_weights.get(i) for i in free_axes(ndim, contract[side], batch[side])]
    both = [of_weights.get(i) for i in batch[side]]
    free = [VALUE_DEPTH, *rows] if side else [*rows, VALUE_DEPTH]
    return Seen(value, tuple(axes)), [*both, *free]


# In the form that attention takes -----------------------------------------------------


def _settle(parts: Parts, found: Spelled) -> None:
    """Finds what lies behind transpositions, and which axes are those of heads."""
    parts.query, parts.key = (_bare(x, parts) for x in (parts.query, parts.key))
    parts.value = _turned(parts.value)
    types = [typeof(x.value) for x in (parts.query, parts.key, parts.value)]
    parts.dtype = dtypes.promote(*[(t.dtype, False) for t in types])[0]
    if found.factors:
        parts.dtype = wide(parts.dtype)
    where = parts.query.axes
    row = where.index(parts.queries)
    parts.batch = [i for i in parts.shared if i in where[:row]]
    for axes in _large(found, parts):
        one_for_all = [i for i in parts.batch if i not in axes]
        if one_for_all != parts.batch:
            parts.batch = [i for i in parts.batch if i in axes]
    parts.shared = [i for i in parts.shared if i not in parts.batch]
    if len(parts.shared) == 1 and not parts.groups:
        _unrepeat(parts)


def _large(found: Spelled, parts: Parts) -> list[set[int | None]]:
    """The axes of masks that have some for each query and key."""
    seen = [c.seen for c in (*found.hidden, *found.low, *found.kept)]
    seen += [bias for bias, _ in found.biases]
    axes = [{parts.of_weights.get(i) for i in x.axes if i is not None} for x in seen]
    return [own for own in axes if {parts.queries, parts.keys} <= own]


def _turned(seen: Seen) -> Seen:
    """What transpositions are of."""
    while origin(seen.value)[0] is transpose:
        seen = above(seen)  # type: ignore[assignment]
    return seen


def _bare(seen: Seen, parts: Parts) -> Seen:
    """The same without widening and constant factors, which go to the scale."""
    while True:
        seen = _turned(seen)
        op, args, _ = origin(seen.value)
        if op is convert:
            dtype = typeof(args[0]).dtype
            wider = typeof(seen.value).dtype.itemsize > dtype.itemsize
            if not (wider and dtypes.is_float(dtype)):
                return seen
        elif op in (mul, div):
            if op is mul and constant(args[0]) is not None:
                args = args[::-1]
            by = factor(args[1], op)
            if by is None:
                return seen
            parts.scale *= by
        else:
            return seen
        seen = seen.of(args[0])


def _unrepeat(parts: Parts) -> None:
    """Takes keys and values whose heads are each repeated as they were before."""
    (head,) = parts.shared
    pair = [_before_repeat(_turned(x), head) for x in (parts.key, parts.value)]
    if None in pair:
        return
    (key, n), (value, m) = pair  # type: ignore[misc]
    if same_shape((n,), (m,)):
        parts.key, parts.value = _turned(key), _turned(value)


def _before_repeat(seen: Seen, head: int) -> tuple[Seen, int] | None:
    """What was repeated, and how many heads that has."""
    op, args, params = origin(seen.value)
    if op is not reshape or head not in seen.axes:
        return None
    place, inner = seen.axes.index(head), args[0]
    op, args, params = origin(inner)
    shape, out = typeof(inner).shape, typeof(seen.value).shape
    split = (*shape[: place + 1], *shape[place + 2 :])
    rest = (*out[:place], *shape[place : place + 1], *out[place + 1 :])
    if op is not broadcast_in_dim or len(shape) != len(out) + 1:
        return None
    x, dims = args[0], params["dims"]
    own = typeof(x).shape
    kept = [i for i, d in enumerate(dims) if d != place + 1]
    repeated = all([one(own[i]) for i in range(len(own)) if i not in kept])
    if not (same_shape(split, rest) and repeated and len(kept) == len(out)):
        return None
    if not same_shape(tuple([own[i] for i in kept]), split):
        return None
    axes = iter(seen.axes)
    named = tuple([next(axes) if i in kept else None for i in range(len(own))])
    return Seen(x, named), shape[place]


def operands(found: Spelled, parts: Parts) -> list[Any]:
    """Queries, keys and values, with four axes each."""
    orders = (
        (parts.query, [parts.batch, [parts.queries], parts.heads, [DEPTH]]),
        (parts.key, [parts.batch, [parts.keys], parts.shared, [DEPTH]]),
        (parts.value, [parts.batch, [parts.keys], parts.shared, [VALUE_DEPTH]]),
    )
    found_ = []
    for seen, order in orders:
        x = parts.in_order(seen, order)
        same = typeof(x).dtype == parts.dtype
        found_.append(x if same else convert(x, dtype=parts.dtype))
    for many, divides in found.factors:
        found_[0] = _scaled(found_[0], many, divides, parts)
    return found_


def _scaled(query: Any, factor: Seen, divides: bool, parts: Parts) -> Any:
    order = [parts.batch, [parts.queries], parts.heads, []]
    by = convert(factor.value, dtype=parts.dtype)
    if typeof(by).shape:
        by = alike(parts.arranged(factor.of(by), order), query)[0]
    return div(query, by) if divides else mul(query, by)
