"""Products of few rows with a large B that lies by rows, as in ``x @ w``.

A panel of B as narrow as a tile touches another page with every row, in an order that
no prefetcher follows. So a few rows of B are read from their start to their end, side
by side, and added to sums that stay in the cache::

    for each batch element
        for each chunk of columns
            for each piece of k, for each few k
                for each column tile, for each row tile: add to sums, or at last to C
            epilogue

A tile at an edge repeats its last row, and writes the same numbers twice. The last
column tile ends with the columns, and only what no other tile writes is written.
"""

from __future__ import annotations

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import ProductWord, Tile, Word
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    column_chunks,
    minimum,
    operand_at,
    own_scratch,
    pieces,
)
from treadle.backends.cpu.gemm.tile import (
    Machine,
    masked_store,
    multiply_add,
    splat,
)
from treadle.backends.cpu.run.divided import COLD

_VECTORS = 4
_LONG_ROW = 1 << 12
"""Bytes of a row of B, from which on a panel's rows are pages apart."""

_AHEAD = 512
"""Bytes ahead of those that are read, to be asked for by tiles that take long."""


def streamed_columns(tile: Tile) -> int:
    """Columns of a tile."""
    return _VECTORS * tile.lanes


def streamed_rows(tile: Tile, row_bytes: int) -> int:
    """Most rows of A for which it pays, by the length of a row of B."""
    few, most = (4, 16) if _heights(tile)[-1] == 4 else (2, 4)
    return 0 if row_bytes < _LONG_ROW else few if row_bytes < 2 * _LONG_ROW else most


def _heights(tile: Tile) -> tuple[int, ...]:
    """Rows that a tile may have: what registers hold."""
    return (1, 2) if tile.rows < 13 else (1, 4)


def _depth(height: int) -> int:
    """How many rows of B are read side by side. More than 16 are too many for the
    prefetchers, and fewer rewrite C too often for what they are multiplied by."""
    return 8 if height == 1 else 16


def emit_streamed(b: Builder, machine: Machine) -> None:
    """Defines ``streamed``: one task, of some batch elements and some column tiles."""
    for height in _heights(machine.tile):
        _emit_strip(b, machine, height)
    _emit_chunk(b, machine)
    with b.function(
        "define internal void @streamed(ptr %args, i64 %task, i64 %slot) " + COLD
    ):
        args = Args(b)
        scratch = own_scratch(b, args)
        with column_chunks(b, args) as (b0, b1, t0, t1):
            b(
                f"call void @some_streams(ptr %args, ptr {scratch}, i64 {b0}, "
                f"i64 {b1}, i64 {t0}, i64 {t1})"
            )
        b("ret void")


def _emit_chunk(b: Builder, machine: Machine) -> None:
    """``some_streams``: column tiles t0 to t1 of a batch element."""
    with b.function(
        "define internal void @some_streams(ptr %args, ptr %scratch, i64 %b0, "
        "i64 %b1, i64 %t0, i64 %t1) " + COLD
    ):
        args = Args(b)
        width = streamed_columns(machine.tile)
        rows, n = args(ProductWord.ROWS), args(ProductWord.N)
        first = b.op(f"mul i64 %t0, {width}")
        last = minimum(b, b.op(f"mul i64 %t1, {width}"), n)
        columns = b.op(f"sub i64 {last}, {first}")
        lower, heights = 0, _heights(machine.tile)
        for height in heights:
            above = b.op(f"icmp sgt i64 {rows}, {lower}")
            within = "true" if height == heights[-1] else f"{height}"
            if within != "true":
                within = b.op(f"icmp sle i64 {rows}, {height}")
            with b.when(b.op(f"and i1 {above}, {within}")):
                _emit_strips(b, machine, args, height, (first, columns))
            lower = height
        call_epilogue(b, args, "true", ("%b0", "%b1", "0", rows, first, last))
        b("ret void")


def _emit_strips(
    b: Builder, machine: Machine, args: Args, height: int, where: tuple[str, str]
) -> None:
    """All k, few at a time. where: the first column, and how many."""
    first, columns = where
    size = machine.itemsize
    steps = [
        b.op(f"mul i64 {args(word)}, {size}")
        for word in (Word.A + 3, Word.A + 4, Word.B + 3, Word.C + 3)
    ]
    depth = _depth(height)
    c = operand_at(b, machine, args, Word.C, "0", first)
    with pieces(b, args) as (k0, k1), b.loop(k0, k1, str(depth)) as k:
        left = b.op(f"sub i64 {k1}, {k}")
        length = minimum(b, left, str(depth))
        begins = b.op(f"icmp eq i64 {k}, {k0}")
        ends = b.op(f"icmp sle i64 {left}, {depth}")
        later = b.op(f"icmp ne i64 {k0}, 0")
        a = operand_at(b, machine, args, Word.A, "0", k)
        line = operand_at(b, machine, args, Word.B, k, first)
        b(
            f"call void @stream_{height}(ptr {a}, i64 {steps[0]}, i64 {steps[1]}, "
            f"ptr {line}, i64 {steps[2]}, ptr %scratch, ptr {c}, i64 {steps[3]}, "
            f"i64 {args(ProductWord.ROWS)}, i64 {length}, i64 {columns}, "
            f"i1 {begins}, i1 {ends}, i1 {later})"
        )


def _emit_strip(b: Builder, machine: Machine, height: int) -> None:
    """``stream_H``: a few k of all rows and some columns. Steps are in bytes.

    They are the first of a piece of k (begins), the last (ends), or neither: sums are
    kept from one to the next, and written to C at the end, or added to what is there
    (later)."""
    width, scalar = streamed_columns(machine.tile), machine.scalar
    with b.function(
        f"define internal void @stream_{height}(ptr readonly %a, i64 %a_row, "
        "i64 %a_column, ptr readonly %b, i64 %b_row, ptr %kept, ptr %c, i64 %c_row, "
        "i64 %rows, i64 %length, i64 %columns, i1 %begins, i1 %ends, i1 %later)"
    ):
        last = b.op("sub i64 %rows, 1")
        line = str(width * machine.itemsize)
        furthest = b.op(f"sub i64 %columns, {width}")
        with (
            b.loop("0", "%columns", str(width)) as n,
            b.loop("0", "%rows", str(height)) as r,
        ):
            numbers = [r]
            for i in range(1, height):
                numbers.append(minimum(b, b.op(f"add i64 {r}, {i}"), last))
            lines = [_row_at(b, "%a", number, "%a_row") for number in numbers]
            start = minimum(b, n, furthest)
            panel = b.op(f"getelementptr {scalar}, ptr %b, i64 {start}")
            skipped = b.op(f"mul i64 {n}, %rows")
            kept = b.op(f"getelementptr {scalar}, ptr %kept, i64 {skipped}")
            kept_lines = [_row_at(b, kept, number, line) for number in numbers]
            sums = _loaded(b, machine, kept_lines, "%begins")
            sums = _emit_sums(b, machine, lines, panel, sums)
            with b.when("%ends"):
                strip = b.op(f"getelementptr {scalar}, ptr %c, i64 {start}")
                targets = [_row_at(b, strip, number, "%c_row") for number in numbers]
                _write(b, machine, sums, targets, b.op(f"sub i64 {n}, {start}"))
            with b.when(b.op("xor i1 %ends, true")):
                _store(b, machine, sums, kept_lines)
        b("ret void")


def _row_at(b: Builder, base: str, number: str, step: str) -> str:
    skipped = b.op(f"mul i64 {number}, {step}")
    return b.op(f"getelementptr i8, ptr {base}, i64 {skipped}")


def _places(b: Builder, machine: Machine, lines: list[str]) -> list[str]:
    """Addresses of a tile's vectors, row by row."""
    return [
        b.op(f"getelementptr {machine.vector}, ptr {line}, i64 {j}")
        for line in lines
        for j in range(_VECTORS)
    ]


def _loaded(b: Builder, machine: Machine, lines: list[str], fresh: str) -> list[str]:
    """A tile's sums so far: zeros if they are fresh."""
    vector, align = machine.vector, machine.itemsize
    zero = splat(b, machine, fresh, "i1")
    found = []
    for place in _places(b, machine, lines):
        old = b.op(f"load {vector}, ptr {place}, align {align}")
        kinds = f"{machine.mask} {zero}, {vector} zeroinitializer, {vector} {old}"
        found.append(b.op(f"select {kinds}"))
    return found


def _emit_sums(
    b: Builder, machine: Machine, lines: list[str], panel: str, sums: list[str]
) -> list[str]:
    """A tile's sums over k, row by row."""
    vector, scalar, align = machine.vector, machine.scalar, machine.itemsize
    ahead = len(lines) > 2
    if ahead:
        b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    with b.carrying("0", "%length", "1", [(vector, each) for each in sums]) as turn:
        row = _row_at(b, panel, turn.index, "%b_row")
        vectors = []
        for address in _places(b, machine, [row]):
            vectors.append(b.op(f"load {vector}, ptr {address}, align {align}"))
            if ahead:
                later = b.op(f"getelementptr i8, ptr {address}, i64 {_AHEAD}")
                b(f"call void @llvm.prefetch.p0(ptr {later}, i32 0, i32 3, i32 1)")
        for i, line in enumerate(lines):
            place = _row_at(b, line, turn.index, "%a_column")
            element = b.op(f"load {scalar}, ptr {place}, align {align}")
            factor = splat(b, machine, element, scalar)
            for j, value in enumerate(vectors):
                old = turn.values[i * _VECTORS + j]
                turn.next.append(multiply_add(b, machine, factor, value, old))
    return turn.values


def _write(
    b: Builder, machine: Machine, sums: list[str], targets: list[str], skipped: str
) -> None:
    """Rows that stand twice are read before either is written. The first `skipped`
    columns are not."""
    keep = splat(b, machine, "%later", "i1")
    vector, align = machine.vector, machine.itemsize
    places = _places(b, machine, targets)
    new = []
    for value, place in zip(sums, places, strict=True):
        old = b.op(f"load {vector}, ptr {place}, align {align}")
        both = b.op(f"{machine.add} {vector} {value}, {old}")
        kinds = f"{machine.mask} {keep}, {vector} {both}, {vector} {value}"
        new.append(b.op(f"select {kinds}"))
    masks = [_from(b, machine, skipped, j) for j in range(_VECTORS)]
    for i, (value, place) in enumerate(zip(new, places, strict=True)):
        masked_store(b, machine, value, place, masks[i % _VECTORS])


def _from(b: Builder, machine: Machine, skipped: str, vector: int) -> str:
    """Which columns of a tile's vector are not skipped."""
    lanes = machine.tile.lanes
    first = splat(b, machine, b.op(f"trunc i64 {skipped} to i32"), "i32")
    numbers = ", ".join(f"i32 {vector * lanes + lane}" for lane in range(lanes))
    return b.op(f"icmp sge <{lanes} x i32> <{numbers}>, {first}")


def _store(b: Builder, machine: Machine, values: list[str], lines: list[str]) -> None:
    vector, align = machine.vector, machine.itemsize
    for value, place in zip(values, _places(b, machine, lines), strict=True):
        b(f"store {vector} {value}, ptr {place}, align {align}")
