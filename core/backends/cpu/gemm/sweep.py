"""Runs the micro-kernel over row tiles that share a panel of B."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.parts import Args, minimum
from treadle.backends.cpu.gemm.tile import (
    PARAMETERS,
    TARGET,
    Machine,
    emit_plain_tiles,
    has_halves,
    sizes,
    wide_rows,
)
from treadle.backends.cpu.gemm.tile_x86 import emit_lanes, emit_x86_tiles
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.target import llvm


def emit_tiles(b: Builder, machine: Machine) -> None:
    """Defines ``tile``, all micro-kernels; or declares it, if they lie apart."""
    if machine.assembly and not machine.apart:
        emit_lanes(b, machine)
    _emit_tiles(b, machine, turned=False)


def emit_turned(b: Builder, machine: Machine) -> None:
    """Defines ``tile_turned`` and ``sweep_turned``, beside those of `emit_tiles`."""
    _emit_tiles(b, machine, turned=True)
    emit_sweep(b, machine, turned=True)


def _emit_tiles(
    b: Builder, machine: Machine, turned: bool, linkage: str = "internal"
) -> None:
    if machine.apart:
        kinds = re.sub(r" %\w+", "", PARAMETERS)
        b.declare(f"void @{_name(turned)}({kinds})")
    elif machine.assembly:
        emit_x86_tiles(b, machine, sizes(machine), turned, linkage)
    else:
        emit_plain_tiles(b, machine, turned, linkage)


def _name(turned: bool) -> str:
    return "tile_turned" if turned else "tile"


def needed(machine: Callable[[], Machine], turned: bool = False) -> tuple[Source, ...]:
    """The modules with the micro-kernels of a machine whose others lie apart: ``tile``;
    and ``tile_turned``, if that is wanted as well. Assembly is what takes LLVM longest
    of a product, and it is the same in attention and convolutions."""

    def emit(turned: bool) -> str:
        b, whole = Builder(), replace(machine(), apart=False)
        if whole.assembly:
            llvm().initialize_native_asmparser()
            emit_lanes(b, whole)
        _emit_tiles(b, whole, turned, linkage="")
        return b.text()

    def source(turned: bool) -> Source:
        symbol = _name(turned)
        key = f"{symbol} {machine()}"
        return Source(key, symbol, partial(emit, turned))

    return (source(False), source(True)) if turned else (source(False),)


@dataclass(frozen=True)
class Sweep:
    """Arguments of ``sweep``: names of IR values. Steps are in bytes.

    tiles: height of a tile, how many tiles have one more row, the first tile and the
    one after the last. a: address of the first tile's rows, step. k: address of the
    segments, their number and length. panel: B, step. c: address of the first tile's
    result, step. turned: whether A lies transposed; its step is that of k.
    """

    tiles: tuple[str, str, str, str]
    a: tuple[str, str]
    k: tuple[str, str, str]
    panel: tuple[str, str]
    c: tuple[str, str]
    columns: str
    accumulate: str
    turned: bool = False

    def call(self, b: Builder) -> None:
        words = [*self.tiles, *self.a, *self.k, *self.panel, *self.c]
        values = zip(_KINDS, [*words, self.columns, self.accumulate], strict=True)
        name = "sweep_turned" if self.turned else "sweep"
        b(f"call void @{name}({', '.join(f'{kind} {x}' for kind, x in values)})")


_NAMES = [
    *("low", "extra", "start", "stop", "a", "a_row", "segments", "count", "length"),
    *("b", "b_row", "c", "c_row", "columns", "accumulate"),
]
_POINTERS = ("a", "segments", "b", "c")
_KINDS = ["ptr" if name in _POINTERS else "i64" for name in _NAMES]


def emit_sweep(b: Builder, machine: Machine, turned: bool = False) -> None:
    """Defines ``sweep`` (``sweep_turned``)."""
    suffix = "_turned" if turned else ""
    a_row = str(machine.itemsize) if turned else "%a_row"
    values = zip(_KINDS, _NAMES, strict=True)
    parameters = ", ".join(f"{kind} %{name}" for kind, name in values)
    with b.function(f"define internal void @sweep{suffix}({parameters})"):
        target = b.op(f"alloca {TARGET}, align 8")
        fields = [
            b.op(f"getelementptr {TARGET}, ptr {target}, i64 0, i32 {i}")
            for i in range(4)
        ]
        for i, name in enumerate(("c_row", "columns", "accumulate"), start=1):
            b(f"store i64 %{name}, ptr {fields[i]}, align 8")
        index = _first_index(b, machine)
        first = row_of_tile(b, "%low", "%extra", "%start")
        with b.loop("%start", "%stop") as t:
            row = b.op(f"sub i64 {row_of_tile(b, '%low', '%extra', t)}, {first}")
            is_high = b.op(f"icmp slt i64 {t}, %extra")
            high = b.op(f"zext i1 {is_high} to i64")
            number = b.op(f"add i64 {index}, {high}")
            a, c = (
                b.op(
                    f"getelementptr i8, ptr %{name}, "
                    f"i64 {b.op(f'mul i64 {row}, {step}')}"
                )
                for name, step in (("a", a_row), ("c", "%c_row"))
            )
            b(f"store ptr {c}, ptr {fields[0]}, align 8")
            b(
                f"call void @tile{suffix}(i64 {number}, ptr {a}, i64 %a_row, "
                f"ptr %segments, i64 %count, i64 %length, ptr %b, i64 %b_row, "
                f"ptr {target})"
            )
        b("ret void")


def _first_index(b: Builder, machine: Machine) -> str:
    """Number of the micro-kernel for tiles of height `low`."""
    lanes, rows = machine.tile.lanes, machine.tile.rows
    one = b.op(f"icmp sle i64 %columns, {lanes}")
    two = b.op(f"icmp sle i64 %columns, {2 * lanes}")
    start = b.op(f"select i1 {two}, i64 {rows - 1}, i64 {2 * rows - 1}")
    start = b.op(f"select i1 {one}, i64 -1, i64 {start}")
    if has_halves(machine):
        half = b.op(f"icmp sle i64 %columns, {lanes // 2}")
        last = 2 * rows + wide_rows(machine) - 1
        start = b.op(f"select i1 {half}, i64 {last}, i64 {start}")
    return b.op(f"add i64 {start}, %low")


def row_of_tile(b: Builder, low: str, extra: str, tile: str) -> str:
    """The row at which a tile starts: the first `extra` tiles are one row higher."""
    rows = b.op(f"mul i64 {tile}, {low}")
    return b.op(f"add i64 {rows}, {minimum(b, tile, extra)}")


def first_row(b: Builder, args: Args, low_word: int, tile: str) -> str:
    """The same, for tiles described by two words of the arguments."""
    return row_of_tile(b, args(low_word), args(low_word + 1), tile)
