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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

import numpy as np


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


@lru_cache(maxsize=4096)
def plan(product: Contraction, tile: Tile, threads: int) -> Launch:
    """Chooses packing, blocks and tasks, and writes the kernel's arguments."""
    product = _canonical(product)
    itemsize = product.dtype.itemsize
    pack_a, pack_b = _packs_a(product), _packs_b(product)
    packs = pack_a or pack_b or product.n % tile.columns != 0
    pieces = _groups(product.k, _MAX_K_PIECE) if packs else 1
    k_piece = round_up(_groups(product.k, pieces), tile.lanes)
    tiles = _groups(product.m, tile.rows)
    grid = _grid(product, tile, threads, pack_a, pack_b)
    panels = _groups(_groups(product.n, tile.columns), grid[2])
    panel = round_up(k_piece * tile.columns * itemsize, 64)
    chunk, block_tiles = _block(product, tile, pack_b, panels, panel)
    # One vector more than needed, so that rows do not all fall into one L1 cache set.
    a_stride = k_piece + tile.lanes
    a_tiles = _groups(tiles, grid[1])
    if pack_a:
        most = max(1, _A_BYTES // (tile.rows * a_stride * itemsize))
        a_tiles = _groups(a_tiles, _groups(a_tiles, most))
    a_rows = a_tiles * tile.rows + tile.lanes
    a_offset = panel * (chunk if pack_b else 1)
    a_bytes = round_up(a_rows * a_stride * itemsize, 64) if pack_a else 0
    scratch = a_offset + a_bytes
    tasks = grid[0] * grid[1] * grid[2]
    words = [0] * (FIRST + len(Word))
    words[Slot.TASKS] = tasks
    words[Slot.KIND] = Kind.PRODUCT
    words[Slot.SCRATCH_STRIDE] = scratch
    words[Slot.PACK_A] = BUILT_IN if pack_a else IN_PLACE
    words[Slot.PACK_B] = BUILT_IN if pack_b else IN_PLACE
    for slot, strides in (
        (Slot.A, product.a),
        (Slot.B, product.b),
        (Slot.C, product.c),
    ):
        words[slot + 1 : slot + 5] = [
            strides.b0,
            strides.b1,
            strides.row,
            strides.column,
        ]
    words[Word.BATCH1] = product.b1
    words[Word.BATCHES] = product.b0 * product.b1
    words[Word.N] = product.n
    words[Word.K] = product.k
    words[Word.K_PIECE] = k_piece
    words[Word.TILES] = tiles
    words[Word.TILE_LOW], words[Word.TILE_EXTRA] = divmod(product.m, tiles)
    words[Word.BLOCK_TILES] = block_tiles
    words[Word.GRID_BATCHES : Word.GRID_COLUMNS + 1] = grid
    words[Word.ACCUMULATE] = int(product.accumulate)
    words[Word.A_STRIDE] = a_stride
    words[Word.A_OFFSET] = a_offset
    words[Word.PANEL_STRIDE] = panel if pack_b else 0
    words[Word.CHUNK] = chunk * tile.columns
    words[Word.A_TILES] = a_tiles
    return Launch(tuple(map(int, words)), tasks, scratch * tasks)


def _canonical(product: Contraction) -> Contraction:
    """Strides of dimensions of size 1 do not matter: those that allow most."""
    a, b = product.a, product.b
    if product.k == 1:
        a = replace(a, column=1)
    if product.n == 1:
        b = replace(b, column=1)
    return replace(product, a=a, b=b)


def _packs_a(product: Contraction) -> bool:
    """In place a tile's rows must be contiguous along k and not collide in L1."""
    if product.fused_a or product.a.column != 1:
        return True
    row_bytes = product.a.row * product.dtype.itemsize
    return row_bytes % 4096 == 0 and product.k >= 512 and product.n >= 256


def _packs_b(product: Contraction) -> bool:
    """Whether enough tiles share a panel of B to pay for it, or it is necessary."""
    if product.fused_b or product.b.column != 1:
        return True
    # What is not in the cache yet is read faster by packing than by the micro-kernel.
    large = product.k * product.n * product.dtype.itemsize > _LARGE_BYTES
    return product.m >= (_LARGE_B_ROWS if large else _SMALL_B_ROWS)


def _block(
    product: Contraction, tile: Tile, pack_b: bool, panels: int, panel_bytes: int
) -> tuple[int, int]:
    """Panels in a chunk and row tiles in a block."""
    if pack_b:
        chunk = _CHUNK_BYTES // panel_bytes
    else:
        chunk = _BLOCK_BYTES // (product.m * tile.columns * product.dtype.itemsize)
    chunk = max(1, min(panels, chunk))
    if pack_b:
        return chunk, max(1, _BLOCK_COLUMNS // (chunk * tile.columns))
    return chunk, _groups(product.m, tile.rows)


def _groups(size: int, each: int) -> int:
    return -(-size // each)


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _grid(
    product: Contraction, tile: Tile, threads: int, pack_a: bool, pack_b: bool
) -> tuple[int, int, int]:
    """How many groups of batch elements, of row tiles and of column panels."""
    m, lanes, tile_rows, tile_vectors = product.m, tile.lanes, tile.rows, tile.vectors
    tile_columns, n, k = tile.columns, product.n, product.k
    all_batches = product.b0 * product.b1
    all_tiles, all_panels = -(-m // tile_rows), -(-n // tile_columns)
    height = -(-m // all_tiles)
    per_row = 0.55 if pack_a else 0.15
    per_column = 0.0
    if pack_b:
        per_column = 0.3 if product.b.column == 1 else 0.5

    def side(rows: int, columns: int) -> float:
        """`_cycles`, written out: it is asked for many grids of many products."""
        vectors = -(-columns // lanes)
        panels, tiles = -(-vectors // tile_vectors), -(-rows // tile_rows)
        arithmetic = rows * vectors / 2
        other = panels * 4
        if other > arithmetic:
            arithmetic = other
        other = (rows * panels + vectors) / 2
        if other > arithmetic:
            arithmetic = other
        cycles = k * arithmetic + panels * tiles * 40 + rows * vectors
        cycles += k * (rows * per_row + columns * 0.15)
        if pack_b:
            cycles += k * columns * per_column
        return cycles

    best = (1, 1, 1)
    rows = min(m, all_tiles * height)
    whole = all_batches * side(rows, min(n, all_panels * tile_columns))
    if threads == 1 or whole < _SERIAL_CYCLES:
        return best
    per_thread = min(_MAX_TASKS_PER_THREAD, max(1, int(whole / _TASK_CYCLES / threads)))
    most = threads * per_thread
    best_makespan = whole
    for g2 in range(1, min(all_panels, most) + 1):
        columns = min(n, -(-all_panels // g2) * tile_columns)
        for g1 in range(1, min(all_tiles, most // g2) + 1):
            rows = min(m, -(-all_tiles // g1) * height)
            cycles = side(rows, columns)
            shared = cycles + 0.4 * rows * columns  # C may be in another core's cache
            for g0 in range(1, min(all_batches, most // (g2 * g1)) + 1):
                task = (
                    -(-all_batches // g0) * (cycles if g0 == g1 == g2 == 1 else shared)
                    + _TASK_OVERHEAD
                )
                makespan = (-(-(g0 * g1 * g2) // threads) + _DISTURBANCE) * task
                if makespan < 0.99 * best_makespan:
                    best, best_makespan = (g0, g1, g2), makespan
    return best


def _candidates(
    sizes: tuple[int, int, int], most: int
) -> Iterator[tuple[int, int, int]]:
    """Grids of at most `most` tasks; those that split the batch, then M, come first."""
    batches, tiles, panels = sizes
    for columns in range(1, min(panels, most) + 1):
        for rows in range(1, min(tiles, most // columns) + 1):
            for batch in range(1, min(batches, most // (columns * rows)) + 1):
                yield batch, rows, columns


def _cycles(
    product: Contraction,
    tile: Tile,
    rows: int,
    columns: int,
    pack_a: bool,
    pack_b: bool,
) -> float:
    """Estimated cost of rows x columns of one batch element."""
    k = product.k
    vectors = -(-columns // tile.lanes)
    panels, tiles = -(-vectors // tile.vectors), -(-rows // tile.rows)
    # Two products a cycle, if there are eight independent sums, and two loads.
    arithmetic = max(rows * vectors / 2, panels * 4, (rows * panels + vectors) / 2)
    cycles = k * arithmetic + panels * tiles * 40 + rows * vectors
    # Whatever is read comes from beyond the L2 cache once.
    cycles += k * (rows * (0.55 if pack_a else 0.15) + columns * 0.15)
    if pack_b:
        cycles += k * columns * (0.3 if product.b.column == 1 else 0.5)
    return cycles
