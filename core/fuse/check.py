"""The checker of Groups: is every value made once, and before it is read?

Programs of open sizes are looked at as they are for the sizes that they were traced
for: questions about other sizes would be guards of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from treadle.dims import hint
from treadle.errors import InternalError
from treadle.fuse.cluster import Cluster
from treadle.fuse.groups import Groups
from treadle.fuse.order import Node
from treadle.ir.graph import Atom, Lit, Var
from treadle.ir.maps import Affine

_MOST = 1 << 14
"""Elements up to which places in memory are looked at one by one."""


def check_groups(groups: Groups) -> None:
    """Verifies that each equation is in one node, or is a view or inline; that nodes
    stand after what they need; that parts lie side by side; and that tables are frozen.

    Raises:
      InternalError: at the first violation.
    """
    _Groups(groups).run()


class _Groups:
    def __init__(self, groups: Groups) -> None:
        self.groups, self.flow = groups, groups.flow
        self.inputs = set(groups.flow.graph.inputs)
        self.done: set[Var] = set()

    def run(self) -> None:
        self._tables()
        self._equations()
        for n, node in enumerate(self.groups.nodes):
            self._node(node, f"node {n}")
        for i, a in self.flow.results.items():
            memory = self.flow.memory(a)
            if memory is None or not self._stored(memory):
                raise InternalError(f"result {i} is in no memory")
        self._parts()
        for eq, inner in self.groups.inner.items():
            if not eq.graphs:
                raise InternalError(f"{eq.op.name} has groups, but runs no graph")
            for groups in inner:
                check_groups(groups)

    def _tables(self) -> None:
        for name, table in vars(self.flow).items():
            if isinstance(table, dict | set):
                raise InternalError(f"the table {name!r} of a Dataflow is not frozen")

    def _equations(self) -> None:
        """Each equation is in one node, but for views and what is inline."""
        flow, homes = self.flow, {}
        for node in self.groups.nodes:
            for eq in node.equations:
                if id(eq) in homes:
                    raise InternalError(f"{eq.op.name} is in two nodes")
                homes[id(eq)] = node
                for v in eq.outputs:
                    if flow.maker.get(v) is not eq or self.groups.owner.get(v) != node:
                        raise InternalError(f"another one makes what {eq.op.name} does")
        for v, eq in flow.maker.items():
            alone = v in flow.aliases or flow.is_view(v)
            alone = alone or (v in flow.inline and v not in flow.kept)
            if (id(eq) in homes) == alone:
                what = "a view or inline, and in a node" if alone else "in no node"
                raise InternalError(f"{eq.op.name} is {what}")

    def _node(self, node: Node, where: str) -> None:
        if isinstance(node, Cluster):
            _check_space(node, where)
        for eq in node.equations:
            for a in eq.inputs:
                if not self._ready(a, node):
                    raise InternalError(
                        f"{where} runs {eq.op.name} before what it reads"
                    )
            for v in eq.outputs:
                if v in self.done:
                    raise InternalError(f"{where} makes a value again")
                self.done.add(v)

    def _ready(self, a: Atom, node: Node) -> bool:
        """Whether a value can be read, or computed, where a node runs."""
        flow = self.flow
        source, _ = flow.resolve(a)
        if isinstance(source, Lit) or source in self.inputs:
            return True
        if source in flow.aliases:
            return self._ready(flow.aliases[source], node)
        again = source in flow.recomputed and self.groups.owner[source] is not node
        if source in self.done and not again:
            return True
        inline = source in flow.inline or again
        return inline and all(self._ready(x, node) for x in flow.maker[source].inputs)

    def _stored(self, a: Atom) -> bool:
        flow = self.flow
        if isinstance(a, Lit) or a in self.inputs:
            return True
        return a in self.done and a not in flow.recomputed and a not in flow.parts

    def _parts(self) -> None:
        taken: dict[Var, np.ndarray] = {}
        for v, (whole, offset, strides) in self.flow.parts.items():
            # Parts of complex numbers are real.
            size = hint(whole.type.nbytes // v.type.dtype.itemsize)
            loops = list(zip(v.type.shape, strides, strict=True))
            if not inside(offset, loops, size):
                raise InternalError(f"a part {v.type} leaves its whole {whole.type}")
            if v not in self.done or v in self.inputs:
                raise InternalError(f"no node makes a part {v.type}")
            if size <= _MOST:
                mask = taken.setdefault(whole, np.zeros(size, np.bool_))
                at = places(offset, loops)
                if mask[at].any() or np.unique(at).size != hint(v.type.size):
                    raise InternalError(f"parts of a whole {whole.type} overlap")
                mask[at] = True


def _check_space(cluster: Cluster, where: str) -> None:
    """Each member's index map stays inside of its value."""
    space = cluster.space
    if not cluster.reduced <= set(space.sizes):
        raise InternalError(f"{where} reduces a dimension that it has not")
    if cluster.reduced and cluster.form not in ("inner", "mid"):
        raise InternalError(f"{where} reduces, and has the form {cluster.form!r}")
    for eq in cluster.equations:
        for v in eq.outputs:
            if cluster.product is not None and v is cluster.product.c:
                continue
            entries = space.maps.get(v)
            if entries is None or len(entries) != v.type.ndim:
                raise InternalError(f"{where} has no index map of {eq.op.name}")
            for a, n in zip(entries, v.type.shape, strict=True):
                if not inside(a.offset, list(_loops(a, space.sizes)), n):
                    raise InternalError(f"{where} leaves the result of {eq.op.name}")


def _loops(a: Affine, sizes: dict[int, int]) -> Iterator[tuple[int, int]]:
    return ((sizes[d], c) for d, c in a.terms)


Loops = Sequence[tuple[int, int]]
"""Lengths and steps of loops."""


def inside(offset: int, loops: Loops, size: int) -> bool:
    """Whether all places that loops reach, from an offset on, are below a size."""
    (offset, loops), size = _known(offset, loops), hint(size)
    if not all(n for n, step in loops if step):
        return True
    far = [(n - 1) * step for n, step in loops]
    low = offset + sum(f for f in far if f < 0)
    return low >= 0 and offset + sum(f for f in far if f > 0) < size


def places(offset: int, loops: Loops) -> np.ndarray:
    """The places that loops reach, each as often as they do; along a loop that does
    not step, once, even if it is empty (what a reduction has found is stored then)."""
    offset, loops = _known(offset, loops)
    total = np.array([offset])
    for n, step in loops:
        total = np.add.outer(total, np.arange(n if step else 1) * step)
    return total.ravel()


def _known(offset: int, loops: Loops) -> tuple[int, Loops]:
    """As they are for the sizes that a program was traced for."""
    return hint(offset), [(hint(n), hint(step)) for n, step in loops]
