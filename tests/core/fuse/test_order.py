"""The order among nodes: against a search of the edges, and its cost."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse import densities
from treadle.arraytype import ArrayType
from treadle.backends.cpu.device import CPUTarget
from treadle.compile import stages
from treadle.fuse.order import Node, Precedence
from treadle.ir.graph import Graph, Var


class Edges:
    """What `Precedence` keeps: pairs (later, earlier) of sets of numbers, of nodes."""

    def __init__(self) -> None:
        self.pairs: set[tuple[frozenset[int], frozenset[int]]] = set()

    def before(self, node: frozenset[int]) -> set[frozenset[int]]:
        """All nodes that must run before one; itself, if there is a cycle."""
        found: set[frozenset[int]] = set()
        waiting = [node]
        while waiting:
            late = waiting.pop()
            new = {b for a, b in self.pairs if a == late} - found
            found |= new
            waiting += new
        return found

    def added(self, node: frozenset[int], others: Iterable[frozenset[int]]) -> Edges:
        result = Edges()
        result.pairs = self.pairs | {(node, other) for other in others if other != node}
        return result

    def contracted(self, a: frozenset[int], b: frozenset[int]) -> Edges:
        result, one = Edges(), a | b
        renamed = {
            (one if x <= one else x, one if y <= one else y) for x, y in self.pairs
        }
        result.pairs = {(x, y) for x, y in renamed if x != y}
        return result

    def has_cycle(self) -> bool:
        return any(late in self.before(late) for late, _ in self.pairs)


class Both:
    """The same done to an `Precedence` and to `Edges`."""

    def __init__(self, r: random.Random) -> None:
        self.r, self.order, self.edges = r, Precedence(), Edges()
        self.sets: dict[Node, frozenset[int]] = {}
        self.refused = 0

    def step(self) -> None:
        nodes = list(self.sets)
        if len(nodes) < 3 or self.r.random() < 0.4:
            self.add()
        elif self.r.random() < 0.5:
            self.depend(self.r.choice(nodes), self.r.sample(nodes, self.r.randrange(3)))
        else:
            self.contract(*self.r.sample(nodes, 2))

    def add(self) -> None:
        node = Node(len(self.sets) + sum(len(s) - 1 for s in self.sets.values()))
        self.order.add(node)
        self.sets[node] = frozenset([node.number])

    def depend(self, node: Node, others: list[Node]) -> None:
        after = self.edges.added(self.sets[node], [self.sets[n] for n in others])
        self.done(self.order.can_depend(node, others), after)
        if self.done(self.order.depend(node, others), after):
            self.edges = after

    def contract(self, a: Node, b: Node) -> None:
        after = self.edges.contracted(self.sets[a], self.sets[b])
        self.done(self.order.can_contract(a, b), after)
        if self.done(self.order.contract(a, b), after):
            self.edges = after
            self.sets[a] |= self.sets.pop(b)

    def done(self, answer: bool, after: Edges) -> bool:
        assert answer == (not after.has_cycle())
        self.refused += not answer
        return answer

    def check(self) -> None:
        nodes = self.order.nodes
        assert set(nodes) == set(self.sets)
        for node in nodes:
            before = self.edges.before(self.sets[node])
            assert before == {
                self.sets[n] for n in nodes if self.order.depends(node, n)
            }
            direct = {b for a, b in self.edges.pairs if a == self.sets[node]}
            assert {self.sets[n] for n in node.needs} == direct
            assert all(node in n.users for n in node.needs)
            assert all(node in n.needs for n in node.users)


@given(st.integers(0, 2**32))
def test_the_order_is_that_of_its_edges(seed: int) -> None:
    both = Both(random.Random(seed))
    for _ in range(40):
        both.step()
        both.check()
    order = both.order.topological()
    assert sorted(n.number for n in order) == sorted(n.number for n in both.sets)
    for i, node in enumerate(order):
        assert node.needs <= set(order[:i])


def test_the_random_orders_are_worth_a_test() -> None:
    both = Both(random.Random(0))
    for _ in range(200):
        both.step()
    assert both.refused > 20
    assert 1 < len(both.sets) < 60
    assert len(both.edges.pairs) > 20


def nodes_of(order: Precedence, count: int) -> list[Node]:
    nodes = [Node(i) for i in range(count)]
    for node in nodes:
        order.add(node)
    return nodes


def test_nodes_that_wait_for_nothing_keep_their_places() -> None:
    order = Precedence()
    a, b, c, d = nodes_of(order, 4)
    assert order.depend(a, [c])
    assert order.topological() == [b, c, d, a]


def test_what_waits_does_so_in_rounds() -> None:
    order = Precedence()
    a, b, c, d, e = nodes_of(order, 5)
    assert order.depend(b, [e])
    assert order.depend(c, [b])
    assert order.depend(a, [c])
    assert order.topological() == [d, e, b, c, a]


def test_a_cycle_is_refused_and_changes_nothing() -> None:
    order = Precedence()
    a, b, c = nodes_of(order, 3)
    assert order.depend(b, [a])
    assert order.depend(c, [b])
    assert not order.depend(a, [c])
    assert not order.contract(c, a)
    assert not order.contract(a, c)
    assert not order.depends(a, c)
    assert not a.needs
    assert order.nodes == order.topological() == [a, b, c]


def test_nothing_is_done_if_one_of_several_can_t_be() -> None:
    order = Precedence()
    a, b, c = nodes_of(order, 3)
    assert order.depend(b, [a])
    assert not order.depend(a, [c, b])
    assert not order.depends(a, c)


def test_a_node_waits_for_itself_as_well_as_not() -> None:
    order = Precedence()
    a, b = nodes_of(order, 2)
    assert order.depend(a, [a, b])
    assert a.needs == {b}
    assert not order.depends(a, a)
    assert not order.can_contract(a, a)


def test_a_node_owns_what_it_took_in() -> None:
    order = Precedence()
    a, b, c = nodes_of(order, 3)
    x, y = (Var(ArrayType((), np.dtype(np.float32))) for _ in range(2))
    a.values.append(x)
    b.values.append(y)
    assert order.depend(b, [c])
    assert order.contract(a, b)
    assert a.values == [x, y]
    assert order.nodes == [a, c]
    assert order.depends(a, c)
    assert order.topological() == [c, a]


@pytest.mark.parametrize("seed", range(600, 640))
def test_gradients_of_densities_have_an_order(seed: int) -> None:
    program = densities.generate(seed)
    print(program.source())
    plan(td.jit(program.gradient()).graph(*program.arguments()))


def plan(graph: Graph) -> None:
    stages(graph, CPUTarget())


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
