"""Products of few rows with a B along whose columns k is contiguous, as ``x @ w.T``.

A line of each of sixteen columns, which has sixteen pairs (or fours of bytes), is
loaded and turned, in registers: into vectors of one pair of all columns each, which
meet all rows of A. The last 32 columns end with the columns, and only what no others
write is written.
"""

from __future__ import annotations

from treadle.backends.cpu.bfloat.few_rows import (
    COLUMNS,
    FEW_ROWS,
    FLOATS,
    HEIGHTS,
    Adds,
    blocks,
    by_height,
    emit_task,
    emit_write,
)
from treadle.backends.cpu.bfloat.unit import (
    SIDE,
    SUMS_ROW,
    Halves,
    Operand,
    skipped,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import ProductWord, Word
from treadle.backends.cpu.gemm.parts import Args, minimum, operand_at

_LANES = SIDE // 2
_AT_ONCE = 8
"""Elements of a column that are multiplied by one piece of assembly: what it reads is
in registers."""


def emit_turned(b: Builder, unit: Adds, a: Operand, by: Halves, c: Operand) -> None:
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
            over = b.op(f"sub i64 {n}, {start}")
            count = minimum(b, b.op(f"sub i64 %n1, {n}"), str(SIDE))
            # What the first rows have read of B is in the cache for the next ones.
            with b.loop("0", "%rows", str(FEW_ROWS)) as row:
                a_row = args(ProductWord.A_STRIDE)
                rows = minimum(b, b.op(f"sub i64 %rows, {row}"), str(FEW_ROWS))
                by_height(
                    b,
                    f"call void @turned_tile_{{}}(ptr {skipped(b, '%a', row, a_row)}, "
                    f"i64 {a_row}, ptr {column}, i64 {step}, "
                    f"i64 {args(ProductWord.K)}, i64 %head, ptr %sums)",
                    rows,
                )
                b(
                    "call void @turned_write(ptr %args, ptr %sums, i64 %b0, i64 %b1, "
                    f"i64 {row}, i64 {rows}, i64 {n}, i64 {count}, i64 {over})"
                )
        b("ret void")
    emit_task(b, "turned", a, by, Word.B + 4, by.along)


def _emit_tile(b: Builder, unit: Adds, by: Halves, height: int) -> None:
    """``turned_tile_H``: the sums of so many rows and 32 columns. Steps are in
    bytes."""
    with b.function(
        f"define internal void @turned_tile_{height}(ptr readonly %a, i64 %a_row, "
        "ptr readonly %b, i64 %step, i64 %k, i64 %head, ptr %sums)"
    ):
        rows = [skipped(b, "%a", str(i), "%a_row") for i in range(height)]
        each = by.along // _LANES  # elements of a word
        some = _AT_ONCE // each
        with b.loop("0", str(SIDE), str(_LANES)) as column:
            first = skipped(b, "%b", column, "%step")
            zeros = [(FLOATS, "zeroinitializer")] * height
            carried = [*zeros, ("i64", "0")]
            with blocks(b, "%k", "%head", carried, by.along) as (turn, count):
                *totals, at = turn.values
                lines = [b.op(f"getelementptr i8, ptr {x}, i64 {at}") for x in rows]
                place, columns = by.at(b, first, turn.index), []
                for _ in range(_LANES):
                    columns.append(by.words(b, place, count))
                    place = b.op(f"getelementptr i8, ptr {place}, i64 %step")
                words = unit.turned(b, columns)
                for start in range(0, len(words), some):
                    steps = [
                        [x]
                        for word in words[start : start + some]
                        for x in by.packed(b, word)
                    ]
                    at_k = 4 * each // by.group * start
                    places = [
                        b.op(f"getelementptr i8, ptr {line}, i64 {at_k}")
                        for line in lines
                    ]
                    sums = unit.added(b, [[x] for x in totals], places, steps)
                    totals = [x for (x,) in sums]
                following = b.op(f"add i64 {at}, {4 * by.along // by.group}")
                turn.next = [*totals, following]
            at_sums = skipped(b, "%sums", column, 4)
            for i, total in enumerate(turn.values[:-1]):
                place = b.op(f"getelementptr i8, ptr {at_sums}, i64 {i * SUMS_ROW}")
                b(f"store {FLOATS} {total}, ptr {place}, align 64")
        b("ret void")
