"""Equations becoming nodes: what each holds, what it owns, what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.fuse.cluster import Cluster
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.order import Node, Precedence
from treadle.ir.graph import Atom, Equation, Graph, Var
from treadle.ir.walk import effectful
from treadle.trace.lowering import FUSABLE, Gather, Lowering, Product, Scatter, View


class Nodes:
    """The nodes of a graph under construction.

    built: the kernels of clusters and equations that have been written already, to see
      whether there are any.
    """

    def __init__(
        self, graph: Graph, lowering: Callable[[Equation], Lowering], chosen: int = 4
    ) -> None:
        self.flow = Dataflow(graph, lowering, chosen)
        self.position = {id(eq): i for i, eq in enumerate(graph.equations)}
        self.order = Precedence()
        self.owner: dict[Var, Node] = {}
        self.built: dict[Node | Equation, Any] = {}
        self.count = 0
        self._last_effect: Node | None = None

    def computes(self, eq: Equation) -> bool:
        """Whether an equation is part of a kernel, which computes inline values."""
        return isinstance(self.flow.lowering(eq), FUSABLE)

    def is_product(self, eq: Equation) -> bool:
        return isinstance(self.flow.lowering(eq), Product)

    def wanted_in_memory(self, eq: Equation) -> bool:
        """Whether an inline value is also returned, or read by other than kernels."""
        flow, v = self.flow, eq.outputs[0]
        return flow.is_returned(v) or self._read_whole(v)

    def _read_whole(self, v: Var) -> bool:
        """Whether anything but a kernel reads a value or a view of it."""
        return any(
            self._read_whole(reader.outputs[0])
            if isinstance(reader.op.lowering, View)
            else not (self.computes(reader) or _writes(reader, v))
            or (isinstance(reader.op.lowering, Gather) and reader.inputs[0] is v)
            for reader in self.flow.readers[v]
        )

    def cluster(self) -> Cluster:
        """A new cluster, not in the order yet."""
        self.count += 1
        return Cluster(self.count, self.flow)

    def alone(self, eq: Equation) -> None:
        """Makes a node of an equation that runs with no other."""
        self.count += 1
        node = Node(self.count)
        node.equations.append(eq)
        self.add(node, eq)
        if effectful(eq):
            # Effects happen in the order of the program.
            if self._last_effect is not None:
                self.depend(node, [self._last_effect])
            self._last_effect = node

    def add(self, node: Node, eq: Equation) -> None:
        """Takes in a node that makes an equation's results."""
        self.order.add(node)
        self.own(node, eq)

    def own(self, node: Node, eq: Equation, needs: list[Node] | None = None) -> None:
        """Makes a node that of an equation's results, after what they need, if that is
        not known yet."""
        for v in eq.outputs:
            self.owner[v] = node
        node.values += eq.outputs
        self.depend(node, self.needs(eq) if needs is None else needs)

    def give(self, node: Node, v: Var) -> None:
        self.owner[v] = node
        node.values.append(v)

    def depend(self, node: Node, others: list[Node]) -> None:
        done = self.order.depend(node, others)
        assert done, "a node runs before what it needs"

    def needs(self, eq: Equation) -> list[Node]:
        """The nodes that make what an equation reads."""
        nodes: list[Node] = []
        flow, owner = self.flow, self.owner
        for i, a in enumerate(eq.inputs):
            if type(a) is not Var:
                continue
            source: Any = flow.source(a)
            if source in flow.inline:
                if source in flow.given and source not in flow.kept:
                    continue
                whole = not self.computes(eq)
                whole = whole or (i == 0 and isinstance(eq.op.lowering, Gather))
                nodes += self.makers(a, whole)
            elif source in owner:
                nodes.append(owner[source])
        return nodes

    def makers(self, a: Atom, whole: bool) -> list[Node]:
        """The nodes that make what a value is read from: where an inline one is stored
        as well, that memory if it is read as a `whole`, else what it is made of."""
        flow = self.flow
        owner = self.owner
        source: Any = flow.source(a)
        if source in flow.inline and not (whole and source in flow.kept):
            return [owner[v] for v in flow.sources(source) if v in owner]
        return [owner[source]] if source in owner else []

    def contract(self, node: Node, other: Node) -> bool:
        """Makes one node of two, if the order lets them run together."""
        done = self.order.contract(node, other)
        if done:
            self.owner.update(dict.fromkeys(other.values, node))
        return done

    def replace(self, old: Equation, new: Equation) -> Equation:
        """Puts another equation for the same results in the place of one."""
        self.flow.replace(old, new)
        self.position[id(new)] = self.position[id(old)]
        return new

    def substitute(self, eq: Equation, old: Var, new: Var) -> Equation:
        """An equation that reads `new` in place of `old`."""
        inputs = [new if a is old else a for a in eq.inputs]
        return self.replace(
            eq, Equation(eq.op, inputs, eq.params, eq.outputs, eq.source)
        )


def _writes(eq: Equation, v: Var) -> bool:
    """Whether an equation is a scatter of a value."""
    return isinstance(eq.op.lowering, Scatter) and eq.inputs[1] is v
