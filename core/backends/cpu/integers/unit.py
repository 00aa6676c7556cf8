"""What multiplies small integers, with sums of 32 bits: words of four bytes or of two
halves.

Operands are packed and multiplied in blocks, as those of bfloat16 are (see
`treadle.backends.cpu.bfloat`). Where an instruction multiplies unsigned bytes with
signed ones and operands are both signed or both unsigned, 128 is added to B or taken
away while it is packed. So sums get 128 times the row of A too much, or too little:
that is what they start from, once the rows are packed.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from treadle.backends.cpu.bfloat.unit import (
    BLOCK,
    BLOCK_BYTES,
    LINE_BYTES,
    SIDE,
    SUMS_ROW,
    WORDS,
    Dtypes,
    Operand,
    Speed,
    skipped,
)
from treadle.backends.cpu.bfloat.vectors import row_tiles
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind
from treadle.backends.cpu.gemm.parts import minimum
from treadle.backends.cpu.integers.few_rows import FEW_ROWS, emit_few_rows
from treadle.backends.cpu.integers.operand import BYTES, HALVES, Integers
from treadle.backends.cpu.integers.vectors import Form
from treadle.dtypes import bool_

_STARTS = 4 * SIDE


class Vectors(Protocol):
    """How a tile is spelt.

    multiplies_bytes: whether words may be of four bytes. masked: whether rows of
    results may end anywhere, and lines of operands.
    """

    name: str
    masked: bool
    lanes: int
    rows: int
    multiplies_bytes: bool

    def define(self, b: Builder, c: Operand, form: Form) -> None:
        """Writes ``tile``."""

    def dot(self, b: Builder, total: str, unsigned: str, signed: str) -> str:
        """16 sums, and the products of four bytes each."""


class IntegerUnit:
    """Products of integers of two dtypes."""

    state = "i64"

    def __init__(self, vectors: Vectors, a: np.dtype, b: np.dtype) -> None:
        small = a.itemsize == b.itemsize == 1
        group = BYTES if small and vectors.multiplies_bytes else HALVES
        # Masks are of either kind.
        self.alike = group == BYTES and a.kind == b.kind and a != bool_
        signed = group != BYTES or a.kind == "i" or (a == bool_ and b.kind == "u")
        self.vectors, self.form = vectors, Form(group, signed, self.alike)
        self.name = f"{vectors.name}/{group}"
        self.speed = Speed(
            faster=group,
            a_bytes=1 << 19,
            k_piece=16 * WORDS * group,
            depth=WORDS * group,
            starts=_STARTS if self.alike else 0,
            few_rows=FEW_ROWS if group == BYTES else 0,
        )

    def operands(self, dtypes: Dtypes) -> tuple[Operand, Operand, Operand]:
        group, masked = self.form.group, self.vectors.masked
        return (
            Integers(dtypes.a, group, masked=masked),
            Integers(dtypes.b, group, self.alike, masked),
            Integers(dtypes.c, 1),
        )

    def configure(self, b: Builder) -> None:
        pass

    def release(self, b: Builder) -> None:
        pass

    def dot(self, b: Builder, total: str, a: str, by: str) -> str:
        """16 sums, and the products of four bytes each of A and B."""
        x, y = (by, a) if self.form.signed else (a, by)
        return self.vectors.dot(b, total, x, y)

    def packed(self, b: Builder, rows: str, k: str) -> None:
        if self.alike:
            b(f"call void @row_starts(ptr {rows}, i64 {k})")

    def few(self, b: Builder, a: Operand, by: Operand, c: Operand) -> dict[Kind, str]:
        return {}

    def more(self, b: Builder, a: Operand, by: Operand, c: Operand) -> dict[Kind, str]:
        if not self.speed.few_rows:
            return {}
        assert isinstance(by, Integers)
        emit_few_rows(b, self, a, by, c)
        return {Kind.FEW_ROWS: "few_rows"}

    def define(self, b: Builder, c: Operand) -> None:
        self.vectors.define(b, c, self.form)
        if self.alike:
            self._define_starts(b)
        with b.function("define internal void @finish(ptr %state)"):
            b("ret void")
        with b.function(f"define internal void @block({BLOCK})"):
            start = "1"
            if self.alike:
                at = b.op(f"getelementptr i8, ptr %a, i64 -{_STARTS}")
                start = b.op(f"ptrtoint ptr {at} to i64")
            wide = 2 * self.vectors.lanes
            with b.loop("0", "%columns", str(wide)) as column:
                left = minimum(b, b.op(f"sub i64 %columns, {column}"), str(wide))
                panel, sums, c_at = (
                    skipped(b, name, column, 4) for name in ("%b", "%sums", "%c")
                )
                self._tiles(b, (panel, sums, c_at), left, start)
            b("ret void")

    def _tiles(
        self, b: Builder, at: tuple[str, str, str], columns: str, start: str
    ) -> None:
        """Some columns of a block. at: those of B, sums and C.
        start: what `first` is, for the first row."""
        panel, sums, c = at
        lanes, most = self.vectors.lanes, self.vectors.rows
        direct = "true"
        if not self.vectors.masked:
            direct = b.op(f"icmp eq i64 {columns}, {2 * lanes}")
        ends = b.op(f"and i1 %last, {direct}")
        last = b.op(f"zext i1 {ends} to i64")
        with row_tiles(b, most) as (row, rows):
            wide = b.op(f"icmp sgt i64 {columns}, {lanes}")
            index = b.op(f"select i1 {wide}, i64 {most - 1}, i64 -1")
            index = b.op(f"add i64 {index}, {rows}")
            first = start
            if self.alike:
                first = b.op(f"add i64 {start}, {b.op(f'mul i64 {row}, 4')}")
            first = b.op(f"select i1 %first, i64 {first}, i64 0")
            b(
                f"call void @tile(i64 {index}, "
                f"ptr {skipped(b, '%a', row, LINE_BYTES)}, ptr {panel}, i64 %steps, "
                f"i64 %words, ptr {skipped(b, sums, row, SUMS_ROW)}, "
                f"ptr {skipped(b, c, row, '%c_row')}, i64 %c_row, i64 {columns}, "
                f"i64 {first}, i64 {last})"
            )
        if self.vectors.masked:
            return
        copied = b.op(f"and i1 %last, {b.op(f'xor i1 {direct}, true')}")
        with b.when(copied), b.loop("0", "%rows") as row:
            b.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
            b(
                f"call void @llvm.memcpy.p0.p0.i64(ptr {skipped(b, c, row, '%c_row')}, "
                f"ptr {skipped(b, sums, row, SUMS_ROW)}, "
                f"i64 {b.op(f'mul i64 {columns}, 4')}, i1 false)"
            )

    def _define_starts(self, b: Builder) -> None:
        """``row_starts``: what sums of packed rows start from."""
        words = f"<{WORDS} x i32>"
        factor = -128 if self.form.signed else 128
        b.declare(f"i32 @llvm.vector.reduce.add.v{WORDS}i32({words})")
        with b.function("define internal void @row_starts(ptr %rows, i64 %k)"):
            depth = self.speed.depth
            ones = f"<{', '.join([f'i32 {0x01010101}'] * WORDS)}>"
            blocks = b.op(f"udiv i64 {b.op(f'add i64 %k, {depth - 1}')}, {depth}")
            with b.loop("0", str(SIDE)) as i:
                line = skipped(b, "%rows", i, LINE_BYTES)
                zeros = [(words, "zeroinitializer")]
                with b.carrying("0", blocks, "1", zeros) as turn:
                    at = skipped(b, line, turn.index, BLOCK_BYTES)
                    found = b.op(f"load {words}, ptr {at}, align 64")
                    turn.next = [self.dot(b, turn.values[0], found, ones)]
                (total,) = turn.values
                reduce = f"@llvm.vector.reduce.add.v{WORDS}i32"
                total = b.op(f"call i32 {reduce}({words} {total})")
                start = b.op(f"mul i32 {total}, {factor}")
                at = b.op(f"getelementptr i8, ptr %rows, i64 -{_STARTS}")
                b(f"store i32 {start}, ptr {skipped(b, at, i, 4)}, align 4")
            b("ret void")
