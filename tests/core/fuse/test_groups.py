"""What is settled about a program before its kernels are written."""

from __future__ import annotations

from typing import Any

import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from treadle.backends.devices import TARGETS
from treadle.fuse.grouping.group import group
from treadle.fuse.groups import Groups
from treadle.ir.graph import Var
from treadle.passes.pipeline import optimise

TARGET = TARGETS["reference"]
X, W = array(4, 6), array(6, 5)


def groups_of(function: Any, *args: Any) -> Groups:
    return group(optimise(traced(function, *args), TARGET), TARGET.lowering)


def several(x: Any, w: Any) -> Any:
    y = tnp.tanh(x) @ w
    last, rows = td.scan(lambda c, r: (tnp.sin(c + r), c * 2.0), y[0], y)
    return tnp.sum(rows, 1), td.cond(last[0] > 0, tnp.exp, tnp.cumsum, last)


def test_every_value_has_one_owner_among_the_nodes() -> None:
    groups = groups_of(several, X, W)
    made = [v for node in groups.nodes for eq in node.equations for v in eq.outputs]
    assert len(set(made)) == len(made)
    for v, node in groups.owner.items():
        assert node in groups.nodes
        assert any(v in eq.outputs for eq in node.equations) or v in groups.flow.aliases


def test_nodes_are_in_an_order_in_which_they_can_run() -> None:
    groups = groups_of(several, X, W)
    number = {node: i for i, node in enumerate(groups.nodes)}
    reads = [
        (node, groups.owner[a])
        for node in groups.nodes
        for eq in node.equations
        for a in eq.inputs
        if isinstance(a, Var) and a in groups.owner
    ]
    assert len(reads) >= 4
    assert all(number[owner] <= number[node] for node, owner in reads)


def test_graphs_within_have_groups_of_their_own() -> None:
    groups = groups_of(several, X, W)
    loops = {eq.op.name: len(inner) for eq, inner in groups.inner.items()}
    assert loops == {"scan": 1, "cond": 2}
    for eq, inner in groups.inner.items():
        assert any(eq in node.equations for node in groups.nodes)
        for own, graph in zip(inner, eq.graphs, strict=True):
            assert isinstance(own, Groups)
            assert own.flow.graph.in_types == graph.in_types
            assert own.inner == {}
    assert groups_of(lambda x: tnp.exp(x), X).inner == {}


def test_nothing_of_it_changes_any_more() -> None:
    groups = groups_of(several, X, W)
    with pytest.raises(AttributeError):
        groups.nodes = ()  # type: ignore[misc]
    for table in (groups.owner, groups.built, groups.inner):
        with pytest.raises(TypeError):
            table[None] = None  # type: ignore[index]
