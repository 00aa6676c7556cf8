"""Contractions as data: what one call of the matrix kernel computes, and its arguments.

One native kernel per dtype computes every matrix product, whatever its sizes, strides
and batch dimensions, and whatever is fused before or behind it::

    C[b0, b1, m, n]  (+)=  sum over k of  A[b0, b1, m, k] * B[b0, b1, k, n]

A backend offers that kernel as ``void contract(ptr args, i64 task)``, to be run for
every task in 0..tasks-1, in any order and on any thread; no bit of the result depends
on how many tasks there are. `plan` chooses the tasks and writes `args`::

    launch = plan(Contraction(np.dtype("float32"), m, n, k, a=..., b=..., c=...),
                  tile, threads)
    words = list(launch.words)                 # 64-bit integers
    words[Slot.A] = address of A[0, 0, 0, 0]   # likewise B, C
    words[Slot.SCRATCH] = address of launch.scratch_bytes bytes, 64-byte aligned
    words[Slot.EPILOGUE] = address of a block function
    words[Slot.EPILOGUE_ARGS] = index of the word of `args` where its arguments begin

**Hooks** are addresses of *block functions*; 0 leaves the epilogue out. The epilogue
runs once on every finished block of C, while the block is in cache::

    void epilogue(ptr eargs, i64 b0, i64 b1, i64 r0, i64 r1, i64 c0, i64 c1)

It reads and writes memory itself (C, a bias, a residual, ...), for rows r0..r1-1 and
columns c0..c1-1 of batch element (b0, b1). Blocks are disjoint and cover C; which
blocks there are may differ between calls, so results may not depend on it.

A *producer* computes an operand that never exists in memory (a mask applied, a cast).
Say so with ``fused_a`` or ``fused_b``, and put its address into Slot.PACK_A or
Slot.PACK_B and its arguments beside it::

    void pack(ptr pargs, i64 b0, i64 b1, i64 i0, i64 i1, i64 j0, i64 j1,
              ptr block, i64 stride)

It writes element [b0, b1, i, j] of the operand (for A, i counts m and j counts k; for
B, i counts k and j counts n) to ``block[(i - i0) * stride + (j - j0)]``, in elements.
It may write up to a vector too much in both directions: at most to the next multiple
of `Tile.lanes`. Producers run more than once per element if A and B meet in several
blocks (A once per column group of the grid, B once per block of rows).

Convolutions (`treadle.kernels.convolve`) are other kinds of the same native kernel and
take the same slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, partial

import numpy as np

from treadle.late import numbers


class Kind(IntEnum):
    """What Slot.KIND says."""

    PRODUCT = 0
    CONVOLUTION = 1
    FILTER_GRADIENT = 2
    SUM_PARTIALS = 3


class Slot(IntEnum):
    """Words that every kind has. Those of pointers are 0 in `Launch.words`."""

    TASKS = 0
    KIND = 1
    SCRATCH = 2
    SCRATCH_STRIDE = 3  # bytes per task
    EPILOGUE = 4
    EPILOGUE_ARGS = 5
    PACK_A = 6  # IN_PLACE, BUILT_IN or the address of a producer
    PACK_A_ARGS = 7
    PACK_B = 8
    PACK_B_ARGS = 9
    A = 10  # pointer, then strides b0, b1, row, column
    B = 15
    C = 20


FIRST = 25
"""The first word that only one kind uses."""

IN_PLACE, BUILT_IN = 0, 1
"""Values of Slot.PACK_A and Slot.PACK_B that are no addresses."""


class Word(IntEnum):
    """The words of Kind.PRODUCT."""

    BATCH1 = FIRST  # size of b1
    BATCHES = FIRST + 1  # b0 * b1
    N = FIRST + 2
    K = FIRST + 3
    K_PIECE = FIRST + 4
    TILES = FIRST + 5  # M is cut into so many tiles, ...
    TILE_LOW = FIRST + 6  # ... of this height, ...
    TILE_EXTRA = FIRST + 7  # ... the first few of them one row higher
    BLOCK_TILES = FIRST + 8  # tiles in a block of rows ...
    GRID_BATCHES = FIRST + 9
    GRID_ROWS = FIRST + 10
    GRID_COLUMNS = FIRST + 11
    ACCUMULATE = FIRST + 12
    A_STRIDE = FIRST + 13  # row stride of a packed A, in elements
    A_OFFSET = FIRST + 14  # bytes from a task's scratch to its packed A
    PANEL_STRIDE = FIRST + 15  # bytes between packed panels; 0 if B is read in place
    CHUNK = FIRST + 16  # columns whose packed panels stay in the L2 cache
    A_TILES = FIRST + 17  # and tiles whose packed rows of A do


@dataclass(frozen=True)
class Strides:
    """Steps of one operand in elements. 0 repeats it, negative ones go backwards."""

    b0: int
    b1: int
    row: int
    column: int


@dataclass(frozen=True)
class Tile:
    """The block of C that is held in registers: rows x (vectors * lanes) elements."""

    lanes: int
    rows: int
    vectors: int = 2

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors


@dataclass(frozen=True)
class Contraction:
    """One matrix product, batched over up to two dimensions. Device-neutral.

    a, b: any strides. c: its column stride must be 1; for a result that is wanted
    transposed swap the operands (C^T = B^T A^T).
    accumulate: add to what C holds.
    fused_a, fused_b: the operand comes from a producer (see above); its strides are
    then not used.
    """

    dtype: np.dtype
    m: int
    n: int
    k: int
    a: Strides
    b: Strides
    c: Strides
    b0: int = 1
    b1: int = 1
    accumulate: bool = False
    fused_a: bool = False
    fused_b: bool = False

    def __post_init__(self) -> None:
        sizes = (self.b0, self.b1, self.m, self.n, self.k)
        if any([n < 1 for n in sizes]):
            raise ValueError(
                f"a contraction's sizes must be at least 1, not {sizes}: write zeros "
                "(or nothing) where a size is 0"
            )
        if self.c.column != 1 and self.n > 1:
            raise ValueError(
                f"C needs column stride 1, not {self.c.column}: swap A and B"
            )

    @property
    def flops(self) -> int:
        return 2 * self.b0 * self.b1 * self.m * self.n * self.k

    @property
    def sizes(self) -> str:
        """The sizes for people: batches x rows, sum, columns."""
        return f"({self.b0 * self.b1} x {self.m}, {self.k}, {self.n})"


@dataclass(frozen=True)
class Launch:
    """The arguments of one kernel call, 0 where a pointer is to be filled in."""

    words: tuple[int, ...]
    tasks: int
    scratch_bytes: int


# Planning

_SERIAL_CYCLES = 16_000  # about 6 us: less is not worth sharing
_TASK_OVERHEAD = 1_000
_DISTURBANCE = 0.1
_TASK_CYCLES = 400_000  # about 150 us: smaller tasks cost more than they balance
_MAX_TASKS_PER_THREAD = 4
_CHUNK_BYTES = 1 << 18  # of packed B, to stay in the L2 cache with ...
_A_BYTES = 5 << 18  # ... this much of packed A
_BLOCK_COLUMNS = 128  # a block of C should have: long rows are fast to write
_BLOCK_BYTES = 1 << 18  # of C, to be in the cache when the epilogue runs
_MAX_K_PIECE = 1024
_SMALL_B_ROWS = 128  # from which on packing B pays, if it is small ...
_LARGE_B_ROWS = 24  # ... or larger than ...
_LARGE_BYTES = 1 << 20  # ... this


def plan(product: Contraction, tile: Tile, threads: int) -> Launch:
    """Chooses packing, blocks and tasks, and writes the kernel's arguments."""
    fused = product.fused_a, product.fused_b
    machine = product.dtype.itemsize, fused, tile, threads
    batches = product.b0 * product.b1
    a, b = product.a, product.b
    blocks = numbers(
        ("blocks", machine),
        partial(_blocks, *machine),
        (batches, product.m, product.n, product.k, a.row, a.column, b.column),
    )
    words: list[int] = [0] * (FIRST + len(Word))
    for word, value in zip(_CHOSEN, blocks, strict=True):
        words[word] = value
    words[Slot.KIND] = Kind.PRODUCT
    words[Slot.A + 1 : Slot.A + 4] = a.b0, a.b1, a.row
    words[Slot.B + 1 : Slot.B + 4] = b.b0, b.b1, b.row
    c = product.c
    words[Slot.C + 1 : Slot.C + 5] = c.b0, c.b1, c.row, c.column
    words[Word.BATCH1] = product.b1
    words[Word.BATCHES] = batches
    words[Word.N] = product.n
    words[Word.K] = product.k
    words[Word.ACCUMULATE] = int(product.accumulate)
    tasks = words[Slot.TASKS]
    return Launch(tuple(words), tasks, blocks[-1] * tasks)


_CHOSEN = (
    *(Slot.TASKS, Slot.PACK_A, Slot.PACK_B, Slot.A + 4, Slot.B + 4, Word.K_PIECE),
    *(Word.TILES, Word.TILE_LOW, Word.TILE_EXTRA, Word.BLOCK_TILES),
    *(Word.GRID_BATCHES, Word.GRID_ROWS, Word.GRID_COLUMNS, Word.A_STRIDE),
    *(Word.A_OFFSET, Word.PANEL_STRIDE, Word.CHUNK, Word.A_TILES, Slot.SCRATCH_STRIDE),
)
"""The words that `_blocks` gives."""


@lru_cache(maxsize=1 << 14)
def _blocks(
    itemsize: int,
    fused: tuple[bool, bool],
    tile: Tile,
    threads: int,
    *sizes: int,
) -> tuple[int, ...]:
    """What is chosen by size: packing, blocks and tasks.

    sizes: batch elements, m, n, k, and the steps between rows and columns of A and
      between columns of B.
    """
    batches, m, n, k, a_row, a_column, b_column = sizes
    # Strides of dimensions of size 1 do not matter: those that allow most.
    a_column = 1 if k == 1 else a_column
    b_column = 1 if n == 1 else b_column
    pack_a = fused[0] or _packs_a(n, k, a_row * itemsize, a_column)
    pack_b = fused[1] or _packs_b(m, n * k * itemsize, b_column)
    packs = pack_a or pack_b or n % tile.columns != 0
    pieces = _groups(k, _MAX_K_PIECE) if packs else 1
    k_piece = round_up(_groups(k, pieces), tile.lanes)
    tiles = _groups(m, tile.rows)
    per_column = (0.3 if b_column == 1 else 0.5) if pack_b else 0.0
    cycles = k * (0.55 if pack_a else 0.15), k * (0.15 + per_column)
    grid = _grid((batches, m, n, k), tile, threads, cycles)
    panels = _groups(_groups(n, tile.columns), grid[2])
    panel = round_up(k_piece * tile.columns * itemsize, 64)
    if pack_b:
        chunk = max(1, min(panels, _CHUNK_BYTES // panel))
        block_tiles = max(1, _BLOCK_COLUMNS // (chunk * tile.columns))
    else:
        chunk = _BLOCK_BYTES // (m * tile.columns * itemsize)
        chunk, block_tiles = max(1, min(panels, chunk)), tiles
    # One vector more than needed, so that rows do not all fall into one L1 cache set.
    a_stride = k_piece + tile.lanes
    a_tiles = _groups(tiles, grid[1])
    if pack_a:
        most = max(1, _A_BYTES // (tile.rows * a_stride * itemsize))
        a_tiles = _groups(a_tiles, _groups(a_tiles, most))
    a_rows = a_tiles * tile.rows + tile.lanes
    a_offset = panel * (chunk if pack_b else 1)
    a_bytes = round_up(a_rows * a_stride * itemsize, 64) if pack_a else 0
    return (
        *(grid[0] * grid[1] * grid[2], int(pack_a), int(pack_b), a_column, b_column),
        *(k_piece, tiles, *divmod(m, tiles), block_tiles, *grid, a_stride, a_offset),
        *(panel if pack_b else 0, chunk * tile.columns, a_tiles, a_offset + a_bytes),
    )


def _packs_a(n: int, k: int, row_bytes: int, column: int) -> bool:
    """In place a tile's rows must be contiguous along k and not collide in L1."""
    return column != 1 or (row_bytes % 4096 == 0 and k >= 512 and n >= 256)


def _packs_b(m: int, nbytes: int, column: int) -> bool:
    """Whether enough tiles share a panel of B to pay for it, or it is necessary."""
    # What is not in the cache yet is read faster by packing than by the micro-kernel.
    return column != 1 or m >= (
        _LARGE_B_ROWS if nbytes > _LARGE_BYTES else _SMALL_B_ROWS
    )


def _groups(size: int, each: int) -> int:
    return -(-size // each)


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _grid(
    sizes: tuple[int, int, int, int],
    tile: Tile,
    threads: int,
    read: tuple[float, float],
) -> tuple[int, int, int]:
    """How many groups of batch elements, of row tiles and of column panels.

    read: the cycles that a row of A and a column of B cost beside the arithmetic.
    """
    batches, m, n, k = sizes
    tiles, panels = -(-m // tile.rows), -(-n // tile.columns)
    per_row, per_column = read
    best = (1, 1, 1)
    whole = _cycles(m, n, k, tile) + m * per_row + n * per_column
    best_makespan = batches * whole
    if threads == 1 or best_makespan < _SERIAL_CYCLES:
        return best
    per_thread = int(best_makespan / _TASK_CYCLES / threads)
    most = threads * min(_MAX_TASKS_PER_THREAD, max(1, per_thread))
    height = -(-m // tiles)
    # Grids that split the batch, then M, come first.
    for g2, across in _divisions(panels, most):
        columns = min(n, across * tile.columns)
        for g1, down in _divisions(tiles, most // g2):
            rows = min(m, down * height)
            # C may be in another core's cache.
            element = _cycles(rows, columns, k, tile) + 0.4 * rows * columns
            element += rows * per_row + columns * per_column
            if g1 * g2 * batches * element > threads * best_makespan:
                continue  # Too much work, however it is divided.
            for g0, each in _divisions(batches, most // (g2 * g1)):
                tasks = g0 * g1 * g2
                if tasks == 1:
                    continue
                # Smaller tasks lose less when another program takes a core for a while.
                turns = -(-tasks // threads) + _DISTURBANCE
                makespan = turns * (each * element + _TASK_OVERHEAD)
                if makespan < 0.99 * best_makespan:
                    best, best_makespan = (g0, g1, g2), makespan
    return best


def _cycles(rows: int, columns: int, k: int, tile: Tile) -> float:
    """The estimated cost of rows x columns of one batch element, without reading."""
    vectors = -(-columns // tile.lanes)
    across, down = -(-vectors // tile.vectors), -(-rows // tile.rows)
    # Two products a cycle, if there are eight independent sums, and two loads.
    arithmetic = rows * vectors / 2
    if across * 4 > arithmetic:
        arithmetic = across * 4
    loads = (rows * across + vectors) / 2
    if loads > arithmetic:
        arithmetic = loads
    return k * arithmetic + across * down * 40 + rows * vectors


@lru_cache(maxsize=1 << 12)
def _divisions(size: int, most: int) -> list[tuple[int, int]]:
    """Numbers of groups, at most so many, and the largest group of each. Of those with
    equal groups the fewest: more would only be more tasks."""
    smallest: dict[int, int] = {}
    for groups in range(1, min(size, most) + 1):
        smallest.setdefault(-(-size // groups), groups)
    return [(groups, each) for each, groups in smallest.items()]
