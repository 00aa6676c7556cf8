"""Runs a Graph's equations in the current interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.trace.interpreter import state


def call_graph(graph: Graph, args: Sequence[Any]) -> list[Any]:
    """The graph's results for the given values, each equation bound anew.

    Operations keep the user's lines that are written in the graph.
    """
    values: dict[Var, Any] = dict(zip(graph.inputs, args, strict=True))

    def read(a: Atom) -> Any:
        return a.value if isinstance(a, Lit) else values[a]

    previous = state.source
    try:
        for eq in graph.equations:
            state.source = eq.source
            out = eq.op(*[read(a) for a in eq.inputs], **eq.params)
            if eq.op.multiple:
                values.update(zip(eq.outputs, out, strict=True))
            else:
                values[eq.outputs[0]] = out
    finally:
        state.source = previous
    return [read(a) for a in graph.outputs]


def nested_graphs(params: dict[str, Any]) -> list[Graph]:
    """The graphs among an equation's params: bodies of loops, branches, calls."""
    found = []
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Graph):
                found.append(item)
    return found


def effectful(eq: Equation) -> bool:
    """Whether running an equation matters even when its results are not used: its op
    has an effect, or one inside a graph that it holds has."""
    if eq.op.effect:
        return True
    return any(has_effects(inner) for inner in nested_graphs(eq.params))


def has_effects(graph: Graph) -> bool:
    """Whether any equation has an effect. Cached on the graph."""
    if "has_effects" not in graph.cache:
        graph.cache["has_effects"] = any(effectful(eq) for eq in graph.equations)
    return graph.cache["has_effects"]
