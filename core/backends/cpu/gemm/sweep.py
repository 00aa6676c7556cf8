"""Runs the micro-kernel over row tiles that share a panel of B."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.pack import COPIES, emit_pack
from treadle.backends.cpu.gemm.parts import Args, minimum
from treadle.backends.cpu.gemm.tile import (
    TARGET,
    Machine,
    emit_plain_tiles,
    has_halves,
    sizes,
    wide_rows,
)
from treadle.backends.cpu.gemm.tile_x86 import emit_lanes, emit_x86_tiles
from treadle.backends.cpu.run.divided import exported
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.target import llvm
from treadle.records import record

ONE_SEGMENT = "@one_segment = internal constant [2 x i64] zeroinitializer"
"""What k runs through where it is contiguous."""


def emit_tiles(b: Builder, machine: Machine) -> None:
    """Defines ``tile``, all micro-kernels, unless they lie apart."""
    if machine.apart:
        return
    if machine.assembly:
        emit_lanes(b, machine)
        emit_x86_tiles(b, machine, sizes(machine))
    else:
        emit_plain_tiles(b, machine)


SWEEPS = "any_sweep", "sweep", "sweep_turned"

SHARED = *SWEEPS, *COPIES
"""What `needed` gives."""


def needed(machine: Callable[[], Machine]) -> tuple[Source, ...]:
    """The module with the micro-kernels of a machine that has them apart, what runs
    them, and what copies for them. Assembly is what takes LLVM longest of a product,
    and all of it is the same in attention and convolutions."""

    def emit() -> str:
        b, whole = Builder(), replace(machine(), apart=False)
        llvm().initialize_native_asmparser()  # for the assembly
        emit_tiles(b, whole)
        emit_sweep(b, whole)
        emit_pack(b, whole)
        return exported(b.text(), SHARED)

    return (Source(f"sweep {machine()}", SHARED[0], emit, exports=SHARED[1:]),)


class Steps(NamedTuple):
    """How A lies: the step from its first tile to another one, for each row and for
    each tile before it; within a tile, from row to row, and from one k to the next."""

    per_row: str
    per_tile: str
    a_row: str
    a_step: str


@record(frozen=True)
class Sweep:
    """Arguments of ``sweep``: names of IR values. Steps are in bytes.

    tiles: height of a tile, how many tiles have one more row, the first tile and the
    one after the last. a: address of the first tile's rows, step. k: address of the
    segments, their number and length. panel: B, step. c: address of the first tile's
    result, step. turned: whether A lies transposed: its step is that of k. lie: the
    `Steps` of A, instead of its step.
    """

    tiles: tuple[str, str, str, str]
    a: tuple[str, str]
    k: tuple[str, str, str]
    panel: tuple[str, str]
    c: tuple[str, str]
    columns: str
    accumulate: str
    turned: bool = False
    lie: Steps | None = None

    def call(self, b: Builder) -> None:
        words = [*self.tiles, *self.a, *self.k, *self.panel, *self.c]
        words += [self.columns, self.accumulate, *(self.lie or ())]
        name = "sweep_turned" if self.turned else "sweep"
        name, kinds = ("any_sweep", _ALL_KINDS) if self.lie else (name, _KINDS)
        values = zip(kinds, words, strict=True)
        b(f"call void @{name}({', '.join(f'{kind} {x}' for kind, x in values)})")


_NAMES = [
    *("low", "extra", "start", "stop", "a", "a_given", "segments", "count", "length"),
    *("b", "b_row", "c", "c_row", "columns", "accumulate"),
]
_POINTERS = ("a", "segments", "b", "c")


def _kinds(names: list[str]) -> list[str]:
    return ["ptr" if name in _POINTERS else "i64" for name in names]


_KINDS = _kinds(_NAMES)
_ALL_KINDS = _kinds([*_NAMES, *Steps._fields])


def emit_sweep(b: Builder, machine: Machine) -> None:
    """Defines ``any_sweep``, and ``sweep`` and ``sweep_turned``, which call it; or
    declares them, if they lie apart."""
    if machine.apart:
        for name in SWEEPS:
            kinds = _ALL_KINDS if name == "any_sweep" else _KINDS
            b.declare(f"void @{name}({', '.join(kinds)})")
        return
    _emit_any_sweep(b, machine)
    size, given = str(machine.itemsize), "%a_given"
    for name, steps in (
        ("sweep", Steps(given, "0", given, size)),
        ("sweep_turned", Steps(size, "0", size, given)),
    ):
        with b.function(f"define internal void @{name}({_typed(_NAMES)})"):
            others = [f"i64 {step}" for step in steps]
            b(f"call void @any_sweep({', '.join([_typed(_NAMES), *others])})")
            b("ret void")


def _typed(names: list[str]) -> str:
    pairs = zip(_kinds(names), names, strict=True)
    return ", ".join(f"{kind} %{name}" for kind, name in pairs)


def _emit_any_sweep(b: Builder, machine: Machine) -> None:
    parameters = _typed([*_NAMES, *Steps._fields])
    with b.function(f"define internal void @any_sweep({parameters}) noinline"):
        target = b.op(f"alloca {TARGET}, align 8")
        fields = [
            b.op(f"getelementptr {TARGET}, ptr {target}, i64 0, i32 {i}")
            for i in range(5)
        ]
        for i, name in enumerate(("c_row", "columns", "accumulate", "length"), start=1):
            b(f"store i64 %{name}, ptr {fields[i]}, align 8")
        index = _first_index(b, machine)
        first = row_of_tile(b, "%low", "%extra", "%start")
        with b.loop("%start", "%stop") as t:
            row = b.op(f"sub i64 {row_of_tile(b, '%low', '%extra', t)}, {first}")
            is_high = b.op(f"icmp slt i64 {t}, %extra")
            high = b.op(f"zext i1 {is_high} to i64")
            number = b.op(f"add i64 {index}, {high}")
            c = _beyond(b, "%c", row, "%c_row")
            a = _beyond(b, "%a", row, "%per_row")
            a = _beyond(b, a, b.op(f"sub i64 {t}, %start"), "%per_tile")
            b(f"store ptr {c}, ptr {fields[0]}, align 8")
            b(
                f"call void @tile(i64 {number}, ptr {a}, i64 %a_row, i64 %a_step, "
                f"ptr %segments, i64 %count, ptr %b, i64 %b_row, ptr {target})"
            )
        b("ret void")


def _beyond(b: Builder, base: str, count: str, step: str) -> str:
    skipped = b.op(f"mul i64 {count}, {step}")
    return b.op(f"getelementptr i8, ptr {base}, i64 {skipped}")


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
