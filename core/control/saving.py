"""What `remat` remembers: the values of a graph that a policy asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from treadle.arraytype import ArrayType
from treadle.control.graphs import cut, silent
from treadle.control.scan import scan
from treadle.ir.graph import Atom, Equation, Graph, Var
from treadle.ir.walk import effectful
from treadle.ops.identity import checkpoint_name

Policy = Callable[..., bool]


class Saving(NamedTuple):
    """A graph in two: what is computed the first time, and what the second.

    keeping: the graph; its `saved` values are there beside its results.
    again: gives `wanted` from the graph's inputs and the saved values.
    """

    keeping: Graph
    again: Graph
    saved: list[Var]


def plan_saving(graph: Graph, wanted: Sequence[Atom], policy: Policy | None) -> Saving:
    """Chooses, of the values that `wanted` is computed from, what a policy asks for.

    The results of effects are always kept: these happen once. Loops are opened: what
    the policy asks for in their bodies is stacked.
    """
    keeping, again = _opened(graph, policy)
    worth = [*_worth(graph, policy), *_stacks(graph, keeping)]
    # What has a name and is remembered is not needed without it.
    again, wanted = _renamed(again, wanted, worth)
    reached = reads(cut(again, [*graph.inputs, *worth], wanted))
    saved = [v for v in worth if v in reached]
    given = [*(v for v in graph.inputs if v in reached), *saved]
    return Saving(keeping, silent(_apart(cut(again, given, wanted))), saved)


def _apart(graph: Graph) -> Graph:
    """The graph whose equations make nothing that is given: of several results of one
    some may be remembered, and others not."""
    given = set(graph.inputs)
    equations = [
        Equation(
            eq.op,
            eq.inputs,
            eq.params,
            [Var(v.type) if v in given else v for v in eq.outputs],
            eq.source,
        )
        if not given.isdisjoint(eq.outputs)
        else eq
        for eq in graph.equations
    ]
    return Graph(graph.inputs, equations, graph.outputs, graph.name)


def reads(graph: Graph) -> set[Var]:
    """The variables that a graph reads."""
    used = [*(a for eq in graph.equations for a in eq.inputs), *graph.outputs]
    return {a for a in used if isinstance(a, Var)}


def _worth(known: Graph, policy: Policy | None) -> list[Var]:
    """The results worth remembering."""
    equations = silent(known).equations
    chosen = [
        bool(policy and policy(eq.op, *(a.type for a in eq.inputs), **eq.params))
        for eq in equations
    ]
    # A value whose name says that it is not to be remembered has the same numbers
    # before it gets that name.
    refused = {
        eq.inputs[0]
        for eq, keep in zip(equations, chosen, strict=True)
        if eq.op is checkpoint_name and not keep
    }
    found: list[Var] = []
    for eq, keep in zip(equations, chosen, strict=True):
        if effectful(eq):
            found += eq.outputs
        elif eq.op is scan:
            found += _worth_of_scan(eq, keep, policy)
        elif keep:
            named = eq.op is checkpoint_name
            found += [v for v in eq.outputs if named or v not in refused]
    return found


def _worth_of_scan(eq: Equation, keep: bool, policy: Policy | None) -> list[Var]:
    """Of the results of a loop: of what is stacked, that which is worth it in the
    body; what goes into the body is the loop's own."""
    body, n = eq.params["graph"], eq.params["n_carry"]
    inside = {*_worth(body, policy), *(body.inputs if keep else ())}
    rows = zip(eq.outputs[n:], body.outputs[n:], strict=True)
    carried = eq.outputs[:n] if keep else ()
    return [*carried, *(v for v, row in rows if row in inside)]


def _renamed(
    known: Graph, wanted: Sequence[Atom], worth: Sequence[Var]
) -> tuple[Graph, Sequence[Atom]]:
    """The graph, and what is wanted of it, with the values that are remembered by name
    in the places of those that got the name."""
    chosen = set(worth)
    names: dict[Any, Var] = {
        eq.inputs[0]: eq.outputs[0]
        for eq in known.equations
        if eq.op is checkpoint_name and eq.outputs[0] in chosen
    }
    if not names:
        return known, wanted

    def of(a: Atom) -> Atom:
        while a in names:
            a = names[a]
        return a

    equations = [
        Equation(eq.op, [of(a) for a in eq.inputs], eq.params, eq.outputs, eq.source)
        for eq in known.equations
    ]
    outputs = [of(a) for a in wanted]
    return Graph(known.inputs, equations, outputs, known.name), outputs


def _opened(graph: Graph, policy: Policy | None) -> tuple[Graph, Graph]:
    """The graph with loops that stack what is worth remembering in their bodies; and
    with loops that take such stacks."""
    keeping, again = [], []
    for eq in graph.equations:
        first, second = _opened_scan(eq, policy) if eq.op is scan else (eq, eq)
        keeping.append(first)
        again.append(second)
    both = [
        Graph(graph.inputs, equations, graph.outputs, graph.name)
        for equations in (keeping, again)
    ]
    return both[0], both[1]


def _opened_scan(eq: Equation, policy: Policy | None) -> tuple[Equation, Equation]:
    body, n, length = (eq.params[k] for k in ("graph", "n_carry", "length"))
    plan = plan_saving(body, body.outputs, policy)
    if not plan.saved:
        return eq, eq
    # Some are stacked anyway.
    known = dict(zip(body.outputs[n:], eq.outputs[n:], strict=True))
    new = [v for v in plan.saved if v not in known]
    known |= {v: Var(ArrayType((length, *v.type.shape), v.type.dtype)) for v in new}
    stacks = [known[v] for v in plan.saved]
    outs = [*body.outputs, *new]
    keeping = Graph(body.inputs, plan.keeping.equations, outs, body.name)
    inputs = [*body.inputs, *plan.saved]
    again = Graph(inputs, plan.again.equations, plan.again.outputs, body.name)
    return (
        _with(eq, keeping, eq.inputs, [*eq.outputs, *(known[v] for v in new)]),
        _with(eq, again, [*eq.inputs, *stacks], eq.outputs),
    )


def _with(
    eq: Equation, body: Graph, inputs: Sequence[Atom], outputs: Sequence[Var]
) -> Equation:
    return Equation(eq.op, inputs, eq.params | {"graph": body}, outputs, eq.source)


def _stacks(graph: Graph, keeping: Graph) -> list[Var]:
    """The results that loops have got by being opened."""
    return [
        v
        for old, new in zip(graph.equations, keeping.equations, strict=True)
        for v in new.outputs[len(old.outputs) :]
    ]
