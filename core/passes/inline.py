"""Replaces calls by the graphs they hold."""

from __future__ import annotations

from treadle.ir.graph import Equation, Graph
from treadle.passes.rewrite import Rewriter, ops_of
from treadle.trace.lowering import Inline


class _Inline(Rewriter):
    def equation(self, eq: Equation) -> None:
        if not isinstance(eq.op.lowering, Inline):
            self.keep(eq)
            return
        inner = _Inline.apply(eq.params["graph"])
        results = self.splice(inner, list(map(self.read, eq.inputs)), eq.source)
        self.values.update(zip(eq.outputs, results, strict=True))


def inline_calls(graph: Graph) -> Graph:
    """A graph without `call` equations, nested graphs included."""
    calls = any(isinstance(op.lowering, Inline) for op in ops_of(graph))
    return _Inline.apply(graph) if calls else graph
