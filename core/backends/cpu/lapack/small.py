"""Which small matrices kernels of our own factor, many at once, and what these need.

Whether a matrix is small depends on its own sizes alone, and is decided when they are
known: no other matrix makes a difference to a result, nor does an open size.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from treadle.backends.cpu.lapack.lanes import slab
from treadle.late import number
from treadle.trace.routine import Script, lines

MOST_SIZES = 3
LEFT, LOWER, TRANSPOSED, UNIT = 1, 2, 4, 8
"""How a triangular matrix is meant: the sum of some of these."""


class SmallWord(IntEnum):
    """Words about small matrices, then `MOST_SIZES` words for their sizes.

    FEW: as many matrices are better done one by one.
    """

    IS_SMALL = 0
    FEW = 1
    ROOM = 2
    ROOM_BYTES = 3
    SIZES = 4


WORDS = len(SmallWord) - 1 + MOST_SIZES


def room(script: Script) -> int:
    """Bytes that a task needs; none if the matrices are not small."""
    small = script.small
    if small is None:
        return 0
    of = slab(small.dtype)
    args = small.what, of.count, of.parts, of.real.itemsize, *small.sizes
    return lines(number(_room, args))


def group(script: Script) -> int:
    """How many matrices are done together: 1 if they are not small."""
    small = script.small
    if small is None:
        return 1
    return number(_group, (slab(small.dtype).count, small.what, *small.sizes), low=1)


def words(script: Script, place: Any, per_task: int) -> list[Any]:
    """place: of the memory that the first task needs."""
    small = script.small
    if small is None:
        return [0] * WORDS
    given = small.what, *small.sizes
    sizes = [*small.sizes, *[0] * (MOST_SIZES - len(small.sizes))]
    return [number(_is_small, given), number(_few, given), place, per_task, *sizes]


def _is_small(what: str, n: int, *others: int) -> int:
    if what == "cholesky":
        return int(n <= 64)
    if what in ("qr", "triangle"):
        return int(n * max(others) <= 1024)
    return int(n <= 16 and others[0] <= 64)


def _few(what: str, n: int, *others: int) -> int:
    return n if what == "cholesky" and n > 40 else 2


def _group(lanes: int, what: str, *sizes: int) -> int:
    return lanes if _is_small(what, *sizes) else 1


def _room(what: str, lanes: int, parts: int, itemsize: int, *sizes: int) -> int:
    """Slabs of what goes in and comes out, and of whole numbers."""
    if not _is_small(what, *sizes):
        return 0
    n, others, *_ = *sizes, 0

    def slab_of(numbers: int) -> int:
        return -(-numbers * parts // lanes) * lanes * lanes * itemsize

    if what == "cholesky":
        by_columns = n * parts * -(-n // lanes) * lanes * itemsize
        return max(slab_of(n * n), by_columns)
    if what == "lu":
        return slab_of(n * others) + 4 * lanes * (n + others)
    if what in ("qr", "triangle"):
        factors = min(n, others) * parts * lanes * itemsize
        made = slab_of(n * sizes[2]) if what == "qr" else 0
        return slab_of(n * others) + made + factors
    return slab_of(n * n) + 2 * slab_of(n * others)
