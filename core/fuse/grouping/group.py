"""Graph to groups."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from treadle.fuse.grouping.partition import partition
from treadle.fuse.grouping.recompute import choose, write
from treadle.fuse.grouping.runs import lengthen
from treadle.fuse.groups import Groups
from treadle.fuse.lowering.loops import bodies
from treadle.ir.graph import Equation, Graph
from treadle.trace.lowering import Lowering


def group(
    graph: Graph, lowering: Callable[[Equation], Lowering], chosen: int = 4
) -> Groups:
    """Decides which equations of a graph run together, and which values are stored.

    Args:
      lowering: what the target makes of an equation.
      chosen: the least bytes of elements that it chooses of a register in any order.
    """
    part = partition(graph, lowering, chosen)
    choose(part)
    lengthen(part)
    write(part)
    flow, inner = part.flow, {}
    for node in part.nodes:
        for eq in node.equations:
            if eq.graphs and (graphs := bodies(eq)):
                inner[eq] = tuple([group(g, lowering, chosen) for g in graphs])
    flow.settle()
    owner, built = MappingProxyType(part.owner), MappingProxyType(part.built)
    return Groups(flow, tuple(part.nodes), owner, built, MappingProxyType(inner))
