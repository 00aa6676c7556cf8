"""The checker of schedules: each kernel has a way to run that fits it."""

from __future__ import annotations

from typing import Any

import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from tests.core.plan.build import scheduled
from treadle.errors import InternalError
from treadle.plan.check import check_schedule
from treadle.plan.schedule import Schedule
from treadle.plan.target import Work

X = array(3, 4)


def made(function: Any = lambda x: tnp.sort(x @ tnp.exp(x.T), 1)) -> Schedule:
    found = scheduled(function, X)[1]
    check_schedule(found)
    return found


def number(schedule: Schedule, kind: str) -> int:
    kinds = [type(e.kernel).__name__ for e in schedule.kernels.entries]
    return kinds.index(kind)


def fails(schedule: Schedule, words: str) -> None:
    with pytest.raises(InternalError, match=words):
        check_schedule(schedule)


def changed(schedule: Schedule, n: int, how: Any, strands: int = 1) -> Schedule:
    new = (*schedule.how[:n], how, *schedule.how[n + 1 :])
    return schedule._replace(how=new, strands=strands)


def test_there_is_a_way_for_each_kernel() -> None:
    found = made()
    count = len(found.how)
    fails(
        found._replace(how=found.how[:-1]), f"{count - 1} ways to run {count} kernels"
    )


@pytest.mark.parametrize("kind", ["Launch", "Sort"])
def test_work_is_in_tasks_and_memory(kind: str) -> None:
    found = made()
    n = number(found, kind)
    check_schedule(changed(found, n, Work(1, 0, 0)))
    for wrong in (Work(0), Work(1, -1), Work(1, 64, -1), Work(-1)):
        words = rf"entry {n}, {kind} \(.*\), runs as {wrong.tasks} tasks on {wrong[1]}"
        fails(changed(found, n, wrong), words)


def test_products_are_launched_at_least_once() -> None:
    found = made()
    n = number(found, "ProductKernel")
    check_schedule(changed(found, n, [Work(2), Work(3)]))
    fails(changed(found, n, []), rf"entry {n}, ProductKernel \(.*\), is never launched")
    fails(changed(found, n, [Work(2), Work(0)]), "runs as 0 tasks")


def test_in_a_loop_of_strands_all_have_as_many_tasks() -> None:
    found = made(lambda x: tnp.exp(x))
    check_schedule(changed(found, 0, Work(2), strands=2))
    check_schedule(changed(found, 0, Work(2), strands=1))
    fails(changed(found, 0, Work(3), strands=2), "3 tasks in a loop of 2 strands")


def test_programs_inside_are_checked_and_are_their_own() -> None:
    def function(x: Any) -> Any:
        return td.cond(x[0, 0] > 0, tnp.sin, lambda x: tnp.cos(x) @ x.T @ x, x)

    found = made(function)
    n = number(found, "Choose")
    first, second = found.how[n]
    other = made(function).how[number(found, "Choose")]
    for wrong in ([first], [second, first], [*other], [first, other[1]]):
        fails(changed(found, n, wrong), f"entry {n}, .*the schedules of other programs")
    inner = second._replace(how=second.how[:-1])
    fails(changed(found, n, [first, inner]), "ways to run")
