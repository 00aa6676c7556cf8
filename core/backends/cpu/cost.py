"""How long a nest takes, roughly, and into how many tasks it is worth cutting."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.dims import hint
from treadle.fuse.lowering.launches import Launch
from treadle.late import number
from treadle.plan.cost import points
from treadle.plan.weight import instructions

_NS_PER_INSTRUCTION = 0.035
"""Per element: an instruction on a vector of 16 takes about half a nanosecond."""
_NS_PER_BYTE = 0.06
_WORTH_SPLITTING_NS = 12_000
_TASK_NS = 150_000
_SERIAL_BYTES = 512
"""The part of a row that is worth a task, if each task goes through all rows: less, and
the tasks write to each other's cache lines."""


def nest_tasks(launch: Launch, threads: int) -> int:
    """The number of tasks: one if small, else a few per thread."""
    work, widths, sizes = _extents(launch)
    if launch.nest.serial:
        args = work, widths, threads, launch.inner, *sizes
        return number(_serial_tasks, args, low=1)
    return number(_nest_tasks, (work, widths, threads, *sizes), low=1)


def worth_sharing(launches: Sequence[Launch]) -> bool:
    """Whether nests take so long together that threads gain by dividing them."""
    return sum(map(nanoseconds, launches)) >= _WORTH_SPLITTING_NS


def nanoseconds(launch: Launch) -> float:
    """The time on one thread, of the sizes that were traced."""
    work, widths, sizes = _extents(launch)
    return _nanoseconds(work, widths, *map(hint, sizes))


def _extents(launch: Launch) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Instructions at each point, the operands' widths, the number of points followed
    by the operands' lengths."""
    operands = [
        (b.atom.type.size, op.dtype.itemsize)
        for b, op in zip(launch.bindings, launch.nest.operands, strict=True)
        if b.atom is not None
    ]
    widths = tuple([width for _, width in operands])
    sizes = points(launch), *[n for n, _ in operands]
    return instructions(launch.nest), widths, sizes


def _serial_tasks(
    work: int, widths: tuple[int, ...], threads: int, inner: int, *sizes: int
) -> int:
    """Tasks that divide each row: no more than threads, for all of them visit it."""
    wide = max(1, inner * max(widths) // _SERIAL_BYTES)
    return min(_nest_tasks(work, widths, threads, *sizes), threads, wide)


def _nest_tasks(
    work: int, widths: tuple[int, ...], threads: int, count: int, *lengths: int
) -> int:
    """As many as the estimated time on one thread is worth."""
    time = _nanoseconds(work, widths, count, *lengths)
    if threads == 1 or time < _WORTH_SPLITTING_NS:
        return 1
    per_thread = min(4, max(1, int(time / threads / _TASK_NS)))
    return threads * per_thread


def _nanoseconds(
    work: int, widths: tuple[int, ...], count: int, *lengths: int
) -> float:
    """The time on one thread.

    work: instructions at each of `count` points. widths, lengths: of operands.
    """
    nbytes = 0
    for n, width in zip(lengths, widths, strict=True):
        # Broadcasts count once per row.
        nbytes += (n if n < count else count) * width
    return max(count * work * _NS_PER_INSTRUCTION, nbytes * _NS_PER_BYTE)
