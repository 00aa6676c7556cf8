"""Pieces of IR that the matrix product and convolution kernels share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from treadle.backends.cpu.conv.arguments import ConvWord
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import (
    BUILT_IN,
    Kind,
    ProductWord,
    Word,
)
from treadle.backends.cpu.gemm.pack import HOOK
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.run.divided import COLD


class Elements(Protocol):
    """How elements of an operand lie in memory, by IR's name of their type."""

    @property
    def scalar(self) -> str: ...


EPILOGUE = "ptr, i64, i64, i64, i64, i64, i64"


class Args:
    """Reads words of the argument block."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def __call__(self, index: int, kind: str = "i64") -> str:
        return self.b.op(f"load {kind}, ptr {self.at(index)}, align 8")

    def at(self, index: int) -> str:
        return self.b.op(f"getelementptr i64, ptr %args, i64 {int(index)}")


def own_scratch(b: Builder, args: Args) -> str:
    """The memory of the thread that runs a task."""
    used = b.op(f"mul i64 %slot, {args(Word.OWN_STRIDE)}")
    return b.op(f"getelementptr i8, ptr {args(Word.OWN, 'ptr')}, i64 {used}")


def share(b: Builder, index: str, size: str, groups: str) -> tuple[str, str]:
    """The part of 0..size-1 that group `index` of `groups` owns."""
    following = b.op(f"add i64 {index}, 1")
    bounds = []
    for group in (index, following):
        scaled = b.op(f"mul i64 {group}, {size}")
        bounds.append(b.op(f"udiv i64 {scaled}, {groups}"))
    return bounds[0], bounds[1]


def owned_by_task(
    b: Builder, args: Args, width: int
) -> tuple[tuple[str, str], tuple[str, str], tuple[str, str]]:
    """The columns, row tiles and batch elements that a task owns: in each case the
    first, and the one after the last.

    width: columns of a panel.
    """
    columns, rows = args(ProductWord.GRID_COLUMNS), args(ProductWord.GRID_ROWS)
    column = b.op(f"urem i64 %task, {columns}")
    rest = b.op(f"udiv i64 %task, {columns}")
    row = b.op(f"urem i64 {rest}, {rows}")
    group = b.op(f"udiv i64 {rest}, {rows}")
    panels = b.op(
        f"udiv i64 {b.op(f'add i64 {args(ProductWord.N)}, {width - 1}')}, {width}"
    )
    panel_bounds = share(b, column, panels, columns)
    first, last = (b.op(f"mul i64 {p}, {width}") for p in panel_bounds)
    last = minimum(b, last, args(ProductWord.N))
    tiles = share(b, row, args(ProductWord.TILES), rows)
    groups = args(ProductWord.GRID_BATCHES)
    batches = share(b, group, args(ProductWord.BATCHES), groups)
    return (first, last), tiles, batches


@contextmanager
def column_chunks(b: Builder, args: Args) -> Iterator[tuple[str, str, str, str]]:
    """The loop over what a task owns of a product of few rows: both numbers of a batch
    element, the first of `BLOCK_TILES` column tiles and the one after the last."""
    across, groups = args(ProductWord.GRID_COLUMNS), args(ProductWord.GRID_BATCHES)
    column = b.op(f"urem i64 %task, {across}")
    group = b.op(f"udiv i64 %task, {across}")
    first, last = share(b, column, args(ProductWord.TILES), across)
    chunk = args(ProductWord.BLOCK_TILES)
    with (
        b.loop(*share(b, group, args(ProductWord.BATCHES), groups)) as batch,
        b.loop(first, last, chunk) as t0,
    ):
        b0 = b.op(f"udiv i64 {batch}, {args(ProductWord.BATCH1)}")
        b1 = b.op(f"urem i64 {batch}, {args(ProductWord.BATCH1)}")
        yield b0, b1, t0, minimum(b, b.op(f"add i64 {t0}, {chunk}"), last)


@contextmanager
def pieces(b: Builder, args: Args) -> Iterator[tuple[str, str]]:
    """The loop over pieces of k: first and last of each."""
    k, piece = args(ProductWord.K), args(ProductWord.K_PIECE)
    with b.loop("0", k, piece) as k0:
        yield k0, minimum(b, b.op(f"add i64 {k0}, {piece}"), k)


def minimum(b: Builder, x: str, y: str) -> str:
    b.declare("i64 @llvm.smin.i64(i64, i64)")
    return b.op(f"call i64 @llvm.smin.i64(i64 {x}, i64 {y})")


def maximum(b: Builder, x: str, y: str) -> str:
    b.declare("i64 @llvm.smax.i64(i64, i64)")
    return b.op(f"call i64 @llvm.smax.i64(i64 {x}, i64 {y})")


def offset(b: Builder, of: Elements, base: str, index: str, step: str) -> str:
    """base + index * step elements."""
    elements = b.op(f"mul i64 {index}, {step}")
    return b.op(f"getelementptr {of.scalar}, ptr {base}, i64 {elements}")


def call_pack(
    b: Builder,
    args: Args,
    slot: Word,
    operand: Word,
    coordinates: str,
    block: str,
) -> None:
    """Calls the producer of an operand, or packs it."""
    producer = args(slot)
    built_in = b.op(f"icmp ule i64 {producer}, {BUILT_IN}")
    address = b.op(f"inttoptr i64 {producer} to ptr")
    given = args(slot + 1, "ptr")
    function = b.op(f"select i1 {built_in}, ptr @pack, ptr {address}")
    values = b.op(f"select i1 {built_in}, ptr {args.at(operand)}, ptr {given}")
    b(f"call void ({HOOK}) {function}(ptr {values}, {coordinates}, {block})")


def operand_at(
    b: Builder, of: Elements, args: Args, slot: Word, row: str, column: str
) -> str:
    """Address of an element of batch element (b0, b1)."""
    address = args(slot, "ptr")
    for i, index in enumerate(("%b0", "%b1", row, column), start=1):
        address = offset(b, of, address, index, args(slot + i))
    return address


def call_epilogue(
    b: Builder, args: Args, finished: str, block: tuple[str, str, str, str, str, str]
) -> None:
    """Calls the epilogue, if there is one and the i1 `finished` says so.

    block: b0, b1, first row, row after the last, first column, column after the last.
    """
    function = args(Word.EPILOGUE, "ptr")
    wanted = b.op(f"icmp ne ptr {function}, null")
    with b.when(b.op(f"and i1 {wanted}, {finished}")):
        place = args(Word.EPILOGUE_ARGS)
        values = b.op(f"getelementptr i64, ptr %args, i64 {place}")
        where = ", ".join(f"i64 {index}" for index in block)
        b(f"call void ({EPILOGUE}) {function}(ptr {values}, {where})")


def panel_features(
    b: Builder, machine: Machine, args: Args, panel: str
) -> tuple[str, str, str]:
    """The group of a panel, its first feature and the one after its last."""
    width = machine.tile.columns
    per_group = args(ConvWord.GROUP_PANELS)
    group = b.op(f"udiv i64 {panel}, {per_group}")
    within = b.op(f"mul i64 {b.op(f'urem i64 {panel}, {per_group}')}, {width}")
    features = args(ConvWord.GROUP_FEATURES)
    end = minimum(b, b.op(f"add i64 {within}, {width}"), features)
    start = b.op(f"mul i64 {group}, {features}")
    return group, b.op(f"add i64 {start}, {within}"), b.op(f"add i64 {start}, {end}")


def emit_dispatch(b: Builder, name: str, kinds: Mapping[Kind, str]) -> None:
    """Defines a kernel: calls the function of the kind that the arguments are for."""
    with b.function(f"define void @{name}(ptr %args, i64 %task, i64 %slot) " + COLD):
        kind = Args(b)(Word.KIND)
        for number, function in kinds.items():
            with b.when(b.op(f"icmp eq i64 {kind}, {int(number)}")):
                b(f"call void @{function}(ptr %args, i64 %task, i64 %slot)")
        b("ret void")
