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
from treadle.trace.routine import Transform

_LONGEST = 4096
"""Of more numbers, a block of lines does not fit any cache."""

_AHEAD = 1 << 16
"""Bytes of lines that are asked for before they are needed."""

_MOST_WASTE = 1.5
"""How much of the lanes' work may be done twice, as a ratio."""


class Word(IntEnum):
    """Words of the kernel's arguments. Lines side by side have one row, and their
    numbers are the columns."""

    TASKS = 0
    SCRATCH = 1
    SCRATCH_BYTES = 2
    OPERAND = 3
    RESULT = 4
    OUTER = 5
    INNER = 6
    ROWS = 7
    COLUMNS = 8
    ROWS_RECIPE = 9
    COLUMNS_RECIPE = 10
    TURNS = 11
    FLIP = 12
    FACTOR = 13
    AHEAD = 14
    KIND = 15
    MIXED = 16
    PACKED = 17
    LINE_IN = 18
    LINE_OUT = 19


FFT, RFFT, IRFFT = 0, 1, 2
"""Kinds of transforms: the last two are of real numbers, or to them."""


class Shape(NamedTuple):
    """A line as a matrix; with one row if it is transformed beside others."""

    rows: int
    columns: int


def lanes_of(itemsize: int) -> Lanes:
    """Vectors of this machine, of parts of so many bytes."""
    kind = {4: "float", 8: "double"}[itemsize]
    return Lanes(kind, 4 * host_lanes() // itemsize)


def shape(t: Transform) -> Shape | None:
    """How lines are transformed, or None where the library does it."""
    if is_dim(t.n):
        return None
    lanes, real = lanes_of(t.dtype.itemsize).count, _kind(t) != FFT
    if t.within[0] == 1:
        if real and (t.n % 2 or t.n < 4 * lanes):
            return None
        return _matrix(_numbers(t), lanes)
    if real or is_dim(t.inner) or _waste(t.inner, lanes) > _MOST_WASTE:
        return None
    return Shape(1, t.n) if t.n <= _LONGEST and _radices(t.n) is not None else None


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
        waste = (_waste(rows, lanes) + _waste(columns, lanes)) / 2
        if waste <= _MOST_WASTE:
            uneven = abs(math.log2(rows / columns))
            found.append((waste + uneven / 50, Shape(rows, columns)))
    return min(found)[1] if found else None


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


def scratch(t: Transform, shape: Shape) -> int:
    """Bytes that a task needs: two blocks, a line's columns, and its pairs."""
    lanes = lanes_of(t.dtype.itemsize)
    if shape.rows == 1:
        return 2 * shape.columns * lanes.row
    paired = 0 if _kind(t) == FFT else _numbers(t) * 2 * t.dtype.itemsize
    return _packed_at(shape, lanes) + paired


def _packed_at(shape: Shape, lanes: Lanes) -> int:
    """Where in its scratch memory a task keeps pairs."""
    blocks = -(-shape.rows // lanes.count)
    longest = max(2 * shape.rows, shape.columns)
    return (blocks * shape.columns + longest) * lanes.row


def tasks(t: Transform, shape: Shape, threads: int) -> int:
    """The number of tasks."""
    lanes = lanes_of(t.dtype.itemsize).count
    groups = t.inner if shape.rows > 1 else -(-t.inner // lanes)
    return tasks_for(t, groups, threads)


def words(
    t: Transform,
    shape: Shape,
    scratch_at: Any,
    places: Sequence[Any],
    itemsizes: Sequence[int],
) -> list[Any]:
    """The words after the number of tasks. places, itemsizes: of operand and result."""
    name, lanes, kind = t.dtype.name, lanes_of(t.dtype.itemsize), _kind(t)
    rows = _address(_recipe, shape.rows, name)
    columns = _address(_recipe, shape.columns, name)
    turns = _address(_turns, shape, lanes) if shape.rows > 1 else 0
    mixed = _address(_mixed, t.n, name, kind == IRFFT) if kind != FFT else 0
    flip = lanes.vector_bytes if t.kind in ("ifft", "irfft") else 0
    lines = [n * size for n, size in zip(t.lengths, itemsizes, strict=True)]
    ahead = min(lines) if max(lines) <= _AHEAD else 0
    return [
        *(scratch_at, scratch(t, shape), *places, t.outer, t.inner),
        *(*shape, rows, columns, turns, flip, factor(t, 0.5 if kind == RFFT else 1.0)),
        *(ahead, kind, mixed, _packed_at(shape, lanes), *lines),
    ]


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
