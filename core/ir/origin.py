"""Where in the user's program something comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treadle.ir.graph import Equation, Graph


class Origin(NamedTuple):
    """The user's line that asked for an equation.

    source: ``file:line``. scope: names of the parts of the program around it.
    backward: whether it is of the backward pass of that line.
    """

    source: str = ""
    scope: str = ""
    backward: bool = False


NOWHERE = Origin()


def origin_of(eq: Equation) -> Origin:
    """Where an equation comes from."""
    return Origin(eq.source)


def numbered(origins: Sequence[Origin], graph: Graph) -> list[int]:
    """Origins as numbers of a graph's equations: the first that comes from there, or -1
    if none does. An equal graph of other lines has its own origins at these numbers."""
    first: dict[Origin, int] = {}
    for n, eq in enumerate(_equations(graph)):
        first.setdefault(origin_of(eq), n)
    return [first.get(origin, -1) for origin in origins]


def recalled(numbers: Sequence[int], graph: Graph) -> list[Origin]:
    """The inverse of `numbered`, for an equal graph."""
    equations = _equations(graph) if numbers else []
    return [NOWHERE if n < 0 else origin_of(equations[n]) for n in numbers]


def _equations(graph: Graph) -> list[Equation]:
    """All equations, with those of the graphs in them."""
    found: list[Equation] = []

    def visit(graph: Graph) -> None:
        for eq in graph.equations:
            found.append(eq)
            for inner in eq.graphs:
                visit(inner)

    visit(graph)
    return found
