"""Graph to nodes: which equations run together, and what must run before what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from treadle.fuse.cluster import (
    MAX_MEMBERS,
    Cluster,
    join,
    members_fit,
    operands_fit,
    start,
)
from treadle.fuse.layout import joined, row_major
from treadle.fuse.matching import extend, matching
from treadle.fuse.order import Node, Order
from treadle.fuse.products import product, product_with_epilogue
from treadle.fuse.program import Program
from treadle.fuse.roles import stored_members
from treadle.ir.graph import Equation, Graph, Var
from treadle.ir.walk import effectful
from treadle.ops.dot import free_axes
from treadle.trace.lowering import (
    FUSABLE,
    Contraction,
    Gather,
    Join,
    Lowering,
    Product,
    Reduction,
    Reshape,
    View,
)


class Partition(NamedTuple):
    """The nodes of a graph, in an order in which they can run.

    built: what has become of clusters and products already.
    """

    program: Program
    nodes: list[Node]
    owner: dict[Var, Node]
    built: dict[Node | Equation, Any]


class _Partitioner:
    def __init__(self, graph: Graph, lowering: Callable[[Equation], Lowering]) -> None:
        self.program = Program(graph, lowering)
        self.position = {id(eq): i for i, eq in enumerate(graph.equations)}
        self.order = Order()
        self.owner: dict[Var, Node] = {}
        self.built: dict[Node | Equation, Any] = {}
        self.count = 0
        self.copies: dict[Var, Var] = {}
        self.last_effect: Node | None = None

    def run(self) -> Partition:
        for eq in self.program.graph.equations:
            if isinstance(eq.op.lowering, View):
                continue
            if eq.outputs and eq.outputs[0] in self.program.inline:
                if self._wanted_in_memory(eq):
                    self.program.kept.add(eq.outputs[0])
                    self._start(eq)
            elif self._computes(eq):
                if not self._join_one(eq):
                    self._start(eq)
            elif self._is_product(eq):
                self._product(eq)
            else:
                # What the host writes is in row-major order.
                self.program.row_major.update(eq.outputs)
                self._alone(eq)
                self._place_parts(eq)
        self._copy_returned_views()
        self._attach_epilogues()
        nodes = self.order.topological()
        return Partition(self.program, nodes, self.owner, self.built)

    def _wanted_in_memory(self, eq: Equation) -> bool:
        """Whether an inline value is also returned, or read by other than kernels."""
        program, v = self.program, eq.outputs[0]
        return program.is_returned(v) or self._read_whole(v)

    def _read_whole(self, v: Var) -> bool:
        """Whether anything but a kernel reads a value or a view of it."""
        return any(
            self._read_whole(reader.outputs[0])
            if isinstance(reader.op.lowering, View)
            else not self._computes(reader)
            or (isinstance(reader.op.lowering, Gather) and reader.inputs[0] is v)
            for reader in self.program.readers[v]
        )

    def _computes(self, eq: Equation) -> bool:
        """Whether an equation is part of a kernel, which computes inline values."""
        return isinstance(self.program.lowering(eq), FUSABLE)

    def _is_product(self, eq: Equation) -> bool:
        return isinstance(self.program.lowering(eq), Product)

    # Nodes and their order

    def _add(self, node: Node, eq: Equation) -> None:
        self.order.add(node)
        self._own(node, eq)

    def _own(self, node: Node, eq: Equation) -> None:
        for v in eq.outputs:
            self._give(node, v)
        self._depend(node, self._needs(eq))

    def _depend(self, node: Node, others: list[Node]) -> None:
        done = self.order.depend(node, others)
        assert done, "a node runs before what it needs"

    def _give(self, node: Node, v: Var) -> None:
        self.owner[v] = node
        node.values.append(v)

    def _needs(self, eq: Equation) -> list[Node]:
        """The nodes that make what an equation reads."""
        program, nodes = self.program, []
        reads_whole = len(eq.inputs)
        if self._computes(eq):
            reads_whole = int(isinstance(eq.op.lowering, Gather))
        for i, a in enumerate(eq.inputs):
            source, _ = program.resolve(a)
            found: set[Any] = {source}
            kept = i < reads_whole and source in program.kept
            if source in program.inline and not kept:
                found = program.sources(source)
            nodes += [self.owner[v] for v in found if v in self.owner]
        return nodes

    def _contract(self, node: Node, other: Node) -> bool:
        """Makes one node of two, if the order lets them run together."""
        done = self.order.contract(node, other)
        if done:
            self.owner.update(dict.fromkeys(other.values, node))
        return done

    def _cluster(self) -> Cluster:
        self.count += 1
        return Cluster(self.count, self.program)

    def _alone(self, eq: Equation) -> None:
        self.count += 1
        node = Node(self.count)
        node.equations.append(eq)
        self._add(node, eq)
        if effectful(eq):
            # Effects happen in the order of the program.
            if self.last_effect is not None:
                self._depend(node, [self.last_effect])
            self.last_effect = node

    # Contractions

    def _product(self, eq: Equation) -> None:
        """A contraction; operands that its loops can't step over are copied."""
        if not self._loops_fit(eq):
            self.program.row_major.add(eq.outputs[0])
            if not self._loops_fit(eq):
                eq = self._with_copied_operands(eq)
        self._alone(eq)

    def _loops_fit(self, eq: Equation) -> bool:
        found = product(eq, self.program)
        self.built.pop(eq, None)
        if found is not None:
            self.built[eq] = found
        return found is not None

    def _with_copied_operands(self, eq: Equation) -> Equation:
        """The equation with views among its operands copied, as few as will do."""
        for a in eq.inputs:
            if isinstance(a, Var) and self.program.is_view(a):
                eq = self._substitute(eq, a, self.copy_view(a))
                if self._loops_fit(eq):
                    return eq
        return self._with_ordered_operands(eq) if _pairs_axes(eq) else eq

    def _with_ordered_operands(self, eq: Equation) -> Equation:
        """The contraction with its operands copied: batch, free, contracted axes."""
        program, inputs, contracts, batches = self.program, [], [], []
        for a, contract, batch in zip(
            eq.inputs, eq.params["contract"], eq.params["batch"], strict=True
        ):
            free = free_axes(a.type.ndim, contract, batch)
            ordered = program.ordered(a, (*batch, *free, *contract))
            inputs.append(self.copy_view(ordered))
            n = a.type.ndim
            contracts.append(tuple(range(n - len(contract), n)))
            batches.append(tuple(range(len(batch))))
        params = {"contract": tuple(contracts), "batch": tuple(batches)}
        new = Equation(eq.op, inputs, params, eq.outputs, eq.source)
        program.replace(eq, new)
        self.position[id(new)] = self.position[id(eq)]
        return new

    def _attach_epilogues(self) -> None:
        """Lets elementwise clusters work on a contraction's result while it is hot."""
        for node in self.order.nodes:
            if type(node) is Node and self._is_product(node.equations[0]):
                self._attach(node)

    def _attach(self, node: Node) -> None:
        eq = node.equations[0]
        c = eq.outputs[0]
        readers = {
            id(n): n
            for r in self.program.final_readers(c)
            if r.outputs and isinstance(n := self.owner[r.outputs[0]], Cluster)
        }
        for cluster in readers.values():
            if cluster.product or not self.order.can_contract(cluster, node):
                continue
            fused = product_with_epilogue(
                eq, self.program, cluster, stored_members(cluster, self)
            )
            if fused is not None and self._contract(cluster, node):
                cluster.product = fused
                cluster.equations.insert(0, eq)
                return

    # Values that are parts of others

    def _place_parts(self, eq: Equation) -> None:
        """Lets the pieces of a concatenation be made where they belong."""
        how = eq.op.lowering
        if not isinstance(how, Join):
            return
        whole = eq.outputs[0]
        steps = row_major(whole.type.shape)
        for a, (offset, strides) in joined(eq, how, steps):
            if isinstance(a, Var) and self._can_be_part(a, eq):
                self.program.parts[a] = (whole, offset, strides)
                maker = self.program.maker[a]
                if self._is_product(maker) and not self._loops_fit(maker):
                    del self.program.parts[a]

    def _can_be_part(self, a: Var, eq: Equation) -> bool:
        program = self.program
        node = self.owner.get(a)
        made = isinstance(node, Cluster) or (
            node is not None and self._is_product(node.equations[0])
        )
        return (
            made
            and a not in program.inline
            and not program.is_returned(a)
            and program.readers[a] == [eq]
            and not _finds_place(program.maker[a])
            and eq.inputs.count(a) == 1
        )

    # Growing clusters

    def _start(self, eq: Equation) -> None:
        cluster = self._cluster()
        while not start(cluster, eq, self.program):
            eq = self._with_copied_view(eq)
            cluster = self._cluster()
        self._add(cluster, eq)
        self._absorb_operands(cluster, eq)

    def _with_copied_view(self, eq: Equation) -> Equation:
        """Some view among the operands has no index map: it is made in memory."""
        for a in eq.inputs:
            if isinstance(a, Var) and self.program.is_view(a):
                return self._substitute(eq, a, self.copy_view(a))
        raise AssertionError(f"{eq.op.name} has an operand without an index map")

    def _substitute(self, eq: Equation, old: Var, new: Var) -> Equation:
        """An equation that reads `new` in place of `old`."""
        inputs = [new if a is old else a for a in eq.inputs]
        result = Equation(eq.op, inputs, eq.params, eq.outputs, eq.source)
        self.program.replace(eq, result)
        self.position[id(result)] = self.position[id(eq)]
        return result

    def copy_view(self, v: Var) -> Var:
        """A stored value equal to a view's result."""
        if v in self.copies:
            return self.copies[v]
        program, old = self.program, self.program.maker[v]
        new = self.copies[v] = Var(v.type)
        eq = Equation(old.op, old.inputs, old.params, [new], old.source)
        program.add(eq, copied=True)
        self.position[id(eq)] = self.position.get(id(old), -1)
        if isinstance(eq.op.lowering, Reshape):
            self._alias(new, eq)
            return new
        cluster = self._cluster()
        space = cluster.space
        space.maps[new] = space.index(new)
        if not operands_fit(space, eq, program):
            inner: Var = eq.inputs[0]  # type: ignore[assignment]
            eq = self._substitute(eq, inner, self.copy_view(inner))
            operands_fit(space, eq, program)
        cluster.equations.append(eq)
        self._add(cluster, eq)
        return new

    def _alias(self, v: Var, eq: Equation) -> None:
        """A reshape of a contiguous value is that value, whatever the shapes are."""
        inner = eq.inputs[0]
        if isinstance(inner, Var):
            if self.program.is_view(inner):
                new = self.copy_view(inner)
                self._substitute(eq, inner, new)
                inner = new
            elif inner in self.program.inline and inner not in self.program.kept:
                self.program.kept.add(inner)
                self._start(self.program.maker[inner])
            if inner in self.owner:
                self._give(self.owner[inner], v)
        self.program.aliases[v] = inner

    def _join_one(self, eq: Equation) -> bool:
        needs = self._needs(eq)
        for cluster in self._candidates(eq):
            fits = self.order.can_depend(cluster, needs)
            if fits and join(cluster, eq, self.program):
                self._own(cluster, eq)
                self._absorb_operands(cluster, eq)
                return True
        return False

    def _candidates(self, eq: Equation) -> list[Cluster]:
        found: dict[int, Cluster] = {}
        for a in eq.inputs:
            source, _ = self.program.resolve(a)
            node = self.owner.get(source) if isinstance(source, Var) else None
            if isinstance(node, Cluster) and source not in self.program.inline:
                found[node.number] = node
        return sorted(found.values(), key=lambda c: -c.number)

    def _absorb_operands(self, cluster: Cluster, eq: Equation) -> None:
        """Merges other clusters that made the equation's operands, point for point."""
        if isinstance(eq.op.lowering, Reduction | Gather):
            return
        for a in eq.inputs:
            if a.type.shape != eq.outputs[0].type.shape:
                continue
            source, chain = self.program.resolve(a)
            other = self.owner.get(source) if isinstance(source, Var) else None
            if (
                isinstance(source, Var)
                and isinstance(other, Cluster)
                and other is not cluster
                and other.is_member(source)
                and source not in self.program.inline
                and self.order.can_contract(cluster, other)
            ):
                self._merge(cluster, other, eq, source, chain)

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
        names = matching(wanted, other.space.maps[source])
        if names is None or not extend(names, cluster, other):
            return
        for v, entries in other.space.maps.items():
            space.maps[v] = tuple(
                type(a)(a.offset, tuple((names[d], c) for d, c in a.terms))
                for a in entries
            )
        reduced = cluster.reduced | {names[d] for d in other.reduced}
        space.frozen |= reduced
        if not members_fit(space, cluster, self.program):
            return
        if not self._contract(cluster, other):
            return
        cluster.space, cluster.reduced = space, reduced
        cluster.form = other.form or cluster.form
        cluster.equations = sorted(
            cluster.equations + other.equations, key=lambda e: self.position[id(e)]
        )

    def _copy_returned_views(self) -> None:
        """A result that is a view is made in memory, if its storage differs."""
        program = self.program
        for i, a in enumerate(program.results):
            if isinstance(a, Var) and program.is_view(a):
                source = program.memory(a)
                if source not in self.owner or source in program.inline:
                    new = program.results[i] = self.copy_view(a)
                    program.returned.add(new)


def _pairs_axes(eq: Equation) -> bool:
    """Whether a product is over axes, in whatever order they come."""
    return isinstance(eq.op.lowering, Contraction)


def _finds_place(eq: Equation) -> bool:
    how = eq.op.lowering
    return isinstance(how, Reduction) and how.finds_place


def partition(graph: Graph, lowering: Callable[[Equation], Lowering]) -> Partition:
    """Groups a graph's equations into nodes.

    Args:
      lowering: what the target makes of an equation.
    """
    return _Partitioner(graph, lowering).run()
