"""The checker of Groups refuses each kind of mistake."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from treadle.backends.devices import TARGETS
from treadle.errors import InternalError
from treadle.fuse.check import check_groups, inside, places
from treadle.fuse.cluster import Cluster
from treadle.fuse.grouping.group import group
from treadle.fuse.groups import Groups
from treadle.ir.graph import Var
from treadle.ir.maps import Affine
from treadle.passes.pipeline import optimise

TARGET = TARGETS["reference"]
X = array(3, 4)


def grouped(function: Callable[..., Any], *args: Any) -> Groups:
    return group(optimise(traced(function, *args), TARGET), TARGET.lowering)


def refused(groups: Groups, why: str) -> None:
    with pytest.raises(InternalError, match=why):
        check_groups(groups)


def softmax(x: Any) -> Any:
    e = tnp.exp(tnp.cumsum(x, 1))
    return e / tnp.sum(e, 1)[:, None]


def test_nodes_stand_after_what_they_need() -> None:
    groups = grouped(softmax, X)
    check_groups(groups)
    refused(groups._replace(nodes=groups.nodes[::-1]), "before what it reads")
    groups.nodes[1].equations.reverse()
    refused(groups, "before what it reads")


def test_each_equation_is_in_one_node() -> None:
    groups = grouped(softmax, X)
    refused(groups._replace(nodes=groups.nodes[:1]), "is in no node")
    refused(groups._replace(nodes=(*groups.nodes, groups.nodes[0])), "in two nodes")
    owner = dict.fromkeys(groups.owner, groups.nodes[0])
    refused(groups._replace(owner=owner), "another one makes")


def test_views_and_inline_values_are_in_no_node() -> None:
    groups = grouped(lambda x: tnp.exp(x).T * (x.sum() + 1.0), X)
    check_groups(groups)
    (scalar,) = groups.flow.inline
    groups.nodes[0].equations.append(groups.flow.maker[scalar])
    refused(
        groups._replace(owner=dict(groups.owner) | {scalar: groups.nodes[0]}), "inline"
    )


def test_what_is_computed_again_is_not_read_from_memory() -> None:
    """Its readers need what it is made from."""

    def function(x: Any, w: Any) -> Any:
        y = tnp.cumsum(x, 1) * 2.0
        z = (tnp.sum(y + 1.0, 1)[:, None] * x) @ w
        return tnp.sum(tnp.exp(z) * y, 1)

    groups = grouped(function, array(4, 4), array(4, 4))
    assert groups.flow.recomputed
    check_groups(groups)
    first, *rest = groups.nodes
    refused(groups._replace(nodes=(*rest, first)), "before what it reads")


def test_results_are_in_memory() -> None:
    groups = grouped(softmax, X)
    groups.flow.results = MappingProxyType({0: groups.nodes[1].equations[0].outputs[0]})
    check_groups(groups)
    stray = Var(groups.nodes[0].equations[0].outputs[0].type)
    groups.flow.results = MappingProxyType({0: stray})
    refused(groups, "result 0 is in no memory")


def test_tables_are_frozen() -> None:
    groups = grouped(softmax, X)
    groups.flow.inline = set(groups.flow.inline)
    refused(groups, "table 'inline'")
    groups = grouped(softmax, X)
    groups.flow.parts = {}
    refused(groups, "table 'parts'")


def test_parts_lie_side_by_side() -> None:
    groups = grouped(lambda x: tnp.concatenate([tnp.exp(x), tnp.sin(x)], 1), X)
    check_groups(groups)
    parts = dict(groups.flow.parts)
    (first, (whole, _, strides)), (second, _) = parts.items()
    for offset, steps, why in (
        (5, strides, "leaves its whole"),
        (-1, strides, "leaves its whole"),
        (3, strides, "overlap"),
        (4, (0, 1), "overlap"),
    ):
        parts[second] = whole, offset, steps
        groups.flow.parts = MappingProxyType(parts)
        refused(groups, why)
    parts[second] = whole, 4, strides
    parts[groups.flow.graph.inputs[0]] = parts.pop(first)
    groups.flow.parts = MappingProxyType(parts)
    refused(groups, "no node makes")


def cluster(groups: Groups) -> Cluster:
    return next(n for n in groups.nodes if isinstance(n, Cluster))


def test_index_maps_stay_inside_of_their_values() -> None:
    groups = grouped(softmax, X)
    one = cluster(groups)
    v = one.equations[0].outputs[0]
    rows, columns = one.space.maps[v]
    for entries, why in (
        ((rows, Affine(1, columns.terms)), "leaves the result of exp"),
        ((columns, rows), "leaves the result of exp"),
        ((rows,), "no index map of exp"),
    ):
        one.space.maps[v] = entries
        refused(groups, why)
    del one.space.maps[v]
    refused(groups, "no index map of exp")


def test_reduced_dimensions_are_dimensions_of_a_form() -> None:
    groups = grouped(softmax, X)
    cluster(groups).form = None
    refused(groups, "form None")
    cluster(groups).reduced = frozenset({7})
    refused(groups, "reduces a dimension that it has not")


def test_bodies_of_loops_are_checked() -> None:
    groups = grouped(lambda x: td.scan(lambda c, r: (tnp.sin(c + r), r), x[0], x), X)
    check_groups(groups)
    ((eq, (inner,)),) = groups.inner.items()
    refused(groups._replace(inner={eq: (inner._replace(nodes=()),)}), "in no node")
    other = groups.nodes[0].equations[0]
    refused(groups._replace(inner={other: (inner,)}), "runs no graph")


@pytest.mark.parametrize("seed", range(15))
def test_inside_and_places_agree(seed: int) -> None:
    r = np.random.default_rng(seed)
    loops = [(int(r.integers(0, 4)), int(r.integers(-3, 4))) for _ in range(3)]
    offset = int(r.integers(-2, 9))
    at = places(offset, loops)
    # A loop that does not step is there once, however long it is.
    stepping = [(n if step else 1, step) for n, step in loops]
    wanted = [
        offset + sum(i * step for i, (_, step) in zip(index, stepping, strict=True))
        for index in np.ndindex(*(n for n, _ in stepping))
    ]
    assert sorted(at) == sorted(wanted)
    for size in range(12):
        assert inside(offset, loops, size) == all(0 <= i < size for i in wanted)
