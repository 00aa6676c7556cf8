"""How clusters grow, and how views are made in memory where something needs them so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.fuse.cluster import (
    MAX_MEMBERS,
    Cluster,
    is_dear,
    join,
    members_fit,
    operand_key,
    operands_fit,
    start,
)
from treadle.fuse.grouping.matching import extend, matching
from treadle.fuse.grouping.nodes import Nodes
from treadle.fuse.layout import row_major, stored_strides
from treadle.fuse.lowering.copies import Piece
from treadle.fuse.maps import Space
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.trace.lowering import Gather, Lowering, Reduction, Reshape

MAX_COLUMN_REDUCTIONS = 4
"""More in one column nest, and its accumulators leave the registers."""


class Growth(Nodes):
    """Nodes, with the ways in which they are begun and extended.

    copies: the values in memory that are equal to views.
    """

    def __init__(
        self, graph: Graph, lowering: Callable[[Equation], Lowering], chosen: int = 4
    ) -> None:
        super().__init__(graph, lowering, chosen)
        self.copies: dict[Var, Var] = {}

    def begin(self, eq: Equation) -> None:
        """Makes a cluster of an equation."""
        cluster = self.cluster()
        while not start(cluster, eq, self.flow):
            eq = self._with_copied_view(eq)
            cluster = self.cluster()
        self.add(cluster, eq)
        self._absorb_operands(cluster, eq)

    def join_one(self, eq: Equation) -> bool:
        """Lets a cluster whose values an equation reads take it in, if one can."""
        candidates = self._candidates(eq)
        if not candidates:
            return False
        needs = self.needs(eq)
        for cluster in candidates:
            fits = self.order.can_depend(cluster, needs)
            if fits and join(cluster, eq, self.flow):
                self.own(cluster, eq, needs)
                self._absorb_operands(cluster, eq)
                return True
        return False

    def _candidates(self, eq: Equation) -> list[Cluster]:
        """The clusters that make what an equation reads, the last one first."""
        found: list[Cluster] = []
        flow, owner = self.flow, self.owner
        for a in eq.inputs:
            if type(a) is not Var:
                continue
            source: Any = flow.source(a)
            node = owner.get(source)
            if type(node) is Cluster and source not in flow.inline:
                found.append(node)
        if len(found) < 2:
            return found
        return sorted(dict.fromkeys(found), key=_number, reverse=True)

    def _absorb_operands(self, cluster: Cluster, eq: Equation) -> None:
        """Merges other clusters that made the equation's operands, point for point."""
        if isinstance(eq.op.lowering, (Reduction, Gather)):
            return
        shape, flow, owner = eq.outputs[0].type.shape, self.flow, self.owner
        for a in eq.inputs:
            if type(a) is not Var or a.type.shape != shape:
                continue
            source: Any = flow.source(a)
            other = owner.get(source)
            if (
                other is not cluster
                and isinstance(other, Cluster)
                and other.is_member(source)
                and source not in flow.inline
                and self.order.can_contract(cluster, other)
            ):
                self._merge(cluster, other, eq, source, flow.resolve(a)[1])

    def _merge(
        self, cluster: Cluster, other: Cluster, eq: Equation, source: Var, chain: tuple
    ) -> None:
        if cluster.form == "mid" or other.form == "mid":
            return
        if len(cluster.equations) + len(other.equations) > MAX_MEMBERS:
            return
        space = cluster.space.copy()
        out = eq.outputs[0]
        wanted = space.settled(lambda: space.seen(space.maps[out], source, chain))
        if wanted is None:
            return
        self._take_in(cluster, other, space, matching(wanted, other.space.maps[source]))

    def merge_twins(self) -> None:
        """Merges clusters that make the two parts of complex numbers, point for point:
        mostly they read the same. And those that make two things of the same operands,
        if that takes long: most of it may be what they share. And those that make
        pieces of one array that lie among each other."""
        twins = [(v, v.twin) for v in self.owner if hasattr(v, "twin")]
        for im, re in [*twins, *self._variants(), *self._among()]:
            a, b = self.owner.get(re), self.owner[im]
            if (
                isinstance(a, Cluster)
                and isinstance(b, Cluster)
                and a.is_member(re)
                and b.is_member(im)
                and "mid" not in (a.form, b.form)
                and not (self.order.depends(a, b) or self.order.depends(b, a))
                and len(a.equations) + len(b.equations) <= MAX_MEMBERS
            ):
                names = matching(a.space.maps[re], b.space.maps[im])
                self._take_in(a, b, a.space.copy(), names)

    def _among(self) -> list[tuple[Var, Var]]:
        """Pieces of arrays, each with the first one among whose elements it lies."""
        first: dict[Var, tuple[Var, Piece]] = {}
        found = []
        for v, (whole, offset, strides) in self.flow.parts.items():
            piece = Piece(v, offset, (*strides,))
            one, other = first.setdefault(whole, (v, piece))
            if piece.is_among(other):
                found.append((v, one))
            else:
                first[whole] = v, piece
        return found

    def _variants(self) -> list[tuple[Var, Var]]:
        """Results that differ from another's in parameters of their operation only."""
        first: dict[tuple, Var] = {}
        found = []
        for node in self.order.nodes:
            for eq in node.equations if isinstance(node, Cluster) else ():
                (out, *_) = eq.outputs
                if is_dear(eq) and out in self.owner:
                    sources = [self.flow.source(a) for a in eq.inputs]
                    read = [a.key() if isinstance(a, Lit) else a for a in sources]
                    one = first.setdefault((eq.op, out.type, *read), out)
                    if self.owner.get(one) not in (None, node):
                        found.append((out, one))
        return found

    def merge_columns(self) -> None:
        """Merges clusters that reduce the same axes of values of one shape, where one
        pass over memory can serve both: they read the same, or what was made of it."""
        known: dict[Any, Cluster] = {}
        clusters = [n for n in self.order.nodes if isinstance(n, Cluster)]
        for cluster in clusters:
            if cluster.form != "mid":
                continue
            first = _reductions(cluster)[0]
            sources = self._made_of(first)
            place = first.inputs[0].type.shape, first.params.get("axes")
            for v in sources:
                other = known.get((place, v))
                if other is not None and self._merge_column(other, cluster):
                    cluster = other
                    break
            known.update({(place, v): cluster for v in sources})

    def _merge_column(self, cluster: Cluster, other: Cluster) -> bool:
        mine, others = _reductions(cluster), _reductions(other)
        if len(mine) + len(others) > MAX_COLUMN_REDUCTIONS:
            return False
        if self.order.depends(cluster, other) or self.order.depends(other, cluster):
            return False
        names = matching(
            cluster.space.maps[operand_key(mine[0])],
            other.space.maps[operand_key(others[0])],
        )
        return self._take_in(cluster, other, cluster.space.copy(), names)

    def _made_of(self, eq: Equation) -> list[Var]:
        """What a reduction reads, and what the cluster reads that made that."""
        found = sorted(self.flow.sources(eq.inputs[0]), key=self._place)
        for v in list(found):
            node = self.owner.get(v)
            if isinstance(node, Cluster) and node.form != "mid":
                found += [
                    u
                    for maker in node.equations
                    for a in maker.inputs
                    if a.type.shape == eq.inputs[0].type.shape
                    for u in self.flow.sources(a)
                ]
        return found

    def _place(self, v: Var) -> int:
        eq = self.flow.maker.get(v)
        return -1 if eq is None else self.position.get(id(eq), -1)

    def _take_in(
        self,
        cluster: Cluster,
        other: Cluster,
        space: Space,
        names: dict[int, int] | None,
    ) -> bool:
        """Lets a cluster, with a space of its own, take in another one whose dimensions
        have other names, if it can."""
        if names is None or not extend(names, cluster, other):
            return False
        for v, entries in other.space.maps.items():
            space.maps[v] = tuple(
                type(a)(a.offset, tuple((names[d], c) for d, c in a.terms))
                for a in entries
            )
        reduced = cluster.reduced | {names[d] for d in other.reduced}
        space.frozen |= reduced
        if not members_fit(space, cluster, self.flow):
            return False
        if not self.contract(cluster, other):
            return False
        cluster.space, cluster.reduced = space, reduced
        cluster.form = other.form or cluster.form
        cluster.after |= other.after
        cluster.equations = sorted(
            cluster.equations + other.equations, key=lambda e: self.position[id(e)]
        )
        return True

    # Views in memory

    def is_contiguous(self, a: Atom) -> bool:
        """Whether a value's elements lie in memory in row-major order."""
        source, chain = self.flow.resolve(a)
        plain = all(isinstance(eq.op.lowering, Reshape) for eq in chain)
        return plain and (
            isinstance(source, Lit)
            or stored_strides(source, self.flow) == row_major(source.type.shape)
        )

    def contiguous(self, a: Atom) -> Atom:
        """A value equal to `a` that lies in memory in row-major order."""
        if self.is_contiguous(a):
            return a
        assert isinstance(a, Var)
        return self.copied(a)

    def plain(self, a: Atom) -> Atom:
        """A value equal to `a` that is no view, and lies in row-major order."""
        view = isinstance(a, Var) and self.flow.is_view(a)
        if not view and self.is_contiguous(a):
            return a
        assert isinstance(a, Var)
        return self.copied(a)

    def with_plain_operands(self, eq: Equation, first: int = 0) -> Equation:
        """An equation none of whose operands, from one on, is a view."""
        for a in eq.inputs[first:]:
            new = self.plain(a)
            if isinstance(a, Var) and isinstance(new, Var) and new is not a:
                eq = self.substitute(eq, a, new)
        return eq

    def copied(self, v: Var) -> Var:
        """A stored value, in row-major order, that is equal to another one."""
        if v not in self.copies:
            self.copies[v] = self._copied(v)
        return self.copies[v]

    def _copied(self, v: Var) -> Var:
        flow = self.flow
        if not flow.is_view(v):
            # It is stored in another order, as its readers see it.
            v = flow.ordered(v, tuple(range(v.type.ndim)))
        new, old = Var(v.type), flow.maker[v]
        eq = Equation(old.op, old.inputs, old.params, [new], old.source)
        flow.add(eq, copied=True)
        self.position[id(eq)] = self.position.get(id(old), -1)
        if isinstance(eq.op.lowering, Reshape):
            self._alias(new, eq)
            return new
        cluster = self.cluster()
        space = cluster.space
        space.maps[new] = space.index(new)
        if not operands_fit(space, eq, flow):
            inner: Var = eq.inputs[0]  # type: ignore[assignment]
            eq = self.substitute(eq, inner, self.copied(inner))
            operands_fit(space, eq, flow)
        cluster.equations.append(eq)
        self.add(cluster, eq)
        return new

    def _alias(self, v: Var, eq: Equation) -> None:
        """A reshape of a contiguous value is that value, whatever the shapes are."""
        flow, inner = self.flow, self.contiguous(eq.inputs[0])
        if isinstance(inner, Var) and inner is not eq.inputs[0]:
            self.substitute(eq, eq.inputs[0], inner)  # type: ignore[arg-type]
        memory = flow.memory(inner)
        if memory in flow.inline and memory not in flow.kept:
            self.keep(flow.maker[memory])  # type: ignore[index]
        if memory in self.owner:
            self.give(self.owner[memory], v)  # type: ignore[index]
        flow.aliases[v] = inner

    def keep(self, eq: Equation) -> None:
        """Makes an inline value in memory as well."""
        self.flow.kept.add(eq.outputs[0])
        self.begin(eq)

    def _with_copied_view(self, eq: Equation) -> Equation:
        """Some view among the operands has no index map: it is made in memory."""
        for a in eq.inputs:
            if isinstance(a, Var) and self.flow.is_view(a):
                return self.substitute(eq, a, self.copied(a))
        raise AssertionError(f"{eq.op.name} has an operand without an index map")


def _number(cluster: Cluster) -> int:
    return cluster.number


def _reductions(cluster: Cluster) -> list[Equation]:
    return [eq for eq in cluster.equations if isinstance(eq.op.lowering, Reduction)]
