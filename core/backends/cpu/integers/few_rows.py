"""Products of few rows with a B along whose columns k is contiguous, as ``x @ w.T``.

Packing B would take longer than multiplying, so its columns are read where they lie: a
vector has 64 k of one column, and meets those of one or two rows of A, which are
packed. Lanes are added up when all k are done::

    for each batch element
        pack A
        for each chunk of columns
            for each eight columns, for each one or two rows: dots
            epilogue
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from treadle.backends.cpu.bfloat.unit import (
    BLOCK_BYTES,
    LINE_BYTES,
    SIDE,
    WORDS,
    Operand,
    skipped,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import ProductWord, Word
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    minimum,
    operand_at,
    own_scratch,
    owned_by_task,
)
from treadle.backends.cpu.integers.operand import Integers
from treadle.backends.cpu.run.divided import COLD

FEW_ROWS = 16
"""Most rows: of more, each column would be read too often."""

_COLUMNS = 8
_WORDS = f"<{WORDS} x i32>"
_SUMS = f"<{_COLUMNS} x i32>"


class Dots(Protocol):
    """What the kernel needs of a unit."""

    alike: bool

    def dot(self, b: Builder, total: str, a: str, by: str) -> str: ...

    def packed(self, b: Builder, rows: str, k: str) -> None: ...


def emit_few_rows(b: Builder, unit: Dots, a: Operand, by: Integers, c: Operand) -> None:
    """Defines ``few_rows``: one task, of some batch elements and some columns."""
    for rows in (1, 2):
        _emit_dots(b, unit, by, rows)
    _emit_element(b, unit, a, by, c)
    with b.function(
        "define internal void @few_rows(ptr %args, i64 %task, i64 %slot) " + COLD
    ):
        args = Args(b)
        (first, last), _, batches = owned_by_task(b, args, _COLUMNS)
        packed = own_scratch(b, args)
        skip = args(ProductWord.A_OFFSET)
        packed = b.op(f"getelementptr i8, ptr {packed}, i64 {skip}")
        with b.loop(*batches) as batch:
            b0 = b.op(f"udiv i64 {batch}, {args(ProductWord.BATCH1)}")
            b1 = b.op(f"urem i64 {batch}, {args(ProductWord.BATCH1)}")
            b(
                f"call void @some_columns(ptr %args, ptr {packed}, i64 {b0}, "
                f"i64 {b1}, i64 {first}, i64 {last})"
            )
        b("ret void")


def _emit_element(b: Builder, unit: Dots, a: Operand, by: Integers, c: Operand) -> None:
    """``some_columns``: all rows of a batch element times some columns."""
    with b.function(
        "define internal void @some_columns(ptr %args, ptr %packed, i64 %b0, i64 %b1, "
        "i64 %first, i64 %last)"
    ):
        args = Args(b)
        step = b.op(f"mul i64 {args(Word.B + 4)}, {by.dtype.itemsize}")
        c_row = b.op(f"mul i64 {args(Word.C + 3)}, {c.dtype.itemsize}")
        k, rows = args(ProductWord.K), args(ProductWord.TILE_LOW)
        given = operand_at(b, a, args, Word.A, "0", "0")
        b(
            f"call void @pack_rows(ptr {given}, i64 {args(Word.A + 3)}, "
            f"i64 {args(Word.A + 4)}, i64 {rows}, i64 {k}, ptr %packed, i64 0)"
        )
        unit.packed(b, "%packed", k)
        even = b.op(f"and i64 {rows}, -2")
        with b.loop("%first", "%last", args(ProductWord.CHUNK)) as n0:
            n1 = b.op(f"add i64 {n0}, {args(ProductWord.CHUNK)}")
            n1 = minimum(b, n1, "%last")
            with b.loop(n0, n1, str(_COLUMNS)) as n:
                count = minimum(b, b.op(f"sub i64 {n1}, {n}"), str(_COLUMNS))
                column = operand_at(b, by, args, Word.B, "0", n)
                target = operand_at(b, c, args, Word.C, "0", n)
                for start, stop, many in (("0", even, 2), (even, rows, 1)):
                    with b.loop(start, stop, str(many)) as row:
                        starts = skipped(
                            b, "%packed", b.op(f"sub i64 {row}, {SIDE}"), 4
                        )
                        b(
                            f"call void @dots_{many}("
                            f"ptr {skipped(b, '%packed', row, LINE_BYTES)}, "
                            f"ptr {starts}, ptr {column}, i64 {step}, i64 {count}, "
                            f"i64 {k}, ptr {skipped(b, target, row, c_row)}, "
                            f"i64 {c_row})"
                        )
            call_epilogue(b, args, "true", ("%b0", "%b1", "0", rows, n0, n1))
        b("ret void")


def _emit_dots(b: Builder, unit: Dots, by: Integers, rows: int) -> None:
    """``dots_1`` and ``dots_2``: rows times up to eight columns. Where there are fewer,
    the last one stands for those that there aren't."""
    with b.function(
        f"define internal void @dots_{rows}(ptr %a, ptr %starts, ptr %b, i64 %step, "
        "i64 %count, i64 %k, ptr %c, i64 %c_row)"
    ):
        last = b.op("sub i64 %count, 1")
        offsets = [
            b.op(f"mul i64 {minimum(b, str(j), last)}, %step") for j in range(_COLUMNS)
        ]
        whole = b.op(f"and i64 %k, {-by.depth}")
        totals = ["zeroinitializer"] * (rows * _COLUMNS)
        for start, stop in (("0", whole), (whole, "%k")):
            carried = [(_WORDS, total) for total in totals]
            with b.carrying(start, stop, str(by.depth), carried) as turn:
                left = None if start == "0" else b.op(f"sub i64 %k, {turn.index}")
                columns = _columns(b, by, turn.index, offsets, left)
                block = skipped(b, "%a", turn.index, BLOCK_BYTES // by.depth)
                turn.next = list(turn.values)
                lines = []
                for i in range(rows):
                    at = b.op(f"getelementptr i8, ptr {block}, i64 {i * LINE_BYTES}")
                    lines.append(b.op(f"load {_WORDS}, ptr {at}, align 64"))
                for j, column in enumerate(columns):
                    for i, line in enumerate(lines):
                        n = i * _COLUMNS + j
                        turn.next[n] = unit.dot(b, turn.values[n], line, column)
            totals = turn.values
        for i in range(rows):
            sums = _added_up(b, totals[i * _COLUMNS : (i + 1) * _COLUMNS])
            if unit.alike:
                at = b.op(f"getelementptr i32, ptr %starts, i64 {i}")
                start = _splat(b, b.op(f"load i32, ptr {at}, align 4"))
                sums = b.op(f"add {_SUMS} {sums}, {start}")
            _store(b, sums, skipped(b, "%c", str(i), "%c_row"))
        b("ret void")


def _columns(
    b: Builder, by: Integers, index: str, offsets: Sequence[str], left: str | None
) -> Iterator[str]:
    """64 k of each of the columns at some offsets, or as many as are `left`."""
    base, lanes = by.at(b, "%b", index), by.depth
    for offset in offsets:
        address = b.op(f"getelementptr i8, ptr {base}, i64 {offset}")
        value = by.read(b, address, left, lanes)
        yield b.op(f"bitcast {by.vector(lanes)} {value} to {_WORDS}")


def _added_up(b: Builder, totals: Sequence[str]) -> str:
    """The sums over all lanes of eight vectors."""
    vectors, stride = list(totals), 1
    while len(vectors) > 1:
        vectors = [
            _halved(b, vectors[i], vectors[i + 1], stride)
            for i in range(0, len(vectors), 2)
        ]
        stride *= 2
    (whole,) = vectors
    halves = []
    for start in (0, _COLUMNS):
        lanes = ", ".join(f"i32 {start + i}" for i in range(_COLUMNS))
        both = f"{_WORDS} {whole}, {_WORDS} poison"
        halves.append(b.op(f"shufflevector {both}, <{_COLUMNS} x i32> <{lanes}>"))
    return b.op(f"add {_SUMS} {halves[0]}, {halves[1]}")


def _halved(b: Builder, x: str, y: str, stride: int) -> str:
    """Each lane of one vector plus the one `stride` further on, and of the other."""
    picks: list[list[int]] = [[], []]
    for lane in range(WORDS):
        if lane & stride:
            pair = (lane ^ stride) + WORDS, lane + WORDS
        else:
            pair = lane, lane ^ stride
        for pick, one in zip(picks, pair, strict=True):
            pick.append(one)
    low, high = (
        b.op(
            f"shufflevector {_WORDS} {x}, {_WORDS} {y}, "
            f"<{WORDS} x i32> <{', '.join(f'i32 {i}' for i in pick)}>"
        )
        for pick in picks
    )
    return b.op(f"add {_WORDS} {low}, {high}")


def _splat(b: Builder, value: str) -> str:
    one = b.op(f"insertelement {_SUMS} poison, i32 {value}, i64 0")
    return b.op(f"shufflevector {_SUMS} {one}, {_SUMS} poison, {_SUMS} zeroinitializer")


def _store(b: Builder, sums: str, address: str) -> None:
    """As many sums as there are columns."""
    limit = _splat(b, b.op("trunc i64 %count to i32"))
    numbers = ", ".join(f"i32 {i}" for i in range(_COLUMNS))
    mask = b.op(f"icmp slt {_SUMS} <{numbers}>, {limit}")
    name, bits = f"@llvm.masked.store.v{_COLUMNS}i32.p0", f"<{_COLUMNS} x i1>"
    b.declare(f"void {name}({_SUMS}, ptr, {bits})")
    b(f"call void {name}({_SUMS} {sums}, ptr align 4 {address}, {bits} {mask})")
