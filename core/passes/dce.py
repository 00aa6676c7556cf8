"""Drops equations whose results nobody uses."""

from __future__ import annotations

from treadle.ir.graph import Equation, Graph, Var
from treadle.ir.walk import effectful
from treadle.passes.rewrite import rewrite_params


def drop_dead(graph: Graph) -> Graph:
    """The same graph without unused pure equations, nested graphs included."""
    needed = {a for a in graph.outputs if isinstance(a, Var)}
    kept: list[Equation] = []
    for eq in reversed(graph.equations):
        if not effectful(eq) and not any(v in needed for v in eq.outputs):
            continue
        needed.update(a for a in eq.inputs if isinstance(a, Var))
        params = rewrite_params(eq.params, _Drop)
        kept.append(Equation(eq.op, eq.inputs, params, eq.outputs, eq.source))
    return Graph(graph.inputs, kept[::-1], graph.outputs, graph.name)


class _Drop:
    apply = staticmethod(drop_dead)
