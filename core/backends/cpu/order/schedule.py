"""How a CPU finds the order of rows of unsigned integers: arguments and tasks.

``void order(ptr args, i64 task)``, with 64-bit words: tasks, rows, the length of a row,
how many places of each row are wanted, the keys, the places (int32), scratch, and bytes
of scratch per task. Rows lie behind each other. A task orders some rows.
"""

from __future__ import annotations

SHORT_ROW = 128
"""Rows up to this long are ordered by counting, for each key, the keys before it."""

FEW = 4
"""If at most one in so many is wanted, the others are not ordered."""

_WORTH_SPLITTING = 4_000
_TASKS_PER_THREAD = 4


def order_scratch(length: int, itemsize: int) -> int:
    """Bytes of scratch that a task needs: keys and places, twice. (If few places are
    wanted, three times for half of the keys at most, and the places of those few.)"""
    nbytes = 2 * length * (itemsize + 4) if length > SHORT_ROW else 0
    return max(64, -(-nbytes // 64) * 64)


def order_tasks(rows: int, length: int, threads: int) -> int:
    """The number of tasks: one if there is little to do, else a few per thread."""
    if threads == 1 or rows * length < _WORTH_SPLITTING:
        return 1
    return min(rows, _TASKS_PER_THREAD * threads)
