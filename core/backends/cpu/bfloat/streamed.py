"""Products of few rows with a B whose columns are contiguous, as in ``x @ w``.

A few rows of B are read from the first column of a chunk to the last one, side by side,
and added to sums that stay in the cache. Columns of two rows are interleaved, inside of
each 16 bytes, where that takes one instruction: sums of the first and of the second
half of each piece are put in order when they are written.
"""

from __future__ import annotations

from treadle.backends.cpu.bfloat.few_rows import (
    COLUMNS,
    FEW_ROWS,
    FLOATS,
    HEIGHTS,
    SUMS_BLOCK,
    WORDS,
    Adds,
    blocks,
    by_height,
    emit_task,
    emit_write,
    is_head,
)
from treadle.backends.cpu.bfloat.unit import (
    BYTES,
    SIDE,
    SUMS_ROW,
    Operand,
    pairs_of_bytes,
    skipped,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import ProductWord, Word
from treadle.backends.cpu.gemm.parts import Args, minimum, operand_at

_DEPTH = 16
"""Rows of B that are read side by side."""

_PIECE = 8
"""Elements in 16 bytes."""

_HALF = _PIECE // 2
_ORDER = [
    part * SIDE // 2 + piece + i
    for piece in range(0, SIDE // 2, _HALF)
    for part in (0, 1)
    for i in range(_HALF)
]


def emit_streamed(b: Builder, unit: Adds, a: Operand, by: Operand, c: Operand) -> None:
    """Defines ``streamed``: one task, of some batch elements and some columns."""
    for height in HEIGHTS:
        _emit_strip(b, unit, by, height)
    emit_write(b, "streamed", c, _ORDER if _interleaves(by) else None)
    with b.function(f"define internal void @streamed_columns({COLUMNS}, i64 %head)"):
        args = Args(b)
        k, step = args(ProductWord.K), args(Word.B + 3)
        step = b.op(f"mul i64 {step}, {by.dtype.itemsize}")
        columns = b.op("sub i64 %n1, %n0")
        with b.loop("0", k, str(_DEPTH)) as k0:
            line = operand_at(b, by, args, Word.B, k0, "%n0")
            length = minimum(b, b.op(f"sub i64 {k}, {k0}"), str(_DEPTH))
            by_height(
                b,
                f"call void @strip_{{}}(ptr {skipped(b, '%a', k0, 4 // by.group)}, "
                f"i64 {args(ProductWord.A_STRIDE)}, ptr {line}, i64 {step}, "
                f"i64 {columns}, i64 %head, i64 {length}, ptr %sums, "
                f"i1 {b.op(f'icmp eq i64 {k0}, 0')})",
                "%rows",
            )
        with blocks(b, columns, "%head", [("ptr", "%sums")]) as (turn, count):
            (sums,) = turn.values
            n = b.op(f"add i64 {turn.index}, %n0")
            b(
                f"call void @streamed_write(ptr %args, ptr {sums}, i64 %b0, i64 %b1, "
                f"i64 0, i64 %rows, i64 {n}, i64 {count}, i64 0)"
            )
            turn.next = [_following(b, turn.index, sums, 1)]
        b("ret void")
    emit_task(b, "streamed", a, by, Word.B + 3)


def _emit_strip(b: Builder, unit: Adds, by: Operand, height: int) -> None:
    """``strip_H``: a few rows of B, `length`, times so many rows of A. Steps are in
    bytes."""
    parts = 1 if height == FEW_ROWS else 2
    with b.function(
        f"define internal void @strip_{height}(ptr readonly %a, i64 %a_row, "
        "ptr readonly %b, i64 %step, i64 %columns, i64 %head, i64 %length, ptr %sums, "
        "i1 %fresh)"
    ):
        rows = [skipped(b, "%a", str(i), "%a_row") for i in range(height)]
        group = by.group
        even = b.op(f"and i64 %length, {-group}")
        each = parts * SIDE
        with blocks(b, "%columns", "%head", [("ptr", "%sums")], each) as (tile, some):
            (kept,), first = tile.values, by.at(b, "%b", tile.index)
            counts = [b.op(f"sub i64 {some}, {part * SIDE}") for part in range(parts)]
            tile.next = [_following(b, tile.index, kept, parts)]
            places = [
                b.op(f"getelementptr i8, ptr {kept}, i64 {at}")
                for part in range(parts)
                for i in range(height)
                for at in (
                    part * SUMS_BLOCK + i * SUMS_ROW,
                    part * SUMS_BLOCK + i * SUMS_ROW + SUMS_ROW // 2,
                )
            ]
            totals = []
            for place in places:
                old = b.op(f"load {FLOATS}, ptr {place}, align 64")
                kinds = f"i1 %fresh, {FLOATS} zeroinitializer, {FLOATS} {old}"
                totals.append(b.op(f"select {kinds}"))
            turns = [("0", even, group), (even, "%length", 1)][:group]
            for start, stop, each_time in turns:
                carried = [(FLOATS, total) for total in totals]
                with b.carrying(start, stop, str(each_time), carried) as turn:
                    line = skipped(b, first, turn.index, "%step")
                    words = _words(b, by, line, counts, each_time)
                    lines = [skipped(b, row, turn.index, 4 // group) for row in rows]
                    for part in range(parts):
                        mine = slice(2 * part * height, 2 * (part + 1) * height)
                        found = turn.values[mine]
                        sums = [found[i : i + 2] for i in range(0, 2 * height, 2)]
                        mine_words = words[2 * part : 2 * part + 2]
                        for new in unit.added(b, sums, lines, [mine_words]):
                            turn.next += new
                totals = turn.values
            for place, total in zip(places, totals, strict=True):
                b(f"store {FLOATS} {total}, ptr {place}, align 64")
        b("ret void")


def _following(b: Builder, column: str, sums: str, count: int) -> str:
    """Where sums of the next tile are, after those of so many times 32 columns. The
    head has the place of two."""
    skip = f"i64 {2 * SUMS_BLOCK}, i64 {count * SUMS_BLOCK}"
    skip = b.op(f"select i1 {is_head(b, '%head', column)}, {skip}")
    return b.op(f"getelementptr i8, ptr {sums}, i64 {skip}")


def _words(
    b: Builder, by: Operand, line: str, counts: list[str], rows: int
) -> list[str]:
    """Rows of B as words: of two, or one and zeros, of the first halves of pieces, and
    of the second ones (in order, if elements are bytes); of one, if elements are
    words."""
    vector, found = by.vector(SIDE), []
    lines = [line]
    if rows == 2:
        lines.append(b.op(f"getelementptr i8, ptr {line}, i64 %step"))
    for part, count in enumerate(counts):
        places = [by.at(b, x, str(part * SIDE)) for x in lines]
        if by.group == 2 and not _interleaves(by):
            found += pairs_of_bytes(b, by.dtype, places, count)
            continue
        values = [by.read(b, place, count, SIDE) for place in places]
        values += ["zeroinitializer"] * (2 - len(values))
        pair = ", ".join(f"{vector} {value}" for value in values)
        for half in (0, 1):
            picks = _interleaved(half) if by.group == 2 else _half(half)
            text = ", ".join(f"i32 {lane}" for lane in picks)
            value = b.op(f"shufflevector {pair}, <{len(picks)} x i32> <{text}>")
            kind = vector.replace(str(SIDE), str(len(picks)), 1)
            found.append(b.op(f"bitcast {kind} {value} to {WORDS}"))
    return found


def _interleaves(by: Operand) -> bool:
    """Whether columns of two rows are interleaved, as they lie in memory."""
    return by.group == 2 and by.dtype not in BYTES


def _interleaved(half: int) -> list[int]:
    return [
        piece + half * _HALF + i + which
        for piece in range(0, SIDE, _PIECE)
        for i in range(_HALF)
        for which in (0, SIDE)
    ]


def _half(half: int) -> list[int]:
    return list(range(half * SIDE // 2, (half + 1) * SIDE // 2))
