"""How a CPU transforms the lines of an array: tasks, and the words of its kernel."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from treadle.backends.cpu.fourier.library import Loop
from treadle.late import number
from treadle.trace.routine import Transform

_WORTH_SPLITTING_NS = 20_000
_TASKS_PER_THREAD = 2
_TOGETHER = 8
"""pocketfft transforms up to so many lines at once, in vectors."""


class Word(IntEnum):
    """Words of the kernel's arguments; sizes and steps in the order in which the inner
    loops of NumPy take them. Steps are in bytes."""

    TASKS = 0
    LOOP = 1
    DATA = 2
    FACTOR = 3
    OPERAND = 4
    RESULT = 5
    OUTER = 6
    INNER = 7
    PIECES = 8
    LENGTH_IN = 9
    LENGTH_OUT = 10
    BETWEEN_IN = 11
    BETWEEN_OUT = 12
    WITHIN_IN = 13
    WITHIN_OUT = 14
    BLOCK_IN = 15
    BLOCK_OUT = 16


def tasks(t: Transform, threads: int) -> int:
    """The number of tasks: one if there is little to do, else a few per thread."""
    return tasks_for(t, number(_groups, (t.inner,), low=1), threads)


def tasks_for(t: Transform, groups: int, threads: int) -> int:
    """The number of tasks for blocks that can be cut into so many parts."""
    return number(_tasks, (t.n, t.outer, t.inner, groups, threads), low=1)


def _tasks(n: int, outer: int, inner: int, groups: int, threads: int) -> int:
    # Five operations for each number and factor of two, four of them in a nanosecond.
    time = outer * inner * n * max(math.log2(max(n, 2)), 1) * 1.25
    if threads == 1 or time < _WORTH_SPLITTING_NS:
        return 1
    pieces = outer * groups
    return max(min(pieces, _TASKS_PER_THREAD * threads), 1)


def _groups(inner: int) -> int:
    """Into how many parts the lines of a block can be cut."""
    return max(inner // _TOGETHER, 1)


def _pieces(outer: int, inner: int, tasks: int) -> int:
    """Into how many parts the lines of each block are cut: each call of the library
    prepares for the length of its lines."""
    return max(min(-(-tasks // max(outer, 1)), _groups(inner)), 1)


def words(
    t: Transform,
    tasks: int,
    places: Sequence[Any],
    loop: Loop,
    itemsizes: Sequence[int],
) -> list[Any]:
    """The words after the number of tasks. places, itemsizes: of operand and result."""
    first, rest = words_around(t, tasks, loop, itemsizes)
    return [*first, *places, *rest]


def words_around(
    t: Transform, tasks: int, loop: Loop, itemsizes: Sequence[int]
) -> tuple[list[Any], list[Any]]:
    """The words before those that say where something is, and those after them."""
    function = loop.even
    if loop.odd != loop.even:
        function = number(_by_parity, (t.n, loop.even, loop.odd))
    pieces = number(_pieces, (t.outer, t.inner, tasks), low=1)
    between = [a * b for a, b in zip(t.between, itemsizes, strict=True)]
    within = [a * b for a, b in zip(t.within, itemsizes, strict=True)]
    blocks = [n * t.inner * size for n, size in zip(t.lengths, itemsizes, strict=True)]
    sizes = [t.outer, t.inner, pieces, *t.lengths]
    return [function, loop.data, factor(t)], [*sizes, *between, *within, *blocks]


def _by_parity(n: int, even: int, odd: int) -> int:
    return odd if n % 2 else even


def factor(t: Transform, also: float = 1.0) -> int:
    """The bits of the number by which results are multiplied, and of another one."""
    return number(_factor, (t.n, t.power, t.dtype.char, also))


def _factor(n: int, power: float, kind: str, also: float) -> int:
    content = struct.pack(kind, also * n**-power).ljust(8, b"\0")
    return int.from_bytes(content, "little")
