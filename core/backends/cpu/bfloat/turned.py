"""Products of few rows with a B along whose columns k is contiguous, as ``x @ w.T``.

A line of each of sixteen columns, which has sixteen pairs, is loaded and turned, in
registers: into vectors of one pair of all columns each, which meet all rows of A. The
last 32 columns end with the columns, and only what no others write is written.
"""

from __future__ import annotations

from treadle.backends.cpu.bfloat.few_rows import (
    COLUMNS,
    FLOATS,
    HEIGHTS,
    WORDS,
    Adds,
    blocks,
    by_height,
    emit_task,
    emit_write,
)
from treadle.backends.cpu.bfloat.unit import (
    LINE_BYTES,
    SIDE,
    SUMS_ROW,
    Operand,
    skipped,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import ProductWord, Word
from treadle.backends.cpu.gemm.parts import Args, minimum, operand_at

_LANES = SIDE // 2


def emit_turned(b: Builder, unit: Adds, a: Operand, by: Operand, c: Operand) -> None:
    """Defines ``turned``: one task, of some batch elements and some columns."""
    for height in HEIGHTS:
        _emit_tile(b, unit, by, height)
    emit_write(b, "turned", c)
    with b.function(f"define internal void @turned_columns({COLUMNS}, i64 %head)"):
        args = Args(b)
        step = b.op(f"mul i64 {args(Word.B + 4)}, {by.dtype.itemsize}")
        furthest = b.op(f"sub i64 {args(ProductWord.N)}, {SIDE}")
        with b.loop("%n0", "%n1", str(SIDE)) as n:
            start = minimum(b, n, furthest)
            column = operand_at(b, by, args, Word.B, "0", start)
            by_height(
                b,
                "call void @turned_tile_{}(ptr %a, "
                f"i64 {args(ProductWord.A_STRIDE)}, ptr {column}, i64 {step}, "
                f"i64 {args(ProductWord.K)}, i64 %head, "
                "ptr %sums)",
                "%rows",
            )
            over = b.op(f"sub i64 {n}, {start}")
            count = minimum(b, b.op(f"sub i64 %n1, {n}"), str(SIDE))
            b(
                "call void @turned_write(ptr %args, ptr %sums, i64 %b0, i64 %b1, "
                f"i64 %rows, i64 {n}, i64 {count}, i64 {over})"
            )
        b("ret void")
    emit_task(b, "turned", a, by, Word.B + 4)


def _emit_tile(b: Builder, unit: Adds, by: Operand, height: int) -> None:
    """``turned_tile_H``: the sums of so many rows and 32 columns. Steps are in
    bytes."""
    with b.function(
        f"define internal void @turned_tile_{height}(ptr readonly %a, i64 %a_row, "
        "ptr readonly %b, i64 %step, i64 %k, i64 %head, ptr %sums)"
    ):
        rows = [skipped(b, "%a", str(i), "%a_row") for i in range(height)]
        with b.loop("0", str(SIDE), str(_LANES)) as column:
            first = skipped(b, "%b", column, "%step")
            zeros = [(FLOATS, "zeroinitializer")] * height
            with blocks(b, "%k", "%head", [*zeros, ("i64", "0")]) as (turn, count):
                *totals, at = turn.values
                lines = [b.op(f"getelementptr i8, ptr {x}, i64 {at}") for x in rows]
                place, columns = by.at(b, first, turn.index), []
                for _ in range(_LANES):
                    value = by.read(b, place, count, SIDE)
                    columns.append(
                        b.op(f"bitcast {by.vector(SIDE)} {value} to {WORDS}")
                    )
                    place = b.op(f"getelementptr i8, ptr {place}, i64 %step")
                words = [[word] for word in unit.turned(b, columns)]
                new = unit.added(b, [[total] for total in totals], lines, words)
                following = b.op(f"add i64 {at}, {LINE_BYTES}")
                turn.next = [*(total for (total,) in new), following]
            sums = skipped(b, "%sums", column, 4)
            for i, total in enumerate(turn.values[:-1]):
                place = b.op(f"getelementptr i8, ptr {sums}, i64 {i * SUMS_ROW}")
                b(f"store {FLOATS} {total}, ptr {place}, align 64")
        b("ret void")
