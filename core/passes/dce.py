"""Drops what nobody uses: equations, and factors beside the one that is read."""

from __future__ import annotations

from treadle.ir.graph import Equation, Graph, Var
from treadle.ir.walk import live
from treadle.passes.rewrite import rewrite_params, shared
from treadle.trace.lowering import Routine


def drop_dead(graph: Graph) -> Graph:
    """The same graph without unused pure equations, nested graphs included."""
    kept = []
    equations, needed = live(graph.equations, graph.outputs)
    for eq in equations:
        how = eq.op.lowering
        if isinstance(how, Routine):
            eq = _alone(eq, how, needed)
        if eq.graphs and (params := rewrite_params(eq, _Drop)) is not eq.params:
            eq = Equation(eq.op, eq.inputs, params, eq.outputs, eq.source)
        kept.append(eq)
    return shared(graph, kept, graph.outputs)


def _alone(eq: Equation, how: Routine, needed: set[Var]) -> Equation:
    """An equation with fewer results, if it has such a form and these are enough."""
    if how.alone is None:
        return eq
    number, params = how.alone
    others = [v for i, v in enumerate(eq.outputs) if i != number]
    if not others or not needed.isdisjoint(others):
        return eq
    params = {**eq.params, **params}
    return Equation(eq.op, eq.inputs, params, [eq.outputs[number]], eq.source)


class _Drop:
    apply = staticmethod(drop_dead)
