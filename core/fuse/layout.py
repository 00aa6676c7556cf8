"""How stored values lie in memory, and what a view's axes step over."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from treadle.dims import Dim
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.maps import Space
from treadle.ir.graph import Atom, Equation, Var
from treadle.ir.maps import address
from treadle.ops.dot import dot_general, fills_as_rows
from treadle.ops.movement import transpose
from treadle.trace.lowering import Join, Product


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a contiguous array, last axis fastest."""
    scope = None
    for n in shape:
        if type(n) is Dim:
            scope = n.scope
    if scope is None:
        return _row_major(shape)
    # What is kept longer than a trace must not keep its sizes.
    key = "row-major", shape
    if key not in scope.known:
        scope.known[key] = _row_major.__wrapped__(shape)
    return scope.known[key]


@lru_cache(maxsize=4096)
def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def stored_strides(v: Atom, flow: Dataflow) -> tuple[int, ...]:
    """The strides of a stored value.

    Row-major, except where all readers see it through one and the same transposition:
    then it is stored the way they see it.
    """
    if v in flow.parts:
        return flow.parts[v][2]  # type: ignore[index]
    order = None
    if type(v) is Var:
        maker = flow.maker.get(v)
        if maker is not None and isinstance(maker.op.lowering, Product):
            order = _wanted_order(v, flow)
    if order is None:
        return row_major(v.type.shape)
    seen = row_major(tuple([v.type.shape[p] for p in order]))
    strides = [0] * len(order)
    for place, axis in enumerate(order):
        strides[axis] = seen[place]
    return tuple(strides)


def _wanted_order(v: Var, flow: Dataflow) -> tuple[int, ...] | None:
    """In which order of axes all who read a product see it."""
    if v in flow.row_major:
        return None
    # Decided once: fusion exchanges readers, but a layout that was relied on must stay.
    if v not in flow.orders:
        flow.orders[v] = _readers_order(v, flow)
    return flow.orders[v]


def _readers_order(v: Var, flow: Dataflow) -> tuple[int, ...] | None:
    if v in flow.returned:
        return None
    orders = {
        eq.params["permutation"] if eq.op is transpose else None
        for eq in flow.readers[v]
    }
    order = orders.pop() if len(orders) == 1 else None
    return None if order and _leaves_few(flow.maker[v], order) else order


def _leaves_few(eq: Equation, order: tuple[int, ...]) -> bool:
    """Whether vectors would lie along a few elements of a result, in such an order of
    axes, or fill less, instead of along more."""
    shape = eq.outputs[0].type.shape
    terms = 1
    if eq.op is dot_general and len(shape) == 2:
        x = eq.inputs[0].type.shape
        terms = math.prod([x[i] for i in eq.params["contract"][0]])
    return fills_as_rows(shape[-1], shape[order[-1]], terms)


class Strided(NamedTuple):
    """A stored value seen as an array: offset and step per axis, in elements."""

    source: Atom
    offset: int
    steps: tuple[int, ...]


def axis_strides(a: Atom, flow: Dataflow) -> Strided | None:
    """The stored value behind an atom, and its steps; None if the views have none."""
    source, chain = flow.resolve(a)
    if not chain:
        steps = stored_strides(a, flow)
        if absent := flow.units.absent(a):
            steps = tuple([0 if i in absent else n for i, n in enumerate(steps)])
        return Strided(a, 0, steps)
    space = Space(flow.units)
    entries = space.index(a)
    seen = space.seen(entries, source, chain)
    if not isinstance(seen, tuple):
        # Nor is an axis split: it has one stride.
        return None
    offset, strides = address(seen, stored_strides(source, flow))
    steps = tuple(strides.get(e.terms[0][0], 0) if e.terms else 0 for e in entries)
    return Strided(source, offset, steps)


def operand_strides(eq: Equation, flow: Dataflow) -> list[Strided] | None:
    """The operands of an equation as arrays; None if one must be copied first."""
    found = []
    for a in eq.inputs:
        strided = axis_strides(a, flow)
        if strided is None:
            return None
        found.append(strided)
    return found


def joined(
    eq: Equation, how: Join, steps: Sequence[int]
) -> Iterator[tuple[Atom, tuple[int, tuple[int, ...]]]]:
    """The pieces of a join, with offset and strides in a whole of the given strides."""
    pieces = eq.inputs[:-1] if how.filled else eq.inputs
    places = how.pieces([a.type for a in pieces], steps, **eq.params)
    return zip(pieces, places, strict=True)
