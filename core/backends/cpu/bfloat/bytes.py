"""Integers of a byte beside floats: weights that are stored in a quarter of the memory.

They are packed as floats, which have all of their values. So a product that reads them
has the bits of one that reads them converted. (Beside bfloat16 they are packed as that:
`treadle.backends.cpu.bfloat.unit`.)
"""

from __future__ import annotations

import numpy as np

from treadle.backends.cpu.bfloat.unit import (
    LINE_BYTES,
    WORDS,
    bytes_loaded,
    floats_in_words,
    floats_of_bytes,
    words_of_bytes,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.records import record


@record(frozen=True)
class SingleBytes:
    """How they lie in memory."""

    dtype: np.dtype
    group = 1
    depth = WORDS
    along = LINE_BYTES
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
        given = bytes_loaded(b, address, count, lanes)
        return floats_of_bytes(b, self.dtype, given, lanes)

    def words(self, b: Builder, address: str, count: str) -> str:
        return words_of_bytes(b, address, count)

    def packed(self, b: Builder, words: str) -> list[str]:
        return floats_in_words(b, self.dtype, words)

    def write(self, b: Builder, sums: str, address: str, count: str) -> None:
        raise AssertionError("results of products of floats are floats")
