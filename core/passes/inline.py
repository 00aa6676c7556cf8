"""Replaces calls by the graphs they hold."""

from __future__ import annotations

from treadle.ir.graph import Equation, Graph, Lit
from treadle.passes.rewrite import Rewriter
from treadle.trace.lowering import Inline


class _Inline(Rewriter):
    def equation(self, eq: Equation) -> None:
        if not isinstance(eq.op.lowering, Inline):
            self.keep(eq)
            return
        inner = _Inline.apply(eq.params["graph"])
        values = dict(zip(inner.inputs, map(self.read, eq.inputs), strict=True))
        for e in inner.equations:
            inputs = [a if isinstance(a, Lit) else values[a] for a in e.inputs]
            outputs = self.emit(e.op, inputs, e.params, e.source or eq.source)
            values.update(zip(e.outputs, outputs, strict=True))
        for v, a in zip(eq.outputs, inner.outputs, strict=True):
            self.values[v] = a if isinstance(a, Lit) else values[a]


def inline_calls(graph: Graph) -> Graph:
    """A graph without `call` equations, nested graphs included."""
    return _Inline.apply(graph)
