"""Common subexpressions: an equation that was computed before is not computed again."""

from __future__ import annotations

from typing import Any

from treadle.ir.graph import Equation, Graph, Lit, Var, params_key
from treadle.ir.walk import effectful
from treadle.passes.rewrite import Rewriter
from treadle.trace.lowering import Same


class _Merge(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.seen: dict[Any, tuple[Var, ...]] = {}

    def equation(self, eq: Equation) -> None:
        if effectful(eq) or isinstance(eq.op.lowering, Same):
            # Recomputation behind a barrier is wanted: it saves memory.
            self.keep(eq)
            return
        values = self.values
        inputs = [values.get(a, a) for a in eq.inputs]
        atoms = [a.key() if type(a) is Lit else a for a in inputs]
        key = (eq.op, *atoms, params_key(eq.params))
        found = self.seen.setdefault(key, eq.outputs)
        if found is eq.outputs:
            self.keep(eq)
        else:
            values.update(zip(eq.outputs, found, strict=True))


def merge_equal(graph: Graph) -> Graph:
    """The graph with equal pure equations merged, nested graphs included."""
    return _Merge.apply(graph)
