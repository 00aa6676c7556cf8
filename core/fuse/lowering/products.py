"""Equations for the contraction kernel, alone or with a cluster in the epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from treadle.fuse.cluster import Cluster
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.layout import Strided, operand_strides
from treadle.fuse.lowering.contractions import contraction
from treadle.fuse.lowering.convolutions import convolution
from treadle.fuse.lowering.forms import Form, renamed
from treadle.fuse.lowering.launches import ProductKernel
from treadle.fuse.lowering.nests import NestWriter
from treadle.fuse.maps import Space
from treadle.ir.graph import Equation, Var
from treadle.ir.maps import Map
from treadle.kernels.lower import cost
from treadle.trace.lowering import Contraction, Gather, View


def _lower(
    eq: Equation,
    operands: Sequence[Strided],
    flow: Dataflow,
    sizes: dict[int, int],
    entries: Map,
    body: NestWriter | None,
) -> ProductKernel | None:
    lower = contraction if isinstance(eq.op.lowering, Contraction) else convolution
    accesses = [] if body is None else body.accesses
    return lower(eq, operands, flow, sizes, entries, accesses, body)


def product(eq: Equation, flow: Dataflow) -> ProductKernel | None:
    """A contraction or convolution on its own; None if operands must be copied
    first."""
    operands = operand_strides(eq, flow)
    if operands is None:
        return None

    def write() -> ProductKernel | None:
        space = Space(flow.units)
        entries = space.index(eq.outputs[0])
        return _lower(eq, operands, flow, space.sizes, entries, None)

    form = Form(flow)
    form.operands(eq, operands)
    form.words.append(eq.outputs[0] in flow.row_major)
    return _once(form, write)


def _once(
    form: Form, write: Callable[[], ProductKernel | None]
) -> ProductKernel | None:
    """The product that `write` gives, unless one of that form has been written."""
    known, key, new = form.flow.memo.kernels, tuple(form.words), form.values
    if key not in known:
        known[key] = write(), new
    found, old = known[key]
    if found is None or old is new:
        return found
    at = dict(zip(old, new, strict=True))
    (a, a_offset), (b, b_offset) = found.a, found.b
    fused = found.epilogue
    return replace(
        found,
        a=(at[a], a_offset),
        b=(at[b], b_offset),
        c=at[found.c],
        epilogue=None if fused is None else renamed(fused, old, new),
    )


def product_with_epilogue(
    eq: Equation, flow: Dataflow, cluster: Cluster, stored: set[Var]
) -> ProductKernel | None:
    """A product whose result an elementwise cluster works on while it is hot; None if
    the cluster does not fit the loops of the product."""
    if cluster.form is not None or _reads_places(cluster):
        # Reductions and reads at computed places need more than a block.
        return None
    c, sizes = eq.outputs[0], cluster.space.sizes
    entries = _read_map(cluster, c, flow)
    if entries is None or not _is_whole(entries, sizes, c):
        return None
    operands = operand_strides(eq, flow)
    if operands is None:
        return None
    members = [e for e in cluster.equations if e is not eq]
    form = Form(flow)
    form.cluster(cluster, members, stored)
    form.operands(eq, operands)
    form.words.append(c in flow.row_major)
    # The same memory seen in another shape is complete only after all blocks.
    form.words += [a is not c and flow.memory(a) is c for a in form.values]
    return _once(
        form, lambda: _fused(eq, operands, flow, cluster, members, stored, entries)
    )


def _fused(
    eq: Equation,
    operands: Sequence[Strided],
    flow: Dataflow,
    cluster: Cluster,
    members: Sequence[Equation],
    stored: set[Var],
    entries: Map,
) -> ProductKernel | None:
    c, sizes = eq.outputs[0], cluster.space.sizes
    body = NestWriter(cluster.space, flow)
    for member in members:
        body.equation(member)
    for member in members:
        for v in member.outputs:
            if v in stored:
                body.store(v, cluster.space.maps[v], body.known[v])
    atoms = [a.atom for a in body.accesses if a.atom is not None]
    if any(a is not c and flow.memory(a) is c for a in atoms):
        return None
    if not _is_light(body):
        return None
    return _lower(eq, operands, flow, sizes, entries, body)


def _is_whole(entries: Map, sizes: dict[int, int], c: Var) -> bool:
    """Whether the points of a space that reads a value are those of the value. If they
    are a slice of them, the rest would not be computed."""
    covered = {d for a in entries for d, _ in a.terms}
    needed = {d for d, n in sizes.items() if n != 1}
    return (
        needed <= covered
        and not any(a.offset for a in entries)
        and math.prod(sizes.values()) == c.type.size
    )


_MAX_STREAMS = 4
_MAX_COST = 20


def _is_light(body: NestWriter) -> bool:
    """Whether a body is worth running block by block inside of a product.

    A bias, an activation's sign or a residual costs nothing there. GELU or an
    optimizer's update have enough work of their own to run faster as a nest, which
    sweeps long rows (benchmarks/README.md has the numbers).
    """
    streams = sum(a.atom is not None and len(a.strides) > 1 for a in body.accesses)
    return streams <= _MAX_STREAMS and sum(map(cost, body.instrs)) <= _MAX_COST


def _read_map(cluster: Cluster, c: Var, flow: Dataflow) -> Map | None:
    """The one index map at which a cluster reads a value, if it is one."""
    found: set[Map] = set()
    for eq in cluster.equations:
        for a in eq.inputs:
            source, chain = flow.resolve(a)
            if source is not c:
                continue
            copied = [eq] if isinstance(eq.op.lowering, View) else []
            entries = cluster.space.maps[eq.outputs[0]] if a.type.shape else ()
            seen = cluster.space.seen(entries, source, [*copied, *chain])
            assert isinstance(seen, tuple), "a member's operand does not fit"
            found.add(seen)
    return found.pop() if len(found) == 1 else None


def _reads_places(cluster: Cluster) -> bool:
    """Whether some member reads at computed places."""
    return any(isinstance(e.op.lowering, Gather) for e in cluster.equations)
