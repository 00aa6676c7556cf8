"""Goes through a Graph's equations; finds the graphs and effects in them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any

from treadle.ir.graph import Atom, Equation, Graph, Lit, Var, nested_graphs
from treadle.scopes import Source, current, within
from treadle.trace.interpreter import state


def call_graph(graph: Graph, args: Sequence[Any]) -> list[Any]:
    """The graph's results for the given values, each equation bound anew.

    Operations keep the user's lines that are written in the graph.
    """
    previous, around = state.source, surroundings()
    apply = partial(bind, around=around) if around is not None else bind
    try:
        return follow(graph, args, apply)
    finally:
        state.source = previous


def surroundings() -> Source | None:
    """Where equations come from whose graph is followed now; None if they are part of
    nothing that has a name."""
    source = state.source
    if not isinstance(source, Source):
        source = Source("", current.place.path)
    return source if source.scope or source.backward else None


def bind(
    eq: Equation, inputs: Sequence[Any], around: Source | None = None
) -> Sequence[Any]:
    """The results of an equation for other inputs, in the current interpreter.

    around: where the equation comes from that holds its graph, if that has a name.
    """
    state.source = within(eq.source, around) if around is not None else eq.source
    out = eq.op(*inputs, **eq.params)
    return out if eq.op.multiple else (out,)


def number_of(a: Lit) -> Any:
    """The number that a literal is, for a function that knows none of its sizes."""
    assert a.size is None, "the number is that of one of several sizes"
    return a.value


def follow(
    graph: Graph,
    args: Sequence[Any],
    apply: Callable[[Equation, list[Any]], Sequence[Any]],
    literal: Callable[[Lit], Any] = number_of,
) -> list[Any]:
    """A graph's results; those of an equation are ``apply(equation, inputs)``."""
    values: dict[Var, Any] = dict(zip(graph.inputs, args, strict=True))

    def read(a: Atom) -> Any:
        return literal(a) if isinstance(a, Lit) else values[a]

    for eq in graph.equations:
        outs = apply(eq, [read(a) for a in eq.inputs])
        values.update(zip(eq.outputs, outs, strict=True))
    return [read(a) for a in graph.outputs]


_FUNCTIONS = ("graph", "rule", "forward", "backward")
"""Params that may be Python functions: what they do is not known before they run."""


def axes_named(params: dict[str, Any]) -> frozenset[str] | None:
    """The axes of which an equation with these params speaks by name, itself or in a
    graph that it holds; None if that is not known."""
    names = {axis.name for axis in params.get("over", ())}
    for graph in nested_graphs(params):
        if "axes_named" not in graph.cache:
            found = [axes_named(eq.params) for eq in graph.equations]
            known = None if None in found else frozenset().union(*found)  # type: ignore[arg-type]
            graph.cache["axes_named"] = known
        inner = graph.cache["axes_named"]
        if inner is None:
            return None
        names |= inner
    if any(callable(params.get(name)) for name in _FUNCTIONS):
        return None
    return frozenset(names)


def effectful(eq: Equation) -> bool:
    """Whether running an equation matters even when its results are not used: its op
    has an effect, or one inside a graph that it holds has."""
    if eq.op.effect or not eq.graphs:
        return eq.op.effect
    return any(map(has_effects, eq.graphs))


def has_effects(graph: Graph) -> bool:
    """Whether any equation has an effect. Cached on the graph."""
    if "has_effects" not in graph.cache:
        graph.cache["has_effects"] = any(effectful(eq) for eq in graph.equations)
    return graph.cache["has_effects"]


def live(
    equations: Sequence[Equation],
    wanted: Iterable[Atom],
    roots: Callable[[Equation], bool] = effectful,
    given: Container[Atom] = (),
) -> tuple[list[Equation], set[Var]]:
    """The equations that some values and all `roots` are made of, in their order; and
    those values, with all that these equations read, but for what is given."""
    needed = {a for a in wanted if isinstance(a, Var) and a not in given}
    kept = []
    for eq in reversed(equations):
        if not needed.isdisjoint(eq.outputs) or roots(eq):
            kept.append(eq)
            needed.update([a for a in eq.inputs if type(a) is Var and a not in given])
    return kept[::-1], needed
