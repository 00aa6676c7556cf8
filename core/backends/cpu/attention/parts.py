"""Pieces of IR that the kernels of attention share.

Numbers are `Value`s of kind "i64", addresses are names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from treadle.backends.cpu.attention.schedule import Area, Word
from treadle.backends.cpu.emit.access import load, store
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import (
    Number,
    Value,
    constant,
    intrinsic,
    lane_numbers,
    memory_kind,
    register_kind,
    select,
)
from treadle.backends.cpu.gemm.parts import Args, offset
from treadle.backends.cpu.gemm.sweep import Sweep, row_of_tile
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.math.exp import polynomial, power_of_two, to_int

LOG2E = 1.0 / math.log(2.0)
LOWEST = -1e30
"""See `treadle.control.attention`."""

_POWER = {
    "float": (
        *(0.0001546144469856913, 0.0013400428177615838, 0.009618056678524637),
        *(0.05550327226670302, 0.24022650922288757, 0.6931472067028326, 1.0),
    ),
    "double": (
        *(4.4558179083360645e-10, 7.074194297288521e-09, 1.0178057087733941e-07),
        *(1.3215432535912375e-06, 1.5252733841556773e-05, 0.00015403530463724353),
        *(0.001333355814640647, 0.009618129107587256, 0.055504108664821625),
        *(0.24022650695910158, 0.6931471805599453, 1.0),
    ),
}
"""2^r for |r| <= 1/2, highest power first, fitted as the polynomials of `math.exp`."""


Operands = tuple[str | Value, ...]
"""Addresses and numbers."""


class Factor(NamedTuple):
    """A matrix: address, and elements from row to row."""

    base: str
    step: Value


class Code:
    """What writes the kernels of one machine, in one function at a time.

    stored: the dtype of operands and results. dtype: in which scores are computed.
    pairs: whether the micro-kernel multiplies pairs of them (`halves`).
    elsewhere: functions that another module defines.
    """

    def __init__(
        self,
        b: Builder,
        machine: Machine,
        stored: np.dtype,
        elsewhere: Sequence[str] = (),
    ) -> None:
        self.b, self.machine, self.stored = b, machine, stored
        self.elsewhere = elsewhere
        self.args = Args(b)
        self.lanes, self.size = machine.tile.lanes, machine.itemsize
        self.dtype = np.dtype(f"float{8 * machine.itemsize}")
        self.is_half, self.pairs = stored != self.dtype, machine.pairs

    # Numbers

    def i64(self, text: str | int) -> Value:
        if isinstance(text, int):
            return constant(self.b, text, "i64")
        return Value(self.b, text, "i64", 1)

    def flag(self, word: int) -> Value:
        """Whether a word is not 0."""
        return self.word(word).compare("ne", 0)

    def ints(self, *names: str) -> list[Value]:
        """Parameters of the function."""
        return [self.i64(f"%{name}") for name in names]

    def word(self, word: int) -> Value:
        return self.i64(self.args(word))

    def words(self, *words: int) -> list[Value]:
        return [self.word(w) for w in words]

    def number(self, word: int) -> Value:
        """A float among the words."""
        found = Value(self.b, self.args(word, "double"), "double", 1)
        if self.machine.scalar == "double":
            return found
        return found.cast("fptrunc", "float")

    def real(self, number: float, lanes: int = 1) -> Value:
        return constant(self.b, number, self.machine.scalar, lanes)

    def least(self, x: Value, y: Value | int) -> Value:
        return intrinsic("smin", x, y)

    def most(self, x: Value, y: Value | int) -> Value:
        return intrinsic("smax", x, y)

    def below(self, x: Value, to: int) -> Value:
        """The multiple of a number that is not above x, which is not negative."""
        return x.op("udiv", to) * to

    def units(self, n: Value) -> Value:
        """How many elements of the micro-kernel hold so many numbers."""
        return (n + 1).op("lshr", 1) if self.pairs else n

    @contextmanager
    def loop(
        self, start: Value | int, stop: Value, step: Value | int = 1
    ) -> Iterator[Value]:
        first, stride = (
            x.text if isinstance(x, Value) else str(x) for x in (start, step)
        )
        with self.b.loop(first, stop.text, stride) as index:
            yield self.i64(index)

    # Memory

    def at(self, base: str, *steps: Value) -> str:
        """An address so many elements further on."""
        for step in steps:
            base = offset(self.b, self.machine, base, step.text, "1")
        return base

    def beyond(self, base: str, *steps: Value) -> str:
        """An address so many numbers of an operand, or of a result, further on."""
        kind = memory_kind(self.stored)
        for step in steps:
            base = self.b.op(f"getelementptr {kind}, ptr {base}, i64 {step.text}")
        return base

    def area(self, area: Area, scratch: str = "%scratch") -> str:
        skipped = self.args(Word.AREAS + area)
        return self.b.op(f"getelementptr i8, ptr {scratch}, i64 {skipped}")

    def either(self, condition: Value, yes: str, no: str) -> str:
        """One of two addresses."""
        return self.b.op(f"select i1 {condition.text}, ptr {yes}, ptr {no}")

    def head(self, word: int, batch: Value, head: Value) -> str:
        """Where a head of an array begins."""
        base = self.args(word, "ptr")
        steps = batch * self.word(word + 1), head * self.word(word + 3)
        return self.beyond(base, *steps)

    def rows(
        self, word: int, batch: Value, head: Value, row: Value | None = None
    ) -> Factor:
        """A head of an array, from a row on."""
        base, step = self.head(word, batch, head), self.word(word + 2)
        return Factor(base if row is None else self.beyond(base, row * step), step)

    def load(self, address: str, mask: Value | None = None) -> Value:
        return load(self.b, address, self.dtype, self.lanes, mask)

    def store(self, address: str, x: Value, mask: Value | None = None) -> None:
        store(self.b, address, x.splat(self.lanes), self.dtype, mask)

    def load_given(self, address: str, mask: Value | None = None) -> Value:
        """Numbers of an operand or of a result."""
        return load(self.b, address, self.stored, self.lanes, mask)

    def load_one(self, address: str) -> Value:
        return load(self.b, address, self.dtype, 1, None)

    def store_one(self, address: str, x: Value) -> None:
        store(self.b, address, x, self.dtype, None)

    def zero(self, address: str, count: Value) -> None:
        self.b.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        nbytes = count * self.size
        self.b(
            f"call void @llvm.memset.p0.i64(ptr {address}, i8 0, i64 {nbytes.text},"
            " i1 false)"
        )

    def numbered(self) -> Value:
        """0, 1, 2, ... in lanes as wide as an element."""
        return lane_numbers(self.b, f"i{8 * self.size}", self.lanes)

    def mask(self, count: Value) -> Value:
        """The first lanes, so many."""
        kind = f"i{8 * self.size}"
        limit = count if kind == "i64" else count.cast("trunc", kind)
        return self.numbered().compare("slt", limit)

    # Calls

    def call(self, name: str, *operands: str | Value) -> None:
        if name in self.elsewhere:
            kinds = [x.type if isinstance(x, Value) else "ptr" for x in operands]
            self.b.declare(f"void @{name}({', '.join(kinds)})")
        self.b(f"call void @{name}({self._given(operands)})")

    def ask(self, name: str, *operands: str | Value) -> Value:
        """The i64 that a function returns."""
        return self.i64(self.b.op(f"call i64 @{name}({self._given(operands)})"))

    def _given(self, operands: Operands) -> str:
        return ", ".join(
            [
                f"{x.type} {x.text}" if isinstance(x, Value) else f"ptr {x}"
                for x in operands
            ]
        )


class Tiles(NamedTuple):
    """Rows cut into tiles: of so many rows (`low`), the first `extra` of one more."""

    code: Code
    total: Value
    low: Value
    extra: Value

    def start(self, tile: Value) -> Value:
        """The row at which a tile begins."""
        b = self.code.b
        texts = self.low.text, self.extra.text, tile.text
        return self.code.i64(row_of_tile(b, *texts))

    def until(self, row: Value) -> Value:
        """The number of a tile, before which are all tiles that begin at this row or
        before it."""
        code = self.code
        found = code.most(row + self.low, 0).op("udiv", self.low)
        return code.least(found, self.total)

    def since(self, row: Value) -> Value:
        """The number of a tile, before which none has this row or one after it."""
        code = self.code
        high = select(self.extra.compare("sgt", 0), self.low + 1, self.low)
        found = code.most(row, 0).op("udiv", high)
        return code.least(found, self.total)


def tiles_of(code: Code, rows: Value) -> Tiles:
    """For at least one row."""
    height = code.machine.tile.rows
    count = (rows + (height - 1)).op("udiv", height)
    low = rows.op("udiv", count)
    return Tiles(code, count, low, rows - low * count)


def multiply(
    code: Code,
    tiles: Tiles,
    some: tuple[Value, Value],
    rows: Factor,
    depth: Value,
    panel: Factor,
    result: Factor,
    columns: Value,
    add: Value,
    turned: bool = False,
) -> None:
    """The product of rows, from the first of `some` tiles on, and a panel; the rows and
    the result are given at the row where that tile begins.

    add: 1 where it is added to the result. turned: whether the rows lie transposed.
    """
    size = code.size
    Sweep(
        tiles=(tiles.low.text, tiles.extra.text, some[0].text, some[1].text),
        a=(rows.base, (rows.step * size).text),
        k=("@one_segment", "1", depth.text),
        panel=(panel.base, (panel.step * size).text),
        c=(result.base, (result.step * size).text),
        columns=columns.text,
        accumulate=add.text,
        turned=turned,
    ).call(code.b)


def power(x: Value) -> Value:
    """2**x for x that is not above 1; 0 where that is no normal number."""
    low = -126.0 if x.kind == "float" else -1022.0
    gone = x.compare("olt", low)
    n = intrinsic("roundeven", x)
    r = x - n
    found = polynomial(r, _POWER[x.kind]) * power_of_two(to_int(n), x.kind)
    return select(gone, 0.0, found.rounded_once())


def emit_fills(code: Code) -> None:
    """Defines what puts one number in many places."""
    _emit_fill(code, "fill", code.dtype)
    if code.pairs:
        _emit_fill(code, "fill_pairs", np.dtype(np.uint16))


def _emit_fill(code: Code, name: str, dtype: np.dtype) -> None:
    """``fill`` (``fill_pairs``): numbers from one place to another, of a number. There
    is room for whole vectors."""
    b, scalar = code.b, register_kind(dtype)
    with b.function(
        f"define internal void @{name}(ptr %row, i64 %start, i64 %stop, {scalar} %x)"
    ):
        start, stop = code.ints("start", "stop")
        lanes, bits = code.lanes, f"i{8 * dtype.itemsize}"
        numbers = lane_numbers(b, bits, lanes)
        ends = [x if bits == "i64" else x.cast("trunc", bits) for x in (start, stop)]
        number = Value(b, "%x", scalar, 1).splat(lanes)
        number = number if scalar == bits else number.as_int()
        # Whole vectors, which are read as such next: what is outside is written again.
        with code.loop(start & -lanes, stop, lanes) as j:
            here = numbers + (j if bits == "i64" else j.cast("trunc", bits))
            inside = ~here.compare("slt", ends[0]) & here.compare("slt", ends[1])
            inside = inside.cast("sext", bits)
            place = b.op(f"getelementptr {scalar}, ptr %row, i64 {j.text}")
            old = load(b, place, _WORDS[bits], lanes, None)
            store(b, place, (old & ~inside) | (number & inside), _WORDS[bits], None)
        b("ret void")


_WORDS = {f"i{8 * n}": np.dtype(f"u{n}") for n in (2, 4, 8)}


def total(x: Value) -> Value:
    """The sum of the lanes, in pairs."""
    while x.lanes > 2:
        half = x.lanes // 2
        x = x.shuffle([*range(half)]) + x.shuffle([*range(half, x.lanes)])
    return x.lane(0) + x.lane(1) if x.lanes == 2 else x


def largest(x: Value, y: Value | Number) -> Value:
    """The larger of two; y where x is not a number."""
    return select(x.compare("ogt", y), x, y)


def across(x: Value) -> Value:
    """The largest of the lanes."""
    while x.lanes > 2:
        half = x.lanes // 2
        x = largest(x.shuffle([*range(half)]), x.shuffle([*range(half, x.lanes)]))
    return largest(x.lane(0), x.lane(1)) if x.lanes == 2 else x
