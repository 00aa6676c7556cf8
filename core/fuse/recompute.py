"""Which values are computed again by their readers instead of being stored.

Writing a value and reading it back moves eight bytes per float; computing it again from
something that the reader can load anyway costs a few instructions of arithmetic. So an
elementwise value is stored only if a reader needs it in memory, or if what it is made
from is not in memory itself (the result of a contraction in registers).
"""

from __future__ import annotations

from treadle.fuse.cluster import Cluster, members_fit
from treadle.fuse.partition import Partition
from treadle.fuse.products import product_with_epilogue
from treadle.fuse.roles import is_fused, is_stored, stored_members
from treadle.ir.graph import Atom, Equation, Lit, Var
from treadle.kernels.lower import cost
from treadle.kernels.nest import Instr
from treadle.trace.lowering import Elementwise, Index, written

_MAX_COST = 60


def choose(part: Partition) -> None:
    """Marks values in ``program.recomputed``; nobody stores them any more."""
    for node in part.nodes:
        if isinstance(node, Cluster):
            for eq in list(node.equations):
                if isinstance(eq.op.lowering, Elementwise | Index):
                    _consider(eq, node, part)


def _consider(eq: Equation, node: Cluster, part: Partition) -> None:
    program, v = part.program, eq.outputs[0]
    if v in program.inline or v in program.parts or program.is_returned(v):
        return
    readers = _readers(v, node, part)
    if not readers:
        return
    leaves: set[Var] = set()
    total = _walk(v, node, part, leaves, 0)
    if total > _MAX_COST:
        return
    # Each reader loads the leaves in place of the value, which nobody stores. Axes are
    # counted, not bytes: the same program at another size must have the same kernels.
    loads = sum(u.type.ndim >= v.type.ndim for u in leaves)
    if loads * len(readers) > 1 + len(readers):
        return
    program.recomputed.add(v)
    if not all(_still_fits(c, part) for c in (*readers, node)):
        program.recomputed.discard(v)


def _readers(v: Var, node: Cluster, part: Partition) -> list[Cluster]:
    """The other clusters that read a value; none if someone needs it in memory."""
    found: dict[int, Cluster] = {}
    for r in part.program.final_readers(v):
        owner = part.owner.get(r.outputs[0]) if r.outputs else None
        if owner is node and r.outputs[0] not in part.program.aliases:
            continue
        if not isinstance(owner, Cluster) or not is_fused(r, v, part.program):
            return []
        found[owner.number] = owner
    return list(found.values())


def _walk(v: Var, node: Cluster, part: Partition, leaves: set[Var], spent: int) -> int:
    """Collects the stored values that a member is made from; gives the cost."""
    program = part.program
    eq = program.maker[v]
    if isinstance(eq.op.lowering, Elementwise):
        spent += sum(cost(Instr(i.name, (), i.dtype)) for i in written(eq))
    for a in eq.inputs:
        if spent > _MAX_COST:
            break
        spent = _leaf(a, node, part, leaves, spent)
    return spent


def _leaf(a: Atom, node: Cluster, part: Partition, leaves: set[Var], spent: int) -> int:
    program = part.program
    source, _ = program.resolve(a)
    if isinstance(source, Lit):
        return spent
    if source in program.inline or source in program.recomputed:
        return _walk(source, node, part, leaves, spent)
    if program.maker.get(source) is None or part.owner.get(source) is not node:
        leaves.add(source)
        return spent
    maker = program.maker[source]
    if node.product is not None and source is node.product.c:
        # The contraction's own result is in registers, not in memory.
        return _MAX_COST + 1
    if not isinstance(maker.op.lowering, Elementwise | Index) or is_stored(
        source, node, part
    ):
        leaves.add(source)
        return spent
    return _walk(source, node, part, leaves, spent)


def _still_fits(node: Cluster, part: Partition) -> bool:
    """Whether a cluster can make what it computes again at the points that it has."""
    program, space = part.program, node.space.copy()
    space.freeze()
    if not members_fit(space, node, program):
        return False
    if node.product is None:
        return True
    maker, stored = program.maker[node.product.c], stored_members(node, part)
    return product_with_epilogue(maker, program, node, stored) is not None
