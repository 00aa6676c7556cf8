"""Which values are computed again by their readers instead of being stored.

Writing a value and reading it back moves eight bytes per float; computing it again from
something that the reader can load anyway costs a few instructions of arithmetic. So an
elementwise value is stored only if a reader needs it in memory, or if what it is made
from is not in memory itself (the result of a contraction in registers).
"""

from __future__ import annotations

from treadle.fuse.cluster import Cluster, members_fit
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.grouping.partition import Partition
from treadle.fuse.lowering.clusters import kernel_of
from treadle.fuse.roles import is_fused, is_stored
from treadle.ir.graph import Atom, Equation, Lit, Var
from treadle.kernels.lower import cost_of
from treadle.ops.movement import broadcast_in_dim
from treadle.trace.lowering import Elementwise, Index, written

_MAX_COST = 60
_MAX_COST_OF_ROWS = 10
"""Of a value that is one row of what reads it: that would be computed for every row."""
_TOGETHER = 256
"""Candidates that are tried at once: many, as nearly all are fine, but one that is not
has the others tried again."""


def choose(part: Partition) -> None:
    """Marks values in ``program.recomputed``; nobody stores them any more."""
    candidates = [
        (eq, node)
        for node in part.nodes
        if isinstance(node, Cluster)
        for eq in node.equations
        if isinstance(eq.op.lowering, Elementwise | Index)
    ]
    for start in range(0, len(candidates), _TOGETHER):
        _settle(candidates[start : start + _TOGETHER], part)


def _settle(candidates: list[tuple[Equation, Cluster]], part: Partition) -> None:
    """Marks those for which all clusters still build. That is nearly always so, and
    found out once for all together; else for the two halves."""
    marked: list[Var] = []
    changed: dict[Cluster, None] = {}
    for eq, node in candidates:
        readers = _consider(eq, node, part)
        if readers:
            marked.append(eq.outputs[0])
            changed |= dict.fromkeys((*readers, node))
    if all(_builds(cluster, part) for cluster in changed):
        return
    part.flow.recomputed.difference_update(marked)
    for cluster in changed:
        part.built.pop(cluster, None)
    if len(candidates) > 1:
        middle = len(candidates) // 2
        _settle(candidates[:middle], part)
        _settle(candidates[middle:], part)


def _consider(eq: Equation, node: Cluster, part: Partition) -> list[Cluster]:
    """Marks a value if it is worth it; gives the clusters that compute it then."""
    flow, v = part.flow, eq.outputs[0]
    if v in flow.inline or v in flow.parts or flow.is_returned(v):
        return []
    readers = _readers(v, node, part)
    if not readers:
        return []
    leaves: set[Var] = set()
    total = _walk(v, node, part, leaves, 0)
    if total > _MAX_COST or (total > _MAX_COST_OF_ROWS and _is_row(v, flow)):
        return []
    # Each reader loads the leaves in place of the value, which nobody stores. Axes are
    # counted, not bytes: the same program at another size must have the same kernels.
    loads = sum(u.type.ndim >= v.type.ndim for u in leaves)
    if loads * len(readers) > 1 + len(readers):
        return []
    flow.recomputed.add(v)
    return readers


def _is_row(v: Var, flow: Dataflow) -> bool:
    """Whether a reader sees a value repeated, in rows of the value's last axis."""
    for r in flow.final_readers(v):
        for a in r.inputs:
            source, views = flow.resolve(a)
            if source is v and any(map(_repeats_rows, views)):
                return True
    return False


def _repeats_rows(view: Equation) -> bool:
    if view.op is not broadcast_in_dim:
        return False
    dims, ndim = view.params["dims"], view.outputs[0].type.ndim
    return 0 < len(dims) < ndim and dims[-1] == ndim - 1


def _readers(v: Var, node: Cluster, part: Partition) -> list[Cluster]:
    """The other clusters that read a value; none if someone needs it in memory."""
    found: dict[int, Cluster] = {}
    for r in part.flow.final_readers(v):
        owner = part.owner.get(r.outputs[0]) if r.outputs else None
        if owner is node and r.outputs[0] not in part.flow.aliases:
            continue
        if not isinstance(owner, Cluster) or not is_fused(r, v, part.flow):
            return []
        found[owner.number] = owner
    return list(found.values())


def _walk(v: Var, node: Cluster, part: Partition, leaves: set[Var], spent: int) -> int:
    """Collects the stored values that a member is made from; gives the cost."""
    flow = part.flow
    eq = flow.maker[v]
    if isinstance(eq.op.lowering, Elementwise):
        spent += sum([cost_of(i.name, i.dtype) for i in written(eq)])
    for a in eq.inputs:
        if spent > _MAX_COST:
            break
        spent = _leaf(a, node, part, leaves, spent)
    return spent


def _leaf(a: Atom, node: Cluster, part: Partition, leaves: set[Var], spent: int) -> int:
    flow = part.flow
    source, _ = flow.resolve(a)
    if isinstance(source, Lit):
        return spent
    if source in flow.inline or source in flow.recomputed:
        return _walk(source, node, part, leaves, spent)
    if flow.maker.get(source) is None or part.owner.get(source) is not node:
        leaves.add(source)
        return spent
    maker = flow.maker[source]
    if node.product is not None and source is node.product.c:
        # The contraction's own result is in registers, not in memory.
        return _MAX_COST + 1
    if not isinstance(maker.op.lowering, Elementwise | Index) or is_stored(
        source, node, part
    ):
        leaves.add(source)
        return spent
    return _walk(source, node, part, leaves, spent)


def _builds(cluster: Cluster, part: Partition) -> bool:
    """Whether a cluster can make what it computes again at the points that it has. What
    it became is kept."""
    part.built.pop(cluster, None)
    space = cluster.space.copy()
    space.freeze()
    if not members_fit(space, cluster, part.flow):
        return False
    found = kernel_of(cluster, part)
    if found is None:
        return False
    part.built[cluster] = found
    return True
