"""Tile registers: the few words that kernels for AMX are written in.

There are eight registers of 16 rows of 64 bytes. `Instructions` spells the words as
AMX instructions, `Model` as plain IR that gives the same bits on any machine: so all
that is around the instructions runs, and is tested, where there are none.

A product adds to tile C, as the manual says ("TDPBF16PS"), for every row m and column
n: the sum of A's even elements times B's, plus that of the odd ones, each summed from
0 by fused multiplications in the order of k; subnormal numbers are zeros throughout.
"""

from __future__ import annotations

from typing import Protocol

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.pairs import (
    flushed,
    halves,
    rounded_by_instruction,
    rounded_by_model,
    splat_word,
)
from treadle.backends.cpu.target import AMX, AMX_MODEL

ROWS, ROW_BYTES = 16, 64
COUNT = 8
"""Tile registers."""

_BYTES = ROWS * ROW_BYTES
_FLOATS, _WORDS = "<16 x float>", "<16 x i32>"


class Tiles(Protocol):
    """How the words are spelt. Tiles are given by number.

    name: tells kernels apart that are spelt differently.
    """

    name: str

    def define(self, b: Builder) -> None:
        """Writes what the other words need, once for a module."""

    def enter(self, b: Builder) -> None:
        """At the start of a function that works on tiles. Only `configure` and
        `release` outlive a function."""

    def configure(self, b: Builder) -> None:
        """Before the first use, once a task: it takes long, and is of one thread."""

    def release(self, b: Builder) -> None:
        """After the last use: the kernel saves tiles in use with each switch."""

    def zero(self, b: Builder, tile: int) -> None: ...

    def load(self, b: Builder, tile: int, address: str, step: str) -> None:
        """Reads rows that are `step` bytes apart."""

    def store(self, b: Builder, tile: int, address: str, step: str) -> None: ...

    def multiply(self, b: Builder, c: int, a: int, by: int) -> None:
        """c += a * by, of bfloat16: `by` holds pairs of rows, element by element."""

    def rounded(self, b: Builder, floats: str) -> str:
        """32 floats as the bits of bfloat16, ties to even. Subnormal ones are zeros."""


class Instructions:
    """x86-64 with AMX-BF16."""

    name = AMX

    def define(self, b: Builder) -> None:
        palette, rows_at, bytes_at = 1, 48, 16
        config = [0] * 64
        config[0] = palette
        for tile in range(COUNT):
            config[rows_at + tile] = ROWS
            config[bytes_at + 2 * tile] = ROW_BYTES
        values = ", ".join(f"i8 {value}" for value in config)
        b.lines.append(f"@tile_shapes = internal constant [64 x i8] [{values}]")
        for signature in (
            *("ldtilecfg(ptr)", "tilerelease()", "tilezero(i8)"),
            *("tileloadd64(i8, ptr, i64)", "tilestored64(i8, ptr, i64)"),
            "tdpbf16ps(i8, i8, i8)",
        ):
            b.declare(f"void @llvm.x86.{signature}")

    def enter(self, b: Builder) -> None:
        pass

    def configure(self, b: Builder) -> None:
        b("call void @llvm.x86.ldtilecfg(ptr @tile_shapes)")

    def release(self, b: Builder) -> None:
        b("call void @llvm.x86.tilerelease()")

    def zero(self, b: Builder, tile: int) -> None:
        b(f"call void @llvm.x86.tilezero(i8 {tile})")

    def load(self, b: Builder, tile: int, address: str, step: str) -> None:
        b(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {address}, i64 {step})")

    def store(self, b: Builder, tile: int, address: str, step: str) -> None:
        b(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {address}, i64 {step})")

    def multiply(self, b: Builder, c: int, a: int, by: int) -> None:
        b(f"call void @llvm.x86.tdpbf16ps(i8 {c}, i8 {a}, i8 {by})")

    def rounded(self, b: Builder, floats: str) -> str:
        return rounded_by_instruction(b, floats)


class Model:
    """Memory in the place of registers, for tests."""

    name = AMX_MODEL

    def define(self, b: Builder) -> None:
        b.declare(f"{_FLOATS} @llvm.fma.v16f32({_FLOATS}, {_FLOATS}, {_FLOATS})")
        parameters = "ptr %to, i64 %to_step, ptr %from, i64 %from_step"
        with b.function(f"define internal void @tile_copy({parameters})"):
            with b.loop("0", str(ROWS)) as i:
                source = _row(b, "%from", i, "%from_step")
                row = b.op(f"load {_FLOATS}, ptr {source}, align 1")
                target = _row(b, "%to", i, "%to_step")
                b(f"store {_FLOATS} {row}, ptr {target}, align 1")
            b("ret void")
        with b.function("define internal void @tile_multiply(ptr %c, ptr %a, ptr %b)"):
            with b.loop("0", str(ROWS)) as i:
                _model_row(b, _row(b, "%c", i), _row(b, "%a", i))
            b("ret void")

    def enter(self, b: Builder) -> None:
        b(f"%tiles = alloca [{COUNT * _BYTES} x i8], align 64")

    def configure(self, b: Builder) -> None:
        pass

    def release(self, b: Builder) -> None:
        pass

    def zero(self, b: Builder, tile: int) -> None:
        kind = f"[{_BYTES} x i8]"
        b(f"store {kind} zeroinitializer, ptr {self._at(b, tile)}, align 64")

    def load(self, b: Builder, tile: int, address: str, step: str) -> None:
        self._copy(b, self._at(b, tile), str(ROW_BYTES), address, step)

    def store(self, b: Builder, tile: int, address: str, step: str) -> None:
        self._copy(b, address, step, self._at(b, tile), str(ROW_BYTES))

    def multiply(self, b: Builder, c: int, a: int, by: int) -> None:
        operands = ", ".join(f"ptr {self._at(b, tile)}" for tile in (c, a, by))
        b(f"call void @tile_multiply({operands})")

    def rounded(self, b: Builder, floats: str) -> str:
        return rounded_by_model(b, floats)

    def _copy(
        self, b: Builder, to: str, to_step: str, source: str, source_step: str
    ) -> None:
        values = f"ptr {to}, i64 {to_step}, ptr {source}, i64 {source_step}"
        b(f"call void @tile_copy({values})")

    def _at(self, b: Builder, tile: int) -> str:
        return b.op(f"getelementptr i8, ptr %tiles, i64 {tile * _BYTES}")


def _row(b: Builder, base: str, index: str, step: str = str(ROW_BYTES)) -> str:
    skipped = b.op(f"mul i64 {index}, {step}")
    return b.op(f"getelementptr i8, ptr {base}, i64 {skipped}")


def _model_row(b: Builder, c: str, a: str) -> None:
    """A row of C gains a row of A times all of B."""
    nothing = [(_FLOATS, "zeroinitializer")] * 2
    with b.carrying("0", str(ROWS), "1", nothing) as turn:
        address = b.op(f"getelementptr i32, ptr {a}, i64 {turn.index}")
        factor = splat_word(b, address)
        line = b.op(f"load {_WORDS}, ptr {_row(b, '%b', turn.index)}, align 64")
        terms = zip(halves(b, factor), halves(b, line), turn.values, strict=True)
        for x, y, total in terms:
            words = f"{_FLOATS} {x}, {_FLOATS} {y}, {_FLOATS} {total}"
            new = b.op(f"call {_FLOATS} @llvm.fma.v16f32({words})")
            turn.next.append(flushed(b, new))
    even, odd = turn.values
    total = flushed(b, b.op(f"fadd {_FLOATS} {even}, {odd}"))
    old = flushed(b, b.op(f"load {_FLOATS}, ptr {c}, align 64"))
    new = flushed(b, b.op(f"fadd {_FLOATS} {old}, {total}"))
    b(f"store {_FLOATS} {new}, ptr {c}, align 64")
