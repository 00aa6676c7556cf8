"""Small kernels and plans, to ask the planner's parts about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.core.fuse.graphs import traced
from treadle.backends.devices import TARGETS
from treadle.fuse.grouping.group import group
from treadle.fuse.lowering.launches import Kernels
from treadle.fuse.lowering.lower import lower
from treadle.ir.graph import Graph
from treadle.passes.pipeline import optimise
from treadle.plan.plan import place
from treadle.plan.schedule import Schedule, schedule
from treadle.plan.steps import Plan

TARGET = TARGETS["reference"]


def kernels_of(function: Callable[..., Any], *args: Any) -> tuple[Graph, Kernels]:
    graph = optimise(traced(function, *args), TARGET)
    return graph, lower(group(graph, TARGET.lowering))


def scheduled(function: Callable[..., Any], *args: Any) -> tuple[Graph, Schedule]:
    graph, kernels = kernels_of(function, *args)
    return graph, schedule(kernels, TARGET)


def plan_of(function: Callable[..., Any], *args: Any, donated: Any = ()) -> Plan:
    graph, found = scheduled(function, *args)
    return place(found, graph, donated)
