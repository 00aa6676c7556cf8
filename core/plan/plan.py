"""Schedule to Plan: steps in order, places in memory, one arena."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from treadle.ir.graph import Graph
from treadle.plan.control import CONTROL
from treadle.plan.donation import shared_memory
from treadle.plan.memory import assign
from treadle.plan.planner import HANDLERS, GraphPlanner, Planner
from treadle.plan.schedule import Schedule
from treadle.plan.steps import Outline, Place, Plan
from treadle.plan.zone import gather


def place(
    schedule: Schedule,
    graph: Graph,
    donated: Iterable[int] = (),
    sparing: bool = False,
) -> Plan:
    """Plans a whole program with the inputs and results of a graph; arguments numbered
    in `donated` may be overwritten.

    sparing: whether memory matters more than time.
    """
    planner = Planner(_outline(graph), HANDLERS | CONTROL)
    plan = planner.plan
    plan.threads = schedule.threads
    inner = GraphPlanner(planner, schedule)
    plan.steps = inner.run(
        list(map(Place, plan.inputs)), list(map(Place, plan.outputs))
    )
    if not sparing:
        gather(plan, planner.order)
    assign(plan, planner.order)
    plan.shares = shared_memory(plan, planner.order, donated)
    return plan


def _outline(graph: Graph) -> Outline:
    # By type: there are few of them, and to add up sizes that are open takes long.
    types = Counter([v.type for eq in graph.equations for v in eq.outputs])
    return Outline(
        graph.name,
        tuple(graph.in_types),
        tuple(graph.out_types),
        len(graph.equations),
        sum([count * t.nbytes for t, count in types.items()]),
    )
