"""The arguments of the native kernels of products and convolutions.

One function per dtype, ``void contract(ptr args, i64 task, i64 slot)``, computes every
matrix product (`treadle.kernels.contract`) and every convolution
(`treadle.kernels.convolve`), whatever its sizes and strides, and whatever is fused
before or behind it. It is run for every task in 0..tasks-1, in any order and on any
thread (of which each has a slot of its own); no bit of the result depends on how many
tasks there are. `args` points to 64-bit words. A schedule writes them, but for those of
pointers::

    scheduled = schedule(Contraction(np.dtype("float32"), m, n, k, a=..., b=..., c=...),
                         tile, threads)
    words = list(scheduled.words)
    words[Word.A] = address of A[0, 0, 0, 0]   # likewise B, C
    words[Word.SCRATCH] = address of scheduled.scratch_bytes bytes, 64-byte aligned
    words[Word.OWN] = the same of scheduled.own_bytes for each slot,
    words[Word.OWN_STRIDE] = which lie so many bytes apart
    words[Word.EPILOGUE] = address of a block function
    words[Word.EPILOGUE_ARGS] = index of the word of `args` where its arguments begin

**Hooks** are addresses of *block functions*; 0 leaves the epilogue out. The epilogue
runs once on every finished block of C, while the block is in cache::

    void epilogue(ptr eargs, i64 b0, i64 b1, i64 r0, i64 r1, i64 c0, i64 c1)

It reads and writes memory itself (C, a bias, a residual, ...), for rows r0..r1-1 and
columns c0..c1-1 of batch element (b0, b1). Blocks are disjoint and cover C; which
blocks there are may differ between calls, so results may not depend on it.

A *producer* computes an operand that never exists in memory (a mask applied, a cast).
Say so with ``fused_a`` or ``fused_b``, and put its address into Word.PACK_A or
Word.PACK_B and its arguments beside it::

    void pack(ptr pargs, i64 b0, i64 b1, i64 i0, i64 i1, i64 j0, i64 j1,
              ptr block, i64 stride)

It writes element [b0, b1, i, j] of the operand (for A, i counts m and j counts k; for
B, i counts k and j counts n) to ``block[(i - i0) * stride + (j - j0)]``, in elements.
It may write up to a vector too much in both directions: at most to the next multiple
of `Tile.lanes`. Producers run more than once per element if A and B meet in several
blocks (A once per column group of the grid, B once per block of rows).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from treadle.backends.cpu.run.executor import Scaled, Slot
from treadle.plan.steps import Place, ProductStep
from treadle.records import record


class Kind(IntEnum):
    """What Word.KIND says."""

    PRODUCT = 0
    CONVOLUTION = 1
    FILTER_GRADIENT = 2
    SUM_PARTIALS = 3
    DEPTHWISE = 4
    DEPTHWISE_FILTER = 5
    PANELS = 6  # packs B for a product of bfloat16
    FEW_ROWS = 7  # has the words of PRODUCT; tiles are of columns
    TOGETHER = 8  # has the words of CONVOLUTION; tiles are of several images
    TURNED = 9  # has the words of PRODUCT; tiles are of columns
    STREAMED = 10  # likewise
    WINOGRAD = 11
    WINOGRAD_FILTER = 12
    WINOGRAD_LINES = 13
    WINOGRAD_LINES_FILTER = 14
    SMALL = 15  # has the words of PRODUCT: many small matrices


FEW_KINDS = (Kind.TURNED, Kind.STREAMED)
"""Products of so few rows that reading B is all they take."""


class Word(IntEnum):
    """Words that every kind has. Those of pointers are 0 in `Scheduled.words`."""

    TASKS = 0
    KIND = 1
    SCRATCH = 2  # what tasks, or launches, share
    OWN = 3  # what a thread has while it runs a task
    OWN_STRIDE = 4  # bytes from one slot to the next; a schedule says how many it needs
    EPILOGUE = 5
    EPILOGUE_ARGS = 6
    PACK_A = 7  # IN_PLACE, BUILT_IN or the address of a producer
    PACK_A_ARGS = 8
    PACK_B = 9
    PACK_B_ARGS = 10
    A = 11  # pointer, then strides b0, b1, row, column
    B = 16
    C = 21


FIRST = 26
"""The first word that only one kind uses."""

IN_PLACE, BUILT_IN = 0, 1
"""Values of Word.PACK_A and Word.PACK_B that are no addresses."""


class ProductWord(IntEnum):
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
    A_STRIDE = (
        FIRST + 12
    )  # row stride of a packed A, in elements: room for a piece of k
    A_OFFSET = FIRST + 13  # bytes from a slot's scratch to its packed A
    PANEL_STRIDE = FIRST + 14  # bytes between packed panels; 0 if B is read in place
    CHUNK = FIRST + 15  # columns whose packed panels stay in the L2 cache
    A_TILES = FIRST + 16  # and tiles whose packed rows of A do
    SHARES_B = FIRST + 17  # whether panels, once packed, meet all batch elements
    ROWS = FIRST + 18  # M, of few rows


class TileWord(IntEnum):
    """What a product of bfloat16 has beside the words of Kind.PRODUCT, which
    Kind.PANELS has, too. There a row tile is a block of up to 32 rows, `A_STRIDE` is in
    bytes from one to the next, as `PANEL_STRIDE` is, and `BLOCK_TILES` isn't used."""

    SHARED = FIRST + len(ProductWord)
    """Bytes of the scratch that all tasks share, which hold all of B, packed; 0 if each
    task packs what it reads, ..."""
    OWN = FIRST + len(ProductWord) + 1
    """... for a chunk at a time, so many bytes into its scratch."""
    K_BLOCK = FIRST + len(ProductWord) + 2
    """Elements of k that are packed at once: pieces, and all if B is shared."""
    SUMS = FIRST + len(ProductWord) + 3
    """Bytes from the sums of a panel to those of the next one, if they are kept from
    one block of k to another; else 0."""


@record(frozen=True)
class Tile:
    """The block of C that is held in registers: rows x (vectors * lanes) elements."""

    lanes: int
    rows: int
    vectors: int = 2

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors

    @property
    def packed_rows(self) -> int:
        """The room for a column of A, where tiles of it are packed: whole vectors."""
        return -(-self.rows // self.lanes) * self.lanes


@record(frozen=True)
class Scheduled:
    """The arguments of one kernel call, 0 where a pointer is to be filled in.

    scratch_bytes: what its tasks share, among them and with other calls.
    turned: 1 if A and B change places, else 0.
    """

    words: tuple[int, ...]
    tasks: int
    scratch_bytes: int = 0
    turned: int = 0

    @property
    def own_bytes(self) -> int:
        """What a thread needs beside while it runs a task."""
        return self.words[Word.OWN_STRIDE]


def operands(step: ProductStep, at: Callable[[Place], Slot]) -> tuple[Slot, Slot]:
    """What the words of A and B point to, which may depend on sizes that are open."""
    a, b, turned = at(step.a), at(step.b), step.words.turned
    return _either(a, b, turned), _either(b, a, turned)


def _either(first: Slot, second: Slot, which: int) -> Slot:
    """One of two addresses: the second if a number, that may be open, is 1, not 0."""
    if type(which) is int:
        return second if which else first
    parts = [Scaled(p.slot, p.scale * (1 - which)) for p in first.dynamic]
    parts += [Scaled(p.slot, p.scale * which) for p in second.dynamic]
    index = first.index
    if index != second.index:
        index += (second.index - index) * which
    offset = first.offset + (second.offset - first.offset) * which
    return Slot(index, offset, tuple(parts))
