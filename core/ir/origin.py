"""Where in the user's program something comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treadle.ir.graph import Equation, Graph
from treadle.scopes import joined


class Origin(NamedTuple):
    """The user's line that asked for an equation.

    source: ``file:line``. scope: names of the parts of the program around it.
    backward: whether it is of the backward pass of that line.
    """

    source: str = ""
    scope: str = ""
    backward: bool = False

    def within(self, around: Origin) -> Origin:
        """That of an equation in a graph, where what holds the graph is from `around`:
        scopes in graphs are relative."""
        if around is NOWHERE or around == NOWHERE:
            return self
        scope = joined(around.scope, self.scope)
        backward = self.backward or around.backward
        return Origin(self.source or around.source, scope, backward)


NOWHERE = Origin()


class Origins:
    """Where equations come from: many have one source, of which one origin is made."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, Origin]] = {}

    def of(self, eq: Equation) -> Origin:
        """Where an equation comes from."""
        source = eq.source
        # By identity: equal lines may have other names around them.
        known = self._known.get(id(source))
        if known is None:
            made = Origin(str(source), eq.scope, eq.backward)
            known = self._known[id(source)] = source, made
        return known[1]


def numbered(origins: Sequence[Origin], graph: Graph) -> list[int]:
    """Origins as numbers of a graph's equations: the first that comes from there, or -1
    if none does. An equal graph of other lines has its own origins at these numbers."""
    first: dict[Origin, int] = {}
    for n, origin in enumerate(_origins(graph)):
        first.setdefault(origin, n)
    return [first.get(origin, -1) for origin in origins]


def recalled(numbers: Sequence[int], graph: Graph) -> list[Origin]:
    """The inverse of `numbered`, for an equal graph."""
    known = _origins(graph) if numbers else []
    return [NOWHERE if n < 0 else known[n] for n in numbers]


def _origins(graph: Graph) -> list[Origin]:
    """Those of all equations, with those of the graphs in them."""
    found: list[Origin] = []
    origins = Origins()

    def visit(graph: Graph, around: Origin) -> None:
        for eq in graph.equations:
            origin = origins.of(eq).within(around)
            found.append(origin)
            for inner in eq.graphs:
                visit(inner, origin)

    visit(graph, NOWHERE)
    return found
