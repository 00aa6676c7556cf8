"""A graph in which values that were given up are computed again for later readers."""

from __future__ import annotations

from itertools import groupby

from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ir.walk import effectful
from treadle.ops.identity import optimization_barrier
from treadle.passes.dce import drop_dead
from treadle.plan.budget import Budget
from treadle.trace.lowering import Same


def compute_again(graph: Graph, budget: Budget) -> Graph:
    """The same graph, with less in memory at once."""
    return _Again(graph, budget).run()


class _Again:
    """The graph on its way.

    again: values by those that they are computed again for.
    """

    def __init__(self, graph: Graph, budget: Budget) -> None:
        self.graph, self.budget = graph, budget
        self.again: dict[Var, Var] = {}
        self.equations: list[Equation] = []
        self._trigger: Var | None = None
        """What was stored last; what is computed again waits for it."""
        self._stale: dict[tuple[Var, int], bool] = {}

    def run(self) -> Graph:
        graph = self.graph
        for time, group in groupby(self._ordered(), key=lambda pair: pair[0]):
            # What a node waits for stands before all of it, or it would run too late.
            now = [self._reading(eq, time) for _, eq in group]
            self.equations += now
            stored = [v for eq in now for v in eq.outputs if v in self.budget.lives]
            self._trigger = stored[-1] if stored else self._trigger
        return drop_dead(Graph(graph.inputs, self.equations, graph.outputs, graph.name))

    def _ordered(self) -> list[tuple[int, Equation]]:
        """The equations as they run, with the times of their nodes; what is no part of
        one (a view) directly follows what it is made of."""
        times: dict[Var, int] = {}
        found: list[tuple[int, Equation]] = []
        effects = -1
        for eq in self.graph.equations:
            given = [times[a] for a in eq.inputs if a in times]  # type: ignore[index]
            time = max(given, default=-1)
            if eq.outputs:
                time = max(time, self.budget.time_of.get(eq.outputs[0], -1))
            if effectful(eq):
                time = effects = max(time, effects)
            times.update(dict.fromkeys(eq.outputs, time))
            found.append((time, eq))
        return sorted(found, key=lambda pair: pair[0])

    def _reading(self, eq: Equation, time: int) -> Equation:
        """An equation that reads what there is at a time."""
        if eq.outputs and self.budget.time_of.get(eq.outputs[0]) is None:
            return eq
        inputs = [self._now(a, time) for a in eq.inputs]
        return Equation(eq.op, inputs, eq.params, eq.outputs, eq.source)

    def _now(self, a: Atom, time: int) -> Atom:
        """A value as it is found at a time."""
        if isinstance(a, Lit) or not self._is_stale(a, time):
            return a
        if a not in self.again:
            self._repeat(a, time)
        return self.again[a]

    def _is_stale(self, v: Var, time: int) -> bool:
        """Whether a value is made of one that has been given up, on its way to the node
        that reads it."""
        budget = self.budget
        if v not in budget.maker or budget.time_of.get(v) == time:
            return False
        if v in budget.lives:
            return not budget.there(v, time)
        if budget.flow.is_returned(v):
            return False
        key = v, time
        if key not in self._stale:
            self._stale[key] = self._can_repeat(v) and any(
                isinstance(a, Var) and self._is_stale(a, time)
                for a in budget.operands(v)
            )
        return self._stale[key]

    def _can_repeat(self, v: Var) -> bool:
        """Whether a value that is not stored is made where it is read: others that are
        not known to be stored are results of loops and the like."""
        flow = self.budget.flow
        passed_on = isinstance(self.budget.maker[v].op.lowering, Same)
        return (
            passed_on
            or flow.is_view(v)
            or v in flow.inline
            or v in flow.recomputed
            or v in flow.aliases
        )

    def _repeat(self, v: Var, time: int) -> None:
        """Computes a value again, behind a barrier: it must not be recognised as the
        one that was known, nor happen before it is needed."""
        order, leaves = self._walk(v, time)
        given = [*leaves, *([self._trigger] if self._trigger else [])]
        values: dict[Atom, Atom] = {}
        if given:
            behind = [Var(u.type) for u in given]
            source = self.budget.maker[v].source
            barrier = Equation(optimization_barrier, given, {}, behind, source)
            self.equations.append(barrier)
            values = dict(zip(leaves, behind, strict=False))
        values |= {u: self.again[u] for u in order if u in self.again}
        for u in order:
            if u in values:
                continue
            eq = self.budget.maker[u]
            if isinstance(eq.op.lowering, Same):
                (a,) = self.budget.operands(u)
                values[u] = values.get(a, a)
                continue
            outs = [Var(w.type) for w in eq.outputs]
            inputs = [values.get(a, a) for a in eq.inputs]
            self.equations.append(Equation(eq.op, inputs, eq.params, outs, eq.source))
            values.update(zip(eq.outputs, outs, strict=True))
            self.again.update(zip(eq.outputs, outs, strict=True))
        self.again[v] = values[v]  # type: ignore[assignment]

    def _walk(self, v: Var, time: int) -> tuple[list[Var], list[Var]]:
        """What has to be computed again for a value, operands first, and from what."""
        budget, order, leaves = self.budget, dict[Var, None](), dict[Var, None]()
        then = budget.next.get(v, time)
        todo = [(v, False)]
        while todo:
            u, ready = todo.pop()
            if ready:
                order[u] = None
            elif u not in order and u not in leaves:
                if u is not v and budget.there(u, then):
                    leaves[u] = None
                    continue
                if u is not v and u in budget.cut and u not in self.again:
                    self._repeat(u, time)
                if u in self.again:
                    order[u] = None
                    continue
                todo.append((u, True))
                operands = budget.operands(u)
                todo += [(a, False) for a in operands if isinstance(a, Var)]
        return list(order), list(leaves)
