"""How a CPU that multiplies half floats runs such a product: blocks, groups, tasks."""

from __future__ import annotations

from functools import lru_cache

from treadle.backends.cpu.bfloat.unit import (
    BLOCK_BYTES,
    LINE_BYTES,
    SIDE,
    SUMS_BYTES,
    SUMS_ROW,
    WORDS,
    Speed,
)
from treadle.backends.cpu.gemm.arguments import (
    FIRST,
    Kind,
    ProductWord,
    Scheduled,
    Tile,
    TileWord,
    Word,
)
from treadle.backends.cpu.gemm.schedule import grid_of, round_up, task_count
from treadle.dims import is_dim
from treadle.kernels.contract import Contraction, Strides
from treadle.late import numbers

_CHUNK = 128  # columns between epilogues: long rows are fast to write
_ROW, _COLUMN = 0.2, 0.2  # cycles that it takes to pack an element
_PANEL_TASK = 1 << 17  # elements of B to pack that are worth a task
_READ = 0.03  # cycles to read an element of B where it lies
_DEEP = 32  # times as many k as rows: adding up lanes at the end takes less then
_COLUMNS = 8
_BLOCK = Tile(lanes=16, rows=SIDE)
_STREAMED = 1 << 14  # sums of all rows, which each few rows of B are added to
_LONG = 1 << 12  # elements of k, above which a small result is made in blocks of k ...
_SMALL = 3 << 18  # ... if it has at most so many elements


def schedule(product: Contraction, speed: Speed, threads: int) -> list[Scheduled]:
    """Chooses blocks and tasks: of packing B, if that is done for all, and of the
    product.

    Raises:
      NotImplementedError: for operands that are not in memory.
    """
    if product.fused_a or product.fused_b:
        raise NotImplementedError("products of halves read both operands from memory")
    b = product.b
    sizes = product.b0 * product.b1, product.m, product.n, product.k
    shared = not (is_dim(b.b0) or is_dim(b.b1)) and b.b0 == b.b1 == 0
    alone = not is_dim(sizes[0]) and sizes[0] == 1
    steps = product.a.column, b.row, b.column
    chosen = numbers(blocks, (speed, threads, shared or alone, *sizes, *steps))
    count = FIRST + len(ProductWord) + len(TileWord)
    words: list[int] = [0] * count
    for word, value in zip(CHOSEN, chosen, strict=False):
        words[word] = value
    for word, of in ((Word.A, product.a), (Word.B, b), (Word.C, product.c)):
        words[word + 1 : word + 5] = steps_of(of)
    words[ProductWord.BATCH1] = product.b1
    words[ProductWord.BATCHES] = sizes[0]
    words[ProductWord.ROWS] = product.m
    words[ProductWord.N] = product.n
    words[ProductWord.K] = product.k
    return present(launches(words, chosen[-1]))


def launches(words: list[int], panels: int) -> list[Scheduled]:
    """The launch that packs B, in so many tasks, and that of the product."""
    scratch = words[TileWord.SHARED]
    product = Scheduled(tuple(words), words[Word.TASKS], scratch)
    words[Word.KIND], words[Word.TASKS] = Kind.PANELS, panels
    words[Word.OWN_STRIDE] = 0
    return [Scheduled(tuple(words), panels, scratch), product]


def present(launches: list[Scheduled]) -> list[Scheduled]:
    """Those that have tasks."""
    return [launch for launch in launches if is_dim(launch.tasks) or launch.tasks > 0]


def needs_few(product: Contraction, speed: Speed) -> bool | None:
    """Whether it is one of `FEW_KINDS`; None if that depends on open sizes."""
    m, n, k, a, b = product.m, product.n, product.k, product.a, product.b
    kinds = [
        kind
        for kind, step in ((Kind.STREAMED, b.column), (Kind.TURNED, b.row))
        if is_dim(step) or step == 1
    ]
    most = max([_most_rows(kind, speed) for kind in kinds], default=0)
    may = [is_dim(m) or m <= most, *(is_dim(size) or size >= SIDE for size in (n, k))]
    if most == 0 or not all(may) or not (is_dim(a.column) or a.column == 1):
        return False
    steps = a.column, b.row, b.column
    if any(map(is_dim, (m, n, k, *steps))):
        return None
    return m <= _most_rows(Kind.STREAMED if b.column == 1 else Kind.TURNED, speed)


def _most_rows(kind: Kind, speed: Speed) -> int:
    most = speed.turned_rows
    return most if kind == Kind.TURNED else min(most, speed.rows_at_once)


def steps_of(of: Strides) -> tuple[int, ...]:
    return of.b0, of.b1, of.row, of.column


CHOSEN = (
    *(
        Word.KIND,
        Word.TASKS,
        Word.OWN_STRIDE,
        TileWord.SHARED,
        TileWord.OWN,
        TileWord.K_BLOCK,
        TileWord.SUMS,
        ProductWord.K_PIECE,
    ),
    *(ProductWord.TILES, ProductWord.TILE_LOW, ProductWord.TILE_EXTRA),
    *(ProductWord.GRID_BATCHES, ProductWord.GRID_ROWS, ProductWord.GRID_COLUMNS),
    *(ProductWord.A_STRIDE, ProductWord.A_OFFSET, ProductWord.PANEL_STRIDE),
    *(ProductWord.CHUNK, ProductWord.A_TILES),
)
"""The words that `blocks` gives."""


@lru_cache(maxsize=1 << 14)
def blocks(
    speed: Speed,
    threads: int,
    one_b: bool,
    batches: int,
    m: int,
    n: int,
    k: int,
    a_column: int,
    b_row: int,
    b_column: int,
) -> tuple[int, ...]:
    """What is chosen by size: `CHOSEN`, then the tasks that pack B (0 if each task of
    the product packs what it reads).

    one_b: whether all batch elements have the same B. a_column, b_row, b_column: steps.
    """
    kind = Kind.STREAMED if b_column == 1 else Kind.TURNED
    few = m <= _most_rows(kind, speed) and min(n, k) >= SIDE
    if few and a_column == 1 and 1 in (b_row, b_column):
        return _few(kind, speed, threads, batches, m, n, k)
    if b_row == 1 and b_column != 1 and m <= speed.few_rows and k >= _DEEP * m:
        return _few_rows(speed, threads, batches, m, n, k)
    tiles, panels = _groups(m, SIDE), _groups(n, SIDE)
    # All of k, packed, of what few rows or columns meet, fits no cache.
    long = speed.k_block > 0 and k > _LONG and m > SIDE and m * n <= _SMALL
    k_block = speed.k_block if long else round_up(k, speed.depth)
    packed = k_block // speed.depth * BLOCK_BYTES
    most = max(1, speed.a_bytes // packed)
    cycles = k * _ROW, k * _COLUMN
    parts = grid_of((batches, m, n, _groups(k, speed.faster)), _BLOCK, threads, cycles)
    group = _groups(tiles, parts[1])
    group = _groups(group, _groups(group, most))
    # A panel is read by each group of rows of each batch element.
    readers = parts[1] * _groups(_groups(tiles, parts[1]), group) * batches
    pieces = _groups(k_block, speed.k_piece)
    k_piece = round_up(_groups(k_block, pieces), speed.depth)
    packers = 0
    if one_b and readers > 1 and not long:
        packers = min(panels, threads, max(1, n * k // _PANEL_TASK))
    shared = panels * packed if packers else 0
    chunk = _groups(panels, parts[2]) if long else min(panels, _CHUNK // SIDE)
    between = group * SUMS_BYTES if long else 0
    sums = SUMS_BYTES * (max(group, 2) if pieces > 1 else 2)
    sums = max(sums, between * chunk)
    offset = sums + (0 if packers else chunk * packed)
    offset, lines = offset + speed.starts, packed + speed.starts
    # Two lines more, so that tasks do not all use the same cache sets.
    stride = offset + group * lines + 128
    tasks = parts[0] * parts[1] * parts[2]
    return (
        *(Kind.PRODUCT, tasks, stride, shared, sums, k_block, between, k_piece),
        *(tiles, *divmod(m, tiles), *parts),
        *(lines, offset, packed, chunk * SIDE, group),
        packers,
    )


def _few_rows(
    speed: Speed, threads: int, batches: int, m: int, n: int, k: int
) -> tuple[int, ...]:
    """As `blocks`, for Kind.FEW_ROWS."""
    lines = _groups(k, speed.depth) * BLOCK_BYTES + speed.starts
    cycles = batches * n * k * max(_READ, m / speed.faster / WORDS)
    tasks = task_count(cycles, threads)
    batch_groups = min(batches, tasks)
    columns = min(_groups(n, _COLUMNS), _groups(tasks, batch_groups))
    tasks, stride = batch_groups * columns, lines + 128
    return (
        *(Kind.FEW_ROWS, tasks, stride, 0, 0, k, 0, k, 1, m, 0),
        *(batch_groups, 1, columns, lines, speed.starts, 0, _CHUNK, 1),
        0,
    )


def _few(
    kind: Kind, speed: Speed, threads: int, batches: int, m: int, n: int, k: int
) -> tuple[int, ...]:
    """As `blocks`, for Kind.TURNED and Kind.STREAMED."""
    tasks = task_count(batches * n * k * max(_READ, m / speed.faster / WORDS), threads)
    batch_groups = min(batches, tasks)
    columns = min(_groups(n, 2 * SIDE), _groups(tasks, batch_groups))
    tasks = batch_groups * columns
    # Room for columns before the first whole line, and behind the last ones.
    at_once = speed.rows_at_once
    most = _STREAMED // min(m, at_once) // SIDE * SIDE
    chunk = min(most, round_up(n, SIDE))
    sums = (chunk // SIDE + 4) * at_once * SUMS_ROW
    # Two lines more, so that rows do not all use the same cache sets.
    line = round_up(k, SIDE) * (LINE_BYTES // speed.depth) + 4 * LINE_BYTES
    stride = sums + round_up(m, at_once) * line
    return (
        *(kind, tasks, stride, 0, 0, k, 0, k, 1, m, 0),
        *(batch_groups, 1, columns, line, sums, 0, chunk, 1),
        0,
    )


def _groups(size: int, each: int) -> int:
    return -(-size // each)
