"""Where threads have their own memory: in one place, if that takes little more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from tests.core.plan.build import kernels_of
from treadle.backends.cpu.run import threads
from treadle.backends.devices import TARGETS
from treadle.errors import InternalError
from treadle.plan.liveness import check_plan
from treadle.plan.plan import place
from treadle.plan.schedule import schedule
from treadle.plan.steps import Own, Place, Plan
from treadle.plan.target import Work

X, W = array(64, 64), array(64, 64)


def planned(*works: Work, threads: int = 4, sparing: bool = False) -> Plan:
    """A chain of products that run so, on a device of so many threads."""
    left = iter(works)

    class Device(type(TARGETS["reference"])):  # type: ignore[misc]
        def contraction(self, product: Any) -> list[Work]:
            return [next(left)]

    device = Device()
    Device.threads = property(lambda self: threads)

    def chain(x: Any, w: Any) -> Any:
        for _ in works:
            x = tnp.tanh(x @ w)
        return x

    graph, kernels = kernels_of(chain, X, W)
    plan = place(schedule(kernels, device), graph, (), sparing)
    check_plan(plan)
    return plan


def owns(plan: Plan) -> list[Own]:
    return [step.own for step in plan.steps if step.own is not None]


def test_each_thread_has_the_same_part_in_all_steps() -> None:
    works = Work(4, 0, 256), Work(8, 0, 128), Work(2, 0, 200), Work(3)
    found = owns(planned(*works))
    assert len(found) == 3
    assert len({own.place.buffer for own in found}) == 1
    assert {(own.slots, own.stride) for own in found} == {(4, 256)}
    assert found[0].place.buffer.nbytes == 4 * 256


def test_scratch_of_all_tasks_stays_apart() -> None:
    plan = planned(Work(4, 640, 256), Work(4, 0, 256))
    first = plan.steps[0]
    assert first.scratch.buffer.nbytes == 640  # type: ignore[attr-defined]
    assert first.scratch.buffer is not owns(plan)[0].place.buffer  # type: ignore[attr-defined]


def test_one_task_needs_one_part() -> None:
    (own,) = owns(planned(Work(1, 0, 256)))
    assert (own.slots, own.place.buffer.nbytes) == (1, 256)
    # With others it has that of the caller, if there is room.
    first, second = owns(planned(Work(1, 0, 256), Work(4, 0, 256)))
    assert (first.slots, first.place) == (4, second.place)


def test_what_would_take_much_more_memory_stays_apart() -> None:
    # What all threads would have for the second step is more than it needs itself.
    works = Work(4, 0, 1 << 14), Work(1, 0, 1 << 20), Work(4, 0, 1 << 13)
    first, second, third = owns(planned(*works))
    assert first.place == third.place != second.place
    assert (second.slots, second.stride) == (1, 1 << 20)
    assert len({own.place.buffer for own in owns(planned(*works, sparing=True))}) == 3


def test_a_part_that_is_too_small_is_found() -> None:
    plan = planned(Work(4, 0, 256), Work(4, 0, 128))
    step = next(step for step in plan.steps if step.own is not None)
    step.own = Own(Place(step.own.place.buffer), 8)  # type: ignore[union-attr]
    with pytest.raises(InternalError, match="threads have"):
        check_plan(plan)


def test_results_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 24, 24, 32)).astype(np.float32)
    w = rng.standard_normal((3, 3, 32, 32)).astype(np.float32)

    def loss(w: Any, x: Any) -> Any:
        layout = "NHWC", "HWIO", "NHWC"
        y = td.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)
        return tnp.sum(tnp.tanh(y.reshape(-1, 32) @ w[0, 0]) ** 2)

    before, found = threads.num_threads(), []
    try:
        for count in (1, 2, 3, 5):
            threads.set_num_threads(count)
            value, slope = td.jit(td.value_and_grad(loss))(w, x)
            found.append((np.asarray(value).tobytes(), np.asarray(slope).tobytes()))
        # A program that was made for few threads has no memory for more.
        threads.set_num_threads(2)
        few = td.jit(td.value_and_grad(loss)).lower(w, x).compile()
        threads.set_num_threads(6)
        value, slope = few(w, x)
        found.append((np.asarray(value).tobytes(), np.asarray(slope).tobytes()))
    finally:
        threads.set_num_threads(before)
    assert len(set(found)) == 1
