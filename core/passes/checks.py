"""Makes branches of checks: the one that fails calls Python, which raises the error."""

from __future__ import annotations

from treadle import dtypes
from treadle.control.callback import io_callback
from treadle.control.checks import Failure, error_if
from treadle.control.cond import cond
from treadle.ir.graph import Atom, Equation, Graph, Var
from treadle.ops.cast import convert
from treadle.ops.reduce import reduce_or
from treadle.passes.rewrite import Rewriter, mentions, rewrite_params
from treadle.scopes import within


class _Checks(Rewriter):
    """around: where the equation that holds the graph comes from."""

    def __init__(self, graph: Graph, around: str) -> None:
        super().__init__(graph)
        self.around = around

    def equation(self, eq: Equation) -> None:
        source = within(eq.source, self.around)
        if eq.op is error_if:
            self._branch(eq, source)
        elif any(mentions(graph, _CHECKS) for graph in eq.graphs):
            params = rewrite_params(eq, _Inside(source))
            self.write(Equation(eq.op, eq.inputs, params, eq.outputs, eq.source))
        else:
            self.write(eq)

    def _branch(self, eq: Equation, source: str) -> None:
        fails: Atom = eq.inputs[0]
        if fails.type.shape:
            axes = tuple(range(len(fails.type.shape)))
            (fails,) = self.emit(reduce_or, [fails], {"axes": axes}, eq.source)
        (index,) = self.emit(convert, [fails], {"dtype": dtypes.int32}, eq.source)
        params = {"branches": (_passing(eq), _failing(eq, source))}
        self.emit(cond, [index, *eq.inputs], params, eq.source)


class _Inside:
    """Applies the pass to graphs that an equation holds."""

    def __init__(self, source: str) -> None:
        self.source = source

    def apply(self, graph: Graph) -> Graph:
        return _Checks(graph, self.source).run()


_CHECKS = {error_if}


def _passing(eq: Equation) -> Graph:
    return Graph([Var(a.type) for a in eq.inputs], [], [])


def _failing(eq: Equation, source: str) -> Graph:
    p = eq.params
    scope = getattr(source, "scope", "")
    failure = Failure(p["message"], p["names"], p["line"], scope, p["levels"])
    params = {"function": failure, "types": (), "batching": "sequential"}
    given = [Var(a.type) for a in eq.inputs]
    return Graph(given, [Equation(io_callback, given, params, [], eq.source)], [])


def lower_checks(graph: Graph) -> Graph:
    """Ensures that there are no checks, in nested graphs neither."""
    return _Checks(graph, "").run() if mentions(graph, _CHECKS) else graph
