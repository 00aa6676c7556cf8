"""Who could compute a value, and who needs it in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import treadle.numpy as tnp
from tests.core.fuse.graphs import array, equation, grouped, program_of, traced
from treadle.fuse.cluster import Cluster
from treadle.fuse.roles import is_fused, stored_members
from treadle.ir.graph import Equation, Var

X = array(4, 5)
INDEX = array(3, dtype="int32")


@pytest.mark.parametrize(
    ("read", "name", "fused"),
    [
        (lambda y, i: y + 1.0, "add", True),
        (lambda y, i: tnp.sum(y, 1), "reduce_sum", True),
        (lambda y, i: tnp.transpose(y), "transpose", True),
        (lambda y, i: y @ tnp.transpose(y), "dot_general", False),
        (lambda y, i: tnp.cumsum(y, 1), "cumsum", False),
        (lambda y, i: tnp.concatenate([y, y]), "concatenate", False),
        # What is indexed must be in memory; an index need not.
        (lambda y, i: tnp.take(y, i, 0), "gather", False),
    ],
)
def test_is_fused(read: Callable[..., Any], name: str, fused: bool) -> None:
    graph = traced(lambda x, i: read(tnp.tanh(x), i), X, INDEX)
    value = equation(graph, "tanh").outputs[0]
    assert is_fused(equation(graph, name), value, program_of(graph)) == fused


def test_an_index_can_be_computed_where_it_is_used() -> None:
    graph = traced(lambda x, i: tnp.take(x, i, 0), X, INDEX)
    gather = equation(graph, "gather")
    value = gather.inputs[1]
    assert value not in graph.inputs  # where it is negative, it counts from the end
    assert isinstance(value, Var)
    flow = program_of(graph)
    assert is_fused(gather, value, flow)
    assert not is_fused(gather, graph.inputs[0], flow)


def test_memory_under_another_name_is_read_whole() -> None:
    graph = traced(lambda x: tnp.reshape(tnp.tanh(x), (20,)), X)
    flow, seen = program_of(graph), equation(graph, "reshape")
    value = equation(graph, "tanh").outputs[0]
    assert is_fused(seen, value, flow)
    flow.aliases[seen.outputs[0]] = value
    assert not is_fused(seen, value, flow)


def stored(function: Callable[..., Any], *args: Any) -> set[str]:
    """The names of what clusters store."""
    part = grouped(function, *args)
    return {
        part.flow.maker[v].op.name
        for node in part.nodes
        if isinstance(node, Cluster)
        for v in stored_members(node, part)
    }


def test_only_what_others_need_is_stored() -> None:
    assert stored(lambda x: tnp.tanh(x) + 1.0, X) == {"add"}
    assert stored(lambda x: (tnp.tanh(x) + 1.0) @ tnp.ones((5, 2)), X) == {"add"}


def test_results_are_stored() -> None:
    def both(x: Any) -> Any:
        y = tnp.tanh(x)
        return y, y + 1.0

    assert stored(both, X) == {"tanh", "add"}


def test_results_seen_through_views_are_stored() -> None:
    def both(x: Any) -> Any:
        y = tnp.tanh(x)
        return tnp.reshape(y, (20,)), y + 1.0

    assert stored(both, X) == {"tanh", "add"}


def test_what_other_nodes_read_is_stored() -> None:
    def apart(x: Any) -> Any:
        y = tnp.tanh(x)
        return y @ tnp.transpose(y) + tnp.sum(y + 1.0, 1)

    assert "tanh" in stored(apart, X)


def test_what_is_computed_again_is_not_stored() -> None:
    part = grouped(lambda x: tnp.tanh(x) @ tnp.ones((5, 2)), X)
    (node,) = [n for n in part.nodes if isinstance(n, Cluster)]
    (value,) = node.equations[0].outputs
    assert isinstance(value, Var)
    assert stored_members(node, part) == {value}
    part.flow.recomputed.add(value)
    assert stored_members(node, part) == set()


def test_an_alias_is_read_by_others_whoever_owns_it() -> None:
    part = grouped(lambda x: tnp.tanh(x) + 1.0, X)
    (node,) = part.nodes
    first, second = (eq.outputs[0] for eq in node.equations)
    assert stored_members(node, part) == {second}
    part.flow.aliases[second] = first
    assert stored_members(node, part) == {first, second}


def test_what_is_inline_is_in_memory_for_others() -> None:
    part = grouped(lambda x: tnp.tanh(x) + 1.0, X)
    (node,) = part.nodes
    first, second = (eq.outputs[0] for eq in node.equations)
    part.flow.inline.add(first)
    assert stored_members(node, part) == {first, second}


def test_what_an_effect_reads_is_stored() -> None:
    part = grouped(lambda x: tnp.tanh(x) + 1.0, X)
    (node,) = part.nodes
    first, second = (eq.outputs[0] for eq in node.equations)
    effect = Equation(node.equations[0].op, [first], {}, [])
    part.flow.readers[first].append(effect)
    assert stored_members(node, part) == {first, second}
