"""What runs together: the nodes of a graph and of the graphs in it, settled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from treadle.fuse.layout import stored_strides
from treadle.fuse.loops import bodies
from treadle.fuse.order import Node
from treadle.fuse.partition import partition
from treadle.fuse.program import Program
from treadle.fuse.recompute import choose
from treadle.ir.graph import Equation, Graph, Var
from treadle.trace.lowering import Lowering, Product


class Groups(NamedTuple):
    """The nodes of a graph in an order in which they can run, and where their values
    will be found: nothing of this changes any more.

    owner: the node that makes a value. built: kernels that were written to see whether
    there are any. inner: the groups of the graphs that an equation runs.
    """

    program: Program
    nodes: tuple[Node, ...]
    owner: Mapping[Var, Node]
    built: Mapping[Node | Equation, Any]
    inner: Mapping[Equation, tuple[Groups, ...]]


def group(graph: Graph, lowering: Callable[[Equation], Lowering]) -> Groups:
    """Decides which equations of a graph run together, and which values are stored.

    Args:
      lowering: what the target makes of an equation.
    """
    part = partition(graph, lowering)
    choose(part)
    program, inner = part.program, {}
    for node in part.nodes:
        for eq in node.equations:
            if isinstance(program.lowering(eq), Product):
                # Decided here, if nobody has asked yet.
                stored_strides(eq.outputs[0], program)
            graphs = bodies(eq)
            if graphs:
                inner[eq] = tuple([group(g, lowering) for g in graphs])
    program.settle()
    return Groups(program, tuple(part.nodes), part.owner, part.built, inner)
