"""What can be one loop nest: forms, index maps, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.evaluate import Memory, meant
from tests.core.fuse.graphs import array, equation, program_of, traced
from tests.core.fuse.random_rules import generate
from tests.core.ir.following import numbered, read
from treadle.backends.devices import TARGETS
from treadle.fuse import cluster as clusters
from treadle.fuse.cluster import Cluster, join, members_fit, operand_key, start
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.lowering.nests import build
from treadle.ir.graph import Equation, Graph, Var
from treadle.ir.maps import ZERO, Affine
from treadle.passes.pipeline import optimise
from treadle.trace.lowering import FUSABLE, View

X = array(3, 4)
INDEX = array(2, dtype="int32")


def work(graph: Graph, flow: Dataflow) -> list[Equation]:
    """What is no view, and not inline."""
    return [
        eq
        for eq in graph.equations
        if not isinstance(eq.op.lowering, View) and eq.outputs[0] not in flow.inline
    ]


def joined(function: Callable[..., Any], *args: Any) -> tuple[list[bool], Cluster]:
    """Whether each equation after the first can join the cluster that it begins."""
    graph = traced(function, *args)
    flow = program_of(graph)
    first, *others = [
        e for e in work(graph, flow) if isinstance(e.op.lowering, FUSABLE)
    ]
    cluster = Cluster(0, flow)
    assert start(cluster, first, flow)
    return [join(cluster, eq, flow) for eq in others], cluster


def normalised(x: Any) -> Any:
    e = tnp.exp(x)
    return e / tnp.sum(e, 1)[:, None]


def columns(x: Any) -> Any:
    return tnp.sum(tnp.exp(x), 0) * 2.0


JOIN: dict[str, tuple[Any, list[bool]]] = {
    "elementwise": (lambda x: tnp.tanh(x) * 2.0, [True]),
    "through a view": (lambda x: tnp.tanh(x).T[None] * 2.0, [True]),
    "through a view without a way forth": (lambda x: tnp.tanh(x)[::-1] * 2.0, [False]),
    "through a part": (lambda x: tnp.tanh(x)[1:] * 2.0, [False]),
    "not of a member": (lambda x: (tnp.tanh(x), tnp.exp(x)), [False]),
    "seen in two ways": (lambda x: (lambda y: y + y[::-1])(tnp.tanh(x)), [False]),
    "seen at one place": (lambda x: (lambda y: y + y[0])(tnp.tanh(x)), [False]),
    "softmax": (normalised, [True, True]),
    "columns": (columns, [True, True]),
    # What every point has may join; the sum would need all of it first.
    "columns and what they reduce": (
        lambda x: (lambda e: e / tnp.sum(e, 0))(tnp.exp(x)),
        [False, True],
    ),
    "columns that are kept": (
        lambda x: (lambda e: (e, tnp.sum(e, 0)))(tnp.exp(x)),
        [False],
    ),
    "columns read elsewhere": (
        lambda x: (lambda e: (tnp.sum(e, 0), tnp.cumsum(e, 0)))(tnp.exp(x)),
        [False],
    ),
    "rows then columns": (
        lambda x: (tnp.max(x, 1), tnp.sum(x, 0))[0] + 1.0,
        [False, True],
    ),
    "two forms": (
        lambda x: (lambda e: (tnp.sum(e, 1), tnp.sum(e, 0)))(tnp.exp(x)),
        [True, False],
    ),
    "two reductions": (
        lambda x: (lambda e: tnp.sum(e, 1) + tnp.max(e, 1))(tnp.exp(x)),
        [True, True, True],
    ),
    "of what was reduced": (
        lambda x: tnp.sum(tnp.sum(tnp.exp(x), 1)),
        [True, False],
    ),
    "columns of columns": (lambda x: tnp.sum(tnp.sum(x, 0) * 2.0, 0), [True, False]),
    "columns of columns seen again": (
        lambda x: tnp.sum(tnp.broadcast_to(tnp.sum(x, 0), (3, 4)), 0),
        [False],
    ),
    "fewer dimensions": (lambda x: tnp.sqrt(tnp.max(x, 1)) * 2.0, [True, True]),
    "what is dear, of short rows": (
        lambda x: tnp.exp(tnp.max(x, 1)) * 2.0,
        [False, False],
    ),
    "broadcast anew": (lambda x: tnp.tanh(x[0])[None] + x, [False]),
    "broadcast along what was reduced": (lambda x: tnp.max(x, 1)[:, None] + x, [True]),
    "broadcast in front along what was reduced": (
        lambda x: tnp.max(x, 1)[None, :] * tnp.ones((4, 3)),
        [True],
    ),
    "broadcast to another size": (
        lambda x: tnp.max(x, 1)[:, None] * tnp.ones((3, 7)),
        [False],
    ),
}


@pytest.mark.parametrize("name", JOIN)
def test_join(name: str) -> None:
    function, wanted = JOIN[name]
    assert joined(function, X)[0] == wanted


def test_gathers_begin_clusters_and_join_none() -> None:
    def at(x: Any, i: Any) -> Any:
        return tnp.take(x, tnp.abs(i), 0) * 2.0

    graph = traced(at, X, INDEX)
    flow = program_of(graph)
    gather = equation(graph, "gather")
    assert start(Cluster(0, flow), gather, flow)
    first = Cluster(1, flow)
    assert start(first, equation(graph, "abs"), flow)
    assert not join(first, gather, flow)


def test_a_gather_reads_only_what_is_finished() -> None:
    graph = traced(lambda x, i: tnp.take(tnp.tanh(x), i, 0), X, INDEX)
    flow, gather = program_of(graph), equation(graph, "gather")
    member = equation(graph, "tanh").outputs[0]
    cluster = Cluster(0, flow)
    assert start(cluster, gather, flow)
    cluster.space.maps[member] = cluster.space.maps[gather.outputs[0]]
    assert not clusters.operands_fit(cluster.space, gather, flow)
    # Nor what is in no memory, nor what no axis of which has one step.
    flow.inline.add(member)
    assert not start(Cluster(1, flow), gather, flow)
    flow.kept.add(member)
    assert start(Cluster(2, flow), gather, flow)
    graph = traced(lambda x, i: tnp.take(x.T.reshape(6, 2), i, 0), X, INDEX)
    flow = program_of(graph)
    assert not start(Cluster(0, flow), equation(graph, "gather"), flow)


def test_operands_without_an_index_map_refuse_a_start() -> None:
    graph = traced(lambda x, y: x.T.reshape(12) + y, X, array(12))
    flow = program_of(graph)
    assert start(Cluster(0, flow), equation(graph, "add"), flow)  # split in two
    graph = traced(lambda x, y: x[1:].reshape(8)[1:] + y, X, array(7))
    flow = program_of(graph)
    assert not start(Cluster(0, flow), equation(graph, "add"), flow)


def test_forms() -> None:
    _, rows = joined(normalised, X)
    assert (rows.form, rows.reduced, rows.after) == ("inner", {1}, set())
    _, reduced = joined(columns, X)
    assert (reduced.form, reduced.reduced) == ("mid", {0})
    assert reduced.after == {eq.outputs[0] for eq in reduced.equations[1:]}
    _, plain = joined(lambda x: tnp.exp(x) * 2.0, X)
    assert (plain.form, plain.reduced, plain.after) == (None, set(), set())
    graph = traced(lambda x: tnp.sum(x, 0), X)
    flow = program_of(graph)
    alone = Cluster(0, flow)
    assert start(alone, equation(graph, "reduce_sum"), flow)
    assert (alone.form, alone.after) == ("mid", set(graph.outputs))
    assert alone.space.frozen == {0}


def test_several_reduced_axes() -> None:
    x = array(2, 3, 4)
    for axes, form in (((0, 1), "mid"), ((0,), "mid"), ((2,), "inner")):
        graph = traced(lambda x, a=axes: tnp.sum(x, a), x)
        flow = program_of(graph)
        cluster = Cluster(0, flow)
        assert start(cluster, equation(graph, "reduce_sum"), flow), axes
        assert (cluster.form, cluster.reduced) == (form, set(axes))
    # An optimised graph has no reductions over the last axis and others.
    graph = traced(lambda x: tnp.sum(x, (0, 2)), x)
    flow = program_of(graph)
    assert not start(Cluster(0, flow), equation(graph, "reduce_sum"), flow)


@pytest.mark.parametrize("kept", [1, 3])
@pytest.mark.parametrize(
    ("axes", "lengths"), [((0, 1), [2]), ((0, 2), [1, 1]), ((2, 0, 1), [3])]
)
def test_runs_of_reduced_axes_end_at_axes_that_are_kept(
    axes: tuple[int, ...], lengths: list[int], kept: int
) -> None:
    """Also at those of one element, which no loop needs to run along."""
    x = array(2 * kept * 4 * 5)

    def function(x: Any) -> Any:
        return tnp.sum(tnp.exp(x.reshape(2, kept, 4, 5)), axes)

    _, cluster = joined(function, x)
    reduced = [d for d in cluster.space.sizes if d in cluster.reduced]
    runs = cluster.runs(reduced)
    assert [d for run in runs for d in run] == reduced
    assert [len(run) for run in runs] in (lengths, [*lengths[:-1], lengths[-1] - 1])


def test_maps_of_a_reduction() -> None:
    graph = traced(lambda x: tnp.max(x, 1), X)
    flow, eq = program_of(graph), equation(graph, "reduce_max")
    cluster = Cluster(0, flow)
    assert start(cluster, eq, flow)
    rows, cols = Affine(0, ((0, 1),)), Affine(0, ((1, 1),))
    assert cluster.space.maps[operand_key(eq)] == (rows, cols)
    assert cluster.space.maps[eq.outputs[0]] == (rows,)


def test_a_view_s_result_runs_along_what_was_reduced() -> None:
    _, cluster = joined(lambda x: tnp.max(x, 1)[:, None] + x, X)
    assert cluster.space.maps[cluster.equations[1].outputs[0]] == (
        Affine(0, ((0, 1),)),
        Affine(0, ((1, 1),)),
    )


def test_a_cluster_that_refuses_stays_as_it_was() -> None:
    graph = traced(lambda x: tnp.tanh(x).reshape(6, 2)[:, 1:] * 2.0, X)
    flow = program_of(graph)
    first, second = work(graph, flow)
    cluster = Cluster(0, flow)
    assert start(cluster, first, flow)
    maps, sizes = dict(cluster.space.maps), dict(cluster.space.sizes)
    assert not join(cluster, second, flow)
    assert (cluster.space.maps, cluster.space.sizes) == (maps, sizes)
    assert cluster.equations == [first]


def test_clusters_have_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "MAX_MEMBERS", 3)

    def chain(x: Any) -> Any:
        for _ in range(4):
            x = tnp.tanh(x)
        return x

    assert joined(chain, X)[0] == [True, True, False]


def test_a_member_s_own_memory_is_not_read() -> None:
    """What is seen of it in another shape is complete after all of its points."""
    graph = traced(lambda x: (lambda y: y + y.reshape(4, 3).T)(tnp.tanh(x)), X)
    flow = program_of(graph)
    first, second = work(graph, flow)
    seen = equation(graph, "reshape")
    copied = Var(seen.outputs[0].type)
    flow.add(Equation(seen.op, seen.inputs, seen.params, [copied]), copied=True)
    flow.aliases[copied] = first.outputs[0]
    cluster = Cluster(0, flow)
    assert start(cluster, first, flow)
    space = cluster.space
    key = "another"
    space.maps[key] = space.maps[first.outputs[0]][::-1]
    assert not clusters.operand_fits(space, key, copied, flow)
    assert clusters.operand_fits(space, key, Var(copied.type), flow)
    assert members_fit(space, cluster, flow)
    del second


def test_units_that_only_an_operand_names_are_not_lost() -> None:
    """A value with a batch of one is not computed where that has no loop."""

    def function(x: Any, b: Any) -> Any:
        return tnp.tanh(x)[None] + b

    assert joined(function, X, array(1, 3, 4))[0] == [False]
    assert joined(lambda x: tnp.tanh(x)[None] * 2.0, X)[0] == [True]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_joins_has_a_nest_with_the_right_values(seed: int) -> None:
    """Clusters of random programs, grown without a thought, each stored throughout."""
    program = generate(seed, ("float32", "float64"), loops=False)
    args = [np.asarray(a) for a in program.arguments()]
    graph = optimise(td.jit(program.function()).graph(*args), TARGETS["reference"])
    flow = program_of(graph)
    values: dict[Any, Any] = {}
    flow.row_major.update(flow.maker)
    every = Graph(
        graph.inputs, graph.equations, [v for eq in graph.equations for v in eq.outputs]
    )
    args = [
        np.asarray(a, v.type.dtype) for a, v in zip(args, graph.inputs, strict=True)
    ]
    values.update(zip(graph.inputs, args, strict=True))
    values.update(zip(every.outputs, meant(every, args), strict=True))
    left = [e for e in work(graph, flow) if isinstance(flow.lowering(e), FUSABLE)]
    while left:
        cluster, (first, *rest) = Cluster(0, flow), left
        left = []
        if not start(cluster, first, flow):
            left = rest
            continue
        left = [eq for eq in rest if not _joins(cluster, eq, flow)]
        _check_values(cluster, flow, values)


def _joins(cluster: Cluster, eq: Equation, flow: Dataflow) -> bool:
    before = {v for e in cluster.equations for v in e.outputs}
    return any(flow.resolve(a)[0] in before for a in eq.inputs) and join(
        cluster, eq, flow
    )


def _check_values(cluster: Cluster, flow: Dataflow, values: dict[Any, Any]) -> None:
    stored = {
        v
        for e in cluster.equations
        for v in e.outputs
        if cluster.form != "mid" or v in cluster.after
    }
    for v in stored:
        shape, entries = v.type.shape, cluster.space.maps[v]
        at = read(numbered(shape), entries, cluster.space.sizes)
        assert set(at.ravel()) == set(range(v.type.size)), "some elements have no point"
    launch = build(cluster, flow, stored)
    memory = Memory()
    for b in launch.bindings:
        if isinstance(b.atom, Var) and not b.store:
            memory.put(b.atom, values[b.atom])
    with np.errstate(all="ignore"):
        memory.launch(launch)
    for v in stored:
        if v.type.size:
            np.testing.assert_allclose(
                memory.get(v).astype("f8"), values[v].astype("f8"), 2e-3, 2e-3
            )


def test_absent_axes_have_no_dimension() -> None:
    _, cluster = joined(lambda x: tnp.sqrt(tnp.max(x, 1, keepdims=True)) * 2.0, X)
    last = cluster.equations[-1].outputs[0]
    assert cluster.space.maps[last][1] == ZERO
