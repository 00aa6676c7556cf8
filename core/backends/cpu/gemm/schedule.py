"""How a CPU runs a matrix product: packing, blocks that fit its caches, and tasks."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache

from treadle.backends.cpu.gemm.arguments import (
    FEW_KINDS,
    FIRST,
    Kind,
    ProductWord,
    Scheduled,
    Tile,
    Word,
)
from treadle.backends.cpu.gemm.small import is_small, small_bytes, small_chunk
from treadle.backends.cpu.gemm.streamed import streamed_columns, streamed_rows
from treadle.backends.cpu.gemm.turned import TURNED_ROWS, turned_columns
from treadle.dims import hint, is_dim
from treadle.kernels.contract import Contraction
from treadle.late import numbers

OWN_KINDS = (*FEW_KINDS, Kind.SMALL)
"""Those that have a module of their own."""
_SERIAL_CYCLES = 16_000  # about 6 us: less is not worth sharing
_TASK_OVERHEAD = 1_000
_DISTURBANCE = 0.1
_WRITE = 0.4  # for an element of C, which may be in another core's cache
_BETTER = 0.99  # than which a grid must be to be worth another one
_TASK_CYCLES = 400_000  # about 150 us: smaller tasks cost more than they balance
_MAX_TASKS_PER_THREAD = 4
_CHUNK_BYTES = 1 << 18  # of packed B, to stay in the L2 cache with ...
_A_BYTES = 5 << 18  # ... this much of packed A
_BLOCK_COLUMNS = 128  # a block of C should have: long rows are fast to write
_BLOCK_BYTES = 1 << 18  # of C, to be in the cache when the epilogue runs
PIECE_BYTES = 1 << 15  # of a panel of B, multiplied at once: the L1 cache
_SMALL_B_ROWS = 128  # from which on packing B pays, if it is small ...
_LARGE_B_ROWS = 24  # ... or larger than ...
_COLLIDING_TILES = 3  # from which on it pays where rows of B collide in the cache
_LARGE_BYTES = 1 << 20  # ... this
_TURNED_BYTES = 1 << 16  # of C, transposed, for which A is packed once
_TURNED_K = 4  # from which on the turning of a square is worth it
_TURNED_TILES = 32  # after which the epilogue runs
_STREAMED_BYTES = 1 << 16  # of C, which each few rows of B are added to
_LINE = 64  # bytes, of which all are used while they stay in the L1 cache
SET_BYTES = 1 << 12  # lines so far apart fall into one set of the L1 cache
WAYS = 8  # and so many of them stay there


def schedule(
    product: Contraction,
    tile: Tile,
    threads: int,
    hooked: bool = False,
    few: bool = True,
) -> Scheduled:
    """Chooses packing, blocks and tasks, and writes the kernel's arguments.

    hooked: whether an epilogue is called for blocks of it.
    few: whether it may be one of `OWN_KINDS`.
    """
    fused = product.fused_a, product.fused_b
    a, b, c = product.a, product.b, product.c
    b1, batches, m = product.b1, product.b0 * product.b1, product.m
    n, turned = product.n, 0
    a_row, a_column, b_row, b_column = a.row, a.column, b.row, b.column
    c_row = c.row
    shared = not (is_dim(b.b0) or is_dim(b.b1)) and b.b0 == b.b1 == 0
    machine = product.dtype.itemsize, fused, shared, few, tile, threads
    if is_dim(m) and shared and not (hooked or product.fused_a):
        sizes = product.b0, b1, m, a.b0, a.b1, a_row, c.b0, c.b1, c_row
        b1, batches, m, a_row, c_row = numbers(_rows, sizes)
    if few and not hooked and _may_turn(product, tile):
        given = m, n, a_row, a_column, b_row, b_column, c_row
        turned, m, n, a_row, a_column, b_row, b_column, c_row = numbers(_turned, given)
    read = batches, m, n, product.k, a_row, a_column, b_row, b_column
    blocks = numbers(_blocks, (*machine, *read))
    words: list[int] = [0] * (FIRST + len(ProductWord))
    for word, value in zip(_CHOSEN, blocks, strict=True):
        words[word] = value
    words[Word.A + 1 : Word.A + 4] = a.b0, a.b1, a_row
    words[Word.B + 1 : Word.B + 4] = b.b0, b.b1, b_row
    words[Word.C + 1 : Word.C + 5] = c.b0, c.b1, c_row, c.column
    words[ProductWord.BATCH1] = b1
    words[ProductWord.BATCHES] = batches
    words[ProductWord.N] = n
    words[ProductWord.K] = product.k
    tasks = words[Word.TASKS]
    return Scheduled(tuple(words), tasks, turned=turned)


def in_strands(
    product: Contraction, tile: Tile, strands: int, hooked: bool
) -> Scheduled | None:
    """The same in as many tasks as strands, each of which has equally many rows; None
    if these don't fill tiles, or if B had to be packed for each of them."""
    m, most = product.m, tile.rows
    divisors = (t for t in range(strands, m, strands) if m % t == 0)
    tiles = next((t for t in divisors if t * most >= m), m)
    if 2 * (m // tiles) < most:
        return None
    words = list(schedule(product, tile, 1, hooked, few=False).words)
    if words[Word.KIND] != Kind.PRODUCT or words[Word.PACK_B]:
        return None
    words[Word.TASKS] = words[ProductWord.GRID_ROWS] = strands
    words[ProductWord.TILES], words[ProductWord.TILE_LOW] = tiles, m // tiles
    words[ProductWord.TILE_EXTRA], words[ProductWord.A_TILES] = 0, tiles // strands
    words[ProductWord.BLOCK_TILES] = tiles // strands
    return Scheduled(tuple(words), strands)


_CHOSEN = (
    *(
        Word.KIND,
        Word.TASKS,
        Word.PACK_A,
        Word.PACK_B,
        Word.A + 4,
        Word.B + 4,
        ProductWord.K_PIECE,
    ),
    *(
        ProductWord.TILES,
        ProductWord.TILE_LOW,
        ProductWord.TILE_EXTRA,
        ProductWord.BLOCK_TILES,
    ),
    *(
        ProductWord.GRID_BATCHES,
        ProductWord.GRID_ROWS,
        ProductWord.GRID_COLUMNS,
        ProductWord.A_STRIDE,
    ),
    *(
        ProductWord.A_OFFSET,
        ProductWord.PANEL_STRIDE,
        ProductWord.CHUNK,
        ProductWord.A_TILES,
        ProductWord.SHARES_B,
        ProductWord.ROWS,
        Word.OWN_STRIDE,
    ),
)
"""The words that `_blocks` gives."""


def few_kind(product: Contraction, tile: Tile) -> Kind | None:
    """Which of `OWN_KINDS` it is, if any; all of its sizes are known."""
    kind = Kind(schedule(product, tile, 1).words[Word.KIND])
    return kind if kind in OWN_KINDS else None


def may_be_few(product: Contraction, tile: Tile) -> bool:
    """Whether it may be one of `FEW_KINDS` for some of its sizes, which are open."""
    m, n, k = product.m, product.n, product.k
    most = max(TURNED_ROWS, streamed_rows(tile, 2 * SET_BYTES))
    least = min(_TURNED_K, 2 * WAYS)
    limits = (m, 1, most), (n, tile.lanes, n), (k, least, k)
    may = [is_dim(size) or low <= size <= high for size, low, high in limits]
    return all(may) and not (product.fused_a or product.fused_b)


def is_open(product: Contraction) -> bool:
    """Whether not all of its sizes and steps are known."""
    steps = [getattr(s, f.name) for s in (product.a, product.b) for f in fields(s)]
    sizes = product.b0, product.b1, product.m, product.n, product.k
    return any(map(is_dim, (*sizes, *steps)))


def _rows(b0: int, b1: int, m: int, *strides: int) -> tuple[int, ...]:
    """Batch elements of one row are rows of one product, with a B that they share: size
    of b1, batch elements, m, and the steps between rows of A and of C.

    strides: of A and of C, along b0, b1 and m.
    """
    a, c = strides[:3], strides[3:]
    if m == 1 and b0 == 1:
        return 1, 1, b1, a[1], c[1]
    if m == 1 and b1 == 1:
        return 1, 1, b0, a[0], c[0]
    return b1, b0 * b1, m, a[2], c[2]


def _may_turn(product: Contraction, tile: Tile) -> bool:
    """Whether it has one column for some of its sizes, which is a row then, as it is
    where sizes are fixed: A and B change places."""
    a, b, c = product.a, product.b, product.c
    steps = map(hint, (a.row, a.column, b.row, b.column))
    alone = not any([is_dim(x) or x != 1 for x in (product.b0, product.b1, c.column)])
    return is_dim(product.n) and alone and min(steps) >= 0 and may_be_few(product, tile)


def _turned(m: int, n: int, *steps: int) -> tuple[int, ...]:
    """Whether A and B change places; then m, n, and the steps between rows and columns
    of A and of B, and between rows of C.

    steps: these as they are given.
    """
    a_row, a_column, b_row, b_column, c_row = steps
    if n == 1 < m and c_row == 1:
        return 1, 1, m, b_column, b_row, a_column, a_row, m
    return 0, m, n, *steps


@lru_cache(maxsize=1 << 14)
def _blocks(
    itemsize: int,
    fused: tuple[bool, bool],
    shared: bool,
    few: bool,
    tile: Tile,
    threads: int,
    *sizes: int,
) -> tuple[int, ...]:
    """What is chosen by size: packing, blocks and tasks.

    shared: whether all batch elements have the same B.
    few: whether it may be one of `OWN_KINDS`.
    sizes: batch elements, m, n, k, and the steps between rows and columns of A and B.
    """
    batches, m, n, k, a_row, a_column, b_row, b_column = sizes
    # Strides of dimensions of size 1 do not matter: those that allow most.
    a_column = 1 if k == 1 else a_column
    b_column = 1 if n == 1 else b_column
    pack_a = fused[0] or _packs_a(n, k, a_row * itemsize, a_column)
    shared = shared and batches > 1 and not fused[1]
    rows = batches * m if shared else m
    collide = b_row * itemsize % SET_BYTES == 0 and k > WAYS
    pack_b = (
        fused[1]
        or _packs_b(rows, n * k * itemsize, b_column)
        or (collide and _groups(rows, tile.rows) >= _COLLIDING_TILES)
    )
    shared = shared and pack_b
    # Each piece is a sum of its own: so that results do not depend on where operands
    # lie, k is cut whether or not that helps.
    pieces = _groups(k, PIECE_BYTES // (tile.columns * itemsize))
    k_piece = round_up(_groups(k, pieces), tile.lanes)
    if few and not any(fused) and is_small(batches, m, n, k):
        return _small_blocks(itemsize, tile, threads, k_piece, *sizes)
    if few and not any(fused) and _streams(m, n, k, b_row * itemsize, b_column, tile):
        return _streamed_blocks(itemsize, tile, threads, k_piece, *sizes)
    if not (shared or any(fused)):
        if few and _turns(m, n, k, b_row, b_column, tile):
            return _turned_blocks(tile, threads, k_piece, *sizes)
        if _few_rows(m, n, k, b_row, b_column, tile):
            return _few_rows_blocks(itemsize, tile, threads, k_piece, *sizes)
    # Rows that are read where they lie must not push each other out of the L1 cache.
    apart = not pack_a and a_row * itemsize % SET_BYTES == 0 and k * itemsize > _LINE
    tiles = _groups(m, min(tile.rows, WAYS - 2) if apart else tile.rows)
    per_column = (0.3 if b_column == 1 else 0.5) if pack_b else 0.0
    cycles = k * (0.55 if pack_a else 0.15), k * (0.15 + per_column)
    grid = grid_of((batches, m, n, k), tile, threads, cycles, shared)
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
        most = max(1, _A_BYTES // (tile.packed_rows * a_stride * itemsize))
        a_tiles = _groups(a_tiles, _groups(a_tiles, most))
    a_rows = a_tiles * tile.packed_rows + tile.lanes
    a_offset = panel * (chunk if pack_b else 1)
    a_bytes = round_up(a_rows * a_stride * itemsize, 64) if pack_a else 0
    return (
        *(Kind.PRODUCT, grid[0] * grid[1] * grid[2]),
        *(int(pack_a), int(pack_b), a_column, b_column),
        *(k_piece, tiles, *divmod(m, tiles), block_tiles, *grid, a_stride, a_offset),
        *(panel if pack_b else 0, chunk * tile.columns, a_tiles, int(shared)),
        *(m, a_offset + a_bytes),
    )


def _few_rows(m: int, n: int, k: int, b_row: int, b_column: int, tile: Tile) -> bool:
    """Whether B had better stay where it lies: k is contiguous, one panel has all rows
    of A, and sums are so long that copying C costs less than packing B."""
    in_place = (b_row == 1 or k == 1) and b_column != 1
    return in_place and m <= tile.columns and n >= tile.columns and k >= 4 * m


def _few_rows_blocks(
    itemsize: int, tile: Tile, threads: int, k_piece: int, *sizes: int
) -> tuple[int, ...]:
    """As `_blocks`, for Kind.FEW_ROWS."""
    batches, m, n, k, _, a_column, _, b_column = sizes
    collide = b_column * itemsize % SET_BYTES == 0
    height = min(tile.rows, WAYS - 2) if collide else tile.rows
    tiles, line = _groups(n, height), tile.columns * itemsize
    chunk = max(1, _TURNED_BYTES // (height * line))
    # Two elements of B are loaded in a cycle, or as many as can be multiplied.
    cycles = batches * n * k * max(0.5, _groups(m, tile.lanes) / 2)
    tasks = task_count(cycles, threads)
    grid = min(batches, tasks), 1, min(tiles, _groups(tasks, min(batches, tasks)))
    offset = (k_piece + tile.lanes) * line
    return (
        *(Kind.FEW_ROWS, grid[0] * grid[2], 0, 0, a_column, b_column),
        *(k_piece, tiles, *divmod(n, tiles), chunk, *grid, 0, offset),
        *(0, 0, 0, 0, m, offset + round_up(chunk * height * line, 64)),
    )


def _small_blocks(
    itemsize: int, tile: Tile, threads: int, k_piece: int, *sizes: int
) -> tuple[int, ...]:
    """As `_blocks`, for Kind.SMALL."""
    batches, m, n, k, _, a_column, _, b_column = sizes
    copied = n * k if b_column != 1 else 0
    tasks = min(batches, task_count(batches * (m * (k + 1) + copied + 10), threads))
    return (
        *(Kind.SMALL, tasks, 0, 0, a_column, b_column),
        *(k_piece, 1, m, 0, small_chunk((m, n, k), tile, itemsize)),
        *(tasks, 1, 1, 0, 0, 0, 0, 0, 0, m),
        small_bytes((m, n, k), tile, itemsize),
    )


def _turns(m: int, n: int, k: int, b_row: int, b_column: int, tile: Tile) -> bool:
    """Whether loading each element of B takes longer than what so few rows need."""
    in_place = b_row == 1 and b_column != 1
    return (
        in_place and m <= TURNED_ROWS and n >= turned_columns(tile) and k >= _TURNED_K
    )


def _turned_blocks(
    tile: Tile, threads: int, k_piece: int, *sizes: int
) -> tuple[int, ...]:
    """As `_blocks`, for Kind.TURNED."""
    batches, m, n, k, _, a_column, _, b_column = sizes
    tiles = _groups(n, turned_columns(tile))
    cycles = batches * n * k * (m + 4) / tile.lanes
    tasks = task_count(cycles, threads)
    grid = min(batches, tasks), 1, min(tiles, _groups(tasks, min(batches, tasks)))
    return (
        *(Kind.TURNED, grid[0] * grid[2], 0, 0, a_column, b_column),
        *(k_piece, tiles, 0, 0, _TURNED_TILES, *grid, 0, 0),
        *(0, 0, 0, 0, m, 0),
    )


def _streams(m: int, n: int, k: int, row_bytes: int, b_column: int, tile: Tile) -> bool:
    """Whether rows of B are so long that a panel would be read too slowly."""
    few = m <= streamed_rows(tile, row_bytes) and n >= streamed_columns(tile)
    return few and b_column == 1 and k >= 2 * WAYS


def _streamed_blocks(
    itemsize: int, tile: Tile, threads: int, k_piece: int, *sizes: int
) -> tuple[int, ...]:
    """As `_blocks`, for Kind.STREAMED."""
    batches, m, n, k, _, a_column, _, b_column = sizes
    columns = streamed_columns(tile)
    across = _groups(n, columns)
    cycles = batches * n * k * (m + 1) / tile.lanes
    tasks = task_count(cycles, threads)
    grid = min(batches, tasks), 1, min(across, _groups(tasks, min(batches, tasks)))
    strip = m * columns * itemsize  # what is kept of a tile
    chunk = max(1, _STREAMED_BYTES // strip, SET_BYTES // (columns * itemsize))
    return (
        *(Kind.STREAMED, grid[0] * grid[2], 0, 0, a_column, b_column),
        *(k_piece, across, 0, 0, chunk, *grid, 0, 0),
        *(0, 0, 0, 0, m, round_up(chunk * strip, 64)),
    )


def _packs_a(n: int, k: int, row_bytes: int, column: int) -> bool:
    """In place a tile's rows must be contiguous along k and not collide in L1."""
    return column != 1 or (row_bytes % 4096 == 0 and k >= 512 and n >= 256)


def _packs_b(rows: int, nbytes: int, column: int) -> bool:
    """Whether enough rows share a panel of B to pay for it, or it is necessary."""
    # What is not in the cache yet is read faster by packing than by the micro-kernel.
    return column != 1 or rows >= (
        _LARGE_B_ROWS if nbytes > _LARGE_BYTES else _SMALL_B_ROWS
    )


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


def grid_of(
    sizes: tuple[int, int, int, int],
    tile: Tile,
    threads: int,
    read: tuple[float, float],
    shared: bool = False,
) -> tuple[int, int, int]:
    """How many groups of batch elements, of row tiles and of column panels.

    read: the cycles that a row of A and a column of B cost beside the arithmetic.
    shared: whether a column of B costs that once for all batch elements of a task.
    """
    batches, m, n, k = sizes
    tiles, panels = -(-m // tile.rows), -(-n // tile.columns)
    per_row, per_column = read
    rows_read, columns_read = m * per_row, n * per_column
    if shared:
        columns_read /= batches
    best = (1, 1, 1)
    whole = _cycles(m, n, k, tile)
    makespan = batches * (whole + rows_read + columns_read)
    most = task_count(makespan, threads)
    if most == 1:
        return best
    limit = _BETTER * makespan
    height = -(-m // tiles)
    # All parts together take at least as long as the whole, and read as much.
    share = batches * (1 / threads + _DISTURBANCE / most)
    least = share * (whole + _WRITE * m * n)
    rows_read, columns_read = share * rows_read, share * columns_read
    # Grids that split the batch, then M, come first.
    for g2, across in _divisions(panels, most):
        if least + g2 * rows_read + columns_read > limit:
            break
        columns = min(n, across * tile.columns)
        for g1, down in _divisions(tiles, most // g2):
            if least + g2 * rows_read + g1 * columns_read > limit:
                break
            rows = min(m, down * height)
            element = _cycles(rows, columns, k, tile) + _WRITE * rows * columns
            element += rows * per_row
            for g0, each in _divisions(batches, most // (g2 * g1)):
                tasks = g0 * g1 * g2
                if tasks == 1:
                    continue
                # Smaller tasks lose less when another program takes a core for a while.
                turns = -(-tasks // threads) + _DISTURBANCE
                packed = columns * per_column * (1 if shared else each)
                makespan = turns * (each * element + packed + _TASK_OVERHEAD)
                if makespan < limit:
                    best, limit = (g0, g1, g2), _BETTER * makespan
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
    found = [(1, size)]
    for groups in range(2, min(size, most) + 1):
        each = -(-size // groups)
        if each < found[-1][1]:
            found.append((groups, each))
    return found
