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
        inputs, outputs = self.inputs(eq), eq.outputs
        atoms = [a.key() if type(a) is Lit else a for a in inputs]
        key = (eq.op, params_key(eq.params), *atoms)
        found = self.seen.setdefault(key, outputs)
        if found is not outputs:
            self.values.update(zip(outputs, found, strict=True))
        elif inputs is eq.inputs and not eq.graphs:
            self.equations.append(eq)
        else:
            self.keep(eq)


def merge_equal(graph: Graph) -> Graph:
    """The graph with equal pure equations merged, nested graphs included."""
    return _Merge.apply(graph)
