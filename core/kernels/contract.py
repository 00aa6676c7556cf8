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
    words[Slot.EPILOGUE] = address of a block function, words[Slot.EPILOGUE_ARGS] = ...

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
    BLOCK_TILES = FIRST + 8  # tiles whose part of A stays in the L2 cache
    EPILOGUE_TILES = FIRST + 9  # tiles per call of the epilogue
    GRID_BATCHES = FIRST + 10
    GRID_ROWS = FIRST + 11
    GRID_COLUMNS = FIRST + 12
    ACCUMULATE = FIRST + 13
    A_STRIDE = FIRST + 14  # row stride of a packed A, in elements
    A_OFFSET = FIRST + 15  # bytes from a task's scratch to its packed A


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
        if min(sizes) < 1:
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

    def merged(self) -> Contraction:
        """The same product with b1 (then b0) as further rows, where strides allow.

        Larger matrices are faster: one activation x weight product instead of many.
        The rows seen by hooks count through the merged dimensions.
        """
        result = self
        if result.b1 == 1:
            result = replace(
                result,
                b0=1,
                b1=result.b0,
                a=replace(result.a, b1=result.a.b0, b0=0),
                b=replace(result.b, b1=result.b.b0, b0=0),
                c=replace(result.c, b1=result.c.b0, b0=0),
            )
        while result.b1 > 1 and _chains(result):
            result = replace(
                result,
                m=result.m * result.b1,
                b0=1,
                b1=result.b0,
                a=replace(result.a, b1=result.a.b0, b0=0),
                b=replace(result.b, b1=result.b.b0, b0=0),
                c=replace(result.c, b1=result.c.b0, b0=0),
            )
        return result


def _chains(product: Contraction) -> bool:
    """Whether stepping b1 is the same as stepping m rows, in A and C, with one B."""
    a, c = product.a, product.c
    return (
        product.b.b1 == 0
        and a.b1 == product.m * a.row
        and c.b1 == product.m * c.row
        and not (product.fused_a or product.fused_b)
    )


@dataclass(frozen=True)
class Launch:
    """The arguments of one kernel call, 0 where a pointer is to be filled in."""

    words: tuple[int, ...]
    tasks: int
    scratch_bytes: int
