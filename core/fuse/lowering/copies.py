"""Nests that move data: copies into part of an array, fills, and scatters."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.fuse.cluster import addressing, operand_fits
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.layout import row_major
from treadle.fuse.lowering.launches import Copy, Launch
from treadle.fuse.lowering.nests import (
    Access,
    NestWriter,
    coalesce,
    finish,
    ranking,
    window_map,
)
from treadle.fuse.maps import Space
from treadle.ir import scalar
from treadle.ir.graph import Atom, Equation, Lit, Var, is_zero
from treadle.ir.maps import ZERO, address
from treadle.ops.movement import broadcast_in_dim
from treadle.trace.lowering import Scatter


def copy_launch(
    a: Atom, target: Var, offset: int, strides: Sequence[int], flow: Dataflow
) -> Launch | None:
    """Copies a value, seen through its views, to strided elements of `target`; None if
    a view must be made in memory first."""
    space, written = Space(flow.units), Var(a.type)
    space.maps[written] = space.index(a)
    if not operand_fits(space, written, a, flow):
        return None
    entries = space.maps[written]
    body = NestWriter(space, flow)
    value = body.value(a, entries)
    start, steps = address(entries, strides)
    pairs = tuple(sorted(steps.items()))
    k = body.access(Access(target, a.type.dtype, offset + start, pairs, True))
    body.instr("store", (value,), a.type.dtype, k)
    dims = sorted(space.sizes, key=ranking(body.accesses, space.sizes))
    return finish(body, space.sizes, dims, [], None, "inner")


def filled(value: Atom, whole: Var, flow: Dataflow) -> Launch | Copy:
    """Writes one number everywhere."""
    if is_zero(value):
        return Copy(None, whole)
    spread = Var(whole.type)
    params = {"shape": whole.type.shape, "dims": ()}
    flow.add(Equation(broadcast_in_dim, [value], params, [spread]))
    launch = copy_launch(spread, whole, 0, row_major(whole.type.shape), flow)
    assert launch is not None
    return launch


def begun(x: Atom, out: Var, flow: Dataflow) -> Launch | Copy | None:
    """Makes a value a copy of another one, seen through its views; None if a view must
    be made in memory first."""
    source, _ = flow.resolve(x)
    if isinstance(source, Lit) and not source.type.ndim:
        return filled(source, out, flow)
    return copy_launch(x, out, 0, row_major(out.type.shape), flow)


def scatter_launch(eq: Equation, flow: Dataflow) -> Launch | None:
    """Puts the updates of a scatter into its result, which holds the operand already;
    None if a view must be made in memory first.

    Places are visited in order: where they are equal, the last update stays, and sums
    and products are rounded as NumPy rounds them.
    """
    updates, *indices = eq.inputs[1:]
    out = eq.outputs[0]
    space, written = Space(flow.units), Var(updates.type)
    # An axis that is absent from an index is absent from the updates at its places.
    absent = flow.units.absent(updates).union(*map(flow.units.absent, indices))
    space.maps[written] = tuple(
        [
            ZERO if i in absent else space.dimension(n)
            for i, n in enumerate(updates.type.shape)
        ]
    )
    if not all(operand_fits(space, written, a, flow) for a in eq.inputs[1:]):
        return None
    how, where = eq.op.lowering, addressing(eq)
    assert isinstance(how, Scatter)
    rank, entries = where.rank, space.maps[written]
    body = NestWriter(space, flow)
    dtype = out.type.dtype
    steps = row_major(out.type.shape)
    places, valid = [], None
    for a, limit in zip(indices, where.limits, strict=True):
        index = body.value(a, entries[:rank])
        inside, ok = body.place(index, a.type.dtype, limit, where.drop)
        places.append(inside)
        if ok is not None:
            valid = ok if valid is None else body.both(valid, ok)
    offset, strides = address(window_map(where, entries), steps)
    gathers = tuple(steps[a] for a in where.axes)
    value = body.value(updates, entries)
    if valid is not None:
        if how.neutral is not None:
            other = body.instr(
                "const", (), dtype, dtype.type(how.neutral(dtype)).item()
            )
        else:
            k = body.access(
                Access(
                    out, dtype, offset, tuple(sorted(strides.items())), False, gathers
                )
            )
            other = body.instr("load", tuple(places), dtype, k)
        value = body.instr(scalar.SELECT, (valid, value, other), dtype)
    pairs = tuple(sorted(strides.items()))
    k = body.access(Access(out, dtype, offset, pairs, True, gathers))
    body.instr(
        "store" if how.combine == "set" else f"store_{how.combine}",
        (value, *places),
        dtype,
        k,
    )
    rows = [d for e in entries[:rank] for d, _ in e.terms]
    columns = [d for e in entries[rank:] for d, _ in e.terms]
    outer, inner = rows + columns[:-1], columns[-1:]
    # A place that is not inside is written, too: what was there before its vector.
    alike = how.combine != "set" and (valid is None or how.neutral is not None)
    if rows and not columns and alike:
        *others, last = coalesce(rows, body.accesses, space.sizes)
        # Where nothing changes along a row, its store happens once.
        if any([d in dict(a.strides) for a in body.accesses for d in last]):
            outer, inner = [d for group in others for d in group], last
    batch = {
        d
        for axis in where.window
        if axis is not None and axis < rank
        for d, _ in entries[axis].terms
    }
    # What goes into parts of the array that batches have to themselves has no order,
    # nor has a single window.
    ordered = how.ordered and rank > 0 and not (outer and batch.issuperset(outer))
    return finish(body, space.sizes, outer, [], inner, "inner", ordered)
