"""Products of very few rows with a B that lies transposed, as in ``x @ w.T``.

As `few_rows`, but for so few rows that each element of B would be loaded for a product
or two. Instead, a few k of a vector's length of columns are loaded and turned, in
registers: into vectors of one k each, which meet all rows of A::

    for each batch element
        for each chunk of column tiles
            for each column tile, for each piece of k, for each few k
                turn them; for each row of A: add a vector
            epilogue

A is repeated where it has fewer rows than there are sums. The last column tile ends
with the columns, and only what no other tile writes is written.
"""

from __future__ import annotations

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import ProductWord, Word
from treadle.backends.cpu.gemm.parts import (
    COLD,
    Args,
    call_epilogue,
    column_chunks,
    minimum,
    operand_at,
    pieces,
)
from treadle.backends.cpu.gemm.tile import (
    Machine,
    masked_store,
    multiply_add,
    splat,
)

TURNED_ROWS = 4
"""Rows of a tile, and most rows of A: of more, a vector of them is met at once."""

_BLOCK_BYTES = 16
"""Inside of which elements are turned; blocks are loaded where they belong."""


def emit_turned_rows(b: Builder, machine: Machine) -> None:
    """Defines ``turned``: one task, of some batch elements and some column tiles."""
    _emit_tile(b, machine)
    _emit_chunk(b, machine)
    with b.function("define internal void @turned(ptr %args, i64 %task) " + COLD):
        args = Args(b)
        with column_chunks(b, args) as (b0, b1, t0, t1):
            where = f"i64 {b0}, i64 {b1}, i64 {t0}, i64 {t1}"
            b(f"call void @some_turned(ptr %args, {where})")
        b("ret void")


def _emit_chunk(b: Builder, machine: Machine) -> None:
    """``some_turned``: column tiles t0 to t1 of a batch element, and the epilogue."""
    lanes, size = machine.tile.lanes, machine.itemsize
    with b.function(
        "define internal void @some_turned(ptr %args, i64 %b0, i64 %b1, i64 %t0, "
        "i64 %t1) " + COLD
    ):
        args = Args(b)
        n, rows = args(ProductWord.N), args(ProductWord.ROWS)
        steps = [
            b.op(f"mul i64 {args(word)}, {size}")
            for word in (Word.A + 3, Word.A + 4, Word.B + 4, Word.C + 3)
        ]
        with b.loop("%t0", "%t1") as t:
            n0 = b.op(f"mul i64 {t}, {lanes}")
            start = minimum(b, n0, b.op(f"sub i64 {n}, {lanes}"))
            skipped = b.op(f"sub i64 {n0}, {start}")
            c = operand_at(b, machine, args, Word.C, "0", start)
            with pieces(b, args) as (k0, k1):
                later = b.op(f"icmp ne i64 {k0}, 0")
                length = b.op(f"sub i64 {k1}, {k0}")
                a = operand_at(b, machine, args, Word.A, "0", k0)
                column = operand_at(b, machine, args, Word.B, k0, start)
                b(
                    f"call void @turned_tile(ptr {a}, i64 {steps[0]}, i64 {steps[1]}, "
                    f"ptr {column}, i64 {steps[2]}, ptr {c}, i64 {steps[3]}, "
                    f"i64 {rows}, i64 {skipped}, i64 {length}, i1 {later})"
                )
        first = b.op(f"mul i64 %t0, {lanes}")
        last = minimum(b, b.op(f"mul i64 %t1, {lanes}"), n)
        call_epilogue(b, args, "true", ("%b0", "%b1", "0", rows, first, last))
        b("ret void")


def _emit_tile(b: Builder, machine: Machine) -> None:
    """``turned_tile``: a few rows of A times a vector's length of columns of B, of
    which the first `skipped` are not written. Steps are in bytes."""
    with b.function(
        "define internal void @turned_tile(ptr readonly %a, i64 %a_row, "
        "i64 %a_column, ptr readonly %b, i64 %b_column, ptr %c, i64 %c_row, "
        "i64 %rows, i64 %skipped, i64 %length, i1 %later)"
    ):
        last = b.op("sub i64 %rows, 1")
        numbers = [minimum(b, str(i), last) for i in range(TURNED_ROWS)]
        lines = [_at(b, "%a", number, "%a_row") for number in numbers]
        at_once = _BLOCK_BYTES // machine.itemsize
        whole = b.op(f"and i64 %length, {-at_once}")
        carried = [(machine.vector, "zeroinitializer")] * TURNED_ROWS
        with b.carrying("0", whole, str(at_once), carried) as turn:
            sums = turn.values
            for i, vector in enumerate(_turned(b, machine, turn.index)):
                k = b.op(f"add i64 {turn.index}, {i}")
                sums = _added(b, machine, lines, k, vector, sums)
            turn.next = sums
        carried = [(machine.vector, value) for value in turn.values]
        with b.carrying(whole, "%length", "1", carried) as turn:
            vector = _gathered(b, machine, turn.index)
            turn.next = _added(b, machine, lines, turn.index, vector, turn.values)
        targets = [_at(b, "%c", number, "%c_row") for number in numbers]
        _write(b, machine, turn.values, targets)
        b("ret void")


def _at(b: Builder, base: str, number: str, step: str) -> str:
    skipped = b.op(f"mul i64 {number}, {step}")
    return b.op(f"getelementptr i8, ptr {base}, i64 {skipped}")


def _turned(b: Builder, machine: Machine, k: str) -> list[str]:
    """Vectors of all columns, for each of the k of a block."""
    scalar, lanes = machine.scalar, machine.tile.lanes
    each = _BLOCK_BYTES // machine.itemsize
    start = b.op(f"getelementptr {scalar}, ptr %b, i64 {k}")
    columns = []
    for number in range(lanes):
        if number % 4 == 0:
            line = _at(b, start, str(number), "%b_column")
        place = _at(b, line, str(number % 4), "%b_column")
        block = f"<{each} x {scalar}>"
        loaded = b.op(f"load {block}, ptr {place}, align {machine.itemsize}")
        columns.append(loaded)
    vectors = [
        _joined(b, machine, columns[i::each], each) for i in range(each)
    ]  # those of columns i, each + i, ...: a block of each, in their order
    width = 1
    while width < each:
        vectors = _interleaved(b, machine, vectors, width)
        width *= 2
    return vectors


def _joined(b: Builder, machine: Machine, parts: list[str], size: int) -> str:
    """Vectors one after the other as one."""
    while len(parts) > 1:
        kind = f"<{size} x {machine.scalar}>"
        picks = ", ".join(f"i32 {i}" for i in range(2 * size))
        parts = [
            b.op(f"shufflevector {kind} {x}, {kind} {y}, <{2 * size} x i32> <{picks}>")
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
        size *= 2
    return parts[0]


def _interleaved(
    b: Builder, machine: Machine, vectors: list[str], width: int
) -> list[str]:
    """One step of turning squares inside blocks: exchanges what is `width` apart."""
    lanes, kind = machine.tile.lanes, machine.vector
    found = list(vectors)
    for i, x in enumerate(vectors):
        if i & width:
            continue
        y = vectors[i | width]
        for place, second in ((i, 0), (i | width, width)):
            picks = ", ".join(
                f"i32 {(j & ~width) + second + (lanes if j & width else 0)}"
                for j in range(lanes)
            )
            found[place] = b.op(
                f"shufflevector {kind} {x}, {kind} {y}, <{lanes} x i32> <{picks}>"
            )
    return found


def _gathered(b: Builder, machine: Machine, k: str) -> str:
    """The vector of one k, element by element."""
    lanes, scalar = machine.tile.lanes, machine.scalar
    steps = splat(b, machine, "%b_column", "i64")
    numbers = ", ".join(f"i64 {lane}" for lane in range(lanes))
    offsets = b.op(f"mul <{lanes} x i64> {steps}, <{numbers}>")
    start = b.op(f"getelementptr {scalar}, ptr %b, i64 {k}")
    places = b.op(f"getelementptr i8, ptr {start}, <{lanes} x i64> {offsets}")
    name = f"@llvm.masked.gather.{machine.suffix}.v{lanes}p0"
    kinds = f"<{lanes} x ptr>", "i32", machine.mask, machine.vector
    b.declare(f"{machine.vector} {name}({', '.join(kinds)})")
    all_lanes = ", ".join(["i1 true"] * lanes)
    return b.op(
        f"call {machine.vector} {name}({kinds[0]} {places}, i32 {machine.itemsize}, "
        f"{machine.mask} <{all_lanes}>, {machine.vector} poison)"
    )


def _added(
    b: Builder,
    machine: Machine,
    lines: list[str],
    k: str,
    vector: str,
    sums: list[str],
) -> list[str]:
    new = []
    for line, total in zip(lines, sums, strict=True):
        place = _at(b, line, k, "%a_column")
        element = f"load {machine.scalar}, ptr {place}, align {machine.itemsize}"
        factor = splat(b, machine, b.op(element), machine.scalar)
        new.append(multiply_add(b, machine, factor, vector, total))
    return new


def _write(b: Builder, machine: Machine, sums: list[str], targets: list[str]) -> None:
    """Rows that stand twice are read before either is written."""
    lanes, vector, align = machine.tile.lanes, machine.vector, machine.itemsize
    skipped = b.op("trunc i64 %skipped to i32")
    skipped = splat(b, machine, skipped, "i32")
    numbers = ", ".join(f"i32 {lane}" for lane in range(lanes))
    mask = b.op(f"icmp sge <{lanes} x i32> <{numbers}>, {skipped}")
    keep = splat(b, machine, "%later", "i1")
    new = []
    for value, place in zip(sums, targets, strict=True):
        old = b.op(f"load {vector}, ptr {place}, align {align}")
        both = b.op(f"{machine.add} {vector} {value}, {old}")
        kinds = f"{machine.mask} {keep}, {vector} {both}, {vector} {value}"
        new.append((place, b.op(f"select {kinds}")))
    for place, value in new:
        masked_store(b, machine, value, place, mask)
