"""The pipeline on one screen: Graph to Executable."""

from __future__ import annotations

from treadle.backends.cpu.device import CPUTarget, Linked
from treadle.ir.graph import Graph
from treadle.passes.pipeline import optimise
from treadle.plan.plan import plan_graph
from treadle.run.execute import Executable


def build(graph: Graph, donated: tuple[int, ...] = ()) -> Executable:
    """Compiles a graph for the CPU.

    1. optimise: inline, simplify, merge equal equations, drop dead ones
    2. fuse: equations to nodes; nodes to loop nests and contractions
    3. plan: nodes to steps; liveness; one arena
    4. link: kernels (compiled, or from the cache) and a command buffer
    """
    graph = optimise(graph)
    plan = plan_graph(graph, CPUTarget(), donated)
    return Executable(graph, plan, Linked(plan), donated)


def executable_of(graph: Graph, donated: tuple[int, ...] = ()) -> Executable:
    """The compiled program of a graph whose inputs numbered in `donated` are given up.
    Compiled once."""
    key = ("executable", donated)
    found = graph.cache.get(key)
    if found is None:
        found = graph.cache[key] = build(graph, donated)
    return found
