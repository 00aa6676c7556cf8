"""Drops equations whose results nobody uses."""

from __future__ import annotations

from treadle.ir.graph import Equation, Graph
from treadle.ir.walk import live
from treadle.passes.rewrite import rewrite_params, shared


def drop_dead(graph: Graph) -> Graph:
    """The same graph without unused pure equations, nested graphs included."""
    kept = []
    for eq in live(graph.equations, graph.outputs)[0]:
        params = rewrite_params(eq, _Drop)
        if params is not eq.params:
            eq = Equation(eq.op, eq.inputs, params, eq.outputs, eq.source)
        kept.append(eq)
    return shared(graph, kept, graph.outputs)


class _Drop:
    apply = staticmethod(drop_dead)
