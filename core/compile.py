"""The pipeline on one screen: Graph to Executable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from treadle.backends import plans
from treadle.backends.devices import TARGETS
from treadle.dims import Scope
from treadle.events import compiling
from treadle.fitting import fitting
from treadle.fuse.grouping.group import group
from treadle.fuse.groups import Groups
from treadle.fuse.lowering.launches import Kernels
from treadle.fuse.lowering.lower import lower
from treadle.ir.filled import filled
from treadle.ir.graph import Graph
from treadle.late import Value
from treadle.passes.pipeline import optimise
from treadle.plan.alike import joined
from treadle.plan.plan import place
from treadle.plan.schedule import Schedule, schedule
from treadle.plan.slight import marked
from treadle.plan.steps import Plan
from treadle.plan.target import Target
from treadle.plan.weight import weighed
from treadle.run.collector import no_collection
from treadle.run.device import default
from treadle.run.execute import Executable
from treadle.run.sized import SizedProgram


class Stages(NamedTuple):
    """A program on its way: what each stage makes of what the one before made.

    graph: an equivalent, cheaper one (`optimise`).
    groups: which equations run together, and which values are stored (`group`).
    kernels: loop nests and contractions on values, in order (`lower`).
    schedule: how the device runs each (`schedule`).
    plan: steps, and where values lie, in one arena (`place`).
    """

    graph: Graph
    groups: Groups
    kernels: Kernels
    schedule: Schedule
    plan: Plan


@no_collection()  # one of all there is fell into loading LLVM
def begin() -> None:
    """Readies the default device: for when the first program is about to be traced."""
    TARGETS[default().name].begin()


def stages(
    graph: Graph,
    target: Target,
    donated: tuple[int, ...] = (),
    memory_limit: int | None = None,
) -> Stages:
    """Plans a graph for a device, with an arena of at most so many bytes.

    Raises:
      MemoryError: if the arena can't be made as small.
    """
    target.foresee(graph, optimised=False)
    graph = optimise(graph, target)
    target.foresee(graph, optimised=True)
    if memory_limit is None:
        return _optimised(graph, target, donated, target.ready)
    # Which kernels it will be is not known before it fits.
    plan_of = partial(_optimised, target=target, donated=donated, sparing=True)
    return fitting(_optimised(graph, target, donated), memory_limit, plan_of)


def _optimised(
    graph: Graph,
    target: Target,
    donated: tuple[int, ...],
    ready: Callable[[Kernels], None] = lambda kernels: None,
    sparing: bool = False,
) -> Stages:
    groups = group(graph, target.lowering, target.chosen)
    kernels = marked(joined(weighed(lower(groups))))
    ready(kernels)
    scheduled = schedule(kernels, target)
    plan = place(scheduled, graph, donated, sparing)
    return Stages(graph, groups, kernels, scheduled, plan)


def build(graph: Graph, target: Target, donated: tuple[int, ...] = ()) -> Executable:
    """Compiles a graph for a device: plans it, then links machine code and commands."""
    with compiling(graph.name, len(graph.equations)), no_collection():
        return Executable(_planned(graph, target, donated), target, donated)


def build_sized(
    graph: Graph,
    scope: Scope,
    target: Target,
    donated: tuple[int, ...] = (),
    memory_limit: int | None = None,
) -> SizedProgram:
    """Compiles a graph whose sizes are open: they are the dimensions of a scope."""
    announced = compiling(graph.name, len(graph.equations))
    with announced, no_collection(), scope.compiling():
        plan = _planned(graph, target, donated, scope, memory_limit)
        return SizedProgram(scope, plan, target, donated)


def _planned(
    graph: Graph,
    target: Target,
    donated: tuple[int, ...],
    scope: Scope | None = None,
    memory_limit: int | None = None,
) -> Plan:
    """The plan that some process has made of an equal graph, or a new one."""
    key = plans.key_of(graph, target, donated, scope, memory_limit)
    plan = plans.load(key, graph, scope) if key else None
    if plan is None:
        since = scope.extent if scope else (0, 0)
        plan = stages(graph, target, donated, memory_limit).plan
        if key:
            plans.store(key, plan, graph, scope, since)
    return plan


def executable_of(
    graph: Graph,
    donated: tuple[int, ...] = (),
    device: str = "",
    memory_limit: int | None = None,
) -> Executable:
    """The compiled program of a graph whose inputs numbered in `donated` are given up,
    for the default device unless another one is named. Compiled once."""
    target = TARGETS[device or default().name]
    key = ("executable", donated, target.name, memory_limit)
    found = graph.cache.get(key)
    if found is None:
        with compiling(graph.name, len(graph.equations)), no_collection():
            plan = plan_of(graph, donated, device, memory_limit)
            found = graph.cache[key] = Executable(plan, target, donated)
        again = partial(executable_of, memory_limit=memory_limit)
        found.program_for = partial(again, graph, donated)
    return found


def plan_of(
    graph: Graph,
    donated: tuple[int, ...] = (),
    device: str = "",
    memory_limit: int | None = None,
) -> Plan:
    """The plan of `executable_of`, whether or not that has been linked."""
    target = TARGETS[device or default().name]
    key = ("plan", donated, target.name, memory_limit)
    found = graph.cache.get(key)
    if found is None:
        with no_collection():
            found = graph.cache[key] = _planned(
                graph, target, donated, memory_limit=memory_limit
            )
    return found


def sized_program_of(
    graph: Graph,
    scope: Scope,
    donated: tuple[int, ...] = (),
    memory_limit: int | None = None,
) -> SizedProgram:
    """The compiled program of a graph whose sizes are open, for the default device; for
    others the program for given sizes is compiled once more."""

    def elsewhere(value_of: Value, device: str) -> Executable:
        return executable_of(filled(graph, value_of), donated, device, memory_limit)

    target = TARGETS[default().name]
    program = build_sized(graph, scope, target, donated, memory_limit)
    program.elsewhere = elsewhere
    return program
