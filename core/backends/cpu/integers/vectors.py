"""Vectors of words of small integers, and the instructions that multiply them.

==============  ==========================================  ==========================
name            four bytes in a word                        two halves in a word
==============  ==========================================  ==========================
AVX512-VNNI     VPDPBUSD: unsigned times signed             VPDPWSSD
AVX-512         (halves)                                    VPMADDWD, and an addition
AVX2            (halves)                                    VPMADDWD, and an addition
==============  ==========================================  ==========================

All wrap around as sums of 32 bits do. (VPMADDUBSW, for bytes without VNNI, does not: it
saturates sums of 16 bits.)
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.backends.cpu.bfloat.unit import (
    LINE_BYTES,
    SIDE,
    SUMS_ROW,
    WORDS,
    Operand,
    skipped,
)
from treadle.backends.cpu.bfloat.vectors import (
    TILE,
    Kernel,
    emit_assembly,
    words_of,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.integers.operand import BYTES
from treadle.backends.cpu.target import AVX2, AVX512_VNNI
from treadle.records import record


@record(frozen=True)
class Form:
    """What a tile multiplies.

    group: elements in a word. signed: whether A's bytes are; then B's aren't.
    starts: whether what sums start from lies at `first` of the rows.
    """

    group: int
    signed: bool = True
    starts: bool = False


class Instructions:
    """x86-64, in assembly, as other micro-kernels are.

    rows: most of a tile. lanes: of a vector, of which a tile has two.
    """

    masked: bool

    def __init__(self, name: str) -> None:
        self.name = name
        self.masked = name != AVX2
        self.lanes = 8 if name == AVX2 else 16
        self.rows = 6 if name == AVX2 else 14
        self.multiplies_bytes = name == AVX512_VNNI

    def define(self, b: Builder, c: Operand, form: Form) -> None:
        kernels = [
            _Kernel(self.name, form, rows, vectors, self.lanes)
            for vectors in (1, 2)
            for rows in range(1, self.rows + 1)
        ]
        emit_assembly(b, kernels, wide=self.masked)

    def dot(self, b: Builder, total: str, unsigned: str, signed: str) -> str:
        """16 sums, and the products of four bytes each."""
        words = f"<{WORDS} x i32>"
        return b.op(
            f'call {words} asm "vpdpbusd $2, $1, $0", "=v,v,v,0"'
            f"({words} {unsigned}, {words} {signed}, {words} {total})"
        )


class _Kernel(Kernel):
    """Of integers."""

    def __init__(
        self, name: str, form: Form, rows: int, vectors: int, lanes: int
    ) -> None:
        super().__init__(rows, vectors, lanes)
        self.name, self.form = name, form
        count = (rows + 1) * vectors
        self.element, self.product = self.named(count), self.named(count + 1)

    def begin(self) -> list[str]:
        if self.form.starts:
            return [
                f"vpbroadcastd {4 * i}(%[first]), {x}"
                for i, row in enumerate(self.sums)
                for x in row
            ]
        if self.name == AVX2:
            return [f"vpxor {x}, {x}, {x}" for row in self.sums for x in row]
        return super().begin()

    def multiply(self, place: str, totals: Sequence[str]) -> list[str]:
        pairs = list(zip(self.line, totals, strict=True))
        if self.name == AVX512_VNNI and self.form.signed:
            dot = "vpdpbusd" if self.form.group == BYTES else "vpdpwssd"
            return [f"{dot} {place}{{1to16}}, {x}, {total}" for x, total in pairs]
        text = [f"vpbroadcastd {place}, {self.element}"]
        for x, total in pairs:
            if self.name == AVX512_VNNI:
                text.append(f"vpdpbusd {x}, {self.element}, {total}")
                continue
            text.append(f"vpmaddwd {self.element}, {x}, {self.product}")
            text.append(f"vpaddd {self.product}, {total}, {total}")
        return text

    def results(self) -> list[str]:
        if self.name != AVX2:
            return self.stores()
        text = []
        for row in self.sums:
            text += [f"vmovups {x}, {32 * j}(%[c])" for j, x in enumerate(row)]
            text.append("addq %[c_row], %[c]")
        return text


class Model:
    """Plain IR, for tests."""

    name = "model"
    masked = True
    lanes, rows = 16, 14
    multiplies_bytes = True

    def define(self, b: Builder, c: Operand, form: Form) -> None:
        kind, words = f"<{SIDE} x i32>", f"{SIDE} x i32"
        with b.function(f"define internal void @tile({TILE})"):
            last_row = b.op(f"urem i64 %index, {self.rows}")
            begins = b.op("icmp ne i64 %first, 0")
            with b.loop("0", b.op(f"add i64 {last_row}, 1")) as i:
                place = skipped(b, "%sums", i, SUMS_ROW)
                with b.when(begins):
                    start = "0"
                    if form.starts:
                        at = skipped(b, b.op("inttoptr i64 %first to ptr"), i, 4)
                        start = b.op(f"load i32, ptr {at}, align 4")
                    value = _splat(b, start, words)
                    b(f"store {kind} {value}, ptr {place}, align 64")
                line = skipped(b, "%a", i, LINE_BYTES)
                with b.loop("0", words_of(b)) as word:
                    block = skipped(b, line, b.op(f"udiv i64 {word}, {WORDS}"), "2048")
                    address = skipped(b, block, b.op(f"urem i64 {word}, {WORDS}"), 4)
                    factor = b.op(f"load i32, ptr {address}, align 4")
                    panel = skipped(b, "%b", word, 4 * SIDE)
                    columns = b.op(f"load {kind}, ptr {panel}, align 64")
                    total = b.op(f"load {kind}, ptr {place}, align 64")
                    for part in range(form.group):
                        x = _part(b, _splat(b, factor, words), form, part, form.signed)
                        other = not form.signed or form.group != BYTES
                        y = _part(b, columns, form, part, other)
                        total = b.op(
                            f"add {kind} {total}, {b.op(f'mul {kind} {x}, {y}')}"
                        )
                    b(f"store {kind} {total}, ptr {place}, align 64")
                with b.when(b.op("icmp ne i64 %last, 0")):
                    row = b.op(f"load {kind}, ptr {place}, align 64")
                    c.write(b, row, skipped(b, "%c", i, "%c_row"), "%columns")
            b("ret void")

    def dot(self, b: Builder, total: str, unsigned: str, signed: str) -> str:
        kind = f"<{WORDS} x i32>"
        for part in range(BYTES):
            x = _part(b, unsigned, Form(BYTES), part, False, WORDS)
            y = _part(b, signed, Form(BYTES), part, True, WORDS)
            total = b.op(f"add {kind} {total}, {b.op(f'mul {kind} {x}, {y}')}")
        return total


def _splat(b: Builder, value: str, words: str) -> str:
    one = b.op(f"insertelement <{words}> poison, i32 {value}, i64 0")
    return b.op(
        f"shufflevector <{words}> {one}, <{words}> poison, <{words}> zeroinitializer"
    )


def _part(
    b: Builder, words: str, form: Form, part: int, signed: bool, lanes: int = SIDE
) -> str:
    """One of the elements in each word."""
    kind, bits = f"<{lanes} x i32>", 32 // form.group

    def by(count: int) -> str:
        return f"<{', '.join([f'i32 {count}'] * lanes)}>"

    high = b.op(f"shl {kind} {words}, {by(32 - bits * (part + 1))}")
    shift = "ashr" if signed else "lshr"
    return b.op(f"{shift} {kind} {high}, {by(32 - bits)}")
