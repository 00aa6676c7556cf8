"""What goes on from element to element, of complex numbers as pairs of real ones: a
loop, whose iterations work on all rows at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from treadle.arraytype import ArrayType
from treadle.control.scan import scan
from treadle.dims import is_dim
from treadle.ops.arithmetic import add
from treadle.ops.cumulative import cumprod, linear_recurrence
from treadle.ops.gather import Places, gather
from treadle.ops.movement import full, move_axis, reshape
from treadle.ops.scatter import scatter_mul, scatter_set
from treadle.ops.shape import concatenate, slice_axis
from treadle.passes.pairs import Pair, each, multiply
from treadle.trace.op import Op
from treadle.trace.stage import stage
from treadle.trace.value import typeof


def _loop(
    step: Callable[..., Pair],
    start: Pair,
    rows: Sequence[Any],
    reverse: bool = False,
    stacked: bool = True,
) -> Pair:
    """What a step makes of a pair and each of the rows, one after the other: all along,
    or, unless `stacked`, in the end. ``step(pair, *row)``."""

    def body(*args: Any) -> list[Any]:
        out = step(Pair(*args[:2]), *args[2:])
        return [*out, *out] if stacked else [*out]

    types = [ArrayType(t.shape, t.dtype) for t in map(typeof, start)]
    types += [ArrayType(t.shape[1:], t.dtype) for t in map(typeof, rows)]
    graph, captured = stage(body, types, closed=True)
    assert not captured
    re, im, *all_along = scan(
        *(*start, *rows),
        graph=graph,
        n_consts=0,
        n_carry=2,
        length=typeof(rows[0]).shape[0],
        reverse=reverse,
    )
    return Pair(*all_along) if stacked else Pair(re, im)


def _running_product(x: Pair, *, axis: int, reverse: bool) -> Pair:
    n = typeof(x.re).shape[axis]
    if not is_dim(n) and n < 2:
        return x
    rows = each(lambda a: move_axis(a, axis, 0), x)
    # The first element as it is: 1 times an infinity has parts that are no numbers.
    one, rest = ((n - 1, n), (0, n - 1)) if reverse else ((0, 1), (1, n))
    first = each(lambda a: slice_axis(a, 0, *one), rows)
    others = each(lambda a: slice_axis(a, 0, *rest), rows)
    products = _loop(
        lambda so_far, re, im: multiply(so_far, Pair(re, im)),
        each(lambda a: reshape(a, shape=typeof(a).shape[1:]), first),
        others,
        reverse=reverse,
    )

    def joined(one: Any, more: Any) -> Any:
        both = (more, one) if reverse else (one, more)
        return move_axis(concatenate(*both, axis=0), 0, axis)

    return each(joined, first, products)


def _recurrence(a: Pair, b: Pair, *, axis: int, reverse: bool) -> Pair:
    rows = [move_axis(part, axis, 0) for part in (*a, *b)]
    t = typeof(rows[0])
    nothing = full(t.shape[1:], 0, t.dtype)

    def step(h: Pair, *row: Any) -> Pair:
        return each(add, multiply(Pair(*row[:2]), h), Pair(*row[2:]))

    found = _loop(step, Pair(nothing, nothing), rows, reverse=reverse)
    return each(lambda h: move_axis(h, 0, axis), found)


def _scattered_product(x: Pair, updates: Pair, *indices: Any, **params: Any) -> Pair:
    """One update after the other: a place may occur more than once."""

    def combined(so_far: Pair, new: Pair, *where: Any) -> Pair:
        old = each(lambda a: gather(a, *where, **params), so_far)
        product = multiply(old, new)
        return each(lambda a, p: scatter_set(a, p, *where, **params), so_far, product)

    if not indices:
        return combined(x, updates)
    batch = Places(**params).batch_dims
    lead = typeof(indices[0]).shape
    count = math.prod(lead[batch:])

    def rows(a: Any) -> Any:
        shape = typeof(a).shape
        lined = reshape(a, shape=(*lead[:batch], count, *shape[len(lead) :]))
        return move_axis(lined, batch, 0)

    return _loop(
        lambda so_far, re, im, *where: combined(so_far, Pair(re, im), *where),
        x,
        [rows(a) for a in (*updates, *indices)],
        stacked=False,
    )


LOOPS: dict[Op, Callable[..., Pair]] = {
    cumprod: _running_product,
    linear_recurrence: _recurrence,
    scatter_mul: _scattered_product,
}
