"""The arena's holes, against a list of which bytes are taken; and whose memory a result
takes over."""

from __future__ import annotations

import random
from typing import Any

import pytest

import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from tests.core.plan.build import plan_of
from treadle.plan.liveness import check_plan
from treadle.plan.memory import _Arena, assign
from treadle.plan.steps import Buffer, Outline, Plan

X = array(8, 8)


@pytest.mark.parametrize("seed", range(20))
def test_holes_are_what_is_free(seed: int) -> None:
    r, arena = random.Random(seed), _Arena()
    alive: list[tuple[int, int]] = []
    for _ in range(60):
        if alive and r.random() < 0.5:
            arena.give(*alive.pop(r.randrange(len(alive))))
        else:
            size = 64 * r.randint(1, 5)
            free = [n for _, n in _gaps(alive, arena.size) if n >= size]
            before = arena.size
            offset = arena.take(size)
            assert all(offset + size <= a or a + n <= offset for a, n in alive)
            # The best fitting hole, if there is one; else no more than is needed.
            if free:
                assert arena.size == before
                (hole,) = [n for a, n in _gaps(alive, before) if a <= offset < a + n]
                assert hole == min(free)
            else:
                last = max((a + n for a, n in alive), default=0)
                assert (offset, arena.size) == (last, last + size)
            alive.append((offset, size))
        assert arena.holes == _gaps(alive, arena.size)


def _gaps(alive: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    found, at = [], 0
    for a, n in sorted(alive):
        if a > at:
            found.append((at, a - at))
        at = a + n
    return [*found, (at, size - at)] if size > at else found


def buffers(*lives: tuple[int, int, int]) -> Plan:
    """A plan of buffers without steps: bytes, first, last."""
    plan = Plan(Outline("", (), (), 0, 0), [], [], [], [], 0)
    for nbytes, first, last in lives:
        b = Buffer(nbytes)
        b.first, b.last = first, last
        plan.buffers.append(b)
    assign(plan, [])
    return plan


def test_buffers_that_are_not_alive_together_share_bytes() -> None:
    plan = buffers((100, 1, 2), (128, 3, 4), (10, 3, 3))
    assert [b.offset for b in plan.buffers] == [0, 0, 128]
    assert plan.arena == 192
    # One that dies where another is born is read there.
    assert buffers((64, 1, 2), (64, 2, 3)).arena == 128


def test_buffers_that_nobody_uses_have_no_bytes() -> None:
    plan = buffers((640, -1, -1), (0, 1, 1))
    assert plan.arena == 64


def over(function: Any, *args: Any) -> list[bool]:
    """For each step after the first, whether it writes over what it reads."""
    plan = plan_of(function, *args)
    check_plan(plan)
    found = []
    for step in plan.steps[1:]:
        reads = {p.buffer.offset for p in step.reads if p.buffer.home == "arena"}
        writes = {p.buffer.offset for p in step.writes if p.buffer.home == "arena"}
        found.append(bool(reads & writes))
    return found


def between(work: Any) -> Any:
    """Work between two kernels that fuse with nothing."""
    return lambda x: tnp.cumsum(work(tnp.cumsum(x, 1)), 0)


@pytest.mark.parametrize(
    ("work", "wanted"),
    [
        (tnp.exp, True),
        (lambda y: y / tnp.sum(y, 1)[:, None], True),
        (lambda y: tnp.exp(y.T), False),  # at other places
        (lambda y: y + y[::-1], False),
        (lambda y: y[:4] * 2.0, False),  # of another size
        (lambda y: y.astype("int32"), True),
    ],
)
def test_results_take_over_operands_that_die(work: Any, wanted: bool) -> None:
    assert over(between(work), X)[0] == wanted


def test_what_is_read_later_is_not_taken_over() -> None:
    def function(x: Any) -> Any:
        y = tnp.cumsum(x, 1)
        z = tnp.cumsum(tnp.exp(y), 0)
        return tnp.cumsum(z, 1), tnp.cumsum(y, 0)

    assert not any(over(function, X)[:1])
