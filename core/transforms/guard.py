"""Effects under a condition: what vmap computes for examples that don't need it must
not be seen.

A vectorised branch or loop body computes results for all examples, and some of these
are thrown away. Effects can't be: they are guarded by a mask of the examples that
really come by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ir.graph import Graph, nested_graphs
from treadle.ir.walk import call_graph
from treadle.trace.axes import MappedAxis
from treadle.trace.interpreter import Interpreter, state, using
from treadle.trace.op import Op
from treadle.trace.stage import stage
from treadle.transforms.batch import batch_graph

_RULES = ("rule", "forward", "backward")
"""Params that are Python functions: what they do is not known before they run."""


class GuardInterpreter(Interpreter):
    """Passes everything on to its parent; effects happen only where `active`, a bool
    scalar of the parent's, holds."""

    def __init__(self, active: Any) -> None:
        self.parent, self.active = state.interpreter, active
        self.writer = self.parent.writer

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        with using(self.parent):
            if op.guard is None or not _may_act(op, params):
                return op(*args, **params)
            return op.guard(self.active, args, **params)

    def decide(self, x: Any) -> bool | None:
        return self.parent.decide(x)


def _may_act(op: Op, params: dict[str, Any]) -> bool:
    if op.effect or any(name in params for name in _RULES):
        return True
    return any(may_act(graph) for graph in nested_graphs(params))


def may_act(graph: Graph) -> bool:
    """Whether running a graph, or a derivative of it, may have effects."""
    if "may_act" not in graph.cache:
        found = any(_may_act(eq.op, eq.params) for eq in graph.equations)
        graph.cache["may_act"] = found
    return graph.cache["may_act"]


def guard_graph(graph: Graph) -> Graph:
    """The graph with one more input, the first: a bool scalar, where it is False there
    are no effects, and the results mean nothing. Cached on the graph."""
    if "guard" not in graph.cache:

        def function(active: Any, *args: Any) -> list[Any]:
            with using(GuardInterpreter(active)):
                return call_graph(graph, args)

        types = [ArrayType((), dtypes.bool_), *graph.in_types]
        graph.cache["guard"] = stage(function, types, closed=True, name=graph.name)[0]
    return graph.cache["guard"]


def call_where(
    active: Any,
    graph: Graph,
    axis: MappedAxis,
    batched: tuple[bool, ...],
    args: Sequence[Any],
) -> list[Any]:
    """The graph's results for all examples, with the effects of those for which
    `active` holds.

    Args:
      active: a bool for each example.
      batched: which of `args` have a batch axis (at 0, as all the results do).
    """
    if may_act(graph):
        graph, batched, args = guard_graph(graph), (True, *batched), [active, *args]
    return call_graph(batch_graph(graph, axis, batched, True)[0], args)
