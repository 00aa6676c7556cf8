"""Vectors of pairs: AVX512-BF16, whose VDPBF16PS adds two products to each of 16 sums.

A block of 32 rows is cut into tiles of up to 14 rows, whose sums are in registers while
all k of a piece are added. A pair of A, which lies in 64 bytes of its row, is read into
all lanes; 16 columns of B's pairs are a vector.

A step adds, as the manual says ("VDPBF16PS"), the second product of a pair and then the
first, each by a fused multiplication that rounds. (AMD's and Intel's give these bits.)
So results are those of sums in the order of k, but for pairs, which are turned around.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from treadle.backends.cpu.bfloat.few_rows import Adds
from treadle.backends.cpu.bfloat.streamed import emit_streamed
from treadle.backends.cpu.bfloat.turned import emit_turned
from treadle.backends.cpu.bfloat.unit import (
    BLOCK,
    BLOCK_BYTES,
    LINE_BYTES,
    SIDE,
    SUMS_ROW,
    WORDS,
    Dtypes,
    Halves,
    Operand,
    Speed,
    halves_of,
    skipped,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.pairs import (
    added_by_instructions,
    added_by_model,
    halves,
    rounded_by_instruction,
    rounded_by_model,
    splat_word,
)
from treadle.backends.cpu.gemm.arguments import Kind, Tile
from treadle.backends.cpu.gemm.pack import transposed
from treadle.backends.cpu.gemm.parts import minimum
from treadle.backends.cpu.gemm.square_x86 import shuffled_square
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.target import AVX512_BF16, AVX512_BF16_MODEL, llvm

ROWS = 14
"""Most rows of a tile: two vectors of sums for each leave registers for two of B."""

_LANES = 16
_ROW = LINE_BYTES
_UNROLLED = 4
_WORDS = Machine("i32", Tile(lanes=WORDS, rows=ROWS), "")

TILE = (
    "i64 %index, ptr %a, ptr %b, i64 %steps, i64 %words, ptr %sums, ptr %c, "
    "i64 %c_row, i64 %columns, i64 %first, i64 %last"
)
"""As the parameters of ``block``. Index: rows - 1, and as many as a tile may have more
if the columns are more than one vector. First: not 0 if sums begin here."""


class Vectors(Adds, Protocol):
    """How ``tile`` is spelt."""

    name: str

    def define(self, b: Builder, c: Operand) -> None:
        """Writes ``tile``."""

    def rounded(self, b: Builder, floats: str) -> str:
        """See `Unit`."""


class VectorUnit:
    """AVX512-BF16, or the model of it."""

    state = "i64"
    speed = Speed(faster=2, a_bytes=1 << 19, k_piece=256, k_block=512, turned_rows=16)

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.name = vectors.name
        self.rounded: Callable[[Builder, str], str] = vectors.rounded

    def configure(self, b: Builder) -> None:
        pass

    def release(self, b: Builder) -> None:
        pass

    def operands(self, dtypes: Dtypes) -> tuple[Operand, Operand, Operand]:
        return halves_of(dtypes, self)

    def more(self, b: Builder, a: Operand, by: Operand, c: Operand) -> dict[Kind, str]:
        return {}

    def few(self, b: Builder, a: Operand, by: Operand, c: Operand) -> dict[Kind, str]:
        assert isinstance(by, Halves)
        emit_turned(b, self.vectors, a, by, c)
        emit_streamed(b, self.vectors, a, by, c)
        return {Kind.TURNED: "turned", Kind.STREAMED: "streamed"}

    def packed(self, b: Builder, rows: str, k: str) -> None:
        pass

    def define(self, b: Builder, c: Operand) -> None:
        self.vectors.define(b, c)
        with b.function("define internal void @finish(ptr %state)"):
            b("ret void")
        with b.function(f"define internal void @block({BLOCK})"):
            first, last = (
                b.op(f"zext i1 %{name} to i64") for name in ("first", "last")
            )
            with row_tiles(b, ROWS) as (row, rows):
                wide = b.op(f"icmp sgt i64 %columns, {_LANES}")
                start = b.op(f"select i1 {wide}, i64 {ROWS - 1}, i64 -1")
                index = b.op(f"add i64 {start}, {rows}")
                a, sums, c_at = (
                    skipped(b, f"%{name}", row, step)
                    for name, step in (("a", _ROW), ("sums", SUMS_ROW), ("c", "%c_row"))
                )
                b(
                    f"call void @tile(i64 {index}, ptr {a}, ptr %b, i64 %steps, "
                    f"i64 %words, ptr {sums}, ptr {c_at}, i64 %c_row, i64 %columns, "
                    f"i64 {first}, i64 {last})"
                )
            b("ret void")


@contextmanager
def row_tiles(b: Builder, most: int) -> Iterator[tuple[str, str]]:
    """The loop over the row tiles of a block, about equally high: the first row of
    each, and how many it has."""
    count = b.op(f"udiv i64 {b.op(f'add i64 %rows, {most - 1}')}, {most}")
    low = b.op(f"udiv i64 %rows, {count}")
    extra = b.op(f"urem i64 %rows, {count}")
    with b.loop("0", count) as t:
        row = b.op(f"mul i64 {t}, {low}")
        row = b.op(f"add i64 {row}, {minimum(b, t, extra)}")
        high = b.op(f"zext i1 {b.op(f'icmp slt i64 {t}, {extra}')} to i64")
        yield row, b.op(f"add i64 {low}, {high}")


_CHANGED = ("left", "a", "b", "steps")  # `left` is the index at first
_TEMPORARY = ("at",)
_READ = ("words", "sums", "c", "c_row", "columns", "first", "last")
_POINTERS = ("a", "b", "sums", "c")


class Instructions:
    """x86-64 with AVX512-BF16, in assembly, as other micro-kernels are, for LLVM would
    not keep the sums in registers."""

    name = AVX512_BF16
    instruction = "vdpbf16ps"
    """Adds products to sums."""

    def kernel(self, rows: int, vectors: int, short: bool) -> Kernel:
        """A tile, whose results are halves if they are `short`."""
        return HalfKernel(rows, vectors, short)

    def rounded(self, b: Builder, floats: str) -> str:
        return rounded_by_instruction(b, floats)

    def added(
        self,
        b: Builder,
        sums: Sequence[Sequence[str]],
        lines: Sequence[str],
        steps: Sequence[Sequence[str]],
    ) -> list[list[str]]:
        return added_by_instructions(b, sums, lines, steps, self.instruction)

    def turned(self, b: Builder, rows: Sequence[str]) -> list[str]:
        return shuffled_square(b, rows)

    def define(self, b: Builder, c: Operand) -> None:
        short = c.dtype.itemsize == 2
        emit_assembly(
            b,
            [
                self.kernel(rows, vectors, short)
                for vectors in (1, 2)
                for rows in range(1, ROWS + 1)
            ],
        )


def emit_assembly(b: Builder, kernels: Sequence[Kernel], wide: bool = True) -> None:
    """Defines ``tile``: all tiles as one function, which is compiled faster than
    thirty.

    wide: whether there are the registers of AVX-512.
    """
    llvm().initialize_native_asmparser()
    text = "\\0A".join(
        [
            "leaq .Ltiles(%rip), %[at]",
            "movslq (%[at],%[left],4), %[left]",
            "addq %[left], %[at]",
            "jmpq *%[at]",
            *(line for kernel in kernels for line in kernel.lines()),
            ".p2align 2",
            ".Ltiles:",
            *(f".long {kernel.label} - .Ltiles" for kernel in kernels),
            "9:",
            "vzeroupper",
        ]
    )
    changed = len(_CHANGED)
    numbers = {name: i for i, name in enumerate((*_CHANGED, *_TEMPORARY))}
    outputs = len(numbers)
    # The inputs tied to the changed operands have numbers of their own.
    numbers |= {name: outputs + changed + i for i, name in enumerate(_READ)}
    text = re.sub(r"%\[(\w+)\]", lambda match: f"${numbers[match[1]]}", text)
    text = re.sub(r"%k\[(\w+)\]", lambda x: f"${{{numbers[x[1]]}:k}}", text)
    clobbered = [*(f"xmm{i}" for i in range(32 if wide else 16)), "memory", "flags"]
    clobbered += ["k1", "k2"] if wide else []
    constraints = [
        *(["=&r"] * outputs),
        *(str(i) for i in range(changed)),
        *(["r"] * len(_READ)),
        *(f"~{{{name}}}" for name in clobbered),
    ]
    kinds = ", ".join(_kind(name) for name in (*_CHANGED, *_TEMPORARY))
    values = ", ".join(
        f"{_kind(name)} %{'index' if name == 'left' else name}"
        for name in (*_CHANGED, *_READ)
    )
    with b.function(f"define internal void @tile({TILE}) noinline"):
        b.op(
            f"call {{ {kinds} }} asm sideeffect "
            f'"{text}", "{",".join(constraints)}"({values})'
        )
        b("ret void")


def _kind(name: str) -> str:
    return "ptr" if name in _POINTERS else "i64"


class Kernel:
    """The instructions of one tile: all but those that multiply and store.

    rows, vectors: of sums. lanes: of a vector.
    """

    def __init__(self, rows: int, vectors: int, lanes: int = _LANES) -> None:
        self.rows, self.vectors, self.lanes = rows, vectors, lanes
        self.register = "zmm" if lanes == _LANES else "ymm"
        self.label = f".Ltile_{rows}x{vectors}"
        self.line = [self.named(rows * vectors + j) for j in range(vectors)]
        self.sums = [
            [self.named(i * vectors + j) for j in range(vectors)] for i in range(rows)
        ]

    def named(self, number: int) -> str:
        """A vector register."""
        return f"%{self.register}{number}"

    def begin(self) -> list[str]:
        """What sums are at first."""
        return [f"vpxord {x}, {x}, {x}" for row in self.sums for x in row]

    def multiply(self, place: str, totals: Sequence[str]) -> list[str]:
        """Adds the word of A at a place, times each vector of B."""
        raise NotImplementedError

    def results(self) -> list[str]:
        """Stores sums as results."""
        raise NotImplementedError

    def _stored(self) -> list[tuple[str, str]]:
        """Registers of sums, and where they are kept."""
        return [
            (x, f"{i * SUMS_ROW + 4 * self.lanes * j}(%[sums])")
            for i, row in enumerate(self.sums)
            for j, x in enumerate(row)
        ]

    def lines(self) -> list[str]:
        return [
            f"{self.label}:",
            "testq %[first], %[first]",
            "jnz 1f",
            *(f"vmovups {place}, {x}" for x, place in self._stored()),
            "jmp 2f",
            "1:",
            *self.begin(),
            "2:",
            *self._ahead(),
            *self._loop(),
            "testq %[last], %[last]",
            "jnz 5f",
            *(f"vmovups {x}, {place}" for x, place in self._stored()),
            "jmp 9f",
            "5:",
            *self.results(),
            "jmp 9f",
        ]

    def _ahead(self) -> list[str]:
        """Rows of results lie pages apart: they had better be on their way to the cache
        while sums are made."""
        width = 4 * self.lanes * self.vectors
        text = ["testq %[last], %[last]", "jz 3f", "movq %[c], %[at]"]
        for _ in range(self.rows):
            text += [f"prefetchw {i}(%[at])" for i in range(0, width, LINE_BYTES)]
            text.append("addq %[c_row], %[at]")
        return text

    def _loop(self) -> list[str]:
        """Over blocks, and over some words at a time in each."""
        return [
            "3:",
            *(f"prefetcht0 {BLOCK_BYTES + i * _ROW}(%[a])" for i in range(self.rows)),
            f"movl $${WORDS // _UNROLLED}, %k[at]",
            "cmpq $$1, %[steps]",
            "jne 4f",
            "movq %[words], %[at]",
            f"shrq $${_UNROLLED.bit_length() - 1}, %[at]",
            "jz 7f",
            ".p2align 4",
            "4:",
            *self._words(_UNROLLED),
            "jnz 4b",
            "cmpq $$1, %[steps]",
            "je 7f",
            f"addq $${BLOCK_BYTES - _ROW}, %[a]",
            "decq %[steps]",
            "jmp 3b",
            "7:",
            "movq %[words], %[at]",
            f"andq $${_UNROLLED - 1}, %[at]",
            "jz 8f",
            "6:",
            *self._words(1),
            "jnz 6b",
            "8:",
        ]

    def _words(self, count: int) -> list[str]:
        """So many, and one turn of a loop over them less."""
        return [
            *(line for word in range(count) for line in self._word(word)),
            f"addq $${4 * count}, %[a]",
            f"addq $${4 * SIDE * count}, %[b]",
            "decl %k[at]",
        ]

    def _word(self, word: int) -> list[str]:
        text = [
            f"vmovups {word * 4 * SIDE + 4 * self.lanes * j}(%[b]), {x}"
            for j, x in enumerate(self.line)
        ]
        for i, totals in enumerate(self.sums):
            text += self.multiply(f"{i * _ROW + 4 * word}(%[a])", totals)
        return text

    def masks(self) -> list[str]:
        """Masks of columns, for vectors of AVX-512."""
        return [
            "movq $$-1, %[at]",
            "bzhiq %[columns], %[at], %[at]",
            "kmovd %k[at], %k1",
            f"shrq $${_LANES}, %[at]",
            "kmovd %k[at], %k2",
        ]

    def stores(self) -> list[str]:
        """Stores sums under masks."""
        whole = [f"cmpq $${_LANES * self.vectors}, %[columns]", "jl 6f"]
        masked = ["jmp 9f", "6:", *self.masks()]
        for row in self.sums:
            for j, x in enumerate(row):
                store = f"vmovups {x}, {64 * j}(%[c])"
                whole.append(store)
                masked.append(f"{store} {{%k{j + 1}}}")
            for text in (whole, masked):
                text.append("addq %[c_row], %[c]")
        return whole + masked


class HalfKernel(Kernel):
    """Of bfloat16.

    short: whether sums are rounded to halves, in their registers.
    """

    instruction = Instructions.instruction

    def __init__(self, rows: int, vectors: int, short: bool) -> None:
        super().__init__(rows, vectors)
        self.short = short

    def multiply(self, place: str, totals: Sequence[str]) -> list[str]:
        return [
            f"{self.instruction} {place}{{1to16}}, {x}, {total}"
            for x, total in zip(self.line, totals, strict=True)
        ]

    def results(self) -> list[str]:
        if not self.short:
            return self.stores()
        text = self.masks()
        for row in self.sums:
            text += [*self.rounded(row), "addq %[c_row], %[c]"]
        return text

    def rounded(self, row: Sequence[str]) -> list[str]:
        """Rounds and stores a row of sums."""
        low, *high = row
        if high:
            return [
                f"vcvtne2ps2bf16 {low}, {high[0]}, {low}",
                f"vmovdqu16 {low}, (%[c]) {{%k1}}",
            ]
        short = low.replace("zmm", "ymm")
        return [
            f"vcvtneps2bf16 {low}, {short}",
            f"vmovdqu16 {short}, (%[c]) {{%k1}}",
        ]


class Model:
    """Plain IR, for tests."""

    name = AVX512_BF16_MODEL

    def rounded(self, b: Builder, floats: str) -> str:
        return rounded_by_model(b, floats)

    def added(
        self,
        b: Builder,
        sums: Sequence[Sequence[str]],
        lines: Sequence[str],
        steps: Sequence[Sequence[str]],
    ) -> list[list[str]]:
        found = [list(row) for row in sums]
        for k, vectors in enumerate(steps):
            for line, row in zip(lines, found, strict=True):
                place = b.op(f"getelementptr i8, ptr {line}, i64 {4 * k}")
                word = splat_word(b, place)
                for j, x in enumerate(vectors):
                    row[j] = self.product_added(b, row[j], word, x)
        return found

    def turned(self, b: Builder, rows: Sequence[str]) -> list[str]:
        return transposed(b, _WORDS, list(rows))

    def product_added(self, b: Builder, total: str, word: str, by: str) -> str:
        """Sixteen sums, and the products of two vectors of words."""
        return added_by_model(b, total, halves(b, word), halves(b, by))

    def _step(self, b: Builder, sums: str, factor: str, panel: str) -> None:
        floats, words = f"<{_LANES} x float>", f"<{_LANES} x i32>"
        by = b.op(f"load {words}, ptr {panel}, align 64")
        total = b.op(f"load {floats}, ptr {sums}, align 64")
        total = self.product_added(b, total, factor, by)
        b(f"store {floats} {total}, ptr {sums}, align 64")

    def define(self, b: Builder, c: Operand) -> None:
        both = f"<{SIDE} x float>"
        with b.function(f"define internal void @tile({TILE})"):
            last = b.op(f"urem i64 %index, {ROWS}")
            rows = b.op(f"add i64 {last}, 1")
            with b.loop("0", rows) as i:
                place = skipped(b, "%sums", i, str(SUMS_ROW))
                line = skipped(b, "%a", i, str(_ROW))
                with b.when(b.op("icmp ne i64 %first, 0")):
                    b(f"store {both} zeroinitializer, ptr {place}, align 64")
                vectors = [skipped(b, place, str(j), "64") for j in (0, 1)]
                pairs = words_of(b)
                with b.loop("0", pairs) as pair:
                    block = b.op(f"udiv i64 {pair}, {WORDS}")
                    within = b.op(f"urem i64 {pair}, {WORDS}")
                    word = skipped(b, line, block, str(BLOCK_BYTES))
                    factor = splat_word(b, skipped(b, word, within, "4"))
                    panel = skipped(b, "%b", pair, str(4 * SIDE))
                    for j, vector in enumerate(vectors):
                        self._step(b, vector, factor, skipped(b, panel, str(j), "64"))
                with b.when(b.op("icmp ne i64 %last, 0")):
                    row = b.op(f"load {both}, ptr {place}, align 64")
                    c.write(b, row, skipped(b, "%c", i, "%c_row"), "%columns")
            b("ret void")


def words_of(b: Builder) -> str:
    """How many words along k a tile multiplies."""
    missing = b.op(f"sub i64 {WORDS}, %words")
    return b.op(f"sub i64 {b.op(f'mul i64 %steps, {WORDS}')}, {missing}")
