"""Whose zeros have a sign that somebody sees.

A sum begins with 0: it is never -0.0, and the signs of zeros that it adds are lost.
"""

from __future__ import annotations

from treadle.ir.graph import Atom, Equation, Graph
from treadle.trace.lowering import Contraction, Reduction, View


def adds(eq: Equation) -> bool:
    """Whether an equation's results are sums of what it reads, or of products of it."""
    how = eq.op.lowering
    if isinstance(how, Contraction):
        return bool(eq.params["contract"][0])
    return isinstance(how, Reduction) and how.combine == "sum"


def signs_seen(graph: Graph) -> set[Atom]:
    """The values of whose zeros something depends on the sign. All others are read by
    sums only, themselves or in other places."""
    seen: set[Atom] = set(graph.outputs)
    for eq in reversed(graph.equations):
        if adds(eq):
            continue
        view = isinstance(eq.op.lowering, View)
        if not view or not seen.isdisjoint(eq.outputs):
            seen.update(eq.inputs)
    return seen


class Unsigned:
    """The values without -0.0 that are known so far: sums, and views of them."""

    def __init__(self) -> None:
        self._known: set[Atom] = set()

    def add(self, eq: Equation) -> None:
        """Takes in an equation, after those that made its operands. A sum in it must
        have terms."""
        view = isinstance(eq.op.lowering, View) and eq.inputs[0] in self._known
        if view or adds(eq):
            self._known.update(eq.outputs)

    def __contains__(self, a: Atom) -> bool:
        return a in self._known
