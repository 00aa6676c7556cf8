"""What multiplies half floats: tile registers or vectors of pairs those of bfloat16,
vectors of floats those of float16 (`treadle.backends.cpu.bfloat.singles`).

A product packs its operands in blocks (`treadle.backends.cpu.bfloat.pack`), which a
*unit* multiplies. Each is there twice: as a CPU's instructions, and as a model of them
in plain IR that gives the same bits on any machine. So all that is around the
instructions runs, and is tested, where there are none.

To those of bfloat16 subnormal numbers are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind
from treadle.backends.cpu.gemm.parts import maximum, minimum
from treadle.dtypes import bfloat16, bool_, int8, int16, uint8
from treadle.records import record

SIDE = 32
"""Rows and columns of a block."""

WORDS = 16
"""Words of 32 bits along k in a block: groups of elements, see `pack`."""

LINE_BYTES = WORDS * 4
BLOCK_BYTES = SIDE * LINE_BYTES
SUMS_BYTES = SIDE * SIDE * 4
SUMS_ROW = SIDE * 4

_MASK = f"<{SIDE} x i1>"
_WORDS = f"<{WORDS} x i32>"

BLOCK = (
    "ptr %a, ptr %b, ptr %sums, i64 %steps, i64 %words, i1 %first, i1 %last, "
    "ptr %next, i64 %ahead, ptr %c, i64 %c_row, i64 %rows, i64 %columns, ptr %state"
)
"""Parameters of ``block``: packed blocks of A and B, one behind the other along k, and
how many; how many words of the last one hold more than zeros; where sums are while k
is not done with; whether that begins and ends here; what will be read next of B, and
how many lines of it a step may prefetch; where the first result goes, bytes between
rows of results, and how many rows and columns of them there are. The first block of A
has what `Speed.starts` says before it. What a unit keeps from one block to the next is
in `state`, at first 0."""


@record(frozen=True)
class Speed:
    """What schedules know of a unit.

    faster: than vectors of float32, by so much.
    a_bytes: of packed A, to stay in the L2 cache.
    k_piece: elements of k in a piece of a panel of B, to stay in the L1 cache.
    depth: elements of k in a block.
    starts: bytes before the packed rows of A, for what their sums start from.
    few_rows: most rows of A for which B is read where it lies, if k is contiguous.
    k_block: elements of k that are packed at once where sums are long and the result is
      small; 0 if all are.
    turned_rows: most rows of A for which B is turned in registers (`bfloat.turned`), or
      streamed, if these are few enough; 0 if it always is packed.
    rows_at_once: of those, whose sums are made at once.
    """

    faster: int
    a_bytes: int
    k_piece: int
    depth: int = 2 * WORDS
    starts: int = 0
    few_rows: int = 0
    k_block: int = 0
    turned_rows: int = 0
    rows_at_once: int = 8


class Dtypes(NamedTuple):
    """Of A, B and C in memory."""

    a: np.dtype = bfloat16
    b: np.dtype = bfloat16
    c: np.dtype = bfloat16


class Operand(Protocol):
    """How an operand or a result lies in memory, and as what it is packed.

    name: tells functions apart that pack operands. group: elements in a word.
    depth: elements of k in a block.
    """

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def name(self) -> str: ...

    @property
    def scalar(self) -> str: ...

    @property
    def group(self) -> int: ...

    @property
    def depth(self) -> int: ...

    @property
    def as_packed(self) -> bool:
        """Whether elements lie in memory as they are packed."""

    def vector(self, lanes: int) -> str:
        """The type of packed elements."""

    def at(self, b: Builder, base: str, index: str, step: str = "1") -> str:
        """base + index * step elements."""

    def read(self, b: Builder, address: str, count: str | None, lanes: int) -> str:
        """Elements as they are packed. From the i64 `count` on, if one is given, they
        are zeros, and not read."""

    def write(self, b: Builder, sums: str, address: str, count: str) -> None:
        """The first of 32 sums, `count` of them."""


@runtime_checkable
class Halves(Operand, Protocol):
    """Elements of two bytes, or floats that are rounded to them, or bytes."""

    @property
    def along(self) -> int:
        """Elements of a line, as it is read: those of 16 words, whole as they lie."""

    def words(self, b: Builder, address: str, count: str) -> str:
        """16 words of a line's elements, of which there are `count`."""

    def packed(self, b: Builder, words: str) -> list[str]:
        """Vectors of words as they are packed, of words of a line."""


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

    def operands(self, dtypes: Dtypes) -> tuple[Operand, Operand, Operand]:
        """How A, B and C lie in memory."""

    def define(self, b: Builder, c: Operand) -> None:
        """Writes ``block`` (see `BLOCK`), and ``finish(ptr state)``, after which all
        results of blocks so far are stored, as `c` says."""

    def more(self, b: Builder, a: Operand, by: Operand, c: Operand) -> dict[Kind, str]:
        """Writes functions for other kinds of products; says which."""

    def few(self, b: Builder, a: Operand, by: Operand, c: Operand) -> dict[Kind, str]:
        """Writes functions for products of few rows (`bfloat.few_rows`); says for which
        kinds."""

    def packed(self, b: Builder, rows: str, k: str) -> None:
        """After rows of A have been packed, with so many k, for a block."""

    def configure(self, b: Builder) -> None:
        """Before the first block of a task."""

    def release(self, b: Builder) -> None:
        """After the last block of a task."""


class Rounds(Protocol):
    """What rounds floats."""

    def rounded(self, b: Builder, floats: str) -> str:
        """32 floats as the bits of bfloat16, ties to even."""


def skipped(b: Builder, base: str, index: str, step: str | int) -> str:
    """base + index * step bytes."""
    nbytes = b.op(f"mul i64 {index}, {step}")
    return b.op(f"getelementptr i8, ptr {base}, i64 {nbytes}")


def line_mask(b: Builder, count: str, lanes: int = SIDE) -> str:
    """Which of some elements are below the i64 `count`."""
    words = f"<{lanes} x i16>"
    left = maximum(b, minimum(b, count, str(lanes)), "0")
    limit = b.op(f"trunc i64 {left} to i16")
    one = b.op(f"insertelement {words} poison, i16 {limit}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    limits = b.op(f"shufflevector {words} {one}, {words} poison, {zeros}")
    numbers = ", ".join(f"i16 {i}" for i in range(lanes))
    return b.op(f"icmp slt {words} <{numbers}>, {limits}")


def floats_of_bytes(b: Builder, dtype: np.dtype, value: str, lanes: int) -> str:
    """Integers of a byte as floats."""
    extend = "sext" if dtype == int8 else "zext"
    long = b.op(f"{extend} <{lanes} x i8> {value} to <{lanes} x i32>")
    return b.op(f"sitofp <{lanes} x i32> {long} to <{lanes} x float>")


def bytes_loaded(b: Builder, address: str, count: str | None, lanes: int) -> str:
    """Bytes, of which there are `count`; the others are zeros."""
    kind, mask = f"<{lanes} x i8>", f"<{lanes} x i1>"
    if count is None:
        return b.op(f"load {kind}, ptr {address}, align 1")
    name = f"@llvm.masked.load.v{lanes}i8.p0"
    b.declare(f"{kind} {name}(ptr, {mask}, {kind})")
    return b.op(
        f"call {kind} {name}(ptr align 1 {address}, "
        f"{mask} {line_mask(b, count, lanes)}, {kind} zeroinitializer)"
    )


def words_of_bytes(b: Builder, address: str, count: str) -> str:
    """A line of bytes, of which there are `count`, as words."""
    value = bytes_loaded(b, address, count, LINE_BYTES)
    return b.op(f"bitcast <{LINE_BYTES} x i8> {value} to {_WORDS}")


def joined(b: Builder, low: str, high: str) -> str:
    """Pairs of the bits of floats that have no digits below those of bfloat16."""
    bits = b.op(f"lshr {_WORDS} {low}, {splat(16)}")
    return b.op(f"or {_WORDS} {bits}, {high}")


def pairs_of_bytes(
    b: Builder, dtype: np.dtype, places: Sequence[str], count: str
) -> list[str]:
    """32 pairs, in two vectors of words, of bytes at two places, or of those at one and
    zeros: of the first `count`."""
    halves = []
    for place in places:
        floats = floats_of_bytes(b, dtype, bytes_loaded(b, place, count, SIDE), SIDE)
        bits = b.op(f"bitcast <{SIDE} x float> {floats} to <{SIDE} x i32>")
        halves.append([_part(b, bits, start) for start in (0, WORDS)])
    if len(halves) == 1:
        halves.append(["zeroinitializer"] * 2)
    return [joined(b, *pair) for pair in zip(*halves, strict=True)]


def _part(b: Builder, words: str, start: int) -> str:
    picks = ", ".join(f"i32 {start + i}" for i in range(WORDS))
    both = f"<{SIDE} x i32> {words}, <{SIDE} x i32> poison"
    return b.op(f"shufflevector {both}, <{WORDS} x i32> <{picks}>")


def splat(number: int) -> str:
    return f"<{', '.join([f'i32 {number}'] * WORDS)}>"


def floats_in_words(b: Builder, dtype: np.dtype, words: str) -> list[str]:
    """The bits of four vectors of floats: the first byte of each word, and so on.

    A byte is among the digits of a float that is so large that the last bit of the byte
    is one; what is too much is taken away. That takes no shift but for the upper bytes.
    """
    floats, sign = f"<{WORDS} x float>", 0x80 if dtype == int8 else 0
    upper = b.op(f"lshr {_WORDS} {words}, {splat(16)}")
    found = []
    for half in (words, upper):
        for place, large in ((0, 23), (8, 15)):
            # With its sign turned around a byte is an unsigned one, and 128 too much.
            bits = b.op(f"and {_WORDS} {half}, {splat(0xFF << place)}")
            exponent = (127 + large) << 23 | sign << place
            bits = b.op(f"xor {_WORDS} {bits}, {splat(exponent)}")
            value = b.op(f"bitcast {_WORDS} {bits} to {floats}")
            much = ", ".join([f"float {float((1 << large) + sign)}"] * WORDS)
            value = b.op(f"fsub {floats} {value}, <{much}>")
            found.append(b.op(f"bitcast {floats} {value} to {_WORDS}"))
    return found


def halves_of(dtypes: Dtypes, unit: Rounds) -> tuple[Operand, Operand, Operand]:
    """The operands of units that multiply bfloat16."""
    a, b, c = (Format(dtype, unit) for dtype in dtypes)
    return a, b, c


BYTES = (int8, uint8)
"""Integers that operands may have beside floats: all halves have their values. (Masks
are small, and in batches, which is faster in floats.)"""

INTEGERS = (int8, uint8, int16, bool_)
"""What operands of products of integers may be. Unsigned integers of 16 bits do not fit
a signed half."""


@record(frozen=True)
class Format:
    """How elements lie in memory: as bfloat16, as floats that are rounded, or as
    integers of a byte."""

    dtype: np.dtype
    unit: Rounds
    group = 2
    depth = 2 * WORDS

    @property
    def short(self) -> bool:
        return self.dtype == bfloat16

    @property
    def as_packed(self) -> bool:
        return self.short

    @property
    def scalar(self) -> str:
        if self.dtype in BYTES:
            return "i8"
        return "i16" if self.short else "float"

    @property
    def name(self) -> str:
        return self.dtype.name if self.dtype in BYTES else self.scalar

    def vector(self, lanes: int) -> str:
        return f"<{lanes} x i16>"

    @property
    def _memory(self) -> str:
        return f"<{SIDE} x {self.scalar}>"

    @property
    def _suffix(self) -> str:
        return {"i8": "v32i8", "i16": "v32i16", "float": "v32f32"}[self.scalar]

    def read(self, b: Builder, address: str, count: str | None, lanes: int) -> str:
        name, align = f"@llvm.masked.load.{self._suffix}.p0", self.dtype.itemsize
        assert lanes == SIDE, "a line and a group have as many elements"
        if count is None:
            value = b.op(f"load {self._memory}, ptr {address}, align {align}")
            return self._rounded(b, value)
        b.declare(f"{self._memory} {name}(ptr, {_MASK}, {self._memory})")
        value = b.op(
            f"call {self._memory} {name}(ptr align {align} {address}, "
            f"{_MASK} {line_mask(b, count)}, {self._memory} zeroinitializer)"
        )
        return self._rounded(b, value)

    def _rounded(self, b: Builder, value: str) -> str:
        if self.short:
            return value
        if self.dtype in BYTES:
            value = floats_of_bytes(b, self.dtype, value, SIDE)
        return self.unit.rounded(b, value)

    @property
    def along(self) -> int:
        return LINE_BYTES if self.dtype in BYTES else SIDE

    def words(self, b: Builder, address: str, count: str) -> str:
        if self.dtype in BYTES:
            return words_of_bytes(b, address, count)
        value = self.read(b, address, count, SIDE)
        return b.op(f"bitcast <{SIDE} x i16> {value} to {_WORDS}")

    def packed(self, b: Builder, words: str) -> list[str]:
        if self.dtype not in BYTES:
            return [words]
        found = floats_in_words(b, self.dtype, words)
        return [joined(b, *found[:2]), joined(b, *found[2:])]

    def write(self, b: Builder, sums: str, address: str, count: str) -> None:
        value = self.unit.rounded(b, sums) if self.short else sums
        name, align = f"@llvm.masked.store.{self._suffix}.p0", self.dtype.itemsize
        b.declare(f"void {name}({self._memory}, ptr, {_MASK})")
        b(
            f"call void {name}({self._memory} {value}, ptr align {align} {address}, "
            f"{_MASK} {line_mask(b, count)})"
        )

    def at(self, b: Builder, base: str, index: str, step: str = "1") -> str:
        skipped = index if step == "1" else b.op(f"mul i64 {index}, {step}")
        return b.op(f"getelementptr {self.scalar}, ptr {base}, i64 {skipped}")
