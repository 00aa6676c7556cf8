"""Takes what no iteration changes out of loops: it is computed once, before them.

What a loop's constants alone make is moved if it is a reduction, a product, made with
dear functions (``exp(log_rate)`` in a cell), or what a product reads, which would be
made anew in each iteration. The rest is cheap where it is used, and reading it takes as
long.

Only what is made of nothing broadcast is moved, so that it is a product, or no larger
than a constant: a loop may be written so that a large array never exists. No sizes are
compared: those that are open make the same program.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.control.scan import scan
from treadle.control.while_loop import while_loop
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ir.scalar import SCALARS
from treadle.ir.walk import live
from treadle.ops.dot import dot_general
from treadle.ops.movement import reshape, transpose
from treadle.passes.contractions import adds_nothing
from treadle.passes.rewrite import Rewriter, mentions
from treadle.trace.lowering import Elementwise, Product, Reduction, View, written

_DEAR = 10
"""The cost from which an instruction is a dear function."""
_LOOPS = (scan, while_loop)
_SAME_SIZE = (reshape, transpose)


def hoist_invariant(graph: Graph) -> Graph:
    """Moves what is invariant out of loops, in nested graphs too."""
    return _Hoist.apply(graph) if mentions(graph, _LOOPS) else graph


class _Hoist(Rewriter):
    def equation(self, eq: Equation) -> None:
        if eq.op is while_loop:
            self._while(eq)
        elif eq.op is scan:
            self._scan(eq)
        else:
            self.keep(eq)

    def _scan(self, eq: Equation) -> None:
        inputs, count = [self.read(a) for a in eq.inputs], eq.params["n_consts"]
        graph, more = self._lifted(eq, eq.params["graph"], inputs[:count])
        if graph is eq.params["graph"]:
            self._as_it_was(eq, inputs)
            return
        params = eq.params | {"graph": graph, "n_consts": count + len(more)}
        inputs = [*inputs[:count], *more, *inputs[count:]]
        self.emit(eq.op, inputs, params, eq.source, eq.outputs)

    def _as_it_was(self, eq: Equation, inputs: list[Atom]) -> None:
        """Writes a loop of the same graphs."""
        if not self.values.keys().isdisjoint(eq.inputs):
            eq = Equation(eq.op, inputs, eq.params, eq.outputs, eq.source)
        self.write(eq)

    def _while(self, eq: Equation) -> None:
        inputs, of_test = [self.read(a) for a in eq.inputs], eq.params["n_test_consts"]
        count = of_test + eq.params["n_body_consts"]
        tests, consts = inputs[:of_test], inputs[of_test:count]
        test, for_test = self._lifted(eq, eq.params["test"], tests)
        body, for_body = self._lifted(eq, eq.params["body"], consts)
        if test is eq.params["test"] and body is eq.params["body"]:
            self._as_it_was(eq, inputs)
            return
        params = eq.params | {
            "test": test,
            "body": body,
            "n_test_consts": of_test + len(for_test),
            "n_body_consts": len(consts) + len(for_body),
        }
        inputs = [*tests, *for_test, *consts, *for_body, *inputs[count:]]
        self.emit(eq.op, inputs, params, eq.source, eq.outputs)

    def _lifted(
        self, eq: Equation, graph: Graph, consts: Sequence[Atom]
    ) -> tuple[Graph, Sequence[Atom]]:
        """One of a loop's graphs, with more constants behind its own; and their values,
        which are computed here."""
        graph = _Hoist.apply(graph)
        chosen = _chosen(graph, graph.inputs[: len(consts)])
        if not chosen:
            return graph, []
        found = [v for e in graph.equations if e in chosen for v in e.outputs]
        equations, _ = live(graph.equations, found, lambda eq: False)
        part = Graph(graph.inputs[: len(consts)], equations, found, graph.name)
        values = self.splice(part, consts, eq.source)
        rest = [e for e in graph.equations if e not in chosen]
        rest, _ = live(rest, graph.outputs)
        before, after = graph.inputs[: len(consts)], graph.inputs[len(consts) :]
        inputs = [*before, *found, *after]
        return Graph(inputs, rest, graph.outputs, graph.name), values


def _chosen(graph: Graph, consts: Sequence[Var]) -> set[Equation]:
    """The equations whose results are worth being constants of the loop."""
    small: dict[Var, Equation | None] = dict.fromkeys(consts)
    wanted: set[Equation] = set()
    for eq in graph.equations:
        made = all(isinstance(a, Lit) or a in small for a in eq.inputs)
        if made and _is_no_larger(eq):
            small.update((v, eq) for v in eq.outputs)
            if _is_worth_it(eq):
                wanted.add(eq)
        if isinstance(eq.op.lowering, Product):
            read = [_viewed(a, small) for a in eq.inputs if a in small]
            wanted.update([maker for maker in read if maker is not None])
    return wanted


def _is_no_larger(eq: Equation) -> bool:
    """Whether results are no larger than an operand, or stored in any case: products
    without a sum are made where they are read."""
    how = eq.op.lowering
    arrays = [a for a in eq.inputs if isinstance(a, Var)]
    if not arrays or eq.op.effect or eq.graphs:
        return False
    if isinstance(how, Elementwise):
        out = eq.outputs[0].type
        size = out.dtype.itemsize
        return any(
            a.type.ndim == out.ndim and a.type.dtype.itemsize >= size for a in arrays
        )
    if eq.op is dot_general and adds_nothing(eq):
        return False
    return isinstance(how, (Reduction, Product)) or eq.op in _SAME_SIZE


def _is_worth_it(eq: Equation) -> bool:
    if isinstance(eq.op.lowering, Elementwise):
        return any(SCALARS[i.name].cost >= _DEAR for i in written(eq))
    return isinstance(eq.op.lowering, (Reduction, Product))


def _viewed(a: Atom, small: dict[Var, Equation | None]) -> Equation | None:
    """What makes the array that a product's operand shows, if a loop would."""
    maker = small[a] if isinstance(a, Var) else None
    while maker is not None and isinstance(maker.op.lowering, View):
        source = maker.inputs[0]
        maker = small.get(source) if isinstance(source, Var) else None
    return maker
