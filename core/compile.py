"""The pipeline on one screen: Graph to Executable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.control.call import runners
from treadle.ir.graph import Graph
from treadle.run.array import Array, as_numpy
from treadle.run.eager import evaluate


class Executable:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __call__(self, args: Sequence[Any]) -> list[Array]:
        return [Array(x) for x in evaluate(self.graph, [as_numpy(a) for a in args])]

    def explain(self) -> str:
        return repr(self.graph)


def executable_of(graph: Graph) -> Executable:
    """The compiled program of a graph. Compiled once."""
    found = graph.cache.get("executable")
    if found is None:
        found = graph.cache["executable"] = Executable(graph)
    return found


runners.append(lambda graph, arrays: executable_of(graph)(arrays))
