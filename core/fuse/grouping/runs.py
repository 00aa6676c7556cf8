"""Lengthens what vectors run along where an array is repeated beside a short axis.

A mean of each colour has three elements: whoever subtracts it from rows of pixels has
no vectors to fill. So a small array is made in memory that repeats it along a row of
pixels, and is repeated along the other axes. Lengths are those of the trace, and what
they decide must change no result: it is decided once groups are settled, and never
where the order of a sum would be another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from treadle.dims import hint, one
from treadle.fuse.cluster import Cluster, operands_fit
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.grouping.partition import Partition
from treadle.fuse.grouping.recompute import builds
from treadle.fuse.lowering.forms import Form
from treadle.fuse.lowering.nests import form_of, summation
from treadle.fuse.order import Node
from treadle.fuse.roles import is_fused, stored_members
from treadle.ir.graph import Atom, Equation, Lit, Var
from treadle.ops.movement import broadcast_in_dim
from treadle.trace.lowering import Reduction

_SHORT = 32
"""Elements that are too few for vectors to run along."""
_RUN = 128
"""Elements that are enough."""
_SMALL = 4
"""How much smaller what is repeated in memory is, at least, than what reads it."""


def lengthen(part: Partition) -> None:
    """Puts a small array before what is repeated along some of the last axes, where the
    last is short: it has all of these, and is repeated along others."""
    place: dict[Node, int] = {}
    made: list[tuple[int, Cluster]] = []
    for eq in part.flow.graph.equations:
        if eq.op is not broadcast_in_dim:
            continue
        rows = list(_rows(eq))
        readers = _readers(eq, part) if rows else []
        if readers:
            place = place or {node: i for i, node in enumerate(part.nodes)}
            # One that makes a small array has no place yet: not both are worth it.
            first = min([place.get(r, -1) for r in readers])
            makers = _makers(eq.inputs[0], part)
            if all(place.get(n, first) < first for n in makers) and first >= 0:
                number = 1 + max(n.number for n in part.nodes) + len(made)
                small = _lengthened(eq, rows, readers, part, number)
                made += [(first, small)] if small else []
    for first, small in sorted(made, key=lambda x: x[0], reverse=True):
        part.nodes.insert(first, small)


def _rows(eq: Equation) -> Iterator[tuple[int, ...]]:
    """The shapes of arrays that a broadcast is better made of than of its operand, the
    longest first."""
    a, shape = eq.inputs[0], eq.params["shape"]
    if len(shape) < 2 or not a.type.shape or hint(shape[-1]) >= _SHORT:
        return
    lengths = [hint(n) for n in shape]
    dims = enumerate(eq.params["dims"])
    has = {d for i, d in dims if not one(n := a.type.shape[i]) and n == shape[d]}
    row = set[int]()
    found = []
    for i in reversed(range(len(shape))):
        if math.prod([lengths[j] for j in row]) >= _RUN:
            break
        row.add(i)
        stays = has | row
        size = math.prod([lengths[j] for j in stays])
        if has & row and not row <= has and 0 < size * _SMALL <= math.prod(lengths):
            found.append(tuple([n if j in stays else 1 for j, n in enumerate(shape)]))
    yield from dict.fromkeys(reversed(found))


def _readers(eq: Equation, part: Partition) -> list[Cluster]:
    """The clusters that see a broadcast; none if others do, or would add up a row of it
    with more or fewer instructions."""
    flow, v, found = part.flow, eq.outputs[0], dict[Cluster, None]()
    if flow.is_returned(v):
        return []
    for r in flow.final_readers(v):
        node = part.owner.get(r.outputs[0]) if r.outputs else None
        if not isinstance(node, Cluster) or node.product or not is_fused(r, v, flow):
            return []
        if node.form == "inner" and _sums(node):
            return []
        found[node] = None
    return list(found)


def _sums(cluster: Cluster) -> bool:
    return any(
        isinstance(how := eq.op.lowering, Reduction) and how.sums
        for eq in cluster.equations
    )


def _makers(a: Atom, part: Partition) -> list[Node]:
    """The nodes that must have run before a value can be read or computed."""
    flow = part.flow
    v, _ = flow.resolve(a)
    if isinstance(v, Lit):
        return []
    if v in flow.inline or v in flow.recomputed:
        return [n for x in flow.maker[v].inputs for n in _makers(x, part)]
    return [part.owner[v]] if v in part.owner else []


def _lengthened(
    eq: Equation,
    rows: Sequence[tuple[int, ...]],
    readers: Sequence[Cluster],
    part: Partition,
    number: int,
) -> Cluster | None:
    """The cluster of the first small array that lets its readers sum as before."""
    flow = part.flow
    before: dict[Node | Equation, Any] = {
        r: part.built[r] for r in readers if r in part.built
    }

    def sums() -> list[tuple[Any, int]]:
        found = []
        for r in readers:
            if r.reduced:
                form = part.built.get(r)
                if not isinstance(form, Form):
                    form = form_of(r, flow, stored_members(r, part))
                found.append(summation(r, flow, form))
        return found

    orders = sums()
    for row in rows:
        small = _small(eq, row, number, flow)
        (made,) = small.equations
        (new,) = made.outputs
        params = {"shape": eq.params["shape"], "dims": tuple(range(len(row)))}
        seen = Equation(eq.op, [new], params, eq.outputs, eq.source)
        flow.replace_view(eq, seen)
        part.owner[new] = small
        if (
            operands_fit(small.space, made, flow)
            and all(builds(r, part) for r in readers)
            and sums() == orders
        ):
            return small
        flow.replace_view(seen, eq)
        flow.remove(made)
        del part.owner[new]
        for r in readers:
            part.built.pop(r, None)
    part.built.update(before)
    return None


def _small(
    eq: Equation, shape: tuple[int, ...], number: int, flow: Dataflow
) -> Cluster:
    """A cluster that makes a broadcast of another shape."""
    params = {"shape": shape, "dims": eq.params["dims"]}
    (t,) = eq.op.infer([eq.inputs[0].type], params)
    v = Var(t)
    made = Equation(eq.op, eq.inputs, params, [v], eq.source)
    flow.add(made, copied=True)
    cluster = Cluster(number, flow)
    cluster.space.maps[v] = cluster.space.index(v)
    cluster.equations.append(made)
    cluster.values.append(v)
    return cluster
