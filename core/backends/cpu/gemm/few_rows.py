"""Products of few rows with a B that lies transposed, as in ``x @ w.T``.

Packing B would take longer than multiplying. So A and B change places: the micro-kernel
reads the columns of B, along which k is contiguous, where they lie, and A is its panel,
packed transposed. What it makes is C transposed: in scratch, from where elements are
copied once all pieces of k are added::

    for each batch element
        for each chunk of column tiles
            for each piece of k
                pack A, transposed
                for each column tile: micro-kernel
            copy to C; epilogue
"""

from __future__ import annotations

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import ProductWord, Word
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    column_chunks,
    minimum,
    offset,
    operand_at,
    own_scratch,
    pieces,
)
from treadle.backends.cpu.gemm.sweep import Sweep, first_row
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.run.divided import COLD


def emit_few_rows(b: Builder, machine: Machine) -> None:
    """Defines ``few_rows``: one task, of some batch elements and some column tiles."""
    _emit_turned_copy(b, machine)
    _emit_columns(b, machine)
    with b.function(
        "define internal void @few_rows(ptr %args, i64 %task, i64 %slot) " + COLD
    ):
        args = Args(b)
        scratch = own_scratch(b, args)
        with column_chunks(b, args) as (b0, b1, t0, t1):
            b(
                f"call void @some_columns(ptr %args, ptr {scratch}, i64 {b0}, "
                f"i64 {b1}, i64 {t0}, i64 {t1})"
            )
        b("ret void")


def _emit_columns(b: Builder, machine: Machine) -> None:
    """``some_columns``: a chunk of column tiles of one batch element."""
    width, size = machine.tile.columns, machine.itemsize
    line = str(width * size)
    with b.function(
        "define internal void @some_columns(ptr %args, ptr %scratch, i64 %b0, "
        "i64 %b1, i64 %t0, i64 %t1) " + COLD
    ):
        args = Args(b)
        exchanged = b.op("alloca [5 x i64], align 8")
        for i, word in enumerate((0, 1, 2, 4, 3)):
            place = b.op(f"getelementptr i64, ptr {exchanged}, i64 {i}")
            b(f"store i64 {args(Word.A + word)}, ptr {place}, align 8")
        n0 = first_row(b, args, ProductWord.TILE_LOW, "%t0")
        n1 = first_row(b, args, ProductWord.TILE_LOW, "%t1")
        rows = args(ProductWord.ROWS)
        skipped = args(ProductWord.A_OFFSET)
        turned = b.op(f"getelementptr i8, ptr %scratch, i64 {skipped}")
        low, extra = args(ProductWord.TILE_LOW), args(ProductWord.TILE_EXTRA)
        step = b.op(f"mul i64 {args(Word.B + 4)}, {size}")
        with pieces(b, args) as (k0, k1):
            b(
                f"call void @pack(ptr {exchanged}, i64 %b0, i64 %b1, i64 {k0}, "
                f"i64 {k1}, i64 0, i64 {rows}, ptr %scratch, i64 {width})"
            )
            later = b.op("zext i1 " + b.op(f"icmp ne i64 {k0}, 0") + " to i64")
            Sweep(
                tiles=(low, extra, "%t0", "%t1"),
                a=(operand_at(b, machine, args, Word.B, k0, n0), step),
                k=("@one_segment", "1", b.op(f"sub i64 {k1}, {k0}")),
                panel=("%scratch", line),
                c=(turned, line),
                columns=rows,
                accumulate=later,
            ).call(b)
        c = operand_at(b, machine, args, Word.C, "0", n0)
        b(
            f"call void @turned_copy(ptr {turned}, i64 {b.op(f'sub i64 {n1}, {n0}')}, "
            f"i64 {rows}, ptr {c}, i64 {args(Word.C + 3)})"
        )
        call_epilogue(b, args, "true", ("%b0", "%b1", "0", rows, n0, n1))
        b("ret void")


def _emit_turned_copy(b: Builder, machine: Machine) -> None:
    """``turned_copy``: each row from one of the columns of a scratch, a vector's length
    at a time, as lines of both are then in the L1 cache until they are done."""
    scalar, align, lanes = machine.scalar, machine.itemsize, machine.tile.lanes
    with b.function(
        "define internal void @turned_copy(ptr noalias readonly %source, "
        "i64 %columns, i64 %rows, ptr noalias %target, i64 %step)"
    ):
        with b.loop("0", "%columns", str(lanes)) as j0:
            j1 = minimum(b, b.op(f"add i64 {j0}, {lanes}"), "%columns")
            with b.loop("0", "%rows") as i, b.loop(j0, j1) as j:
                place = offset(b, machine, "%source", i, "1")
                place = offset(b, machine, place, j, str(machine.tile.columns))
                value = b.op(f"load {scalar}, ptr {place}, align {align}")
                place = offset(b, machine, "%target", i, "%step")
                place = offset(b, machine, place, j, "1")
                b(f"store {scalar} {value}, ptr {place}, align {align}")
        b("ret void")
