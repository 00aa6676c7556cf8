"""The pipeline on one screen: Graph to Executable."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from treadle.backends.devices import TARGETS
from treadle.dims import Scope
from treadle.ir.graph import Graph
from treadle.passes.pipeline import optimise
from treadle.plan.plan import plan_graph
from treadle.plan.target import Target
from treadle.run.device import default
from treadle.run.execute import Executable
from treadle.run.sized import SizedProgram


def build(graph: Graph, target: Target, donated: tuple[int, ...] = ()) -> Executable:
    """Compiles a graph for a device.

    1. optimise: inline, simplify, merge equal equations, drop dead ones
    2. plan: equations to nodes (`fuse`), which become loop nests and contractions;
       nodes to steps; liveness; one arena
    3. link: kernels (compiled, or from the cache) and a command buffer
    """
    with _no_collection():
        graph = optimise(graph, target)
        plan = plan_graph(graph, target, donated)
        return Executable(graph, plan, target, donated)


def sized_program_of(
    graph: Graph, scope: Scope, donated: tuple[int, ...] = ()
) -> SizedProgram:
    """The compiled program of a graph whose sizes are open, for the default device."""
    with scope.compiling():
        return SizedProgram(scope, executable_of(graph, donated))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Holds Python's garbage collector off: everything that is made here is alive until
    the plan is done, so that searching it (and all modules, each time) finds nothing.
    None of the user's code runs meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def executable_of(
    graph: Graph, donated: tuple[int, ...] = (), device: str = ""
) -> Executable:
    """The compiled program of a graph whose inputs numbered in `donated` are given up,
    for the default device unless another one is named. Compiled once."""
    target = TARGETS[device or default().name]
    key = ("executable", donated, target.name)
    found = graph.cache.get(key)
    if found is None:
        found = graph.cache[key] = build(graph, target, donated)
        found.program_for = partial(executable_of, graph, donated)
    return found
