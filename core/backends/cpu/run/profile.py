"""A profiled run of a program, in terms of the plan's steps."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from treadle.backends.cpu.run.executor import Measured
from treadle.backends.cpu.run.executor_ir import HEADER_WORDS, OPCODES
from treadle.backends.cpu.run.threads import ticks_per_microsecond
from treadle.plan.record import Event, Record, StepTime
from treadle.plan.steps import walk

_NEAR = 1 << 18
"""Bytes of a stack: addresses that are closer are of one thread."""


class _Work(NamedTuple):
    """What a command runs: numbers of steps, and the tasks of each."""

    steps: tuple[int, ...]
    tasks: tuple[int, ...]

    def step_of(self, task: int) -> int:
        ends = list(accumulate(self.tasks))
        return self.steps[min(bisect_right(ends, task), len(self.steps) - 1)]


def profile(linked: Any, slots: int) -> Record:
    """Runs a linked plan once on the slots at an address, step by step."""
    linked, given = linked.walked, linked.program.slot_count
    own = np.zeros(max(given, linked.program.slot_count), np.int64)
    ctypes.memmove(own.ctypes.data, slots, 8 * given)
    measured = linked.program.profile(own.ctypes.data)
    tick = 1e-6 / ticks_per_microsecond()
    works = _works(linked)
    busy = _busy(measured, works)
    times: dict[int, StepTime] = {}
    control = 0.0
    for command, ticks, count in measured.rows:
        work = works.get(8 * command.start)
        if work is None:
            control += ticks * tick
            continue
        shares = [busy.get((8 * command.start, step), 0) for step in work.steps]
        if not any(shares):
            shares = list(work.tasks)
        for step, share in zip(work.steps, shares, strict=True):
            seconds = ticks * tick * share / max(sum(shares), 1)
            old = times.get(step, StepTime())
            # A kernel may take several commands each time.
            times[step] = StepTime(old.seconds + seconds, max(old.calls, count))
    events = _events(measured, works, tick)
    return Record(
        measured.status, times, control, events, measured.lost, measured.seconds
    )


def _works(linked: Any) -> dict[int, _Work]:
    """What each command that does work runs, by its distance from the program."""
    numbers = {id(step): n for n, (_, step) in enumerate(walk(linked.plan.steps))}
    words, commands = linked.program.words, linked.program.commands
    found = {}
    for first, steps in linked.spans:
        at, done = first, 0
        while done < len(steps):
            start = commands[at].start
            block = words[start + HEADER_WORDS :]
            if words[start] == OPCODES["group"]:
                # Per call: end task, function, and where its block with tasks begins.
                count = int(block[0])
                tasks = [int(block[int(block[4 + 3 * k])]) for k in range(count)]
            else:
                count, tasks = 1, [1]
            mine = [numbers[id(step)] for step in steps[done : done + count]]
            found[8 * start] = _Work(tuple(mine), tuple(tasks))
            done, at = done + count, at + 1
    return found


def _busy(measured: Measured, works: dict[int, _Work]) -> dict[tuple[int, int], int]:
    """Ticks that tasks of each step took, by command and step."""
    found: dict[tuple[int, int], int] = {}
    for command, task, begin, end, _ in measured.events.tolist():
        if task >= 0 and len(works[command].steps) > 1:
            key = command, works[command].step_of(task)
            found[key] = found.get(key, 0) + end - begin
    return found


def _events(measured: Measured, works: dict[int, _Work], tick: float) -> list[Event]:
    threads = _threads(measured)
    log = measured.events.tolist()
    first = min([begin for _, _, begin, _, _ in log], default=0)
    found = []
    for command, task, begin, end, address in log:
        work = works[command]
        steps = work.steps if task < 0 else (work.step_of(task),)
        thread = 0 if task < 0 else threads[address]
        times = (begin - first) * tick, (end - begin) * tick
        found.append(Event(steps, thread, *times, task))
    return found


def _threads(measured: Measured) -> dict[int, int]:
    """A number for each thread, by the addresses on its stack."""
    tasks = measured.events[measured.events[:, 1] >= 0]
    found, count = {}, 0
    for address in np.unique(tasks[:, 4]).tolist():
        mine = abs(address - measured.base) < _NEAR
        count += not mine
        found[address] = 0 if mine else count
    return found
