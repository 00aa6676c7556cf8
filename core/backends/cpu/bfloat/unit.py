"""What multiplies bfloat16: tile registers, or vectors of pairs.

A product packs its operands in blocks (`treadle.backends.cpu.bfloat.pack`), which a
*unit* multiplies. Each is there twice: as a CPU's instructions, and as a model of them
in plain IR that gives the same bits on any machine. So all that is around the
instructions runs, and is tested, where there are none.

To all of them subnormal numbers are zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.half import packed
from treadle.backends.cpu.emit.half import rounded as nearest
from treadle.backends.cpu.emit.lanes import Value
from treadle.backends.cpu.gemm.parts import maximum, minimum
from treadle.dtypes import bfloat16

SIDE = 32
"""Rows and columns of a block, and elements of k in one."""

BLOCK_BYTES = SIDE * SIDE * 2
SUMS_BYTES = SIDE * SIDE * 4
SUMS_ROW = SIDE * 4

_WORDS = f"<{SIDE} x i16>"
_MASK = f"<{SIDE} x i1>"

BLOCK = (
    "ptr %a, ptr %b, ptr %sums, i64 %steps, i1 %first, i1 %last, ptr %next, "
    "i64 %ahead, ptr %c, i64 %c_row, i64 %rows, i64 %columns, ptr %state"
)
"""Parameters of ``block``: packed blocks of A and B, one behind the other along k, and
how many; where sums are while k is not done with; whether that begins and ends here;
what will be read next of B, and how many lines of it a step may prefetch; where the
first result goes, bytes between rows of results, and how many rows and columns of them
there are. What a unit keeps from one block to the next is in `state`, at first 0."""


@dataclass(frozen=True)
class Speed:
    """What schedules know of a unit.

    faster: than vectors of float32, by so much.
    a_bytes: of packed A, to stay in the L2 cache.
    k_piece: elements of k in a piece of a panel of B, to stay in the L1 cache.
    """

    faster: int
    a_bytes: int
    k_piece: int


class Unit(Protocol):
    """How blocks are multiplied.

    name: tells kernels apart.
    state: the type of what it keeps between blocks.
    """

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def speed(self) -> Speed: ...

    def define(self, b: Builder, c: Format) -> None:
        """Writes ``block`` (see `BLOCK`), and ``finish(ptr state)``, after which all
        results of blocks so far are stored, as `c` says."""

    def configure(self, b: Builder) -> None:
        """Before the first block of a task."""

    def release(self, b: Builder) -> None:
        """After the last block of a task."""

    def rounded(self, b: Builder, floats: str) -> str:
        """32 floats as the bits of bfloat16, ties to even."""


def line_mask(b: Builder, count: str, first: str = "0") -> str:
    """Which of 32 elements from `first` on are below the i64 `count`."""
    left = b.op(f"sub i64 {count}, {first}")
    left = maximum(b, minimum(b, left, str(SIDE)), "0")
    limit = b.op(f"trunc i64 {left} to i16")
    one = b.op(f"insertelement {_WORDS} poison, i16 {limit}, i64 0")
    zeros = f"<{SIDE} x i32> zeroinitializer"
    limits = b.op(f"shufflevector {_WORDS} {one}, {_WORDS} poison, {zeros}")
    numbers = ", ".join(f"i16 {i}" for i in range(SIDE))
    return b.op(f"icmp slt {_WORDS} <{numbers}>, {limits}")


@dataclass(frozen=True)
class Format:
    """How elements lie in memory: as bfloat16, or as floats that are rounded."""

    dtype: np.dtype
    unit: Unit

    @property
    def short(self) -> bool:
        return self.dtype == bfloat16

    @property
    def scalar(self) -> str:
        return "i16" if self.short else "float"

    @property
    def vector(self) -> str:
        return f"<{SIDE} x {self.scalar}>"

    @property
    def _suffix(self) -> str:
        return "v32i16" if self.short else "v32f32"

    def read(self, b: Builder, address: str, mask: str) -> str:
        """32 elements as bfloat16. Those that the mask leaves out are zero."""
        name, align = f"@llvm.masked.load.{self._suffix}.p0", self.dtype.itemsize
        b.declare(f"{self.vector} {name}(ptr, {_MASK}, {self.vector})")
        value = b.op(
            f"call {self.vector} {name}(ptr align {align} {address}, {_MASK} {mask}, "
            f"{self.vector} zeroinitializer)"
        )
        return value if self.short else self.unit.rounded(b, value)

    def write(self, b: Builder, floats: str, address: str, mask: str) -> None:
        """The first of 32 floats, as many as the mask has."""
        value = self.unit.rounded(b, floats) if self.short else floats
        name, align = f"@llvm.masked.store.{self._suffix}.p0", self.dtype.itemsize
        b.declare(f"void {name}({self.vector}, ptr, {_MASK})")
        b(
            f"call void {name}({self.vector} {value}, ptr align {align} {address}, "
            f"{_MASK} {mask})"
        )

    def at(self, b: Builder, base: str, index: str, step: str = "1") -> str:
        skipped = index if step == "1" else b.op(f"mul i64 {index}, {step}")
        return b.op(f"getelementptr {self.scalar}, ptr {base}, i64 {skipped}")


def rounded_by_instruction(b: Builder, floats: str) -> str:
    """By AVX512-BF16."""
    short = b.op(f"fptrunc <32 x float> {floats} to <32 x bfloat>")
    return b.op(f"bitcast <32 x bfloat> {short} to <32 x i16>")


def rounded_by_model(b: Builder, floats: str) -> str:
    x = Value(b, flushed(b, floats, 32), "float", 32)
    return packed(nearest(x, bfloat16), bfloat16).text


def halves(b: Builder, pairs: str) -> list[str]:
    """The first and the second bfloat16 of 16 pairs, as floats."""
    floats, words = "<16 x float>", "<16 x i32>"
    sixteen = ", ".join(["i32 16"] * 16)
    upper = ", ".join(["i32 -65536"] * 16)
    bits = [
        b.op(f"shl {words} {pairs}, <{sixteen}>"),
        b.op(f"and {words} {pairs}, <{upper}>"),
    ]
    return [flushed(b, b.op(f"bitcast {words} {word} to {floats}")) for word in bits]


def flushed(b: Builder, x: str, lanes: int = 16) -> str:
    """Zeros, of the same sign, in the place of subnormal numbers."""
    floats, suffix = f"<{lanes} x float>", f"v{lanes}f32"
    b.declare(f"{floats} @llvm.fabs.{suffix}({floats})")
    b.declare(f"{floats} @llvm.copysign.{suffix}({floats}, {floats})")
    size = b.op(f"call {floats} @llvm.fabs.{suffix}({floats} {x})")
    smallest = ", ".join(["float 0x3810000000000000"] * lanes)
    tiny = b.op(f"fcmp olt {floats} {size}, <{smallest}>")
    words = f"{floats} zeroinitializer, {floats} {x}"
    zero = b.op(f"call {floats} @llvm.copysign.{suffix}({words})")
    return b.op(f"select <{lanes} x i1> {tiny}, {floats} {zero}, {floats} {x}")


def splat_word(b: Builder, address: str) -> str:
    """A pair in memory, 16 times."""
    words = "<16 x i32>"
    pair = b.op(f"load i32, ptr {address}, align 4")
    first = b.op(f"insertelement {words} poison, i32 {pair}, i64 0")
    return b.op(
        f"shufflevector {words} {first}, {words} poison, {words} zeroinitializer"
    )
