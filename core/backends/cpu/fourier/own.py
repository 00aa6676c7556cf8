"""How the kernel of `stockham` transforms lines: which it can, tables, tasks, words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.fourier.lanes import RADICES, Lanes, roots
from treadle.backends.cpu.fourier.schedule import factor, tasks_for
from treadle.dims import is_dim
from treadle.late import number
from treadle.trace.routine import Transform

_LONGEST = 4096
"""Of more numbers, a block of lines does not fit any cache."""

_SHORT = 256
"""Lines of up to so many numbers are faster in lanes than one by one, if these are
full."""

_FAR = 12 << 20
"""So are all lines that with their transforms are of more bytes: they do not stay in
the nearer caches, and come from the others in the order in which they lie."""

_AHEAD = 1 << 16
"""Bytes of lines that are asked for before they are needed."""

_MOST_WASTE = 1.8
"""How much of the lanes' work may be done twice, as a ratio."""

_LITTLE_WASTE = 1.2
"""With more, lines in lanes are faster."""


class Word(IntEnum):
    """Words of the kernel's arguments. Sizes of memory are in bytes; `moving` says what
    those of lines beside each other mean, for the operand and the result."""

    TASKS = 0
    SCRATCH = 1
    SCRATCH_BYTES = 2
    OPERAND = 3
    RESULT = 4
    OUTER = 5
    INNER = 6
    KIND = 7
    FLIP = 8
    FACTOR = 9
    MIXED = 10
    # Lines one by one, as matrices:
    ALONE = 11
    ROWS = 12
    COLUMNS = 13
    ROWS_RECIPE = 14
    COLUMNS_RECIPE = 15
    TURNS = 16
    PACKED = 17
    AHEAD = 18
    WHOLE_IN = 19
    WHOLE_OUT = 20
    # Lines in lanes:
    LENGTH = 21
    RECIPE = 22
    LANES = 23
    BLOCK_IN = 24
    BLOCK_OUT = 25
    LINE_IN = 26
    LINE_OUT = 27
    WAY_IN = 28
    WAY_OUT = 29
    STEP_IN = 30
    STEP_OUT = 31
    GAP_IN = 32
    GAP_OUT = 33
    NUMBERS_IN = 34
    NUMBERS_OUT = 35


class Way(IntEnum):
    """How lines come into lanes: the functions of `moving`."""

    ACROSS = 0
    PARTS = 1
    ALONG = 2
    FEW = 3


INVERSE = ("ifft", "irfft")
FFT, RFFT, IRFFT = 0, 1, 2
"""Kinds of transforms: the last two are of real numbers, or to them."""


class Shape(NamedTuple):
    """A line as a matrix."""

    rows: int
    columns: int


class Form(NamedTuple):
    """How lines are transformed: by themselves, as matrices, or each in a lane. Where
    both can be, their number decides."""

    matrix: Shape | None
    beside: bool


def lanes_of(itemsize: int) -> Lanes:
    """Vectors of this machine, of parts of so many bytes."""
    kind = {4: "float", 8: "double"}[itemsize]
    return Lanes(kind, 4 * host_lanes() // itemsize)


def form(t: Transform) -> Form | None:
    """How lines of a known length are transformed, or None where the library does it.
    Their number does not matter, because a program may not know it."""
    lanes, real, n = lanes_of(t.dtype.itemsize).count, _kind(t) != FFT, _numbers(t)
    if real and t.n % 2:
        return None
    beside = lanes <= 2 * n and n <= _LONGEST and _radices(n) is not None
    matrix = None
    # Of columns whose number is open there may be one, which is a line by itself.
    if _along(t) or (is_dim(t.inner) and beside):
        matrix = _matrix(n, lanes) if not real or t.n >= 4 * lanes else None
    return Form(matrix, beside) if matrix or beside else None


def _along(t: Transform) -> bool:
    """Whether lines lie one behind the other."""
    return not is_dim(t.within[0]) and t.within[0] == 1


def _kind(t: Transform) -> int:
    return {"rfft": RFFT, "irfft": IRFFT}.get(t.kind, FFT)


def _numbers(t: Transform) -> int:
    """How many complex numbers a line is: real ones are paired."""
    return t.n if _kind(t) == FFT else t.n // 2


@cache
def _matrix(n: int, lanes: int) -> Shape | None:
    """The shape of a line for which least is done twice, and that is most square."""
    found: list[tuple[float, Shape]] = []
    for rows in range(lanes, min(n // lanes, _LONGEST) + 1):
        columns = n // rows
        if n % rows or columns > _LONGEST:
            continue
        if _radices(rows) is None or _radices(columns) is None:
            continue
        shape = Shape(rows, columns)
        waste = _waste_of(shape, lanes)
        if waste <= _MOST_WASTE:
            found.append((waste + abs(math.log2(rows / columns)) / 50, shape))
    return min(found)[1] if found else None


def _waste_of(shape: Shape, lanes: int) -> float:
    return (_waste(shape.rows, lanes) + _waste(shape.columns, lanes)) / 2


def _waste(n: int, lanes: int) -> float:
    """How many lanes are computed for each of n numbers."""
    return -(-n // lanes) * lanes / n if n >= lanes else math.inf


@cache
def _radices(n: int) -> tuple[int, ...] | None:
    """The passes for n numbers, or None if it has other factors."""
    if n == 1:
        return ()
    for radix in RADICES:
        if n % radix == 0:
            rest = _radices(n // radix)
            return None if rest is None else (radix, *rest)
    return None


def scratch(t: Transform, form: Form) -> int:
    """Bytes that a task needs."""
    return max(_scratch_alone(t, form), _scratch_beside(t, form))


def _scratch_beside(t: Transform, form: Form) -> int:
    """Two blocks."""
    row = lanes_of(t.dtype.itemsize).row
    return 2 * (_numbers(t) + 1) * row if form.beside else 0


def _scratch_alone(t: Transform, form: Form) -> int:
    """Two blocks, a line's columns, and its pairs."""
    if form.matrix is None:
        return 0
    paired = 0 if _kind(t) == FFT else _numbers(t) * 2 * t.dtype.itemsize
    return _packed_at(form.matrix, lanes_of(t.dtype.itemsize)) + paired


def _packed_at(shape: Shape, lanes: Lanes) -> int:
    """Where in its scratch memory a task keeps pairs."""
    blocks = -(-shape.rows // lanes.count)
    longest = max(2 * shape.rows, shape.columns)
    return (blocks * shape.columns + longest) * lanes.row


def _alone(t: Transform, form: Form) -> int:
    """Whether lines are transformed by themselves."""
    if form.matrix is None or not form.beside:
        return int(form.matrix is not None)
    lanes, n = lanes_of(t.dtype.itemsize).count, _numbers(t)
    near = _FAR // (4 * n * t.dtype.itemsize)
    if n <= _SHORT or _waste_of(form.matrix, lanes) > _LITTLE_WASTE:
        near = lanes - 1
    if _along(t):
        return number(_is_alone, (t.inner, lanes, near))
    return number(_is_alone_in_blocks, (t.inner, t.outer, lanes, near))


def _is_alone(inner: int, lanes: int, near: int) -> int:
    """near: of how many lines all lie near enough."""
    return int(inner < lanes or inner <= near)


def _is_alone_in_blocks(inner: int, outer: int, lanes: int, near: int) -> int:
    """The same of blocks of one line."""
    return int(inner == 1 and _is_alone(outer, lanes, near))


def tasks(t: Transform, form: Form, threads: int) -> int:
    """The number of tasks."""
    lanes = lanes_of(t.dtype.itemsize).count
    groups = number(_groups, (t.inner, _alone(t, form), lanes), low=1)
    return tasks_for(t, groups, threads)


def _groups(inner: int, alone: int, lanes: int) -> int:
    return inner if alone else -(-inner // lanes)


def words(
    t: Transform,
    form: Form,
    scratch_at: Any,
    places: Sequence[Any],
    itemsizes: Sequence[int],
) -> list[Any]:
    """The words after the number of tasks. places, itemsizes: of operand and result."""
    return [scratch_at, scratch(t, form), *places, *words_of_lines(t, form, itemsizes)]


def words_of_lines(t: Transform, form: Form, itemsizes: Sequence[int]) -> list[Any]:
    """The words after those that say where something is."""
    name, kind = t.dtype.name, _kind(t)
    mixed = _address(_mixed, t.n, name, kind == IRFFT) if kind != FFT else 0
    flip = lanes_of(t.dtype.itemsize).vector_bytes if t.kind in INVERSE else 0
    return [
        *(t.outer, t.inner, kind, flip),
        *(factor(t, 0.5 if kind == RFFT else 1.0), mixed, _alone(t, form)),
        *_words_alone(t, form.matrix, itemsizes),
        *_words_beside(t, itemsizes),
    ]


def _words_alone(
    t: Transform, matrix: Shape | None, itemsizes: Sequence[int]
) -> list[Any]:
    if matrix is None:
        return [0] * (Word.LENGTH - Word.ROWS)
    lanes, name = lanes_of(t.dtype.itemsize), t.dtype.name
    recipes = [_address(_recipe, n, name) for n in matrix]
    turns = _address(_turns, matrix, lanes)
    lines = [n * size for n, size in zip(t.lengths, itemsizes, strict=True)]
    ahead = min(lines) if max(lines) <= _AHEAD else 0
    return [*matrix, *recipes, turns, _packed_at(matrix, lanes), ahead, *lines]


def _words_beside(t: Transform, itemsizes: Sequence[int]) -> list[Any]:
    n, part, lanes = _numbers(t), t.dtype.itemsize, lanes_of(t.dtype.itemsize).count
    if n > _LONGEST or _radices(n) is None:
        return [0] * (len(Word) - Word.LENGTH)
    columns = []
    for length, between, within, size in zip(
        t.lengths, t.between, t.within, itemsizes, strict=True
    ):
        real = size == part
        along = _along(t)
        way = Way.ALONG if along else Way.PARTS if real else Way.ACROSS
        columns.append(
            [
                length * t.inner * size,
                between * size,
                number(_way, (t.inner, lanes, int(way))),
                within * size * (2 if real else 1),
                within * size if real else part,
                length // 2 if real else length,
            ]
        )
    count = number(min, (t.inner, lanes))
    pairs = [word for both in zip(*columns, strict=True) for word in both]
    return [n, _address(_recipe, n, t.dtype.name), count, *pairs]


def _way(inner: int, lanes: int, way: int) -> int:
    """How all lanes are filled, if there are enough lines."""
    return way if inner >= lanes else int(Way.FEW)


# Tables -------------------------------------------------------------------------------


def _address(make: Any, *args: Any) -> int:
    return make(*args).ctypes.data


@cache
def _recipe(n: int, name: str) -> np.ndarray:
    """What `lanes.emit_passes` describes."""
    found, s, radices = [], 1, _radices(n)
    assert radices is not None
    for radix in radices:
        m = n // (s * radix)
        table = _factors(radix, m, name)
        found += [radix, m, s, table.ctypes.data]
        s *= radix
    return np.array([len(radices), *found], np.int64)


@cache
def _factors(radix: int, m: int, name: str) -> np.ndarray:
    p, k = np.arange(1, m)[:, None], np.arange(1, radix)
    return np.ascontiguousarray(roots(p * k, radix * m)).view(np.float64).astype(name)


@cache
def _turns(shape: Shape, lanes: Lanes) -> np.ndarray:
    """The factors between columns and rows, where the columns go."""
    rows, columns = shape
    starts = np.arange(0, rows, lanes.count)
    first = np.minimum(starts, rows - lanes.count)[:, None, None]
    k = first + np.array(lanes.order)
    j = np.arange(columns)[:, None]
    w = roots(k * j, rows * columns)
    parts = np.stack([w.real, w.imag], 2)
    return parts.astype("float32" if lanes.kind == "float" else "float64")


@cache
def _mixed(n: int, name: str, back: bool) -> np.ndarray:
    """What `mixing` calls t."""
    t = -1j * roots(np.arange(n // 2 + 1), n)
    return (t.conj() if back else t).view(np.float64).astype(name)
