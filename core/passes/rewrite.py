"""What passes are made of: a walk that rebuilds a graph equation by equation."""

from __future__ import annotations

from collections.abc import Container, Sequence
from operator import is_
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.ir.graph import Atom, Equation, Graph, Var
from treadle.ir.walk import follow
from treadle.scopes import within
from treadle.trace.op import Op


class Rewriter:
    """Writes a new graph while reading an old one.

    `values` maps the old graph's variables to the new graph's atoms, where they differ.
    What does not change is shared by both graphs: equations, and graphs as a whole.

    concerns: lowerings of the equations that a pass looks at, besides those that hold
      graphs; it keeps all others. For passes that don't override `write`.
    """

    concerns: type | tuple[type, ...] = object

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.equations: list[Equation] = []
        self.values: dict[Atom, Atom] = {}

    def read(self, a: Atom) -> Atom:
        """The new atom for an old one."""
        return self.values.get(a, a)

    def write(self, eq: Equation) -> None:
        """Appends an equation: all that are written come by here."""
        self.equations.append(eq)

    def emit(
        self,
        op: Op,
        inputs: Sequence[Atom],
        params: dict[str, Any],
        source: str,
        outputs: Sequence[Var] | None = None,
    ) -> Sequence[Var]:
        """Writes an equation; its results are new variables unless given."""
        if outputs is None:
            types = op.infer([a.type for a in inputs], params)
            outputs = [Var(t) for t in types]
        self.write(Equation(op, inputs, params, outputs, source))
        return outputs

    def keep(self, eq: Equation) -> None:
        """Copies an equation."""
        params = rewrite_params(eq, type(self)) if eq.graphs else eq.params
        inputs = self.inputs(eq)
        if params is not eq.params or inputs is not eq.inputs:
            eq = Equation(eq.op, inputs, params, eq.outputs, eq.source)
        self.write(eq)

    def inputs(self, eq: Equation) -> tuple[Atom, ...]:
        """The new atoms that an equation reads; its own tuple, if they are the old."""
        values = self.values
        if not values or values.keys().isdisjoint(eq.inputs):
            return eq.inputs
        return tuple([values.get(a, a) for a in eq.inputs])

    def splice(
        self, graph: Graph, inputs: Sequence[Atom], source: str
    ) -> Sequence[Atom]:
        """Writes the equations of a whole graph; gives its results. Equations without
        a line of the user's get `source`, the others the names around that."""

        def write(eq: Equation, inputs: Sequence[Atom]) -> Sequence[Atom]:
            found = within(eq.source, source) if eq.source else source
            return self.emit(eq.op, inputs, eq.params, found)

        return follow(graph, inputs, write, lambda literal: literal)

    def equation(self, eq: Equation) -> None:
        """What to do with one equation. Passes override this."""
        self.keep(eq)

    def run(self) -> Graph:
        """The new graph; the old one, if nothing has changed."""
        old, concerns, values = self.graph, self.concerns, self.values
        equation, keep, equations = self.equation, self.keep, self.equations
        for eq in old.equations:
            if concerns is object or eq.graphs or isinstance(eq.op.lowering, concerns):
                equation(eq)
            elif values.keys().isdisjoint(eq.inputs):
                equations.append(eq)
            else:
                keep(eq)
        return shared(old, self.equations, [self.read(a) for a in old.outputs])

    @classmethod
    def apply(cls, graph: Graph) -> Graph:
        return cls(graph).run()


def shared(graph: Graph, equations: list[Equation], outputs: Sequence[Atom]) -> Graph:
    """A graph with other equations and outputs; the same, if they are the same."""
    if tuple(equations) == graph.equations and tuple(outputs) == graph.outputs:
        return graph
    return Graph(graph.inputs, equations, outputs, graph.name)


def mentions(graph: Graph, ops: Container[Op]) -> bool:
    """Whether a graph, or one nested in it, has an equation of one of these ops."""
    return any(op in ops for op in ops_of(graph))


def ops_of(graph: Graph) -> frozenset[Op]:
    """The ops of a graph's equations, nested graphs included. Cached on the graph."""
    found = graph.cache.get("ops")
    if found is None:
        every = {eq.op for eq in graph.equations}
        for eq in graph.equations:
            for inner in eq.graphs:
                every |= ops_of(inner)
        found = graph.cache["ops"] = frozenset(every)
    return found


def dtypes_of(graph: Graph) -> frozenset[np.dtype]:
    """Of all results of a graph's equations, nested graphs included. Cached on the
    graph."""
    found = graph.cache.get("dtypes")
    if found is None:
        types = {v.type for eq in graph.equations for v in eq.outputs}
        every = {t.dtype for t in types}
        for eq in graph.equations:
            for inner in eq.graphs:
                every |= dtypes_of(inner)
        found = graph.cache["dtypes"] = frozenset(every)
    return found


def rewrite_params(eq: Equation, apply: Any) -> dict[str, Any]:
    """The params with a pass applied to the graphs among them."""
    params = eq.params
    if not eq.graphs:
        return params
    found = [apply.apply(graph) for graph in eq.graphs]
    if all(map(is_, found, eq.graphs)):
        return params
    new = iter(found)
    result = {}
    for k, v in params.items():
        if isinstance(v, Graph):
            v = next(new)
        elif isinstance(v, tuple):
            v = tuple([next(new) if isinstance(x, Graph) else x for x in v])
        result[k] = v
    return result


def same_type(a: ArrayType, b: ArrayType) -> bool:
    """Whether two types agree in everything that a compiled program sees."""
    return a.shape == b.shape and a.dtype == b.dtype
