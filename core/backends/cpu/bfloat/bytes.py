"""Integers of a byte beside floats: weights that are stored in a quarter of the memory.

They are packed as floats, which have all of their values. So a product that reads them
has the bits of one that reads them converted. (Beside bfloat16 they are packed as that:
`treadle.backends.cpu.bfloat.unit`.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle.backends.cpu.bfloat.unit import (
    SIDE,
    WORDS,
    floats_of_bytes,
    line_mask,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.dtypes import int8

_WORDS = f"<{WORDS} x i32>"


@dataclass(frozen=True)
class SingleBytes:
    """How they lie in memory. (A bool is a byte that is 0 or 1.)"""

    dtype: np.dtype
    group = 1
    depth = WORDS
    as_packed = False
    scalar = "i8"

    @property
    def name(self) -> str:
        return f"{self.dtype.name}s"

    def vector(self, lanes: int) -> str:
        return f"<{lanes} x float>"

    def at(self, b: Builder, base: str, index: str, step: str = "1") -> str:
        elements = index if step == "1" else b.op(f"mul i64 {index}, {step}")
        return b.op(f"getelementptr i8, ptr {base}, i64 {elements}")

    def read(self, b: Builder, address: str, count: str | None, lanes: int) -> str:
        given = self._loaded(b, address, count, lanes)
        return floats_of_bytes(b, self.dtype, given, lanes)

    def _loaded(self, b: Builder, address: str, count: str | None, lanes: int) -> str:
        kind, mask = f"<{lanes} x i8>", f"<{lanes} x i1>"
        if count is None:
            return b.op(f"load {kind}, ptr {address}, align 1")
        name = f"@llvm.masked.load.v{lanes}i8.p0"
        b.declare(f"{kind} {name}(ptr, {mask}, {kind})")
        return b.op(
            f"call {kind} {name}(ptr align 1 {address}, "
            f"{mask} {line_mask(b, count, lanes)}, {kind} zeroinitializer)"
        )

    def words(self, b: Builder, address: str, count: str) -> str:
        """Words of two elements, of 32, each made 16 bits long."""
        given = self._loaded(b, address, count, SIDE)
        extend = "sext" if self.dtype == int8 else "zext"
        long = b.op(f"{extend} <{SIDE} x i8> {given} to <{SIDE} x i16>")
        return b.op(f"bitcast <{SIDE} x i16> {long} to {_WORDS}")

    def packed(self, b: Builder, words: str) -> list[str]:
        sixteen = f"<{', '.join(['i32 16'] * WORDS)}>"
        low = b.op(f"shl {_WORDS} {words}, {sixteen}")
        found = []
        for value in (low, words):
            long = b.op(f"ashr {_WORDS} {value}, {sixteen}")
            floats = b.op(f"sitofp {_WORDS} {long} to <{WORDS} x float>")
            found.append(b.op(f"bitcast <{WORDS} x float> {floats} to {_WORDS}"))
        return found

    def write(self, b: Builder, sums: str, address: str, count: str) -> None:
        raise AssertionError("results of products of floats are floats")
