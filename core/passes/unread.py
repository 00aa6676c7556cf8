"""Scans without the results that nobody reads, and what only these are made of.

A cell that gives all its states may be asked for the last one only; a derivative may
need some of what was kept for it. A carry that neither is read after the loop nor leads
to anything that is goes, too.
"""

from __future__ import annotations

from treadle.control.scan import scan
from treadle.ir.graph import Equation, Graph, Var
from treadle.ir.walk import effectful, live
from treadle.passes.rewrite import mentions, rewrite_params, shared


def drop_unread(graph: Graph) -> Graph:
    """The same graph, whose scans give what is read; in nested graphs, too."""
    if not mentions(graph, (scan,)):
        return graph
    needed = {a for a in graph.outputs if isinstance(a, Var)}
    kept: list[Equation] = []
    for eq in reversed(graph.equations):
        if needed.isdisjoint(eq.outputs) and not effectful(eq):
            continue
        if eq.op is scan:
            eq = _read(eq, needed)
        elif eq.graphs:
            params = rewrite_params(eq, _Drop)
            eq = Equation(eq.op, eq.inputs, params, eq.outputs, eq.source)
        kept.append(eq)
        needed.update(a for a in eq.inputs if isinstance(a, Var))
    return shared(graph, kept[::-1], graph.outputs)


class _Drop:
    apply = staticmethod(drop_unread)


def _read(eq: Equation, needed: set[Var]) -> Equation:
    """A scan with those of its results that are needed."""
    body, first, count = (eq.params[k] for k in ("graph", "n_consts", "n_carry"))
    rows = [i for i, v in enumerate(eq.outputs) if i >= count and v in needed]
    carries = {k for k in range(count) if eq.outputs[k] in needed}
    while True:
        given = [*sorted(carries), *rows]
        wanted = [body.outputs[i] for i in given]
        equations, read = live(body.equations, wanted)
        leading = {k for k in range(count) if body.inputs[first + k] in read}
        if leading <= carries:
            break
        carries |= leading
    inner = drop_unread(Graph(body.inputs, equations, wanted, body.name))
    if len(given) == len(eq.outputs) and inner.equations == body.equations:
        return eq
    _, read = live(inner.equations, wanted)
    carried = {first + k for k in carries}
    numbers = [i for i, v in enumerate(body.inputs) if v in read or i in carried]
    inputs = [body.inputs[i] for i in numbers]
    params = eq.params | {
        "graph": Graph(inputs, inner.equations, wanted, body.name),
        "n_consts": sum(i < first for i in numbers),
        "n_carry": len(carries),
    }
    operands = [eq.inputs[i] for i in numbers]
    outputs = [eq.outputs[i] for i in given]
    return Equation(eq.op, operands, params, outputs, eq.source)
