"""Nests of running reductions and of the linear recurrence."""

from __future__ import annotations

from treadle.dims import is_one, one
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.layout import operand_strides, stored_strides
from treadle.fuse.lowering.launches import Launch
from treadle.fuse.lowering.nests import Access, NestWriter, coalesce, finish
from treadle.fuse.lowering.vectors import innermost
from treadle.fuse.maps import Space
from treadle.ir.graph import Equation
from treadle.ir.maps import Affine, address
from treadle.trace.lowering import Running


def running_launch(eq: Equation, flow: Dataflow) -> Launch | None:
    """Runs along the rows of a row nest, or down the columns of a column nest; None if
    an operand must be copied first."""
    operands = operand_strides(eq, flow)
    if operands is None:
        return None
    (out,), axis, how = eq.outputs, eq.params["axis"], eq.op.lowering
    assert isinstance(how, Running)
    space = Space(flow.units)
    entries = list(space.index(out))
    along = [d for d, _ in entries[axis].terms]
    if eq.params["reverse"]:
        last = out.type.shape[axis] - 1
        entries[axis] = Affine(last, tuple((d, -1) for d in along))
    place = tuple(entries)
    body = NestWriter(space, flow)
    values = []
    for source, offset, steps in operands:
        extra, strides = address(place, steps)
        values.append(body.load(source, offset + extra, strides))
    value = values[-1]
    if along:
        value = body.instr(f"running_{how.combine}", tuple(values), out.type.dtype)
    offset, strides = address(place, stored_strides(out, flow))
    pairs = tuple(sorted(strides.items()))
    k = body.access(Access(out, out.type.dtype, offset, pairs, True))
    body.instr("store", (value,), out.type.dtype, k)
    sizes = space.sizes
    others = [d for d in sizes if d not in along]
    if not along:
        return finish(body, sizes, others, [], None, "inner")
    single = one if how.combine in ("max", "min") else is_one
    if all(d < along[0] or single(sizes[d]) for d in others):
        return finish(body, sizes, others, [], along, "inner")
    columns = innermost(coalesce(others, body.accesses, sizes), sizes)
    rows = [d for d in others if d not in columns]
    return finish(body, sizes, rows, [along], columns, "mid")
