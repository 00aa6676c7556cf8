"""How a CPU runs attention: tasks, scratch, and the words of its kernels.

A head of the keys goes to one task (of the forward kernel, some rows of queries of a
head of the queries do), so that no bit depends on how many tasks there are. Scores are
made in blocks of a few rows and up to `COLUMNS` columns, which stay in the L2 cache.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from treadle.backends.cpu.gemm.arguments import Tile
from treadle.backends.cpu.gemm.kernel import tile as register_tile
from treadle.backends.cpu.target import multiplies_pairs
from treadle.dtypes import bfloat16
from treadle.late import number, numbers
from treadle.trace.routine import Attention

COLUMNS = 256
"""Of a block of scores."""

_ROWS = 72
_SKEW = 16
"""Between rows of a block: at a multiple of a page they would share few cache sets."""
_SHORT = 64
"""Up to so many queries and keys, operands and results are used as they lie."""
_FEW = 28
"""Up to so many rows that read the same values, these are not worth a copy."""
_ALIASED = 4096
"""Bytes between rows, where all of them would share few cache sets."""
_WORTH_SPLITTING = 50_000
_TASKS_PER_THREAD = 4
_FAR = 1 << 40
"""A window that ends nowhere."""


class Word(IntEnum):
    """Words of the arguments. Arrays are an address and the strides of batch, length
    and head, in elements; masks have strides of batch, head, query and key."""

    TASKS = 0
    OWN = 1  # the memory of threads
    OWN_STRIDE = 2  # bytes from one slot to the next
    BATCH = 3
    QUERIES = 4
    HEADS = 5
    DEPTH = 6
    KEYS = 7
    SHARED = 8
    VALUE_DEPTH = 9
    BEFORE = 10
    AFTER = 11
    SCALE = 12  # the bits of a double, as the next
    RATE = 13
    PIECES = 14  # into which the queries of a head are cut
    BLOCK = 15  # rows of a block of scores
    QUERY = 16
    KEY = 20
    VALUE = 24
    OUT = 28
    CT = 32
    DQ = 36
    DK = 40
    DV = 44
    AREAS = 48  # bytes from a thread's scratch to each `Area`
    ROWS = 61  # what the forward kernel leaves for the other
    BIAS = 62
    SEEN = 67
    KEPT = 72
    SHORT = 77  # whether all scores of a head are made at once, and results in place
    IN_PLACE = 78  # whether rows, and panels of what is not turned, are where they lie


MASKS = {"bias": Word.BIAS, "seen": Word.SEEN, "kept": Word.KEPT}
_END = 79


class Area(IntEnum):
    """Parts of a thread's scratch. Panels are as wide as a tile: of the transposed keys
    there is one for some keys, of the keys themselves one for some of their depth."""

    SCORES = 0
    STATES = 1
    ROWS = 2
    KEYS_T = 3
    TAKEN = 4  # half floats of a head as floats, or as pairs
    # Of the forward kernel:
    VALUES = 5
    OUT = 6
    # Of the backward kernel:
    VALUES_T = 5
    KEYS = 6
    CT_ROWS = 7
    QUERIES = 8
    CTS = 9
    GRADS = 10
    SUMS = 11
    DQ = 12  # of half floats


AREAS = 13


def wide(dtype: np.dtype) -> np.dtype:
    """In which scores are computed."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def in_pairs(dtype: np.dtype) -> bool:
    """Whether numbers are multiplied as they are, in pairs."""
    return dtype == bfloat16 and multiplies_pairs()


def block_rows(tile: Tile) -> int:
    """The most that a block of scores has: a multiple of those of a tile."""
    return tile.rows * (_ROWS // tile.rows)


def _block(length: int, most: int, tile_rows: int) -> int:
    """The rows of blocks that are alike, but for the last."""
    count = max(-(-length // most), 1)
    return _up(-(-length // count), tile_rows)


def pitch(columns: int) -> int:
    """Elements between rows of a block that has so many columns."""
    return columns + _SKEW


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


def _areas(
    backward: bool,
    keys: int,
    depth: int,
    value_depth: int,
    lanes: int,
    rows: int,
    columns: int,
    itemsize: int,
    half: bool,
    pairs: bool,
) -> list[int]:
    """Offsets in bytes, and all of it."""
    deep, value_deep = _up(depth, columns), _up(value_depth, columns)
    spare = lanes * columns  # a transposition writes up to a vector more of rows
    block, long = rows * pitch(COLUMNS), _up(keys, columns)
    some, more = _units(depth, pairs), _units(value_depth, pairs)
    taken = max(keys, rows) * max(some, more) if half else 0
    sizes = [block, 4 * rows, rows * some, long * some + spare, taken]
    if backward:
        sizes += [
            long * more + spare,
            _units(keys, pairs) * deep + spare,
            rows * more,
            _units(rows, pairs) * deep,
            _units(rows, pairs) * value_deep,
            block,
            keys * (deep + value_deep),
            rows * deep if half else 0,
        ]
    else:
        sizes += [_units(keys, pairs) * value_deep + spare, rows * value_deep]
    starts, total = [], 0
    for size in sizes:
        starts.append(total * itemsize)
        total += _up(size + lanes, 64)
    starts += [0] * (AREAS - len(starts))
    # Tasks that begin a page apart would share few cache sets.
    return [*starts, _up(total * itemsize, 4096) + 192]


def _units(n: int, pairs: bool) -> int:
    """How many elements of the micro-kernel hold so many numbers."""
    return -(-n // 2) if pairs else n


def _layout(a: Attention, tile: Tile) -> Sequence[int]:
    (*_, depth), (keys, _, value_depth) = a.query, a.key
    sizes = a.backward, keys, depth, value_depth
    of = wide(a.dtype).itemsize, a.dtype.itemsize == 2, in_pairs(a.dtype)
    machine = tile.lanes, block_rows(tile), tile.columns
    return numbers(_areas, (*sizes, *machine, *of))


def work(a: Attention, threads: int) -> tuple[int, int]:
    """Into how many tasks it is cut, and the bytes that a thread needs for one."""
    tile = register_tile(wide(a.dtype))
    (batch, queries, heads, depth), (keys, shared, _) = a.query, a.key
    units = batch * (shared if a.backward else heads)
    amount = batch * queries * heads * depth * keys
    rows = 0 if a.backward else _rows(a, tile)
    tasks = number(_tasks, (units, amount, queries, rows, threads), low=1)
    return tasks, _layout(a, tile)[-1]


def _rows(a: Attention, tile: Tile) -> int:
    """Of a block."""
    return number(_block, (a.query[1], block_rows(tile), tile.rows), low=1)


def _short(queries: int, keys: int, heads: int, shared: int) -> int:
    return int(max(queries, keys) <= _SHORT and heads == shared)


def _in_place(
    queries: int, keys: int, readers: int, lanes: int, itemsize: int, *steps: int
) -> int:
    """readers: rows of queries that have the same keys. steps: for each array, from a
    row to the next, and its depth."""
    straight = all(depth % lanes == 0 for depth in steps[1::2])
    apart = all(step * itemsize % _ALIASED for step in steps[::2])
    short = max(queries, keys) <= _SHORT and apart
    return int(straight and (short or readers <= _FEW))


def _readers(queries: int, heads: int, shared: int) -> int:
    return queries * (heads // max(shared, 1))


def _lengths(a: Attention, tile: Tile) -> tuple[int, int]:
    """Word.SHORT and Word.IN_PLACE."""
    if a.dtype.itemsize == 2:
        return 0, 0
    (_, queries, heads, depth), (keys, shared, value_depth) = a.query, a.key
    # Of heads that share keys, each adds to the cotangents of these.
    own = heads if a.backward else shared
    short = number(_short, (queries, keys, own, shared))
    steps = [(n * d, d) for n in (heads, shared) for d in (depth, value_depth)]
    readers = number(_readers, (queries, heads, shared))
    sizes = queries, keys, readers, tile.lanes, a.dtype.itemsize
    return short, number(_in_place, (*sizes, *[n for pair in steps for n in pair]))


def _tasks(units: int, work: int, queries: int, rows: int, threads: int) -> int:
    if threads == 1 or work < _WORTH_SPLITTING:
        return 1
    most = units * _most_pieces(queries, rows)
    return max(min(most, _TASKS_PER_THREAD * threads), 1)


def _most_pieces(queries: int, rows: int) -> int:
    return -(-queries // rows) if rows else 1


def _pieces(tasks: int, units: int, queries: int, rows: int) -> int:
    """A piece packs keys and values anew, so there are no more than it takes."""
    return max(min(-(-tasks // max(units, 1)), _most_pieces(queries, rows)), 1)


def words(
    a: Attention, tasks: int, own: Sequence[Any], places: Sequence[Any]
) -> list[Any]:
    """The words after the number of tasks.

    own: where slot 0 has its memory, and how far from one to the next.
    places: of the operands, then of the results.
    """
    tile = register_tile(wide(a.dtype))
    found: list[Any] = [0] * _END
    (batch, queries, heads, depth), (keys, shared, value_depth) = a.query, a.key
    *areas, _ = _layout(a, tile)
    found[Word.OWN], found[Word.OWN_STRIDE] = own
    found[Word.BATCH : Word.BEFORE] = [*a.query, *a.key]
    reach = [_FAR if n is None else n for n in a.reach]
    found[Word.BEFORE : Word.SCALE] = reach
    found[Word.SCALE], found[Word.RATE] = _bits(a.scale), _bits(a.rate)
    pieces = 1
    if not a.backward:
        sizes = tasks, batch * heads, queries, _rows(a, tile)
        pieces = number(_pieces, sizes, low=1)
    found[Word.PIECES], found[Word.BLOCK] = pieces, _rows(a, tile)
    found[Word.SHORT], found[Word.IN_PLACE] = _lengths(a, tile)
    found[Word.AREAS : Word.AREAS + AREAS] = areas
    if a.backward:
        names = [Word.CT, Word.QUERY, Word.KEY, Word.VALUE, Word.OUT, Word.ROWS]
        names += [MASKS[name] for name, _ in a.masks] + [Word.DQ, Word.DK, Word.DV]
    else:
        names = [Word.QUERY, Word.KEY, Word.VALUE]
        names += [MASKS[name] for name, _ in a.masks] + [Word.OUT, Word.ROWS]
    for name, place in zip(names, places, strict=True):
        found[name] = place
    for name in (Word.QUERY, Word.DQ):
        found[name + 1 : name + 4] = _steps(queries, heads, depth)
    for name in (Word.OUT, Word.CT):
        found[name + 1 : name + 4] = _steps(queries, heads, value_depth)
    for name in (Word.KEY, Word.DK):
        found[name + 1 : name + 4] = _steps(keys, shared, depth)
    for name in (Word.VALUE, Word.DV):
        found[name + 1 : name + 4] = _steps(keys, shared, value_depth)
    for mask, shape in a.masks:
        at = MASKS[mask]
        found[at + 1 : at + 5] = _mask_steps(shape)
    return found[1:]


def _steps(length: int, heads: int, depth: int) -> list[int]:
    return [length * heads * depth, heads * depth, depth]


def _mask_steps(shape: tuple[int, ...]) -> list[int]:
    """0 where an axis has one element, which is that for all."""
    whole = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return [number(_step, pair) for pair in zip(shape, whole, strict=True)]


def _step(length: int, step: int) -> int:
    return 0 if length == 1 else step


def _bits(x: float) -> int:
    return struct.unpack("<q", struct.pack("<d", x))[0]
