"""Whole plans: what they say of their program, and what memory they have."""

from __future__ import annotations

from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from tests.core.plan.build import kernels_of, plan_of, scheduled
from treadle.backends.reference.program import ReferenceTarget, run
from treadle.plan.liveness import check_plan
from treadle.plan.plan import place
from treadle.plan.schedule import schedule
from treadle.plan.steps import Loop
from treadle.plan.target import Work

X, W = array(16, 8), array(8, 32)


def chain(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = tnp.cumsum(tnp.tanh(x @ w) @ w.T, 0)
    return x


def test_the_outline_is_that_of_the_graph() -> None:
    graph, found = scheduled(lambda x: (tnp.exp(x), tnp.sum(x) > 1), X)
    outline = place(found, graph).outline
    assert outline.name == graph.name
    assert outline.in_types == tuple(graph.in_types)
    assert outline.out_types == tuple(graph.out_types)
    assert outline.equations == len(graph.equations)
    # Of all values, those on the way, too: sums of rows, and of these.
    sizes = [v.type.nbytes for eq in graph.equations for v in eq.outputs]
    assert sorted(sizes) == [1, 4, 64, 16 * 8 * 4]
    assert outline.nbytes == sum(sizes)
    twice, found = scheduled(lambda x: tnp.sin(tnp.exp(x)), X)
    assert place(found, twice).outline.nbytes == 2 * 16 * 8 * 4


def test_arguments_and_results_are_its_own() -> None:
    plan = plan_of(chain, X, W)
    check_plan(plan)
    assert [b.nbytes for b in plan.inputs] == [X.nbytes, W.nbytes]
    assert [b.nbytes for b in plan.outputs] == [X.nbytes]
    assert plan.arena >= 16 * 32 * 4
    used = {p.buffer for s in plan.steps for p in (*s.reads, *s.writes) if p}
    assert {*plan.inputs, *plan.outputs} <= used


def test_the_threads_are_those_of_the_schedule() -> None:
    graph, found = scheduled(chain, X, W)
    assert place(found, graph).threads == found.threads
    assert place(found._replace(threads=5), graph).threads == 5


def test_donated_arguments_may_be_overwritten() -> None:
    kept, given = (
        plan_of(lambda x: tnp.exp(x) * 2.0, X, donated=d) for d in ((), (0,))
    )
    assert kept.shares == {}
    assert given.shares == {0: 0}
    both = plan_of(lambda x, w: (w + 1, x * 2), X, W, donated=(1,))
    assert both.shares == {0: 1}


def test_loops_are_planned_with_what_is_in_them() -> None:
    plan = plan_of(lambda x: td.scan(lambda c, r: (tnp.sin(c + r), c), x[0], x), X)
    check_plan(plan)
    (loop,) = [s for s in plan.steps if isinstance(s, Loop)]
    assert loop.body


def test_memory_may_matter_more_than_time() -> None:
    """The arena is no larger then, and the results the same."""
    graph, found = scheduled(chain, X, W)
    plans = [place(found, graph, sparing=sparing) for sparing in (False, True)]
    for plan in plans:
        check_plan(plan)
    assert plans[1].arena <= plans[0].arena
    args = [np.linspace(0, 0.1, x.size, dtype="f4").reshape(x.shape) for x in (X, W)]
    results = []
    for plan in plans:
        out = np.zeros_like(X)
        run(plan, [flat(x) for x in args], [flat(out)])
        results.append(out)
    assert np.array_equal(*results)
    wanted = args[0].astype(float)
    for _ in range(3):
        wanted = np.tanh(wanted @ args[1]) @ args[1].T
        wanted = wanted.cumsum(0)
    np.testing.assert_allclose(results[0], wanted, 1e-4)


def flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)


def test_each_threads_own_memory_is_in_one_buffer_unless_memory_matters() -> None:
    class Device(ReferenceTarget):
        def contraction(self, product: Any) -> list[Work]:
            return [Work(4, 0, own_bytes=256)]

    graph, kernels = kernels_of(chain, X, W)
    found = schedule(kernels, Device())._replace(threads=4)
    for sparing, count in ((False, 1), (True, 3)):
        plan = place(found, graph, sparing=sparing)
        check_plan(plan)
        own = [s.own for s in plan.steps if getattr(s, "own", None)]
        assert len(own) > 2
        assert (len({o.place.buffer for o in own}) == 1) == (count == 1)
