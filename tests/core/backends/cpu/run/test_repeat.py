"""A loop as one command does what its commands do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends.cpu.run.test_executor import ADD, BELOW, MARK, run, words
from treadle.backends.cpu.run.executor import (
    GROUP_WORDS,
    Indirect,
    ProgramBuilder,
    Recorded,
    Scaled,
    Slot,
)
from treadle.backends.cpu.run.repeat import ENDLESS, repeat

OLD, NEW = 3, 4
"""Slots that are exchanged. Slots 0 to 2 hold two buffers of a number, and rows."""


def _step(p: ProgramBuilder, index: int) -> None:
    """``new = old + 3``, into a row of two as well; another row is marked."""
    row = Slot(2, 8, (Scaled(index, 32),))
    p.copy(Slot(NEW), Slot(OLD), 8)
    p.call(ADD, [Slot(NEW), 3])
    p.copy(row, Slot(NEW), 8)
    marked = Slot(2, 16, (Scaled(index, 32),))
    p.group([(MARK, [marked, 7], 1), (ADD, [Slot(1, 8), 1], 1)])


def _begun(p: ProgramBuilder) -> int:
    p.set(OLD, Slot(0))
    p.set(NEW, Slot(1))
    return p.slot()


def _run(p: ProgramBuilder, count: int) -> tuple[list[int], list[bool]]:
    """What lies in memory at the end, and whether slots hold what they held first."""
    first, second, rows = words(1), words(2), words(4 * count + 4)
    first[0] = 100
    slots = run(p.build(), first, second, rows, 0, 0)
    kept = [slots[s] == slots[b] for s, b in ((OLD, 0), (NEW, 1))]
    return [*first, *second, *rows], kept


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_counted_loop(count: int) -> None:
    p, q = ProgramBuilder(slots=5), ProgramBuilder(slots=5)
    index = _begun(p)
    with p.loop(count, index):
        with p.recording() as body:
            _step(p, index)
        p.swap(OLD, NEW)
    operands = repeat(count, _begun(q), body, [(OLD, NEW)])
    assert operands is not None
    q.repeat(operands)
    q_memory, q_kept = _run(q, count)
    assert (q_memory, q_kept) == _run(p, count)
    rows = np.array(q_memory[3:-4]).reshape(count, 4)
    assert rows[:, 1].tolist() == [100 + 3 * (i + 1) for i in range(count)]
    assert rows[:, 2].tolist() == [7] * count
    assert q_kept == [count % 2 == 0] * 2


def test_loop_until() -> None:
    p, q = ProgramBuilder(slots=5), ProgramBuilder(slots=5)
    _begun(p)
    flag, limit = Slot(2), Slot(2, 8)
    with p.recording() as before:
        p.call(BELOW, [flag, Slot(OLD), limit])
    with p.recording() as body:
        p.copy(Slot(NEW), Slot(OLD), 8)
        p.call(ADD, [Slot(NEW), 3])
    _begun(q)
    operands = repeat(ENDLESS, None, body, [(OLD, NEW)], before, flag)
    assert operands is not None
    q.repeat(operands)
    first, second, rest = words(1), words(1), np.array([0, 10], np.int64)
    slots = run(q.build(), first, second, rest, 0, 0)
    assert (first[0], second[0]) == (12, 9)
    assert slots[OLD] == first.ctypes.data


@pytest.mark.parametrize(
    "body",
    [
        [],
        [Recorded("set", [0, 1])],
        [Recorded("call", [MARK, Indirect(Slot(0)), Slot(0), 1])],
        [Recorded("call", [MARK, 1, *[0] * GROUP_WORDS])],
    ],
    ids=["nothing", "other commands", "numbers in memory", "many arguments"],
)
def test_what_stays_a_loop_of_commands(body: Sequence[Recorded]) -> None:
    assert repeat(3, 5, body, []) is None


def test_profiled_runs_are_of_commands() -> None:
    def recurrence(x: td.Array) -> tuple[td.Array, td.Array]:
        def step(c: td.Array, x: td.Array) -> tuple[td.Array, td.Array]:
            c = tnp.sin(c) + x[::-1]
            return c, c * 2

        return td.scan(step, tnp.zeros(3), x)

    x = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    f = td.jit(recurrence)
    last, rows = f(x)
    (steps,) = [r for r in td.profile(f)(x).kernels if "sin" in r.does]
    assert steps.calls == 5
    c = np.zeros(3, "float32")
    for i in range(5):
        c = np.sin(c) + x[i, ::-1]
        np.testing.assert_allclose(rows[i], c * 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, c, rtol=1e-5, atol=1e-6)
