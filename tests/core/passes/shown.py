"""Graphs as lines of text, to compare what passes have made with what is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import treadle as td
from tests.core.fuse.graphs import traced
from treadle.arraytype import ArrayType
from treadle.dims import Scope
from treadle.dims.scope import COMPILING
from treadle.ir.check import check
from treadle.ir.graph import Equation, Graph
from treadle.ir.show import show
from treadle.run.eager import evaluate
from treadle.trace.stage import stage


def lines(graph: Graph) -> list[str]:
    """Its equations, nested graphs included, and what it returns."""
    return [line.strip() for line in show(graph, sources=False).splitlines()[1:]]


def passed(
    apply: Callable[[Graph], Graph], function: Callable[..., Any], *args: Any
) -> list[str]:
    """The lines of a function's graph after a pass, which must have kept its form and
    its meaning."""
    graph = traced(function, *args)
    found = apply(graph)
    check(found)
    with np.errstate(all="ignore"):
        pairs = zip(evaluate(found, args), evaluate(graph, args), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, 1e-4, 1e-4)
    return lines(found)


def untouched(
    apply: Callable[[Graph], Graph], function: Callable[..., Any], *args: Any
) -> bool:
    """Whether a pass gives the very graph that it was given."""
    graph = traced(function, *args)
    return apply(graph) is graph


def opened(
    function: Callable[..., Any], *shapes: tuple[str | int, ...], **sizes: int
) -> tuple[Graph, Scope]:
    """The graph of a function of float32 arrays whose lengths are open where shapes
    name them; and what is asked of them."""
    scope = Scope()
    open_ = {name: scope.symbol(name, size) for name, size in sizes.items()}
    types = [
        ArrayType(tuple([open_.get(n, n) for n in shape]), np.dtype("float32"))  # type: ignore[call-overload]
        for shape in shapes
    ]
    graph, _ = stage(lambda *xs: td.tree.leaves(function(*xs)), types)
    scope.phase = COMPILING
    return graph, scope


def equations(graph: Graph) -> list[Equation]:
    """All equations, those of nested graphs after the one that holds them."""
    found = []
    for eq in graph.equations:
        found.append(eq)
        for inner in eq.graphs:
            found += equations(inner)
    return found
