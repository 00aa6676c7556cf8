"""Steps and what they say of the memory that they use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.core.passes.shown import opened
from tests.core.plan.steps import F, at, copy, launch, nest, plan, product
from treadle.arraytype import ArrayType
from treadle.ir.graph import Lit
from treadle.plan.steps import (
    Branch,
    Buffer,
    Loop,
    Own,
    Place,
    While,
    literal_of,
    own_of,
    traffic,
    walk,
    work_memory,
)

A, B, C = at(0), at(128), at(256)


def test_places_move_in_their_buffer() -> None:
    loop = Loop((), [], [])
    place = Place(A.buffer, 8, ((loop, 16),))
    assert place.shifted(4) == Place(A.buffer, 12, ((loop, 16),))
    assert place.shifted(-8).offset == 0
    assert Place(A.buffer) == A
    assert at(0) != A


def test_threads_have_equal_parts() -> None:
    assert Own(at(0, 192), 3).stride == 64


def test_a_walk_goes_into_loops_and_branches_in_their_order() -> None:
    a, b, c, d, e, f = (copy(A, B) for _ in range(6))
    loop = Loop((), [], [], body=[b])
    choice = Branch((), [], [], branches=[[loop], [c]])
    again = While((), [], [], test=[d], body=[e])
    assert list(walk([a, choice, again, f])) == [
        (0, a),
        (0, choice),
        (1, loop),
        (2, b),
        (1, c),
        (0, again),
        (1, d),
        (1, e),
        (0, f),
    ]


def test_traffic_is_by_what_is_stored() -> None:
    made = launch((False, 0, 8), (False, 0, 8), (True, 0, 8))
    assert traffic(made, [A, B, C]) == ([A, B], [C])
    assert traffic(made, [None, B, C]) == ([B], [C])


def test_work_memory_is_scratch_and_what_threads_have() -> None:
    scratch, own = at(512), at(1024)
    step = nest([A], [B])
    assert work_memory(step) == []
    step.scratch = scratch
    assert work_memory(step) == [scratch]
    step.own = Own(own, 2)
    assert work_memory(step) == [scratch, own]
    assert work_memory(copy(A, B)) == []


def test_threads_have_memory_for_the_tasks_that_need_it() -> None:
    class Planner:
        plan = SimpleNamespace(threads=3)

        def buffer(self, nbytes: Any) -> Buffer:
            return Buffer(nbytes)

    def own(each: Any, tasks: Any) -> Own | None:
        return own_of(SimpleNamespace(own_bytes=each, tasks=tasks), Planner())

    assert own(0, 4) is None
    for tasks, slots in ((4, 3), (2, 3), (1, 1)):
        found = own(64, tasks)
        assert found is not None
        assert (found.slots, found.place.buffer.nbytes) == (slots, 64 * slots)
        assert found.stride == 64
    # Of open sizes it is not known that there are none, or one.
    graph, scope = opened(lambda x: x + 1, ("n",), n=1)
    (n,) = graph.inputs[0].type.shape
    found = own(n, n)
    assert found is not None
    assert found.slots == 3
    assert not scope.guards


def test_a_plan_says_for_how_many_threads_it_has_memory() -> None:
    found = plan(nest([A], [B]), threads=4)
    assert found.most_threads is None
    step = product(A, B, C, own=Own(at(512), 2))
    assert plan(step, threads=4).most_threads == 4
    loop = Loop((), [], [], body=[step])
    assert plan(copy(A, B), loop, threads=2).most_threads == 2


def test_literals_lie_in_order() -> None:
    x = np.arange(6, dtype=F).reshape(2, 3).T
    found = literal_of(Lit(x, ArrayType((3, 2), F)))
    assert found.flags.c_contiguous
    assert np.array_equal(found, x)
