"""Which bytes steps say that they read and write."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from tests.core.plan.steps import ROW, F, at, copy, launch, product, work
from treadle.arraytype import ArrayType
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, STRIDED, Operand
from treadle.plan.steps import CallsStep, HostStep, OrderStep, Place, Step
from treadle.plan.touched import touched

A, B, C = (at(1024 * i, 1024) for i in range(3))


def found(step: Step, place: Place) -> list[int]:
    there = touched(step, place)
    assert there is not None
    return sorted(set(there.tolist()))


def of_elements(*elements: int, itemsize: int = 4) -> list[int]:
    return sorted({itemsize * e + i for e in elements for i in range(itemsize)})


def test_a_nest_touches_what_its_loops_reach() -> None:
    step = work(launch((False, 0, ROW), (True, 3, 16)), A, B)
    assert found(step, A) == of_elements(*range(32))
    rows = [3 + 16 * r + i for r in range(4) for i in range(ROW)]
    assert found(step, B.shifted(12)) == of_elements(*rows)
    # From the beginning of the buffer on.
    step = work(launch((False, 0, -ROW), (True, 0, ROW)), A.shifted(100), B)
    starts = np.array([25 - ROW * r + i for r in range(4) for i in range(ROW)])
    assert found(step, A.shifted(100)) == of_elements(*starts.tolist())


def test_steps_along_the_last_loop() -> None:
    one = work(launch((False, 0, 5), (True, 0, 5), kind=Operand(F, BROADCAST)), A, B)
    assert found(one, A) == of_elements(0, 5, 10, 15)
    made = launch((False, 0, 5), (True, 0, 5), kind=Operand(F, STRIDED))
    bound = [b._replace(strides=(5, 2)) for b in made.bindings]
    strided = work(made._replace(bindings=tuple(bound)), A, B)
    wanted = [5 * r + 2 * i for r in range(4) for i in range(ROW)]
    assert found(strided, B) == of_elements(*wanted)


def test_what_two_operands_touch_of_one_place() -> None:
    step = work(launch((False, 0, 0), (False, 0, ROW), (True, 0, 0)), A, A, B)
    assert found(step, A) == of_elements(*range(32))
    assert found(step, B) == of_elements(*range(8))


def test_data_may_say_which() -> None:
    made = launch((False, 0, 0), (True, 0, ROW))
    kinds = Operand(F, CONTIGUOUS, gathers=1), Operand(F, CONTIGUOUS)
    made = made._replace(nest=SimpleNamespace(operands=kinds))  # type: ignore[arg-type]
    step = work(launch((False, 0, 0), (True, 0, ROW)), A, B)
    step.launch = made
    assert touched(step, A) is None
    assert found(step, B) == of_elements(*range(32))
    # One operand that is known does not make the other known.
    step.places = [A, A]
    assert touched(step, A) is None


def test_products_touch_their_matrices_and_what_is_behind() -> None:
    step = product(A, B, C, launch((False, 0, ROW), (True, 0, 16)), C, A.shifted(512))
    assert found(step, A) == of_elements(*range(32))
    assert found(step, B) == of_elements(*range(64))
    assert found(step, C) == of_elements(*range(32))
    behind = [128 + 16 * r + i for r in range(4) for i in range(ROW)]
    assert found(step, A.shifted(512)) == of_elements(*behind)
    assert found(product(A.shifted(8), B, C), A.shifted(8)) == of_elements(
        *range(2, 34)
    )


def test_other_steps_touch_whole_values() -> None:
    moved = copy(A, B.shifted(16), 24)
    assert found(moved, A) == [*range(24)]
    assert found(moved, B.shifted(16)) == [*range(16, 40)]
    assert found(copy(None, B, 3), B) == [0, 1, 2]
    order = OrderStep((), [A], [B], rows=3, length=7, count=2, itemsize=8)
    assert found(order, A) == [*range(3 * 7 * 8)]
    assert found(order, B) == [*range(3 * 2 * 4)]
    types = [ArrayType((n,), F) for n in (2, 3, 5)]
    for kind in (HostStep, CallsStep):
        call = SimpleNamespace(types=(types[:2], types[2:]))
        step = kind((), [A, B], [C], call=call)
        assert [len(found(step, p)) for p in (A, B, C)] == [8, 12, 20]
