"""Drops equations whose results nobody uses."""

from __future__ import annotations

from treadle.ir.graph import Equation, Graph
from treadle.ir.walk import effectful
from treadle.passes.rewrite import rewrite_params, shared


def drop_dead(graph: Graph) -> Graph:
    """The same graph without unused pure equations, nested graphs included."""
    needed = set(graph.outputs)
    kept: list[Equation] = []
    for eq in reversed(graph.equations):
        if needed.isdisjoint(eq.outputs) and not effectful(eq):
            continue
        needed.update(eq.inputs)
        params = rewrite_params(eq, _Drop)
        if params is not eq.params:
            eq = Equation(eq.op, eq.inputs, params, eq.outputs, eq.source)
        kept.append(eq)
    return shared(graph, kept[::-1], graph.outputs)


class _Drop:
    apply = staticmethod(drop_dead)
