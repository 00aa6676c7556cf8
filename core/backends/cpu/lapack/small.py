"""Which small matrices kernels of our own factor, many at once, and what these need.

Whether a matrix is small depends on its own sizes alone, and is decided when they are
known: no other matrix makes a difference to a result, nor does an open size.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from treadle.backends.cpu.lapack.lanes import slab
from treadle.dims import is_dim
from treadle.late import number
from treadle.trace.routine import Script, lines

MOST_SIZES = 3
LEFT, LOWER, TRANSPOSED, UNIT = 1, 2, 4, 8
"""How a triangular matrix is meant: the sum of some of these."""


class SmallWord(IntEnum):
    """Words about small matrices, then `MOST_SIZES` words for their sizes.

    IS_SMALL: 0, or a `Size`.
    FEW: as many matrices are better done one by one.
    """

    IS_SMALL = 0
    FEW = 1
    ROOM = 2
    ROOM_BYTES = 3
    SIZES = 4


class Size(IntEnum):
    """What matrices are: small, or small triangles with many right sides."""

    SMALL = 1
    WIDE = 2


class Ways(NamedTuple):
    """What a kernel has code for: LAPACK's routines, several small matrices at once,
    one after the other, and small triangles with many right sides."""

    calls: bool
    many: bool = False
    alone: bool = False
    wide: bool = False


ALL = Ways(True, True, True, True)

WORDS = len(SmallWord) - 1 + MOST_SIZES
AT_ONCE = 8
"""Vectors of right sides that are solved for together."""
_MOST_SIDES = 64
_MOST_ROWS = 128  # of a triangle: not measured beyond
_ALL = 1 << 62


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
    of = slab(small.dtype)
    return number(_group, (of.count, small.what, of.parts, *small.sizes), low=1)


def ways(script: Script, matrices: int) -> Ways:
    """Those that so many matrices may need, whatever sizes they get."""
    small = script.small
    if small is None:
        return Ways(True)
    if any(map(is_dim, small.sizes)):
        return ALL
    what, parts, sizes = small.what, slab(small.dtype).parts, small.sizes
    size = _is_small(what, parts, *sizes)
    if size == Size.WIDE:  # which takes functions of those for many
        return Ways(False, many=True, wide=True)
    if not size:
        return Ways(True)
    one_by_one = not is_dim(matrices) and matrices <= _few(what, parts, *sizes)
    return Ways(False, not one_by_one, True)


def words(script: Script, place: Any, per_task: int) -> list[Any]:
    """place: of the memory that the first task needs."""
    small = script.small
    if small is None:
        return [0] * WORDS
    given = small.what, slab(small.dtype).parts, *small.sizes
    sizes = [*small.sizes, *[0] * (MOST_SIZES - len(small.sizes))]
    return [number(_is_small, given), number(_few, given), place, per_task, *sizes]


def _is_small(what: str, parts: int, n: int, *others: int) -> int:
    if what == "cholesky":
        return Size.SMALL if n <= 64 else 0
    if what in ("qr", "triangle"):
        return Size.SMALL if n * max(others) <= 1024 else 0
    if n <= 16 and others[0] <= _MOST_SIDES:
        return Size.SMALL
    wide = what == "triangular_solve" and parts == 1 and n <= _MOST_ROWS
    return Size.WIDE if wide and others[0] > _MOST_SIDES else 0


def _few(what: str, parts: int, n: int, *others: int) -> int:
    if _is_small(what, parts, n, *others) == Size.WIDE:
        return _ALL
    return n if what == "cholesky" and n > 40 else 2


def _group(lanes: int, what: str, *sizes: int) -> int:
    return lanes if _is_small(what, *sizes) == Size.SMALL else 1


def _room(what: str, lanes: int, parts: int, itemsize: int, *sizes: int) -> int:
    """Slabs of what goes in and comes out, and of whole numbers."""
    size = _is_small(what, parts, *sizes)
    if not size:
        return 0
    n, others, *_ = *sizes, 0

    def slab_of(numbers: int) -> int:
        return -(-numbers * parts // lanes) * lanes * lanes * itemsize

    if size == Size.WIDE:
        return slab_of(n * n) + AT_ONCE * slab_of(n)
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
