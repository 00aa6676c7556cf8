"""How clusters grow and merge, and how views are made in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse.evaluate import agrees
from tests.core.fuse.graphs import array, equation, traced
from tests.core.fuse.lowering.alone import normal
from treadle.backends.devices import TARGETS
from treadle.fuse.cluster import Cluster
from treadle.fuse.grouping import growth
from treadle.fuse.grouping.growth import Growth
from treadle.ir.graph import Graph, Lit, Var
from treadle.ir.maps import Affine
from treadle.trace.lowering import View

X, Y = array(3, 4), array(3, 4)


def grown(function: Callable[..., Any], *args: Any) -> tuple[Graph, Growth]:
    """All fusable equations of a function, joined or begun; others alone."""
    graph = traced(function, *args)
    found = Growth(graph, TARGETS["reference"].lowering)
    for eq in graph.equations:
        if isinstance(eq.op.lowering, View) or eq.outputs[0] in found.flow.inline:
            continue
        if not found.computes(eq):
            found.alone(eq)
        elif not found.join_one(eq):
            found.begin(eq)
    return graph, found


def clusters(function: Callable[..., Any], *args: Any) -> list[list[str]]:
    """The names of the ops in each cluster."""
    _, found = grown(function, *args)
    return [
        [eq.op.name for eq in n.equations]
        for n in found.order.topological()
        if isinstance(n, Cluster)
    ]


def test_an_equation_joins_what_it_reads() -> None:
    assert clusters(lambda x: tnp.tanh(x) * 2.0, X) == [["tanh", "mul"]]
    assert clusters(lambda x: (tnp.tanh(x), tnp.sin(x)), X) == [["tanh"], ["sin"]]


def test_clusters_of_one_equation_s_operands_merge() -> None:
    merged = [["tanh", "sin", "add"]]
    assert clusters(lambda x, y: tnp.tanh(x) + tnp.sin(y), X, Y) == merged
    turned = lambda x, y: tnp.tanh(x) + tnp.sin(y).T  # noqa: E731
    assert clusters(turned, X, array(4, 3)) == merged
    # In the order of the program, whichever came first.
    later = lambda x, y: (lambda a, b: b + a)(tnp.tanh(x), tnp.sin(y))  # noqa: E731
    assert clusters(later, X, Y) == merged


def test_clusters_over_other_points_stay_apart() -> None:
    assert len(clusters(lambda x, y: tnp.tanh(x) + tnp.sin(y)[1:], X, array(4, 4))) == 2
    assert len(clusters(lambda x, y: tnp.tanh(x) + tnp.sin(y), X, array(4))) == 2
    shifted = lambda x, y: tnp.tanh(x)[::-1] + tnp.sin(y)  # noqa: E731
    assert len(clusters(shifted, X, Y)) == 2


def test_rows_merge_with_rows() -> None:
    def function(x: Any, y: Any) -> Any:
        return tnp.tanh(x) * tnp.sum(tnp.sin(y), 1)[:, None]

    assert clusters(function, X, Y) == [["tanh", "sin", "reduce_sum", "mul"]]
    same = lambda x, y: tnp.tanh(x) * normalised(y)  # noqa: E731
    (one,) = clusters(same, X, Y)
    assert one == ["tanh", "sin", "reduce_sum", "div", "mul"]


def normalised(y: Any) -> Any:
    y = tnp.sin(y)
    return y / tnp.sum(y, 1)[:, None]


def test_columns_merge_with_nothing() -> None:
    function = lambda x, y: tnp.sum(x, 0) + tnp.tanh(y)  # noqa: E731
    assert len(clusters(function, X, array(4))) == 2


def test_what_something_between_needs_stays_apart() -> None:
    def function(x: Any) -> Any:
        y = tnp.tanh(x)
        return y + tnp.sin(tnp.cumsum(y, 1))

    assert clusters(function, X) == [["tanh"], ["sin", "add"]]
    direct = lambda x: (lambda y: y + tnp.cumsum(y, 1))(tnp.tanh(x))  # noqa: E731
    assert clusters(direct, X) == [["tanh"], ["add"]]


def test_reductions_and_gathers_do_not_merge_their_operands() -> None:
    graph = lambda x, i: tnp.take(tnp.tanh(x), tnp.abs(i), 0)  # noqa: E731
    found = clusters(graph, X, array(3, dtype="int32"))
    assert ["tanh"] in found
    assert not any("tanh" in c and "gather" in c for c in found)

    def places(x: Any, i: Any, j: Any) -> Any:
        return x[tnp.abs(i), tnp.sign(j)]

    indices = array(3, dtype="int32")
    for c in clusters(places, X, indices, indices):
        assert not {"abs", "sign", "gather"} <= set(c)


def merged(x: Any) -> Any:
    """Rows, each divided by its sum."""
    e = tnp.exp(x)
    return e / tnp.sum(e, 1)[:, None]


def turned(x: Any) -> Any:
    """The same shape, seen so that its columns are two loops."""
    return tnp.transpose(tnp.reshape(x, (2, 3, 2)), (1, 0, 2)).reshape(3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: tnp.sum(merged(x) * tnp.sin(y), 0),
        lambda x, y: tnp.sum(merged(x) * tnp.sin(y), 1),
        lambda x, y: merged(x) + merged(y),
        lambda x, y: tnp.tanh(x) * tnp.max(y, 1)[:, None] - tnp.sum(merged(y), 0),
        # A view can't split the columns any more, which are summed.
        lambda x, y: merged(x) * tnp.tanh(y) + turned(y),
        lambda x, y: (lambda t: tnp.take(t, np.array([2, 0, 1]), 0) + t)(tnp.tanh(x)),
        lambda x, y: (lambda z: z + tnp.sum(tnp.cumsum(z, 0)))(tnp.tanh(x) @ y.T),
    ],
)
def test_merged_clusters_give_what_they_mean(function: Any) -> None:
    agrees(function, normal(3, 4), normal(3, 4, seed=1))


def test_merged_clusters_have_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    function = lambda x, y: tnp.tanh(x) + tnp.sin(y)  # noqa: E731
    monkeypatch.setattr(growth, "MAX_MEMBERS", 2)
    assert len(clusters(function, X, Y)) == 2
    monkeypatch.setattr(growth, "MAX_MEMBERS", 3)
    assert len(clusters(function, X, Y)) == 1


def test_merged_maps_are_those_of_one_space() -> None:
    graph, found = grown(lambda x, y: tnp.tanh(x) + tnp.sin(y).T, X, array(4, 3))
    (one,) = [n for n in found.order.nodes if isinstance(n, Cluster)]
    out, turned = graph.outputs[0], equation(graph, "sin").outputs[0]
    rows, columns = one.space.maps[out]
    assert {rows, columns} == {Affine(0, ((d, 1),)) for d in one.space.sizes}
    assert one.space.maps[turned] == (columns, rows)
    assert set(found.owner.values()) == {one}


def test_a_cluster_with_most_recent_members_is_asked_first() -> None:
    def function(x: Any) -> Any:
        a, b = tnp.sin(x), tnp.cumsum(x, 1)
        c = tnp.cos(b)
        return c * 1.5 + a

    assert clusters(function, X)[-1][-1] == "add"


# Views in memory


def contiguous(function: Callable[..., Any], *args: Any) -> bool:
    graph, found = grown(function, *args)
    return found.is_contiguous(graph.outputs[0])


def test_what_lies_in_row_major_order() -> None:
    assert contiguous(lambda x: x, X)
    assert contiguous(lambda x: x.reshape(12), X)
    assert contiguous(lambda x: tnp.tanh(x).reshape(2, 6), X)
    assert not contiguous(lambda x: x.T, X)
    assert not contiguous(lambda x: x[:2].reshape(8), X)
    assert not contiguous(lambda x: x.T.reshape(12), X)
    graph, found = grown(lambda x, y: tnp.sin((x @ y).T), X, array(4, 5))
    product = equation(graph, "dot_general").outputs[0]
    assert not found.is_contiguous(product)
    found.flow.orders[product] = None
    assert found.is_contiguous(product)


def test_a_view_is_copied_once() -> None:
    graph, found = grown(lambda x: x.T, X)
    (x,), (view,) = graph.inputs, graph.outputs
    assert found.contiguous(x) is x
    copy = found.contiguous(view)
    assert copy is not view
    assert found.contiguous(view) is copy
    assert isinstance(copy, Var)
    assert copy.type == view.type
    assert not found.flow.is_view(copy)
    node = found.owner[copy]
    assert isinstance(node, Cluster)
    assert node.equations == [found.flow.maker[copy]]


def test_a_reshape_of_what_is_contiguous_is_that_memory() -> None:
    graph, found = grown(lambda x: tnp.tanh(x).T.reshape(12), X)
    copy = found.copied(graph.outputs[0])
    made = found.flow.aliases[copy]
    assert isinstance(made, Var)
    assert found.flow.memory(copy) is made
    assert found.owner[copy] is found.owner[made]
    assert found.is_contiguous(copy)


def test_plain_values_are_no_views() -> None:
    graph, found = grown(lambda x: tnp.tanh(x).reshape(12), X)
    view, source = graph.outputs[0], equation(graph, "tanh").outputs[0]
    assert found.plain(source) is source
    assert found.contiguous(view) is view
    assert found.plain(view) is not view
    number = Lit(np.float32(1), source.type)
    assert found.plain(number) is number


def test_operands_from_one_on_are_made_plain() -> None:
    graph, found = grown(lambda x, y: x.T + y.T, X, Y)
    eq = graph.equations[-1]
    new = found.with_plain_operands(eq, 1)
    assert new.inputs[0] is eq.inputs[0]
    assert new.inputs[1] is found.copies[eq.inputs[1]]
    assert len(found.copies) == 1


def test_a_product_stored_otherwise_is_copied_to_row_major_order() -> None:
    graph, found = grown(lambda x, y: tnp.sin((x @ y).T), X, array(4, 5))
    product = equation(graph, "dot_general").outputs[0]
    copy = found.copied(product)
    assert copy.type == product.type
    assert found.is_contiguous(copy)
    assert found.copied(product) is copy


def test_an_inline_value_whose_memory_is_wanted_is_kept() -> None:
    graph, found = grown(lambda x: (tnp.arange(12) * 2).reshape(3, 4), X)
    found.copied(graph.outputs[0])
    (value,) = found.flow.kept
    assert found.flow.maker[value].op.name == "mul"
    assert isinstance(found.owner[value], Cluster)


def test_views_that_no_loops_step_over_are_copied_by_two_steps() -> None:
    graph, found = grown(lambda x: x[1:].reshape(8)[1:].reshape(7, 1), X)
    copy = found.copied(graph.outputs[0])
    assert found.flow.memory(copy) is not graph.inputs[0]
    assert len(found.copies) >= 2


def test_a_cluster_whose_operand_has_no_map_begins_with_a_copy() -> None:
    _, found = grown(lambda x, y: x[1:].reshape(8)[1:] + y, X, array(7))
    last = found.order.topological()[-1]
    assert last.equations[-1].op.name == "add"
    assert last.equations[-1].inputs[0] in found.copies.values()
    # It takes in what made the other operand, as any other does.
    two = lambda x, y: x[1:].reshape(8)[1:] + tnp.tanh(y)  # noqa: E731
    assert clusters(two, X, array(7))[-1] == ["slice", "tanh", "add"]


def test_what_reads_an_inline_value_does_not_join_its_memory() -> None:
    graph, found = grown(lambda x: (tnp.arange(4.0) * 2) + x, array(4))
    value = equation(graph, "mul")
    before = len(found.order.nodes)
    found.keep(value)
    assert len(found.order.nodes) == before + 1
    add = equation(graph, "add")
    assert found.owner[add.outputs[0]] is not found.owner[value.outputs[0]]
    assert not found.join_one(add)
