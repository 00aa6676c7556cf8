"""Ends loops that must remember every iteration where they run past what can be.

Such a loop is an error there (`checked_count`), but only once it has ended: one that
never does would be none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.control.counted import checked_count
from treadle.control.while_loop import while_loop
from treadle.ir.graph import Atom, Equation, Graph
from treadle.ir.walk import call_graph
from treadle.ops.compare import bitwise_and, le
from treadle.ops.reduce import reduce_max
from treadle.passes.rewrite import Rewriter, mentions
from treadle.trace.stage import stage
from treadle.trace.value import typeof


class _Limits(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.limits: dict[Atom, int] = {
            eq.inputs[0]: eq.params["limit"]
            for eq in graph.equations
            if eq.op is checked_count
        }

    def equation(self, eq: Equation) -> None:
        known = enumerate(eq.outputs)
        limits = {k: self.limits[v] for k, v in known if v in self.limits}
        if limits and eq.op is while_loop:
            params = {**eq.params, "test": _within(eq.params, limits)}
            eq = Equation(eq.op, eq.inputs, params, eq.outputs, eq.source)
        self.keep(eq)


def _within(params: dict[str, Any], limits: dict[int, int]) -> Graph:
    """The test of a loop that ends, too, as soon as a carry is above its limit."""
    test, n = params["test"], params["n_test_consts"]

    def function(*values: Any) -> Sequence[Any]:
        (going,) = call_graph(test, values)
        for k, limit in limits.items():
            count = values[n + k]
            axes = tuple(range(typeof(count).ndim))
            most = reduce_max(count, axes=axes) if axes else count
            going = bitwise_and(going, le(most, np.int32(limit)))
        return [going]

    return stage(function, test.in_types, closed=True, name=test.name)[0]


def end_at_limits(graph: Graph) -> Graph:
    """The graph with loops that end past their limits, nested graphs included. What
    nobody uses must be dropped: a loop that nothing goes back through has no limit."""
    return _Limits.apply(graph) if mentions(graph, {checked_count}) else graph
