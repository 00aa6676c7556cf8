"""Depthwise convolutions whose taps of a row meet pixels side by side.

Neighbouring outputs share most of what they meet. Of a row of taps, with a length and
a stride that are written into the code, each pixel is loaded once for all of a tile's
outputs, and each factor once. The sums of `depthwise`, in the same order::

    for each two vectors of channels               for each two vectors of channels
        for each row of taps                           for every four outputs of a row
            load its factors                               load their gradients
            for each pixel: up to eight sums               for each pixel: a row's sums

The second is the gradient by the filter: the sums of a row of taps.

Pixels and factors of bfloat16 become floats as they are loaded, once for all sums: of
two vectors, one has the even channels and the other the odd ones, which are the halves
of words. (Two products at a time, as in `depthwise_pairs`, would turn words for each of
them.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.pairs import (
    rounded_by_instruction,
    rounded_by_model,
    widened,
)
from treadle.backends.cpu.gemm.parts import offset
from treadle.backends.cpu.gemm.tile import (
    Machine,
    Stored,
    as_stored,
    lane_mask,
    masked_load,
    masked_store,
)
from treadle.dtypes import bfloat16
from treadle.kernels.convolve import ConvSpec

OUTPUTS = 8
"""Of a tile: pixels beside each other serve several."""

_LENGTHS = range(3, 8)
_STRIDES = 1, 2
_TURN = 4  # outputs that the gradient by the filter adds at once
_CACHE_LINE = 64


class Row(NamedTuple):
    """A row of taps: how many, and how far apart the pixels are that one of them meets
    in two outputs side by side."""

    taps: int
    stride: int

    def pixels(self, outputs: int) -> int:
        return (outputs - 1) * self.stride + self.taps

    def new(self, outputs: int) -> range:
        """The pixels that some outputs meet, and none before them."""
        return range(self.taps - self.stride, self.pixels(outputs))

    def met(self, pixel: int, outputs: int) -> list[tuple[int, int]]:
        """The outputs that a pixel is for, and the tap of each."""
        taps = ((j, pixel - j * self.stride) for j in range(outputs))
        return [(j, tap) for j, tap in taps if 0 <= tap < self.taps]


def row_of(spec: ConvSpec) -> Row | None:
    """The row of taps of a convolution; None if it has another kernel, or if its
    lengths are not known."""
    x = spec.x
    lengths = x.taps, x.stride, x.dilation
    if spec.half not in (None, bfloat16) or not all(type(n) is int for n in lengths):
        return None
    if x.dilation != 1 or x.taps not in _LENGTHS or x.stride not in _STRIDES:
        return None
    return Row(x.taps, x.stride)


class _Vectors:
    """Some vectors of channels, from one on."""

    def __init__(
        self, b: Builder, machine: Machine, channel: str, count: int, mask: str | None
    ) -> None:
        self.b, self.machine, self.mask = b, machine, mask
        self.count, self.type = count, machine.vector
        self.sums = replace(machine, halves=False, short=False)
        self.in_turns = machine.halves and count > 1
        kinds = {machine.operand, machine.result, self.sums.result}
        self.skipped = {
            kind: b.op(f"mul i64 {channel}, {kind.itemsize}")
            for kind in sorted(kinds, reverse=True)
        }
        self.fma = f"@llvm.fmuladd.{machine.suffix}"
        b.declare(f"{self.type} {self.fma}({', '.join([self.type] * 3)})")

    def at(self, base: str, kind: Stored) -> list[str]:
        """Their addresses, of those of a pixel."""
        place = self.b.op(f"getelementptr i8, ptr {base}, i64 {self.skipped[kind]}")
        lanes = self.machine.tile.lanes
        return [
            place if v == 0 else offset(self.b, kind, place, str(v * lanes), "1")
            for v in range(self.count)
        ]

    def load(self, base: str) -> list[str]:
        """Operands."""
        b, machine, lanes = self.b, self.machine, self.machine.tile.lanes
        places = self.at(base, machine.operand)
        if self.in_turns:
            return self._halves_of_words(places[0])
        if self.mask is not None:
            found = [
                masked_load(b, machine, a, self.mask, machine.operand) for a in places
            ]
        else:
            kind, how = machine.operand.scalar, f"align {machine.operand.itemsize}"
            found = [b.op(f"load <{lanes} x {kind}>, ptr {a}, {how}") for a in places]
        return [widened(b, x, lanes) for x in found] if machine.halves else found

    def _halves_of_words(self, place: str) -> list[str]:
        b, lanes = self.b, self.machine.tile.lanes
        words = f"<{lanes} x i32>"
        both = b.op(f"load {words}, ptr {place}, align 2")
        found = []
        for how, amount in (("shl", 16), ("and", -0x10000)):
            amounts = ", ".join([f"i32 {amount}"] * lanes)
            half = b.op(f"{how} {words} {both}, <{amounts}>")
            found.append(b.op(f"bitcast {words} {half} to {self.type}"))
        return found

    def store(self, values: Sequence[str], base: str) -> None:
        """Results."""
        machine = self.machine
        places = self.at(base, machine.result)
        if self.in_turns and machine.short:
            self._store_words(values, places[0])
        else:
            self._store(self._in_order(values), places, machine)

    def add_to(self, base: str, values: Sequence[str]) -> None:
        """Adds to the sums in memory."""
        b, machine = self.b, self.sums
        places, totals = self.at(base, machine.result), []
        for place, value in zip(places, self._in_order(values), strict=True):
            if self.mask is not None:
                old = masked_load(b, machine, place, self.mask)
            else:
                old = b.op(f"load {self.type}, ptr {place}, align {machine.itemsize}")
            totals.append(b.op(f"fadd {self.type} {old}, {value}"))
        self._store(totals, places, machine)

    def _store(
        self, values: Sequence[str], places: Sequence[str], machine: Machine
    ) -> None:
        for value, place in zip(values, places, strict=True):
            if self.mask is not None:
                masked_store(self.b, machine, value, place, self.mask)
            else:
                result, align = as_stored(self.b, machine, value), machine.result
                self.b(f"store {result}, ptr {place}, align {align.itemsize}")

    def _in_order(self, values: Sequence[str]) -> Sequence[str]:
        if not self.in_turns:
            return values
        lanes = self.machine.tile.lanes
        both = ", ".join(f"{self.type} {x}" for x in values)
        picks = [i + half for i in range(lanes) for half in (0, lanes)]
        return [
            self._picked(both, picks[start : start + lanes]) for start in (0, lanes)
        ]

    def _picked(self, vectors: str, picks: Sequence[int]) -> str:
        numbers = ", ".join(f"i32 {i}" for i in picks)
        return self.b.op(f"shufflevector {vectors}, <{len(picks)} x i32> <{numbers}>")

    def _store_words(self, values: Sequence[str], place: str) -> None:
        lanes = self.machine.tile.lanes
        both = ", ".join(f"{self.type} {x}" for x in values)
        both = self._picked(both, range(2 * lanes))
        by = rounded_by_instruction if self.machine.assembly else rounded_by_model
        words = f"<{2 * lanes} x i16>"
        both = f"{words} {by(self.b, both, 2 * lanes)}, {words} poison"
        picks = [i + half for i in range(lanes) for half in (0, lanes)]
        self.b(f"store {words} {self._picked(both, picks)}, ptr {place}, align 2")

    def add(self, sums: list[str], first: int, x: list[str], y: list[str]) -> None:
        """Adds products to the sums number `first` and the next ones."""
        for v in range(self.count):
            total = sums[first + v]
            text = ", ".join(f"{self.type} {a}" for a in (x[v], y[v], total))
            sums[first + v] = self.b.op(f"call {self.type} {self.fma}({text})")

    def ask(self, base: str) -> None:
        """For what lies `below` an address, for the first of every cache line, to be in
        the L2 cache."""
        b, machine = self.b, self.machine
        b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        base = b.op(f"getelementptr i8, ptr {base}, i64 %below")
        kind = machine.operand
        each = max(1, _CACHE_LINE // (machine.tile.lanes * kind.itemsize))
        for address in self.at(base, kind)[::each]:
            b(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)")


def _vectors(machine: Machine, registers: int) -> int:
    """How many vectors at once have room, if one takes so many registers."""
    return 2 if 2 * registers + 2 <= machine.tile.rows * machine.tile.vectors else 1


def _each(b: Builder, machine: Machine, count: int) -> list[tuple[str, str, int]]:
    """Loops over channels c0..c1-1: where each begins and ends, and how many vectors it
    takes. What is left is part of one."""
    loops, start = [], "%c0"
    for vectors in sorted({count, 1}, reverse=True):
        width = vectors * machine.tile.lanes
        whole = b.op(f"and i64 {b.op(f'sub i64 %c1, {start}')}, {-width}")
        stop = b.op(f"add i64 {start}, {whole}")
        loops.append((start, stop, vectors))
        start = stop
    return loops


def _pixel(b: Builder, line: str, number: int) -> str:
    """The address of a pixel, from the table."""
    entry = b.op(f"getelementptr ptr, ptr {line}, i64 {number}") if number else line
    return b.op(f"load ptr, ptr {entry}, align 8")


def emit_row_tile(
    b: Builder, machine: Machine, row: Row, outputs: int, parameters: str
) -> None:
    """``tile_N``, as `depthwise` has it for any taps; `add` is 0."""
    with b.function(f"define internal void @tile_{outputs}({parameters})"):
        place = b.op("load i64, ptr %places, align 8")
        table = b.op(f"getelementptr i8, ptr %table, i64 {place}")
        rows = b.op(f"udiv i64 %count, {row.taps}")
        first, second = (
            b.op(f"load i64, ptr {slot}, align 8")
            for slot in (
                b.op(f"getelementptr i64, ptr %steps, i64 {i}") for i in (1, 3)
            )
        )
        step = b.op(f"sub i64 {second}, {first}")
        shared = table, rows, step
        count = _vectors(machine, outputs + row.taps)
        loops = _each(b, machine, count)
        for start, stop, vectors in loops:
            width = str(vectors * machine.tile.lanes)
            with b.loop(start, stop, width) as c:
                channels = _Vectors(b, machine, c, vectors, None)
                if outputs > 1:
                    _ask_ahead(b, channels, row, outputs, shared)
                _outputs(b, channels, row, outputs, shared)
        stop = loops[-1][1]
        left = b.op(f"sub i64 %c1, {stop}")
        with b.when(b.op(f"icmp sgt i64 {left}, 0")):
            mask = lane_mask(b, machine, left)
            _outputs(b, _Vectors(b, machine, stop, 1, mask), row, outputs, shared)
        b("ret void")


def _line(b: Builder, table: str, taps: str) -> tuple[str, str]:
    """The pixels that a row of taps begins at, and the bytes of its first factor."""
    entry = b.op(f"getelementptr [2 x i64], ptr %steps, i64 {taps}")
    line = b.op(f"load i64, ptr {entry}, align 8")
    entry = b.op(f"getelementptr i64, ptr {entry}, i64 1")
    factor = b.op(f"load i64, ptr {entry}, align 8")
    return b.op(f"getelementptr i8, ptr {table}, i64 {line}"), factor


def _outputs(
    b: Builder, channels: _Vectors, row: Row, outputs: int, shared: tuple[str, str, str]
) -> None:
    table, rows, step = shared
    zeros = [(channels.type, "zeroinitializer")] * (outputs * channels.count)
    with b.carrying("0", rows, "1", zeros) as turn:
        line, at = _line(b, table, b.op(f"mul i64 {turn.index}, {row.taps}"))
        factors = []
        factor = b.op(f"getelementptr i8, ptr %factors, i64 {at}")
        for tap in range(row.taps):
            if tap:
                factor = b.op(f"getelementptr i8, ptr {factor}, i64 {step}")
            factors.append(channels.load(factor))
        sums = list(turn.values)
        for p in range(row.pixels(outputs)):
            pixel = channels.load(_pixel(b, line, p))
            for j, tap in row.met(p, outputs):
                channels.add(sums, j * channels.count, pixel, factors[tap])
        turn.next = sums
    for j in range(outputs):
        target = b.op(f"mul i64 {j}, %out_row")
        target = b.op(f"getelementptr i8, ptr %out, i64 {target}")
        first = j * channels.count
        channels.store(turn.values[first : first + channels.count], target)


def _ask_ahead(
    b: Builder, channels: _Vectors, row: Row, outputs: int, shared: tuple[str, str, str]
) -> None:
    """Asks for what the row of outputs below meets, in rows and columns that are new to
    it: of the next tile it would be too late, for what comes from memory."""
    table, rows, _ = shared
    with b.loop("0", "%asked_y") as back:
        last = b.op(f"sub i64 {rows}, 1")
        more = b.op(f"icmp slt i64 {back}, {last}")
        number = b.op(
            f"sub i64 {last}, {b.op(f'select i1 {more}, i64 {back}, i64 {last}')}"
        )
        line, _ = _line(b, table, b.op(f"mul i64 {number}, {row.taps}"))
        for p in row.new(outputs):
            channels.ask(_pixel(b, line, p))


ROW_SUMS = (
    "ptr %table, i64 %line, i64 %rows, i64 %columns, ptr %gradients, i64 %pixel, "
    "ptr %sums, i64 %below, i64 %apart, i64 %c0, i64 %c1"
)


def emit_row_sums(b: Builder, machine: Machine, row: Row) -> None:
    """``row_sums``: adds to the sums of a row of taps, which are `apart`, for channels
    c0..c1-1, what rows of outputs give, whose pixels begin `line` bytes apart in the
    table, and whose gradients are `pixel` bytes apart. below: how many bytes from
    pixels to those to be asked for, or 0."""
    with b.function(f"define internal void @row_sums({ROW_SUMS})"):
        count = _vectors(machine, row.taps + _TURN)
        loops = _each(b, machine, count)
        for start, stop, vectors in loops:
            width = str(vectors * machine.tile.lanes)
            with b.loop(start, stop, width) as c:
                _taps(b, _Vectors(b, machine, c, vectors, None), row)
        stop = loops[-1][1]
        left = b.op(f"sub i64 %c1, {stop}")
        with b.when(b.op(f"icmp sgt i64 {left}, 0")):
            mask = lane_mask(b, machine, left)
            _taps(b, _Vectors(b, machine, stop, 1, mask), row)
        b("ret void")


def _taps(b: Builder, channels: _Vectors, row: Row) -> None:
    zeros = [(channels.type, "zeroinitializer")] * (row.taps * channels.count)
    whole = b.op(f"and i64 %columns, {-_TURN}")
    asks = b.op("icmp ne i64 %below, 0")
    width = b.op("mul i64 %columns, %pixel")
    with b.carrying("0", "%rows", "1", zeros) as lines:
        line = b.op(
            f"getelementptr i8, ptr %table, i64 {b.op(f'mul i64 {lines.index}, %line')}"
        )
        gradients = b.op(f"mul i64 {lines.index}, {width}")
        gradients = b.op(f"getelementptr i8, ptr %gradients, i64 {gradients}")
        sums = list(lines.values)
        for start, stop, several in (("0", whole, _TURN), (whole, "%columns", 1)):
            first = [(channels.type, s) for s in sums]
            with b.carrying(start, stop, str(several), first) as turn:
                place = b.op(f"mul i64 {turn.index}, {row.stride}")
                place = b.op(f"getelementptr ptr, ptr {line}, i64 {place}")
                given = b.op(f"mul i64 {turn.index}, %pixel")
                given = b.op(f"getelementptr i8, ptr {gradients}, i64 {given}")
                with b.when(asks):
                    for p in row.new(several):
                        channels.ask(_pixel(b, place, p))
                turn.next = _products(
                    b, channels, row, several, (place, given), turn.values
                )
            sums = list(turn.values)
        lines.next = sums
    for tap in range(row.taps):
        target = b.op(f"mul i64 {tap}, %apart")
        target = b.op(f"getelementptr i8, ptr %sums, i64 {target}")
        n = channels.count
        mine = lines.values[tap * n : tap * n + n]
        channels.add_to(target, mine)


def _products(
    b: Builder,
    channels: _Vectors,
    row: Row,
    outputs: int,
    places: tuple[str, str],
    sums: Sequence[str],
) -> list[str]:
    """The sums of a row of taps, with what some outputs give."""
    place, given = places
    gradients = []
    for j in range(outputs):
        if j:
            given = b.op(f"getelementptr i8, ptr {given}, i64 %pixel")
        gradients.append(channels.load(given))
    found = list(sums)
    for p in range(row.pixels(outputs)):
        pixel = channels.load(_pixel(b, place, p))
        for j, tap in row.met(p, outputs):
            channels.add(found, tap * channels.count, pixel, gradients[j])
    return found
