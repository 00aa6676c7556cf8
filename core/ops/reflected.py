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
    """

    dtype: np.dtype
    rows: int
    many: int
    vectors: tuple[At, int]
    across: bool
    taus: At


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
    return [_prepared(of, found), multiplied(of.dtype, sizes, found, target)]


def _prepared(of: Reflections, work: Work) -> Rounds:
    """V and Y of all blocks."""
    size, letter = of.dtype.itemsize, partial(named, of.dtype)
    zero, one = of.dtype.type(0), of.dtype.type(1)
    rows = Varied(of.rows, by_round=-BLOCK)
    count = Varied(of.many, by_round=-BLOCK, most=BLOCK)
    diagonal = BLOCK * (work.apart + 1) * size
    v = Varied(work.vectors, by_round=diagonal), work.apart
    y = Varied(work.products, by_round=diagonal), work.apart
    source, stride = of.vectors
    from_ = Varied(source, by_round=BLOCK * (stride + 1) * size), stride
    t = Varied(work.triangles, by_round=BLOCK * BLOCK * size), BLOCK
    taus = Varied(of.taus, by_round=BLOCK * size)
    turned = *(v[0], from_[0], count, rows), work.apart, stride, size
    calls = (
        RoutineCall("turned", turned)
        if of.across
        else RoutineCall(letter("lacpy"), ("L", rows, count, *from_, *v)),
        RoutineCall(letter("laset"), ("U", count, count, zero, one, *v)),
        RoutineCall(letter("laset"), ("A", BLOCK, BLOCK, zero, zero, *t)),
        RoutineCall(letter("larft"), ("F", "C", rows, count, *v, taus, *t)),
        RoutineCall(
            letter("gemm"), ("N", "N", rows, count, count, one, *v, *t, zero, *y)
        ),
    )
    # Beside each other these many small calls would wait for OpenBLAS's memory.
    return Rounds(blocks_of(of.many, BLOCK), (1, 0), calls)


def multiplied(
    dtype: np.dtype,
    sizes: tuple[int, int, int],
    work: Work,
    target: tuple[At, int],
    of_ones: bool = False,
) -> Rounds:
    """Columns multiplied with blocks of reflections from the last to the first.

    sizes: rows of the first one, how many, and columns.
    of_ones: whether the columns are those of ones on a diagonal, of which the last
      blocks leave the first as they are.
    """
    (m, k, columns), size, letter = sizes, dtype.itemsize, partial(named, dtype)
    zero, one, last = dtype.type(0), dtype.type(1), number(_last, (k,))
    blocks, parts = blocks_of(k, BLOCK), blocks_of(columns, TOGETHER)
    rows = Varied(m - last, by_round=BLOCK)
    count = Varied(k - last, by_round=BLOCK, most=BLOCK)
    diagonal = (work.apart + 1) * size
    v, y = (
        (Varied(x.plus(last * diagonal), by_round=-BLOCK * diagonal), work.apart)
        for x in (work.vectors, work.products)
    )
    # From the last columns on: with ones, they take longest.
    begun = (parts - 1) * TOGETHER
    some = Varied(columns - begun, 0, TOGETHER, TOGETHER)
    place, apart = target
    first = place.plus((last + begun * apart) * size)
    c = Varied(first, -BLOCK * size, -TOGETHER * apart * size), apart
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
