"""How a CPU calls LAPACK for the matrices of a batch: arguments and tasks.

``void lapack(ptr args, i64 task)``, with 64-bit words: those of `Word` (the last for
small matrices: `treadle.backends.cpu.lapack.small`), then for each block of memory
three: its address, and bytes from one matrix and from one task to the next (the status
comes first), then the steps: what is called, when (see `When`), the number of
arguments, and for each of these three words: the block that it points into and the
offset, or `CONSTANT` and up to 16 bytes, to which it points.

Of rounds the arguments are three, each of three words: how many rounds, how many of
these the first part leaves out and how many more each other one; parts of the first
round, whether a part does all rounds at once, and nothing; what a round adds to the
parts, nothing, and how many words the steps of a part take, which follow. Their
arguments have five words: the third and fourth are what a round and a part add to the
second: an offset or, if it is `VARIED`, a number, of which the fifth is the most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.backends.cpu.lapack import small
from treadle.backends.cpu.lapack.library import Library
from treadle.backends.cpu.run.threads import pool
from treadle.late import number
from treadle.trace.routine import (
    Argument,
    At,
    Rounds,
    RoutineCall,
    Script,
    Step,
    Varied,
    lines,
    nbytes_behind,
    work_bytes,
)

CONSTANT, VARIED = -1, -2
BUILT_IN = (
    *("", "bytes", "swaps", "rows", "pairs", "turned", "exponent", "finite"),
    *("nonzero", "counted", "failures"),
)
"""What is no call, by number."""

ROUNDS = len(BUILT_IN)
"""What stands for rounds, where others have the number of what they call."""

_WORTH_SPLITTING_NS = 30_000
_CALL_NS = 300
_TASKS_PER_THREAD = 4


class Word(IntEnum):
    """Words of the arguments, before the blocks'."""

    TASKS = 0
    MATRICES = 1
    BLOCKS = 2
    STEPS = 3
    PINNED = 4
    GET_THREADS = 5
    SET_THREADS = 6
    POOL = 7
    FORK_JOIN = 8
    SMALL = 9


class When(IntEnum):
    """When a step is done: if all is SOUND, or if something has FAILED, or both."""

    NEVER = 0
    SOUND = 1
    FAILED = 2
    ALWAYS = 3
    LEADS = 4


TABLE = Word.SMALL + small.WORDS
"""Which word is the first of the blocks."""


def tasks(script: Script, matrices: int, elements: int, threads: int) -> int:
    """The number of tasks for some matrices of so many elements: one if there is little
    to do, else a few per thread."""
    group = small.group(script)
    args = len(script.steps), threads, matrices, elements, group
    return number(_tasks, args, low=1)


def _tasks(calls: int, threads: int, matrices: int, elements: int, group: int) -> int:
    time = matrices * (_CALL_NS * calls + elements**1.5 / 4) / group**0.5
    if threads == 1 or time < _WORTH_SPLITTING_NS:
        return 1
    return min(-(-matrices // group), _TASKS_PER_THREAD * threads)


def task_bytes(script: Script) -> int:
    """Bytes of memory that a task needs."""
    return work_bytes(script) + small.room(script)


def words(
    script: Script,
    types: Sequence[ArrayType],
    places: Sequence[Any],
    scratch: Callable[[int], Any],
    library: Library,
) -> list[Any]:
    """The words after the number of tasks.

    places: of operands and results, of these types. scratch: the place of a byte of the
      work memory.
    """
    per_task, offset = task_bytes(script), work_bytes(script)
    blocks = [scratch(0), 0, per_task]
    for t, place in zip(types, places, strict=True):
        blocks += [place, nbytes_behind(t, script.lead), 0]
    own = small.words(script, scratch(offset), per_task)
    offset = 64
    for nbytes in script.work:
        blocks += [scratch(offset), 0, per_task]
        offset += lines(nbytes)
    steps: list[Any] = []
    for step in script.steps:
        steps += _step(step, library.address)
    counts = script.times(types), len(blocks) // 3, len(script.steps)
    threads = pool()
    forks = threads.address, threads.fork_join
    return [*counts, *library.threads, *forks, *own, *blocks, *steps]


def _step(step: Step, address: Callable[[str], int]) -> list[Any]:
    when = number(_when, (int(step.failed), int(step.sound), step.needed))
    if isinstance(step, Rounds):
        return _rounds(step, when, address)
    found: list[Any] = [_what(step, address), when, len(step.args)]
    for arg in step.args:
        found += _argument(arg)
    return found


def _what(step: RoutineCall, address: Callable[[str], int]) -> int:
    built_in = step.name in BUILT_IN
    return BUILT_IN.index(step.name) if built_in else address(step.name)


def _rounds(rounds: Rounds, when: int, address: Callable[[str], int]) -> list[Any]:
    inner: list[Any] = []
    for step in rounds.steps:
        own = number(_when, (0, int(rounds.sound), step.needed))
        own += When.LEADS * step.leads
        inner += [_what(step, address), own, len(step.args)]
        for arg in step.args:
            inner += _varied(arg)
    length = len(inner)
    inner += [0] * (-length % 3)
    first, more = rounds.parts
    at_once = rounds.skipped is not None
    skipped = rounds.skipped or (0, 0)
    head = [rounds.times, *skipped, first, int(at_once), 0, more, 0, length]
    return [ROUNDS, when, 3 + len(inner) // 3, *head, *inner]


def _when(failed: int, sound: int, needed: int) -> int:
    if not needed:
        return When.NEVER
    return When.FAILED if failed else When.SOUND if sound else When.ALWAYS


def _argument(arg: Argument) -> list[Any]:
    if isinstance(arg, At):
        return [arg.block + 1, arg.offset, 0]
    if isinstance(arg, str):
        return [CONSTANT, ord(arg), 0]
    if isinstance(arg, np.generic):
        content = arg.tobytes().ljust(16, b"\0")
        return [CONSTANT, *np.frombuffer(content, np.int64).tolist()]
    return [CONSTANT, arg, 0]


def _varied(arg: Argument) -> list[Any]:
    if not isinstance(arg, Varied):
        return [*_argument(arg), 0, 0]
    first = arg.first
    begin = _argument(first)[:2] if isinstance(first, At) else [VARIED, first]
    return [*begin, arg.by_round, arg.by_part, arg.most]
