"""What the lanes of a row of taps hold (see `depthwise_rows`): channels, or features
of groups of few channels.

The features of a group need all of its channels. A vector holds the features of several
groups, and of a pixel, in the same lanes, their channels, as there are as many. Turned
within the groups it becomes a vector for each channel of a group, and each of these
serves all taps of a row. A group as wide as a vector isn't turned: an element is loaded
into all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

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
    masked_load,
    masked_store,
    splat,
)

_CACHE_LINE = 64


class Row(NamedTuple):
    """A row of taps: how many, how far apart the pixels are that one of them meets in
    two outputs side by side, and how many channels a group has, and features."""

    taps: int
    stride: int
    each: int = 1

    def pixels(self, outputs: int) -> int:
        return (outputs - 1) * self.stride + self.taps

    def new(self, outputs: int) -> range:
        """The pixels that some outputs meet, and none before them."""
        return range(self.taps - self.stride, self.pixels(outputs))

    def met(self, pixel: int, outputs: int) -> list[tuple[int, int]]:
        """The outputs that a pixel is for, and the tap of each."""
        taps = ((j, pixel - j * self.stride) for j in range(outputs))
        return [(j, tap) for j, tap in taps if 0 <= tap < self.taps]


class Lanes(Protocol):
    """Vectors of channels, or of features, from one on.

    outputs, taps: how many sums an output has, and, of the gradient by the filter, a
    tap.
    """

    machine: Machine
    outputs: int
    taps: int
    type: str

    def pixel(self, base: str) -> list[str]:
        """What factors are multiplied by, of the address of a pixel."""

    def factors(self, base: str) -> list[str]:
        """Those of a tap."""

    def gradients(self, base: str) -> list[str]:
        """Those of an output."""

    def store(self, values: Sequence[str], base: str) -> None:
        """Results."""

    def add_to(self, base: str, values: Sequence[str]) -> None:
        """Adds to the sums of a tap in memory."""

    def add(self, sums: list[str], output: int, x: list[str], y: list[str]) -> None:
        """Adds products of pixel and factors to the sums of an output."""

    def add_turn(self, sums: list[str], tap: int, x: list[str], y: list[str]) -> None:
        """Adds products of pixel and gradients to the sums of a tap."""

    def ask(self, base: str) -> None:
        """For what lies `below` an address, for the first of every cache line, to be in
        the L2 cache."""


class Vectors:
    """Those of depthwise convolutions: some vectors of channels."""

    def __init__(
        self, b: Builder, machine: Machine, channel: str, count: int, mask: str | None
    ) -> None:
        self.b, self.machine, self.mask = b, machine, mask
        self.outputs = self.taps = self.count = count
        self.type = machine.vector
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

    def pixel(self, base: str) -> list[str]:
        return self.load(base)

    def factors(self, base: str) -> list[str]:
        return self.load(base)

    def gradients(self, base: str) -> list[str]:
        return self.load(base)

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
        machine = self.machine
        places = self.at(base, machine.result)
        if self.in_turns and machine.short:
            self._store_words(values, places[0])
        else:
            self._store(self._in_order(values), places, machine)

    def add_to(self, base: str, values: Sequence[str]) -> None:
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
        return [self.picked(both, picks[start : start + lanes]) for start in (0, lanes)]

    def picked(self, vectors: str, picks: Sequence[int]) -> str:
        numbers = ", ".join(f"i32 {i}" for i in picks)
        return self.b.op(f"shufflevector {vectors}, <{len(picks)} x i32> <{numbers}>")

    def _store_words(self, values: Sequence[str], place: str) -> None:
        lanes = self.machine.tile.lanes
        both = ", ".join(f"{self.type} {x}" for x in values)
        both = self.picked(both, range(2 * lanes))
        by = rounded_by_instruction if self.machine.assembly else rounded_by_model
        words = f"<{2 * lanes} x i16>"
        both = f"{words} {by(self.b, both, 2 * lanes)}, {words} poison"
        picks = [i + half for i in range(lanes) for half in (0, lanes)]
        self.b(f"store {words} {self.picked(both, picks)}, ptr {place}, align 2")

    def add(self, sums: list[str], output: int, x: list[str], y: list[str]) -> None:
        for v in range(self.count):
            at = output * self.count + v
            sums[at] = self.multiply_add(x[v], y[v], sums[at])

    def add_turn(self, sums: list[str], tap: int, x: list[str], y: list[str]) -> None:
        self.add(sums, tap, x, y)

    def multiply_add(self, x: str, y: str, total: str) -> str:
        text = ", ".join(f"{self.type} {a}" for a in (x, y, total))
        return self.b.op(f"call {self.type} {self.fma}({text})")

    def ask(self, base: str) -> None:
        b, machine = self.b, self.machine
        b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        base = b.op(f"getelementptr i8, ptr {base}, i64 %below")
        kind = machine.operand
        each = max(1, _CACHE_LINE // (machine.tile.lanes * kind.itemsize))
        for address in self.at(base, kind)[::each]:
            b(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)")


class Groups:
    """Those of groups of few channels: one vector of features, and so many channels of
    each of its groups, from one on. `%apart` is how many bytes lie between the factors,
    or the sums, of two channels of a group."""

    def __init__(self, vectors: Vectors, each: int, channel: str, count: int) -> None:
        b, machine = vectors.b, vectors.machine
        self.b, self.vectors, self.type = b, vectors, vectors.type
        self.machine = machine
        self.outputs, self.taps = 1, count
        self.whole = each == machine.tile.lanes
        self.skipped = b.op(f"mul i64 {channel}, %apart")
        self.first = b.op(f"mul i64 {channel}, {machine.itemsize}")
        self.turns = []
        if not self.whole:
            words = _words(machine)
            for i in range(count):
                number = b.op(f"add i64 {channel}, {i}") if i else channel
                place = b.op(f"getelementptr {words}, ptr @turns, i64 {number}")
                self.turns.append(b.op(f"load {words}, ptr {place}, align 64"))

    def pixel(self, base: str) -> list[str]:
        b, machine = self.b, self.machine
        if not self.whole:
            (pixel,) = self.vectors.load(base)
            return [_turned(b, machine, pixel, turn) for turn in self.turns]
        (place,) = self.vectors.at(base, machine.operand)
        place, found = b.op(f"getelementptr i8, ptr {place}, i64 {self.first}"), []
        for i in range(self.taps):
            one = offset(b, machine, place, str(i), "1")
            one = b.op(f"load {machine.scalar}, ptr {one}, align {machine.itemsize}")
            found.append(splat(b, machine, one, machine.scalar))
        return found

    def _each_of(self, base: str) -> list[str]:
        """The addresses of its channels' rows of features, of the first one's."""
        places = [self.b.op(f"getelementptr i8, ptr {base}, i64 {self.skipped}")]
        for _ in range(1, self.taps):
            places.append(self.b.op(f"getelementptr i8, ptr {places[-1]}, i64 %apart"))
        return places

    def factors(self, base: str) -> list[str]:
        return [self.vectors.load(place)[0] for place in self._each_of(base)]

    def gradients(self, base: str) -> list[str]:
        return self.vectors.load(base)

    def store(self, values: Sequence[str], base: str) -> None:
        self.vectors.store(values, base)

    def add_to(self, base: str, values: Sequence[str]) -> None:
        for place, value in zip(self._each_of(base), values, strict=True):
            self.vectors.add_to(place, [value])

    def add(self, sums: list[str], output: int, x: list[str], y: list[str]) -> None:
        for a, factor in zip(x, y, strict=True):
            sums[output] = self.vectors.multiply_add(a, factor, sums[output])

    def add_turn(self, sums: list[str], tap: int, x: list[str], y: list[str]) -> None:
        for i, a in enumerate(x):
            at = tap * self.taps + i
            sums[at] = self.vectors.multiply_add(a, y[0], sums[at])

    def ask(self, base: str) -> None:
        self.vectors.ask(base)


_TURNS = {"avx512": "avx512.permvar.sf.512", "avx2": "avx2.permps"}
"""The instructions that turn words of 4 bytes, as other words say."""


def turns(assembly: str) -> bool:
    """Whether a machine turns vectors so."""
    return assembly in _TURNS


def emit_turns(b: Builder, machine: Machine, row: Row) -> None:
    """Defines ``turns``: of each channel of a group, which words of a vector it has in
    the lanes of its group's features."""
    lanes, each, size = machine.tile.lanes, row.each, machine.itemsize // 4
    words, vectors = _words(machine), []
    for channel in range(each):
        picks = [lane // each * each + channel for lane in range(lanes)]
        numbers = [pick * size + i for pick in picks for i in range(size)]
        vectors.append(f"{words} <{', '.join(f'i32 {n}' for n in numbers)}>")
    values = f"[{each} x {words}] [{', '.join(vectors)}]"
    b.lines.append(f"@turns = internal constant {values}, align 64")


def _words(machine: Machine) -> str:
    return f"<{machine.tile.lanes * machine.itemsize // 4} x i32>"


def _turned(b: Builder, machine: Machine, vector: str, words: str) -> str:
    """A vector, turned as words say."""
    kind, given = machine.vector, _words(machine)
    floats = given.replace("i32", "float")
    name = f"@llvm.x86.{_TURNS[machine.assembly]}"
    b.declare(f"{floats} {name}({floats}, {given})")
    vector = b.op(f"bitcast {kind} {vector} to {floats}")
    vector = b.op(f"call {floats} {name}({floats} {vector}, {given} {words})")
    return b.op(f"bitcast {floats} {vector} to {kind}")
