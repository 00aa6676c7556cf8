"""Work that is done block by block, where a target has a kernel; elsewhere, and before
that kernel, other operations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from treadle.control.attention import (
    attention,
    attention_grad,
    attention_tangent,
)
from treadle.control.softmax import softmax
from treadle.ir.graph import Equation, Graph
from treadle.ops.slide import slide
from treadle.passes.rewrite import Rewriter, mentions, rewrite_params
from treadle.trace.interpreter import at_source
from treadle.trace.lowering import Blocked, Host
from treadle.trace.stage import stage

if TYPE_CHECKING:
    from treadle.passes.pipeline import Arithmetic

_BLOCKED = (attention, attention_tangent, attention_grad, slide, softmax)


class _Lower(Rewriter):
    concerns = Blocked

    def __init__(self, graph: Graph, target: Arithmetic) -> None:
        super().__init__(graph)
        self.target = target

    def equation(self, eq: Equation) -> None:
        how = eq.op.lowering
        if eq.graphs:
            params = rewrite_params(eq, _Inside(self.target))
            inputs = [self.read(a) for a in eq.inputs]
            same = params is eq.params and tuple(inputs) == tuple(eq.inputs)
            if not same:
                eq = Equation(eq.op, inputs, params, eq.outputs, eq.source)
            self.write(eq)
        elif not isinstance(how, Blocked) or self._has_kernel(eq):
            self.keep(eq)
        else:
            self._expand(eq, how)

    def _has_kernel(self, eq: Equation) -> bool:
        return not isinstance(self.target.lowering(eq), Host)

    def _expand(self, eq: Equation, how: Blocked) -> None:
        inputs = [self.read(a) for a in eq.inputs]
        with at_source(eq.source):
            formula = partial(how.formula, **eq.params)
            graph, _ = stage(formula, [a.type for a in inputs], closed=True)
        results = self.splice(graph, inputs, eq.source)
        self.values.update(zip(eq.outputs, results, strict=True))


class _Inside:
    """The pass, for graphs that an equation holds."""

    def __init__(self, target: Arithmetic) -> None:
        self.target = target

    def apply(self, graph: Graph) -> Graph:
        return _Lower(graph, self.target).run()


def lower_blocks(graph: Graph, target: Arithmetic) -> Graph:
    """Ensures that blocked work is what the target has a kernel for."""
    return _Inside(target).apply(graph) if mentions(graph, _BLOCKED) else graph
