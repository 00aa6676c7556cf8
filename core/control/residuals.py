"""What a loop body must remember of each iteration for its linear part.

A linearized body gives more values than it has to: some don't change from iteration to
iteration, some are inputs or results of the loop already, and some are a few cheap
operations away from others. Memory traffic is what a backward pass costs, so each of
these is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treadle.control.graphs import cut
from treadle.ir.graph import Atom, Equation, Graph, Var
from treadle.ir.scalar import SCALARS
from treadle.ir.walk import effectful
from treadle.trace.lowering import Elementwise, Index, View, written


def _is_cheap(eq: Equation) -> bool:
    """Whether computing an equation is no dearer than reading its result."""
    how = eq.op.lowering
    if isinstance(how, Elementwise):
        return sum(SCALARS[s.name].cost for s in written(eq)) <= 1
    return isinstance(how, Index | View)


class Residuals(NamedTuple):
    """Where the linear part of a loop body finds what it needs.

    consts, xs, ys: inputs and outputs of the body (its variables) that the loop has
      anyway, as loop constants, scanned inputs and stacked results.
    hoisted: computed from the loop constants alone, so once rather than in each
      iteration.
    stored: to be stacked by the loop.
    recompute: the graph from all of these, in this order, to the values wanted.
    """

    consts: list[Var]
    hoisted: list[Var]
    xs: list[Var]
    ys: list[Var]
    stored: list[Var]
    recompute: Graph


def plan_residuals(
    body: Graph, n_consts: int, n_carry: int, n_outs: int, wanted: Sequence[Atom]
) -> Residuals:
    """Chooses what to remember so that `wanted` can be had again.

    Args:
      body: its inputs are constants, carries and scanned inputs; its first `n_outs`
        outputs carries and stacked results.
      wanted: values of the body.
    """
    search = _Search(body, n_consts, n_carry, n_outs)
    needed = search.run({a for a in wanted if isinstance(a, Var)})
    order = [*body.inputs, *(v for eq in body.equations for v in eq.outputs)]
    kept = [(search.group(v), v) for v in order if v in needed]
    consts, hoisted, xs, ys, stored = (
        [v for group, v in kept if group == name]
        for name in ("const", "hoisted", "x", "y", "stored")
    )
    recompute = cut(body, [*consts, *hoisted, *xs, *ys, *stored], wanted)
    return Residuals(consts, hoisted, xs, ys, stored, recompute)


class _Search:
    """Walks from the wanted values up to those that are cheapest to have."""

    def __init__(self, body: Graph, n_consts: int, n_carry: int, n_outs: int) -> None:
        self.body = body
        self.consts = set(body.inputs[:n_consts])
        self.xs = set(body.inputs[n_consts + n_carry :])
        self.ys = {a for a in body.outputs[n_carry:n_outs] if isinstance(a, Var)}
        self.fixed: set[Var] = set(self.consts)
        self.constant: set[Var] = set()
        for eq in body.equations:
            if effectful(eq):
                continue
            used = [a for a in eq.inputs if isinstance(a, Var)]
            if all(a in self.fixed for a in used):
                self.fixed.update(eq.outputs)
            if all(a in self.constant for a in used):
                self.constant.update(eq.outputs)

    def group(self, v: Var) -> str:
        if v in self.consts:
            return "const"
        if v in self.fixed:
            return "hoisted"
        if v in self.xs:
            return "x"
        return "y" if v in self.ys else "stored"

    def run(self, needed: set[Var]) -> set[Var]:
        changed = True
        while changed:
            changed = False
            for eq in reversed(self.body.equations):
                if len(eq.outputs) == 1 and eq.outputs[0] in needed:
                    changed |= self.replace(eq, needed)
        return needed

    def replace(self, eq: Equation, needed: set[Var]) -> bool:
        """Puts an equation's inputs in the place of its result, if that is no loss."""
        v = eq.outputs[0]
        inputs = {a for a in eq.inputs if isinstance(a, Var)}
        if v in self.fixed:
            # Views cost nothing; a computed constant may be an index pattern, which is
            # cheaper to make again than to read. Anything else is computed once.
            cheap = isinstance(eq.op.lowering, View) or (
                v in self.constant and _is_cheap(eq)
            )
        else:
            new = inputs - needed - self.fixed - self.xs - self.ys
            cheap = (
                _is_cheap(eq)
                and v not in self.ys
                and sum(a.type.nbytes for a in new) <= v.type.nbytes
            )
        if cheap:
            needed.discard(v)
            needed |= inputs
        return cheap
