"""Which small matrices kernels of our own factor, many at once, and what these need.

Whether a matrix is small depends on its own sizes alone, and is decided when they are
known: no other matrix makes a difference to a result, nor does an open size.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from treadle.backends.cpu.lapack import cholesky
from treadle.backends.cpu.lapack.lanes import Slab, slab
from treadle.late import number
from treadle.trace.routine import Script, Small, lines

MOST_SIZES = 4


class SmallWord(IntEnum):
    """Words about small matrices, then `MOST_SIZES` words for their sizes."""

    IS_SMALL = 0
    ROOM = 1
    ROOM_BYTES = 2
    SIZES = 3


WORDS = len(SmallWord) - 1 + MOST_SIZES


def room(script: Script) -> int:
    """Bytes that a task needs; none if the matrices are not small."""
    small = script.small
    if small is None:
        return 0
    return lines(number(_room, (*_fixed(small), *small.sizes)))


def group(script: Script) -> int:
    """How many matrices are factored together: 1 if they are not small."""
    small = script.small
    if small is None:
        return 1
    lanes = slab(small.dtype).count
    return number(_group, (lanes, *_fixed(small), *small.sizes), low=1)


def words(script: Script, place: Any, per_task: int) -> list[Any]:
    """place: of the memory that the first task needs."""
    small = script.small
    if small is None:
        return [0] * WORDS
    is_small = number(_is_small, (small.what, *small.sizes))
    sizes = [*small.sizes, *[0] * (MOST_SIZES - len(small.sizes))]
    return [is_small, place, per_task, *sizes]


def _fixed(small: Small) -> tuple[Any, ...]:
    of: Slab = slab(small.dtype)
    return small.what, of.count, of.parts, of.real.itemsize


def _is_small(what: str, *sizes: int) -> int:
    return int(sizes[0] <= 64)


def _group(lanes: int, what: str, *rest: Any) -> int:
    return lanes if _room(what, *rest) else 1


def _room(what: str, lanes: int, parts: int, itemsize: int, *sizes: int) -> int:
    if not _is_small(what, *sizes):
        return 0
    return cholesky.room(*sizes, lanes, parts, itemsize)
