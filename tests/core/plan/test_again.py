"""Graphs in which values that were given up are computed again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from tests.core.fuse.lowering.alone import normal
from tests.core.passes.shown import lines
from tests.core.plan.test_budget import ONE, W, X, budget, late, product
from treadle.ir.check import check
from treadle.ir.graph import Graph
from treadle.plan.again import compute_again
from treadle.run.eager import evaluate


def again(function: Any, most: int, *args: Any) -> tuple[Graph, Graph]:
    """The graph of a function, and one that needs less memory and means the same."""
    graph, found = budget(function, *args)
    found.choose(most)
    new = compute_again(graph, found)
    check(new)
    given = [normal(*x.shape, seed=i) for i, x in enumerate(args)]
    for a, b in zip(evaluate(new, given), evaluate(graph, given), strict=True):
        assert np.array_equal(a, b)
    return graph, new


def test_it_is_computed_behind_a_barrier_when_it_is_needed() -> None:
    graph, new = again(late(product), 2 * ONE, X, W)
    shown = lines(new)
    assert shown[:7] == lines(graph)[:7]
    assert shown[7:] == [
        "j:f32[8,32] k:f32[16,8] l:f32[16,32] = optimization_barrier b a i",
        "m:f32[16,32] = dot_general[contract=((1,),(0,)) batch=((),())] k j",
        "n:f32[16,32] = sin m",
        "o:f32[16,32] = mul i n",
        "p:f32[16,32] = cumsum[axis=1 reverse=False] o",
        "return p",
    ]
    sine = graph.equations[1]
    assert {eq.source for eq in new.equations[7:10]} <= {
        sine.source,
        graph.equations[0].source,
    }


def test_nothing_given_up_is_nothing_changed() -> None:
    graph, new = again(late(product), 9 * ONE, X, W)
    assert lines(new) == lines(graph)
    assert new.inputs == graph.inputs


def test_later_readers_share_what_was_computed_again() -> None:
    def function(x: Any, w: Any) -> Any:
        a = tnp.sin(x @ w)
        b = tnp.cumsum(a, 0)
        c = tnp.cumsum(b * b, 1)
        d = tnp.cumsum(c * c, 0)
        e = tnp.cumsum(d * a, 1)
        return tnp.cumsum(e * a, 0)

    _, new = again(function, 2 * ONE, X, W)
    assert [eq.op.name for eq in new.equations].count("sin") == 2


def test_views_of_what_was_given_up_are_made_again() -> None:
    def function(x: Any, w: Any) -> Any:
        a = tnp.sin(x @ w)
        turned = a.T
        b = tnp.cumsum(a, 0)
        c = tnp.cumsum(b * b, 1)
        d = tnp.cumsum(c * c, 0)
        return tnp.cumsum(d * turned.T[::-1], 1) + tnp.cumsum(d[:, ::-1] * turned.T, 0)

    graph, new = again(function, 2 * ONE, X, W)
    names = [eq.op.name for eq in new.equations]
    before = [eq.op.name for eq in graph.equations]
    assert names.count("sin") == before.count("sin") + 1


@pytest.mark.parametrize("share", [0.9, 0.8])
def test_gradients_of_a_deep_program_keep_their_meaning(share: float) -> None:
    def loss(x: Any, ws: Any) -> Any:
        for i in range(12):
            x = tnp.tanh(x @ ws[i] + x)
        return (x * x).sum()

    def function(x: Any, ws: Any) -> Any:
        return td.grad(loss, 1)(x, ws)

    x, ws = array(32, 16), array(12, 16, 16)
    graph, found = budget(function, x, ws)
    most = int(found.alive.max() * share)
    graph, new = again(function, most, x, ws)
    assert len(new.equations) > len(graph.equations)
    assert "optimization_barrier" in [eq.op.name for eq in new.equations]


def test_effects_keep_their_order() -> None:
    seen: list[Any] = []

    def function(x: Any, w: Any) -> Any:
        a = tnp.sin(x @ w)
        td.debug.callback(seen.append, a.sum())
        b = tnp.cumsum(a, 0)
        c = tnp.cumsum(b * b, 1)
        td.debug.callback(seen.append, c.sum())
        d = tnp.cumsum(c * c, 0)
        return tnp.cumsum(d * a, 1)

    graph, found = budget(function, X, W)
    found.choose(2 * ONE)
    new = compute_again(graph, found)
    check(new)
    effects = [
        [eq.inputs[0] for eq in g.equations if eq.op.effect] for g in (graph, new)
    ]
    assert len(effects[0]) == 2
    order = [eq for eq in new.equations if eq.op.effect]
    assert [eq.source for eq in order] == [
        eq.source for eq in graph.equations if eq.op.effect
    ]


def names(graph: Graph) -> list[str]:
    return [eq.op.name for eq in graph.equations]


def test_what_is_there_is_read_where_it_lies() -> None:
    """Only what was given up, and what depends on it alone, is computed again."""

    def function(x: Any, w: Any) -> Any:
        kept = tnp.cumsum(x, 1)
        a = tnp.sin(kept @ w)
        b = tnp.cumsum(a, 0)
        c = tnp.cumsum(b * b, 1)
        d = tnp.cumsum(c * c, 0)
        return tnp.cumsum(d * a, 1) + kept.sum()

    graph, new = again(function, 2 * ONE, X, W)
    more = names(new)
    for name in names(graph):
        more.remove(name)
    assert sorted(more) == ["dot_general", "optimization_barrier", "sin"]
    # The running sums of x go behind the barrier as they are.
    (barrier,) = [eq for eq in new.equations if eq.op.name == "optimization_barrier"]
    (kept,) = [
        eq.outputs[0]
        for eq in graph.equations
        if eq.op.name == "cumsum" and eq.outputs[0].type.shape == X.shape
    ]
    assert kept in barrier.inputs
    # And what was stored last, so that it does not happen sooner.
    assert barrier.inputs[-1] not in (kept, *graph.inputs)
    assert [a.type for a in barrier.inputs] == [v.type for v in barrier.outputs]


def test_what_nobody_reads_any_more_is_dropped() -> None:
    _, new = again(late(product), 2 * ONE, X, W)
    read = {a for eq in new.equations for a in eq.inputs} | set(new.outputs)
    for eq in new.equations:
        assert eq.op.name == "optimization_barrier" or set(eq.outputs) & read
    assert new.name == again(late(product), 9 * ONE, X, W)[0].name
