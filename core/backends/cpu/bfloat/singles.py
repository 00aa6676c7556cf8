"""Vectors of floats, for products of float16, and of floats beside integers of a byte:
each element is a word of its own.

Products of two of float16 are floats without rounding, and sums of them are rounded as
those of float32: in the order of k, each product is added to the sum by one fused
multiplication. What kernels gain over products of float32 is that operands are read as
they are, half as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from treadle.backends.cpu.bfloat.bytes import SingleBytes
from treadle.backends.cpu.bfloat.few_rows import FLOATS, WORDS
from treadle.backends.cpu.bfloat.unit import (
    BYTES,
    SIDE,
    Dtypes,
    Operand,
    Speed,
    line_mask,
)
from treadle.backends.cpu.bfloat.vectors import (
    HalfKernel,
    Instructions,
    Kernel,
    Model,
    Vectors,
    VectorUnit,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind
from treadle.dtypes import float16
from treadle.records import record


class SingleUnit(VectorUnit):
    """AVX-512, or the model of it."""

    speed = Speed(
        faster=1, a_bytes=1 << 19, k_piece=128, depth=16, k_block=256, turned_rows=32
    )

    def operands(self, dtypes: Dtypes) -> tuple[Operand, Operand, Operand]:
        a, b = (
            SingleBytes(dtype) if dtype in BYTES else Singles(dtype)
            for dtype in dtypes[:2]
        )
        return a, b, Singles(dtypes.c)


class FloatUnit(SingleUnit):
    """The same for floats beside integers of a byte: nothing is rounded.

    few: whether B is of these, and read where it lies by few rows.
    """

    def __init__(self, vectors: Vectors, few: bool = True) -> None:
        super().__init__(vectors)
        self.name, self.reads = f"{vectors.name}-floats", few
        if not few:
            self.speed = replace(self.speed, turned_rows=0)

    def operands(self, dtypes: Dtypes) -> tuple[Operand, Operand, Operand]:
        a, b = (
            SingleBytes(dtype) if dtype in BYTES else Floats(dtype)
            for dtype in dtypes[:2]
        )
        return a, b, Floats(dtypes.c)

    def few(self, b: Builder, a: Operand, by: Operand, c: Operand) -> dict[Kind, str]:
        return super().few(b, a, by, c) if self.reads else {}


@record(frozen=True)
class Singles:
    """How elements lie in memory: as float16, or as floats that are rounded to it. Both
    are packed as floats."""

    dtype: np.dtype
    group = 1
    depth = 16
    along = SIDE
    as_packed = False

    @property
    def short(self) -> bool:
        return self.dtype == float16

    @property
    def scalar(self) -> str:
        return "half" if self.short else "float"

    @property
    def _moved(self) -> str:
        """As what elements are moved: LLVM moves halves one by one where they can't be
        added."""
        return "i16" if self.short else "float"

    @property
    def name(self) -> str:
        return f"{self.scalar}s"

    def vector(self, lanes: int) -> str:
        return f"<{lanes} x float>"

    def at(self, b: Builder, base: str, index: str, step: str = "1") -> str:
        place = index if step == "1" else b.op(f"mul i64 {index}, {step}")
        return b.op(f"getelementptr {self.scalar}, ptr {base}, i64 {place}")

    def words(self, b: Builder, address: str, count: str) -> str:
        """Words of two elements, of 32."""
        value = self._halves(b, address, count, SIDE)
        return b.op(f"bitcast <{SIDE} x half> {value} to {WORDS}")

    def packed(self, b: Builder, words: str) -> list[str]:
        found = []
        for first in (0, 1):
            picks = ", ".join(f"i32 {2 * i + first}" for i in range(SIDE // 2))
            every = b.op(f"bitcast {WORDS} {words} to <{SIDE} x half>")
            some = b.op(
                f"shufflevector <{SIDE} x half> {every}, <{SIDE} x half> poison, "
                f"<{SIDE // 2} x i32> <{picks}>"
            )
            value = b.op(f"fpext <{SIDE // 2} x half> {some} to {FLOATS}")
            found.append(b.op(f"bitcast {FLOATS} {value} to {WORDS}"))
        return found

    def read(self, b: Builder, address: str, count: str | None, lanes: int) -> str:
        value = self._halves(b, address, count, lanes)
        return b.op(f"fpext <{lanes} x half> {value} to {self.vector(lanes)}")

    def _halves(self, b: Builder, address: str, count: str | None, lanes: int) -> str:
        value = self._loaded(b, address, count, lanes)
        change = "bitcast" if self.short else "fptrunc"
        kind = f"<{lanes} x {self._moved}>"
        return b.op(f"{change} {kind} {value} to <{lanes} x half>")

    def _loaded(self, b: Builder, address: str, count: str | None, lanes: int) -> str:
        scalar, align = self._moved, self.dtype.itemsize
        kind = f"<{lanes} x {scalar}>"
        if count is None:
            return b.op(f"load {kind}, ptr {address}, align {align}")
        name = f"@llvm.masked.load.v{lanes}{scalar[0]}{8 * align}.p0"
        mask = f"<{lanes} x i1>"
        b.declare(f"{kind} {name}(ptr, {mask}, {kind})")
        return b.op(
            f"call {kind} {name}(ptr align {align} {address}, "
            f"{mask} {line_mask(b, count, lanes)}, {kind} zeroinitializer)"
        )

    def write(self, b: Builder, sums: str, address: str, count: str) -> None:
        scalar, align = self._moved, self.dtype.itemsize
        kind, mask = f"<{SIDE} x {scalar}>", f"<{SIDE} x i1>"
        if self.short:
            sums = b.op(f"fptrunc <{SIDE} x float> {sums} to <{SIDE} x half>")
            sums = b.op(f"bitcast <{SIDE} x half> {sums} to {kind}")
        name = f"@llvm.masked.store.v{SIDE}{scalar[0]}{8 * align}.p0"
        b.declare(f"void {name}({kind}, ptr, {mask})")
        b(
            f"call void {name}({kind} {sums}, ptr align {align} {address}, "
            f"{mask} {line_mask(b, count)})"
        )


class Floats(Singles):
    """Floats that stay what they are."""

    @property
    def name(self) -> str:
        return "floats"

    def read(self, b: Builder, address: str, count: str | None, lanes: int) -> str:
        return self._loaded(b, address, count, lanes)


class SingleInstructions(Instructions):
    """x86-64 with AVX-512."""

    name = "avx512-singles"
    instruction = "vfmadd231ps"

    def kernel(self, rows: int, vectors: int, short: bool) -> Kernel:
        return _Kernel(rows, vectors, short)


class _Kernel(HalfKernel):
    """Of floats."""

    instruction = SingleInstructions.instruction

    def rounded(self, row: Sequence[str]) -> list[str]:
        text = []
        for j, x in enumerate(row):
            short = x.replace("zmm", "ymm")
            text.append(f"vcvtps2ph $$4, {x}, {short}")
            text.append(f"vmovdqu16 {short}, {32 * j}(%[c]) {{%k{j + 1}}}")
        return text


class SingleModel(Model):
    """Plain IR, for tests."""

    name = "singles-model"

    def product_added(self, b: Builder, total: str, word: str, by: str) -> str:
        b.declare(f"{FLOATS} @llvm.fma.v16f32({FLOATS}, {FLOATS}, {FLOATS})")
        x, y = (b.op(f"bitcast {WORDS} {x} to {FLOATS}") for x in (word, by))
        values = f"{FLOATS} {x}, {FLOATS} {y}, {FLOATS} {total}"
        return b.op(f"call {FLOATS} @llvm.fma.v16f32({values})")
