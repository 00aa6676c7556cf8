"""The blocks of outputs that tasks of depthwise convolutions own, and where a thread's
scratch has what they need (see `depthwise`)."""

from __future__ import annotations

from treadle.backends.cpu.conv.arguments import ConvWord, DepthwiseWord
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Word
from treadle.backends.cpu.gemm.parts import Args, minimum, offset, own_scratch
from treadle.backends.cpu.gemm.tile import Machine


class Scratch:
    """Where the parts of a thread's scratch are."""

    def __init__(self, b: Builder, args: Args) -> None:
        self.zeros = own_scratch(b, args)
        self.taps, self.outputs, self.table, self.met = (
            b.op(f"getelementptr i8, ptr {self.zeros}, i64 {args(word)}")
            for word in (
                DepthwiseWord.TAPS_OFFSET,
                DepthwiseWord.OUTPUTS_OFFSET,
                DepthwiseWord.TABLE_OFFSET,
                DepthwiseWord.MET_OFFSET,
            )
        )


class Block:
    """A block of outputs, whose table of pixels has been written.

    first: the number of its first output in the image, of `count`.
    """

    def __init__(
        self, b: Builder, machine: Machine, args: Args, scratch: Scratch, unit: str
    ) -> None:
        across, down = args(DepthwiseWord.BLOCKS_X), args(DepthwiseWord.BLOCKS_Y)
        rest = b.op(f"udiv i64 {unit}, {across}")
        self.image = b.op(f"udiv i64 {rest}, {down}")
        starts, counts = [], []
        for number, size, out in (
            (b.op(f"urem i64 {rest}, {down}"), DepthwiseWord.BLOCK_Y, ConvWord.OUT_Y),
            (b.op(f"urem i64 {unit}, {across}"), DepthwiseWord.BLOCK_X, ConvWord.OUT_X),
        ):
            start = b.op(f"mul i64 {number}, {args(size)}")
            left = b.op(f"sub i64 {args(out)}, {start}")
            starts.append(start)
            counts.append(minimum(b, left, args(size)))
        (y0, x0), (rows, columns) = starts, counts
        of = machine.operand
        pixels = offset(b, of, args(Word.A, "ptr"), self.image, args(Word.A + 1))
        b(
            f"call void @table(ptr %args, ptr {scratch.table}, ptr {scratch.zeros}, "
            f"ptr {pixels}, i64 {y0}, i64 {rows}, i64 {x0})"
        )
        line = b.op(f"mul i64 {y0}, {args(ConvWord.OUT_X)}")
        self.first = b.op(f"add i64 {line}, {x0}")
        self.count = b.op(f"mul i64 {rows}, {columns}")
        self.rows, self.columns, self.y0, self.x0 = rows, columns, y0, x0


def units(b: Builder, args: Args) -> str:
    blocks = b.op(
        f"mul i64 {args(DepthwiseWord.BLOCKS_Y)}, {args(DepthwiseWord.BLOCKS_X)}"
    )
    return b.op(f"mul i64 {args(ConvWord.IMAGES)}, {blocks}")


def below_bytes(b: Builder, machine: Machine, args: Args) -> str:
    """How many bytes lie between what an output meets and the one below it."""
    line = b.op(f"mul i64 {args(Word.A + 2)}, {machine.operand.itemsize}")
    return b.op(f"mul i64 {line}, {args(ConvWord.STRIDE_Y)}")
