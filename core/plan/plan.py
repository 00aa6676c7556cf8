"""Graph to Plan."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.ir.graph import Graph
from treadle.plan.control import CONTROL
from treadle.plan.donation import shared_memory
from treadle.plan.lowerings import NESTS
from treadle.plan.memory import assign
from treadle.plan.planner import HANDLERS, GraphPlanner, Planner
from treadle.plan.steps import Buffer, Place, Plan
from treadle.plan.target import Target


def plan_graph(graph: Graph, target: Target, donated: Iterable[int] = ()) -> Plan:
    """Plans a whole program; arguments numbered in `donated` may be overwritten."""
    planner = Planner(target, HANDLERS | NESTS | CONTROL)
    plan = planner.plan
    plan.inputs = [Buffer(t.nbytes, "input", i) for i, t in enumerate(graph.in_types)]
    plan.outputs = [
        Buffer(t.nbytes, "output", i) for i, t in enumerate(graph.out_types)
    ]
    inner = GraphPlanner(planner, graph)
    plan.steps = inner.run(
        list(map(Place, plan.inputs)), list(map(Place, plan.outputs))
    )
    assign(plan, planner.order)
    plan.shares = shared_memory(plan, planner.order, donated)
    return plan
