"""Products of Householder's reflections with many vectors, in blocks.

Those of a block are ``I - Y Vᴴ`` with Y = V T and a triangular T [1]. LAPACK's routines
multiply with the triangles, by many small calls, in which threads wait for each other.
With Y, and with the zeros and ones that LAPACK does not store in V, two products of
matrices are all that a block takes.

[1] R. Schreiber, C. Van Loan, A storage-efficient WY representation for products of
Householder transformations (1989).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from treadle.late import number
from treadle.trace.routine import (
    At,
    Rounds,
    RoutineCall,
    Step,
    Varied,
    blocks_of,
    lines,
    named,
    stride_of,
)

BLOCK = 64
"""Reflections that are multiplied together."""

TOGETHER = 128
"""Vectors that a part multiplies."""

APART = 16
"""Numbers that rows begin further apart in work memory, at most."""


class Reflections(NamedTuple):
    """The factors of reflections, as LAPACK leaves them.

    rows, many: the length of the first one's vector, and how many there are: each
      vector is shorter by one, from its beginning.
    vectors: where the first begins, and numbers to the next column. They are columns,
      or (of real numbers) rows if `across`.
    taus: the factors.
    backward: whether the last vector is the longest: each ends with its one, a row
      below that of the vector before. The last one is to be multiplied with last.
    """

    dtype: np.dtype
    rows: int
    many: int
    vectors: tuple[At, int]
    across: bool
    taus: At
    backward: bool = False


def length(rows: int, count: int, columns: int) -> int:
    """Numbers of work memory for so many columns."""
    apart = rows + APART
    blocks, parts = -(-count // BLOCK), -(-columns // TOGETHER)
    square = BLOCK * BLOCK
    return 2 * count * apart + blocks * square + parts * BLOCK * TOGETHER + 2 * APART


class Work(NamedTuple):
    """Where V, Y, the triangles and what parts need lie in work memory, and how many
    numbers apart columns of the first two are."""

    vectors: At
    products: At
    triangles: At
    own: At
    apart: int


def places(dtype: np.dtype, rows: int, count: int, at: At) -> Work:
    """Those for reflections of vectors of so many rows."""
    apart, size = stride_of(rows, dtype), dtype.itemsize
    square = lines(count * apart * size)
    triangles = blocks_of(count, BLOCK) * (BLOCK * BLOCK * size)
    found = at, at.plus(square), at.plus(2 * square), at.plus(2 * square + triangles)
    return Work(*found, apart)


def steps(
    of: Reflections, columns: int, target: tuple[At, int], work: At
) -> list[Step]:
    """Multiplies columns, in place, with the product of the reflections.

    target: where they begin, and numbers from one to the next.
    """
    found = places(of.dtype, of.rows, of.many, work)
    sizes = of.rows, of.many, columns
    product = multiplied(of.dtype, sizes, found, target, backward=of.backward)
    return [_prepared(of, found), product]


def _prepared(of: Reflections, work: Work) -> Rounds:
    """V and Y of all blocks, one after the other: beside each other, these many small
    calls would wait for OpenBLAS's memory."""
    size, letter = of.dtype.itemsize, partial(named, of.dtype)
    zero, one = of.dtype.type(0), of.dtype.type(1)
    count = Varied(of.many, by_round=-BLOCK, most=BLOCK)
    # Vectors begin in the first row, or on the diagonal.
    down = 0 if of.backward else 1
    rows = Varied(of.rows, by_round=-BLOCK)
    if of.backward:
        rows = Varied(BLOCK, by_round=BLOCK, most=of.rows)
    v, y = (
        (Varied(x, by_round=BLOCK * (work.apart + down) * size), work.apart)
        for x in (work.vectors, work.products)
    )
    source, stride = of.vectors
    from_ = Varied(source, by_round=BLOCK * (stride + down) * size), stride
    square = Varied(work.vectors, by_round=BLOCK * (work.apart + 1) * size), work.apart
    t = Varied(work.triangles, by_round=BLOCK * BLOCK * size), BLOCK
    taus = Varied(of.taus, by_round=BLOCK * size)
    turned = *(v[0], from_[0], count, rows), work.apart, stride, size
    zeros, order = ("L", "B") if of.backward else ("U", "F")
    calls = (
        RoutineCall("turned", turned)
        if of.across
        else RoutineCall(letter("lacpy"), ("A", rows, count, *from_, *v)),
        RoutineCall(letter("laset"), (zeros, count, count, zero, one, *square)),
        RoutineCall(letter("laset"), ("A", BLOCK, BLOCK, zero, zero, *t)),
        RoutineCall(letter("larft"), (order, "C", rows, count, *v, taus, *t)),
        RoutineCall(
            letter("gemm"), ("N", "N", rows, count, count, one, *v, *t, zero, *y)
        ),
    )
    return Rounds(blocks_of(of.many, BLOCK), (1, 0), calls)


def multiplied(
    dtype: np.dtype,
    sizes: tuple[int, int, int],
    work: Work,
    target: tuple[At, int],
    of_ones: bool = False,
    backward: bool = False,
) -> Rounds:
    """Columns multiplied with blocks of reflections from the last to the first, or
    `backward`.

    sizes: rows of the first one, how many, and columns.
    of_ones: whether the columns are those of ones on a diagonal, of which the last
      blocks leave the first as they are.
    """
    (m, k, columns), size, letter = sizes, dtype.itemsize, partial(named, dtype)
    zero, one, last = dtype.type(0), dtype.type(1), number(_last, (k,))
    blocks, parts = blocks_of(k, BLOCK), blocks_of(columns, TOGETHER)
    rows, count = Varied(m - last, BLOCK), Varied(k - last, BLOCK, most=BLOCK)
    if backward:
        rows, count = Varied(BLOCK, BLOCK, most=m), Varied(k, -BLOCK, most=BLOCK)
    down, turn, last = (0, 1, 0) if backward else (1, -1, last)
    diagonal = (work.apart + down) * size
    v, y = (
        (Varied(x.plus(last * diagonal), turn * BLOCK * diagonal), work.apart)
        for x in (work.vectors, work.products)
    )
    # From the last columns on: with ones, they take longest.
    begun = (parts - 1) * TOGETHER
    some = Varied(columns - begun, 0, TOGETHER, TOGETHER)
    place, apart = target
    first = place.plus((last + begun * apart) * size)
    by_round, by_part = -BLOCK * size * down, -TOGETHER * apart * size
    c = Varied(first, by_round, by_part), apart
    inside = Varied(work.own, by_part=BLOCK * TOGETHER * size), BLOCK
    calls = (
        RoutineCall(
            letter("gemm"), ("C", "N", count, some, rows, one, *v, *c, zero, *inside)
        ),
        RoutineCall(
            letter("gemm"), ("N", "N", rows, some, count, -one, *y, *inside, one, *c)
        ),
    )
    each = TOGETHER // BLOCK
    skipped = (blocks - each * parts, each) if of_ones else (0, 0)
    return Rounds(blocks, (parts, 0), calls, skipped=skipped)


def _last(count: int) -> int:
    """Where the last block begins."""
    return (count - 1) // BLOCK * BLOCK if count else 0
