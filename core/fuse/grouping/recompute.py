"""Which values are computed again by their readers instead of being stored.

Writing a value and reading it back moves eight bytes per float; computing it again from
something that the reader can load anyway costs a few instructions of arithmetic. So an
elementwise value is stored only if a reader needs it in memory, or if what it is made
from is not in memory itself (the result of a contraction in registers).
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.fuse.cluster import Cluster, element_cost, members_fit
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.grouping.partition import Partition
from treadle.fuse.lowering.clusters import kernel_of
from treadle.fuse.lowering.forms import Form
from treadle.fuse.lowering.launches import Launch, ProductKernel
from treadle.fuse.lowering.nests import build, form_of
from treadle.fuse.roles import is_fused, is_stored, stored_members
from treadle.ir.graph import Atom, Equation, Lit, Var
from treadle.ops.movement import broadcast_in_dim
from treadle.trace.lowering import Elementwise, Index

_MAX_COST = 60
_MAX_COST_OF_ROWS = 3
"""Of a value that is one row of what reads it, or the same for a row of what goes down
columns: that would be computed for every row, or for every block of columns."""
_MAX_COST_OF_ALL = 24
"""Of a dear value, in all clusters that compute it again: storing it costs about that
much where memory is slow, and less than half where a cache has it."""
_DEAR = 10
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
    refused: set[tuple] = set()
    for start in range(0, len(candidates), _TOGETHER):
        _settle(candidates[start : start + _TOGETHER], part, refused)
    known: dict[Cluster, set[Var]] = {}
    for eq, node in candidates:
        if _reconsider(eq, node, part, known):
            known.clear()


def _reconsider(
    eq: Equation, node: Cluster, part: Partition, known: dict[Cluster, set[Var]]
) -> bool:
    """Has a value stored after all, if its readers load less then, or if it is dear and
    several compute it; gives whether that is so. Who reads it is known only when all is
    marked: those, too, that compute more from it.

    known: what clusters load as it is now.
    """
    flow, v = part.flow, eq.outputs[0]
    if v not in flow.recomputed:
        return False
    if element_cost(eq) >= _DEAR:
        again = _computing(v, node, part)
        cost = _Walk(v, node, part, columns=False).cost(v)
        if len(again) > 1 and cost * len(again) > _MAX_COST_OF_ALL:
            return _stored(v, [*again, node], part)
    readers = _readers(v, node, part)
    if len(readers) < 2:
        return False
    walk = _Walk(v, node, part, any([r.form == "mid" for r in readers]))
    axes = walk.axes(v)
    walk.cost(v)
    if len([u for u in walk.leaves if walk.axes(u) >= axes]) < 2:
        return False
    now = after = 0
    for r in readers:
        if r not in known:
            known[r] = _reads(r, None, flow)
        now += len([u for u in known[r] if walk.axes(u) >= axes])
        after += len([u for u in _reads(r, v, flow) if walk.axes(u) >= axes])
    if after + 1 >= now:
        return False
    return _stored(v, [*readers, node], part)


def _stored(v: Var, changed: list[Cluster], part: Partition) -> bool:
    """Has a value stored if clusters can still be built then; gives whether it is."""
    part.flow.recomputed.remove(v)
    if not all([builds(cluster, part) for cluster in changed]):
        part.flow.recomputed.add(v)
        for cluster in changed:
            part.built.pop(cluster, None)
        return False
    return True


def _computing(v: Var, node: Cluster, part: Partition) -> list[Cluster]:
    """The other clusters that compute a value again, be it on the way to others."""
    found: dict[Cluster, None] = {}
    todo, seen = [v], {v}
    while todo:
        u = todo.pop()
        found |= dict.fromkeys(_readers(u, node, part))
        made = [a for r in part.flow.final_readers(u) for a in r.outputs]
        more = [a for a in made if a in part.flow.recomputed and a not in seen]
        todo += more
        seen.update(more)
    return list(found)


def _reads(cluster: Cluster, stored: Var | None, flow: Dataflow) -> set[Var]:
    """What a cluster loads, if one value is stored."""
    made = {v for eq in cluster.equations for v in eq.outputs}
    found: set[Var] = set()
    todo = [a for eq in cluster.equations for a in eq.inputs]
    seen: set[Atom] = set(made)
    while todo:
        v, _ = flow.resolve(todo.pop())
        if v in seen or type(v) is Lit:
            continue
        seen.add(v)
        if v is not stored and (v in flow.inline or v in flow.recomputed):
            todo += flow.maker[v].inputs  # type: ignore[index]
        else:
            found.add(v)  # type: ignore[arg-type]
    return found


def _settle(
    candidates: list[tuple[Equation, Cluster]], part: Partition, refused: set[tuple]
) -> None:
    """Marks those for which all clusters still build. That is nearly always so, and
    found out once for all together; else for the two halves.

    refused: what those were like that could not be marked. Equal layers have such in
      the same place: they are tried alone.
    """
    if refused and len(candidates) > 1:
        for i, (eq, node) in enumerate(candidates):
            if _likeness(eq, node, part.flow) in refused:
                for some in candidates[:i], [candidates[i]], candidates[i + 1 :]:
                    _settle(some, part, refused)
                return
    marked: list[Var] = []
    changed: dict[Cluster, None] = {}
    for eq, node in candidates:
        found = _consider(eq, node, part)
        if found.readers:
            marked += found.values
            changed |= dict.fromkeys((*found.readers, node))
    if all(builds(cluster, part) for cluster in changed):
        return
    part.flow.recomputed.difference_update(marked)
    for cluster in changed:
        part.built.pop(cluster, None)
    if len(candidates) > 1:
        middle = len(candidates) // 2
        _settle(candidates[:middle], part, refused)
        _settle(candidates[middle:], part, refused)
    else:
        refused.add(_likeness(*candidates[0], part.flow))


def _likeness(eq: Equation, node: Cluster, flow: Dataflow) -> tuple:
    """What equal layers agree in, around an equation."""
    makers = [flow.maker.get(a) for a in eq.inputs]  # type: ignore[arg-type]
    before = tuple([m and m.op for m in makers])
    after = tuple([r.op for r in flow.readers[eq.outputs[0]]])
    return eq.op, eq.outputs[0].type.ndim, before, after, node.form, len(node.equations)


class _Found(NamedTuple):
    """Values newly marked, and the clusters that compute them then."""

    values: list[Var]
    readers: list[Cluster]


_NOTHING = _Found([], [])


def _consider(eq: Equation, node: Cluster, part: Partition) -> _Found:
    """Marks a value if it is worth it, with what it is made from in its cluster."""
    flow, v = part.flow, eq.outputs[0]
    if v in flow.recomputed or v in flow.inline or v in flow.parts:
        return _NOTHING
    if flow.is_returned(v):
        return _NOTHING
    readers = _readers(v, node, part)
    if not readers:
        return _NOTHING
    columns = [r for r in readers if r.form == "mid"]
    walk = _Walk(v, node, part, bool(columns))
    total = walk.cost(v)
    again = any([walk.axes(v) < len(r.space.sizes) for r in columns])
    again = again or _is_row(v, flow)
    if total > (_MAX_COST_OF_ROWS if again else _MAX_COST):
        return _NOTHING
    # Each reader loads the leaves in place of the value, which nobody stores. Axes are
    # counted, not bytes: the same program at another size must have the same kernels.
    axes, most = walk.axes(v), 1 + len(readers)
    leaves = {u for u in walk.leaves if walk.axes(u) >= axes}
    # A leaf that nobody else needs in memory would be stored in place of the value.
    if any(part.owner.get(u) is node and not is_stored(u, node, part) for u in leaves):
        return _NOTHING
    if len(leaves) * len(readers) > most:
        loads = sum([len(leaves - _loaded(r, v, part)) for r in readers])
        if loads > most:
            return _NOTHING
    # What an earlier candidate has marked stays marked if this one is taken back: its
    # readers are built without it.
    values = [u for u in walk.values if u not in flow.recomputed]
    flow.recomputed.update(values)
    return _Found(values, readers)


def _loaded(cluster: Cluster, v: Var, part: Partition) -> set[Var]:
    """What a cluster reads in any case, besides a value."""
    return {
        u
        for eq in cluster.equations
        for a in eq.inputs
        if part.flow.source(a) is not v
        for u in part.flow.sources(a)
    }


def _is_row(v: Var, flow: Dataflow) -> bool:
    """Whether a reader sees a value repeated, in rows of the value's last axis."""
    for r in flow.final_readers(v):
        for a in r.inputs:
            source, views = flow.resolve(a)
            if source is v and any(_repeats_rows(view, flow) for view in views):
                return True
    return False


def _repeats_rows(view: Equation, flow: Dataflow) -> bool:
    """Whether a broadcast has rows of its operand more than once: along new axes, or
    along such as `keepdims` has left."""
    if view.op is not broadcast_in_dim:
        return False
    (x,), (out,) = view.inputs, view.outputs
    axes = [view.params["dims"][i] for i in flow.units.present(x)]
    present = flow.units.present(out)
    return 0 < len(axes) < len(present) and axes[-1] == present[-1]


def _readers(v: Var, node: Cluster, part: Partition) -> list[Cluster]:
    """The other clusters that read a value; none if someone needs it in memory."""
    found: dict[int, Cluster] = {}
    flow, owners = part.flow, part.owner
    for r in flow.final_readers(v):
        owner = owners.get(r.outputs[0]) if r.outputs else None
        if owner is node and r.outputs[0] not in flow.aliases:
            continue
        if type(owner) is not Cluster or not is_fused(r, v, flow):
            return []
        found[owner.number] = owner
    return list(found.values())


class _Walk:
    """What a member of a cluster is made from.

    values: those of the cluster, which are computed again with it. leaves: stored ones.
    columns: whether some reader goes down columns, again for each block of them.
    """

    def __init__(self, v: Var, node: Cluster, part: Partition, columns: bool) -> None:
        self.v, self.node, self.part, self.columns = v, node, part, columns
        self.flow = part.flow
        self.values: dict[Var, None] = {}
        self.leaves: set[Var] = set()

    def axes(self, v: Var) -> int:
        """How many axes a value varies along."""
        return len(v.type.shape) - len(self.flow.units.absent(v))

    def cost(self, v: Var, spent: int = 0) -> int:
        """Collects what a member is made from; gives the cost, after what is spent."""
        # What readers compute anyway has its place here only where it is stored, too.
        if self.part.owner.get(v) is self.node and v not in self.flow.inline:
            self.values[v] = None
        eq = self.flow.maker[v]
        if isinstance(eq.op.lowering, Elementwise):
            spent += element_cost(eq)
        for a in eq.inputs:
            if spent > _MAX_COST:
                break
            spent = self._operand(a, spent)
        return spent

    def _operand(self, a: Atom, spent: int) -> int:
        flow, node = self.flow, self.node
        source, _ = flow.resolve(a)
        if isinstance(source, Lit):
            return spent
        if source in flow.inline or source in flow.recomputed:
            return self.cost(source, spent)
        if flow.maker.get(source) is None or self.part.owner.get(source) is not node:
            self.leaves.add(source)
            return spent
        if node.product is not None and source is node.product.c:
            # The contraction's own result is in registers, not in memory.
            return _MAX_COST + 1
        if self._stays(source):
            self.leaves.add(source)
            return spent
        return self.cost(source, spent)

    def _stays(self, v: Var) -> bool:
        """Whether a member is stored rather than computed again."""
        if not isinstance(self.flow.maker[v].op.lowering, Elementwise | Index):
            return True
        if is_stored(v, self.node, self.part):
            return True
        if self.axes(v) >= self.axes(self.v):
            return False
        if not (self.columns or _is_row(v, self.flow)):
            return False
        alone = _Walk(self.v, self.node, self.part, columns=False)
        return alone.cost(v) > _MAX_COST_OF_ROWS


def builds(cluster: Cluster, part: Partition) -> bool:
    """Whether a cluster can make what it computes again at the points that it has. What
    it became is kept: a product's kernel, or the form of a nest."""
    part.built.pop(cluster, None)
    found = _found(cluster, part) if cluster.product else _form(cluster, part)
    if found is None:
        return False
    part.built[cluster] = found
    return True


def write(part: Partition) -> None:
    """Writes the nests whose forms were kept: what clusters are is settled."""
    for node, found in part.built.items():
        if isinstance(found, Form) and isinstance(node, Cluster):
            part.built[node] = build(node, part.flow, found.stored, found)


def _found(cluster: Cluster, part: Partition) -> Launch | ProductKernel | None:
    return kernel_of(cluster, part) if _fits(cluster, part.flow) else None


def _form(cluster: Cluster, part: Partition) -> Form | None:
    flow, stored, maps = part.flow, stored_members(cluster, part), cluster.space.maps
    form, known = form_of(cluster, flow, stored), flow.memo.fits
    # Members' memory can't be read before all points are done; see `members_fit`.
    places = [(flow.memory(a) in maps, a in flow.kept) for a in form.values]
    key = (*form.words, *places)
    if key not in known:
        known[key] = _fits(cluster, flow)
    return form if known[key] else None


def _fits(cluster: Cluster, flow: Dataflow) -> bool:
    """Whether all members can read what they read, with no further split."""
    space = cluster.space.copy()
    space.freeze()
    return members_fit(space, cluster, flow)
