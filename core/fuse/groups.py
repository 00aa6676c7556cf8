"""What runs together: the nodes of a graph and of the graphs in it, settled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from treadle.fuse.dataflow import Dataflow
from treadle.fuse.order import Node
from treadle.ir.graph import Equation, Var


class Groups(NamedTuple):
    """The nodes of a graph in an order in which they can run, and where their values
    will be found: nothing of this changes any more.

    owner: the node that makes a value. built: kernels that were written to see whether
    there are any. inner: the groups of the graphs that an equation runs.
    """

    flow: Dataflow
    nodes: tuple[Node, ...]
    owner: Mapping[Var, Node]
    built: Mapping[Node | Equation, Any]
    inner: Mapping[Equation, tuple[Groups, ...]]
