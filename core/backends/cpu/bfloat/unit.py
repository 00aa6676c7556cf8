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

    def read(self, b: Builder, address: str, mask: str | None) -> str:
        """32 elements as bfloat16. Those that a mask leaves out are zero."""
        name, align = f"@llvm.masked.load.{self._suffix}.p0", self.dtype.itemsize
        if mask is None:
            value = b.op(f"load {self.vector}, ptr {address}, align {align}")
            return value if self.short else self.unit.rounded(b, value)
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
