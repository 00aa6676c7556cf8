"""QR factorizations of large matrices, panel by panel.

A panel's reflections are applied to the columns behind it, some of them in each part of
a round. The first part, whose columns are the next panel, factors that as well [1]: so
it is done while other threads are at the other columns.

[1] J. Kurzak, J. Dongarra, Implementing linear algebra routines on multi-core
processors with pipelining and a look ahead (2007).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from treadle.late import number
from treadle.ops.reflected import BLOCK, Work
from treadle.trace.routine import (
    STATUS,
    At,
    Rounds,
    RoutineCall,
    Step,
    Varied,
    blocks_of,
    named,
)


def steps(
    dtype: np.dtype, sizes: tuple[int, int, int], copy: tuple[At, int], work: Work
) -> list[Step]:
    """The factors of a matrix to LAPACK, in its place; the reflections' vectors, and
    what else their products take, in work memory.

    sizes: rows, columns, and the smaller of both.
    copy: where the matrix is, and numbers from one column to the next.
    """
    m, n, k = sizes
    panels, blocks = blocks_of(k, BLOCK), blocks_of(n, BLOCK)
    first = _panel(dtype, (m, k), copy, work, 0)
    following = _panel(dtype, (m, k), copy, work, 1)
    behind = _behind(dtype, (m, n, k), copy, work, BLOCK)
    leading = [call._replace(leads=True) for call in following]
    # A wide matrix has columns behind the last panel, which may be narrower.
    rest = number(_rest, (k, n))
    before = k - BLOCK * (panels - 1)
    at_last = _behind(dtype, (m, n, k), copy, work, before)
    last = [_moved(call, panels - 1) for call in at_last]
    return [
        Rounds(1, (1, 0), tuple(first)),
        Rounds(panels - 1, (blocks - 1, -1), (*behind, *leading)),
        Rounds(1, (rest, 0), tuple(last)),
    ]


def _rest(k: int, n: int) -> int:
    return -(-(n - k) // BLOCK)


def _moved(call: RoutineCall, rounds: int) -> RoutineCall:
    """What a call of a later round is, in the first."""
    args = [
        arg if not isinstance(arg, Varied) else _later(arg, rounds) for arg in call.args
    ]
    return call._replace(args=tuple(args))


def _later(x: Varied, rounds: int) -> Varied:
    more = x.by_round * rounds
    first = x.first.plus(more) if isinstance(x.first, At) else x.first + more
    return x._replace(first=first)


def _panel(
    dtype: np.dtype,
    sizes: tuple[int, int],
    copy: tuple[At, int],
    work: Work,
    ahead: int,
) -> Sequence[RoutineCall]:
    """A panel factored, and the vectors and products of its reflections: that of a
    round, or the one after it."""
    (m, k), size, letter = sizes, dtype.itemsize, partial(named, dtype)
    zero, one = dtype.type(0), dtype.type(1)
    rows, count = Varied(m, -BLOCK), Varied(k, -BLOCK, most=BLOCK)
    place, apart = copy
    a, v, y = (
        (Varied(x, BLOCK * (line + 1) * size), line)
        for x, line in (
            (place, apart),
            (work.vectors, work.apart),
            (work.products, work.apart),
        )
    )
    t = Varied(work.triangles, BLOCK * BLOCK * size), BLOCK
    calls = (
        RoutineCall(letter("laset"), ("A", BLOCK, BLOCK, zero, zero, *t)),
        RoutineCall(letter("geqrt3"), (rows, count, *a, *t, STATUS)),
        RoutineCall(letter("lacpy"), ("L", rows, count, *a, *v)),
        RoutineCall(letter("laset"), ("U", count, count, zero, one, *v)),
        RoutineCall(
            letter("gemm"), ("N", "N", rows, count, count, one, *v, *t, zero, *y)
        ),
    )
    return [_moved(call, ahead) for call in calls]


def _behind(
    dtype: np.dtype,
    sizes: tuple[int, int, int],
    copy: tuple[At, int],
    work: Work,
    column: int,
) -> Sequence[RoutineCall]:
    """The reflections of a round's panel on some of the columns behind it: in the first
    round those from a column on, in others from so much further on."""
    (m, n, k), size, letter = sizes, dtype.itemsize, partial(named, dtype)
    zero, one = dtype.type(0), dtype.type(1)
    rows, count = Varied(m, -BLOCK), Varied(k, -BLOCK, most=BLOCK)
    some = Varied(n - column, -BLOCK, -BLOCK, BLOCK)
    place, apart = copy
    v, y = (
        (Varied(x, BLOCK * (work.apart + 1) * size), work.apart)
        for x in (work.vectors, work.products)
    )
    c = (
        Varied(
            place.plus(column * apart * size),
            BLOCK * (apart + 1) * size,
            BLOCK * apart * size,
        ),
        apart,
    )
    inside = Varied(work.own, by_part=BLOCK * BLOCK * size), BLOCK
    return (
        RoutineCall(
            letter("gemm"), ("C", "N", count, some, rows, one, *y, *c, zero, *inside)
        ),
        RoutineCall(
            letter("gemm"), ("N", "N", rows, some, count, -one, *v, *inside, one, *c)
        ),
    )
