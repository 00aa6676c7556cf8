"""Equations becoming nodes: what each owns, what it waits for."""

from __future__ import annotations

from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, equation, traced
from treadle.backends.devices import TARGETS
from treadle.fuse.grouping.nodes import Nodes
from treadle.ir.graph import Graph

X, N = array(3, 3), np.float32(2.0)


def nodes_of(function: Any, *args: Any) -> tuple[Graph, Nodes]:
    graph = traced(function, *args)
    return graph, Nodes(graph, TARGETS["reference"].lowering)


def test_what_is_part_of_kernels() -> None:
    graph, nodes = nodes_of(
        lambda x: (tnp.sum(tnp.tanh(x), 1), tnp.cumsum(x, 0), x @ x), X
    )
    computed = {eq.op.name for eq in graph.equations if nodes.computes(eq)}
    assert computed == {"tanh", "reduce_sum"}
    products = {eq.op.name for eq in graph.equations if nodes.is_product(eq)}
    assert products == {"dot_general"}


def wanted(function: Any, *args: Any) -> bool:
    """Whether the number n + 1 must be in memory."""
    graph, nodes = nodes_of(lambda n, *rest: function(n + 1.0, *rest), N, *args)
    (eq,) = [eq for eq in graph.equations if eq.inputs[0] is graph.inputs[0]]
    assert eq.outputs[0] in nodes.flow.inline
    return nodes.wanted_in_memory(eq)


def test_inline_values_that_others_read_are_wanted_in_memory() -> None:
    assert not wanted(lambda n, x: x * n, X)
    assert not wanted(lambda n: n * 2.0)
    assert wanted(lambda n: n)
    assert wanted(lambda n: (n[None, None], 1.0)[0])
    assert wanted(lambda n, x: tnp.concatenate([x, tnp.broadcast_to(n, (1, 3))]), X)
    assert wanted(lambda n, x: x @ tnp.broadcast_to(n, (3, 3)), X)
    assert not wanted(lambda n, x: x * tnp.broadcast_to(n, (3, 3)), X)


def test_an_index_need_not_be_in_memory_but_what_it_picks_from_must() -> None:
    graph, nodes = nodes_of(lambda x: x[tnp.arange(3)], X)
    index = equation(graph, "iota")
    assert not nodes.wanted_in_memory(index)
    graph, nodes = nodes_of(lambda i: tnp.arange(9)[i], array(3, dtype="int32"))
    assert nodes.wanted_in_memory(equation(graph, "iota"))


def test_a_node_waits_for_what_makes_its_operands() -> None:
    graph, nodes = nodes_of(lambda x: tnp.cumsum(tnp.cumprod(x, 0).T, 0), X)
    first, second = equation(graph, "cumprod"), equation(graph, "cumsum")
    nodes.alone(first)
    nodes.alone(second)
    a, b = nodes.order.topological()
    assert (a.equations, b.equations) == ([first], [second])
    assert nodes.order.depends(b, a)
    assert nodes.owner == {first.outputs[0]: a, second.outputs[0]: b}
    assert nodes.needs(first) == []
    assert (a.number, b.number, nodes.count) == (1, 2, 2)


def test_makers_of_inline_values_are_those_of_what_they_are_made_of() -> None:
    graph, nodes = nodes_of(lambda x: x * (tnp.sum(x) + 1.0), X)
    total, inline = equation(graph, "reduce_sum"), equation(graph, "add")
    cluster = nodes.cluster()
    cluster.equations.append(total)
    nodes.add(cluster, total)
    assert nodes.makers(inline.outputs[0], False) == [cluster]
    assert nodes.needs(equation(graph, "mul")) == [cluster]
    # Once it is in memory too, who reads it as a whole reads that.
    kept = nodes.cluster()
    kept.equations.append(inline)
    nodes.flow.kept.add(inline.outputs[0])
    nodes.add(kept, inline)
    assert nodes.makers(inline.outputs[0], True) == [kept]
    assert nodes.makers(inline.outputs[0], False) == [cluster]
    assert nodes.makers(graph.inputs[0], True) == []


def test_a_gather_reads_its_first_operand_whole() -> None:
    graph, nodes = nodes_of(lambda i: tnp.arange(9)[i] * 2, array(3, dtype="int32"))
    iota = equation(graph, "iota")
    node = nodes.cluster()
    nodes.flow.kept.add(iota.outputs[0])
    nodes.add(node, iota)
    assert nodes.needs(equation(graph, "gather")) == [node]


def test_effects_keep_their_order() -> None:
    def function(x: Any) -> Any:
        td.io_callback(print, None, x)
        y = tnp.cumsum(x, 0)
        td.io_callback(print, None, x)
        return y

    graph, nodes = nodes_of(function, X)
    for eq in graph.equations:
        nodes.alone(eq)
    first, pure, second = nodes.order.nodes
    assert nodes.order.depends(second, first)
    assert not nodes.order.depends(second, pure)
    assert not nodes.order.depends(pure, first)


def test_two_nodes_become_one_that_owns_what_both_did() -> None:
    graph, nodes = nodes_of(lambda x: (tnp.sin(x), tnp.cos(x)), X)
    made = []
    for eq in graph.equations:
        node = nodes.cluster()
        nodes.add(node, eq)
        made.append(node)
    a, b = made
    assert nodes.contract(a, b)
    assert set(nodes.owner.values()) == {a}
    assert nodes.order.nodes == [a]
    assert not nodes.contract(a, a)


def test_two_nodes_with_one_between_them_stay_apart() -> None:
    graph, nodes = nodes_of(lambda x: tnp.sin(tnp.cumsum(tnp.exp(x), 0)), X)
    for eq in graph.equations:
        nodes.alone(eq)
    first, _, last = nodes.order.nodes
    before = dict(nodes.owner)
    assert not nodes.contract(last, first)
    assert nodes.owner == before


def test_another_operand_takes_a_place() -> None:
    graph, nodes = nodes_of(lambda x, y: tnp.sin(x) + x, X, X)
    old, (x, y) = equation(graph, "add"), graph.inputs
    new = nodes.substitute(old, x, y)
    assert new.inputs == (old.inputs[0], y)
    assert (new.op, new.outputs, new.source) == (old.op, old.outputs, old.source)
    assert nodes.flow.maker[new.outputs[0]] is new
    assert nodes.position[id(new)] == nodes.position[id(old)] == 1
