"""What passes are made of: a walk that rebuilds a graph equation by equation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.arraytype import ArrayType
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ir.walk import follow, nested_graphs
from treadle.trace.op import Op


class Rewriter:
    """Writes a new graph while reading an old one.

    `values` maps the old graph's variables to the new graph's atoms.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.equations: list[Equation] = []
        self.values: dict[Var, Atom] = {v: v for v in graph.inputs}

    def read(self, a: Atom) -> Atom:
        """The new atom for an old one."""
        return a if isinstance(a, Lit) else self.values[a]

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
        self.equations.append(Equation(op, inputs, params, outputs, source))
        return outputs

    def keep(self, eq: Equation) -> None:
        """Copies an equation."""
        inputs = [self.read(a) for a in eq.inputs]
        params = rewrite_params(eq.params, type(self))
        self.emit(eq.op, inputs, params, eq.source, eq.outputs)
        self.values.update(zip(eq.outputs, eq.outputs, strict=True))

    def splice(
        self, graph: Graph, inputs: Sequence[Atom], source: str
    ) -> Sequence[Atom]:
        """Writes the equations of a whole graph; gives its results. Equations without
        a line of the user's get `source`."""

        def write(eq: Equation, inputs: Sequence[Atom]) -> Sequence[Atom]:
            return self.emit(eq.op, inputs, eq.params, eq.source or source)

        return follow(graph, inputs, write, lambda literal: literal)

    def equation(self, eq: Equation) -> None:
        """What to do with one equation. Passes override this."""
        self.keep(eq)

    def run(self) -> Graph:
        """The new graph."""
        for eq in self.graph.equations:
            self.equation(eq)
        outputs = [self.read(a) for a in self.graph.outputs]
        return Graph(self.graph.inputs, self.equations, outputs, self.graph.name)

    @classmethod
    def apply(cls, graph: Graph) -> Graph:
        return cls(graph).run()


def mentions(graph: Graph, ops: frozenset[Op]) -> bool:
    """Whether a graph, or one nested in it, has an equation of one of these ops."""
    return any(
        eq.op in ops or any(mentions(inner, ops) for inner in nested_graphs(eq.params))
        for eq in graph.equations
    )


def rewrite_params(params: dict[str, Any], apply: Any) -> dict[str, Any]:
    """The params with a pass applied to the graphs among them."""
    if not any(isinstance(v, Graph | tuple) for v in params.values()):
        return params
    return {k: _rewrite(v, apply) for k, v in params.items()}


def _rewrite(value: Any, apply: Any) -> Any:
    if isinstance(value, Graph):
        return apply.apply(value)
    if isinstance(value, tuple) and any(isinstance(x, Graph) for x in value):
        return tuple(apply.apply(x) if isinstance(x, Graph) else x for x in value)
    return value


def same_type(a: ArrayType, b: ArrayType) -> bool:
    """Whether two types agree in everything that a compiled program sees."""
    return a.shape == b.shape and a.dtype == b.dtype
