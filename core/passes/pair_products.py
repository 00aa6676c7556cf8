"""Products of complex numbers as pairs of real ones: contractions and concatenations
that are better written out, to be computed where their results are read.

The gates of a quantum circuit are such: matrices of four numbers, put together for one
product with a long vector of states.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim, settled
from treadle.ir.graph import Equation
from treadle.ops.arithmetic import add
from treadle.ops.compare import lt, select
from treadle.ops.dot import Pairs, dot_general, free_axes
from treadle.ops.movement import broadcast_in_dim, reshape, transpose
from treadle.ops.reduce import reduce_prod, reduce_sum
from treadle.ops.shape import concatenate, iota, slice_axis
from treadle.passes.pairs import Pair, each, multiply
from treadle.trace.value import typeof

_FEW_TERMS, _FEW_RESULTS = 4, 16
_PIECES = 8
"""Into how many an axis is cut whose elements are multiplied."""


def written_out(eq: Equation) -> Callable[..., Pair] | None:
    """The rule for an equation that is so small in some way; None for others."""
    if eq.op is concatenate and all(
        a.type.shape[eq.params["axis"]] == 1 for a in eq.inputs
    ):
        return _chosen if _count(eq.outputs[0].type.shape) <= _FEW_RESULTS else None
    if eq.op is reduce_prod:
        shape = eq.inputs[0].type.shape
        return _multiplied if all([shape[a] for a in eq.params["axes"]]) else None
    if eq.op is not dot_general:
        return None
    # In which order there are sums depends on the answers: they are asked of sizes that
    # are not fixed, too, so that bits are the same. There may be several programs then.
    shape, axes = eq.inputs[0].type.shape, eq.params["contract"][0]
    if settled(_are_few, (_FEW_TERMS, *[shape[a] for a in axes])):
        return _sum_of_products
    few = settled(_are_few, (_FEW_RESULTS, *eq.outputs[0].type.shape))
    return _reduced if few else None


def _are_few(limit: int, *lengths: int) -> int:
    """Whether there are some elements of a shape, and at most so many."""
    return int(0 < math.prod(lengths) <= limit)


def _multiplied(x: Pair, *, axes: tuple[int, ...]) -> Pair:
    """The product of all elements along axes, one after the other: an axis is cut into
    a few pieces, whose product takes its place, until it has one element."""
    shape = typeof(x.re).shape
    for axis in axes:
        n = operator.index(shape[axis])

        def cut(x: Pair, start: int, stop: int, axis: int = axis) -> Pair:
            return each(lambda a: slice_axis(a, axis, start, stop), x)

        while n > 1:
            count = min(n, _PIECES)
            length = n // count
            starts = range(0, count * length, length)
            product = reduce(multiply, [cut(x, i, i + length) for i in starts])
            if rest := n - count * length:
                product = each(
                    lambda a, b, axis=axis: concatenate(a, b, axis=axis),
                    product,
                    cut(x, n - rest, n),
                )
            x, n = product, length + rest
    kept = tuple([n for i, n in enumerate(shape) if i not in axes])
    return each(lambda a: reshape(a, shape=kept), x)


def _count(lengths: Sequence[int]) -> float:
    """How many elements there are; more than few, if that is not known, or none."""
    known = not any(map(is_dim, lengths))
    return math.prod(lengths) or math.inf if known else math.inf


def _chosen(*pieces: Pair, axis: int) -> Pair:
    """A concatenation along an axis along which the pieces are 1 long."""
    shape = list(typeof(pieces[0].re).shape)
    shape[axis] = len(pieces)

    def choose(*parts: Any) -> Any:
        place = iota(shape=tuple(shape), axis=axis, dtype=dtypes.int32)
        dims = tuple(range(len(shape)))
        *others, found = [
            broadcast_in_dim(a, shape=tuple(shape), dims=dims) for a in parts
        ]
        for i, a in reversed(list(enumerate(others))):
            found = select(lt(place, np.int32(i + 1)), a, found)
        return found

    return each(choose, *pieces)


def _sum_of_products(x: Pair, y: Pair, *, contract: Pairs, batch: Pairs) -> Pair:
    """A contraction as a sum of elementwise products.

    Elements are taken of the operands as they are: of a repeated operand a part would
    be a view of a view, which kernels may want in memory."""
    lengths = [operator.index(typeof(x.re).shape[a]) for a in contract[0]]
    left = [
        [a for a in range(typeof(p.re).ndim) if a not in axes]
        for p, axes in zip((x, y), contract, strict=True)
    ]
    within = [
        tuple([axes.index(a) for a in b]) for axes, b in zip(left, batch, strict=True)
    ]

    def term(index: Sequence[int]) -> Pair:
        first, second = [
            each(lambda a, axes=axes: _taken(a, axes, index), p)
            for p, axes in zip((x, y), contract, strict=True)
        ]
        return multiply(*_lined_up(first, second, ((), ()), (within[0], within[1])))

    places = itertools.product(*map(range, lengths))
    return reduce(lambda a, b: each(add, a, b), map(term, places))


def _taken(x: Any, axes: Sequence[int], index: Sequence[int]) -> Any:
    """The elements at these places of some axes."""
    shape = typeof(x).shape
    for axis, i in zip(axes, index, strict=True):
        x = slice_axis(x, axis, i, i + 1)
    left = tuple([n for axis, n in enumerate(shape) if axis not in axes])
    return reshape(x, shape=left)


def _reduced(x: Pair, y: Pair, *, contract: Pairs, batch: Pairs) -> Pair:
    """A contraction as a reduction of elementwise products."""
    product = multiply(*_lined_up(x, y, contract, batch))
    ndim = typeof(product.re).ndim
    axes = tuple(range(ndim - len(contract[0]), ndim))
    return each(lambda a: reduce_sum(a, axes=axes), product)


def _lined_up(x: Pair, y: Pair, contract: Pairs, batch: Pairs) -> list[Pair]:
    """The operands over all axes: those of batches, the free ones of the first and of
    the second, and those that are summed over."""
    shapes = [typeof(p.re).shape for p in (x, y)]
    free = [
        free_axes(len(s), c, b) for s, c, b in zip(shapes, contract, batch, strict=True)
    ]
    n, *_ = (len(b) for b in batch)
    starts = n, n + len(free[0])
    ends = starts[1] + len(free[1])
    sizes = [shapes[0][a] for a in (*batch[0], *free[0])]
    sizes += [shapes[1][a] for a in free[1]] + [shapes[0][a] for a in contract[0]]
    found = []
    for p, c, b, f, start in zip((x, y), contract, batch, free, starts, strict=True):
        dims = (
            *range(n),
            *range(start, start + len(f)),
            *range(ends, ends + len(c)),
        )

        def lined(a: Any, order: Any = (*b, *f, *c), dims: Any = dims) -> Any:
            a = transpose(a, permutation=order)
            return broadcast_in_dim(a, shape=tuple(sizes), dims=dims)

        found.append(each(lined, p))
    return found
