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
from collections.abc import Callable
from typing import Protocol

from treadle.backends.cpu.bfloat.unit import (
    BLOCK,
    BLOCK_BYTES,
    SIDE,
    SUMS_ROW,
    Format,
    Speed,
    line_mask,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.pairs import (
    added_by_model,
    halves,
    rounded_by_instruction,
    rounded_by_model,
    splat_word,
)
from treadle.backends.cpu.gemm.parts import minimum
from treadle.backends.cpu.target import AVX512_BF16, AVX512_BF16_MODEL, llvm

ROWS = 14
"""Most rows of a tile: two vectors of sums for each leave registers for two of B."""

_LANES = 16
_ROW = SIDE * 2  # bytes of a row of A in a block
_UNROLLED = 4
_PAIRS = SIDE // 2

_TILE = (
    "i64 %index, ptr %a, ptr %b, i64 %steps, ptr %sums, ptr %c, i64 %c_row, "
    "i64 %columns, i64 %first, i64 %last"
)
"""As the parameters of ``block``. Index: rows - 1, and ROWS more if the columns are
more than one vector."""


class Vectors(Protocol):
    """How ``tile`` is spelt."""

    name: str

    def define(self, b: Builder, c: Format) -> None:
        """Writes ``tile``."""

    def rounded(self, b: Builder, floats: str) -> str:
        """See `Unit`."""


class VectorUnit:
    """AVX512-BF16, or the model of it."""

    state = "i64"
    speed = Speed(faster=2, a_bytes=1 << 19, k_piece=256)

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.name = vectors.name
        self.rounded: Callable[[Builder, str], str] = vectors.rounded

    def configure(self, b: Builder) -> None:
        pass

    def release(self, b: Builder) -> None:
        pass

    def define(self, b: Builder, c: Format) -> None:
        self.vectors.define(b, c)
        with b.function("define internal void @finish(ptr %state)"):
            b("ret void")
        with b.function(f"define internal void @block({BLOCK})"):
            rounded = b.op(f"add i64 %rows, {ROWS - 1}")
            count = b.op(f"udiv i64 {rounded}, {ROWS}")
            low = b.op(f"udiv i64 %rows, {count}")
            extra = b.op(f"urem i64 %rows, {count}")
            wide = b.op(f"icmp sgt i64 %columns, {_LANES}")
            start = b.op(f"select i1 {wide}, i64 {ROWS - 1}, i64 -1")
            start = b.op(f"add i64 {start}, {low}")
            flags = [b.op(f"zext i1 %{name} to i64") for name in ("first", "last")]
            with b.loop("0", count) as t:
                row = b.op(f"mul i64 {t}, {low}")
                row = b.op(f"add i64 {row}, {minimum(b, t, extra)}")
                high = b.op(f"zext i1 {b.op(f'icmp slt i64 {t}, {extra}')} to i64")
                index = b.op(f"add i64 {start}, {high}")
                a, sums, c_at = (
                    b.op(
                        f"getelementptr i8, ptr %{name}, "
                        f"i64 {b.op(f'mul i64 {row}, {step}')}"
                    )
                    for name, step in (("a", _ROW), ("sums", SUMS_ROW), ("c", "%c_row"))
                )
                b(
                    f"call void @tile(i64 {index}, ptr {a}, ptr %b, i64 %steps, "
                    f"ptr {sums}, ptr {c_at}, i64 %c_row, i64 %columns, "
                    f"i64 {flags[0]}, i64 {flags[1]})"
                )
            b("ret void")


_CHANGED = ("left", "a", "b", "steps")  # `left` is the index at first
_TEMPORARY = ("at",)
_READ = ("sums", "c", "c_row", "columns", "first", "last")
_POINTERS = ("a", "b", "sums", "c")


class Instructions:
    """x86-64 with AVX512-BF16, in assembly, as other micro-kernels are, for LLVM would
    not keep the sums in registers."""

    name = AVX512_BF16

    def rounded(self, b: Builder, floats: str) -> str:
        return rounded_by_instruction(b, floats)

    def define(self, b: Builder, c: Format) -> None:
        """All tiles as one function, which is compiled faster than thirty."""
        llvm().initialize_native_asmparser()
        kernels = [
            _Kernel(rows, vectors, c.short)
            for vectors in (1, 2)
            for rows in range(1, ROWS + 1)
        ]
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
        clobbered = [*(f"xmm{i}" for i in range(32)), "k1", "k2", "memory", "flags"]
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
        with b.function(f"define internal void @tile({_TILE}) noinline"):
            b.op(
                f"call {{ {kinds} }} asm sideeffect "
                f'"{text}", "{",".join(constraints)}"({values})'
            )
            b("ret void")


def _kind(name: str) -> str:
    return "ptr" if name in _POINTERS else "i64"


class _Kernel:
    """The instructions of one tile."""

    def __init__(self, rows: int, vectors: int, short: bool) -> None:
        self.rows, self.vectors, self.short = rows, vectors, short
        self.label = f".Ltile_{rows}x{vectors}"
        self.line = [f"%zmm{rows * vectors + j}" for j in range(vectors)]

    def _sums(self, row: int) -> list[str]:
        return [f"%zmm{row * self.vectors + j}" for j in range(self.vectors)]

    def lines(self) -> list[str]:
        sums = [
            (i, j, x) for i in range(self.rows) for j, x in enumerate(self._sums(i))
        ]
        place = "{}(%[sums])"
        return [
            f"{self.label}:",
            "testq %[first], %[first]",
            "jnz 1f",
            *(
                f"vmovups {place.format(i * SUMS_ROW + 64 * j)}, {x}"
                for i, j, x in sums
            ),
            "jmp 2f",
            "1:",
            *(f"vpxord {x}, {x}, {x}" for _, _, x in sums),
            "2:",
            *self._loop(),
            "testq %[last], %[last]",
            "jnz 5f",
            *(
                f"vmovups {x}, {place.format(i * SUMS_ROW + 64 * j)}"
                for i, j, x in sums
            ),
            "jmp 9f",
            "5:",
            *self._results(),
            "jmp 9f",
        ]

    def _loop(self) -> list[str]:
        """Over blocks, and over some pairs at a time in each."""
        return [
            "3:",
            f"movl $${_PAIRS // _UNROLLED}, %k[at]",
            *(f"prefetcht0 {BLOCK_BYTES + i * _ROW}(%[a])" for i in range(self.rows)),
            ".p2align 4",
            "4:",
            *(line for pair in range(_UNROLLED) for line in self._pair(pair)),
            f"addq $${4 * _UNROLLED}, %[a]",
            f"addq $${4 * SIDE * _UNROLLED}, %[b]",
            "decl %k[at]",
            "jnz 4b",
            f"addq $${BLOCK_BYTES - _ROW}, %[a]",
            "decq %[steps]",
            "jnz 3b",
        ]

    def _pair(self, pair: int) -> list[str]:
        text = [
            f"vmovups {pair * 4 * SIDE + 64 * j}(%[b]), {x}"
            for j, x in enumerate(self.line)
        ]
        for i in range(self.rows):
            place = f"{i * _ROW + 4 * pair}(%[a]){{1to16}}"
            for x, total in zip(self.line, self._sums(i), strict=True):
                text.append(f"vdpbf16ps {place}, {x}, {total}")
        return text

    def _results(self) -> list[str]:
        """Stores under masks; sums are rounded in their registers."""
        text = [
            "movq $$-1, %[at]",
            "bzhiq %[columns], %[at], %[at]",
            "kmovd %k[at], %k1",
            f"shrq $${_LANES}, %[at]",
            "kmovd %k[at], %k2",
        ]
        for i in range(self.rows):
            low, *high = self._sums(i)
            if not self.short:
                for j, x in enumerate((low, *high)):
                    text.append(f"vmovups {x}, {64 * j}(%[c]) {{%k{j + 1}}}")
            elif high:
                text.append(f"vcvtne2ps2bf16 {low}, {high[0]}, {low}")
                text.append(f"vmovdqu16 {low}, (%[c]) {{%k1}}")
            else:
                short = low.replace("zmm", "ymm")
                text.append(f"vcvtneps2bf16 {low}, {short}")
                text.append(f"vmovdqu16 {short}, (%[c]) {{%k1}}")
            text.append("addq %[c_row], %[c]")
        return text


class Model:
    """Plain IR, for tests."""

    name = AVX512_BF16_MODEL

    def rounded(self, b: Builder, floats: str) -> str:
        return rounded_by_model(b, floats)

    def define(self, b: Builder, c: Format) -> None:
        both = f"<{SIDE} x float>"
        with b.function(f"define internal void @tile({_TILE})"):
            last = b.op(f"urem i64 %index, {ROWS}")
            rows = b.op(f"add i64 {last}, 1")
            with b.loop("0", rows) as i:
                place = _bytes(b, "%sums", i, str(SUMS_ROW))
                line = _bytes(b, "%a", i, str(_ROW))
                with b.when(b.op("icmp ne i64 %first, 0")):
                    b(f"store {both} zeroinitializer, ptr {place}, align 64")
                vectors = [_bytes(b, place, str(j), "64") for j in (0, 1)]
                pairs = b.op(f"mul i64 %steps, {_PAIRS}")
                with b.loop("0", pairs) as pair:
                    block = b.op(f"udiv i64 {pair}, {_PAIRS}")
                    within = b.op(f"urem i64 {pair}, {_PAIRS}")
                    word = _bytes(b, line, block, str(BLOCK_BYTES))
                    factor = halves(b, splat_word(b, _bytes(b, word, within, "4")))
                    panel = _bytes(b, "%b", pair, str(4 * SIDE))
                    for j, vector in enumerate(vectors):
                        _model_step(b, vector, factor, _bytes(b, panel, str(j), "64"))
                with b.when(b.op("icmp ne i64 %last, 0")):
                    row = b.op(f"load {both}, ptr {place}, align 64")
                    c.write(
                        b, row, _bytes(b, "%c", i, "%c_row"), line_mask(b, "%columns")
                    )
            b("ret void")


def _model_step(b: Builder, sums: str, factor: list[str], panel: str) -> None:
    floats, words = f"<{_LANES} x float>", f"<{_LANES} x i32>"
    by = halves(b, b.op(f"load {words}, ptr {panel}, align 64"))
    total = b.op(f"load {floats}, ptr {sums}, align 64")
    total = added_by_model(b, total, factor, by)
    b(f"store {floats} {total}, ptr {sums}, align 64")


def _bytes(b: Builder, base: str, index: str, step: str) -> str:
    skipped = b.op(f"mul i64 {index}, {step}")
    return b.op(f"getelementptr i8, ptr {base}, i64 {skipped}")
