"""Nests that move data: copies into part of an array, fills, and scatters."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.fuse.cluster import operand_fits
from treadle.fuse.layout import row_major
from treadle.fuse.maps import Affine, Space, address
from treadle.fuse.nests import Access, Body, Launch, finish, ranking
from treadle.fuse.program import Program
from treadle.ir.graph import Atom, Equation, Var


def copy_launch(
    a: Atom, target: Var, offset: int, strides: Sequence[int], program: Program
) -> Launch:
    """Copies a value, seen through its views, to strided elements of `target`.

    Raises:
      NoMap: if a view must be made in memory first.
    """
    space = Space(program.units)
    space.maps["out"] = space.index(a)
    operand_fits(space, "out", a, program)
    entries = space.maps["out"]
    body = Body(space, program)
    value = body.value(a, entries)
    start, steps = address(entries, strides)
    pairs = tuple(sorted(steps.items()))
    k = body.access(Access(target, a.type.dtype, offset + start, pairs, True))
    body.instr("store", (value,), a.type.dtype, k)
    dims = sorted(space.sizes, key=ranking(body.accesses, space.sizes))
    return finish(body, space.sizes, dims, [], None, "inner")


SCATTERS = {
    "dynamic_update_slice": "store",
    "scatter_set": "store",
    "scatter_add": "store_add",
    "scatter_mul": "store_mul",
    "scatter_min": "store_min",
    "scatter_max": "store_max",
}
"""Ops that write at data-dependent places, and how."""

_NEUTRAL = {"scatter_add": 0, "scatter_mul": 1}


def scatter_launch(eq: Equation, program: Program) -> Launch:
    """Puts the updates of a scatter into its result, which holds the operand already.

    Places are visited in order: where they are equal, the last update stays, and sums
    and products are rounded as NumPy rounds them.
    """
    x, updates, *indices = eq.inputs
    out = eq.outputs[0]
    space = Space(program.units)
    space.maps["out"] = space.index(updates)
    operand_fits(space, "out", updates, program)
    rank = indices[0].type.ndim if indices else eq.params.get("batch_dims", 0)
    for a in indices:
        space.maps["index"] = space.maps["out"][:rank]
        operand_fits(space, "index", a, program)
    entries = space.maps["out"]
    body = Body(space, program)
    if eq.op.name == "dynamic_update_slice":
        axes, batch, drop = tuple(range(x.type.ndim)), 0, False
        limits = [n - m for n, m in zip(x.type.shape, updates.type.shape, strict=True)]
        window = entries
    else:
        axes, sizes = eq.params["axes"], eq.params["sizes"]
        batch, drop = eq.params["batch_dims"], eq.params["mode"] == "drop"
        size_of = dict(zip(axes, sizes, strict=True))
        limits = [x.type.shape[a] - (size_of[a] or 1) for a in axes]
        rest = iter(entries[rank:])
        window = tuple(
            entries[a]
            if a < batch
            else Affine()
            if a in size_of and size_of[a] is None
            else next(rest)
            for a in range(x.type.ndim)
        )
    dtype = out.type.dtype
    steps = row_major(out.type.shape)
    places, valid = [], None
    for a, limit in zip(indices, limits, strict=True):
        index = body.value(a, entries[:rank])
        inside, ok = body.place(index, a.type.dtype, limit, drop)
        places.append(inside)
        if ok is not None:
            valid = ok if valid is None else body.both(valid, ok)
    offset, strides = address(window, steps)
    gathers = tuple(steps[a] for a in axes)
    value = body.value(updates, entries)
    if valid is not None:
        neutral = _NEUTRAL.get(eq.op.name)
        if neutral is not None:
            other = body.instr("const", (), dtype, dtype.type(neutral).item())
        else:
            k = body.access(
                Access(
                    out, dtype, offset, tuple(sorted(strides.items())), False, gathers
                )
            )
            other = body.instr("load", tuple(places), dtype, k)
        value = body.instr("select", (valid, value, other), dtype)
    pairs = tuple(sorted(strides.items()))
    k = body.access(Access(out, dtype, offset, pairs, True, gathers))
    body.instr(SCATTERS[eq.op.name], (value, *places), dtype, k)
    rows = [d for e in entries[:rank] for d, _ in e.terms]
    columns = [d for e in entries[rank:] for d, _ in e.terms]
    serial = eq.op.name != "dynamic_update_slice"
    inner = columns[-1:] if columns or serial else []
    outer = rows + columns[:-1] if columns else rows
    return finish(body, space.sizes, outer, [], inner, "inner", serial)
