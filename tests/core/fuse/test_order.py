"""The order among nodes: against reachability searched anew, and its cost."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse import densities
from treadle.backends.cpu.device import CPUTarget
from treadle.fuse.order import Node, in_order
from treadle.ir.graph import Graph
from treadle.passes.pipeline import optimise
from treadle.plan.plan import plan_graph

LENGTH = 24


def reachable(node: Node) -> set[Node]:
    """All nodes that must run before one."""
    found: set[Node] = set()
    waiting = [node]
    while waiting:
        new = waiting.pop().needs - found
        found |= new
        waiting += new
    return found


def grow(r: random.Random) -> list[Node]:
    """Nodes that run after each other, some of which became one."""
    nodes: list[Node] = []
    for number in range(LENGTH):
        node = Node(number)
        for other in r.sample(nodes, min(len(nodes), r.randrange(4))):
            node.run_after(other)
        nodes.append(node)
        late, early = r.choice(nodes), r.choice(nodes)
        near = [n for n in nodes if n in late.needs and late.meets(n)]
        if near and r.random() < 0.5:
            late.take_in(near[0])
            nodes.remove(near[0])
        elif late is not early and not early.runs_after(late):
            late.run_after(early)
    return nodes


@pytest.mark.parametrize("seed", range(50))
def test_nodes_know_all_that_must_run_before_them(seed: int) -> None:
    nodes = grow(random.Random(seed))
    for node in nodes:
        assert {n for n in nodes if node.runs_after(n)} == reachable(node)
        assert all(node in n.users for n in node.needs)
    assert 1 < len(nodes) < LENGTH


@pytest.mark.parametrize("seed", range(50))
def test_nodes_come_after_those_that_they_need(seed: int) -> None:
    nodes = grow(random.Random(seed))
    random.Random(-seed).shuffle(nodes)
    order = in_order(nodes)
    assert sorted(n.number for n in order) == sorted(n.number for n in nodes)
    for i, node in enumerate(order):
        assert node.needs <= set(order[:i])


def test_nodes_that_wait_for_nothing_keep_their_places() -> None:
    a, b, c, d = map(Node, range(4))
    a.run_after(c)
    assert in_order([a, b, c, d]) == [b, c, d, a]


@pytest.mark.parametrize("seed", range(600, 640))
def test_gradients_of_densities_have_an_order(seed: int) -> None:
    program = densities.generate(seed)
    print(program.source())
    plan(td.jit(program.gradient()).graph(*program.arguments()))


def plan(graph: Graph) -> None:
    plan_graph(optimise(graph), CPUTarget())


def unrolled(length: int) -> Graph:
    """The gradient of a program of so many like steps."""

    def loss(x: Any, w: Any) -> Any:
        for _ in range(length):
            x = tnp.tanh(tnp.roll(x, 1, axis=0) @ w - tnp.sum(x, 1, keepdims=True))
        return tnp.sum(x)

    w = tnp.asarray(np.full((4, 4), 0.1, np.float32))
    return td.jit(td.grad(loss)).graph(tnp.ones((4, 4)), w)


def lines_to_plan(graph: Graph) -> int:
    """How many lines of Python run to plan a graph: unlike time, the same each time."""
    count = 0

    def line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    previous = sys.gettrace()
    sys.settrace(lambda *_: line)
    try:
        plan(graph)
    finally:
        sys.settrace(previous)
    return count


def test_planning_takes_time_in_proportion_to_the_length() -> None:
    assert lines_to_plan(unrolled(120)) < 4.2 * lines_to_plan(unrolled(30))
