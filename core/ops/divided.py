"""How the singular values of large matrices are found: their bidiagonal form, and that
one divided.

LAPACK's ?BDSDC halves a bidiagonal matrix until the pieces are small, and joins what it
has found of these. Here all pieces that do not depend on each other are parts that
threads share, and so are the products with the bases that led to the form [1].

[1] M. Gu, S. C. Eisenstat, A divide-and-conquer algorithm for the bidiagonal SVD
(1995).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from treadle.late import number
from treadle.ops import reflected
from treadle.trace.routine import (
    STATUS,
    Argument,
    At,
    Rounds,
    RoutineCall,
    Step,
    Varied,
    blocks_of,
    if_needed,
    named,
    stride_of,
)

LARGE = 128
"""From this order on, matrices are divided."""

_BLOCK = 32
"""Columns that LAPACK works on together, if it has the memory."""

_MOST_LEVELS = 10
_MOVED = 64
"""Rows or columns that a part sorts."""


class Form(NamedTuple):
    """A matrix to LAPACK, and where its factors go: real, of as many rows as columns or
    more, but less than twice as many.

    rows, columns; apart: numbers from one column to the next.
    copy: the matrix. left, right: the vectors, how many numbers apart their columns
      are, and how many left ones there are. values: the singular ones.
    work, numbers, integers: work memory.
    needed: 0 if it never happens.
    """

    dtype: np.dtype
    rows: int
    columns: int
    apart: int
    copy: At
    left: tuple[At, int, int]
    right: tuple[At, int]
    values: At
    work: At
    numbers: At
    integers: At
    needed: int


def work_length(narrow: int, wide: int) -> int:
    """Numbers of work memory that a form of these sizes needs."""
    joined = 3 * (narrow + 10) ** 2 + 2 * (narrow + 10)
    product = reflected.length(wide, narrow, wide)
    return max(joined, product, _BLOCK * (narrow + wide))


def numbers_length(narrow: int) -> int:
    """The right vectors as columns, diagonals, factors of reflections, powers of two,
    and what joints are made of."""
    square = narrow * (narrow + reflected.APART)
    return square + 4 * narrow + 64 + 2 * _pieces(narrow)


def integers_length(narrow: int) -> int:
    """Integers of 64 bits: orders, what pieces need, and what they report."""
    pieces, blocks = _pieces(narrow), -(-narrow // _MOVED)
    return narrow * (blocks + 1) + 5 * (narrow + 10) + 2 * pieces


def _levels(narrow: int) -> int:
    """How often a matrix is halved: so that of pieces, all equal but for one, none is
    empty."""
    return min(_MOST_LEVELS, ((narrow + 1).bit_length() - 1) // 2)


def _pieces(narrow: int) -> int:
    return 1 << _levels(narrow)


def _piece(narrow: int) -> int:
    """The order of a piece: between two is one row that joins them."""
    pieces = _pieces(narrow)
    return -(-(narrow - pieces + 1) // pieces)


def _width(narrow: int, level: int) -> int:
    """The order of what is joined at a level, counted from below."""
    return (_piece(narrow) + 1 << level) - 1


def _joints(narrow: int, level: int) -> int:
    """How many there are at a level; none above the last one."""
    return 1 << _levels(narrow) - 1 - level if level < _levels(narrow) else 0


def _is_level(needed: int, narrow: int, level: int) -> int:
    return int(needed and level < _levels(narrow))


def _joined_length(width: int) -> int:
    return 3 * (2 * width + 2) ** 2 + 2 * (2 * width + 2)


class _Divided(NamedTuple):
    """A form, with the places of what its pieces need."""

    form: Form

    @property
    def size(self) -> int:
        return self.form.dtype.itemsize

    def line(self, i: int) -> At:
        """The diagonal, what is beside it, and factors of reflections."""
        n = self.form.columns
        square = n * stride_of(n, self.form.dtype)
        return self.form.numbers.plus((square + i * n) * self.size)

    def scale(self, i: int) -> At:
        return self.line(4).plus(i * 8 * self.size)

    @property
    def joints(self) -> At:
        return self.line(4).plus(64 * self.size)

    @property
    def order(self) -> At:
        """That of singular values that ascend."""
        return self.form.integers

    @property
    def orders(self) -> At:
        return self.order.plus(8 * self.form.columns)

    @property
    def reports(self) -> At:
        n = self.form.columns
        return self.orders.plus(8 * n * blocks_of(n, _MOVED))

    @property
    def own(self) -> At:
        """Integers of the pieces."""
        return self.reports.plus(16 * number(_pieces, (self.form.columns,)))

    def square(self, of: tuple[At, int], first: int, apart: int) -> Varied:
        """The corner of a square on a diagonal, in each part so many places further."""
        place, line = of[0], (of[1] + 1) * self.size
        return Varied(place.plus(first * line), by_part=apart * line)


def steps(form: Form) -> list[Step]:
    """Those from the copy of the matrix on to its factors."""
    of, n, size = _Divided(form), form.columns, form.dtype.itemsize
    letter = partial(named, form.dtype)
    zero, one = form.dtype.type(0), form.dtype.type(1)
    numbers = form.apart * n
    diagonal, beside, first, second = (of.line(i) for i in range(4))
    (left, by_left, count), (right, by_right) = form.left, form.right
    length = _BLOCK * (form.rows + n)
    behind = form.copy.plus(form.rows * size)
    found: list[Step] = [
        RoutineCall(
            letter("laset"),
            ("A", form.apart - form.rows, n, zero, zero, behind, form.apart),
        ),
        RoutineCall("exponent", (of.scale(0), form.copy, numbers, size)),
        RoutineCall(letter("scal"), (numbers, of.scale(0), form.copy, 1)),
        RoutineCall(letter("laset"), ("A", n, 2, zero, zero, diagonal, n)),
        RoutineCall(
            letter("gebrd"),
            (
                *(form.rows, n, form.copy, form.apart, diagonal, beside),
                *(first, second, form.work, length, STATUS),
            ),
        ),
        RoutineCall("exponent", (of.scale(1), diagonal, 2 * n, size)),
        RoutineCall(letter("scal"), (2 * n, of.scale(1), diagonal, 1)),
        RoutineCall("nonzero", (diagonal, n, size)),
        RoutineCall(letter("laset"), ("A", form.rows, count, zero, one, left, by_left)),
        RoutineCall(letter("laset"), ("A", n, n, zero, one, right, by_right)),
        *_pieces_steps(of),
        RoutineCall(letter("copy"), (n, diagonal, 1, form.values, 1)),
        # Orders ascend, and are to descend: words are copied as if they were numbers.
        RoutineCall("dcopy", (n, of.order, 1, of.orders, -1)),
        RoutineCall(letter("lapmt"), (1, 1, n, form.values, 1, of.orders)),
        *[
            RoutineCall(letter("scal"), (n, of.scale(i).plus(size), form.values, 1))
            for i in (1, 0)
        ],
        _sorted(of),
        *_products(of),
    ]
    return if_needed(form.needed, [step._replace(sound=True) for step in found])


def _pieces_steps(of: _Divided) -> list[Step]:
    """The singular values of the pieces, and of what is joined of these."""
    form, n, size = of.form, of.form.columns, of.size
    letter = partial(named, form.dtype)
    sizes, count, q = (n,), number(_pieces, (n,)), number(_piece, (n,))
    left, right = form.left[:2], form.right
    rows = Varied(n, by_part=-(q + 1), most=q)
    # All but the last have a column more.
    wide = Varied(count - 1, by_part=-1, most=1)
    columns = Varied(n, by_part=-(q + 1), most=q + 1)
    lines = [Varied(of.line(i), by_part=(q + 1) * size) for i in range(2)]
    vt, u = (of.square(x, 0, q + 1) for x in (right, left))
    bases: tuple[Argument, ...] = (vt, right[1], u, left[1], u, left[1])
    work = Varied(form.work, by_part=4 * (q + 1) * size)
    reports = Varied(of.reports, by_part=8)
    sizes_of = "U", wide, rows, columns, rows, 0
    piece = RoutineCall(letter("lasdq"), (*sizes_of, *lines, *bases, work, reports))
    found: list[Step] = [
        RoutineCall("counted", (of.order, n, q + 1)),
        Rounds(1, (count, 0), (piece,)),
    ]
    reported = count
    for level in range(_MOST_LEVELS):
        joints = number(_joints, (*sizes, level))
        w = number(_width, (*sizes, level))
        found.append(_joined(of, level, joints, w, of.reports.plus(8 * reported)))
        reported = reported + joints
    found.append(RoutineCall("failures", (of.reports, reported)))
    return found


def _joined(of: _Divided, level: int, joints: int, w: int, reports: At) -> Rounds:
    """Pairs that are joined: w is the order of the first of each, and w or less that of
    the second."""
    form, n, size = of.form, of.form.columns, of.size
    letter, apart = partial(named, form.dtype), 2 * (w + 1)
    left, right = form.left[:2], form.right
    ends = [Varied(of.line(i).plus(w * size), by_part=apart * size) for i in range(2)]
    # The routine changes these two.
    own = [Varied(of.joints.plus(i * size), by_part=2 * size) for i in range(2)]
    length = number(_joined_length, (w,)) * size
    calls = [
        RoutineCall(letter("copy"), (1, there, 1, here, 1))
        for there, here in zip(ends, own, strict=True)
    ]
    join = RoutineCall(
        letter("lasd1"),
        (
            *(w, Varied(n - w - 1, by_part=-apart, most=w)),
            *(Varied(joints - 1, by_part=-1, most=1),),
            *(Varied(of.line(0), by_part=apart * size), *own),
            *(of.square(left, 0, apart), left[1]),
            *(of.square(right, 0, apart), right[1]),
            Varied(of.order, by_part=8 * apart),
            Varied(of.own, by_part=8 * 4 * apart),
            Varied(form.work, by_part=length),
            Varied(reports, by_part=8),
        ),
    )
    needed = number(_is_level, (1, n, level))
    return Rounds(1, (joints, 0), (*calls, join), needed=needed)


def _sorted(of: _Divided) -> Rounds:
    """The vectors in the order of their singular values: each part moves some rows of
    the left ones, and some columns of the right ones."""
    form, n, size = of.form, of.form.columns, of.size
    (left, by_left, _), (right, by_right) = form.left, form.right
    letter, parts = partial(named, form.dtype), blocks_of(n, _MOVED)
    count = Varied(n, by_part=-_MOVED, most=_MOVED)
    # The routines leave marks in it while they run.
    own = Varied(of.orders, by_part=8 * n)
    rows = Varied(left, by_part=_MOVED * size)
    columns = Varied(right, by_part=_MOVED * by_right * size)
    calls = (
        RoutineCall("dcopy", (n, of.order, 1, own, -1)),
        RoutineCall(letter("lapmt"), (1, count, n, rows, by_left, own)),
        RoutineCall(letter("lapmr"), (1, n, count, columns, by_right, own)),
    )
    return Rounds(1, (parts, 0), calls)


def _products(of: _Divided) -> list[Step]:
    """The vectors multiplied with the bases: the right ones as columns."""
    form, n, size = of.form, of.form.columns, of.size
    (left, by_left, count), (right, by_right) = form.left, form.right
    base = reflected.Reflections(
        *(form.dtype, form.rows, n, (form.copy, form.apart)), False, of.line(2)
    )
    beside = form.copy.plus(form.apart * size)
    other = reflected.Reflections(
        *(form.dtype, n - 1, n - 1, (beside, form.apart)), True, of.line(3)
    )
    turned, apart = form.numbers, stride_of(n, form.dtype)
    return [
        *reflected.steps(base, count, (left, by_left), form.work),
        RoutineCall("turned", (turned, right, n, n, apart, by_right, size)),
        *reflected.steps(other, n, (turned.plus(size), apart), form.work),
        RoutineCall("turned", (right, turned, n, n, by_right, apart, size)),
    ]
