"""Graph to groups: settled, with the layouts decided and inner graphs grouped."""

from __future__ import annotations

from typing import Any

import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.evaluate import agrees
from tests.core.fuse.graphs import array, traced
from treadle.backends.devices import TARGETS
from treadle.fuse.check import check_groups
from treadle.fuse.grouping.group import group
from treadle.fuse.groups import Groups
from treadle.passes.pipeline import optimise

TARGET = TARGETS["reference"]
X, W = array(4, 4), array(4, 4)


def groups_of(function: Any, *args: Any) -> Groups:
    found = group(optimise(traced(function, *args), TARGET), TARGET.lowering)
    check_groups(found)
    return found


def test_nothing_changes_any_more() -> None:
    flow = groups_of(lambda x: tnp.tanh(x) + 1.0, X).flow
    with pytest.raises(AttributeError):
        flow.recomputed.add(flow.graph.inputs[0])
    with pytest.raises(TypeError):
        flow.parts[flow.graph.inputs[0]] = None  # type: ignore[index]


def test_layouts_of_all_products_are_decided() -> None:
    def function(x: Any, w: Any) -> Any:
        return (x @ w) @ (w @ x).T, tnp.sum(tnp.cumsum((x @ x).T, 0))

    flow = groups_of(function, X, W).flow
    products = [
        v
        for v, eq in flow.maker.items()
        if eq.op.name == "dot_general" and v not in flow.row_major
    ]
    assert products
    assert set(products) <= set(flow.orders)


def test_values_that_are_cheap_are_computed_again() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x * 2.0
        z = (tnp.sum(y + 1.0, 1)[:, None] * x) @ w
        return tnp.sum(tnp.exp(z) * y, 1)

    groups = groups_of(function, X, W)
    assert [groups.flow.maker[v].op.name for v in groups.flow.recomputed] == ["mul"]


def test_graphs_within_are_grouped() -> None:
    def function(x: Any) -> Any:
        def body(c: Any, r: Any) -> Any:
            return td.cond(c.sum() > 0, tnp.sin, lambda c: c * 2, c + r), None

        c, _ = td.scan(body, x[0], x)
        return td.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, c)

    groups = groups_of(function, X)
    inner = {eq.op.name: found for eq, found in groups.inner.items()}
    assert {name: len(found) for name, found in inner.items()} == {
        "scan": 1,
        "while_loop": 2,
    }
    ((branches),) = inner["scan"][0].inner.values()
    assert len(branches) == 2
    assert all(isinstance(g, Groups) for g in branches)


def test_what_the_target_lacks_is_alone() -> None:
    target = TARGETS["reference"]
    graph = optimise(traced(lambda x: tnp.tanh(tnp.exp(x)), X), target)
    asked = [eq.op.name for eq in graph.equations]
    groups = group(graph, target.lowering)
    assert [[eq.op.name for eq in n.equations] for n in groups.nodes] == [asked]


def test_kernels_that_are_written_already_are_handed_on() -> None:
    groups = agrees(lambda x, w: x @ w, X, W)
    ((product,),) = [node.equations for node in groups.nodes]
    assert product in groups.built


def test_loops_of_the_first_node_are_grouped() -> None:
    def function(x: Any) -> Any:
        return td.scan(lambda c, r: (c + r, c), tnp.zeros(4), x)

    groups = agrees(function, X)
    ((scan,),) = [node.equations for node in groups.nodes]
    assert list(groups.inner) == [scan]
