"""Nests that move data: copies into part of an array, fills, and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treadle.arraytype import ArrayType
from treadle.dims import is_dim
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


class Piece(NamedTuple):
    """A value, and where in an array it belongs: elements before it, and strides."""

    value: Atom
    offset: int
    strides: tuple[int, ...]

    def is_among(self, other: Piece) -> bool:
        """Whether its elements lie between those of another piece of the same shape, so
        that whoever writes both passes over memory once."""
        return 0 < self._between(other) < self._step()

    def pairs_with(self, other: Piece) -> bool:
        """Whether its elements and those of another piece take turns: vectors of both
        are written together."""
        return self._between(other) == 1 and self._step() == 2

    def _step(self) -> int:
        """From an element to the next; 0 if that depends on open sizes."""
        shape = self.value.type.shape
        steps = [s for n, s in zip(shape, self.strides, strict=True) if n != 1]
        return 0 if not steps or is_dim(steps[-1]) else steps[-1]

    def _between(self, other: Piece) -> int:
        """How far it begins behind another piece of its shape; 0 if that is unknown."""
        between = self.offset - other.offset
        alike = self.value.type == other.value.type and self.strides == other.strides
        return between if alike and not is_dim(between) else 0


def copy_launch(pieces: Sequence[Piece], target: Var, flow: Dataflow) -> Launch | None:
    """Copies values of one shape, seen through their views, to strided elements of
    `target`; None if a view must be made in memory first."""
    space, written = Space(flow.units), Var(pieces[0].value.type)
    space.maps[written] = space.index(pieces[0].value)
    if not all(operand_fits(space, written, p.value, flow) for p in pieces):
        return None
    entries = space.maps[written]
    body = NestWriter(space, flow)
    values = [body.value(p.value, entries) for p in pieces]
    for value, (a, offset, strides) in zip(values, pieces, strict=True):
        start, steps = address(entries, strides)
        along = tuple(sorted(steps.items()))
        k = body.access(Access(target, a.type.dtype, offset + start, along, True))
        body.instr("store", (value,), a.type.dtype, k)
    dims = sorted(space.sizes, key=ranking(body.accesses, space.sizes))
    return finish(body, space.sizes, dims, [], None, "inner")


def filled(value: Atom, whole: Var, flow: Dataflow) -> Launch | Copy:
    """Writes one number everywhere."""
    if is_zero(value):
        return Copy(None, whole)
    spread = spread_out(value, whole.type, flow)
    launch = copy_launch([Piece(spread, 0, row_major(whole.type.shape))], whole, flow)
    assert launch is not None
    return launch


def spread_out(value: Atom, wanted: ArrayType, flow: Dataflow) -> Var:
    """A view that is one number everywhere."""
    spread = Var(wanted)
    params = {"shape": wanted.shape, "dims": ()}
    flow.add(Equation(broadcast_in_dim, [value], params, [spread]))
    return spread


def begun(x: Atom, out: Var, flow: Dataflow) -> Launch | Copy | None:
    """Makes a value a copy of another one, seen through its views; None if a view must
    be made in memory first."""
    source, _ = flow.resolve(x)
    if isinstance(source, Lit) and not source.type.ndim:
        return filled(source, out, flow)
    return copy_launch([Piece(x, 0, row_major(out.type.shape))], out, flow)


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
