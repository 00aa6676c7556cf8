"""Products of few rows on tile registers (see `few_rows`): B is read once, and the rows
of A, of which a tile has room for sixteen, are in the cache.

Where k is contiguous, as in ``x @ w.T``, sixteen columns of B are rows of a tile where
they lie, and A, whose words have been turned, is the other one: products don't mind.
Where columns are, 32 rows of B are interleaved, 32 columns at a time, and added to sums
that stay in the cache.
"""

from __future__ import annotations

from treadle.backends.cpu.bfloat.few_rows import (
    COLUMNS,
    emit_task,
    emit_write,
)
from treadle.backends.cpu.bfloat.tiles import ROWS, Tiles
from treadle.backends.cpu.bfloat.unit import (
    LINE_BYTES,
    SIDE,
    SUMS_ROW,
    WORDS,
    Operand,
    skipped,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind, ProductWord, Tile, Word
from treadle.backends.cpu.gemm.pack import transposed
from treadle.backends.cpu.gemm.parts import Args, minimum, operand_at
from treadle.backends.cpu.gemm.tile import Machine
from treadle.dtypes import bfloat16

_AHEAD = 8 * LINE_BYTES
"""Bytes between what is read of a line of B and its prefetch."""

_HALVES = f"<{SIDE} x i16>"
_SQUARE = Machine("i32", Tile(lanes=WORDS, rows=ROWS), "")
_SUMS = ROWS * SUMS_ROW
"""Bytes of the sums of 32 columns."""


def emit_few(
    b: Builder, tiles: Tiles, a: Operand, by: Operand, c: Operand
) -> dict[Kind, str]:
    """Defines the functions of tasks; says for which kinds."""
    tiles.define(b)
    b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    _emit_turned(b, tiles, by, c)
    emit_task(b, "turned", a, by, Word.B + 4, around=_Turned(tiles))
    _emit_streamed(b, tiles, by, c)
    emit_task(b, "streamed", a, by, Word.B + 3, around=_Around(tiles))
    return {Kind.TURNED: "turned", Kind.STREAMED: "streamed"}


class _Around:
    """What a task does beside multiplying (see `emit_task`)."""

    def __init__(self, tiles: Tiles) -> None:
        self.configure, self.release = tiles.configure, tiles.release

    def prepare(self, b: Builder, rows: str, step: str, k: str) -> None:
        """Once A's rows are copied."""


class _Turned(_Around):
    def prepare(self, b: Builder, rows: str, step: str, k: str) -> None:
        """Turns words, where they are: a row of each pair of k has that of all rows."""
        with b.loop("0", k, str(SIDE)) as start:
            corner = skipped(b, rows, start, 2)
            _turn(b, corner, step, corner, step)


def _turn(b: Builder, source: str, step: str, to: str, to_step: str) -> None:
    """A square of words. Steps are in bytes."""
    places = [skipped(b, source, str(i), step) for i in range(WORDS)]
    rows = [b.op(f"load {_SQUARE.vector}, ptr {x}, align 64") for x in places]
    for i, row in enumerate(transposed(b, _SQUARE, rows)):
        place = skipped(b, to, str(i), to_step)
        b(f"store {_SQUARE.vector} {row}, ptr {place}, align 64")


def _prefetch(b: Builder, line: str) -> None:
    place = b.op(f"getelementptr i8, ptr {line}, i64 {_AHEAD}")
    b(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")


def _emit_turned(b: Builder, tiles: Tiles, by: Operand, c: Operand) -> None:
    """``turned_columns``: tiles 0 and 1 are sums of 32 columns, a row for each; 4 and 5
    those columns, 6 A's rows."""
    emit_write(b, "turned", c)
    with b.function(f"define internal void @turned_columns({COLUMNS}, i64 %head)"):
        args = Args(b)
        tiles.enter(b)
        square = b.op(f"alloca [{SIDE * LINE_BYTES} x i8], align 64")
        step = b.op(f"mul i64 {args(Word.B + 4)}, {by.dtype.itemsize}")
        a_row, k = args(ProductWord.A_STRIDE), args(ProductWord.K)
        with b.loop("%n0", "%n1", str(SIDE)) as n:
            count = minimum(b, b.op(f"sub i64 %n1, {n}"), str(SIDE))
            column = operand_at(b, by, args, Word.B, "0", n)
            whole = "0"
            if by.dtype == bfloat16:
                whole = b.op(f"and i64 {k}, {-SIDE}")
                full = b.op(f"icmp eq i64 {count}, {SIDE}")
                whole = b.op(f"select i1 {full}, i64 {whole}, i64 0")
            for tile in (0, 1):
                tiles.zero(b, tile)
            for direct, start, stop in ((True, "0", whole), (False, whole, k)):
                with b.loop(start, stop, str(SIDE)) as at:
                    lines, between = by.at(b, column, at), step
                    if direct:
                        for i in range(SIDE):
                            _prefetch(b, skipped(b, lines, str(i), step))
                    else:
                        left = b.op(f"sub i64 {k}, {at}")
                        _copy(b, by, (lines, step), (count, left), square)
                        lines, between = square, str(LINE_BYTES)
                    tiles.load(b, 6, skipped(b, "%a", at, 2), a_row)
                    tiles.load(b, 4, lines, between)
                    tiles.multiply(b, 0, 4, 6)
                    tiles.load(b, 5, skipped(b, lines, str(ROWS), between), between)
                    tiles.multiply(b, 1, 5, 6)
            for tile in (0, 1):
                half = b.op(
                    f"getelementptr i8, ptr {square}, i64 {tile * ROWS * LINE_BYTES}"
                )
                tiles.store(b, tile, half, str(LINE_BYTES))
                to = b.op(f"getelementptr i8, ptr %sums, i64 {tile * LINE_BYTES}")
                _turn(b, half, str(LINE_BYTES), to, str(SUMS_ROW))
            b(
                "call void @turned_write(ptr %args, ptr %sums, i64 %b0, i64 %b1, "
                f"i64 0, i64 %rows, i64 {n}, i64 {count}, i64 0)"
            )
        b("ret void")


def _copy(
    b: Builder, by: Operand, lines: tuple[str, str], sizes: tuple[str, str], to: str
) -> None:
    """32 elements of each of 32 lines, zeros where there are none."""
    (first, step), (count, left) = lines, sizes
    with b.loop("0", str(SIDE)) as i:
        inside = b.op(f"icmp slt i64 {i}, {count}")
        length = b.op(f"select i1 {inside}, i64 {left}, i64 0")
        value = by.read(b, skipped(b, first, i, step), length, SIDE)
        place = skipped(b, to, i, LINE_BYTES)
        b(f"store {by.vector(SIDE)} {value}, ptr {place}, align 64")


def _emit_streamed(b: Builder, tiles: Tiles, by: Operand, c: Operand) -> None:
    """``streamed_columns``: tiles 0 and 1 are sums of 32 columns, 4 is rows of A, 6 and
    7 rows of B, interleaved."""
    emit_write(b, "streamed", c)
    with b.function(f"define internal void @streamed_columns({COLUMNS}, i64 %head)"):
        args = Args(b)
        tiles.enter(b)
        panel = b.op(f"alloca [{SIDE * LINE_BYTES} x i8], align 64")
        right = b.op(f"getelementptr i8, ptr {panel}, i64 {LINE_BYTES}")
        k, step = args(ProductWord.K), args(Word.B + 3)
        step = b.op(f"mul i64 {step}, {by.dtype.itemsize}")
        columns = b.op("sub i64 %n1, %n0")
        with b.loop("0", k, str(SIDE)) as k0:
            first = operand_at(b, by, args, Word.B, k0, "%n0")
            length = b.op(f"sub i64 {k}, {k0}")
            deep = b.op(f"icmp sge i64 {length}, {SIDE}")
            fresh = b.op(f"icmp eq i64 {k0}, 0")
            tiles.load(b, 4, skipped(b, "%a", k0, 2), args(ProductWord.A_STRIDE))
            with b.carrying("0", columns, str(SIDE), [("ptr", "%sums")]) as turn:
                (sums,) = turn.values
                others = b.op(f"getelementptr i8, ptr {sums}, i64 {LINE_BYTES}")
                lines = by.at(b, first, turn.index), step
                left = b.op(f"sub i64 {columns}, {turn.index}")
                whole = b.op(f"icmp sge i64 {left}, {SIDE}")
                whole = b.op(f"and i1 {whole}, {deep}")
                with b.when(whole):
                    _interleave(b, by, lines, None, panel)
                with b.when(b.op(f"xor i1 {whole}, true")):
                    _interleave(b, by, lines, (length, left), panel)
                with b.when(fresh):
                    tiles.zero(b, 0)
                    tiles.zero(b, 1)
                with b.when(b.op(f"xor i1 {fresh}, true")):
                    tiles.load(b, 0, sums, str(SUMS_ROW))
                    tiles.load(b, 1, others, str(SUMS_ROW))
                for tile, half, total in ((0, panel, sums), (1, right, others)):
                    tiles.load(b, 6 + tile, half, str(2 * LINE_BYTES))
                    tiles.multiply(b, tile, 4, 6 + tile)
                    tiles.store(b, tile, total, str(SUMS_ROW))
                turn.next = [b.op(f"getelementptr i8, ptr {sums}, i64 {_SUMS}")]
        with b.carrying("0", columns, str(SIDE), [("ptr", "%sums")]) as turn:
            (sums,) = turn.values
            n = b.op(f"add i64 {turn.index}, %n0")
            count = minimum(b, b.op(f"sub i64 %n1, {n}"), str(SIDE))
            b(
                f"call void @streamed_write(ptr %args, ptr {sums}, i64 %b0, i64 %b1, "
                f"i64 0, i64 %rows, i64 {n}, i64 {count}, i64 0)"
            )
            turn.next = [b.op(f"getelementptr i8, ptr {sums}, i64 {_SUMS}")]
        b("ret void")


def _interleave(
    b: Builder,
    by: Operand,
    lines: tuple[str, str],
    sizes: tuple[str, str] | None,
    to: str,
) -> None:
    """Pairs of 32 lines, 32 columns of each. sizes: how many lines and columns there
    are, if not all."""
    first, step = lines
    with b.loop("0", str(SIDE), "2") as i:
        values = []
        for number in (i, b.op(f"add i64 {i}, 1")):
            line, count = skipped(b, first, number, step), None
            if sizes is None:
                _prefetch(b, line)
            else:
                inside = b.op(f"icmp slt i64 {number}, {sizes[0]}")
                count = b.op(f"select i1 {inside}, i64 {sizes[1]}, i64 0")
            values.append(by.read(b, line, count, SIDE))
        both = ", ".join(f"{_HALVES} {value}" for value in values)
        for half in (0, 1):
            lanes = range(half * SIDE // 2, (half + 1) * SIDE // 2)
            picks = ", ".join(f"i32 {j}, i32 {j + SIDE}" for j in lanes)
            words = b.op(f"shufflevector {both}, <{SIDE} x i32> <{picks}>")
            place = skipped(b, to, i, LINE_BYTES)
            place = b.op(f"getelementptr i8, ptr {place}, i64 {half * LINE_BYTES}")
            b(f"store {_HALVES} {words}, ptr {place}, align 64")
