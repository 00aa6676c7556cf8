"""What the kernel's functions find in its arguments.

Those for small matrices are called for some of a batch: the first one, and how many
follow it.
"""

from __future__ import annotations

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.fourier.lanes import at, scaled
from treadle.backends.cpu.gemm.parts import Args
from treadle.backends.cpu.lapack.lanes import Matrix, Slab
from treadle.backends.cpu.lapack.schedule import TABLE, Word
from treadle.backends.cpu.lapack.small import SmallWord

PARAMETERS = "(ptr %args, i64 %index, i64 %last, ptr noalias %room)"


def item(b: Builder, base: str, index: str) -> str:
    """The address of a word."""
    return b.op(f"getelementptr i64, ptr {base}, i64 {index}")


def word(b: Builder, base: str, index: str) -> str:
    return b.op(f"load i64, ptr {item(b, base, index)}")


def matrix(b: Builder, number: int) -> Matrix:
    """An operand or result; the first has number 1."""
    args = Args(b)
    base, step = args(TABLE + 3 * number, "ptr"), args(TABLE + 3 * number + 1)
    return Matrix(at(b, base, scaled(b, "%index", step)), step)


def size(b: Builder, number: int) -> str:
    return Args(b)(Word.SMALL + SmallWord.SIZES + number)


def behind(b: Builder, of: Slab, count: str, slab: str) -> str:
    """Where a slab of so many numbers ends."""
    vectors = b.op(f"add i64 {scaled(b, count, of.parts)}, {of.count - 1}")
    return at(b, slab, scaled(b, b.op(f"and i64 {vectors}, {-of.count}"), of.vector))
