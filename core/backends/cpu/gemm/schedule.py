"""How a CPU runs a matrix product: packing, blocks that fit its caches, and tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from treadle.backends.cpu.gemm.arguments import (
    BUILT_IN,
    FIRST,
    IN_PLACE,
    Kind,
    ProductWord,
    Scheduled,
    Tile,
    Word,
)
from treadle.kernels.contract import Contraction

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
def schedule(product: Contraction, tile: Tile, threads: int) -> Scheduled:
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
    words = [0] * (FIRST + len(ProductWord))
    words[Word.TASKS] = tasks
    words[Word.KIND] = Kind.PRODUCT
    words[Word.SCRATCH_STRIDE] = scratch
    words[Word.PACK_A] = BUILT_IN if pack_a else IN_PLACE
    words[Word.PACK_B] = BUILT_IN if pack_b else IN_PLACE
    for slot, strides in (
        (Word.A, product.a),
        (Word.B, product.b),
        (Word.C, product.c),
    ):
        words[slot + 1 : slot + 5] = [
            strides.b0,
            strides.b1,
            strides.row,
            strides.column,
        ]
    words[ProductWord.BATCH1] = product.b1
    words[ProductWord.BATCHES] = product.b0 * product.b1
    words[ProductWord.N] = product.n
    words[ProductWord.K] = product.k
    words[ProductWord.K_PIECE] = k_piece
    words[ProductWord.TILES] = tiles
    low, extra = divmod(product.m, tiles)
    words[ProductWord.TILE_LOW], words[ProductWord.TILE_EXTRA] = low, extra
    words[ProductWord.BLOCK_TILES] = block_tiles
    words[ProductWord.GRID_BATCHES : ProductWord.GRID_COLUMNS + 1] = grid
    words[ProductWord.A_STRIDE] = a_stride
    words[ProductWord.A_OFFSET] = a_offset
    words[ProductWord.PANEL_STRIDE] = panel if pack_b else 0
    words[ProductWord.CHUNK] = chunk * tile.columns
    words[ProductWord.A_TILES] = a_tiles
    return Scheduled(tuple(map(int, words)), tasks, scratch * tasks)


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


def task_count(cycles: float, threads: int) -> int:
    """How many tasks are worth it: one if there is little to do, else a few per thread.

    cycles: of the whole work on one thread."""
    if threads == 1 or cycles < _SERIAL_CYCLES:
        return 1
    per_thread = int(cycles / _TASK_CYCLES / threads)
    return threads * min(_MAX_TASKS_PER_THREAD, max(1, per_thread))


def _grid(
    product: Contraction, tile: Tile, threads: int, pack_a: bool, pack_b: bool
) -> tuple[int, int, int]:
    """How many groups of batch elements, of row tiles and of column panels."""
    sizes = (
        product.b0 * product.b1,
        -(-product.m // tile.rows),
        -(-product.n // tile.columns),
    )

    def cost(grid: tuple[int, int, int]) -> float:
        """Of the largest task, in cycles."""
        batches, tiles, panels = (
            -(-size // groups) for size, groups in zip(sizes, grid, strict=True)
        )
        rows = min(product.m, tiles * -(-product.m // sizes[1]))
        columns = min(product.n, panels * tile.columns)
        cycles = _cycles(product, tile, rows, columns, pack_a, pack_b)
        if grid != (1, 1, 1):
            cycles += 0.4 * rows * columns  # C may be in another core's cache
        return batches * cycles

    best, whole = (1, 1, 1), cost((1, 1, 1))
    most = task_count(whole, threads)
    if most == 1:
        return best
    best_makespan = whole
    for grid in _candidates(sizes, most):
        tasks = grid[0] * grid[1] * grid[2]
        task = cost(grid) + _TASK_OVERHEAD
        # Smaller tasks lose less when another program takes a core for a while.
        makespan = (-(-tasks // threads) + _DISTURBANCE) * task
        if makespan < 0.99 * best_makespan:
            best, best_makespan = grid, makespan
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
