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
from treadle.backends.cpu.gemm.arguments import ProductWord, Tile, Word
from treadle.backends.cpu.gemm.pack import joined, transposed
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    column_chunks,
    minimum,
    operand_at,
    pieces,
)
from treadle.backends.cpu.gemm.square_x86 import turned_square
from treadle.backends.cpu.gemm.tile import (
    Machine,
    lane_mask,
    masked_load,
    masked_store,
    multiply_add,
    splat,
)
from treadle.backends.cpu.run.divided import COLD

TURNED_ROWS = 4
"""Rows of a tile, and most rows of A: of more, a vector of them is met at once."""

_HEIGHTS = 1, TURNED_ROWS
_LINE_BYTES = 64
_BLOCK_BYTES = 16
"""Inside of which elements are turned where registers are short; blocks are loaded
where they belong."""


def emit_turned_rows(b: Builder, machine: Machine) -> None:
    """Defines ``turned``: one task, of some batch elements and some column tiles."""
    _emit_square(b, machine)
    for height in _HEIGHTS:
        _emit_tile(b, machine, height)
    _emit_chunk(b, machine)
    with b.function(
        "define internal void @turned(ptr %args, i64 %task, i64 %slot) " + COLD
    ):
        args = Args(b)
        with column_chunks(b, args) as (b0, b1, t0, t1):
            where = f"i64 {b0}, i64 {b1}, i64 {t0}, i64 {t1}"
            b(f"call void @some_turned(ptr %args, {where})")
        b("ret void")


def _emit_chunk(b: Builder, machine: Machine) -> None:
    """``some_turned``: column tiles t0 to t1 of a batch element, and the epilogue."""
    width, size = turned_columns(machine.tile), machine.itemsize
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
            n0 = b.op(f"mul i64 {t}, {width}")
            start = minimum(b, n0, b.op(f"sub i64 {n}, {width}"))
            skipped = b.op(f"sub i64 {n0}, {start}")
            c = operand_at(b, machine, args, Word.C, "0", start)
            with pieces(b, args) as (k0, k1):
                later = b.op(f"icmp ne i64 {k0}, 0")
                length = b.op(f"sub i64 {k1}, {k0}")
                a = operand_at(b, machine, args, Word.A, "0", k0)
                column = operand_at(b, machine, args, Word.B, k0, start)
                given = (
                    f"ptr {a}, i64 {steps[0]}, i64 {steps[1]}, ptr {column}, "
                    f"i64 {steps[2]}, ptr {c}, i64 {steps[3]}, i64 {rows}, "
                    f"i64 {skipped}, i64 {length}, i1 {later}"
                )
                alone = b.op(f"icmp eq i64 {rows}, 1")
                for height, here in zip(
                    _HEIGHTS, (alone, b.op(f"xor i1 {alone}, true")), strict=True
                ):
                    with b.when(here):
                        b(f"call void @turned_tile_{height}({given})")
        first = b.op(f"mul i64 %t0, {width}")
        last = minimum(b, b.op(f"mul i64 %t1, {width}"), n)
        call_epilogue(b, args, "true", ("%b0", "%b1", "0", rows, first, last))
        b("ret void")


def _emit_square(b: Builder, machine: Machine) -> None:
    """``turn_square``: some elements of each of a vector's length of columns, turned.
    Steps are in bytes."""
    vector = machine.vector
    with b.function(
        "define internal void @turn_square(ptr readonly %from, i64 %step, i64 %some, "
        "ptr %to)"
    ):
        for number, x in enumerate(_some_turned(b, machine)):
            place = b.op(f"getelementptr {vector}, ptr %to, i64 {number}")
            b(f"store {vector} {x}, ptr {place}, align {machine.itemsize}")
        b("ret void")


def _some_turned(b: Builder, machine: Machine) -> list[str]:
    if _by_assembly(machine):
        return turned_square(b, "%from", "%step", "%some")
    mask, rows, line = lane_mask(b, machine, "%some"), [], "%from"
    for number in range(machine.tile.lanes):
        line = _at(b, line, "1", "%step") if number else line
        rows.append(masked_load(b, machine, line, mask))
    return transposed(b, machine, rows)


def _by_assembly(machine: Machine) -> bool:
    return machine.assembly == "avx512" and machine.scalar == "float"


def _emit_tile(b: Builder, machine: Machine, height: int) -> None:
    """``turned_tile_H``: up to so many rows of A times some columns of B, of which the
    first `skipped` are not written. Steps are in bytes."""
    lanes, vector = machine.tile.lanes, machine.vector
    with b.function(
        f"define internal void @turned_tile_{height}(ptr readonly %a, i64 %a_row, "
        "i64 %a_column, ptr readonly %b, i64 %b_column, ptr %c, i64 %c_row, "
        "i64 %rows, i64 %skipped, i64 %length, i1 %later)"
    ):
        square = b.op(f"alloca [{lanes} x {vector}], align 64")
        last = b.op("sub i64 %rows, 1")
        numbers = [minimum(b, str(i), last) for i in range(height)]
        lines = [_at(b, "%a", number, "%a_row") for number in numbers]
        groups = [
            _at(b, "%b", str(lanes * group), "%b_column") if group else "%b"
            for group in range(_groups(machine.tile))
        ]
        whole = b.op(f"and i64 %length, {-_at_once(machine)}")
        sums = _whole_sums(b, machine, lines, groups, whole)
        rest = b.op(f"sub i64 %length, {whole}")
        for number, group in enumerate(groups):
            start = b.op(f"getelementptr {machine.scalar}, ptr {group}, i64 {whole}")
            b(
                f"call void @turn_square(ptr {start}, i64 %b_column, i64 {rest}, "
                f"ptr {square})"
            )
            carried = [(vector, value) for value in sums[number]]
            with b.carrying("0", rest, "1", carried) as turn:
                place = b.op(f"getelementptr {vector}, ptr {square}, i64 {turn.index}")
                x = b.op(f"load {vector}, ptr {place}, align {machine.itemsize}")
                k = b.op(f"add i64 {whole}, {turn.index}")
                turn.next = _added(b, machine, lines, k, x, turn.values)
            skipped = b.op(f"sub i64 %skipped, {number * lanes}")
            targets = [_at(b, "%c", i, "%c_row") for i in numbers]
            targets = [
                b.op(f"getelementptr {vector}, ptr {place}, i64 {number}")
                for place in targets
            ]
            _write(b, machine, turn.values, targets, skipped)
        b("ret void")


def _whole_sums(
    b: Builder, machine: Machine, lines: list[str], groups: list[str], whole: str
) -> list[list[str]]:
    """For each vector of columns, the sums of rows, over the k that are turned in
    registers. One has read a line of memory of its columns before the next one begins:
    columns that are a power of two apart can't all be in the cache."""
    height, at_once = len(lines), _at_once(machine)
    line = max(at_once, _LINE_BYTES // machine.itemsize)
    carried = [(machine.vector, "zeroinitializer")] * height * len(groups)

    def mine(values: list[str]) -> list[list[str]]:
        return [values[i : i + height] for i in range(0, len(values), height)]

    with b.carrying("0", whole, str(line), carried) as turn:
        end = minimum(b, b.op(f"add i64 {turn.index}, {line}"), whole)
        for group, sums in zip(groups, mine(turn.values), strict=True):
            if at_once == line:
                turn.next += _block_sums(b, machine, lines, group, turn.index, sums)
                continue
            begun = [(machine.vector, value) for value in sums]
            with b.carrying(turn.index, end, str(at_once), begun) as inner:
                inner.next = _block_sums(
                    b, machine, lines, group, inner.index, inner.values
                )
            turn.next += inner.values
    return mine(turn.values)


def _block_sums(
    b: Builder,
    machine: Machine,
    lines: list[str],
    group: str,
    first: str,
    sums: list[str],
) -> list[str]:
    """Sums of rows, with the k added that are turned at once."""
    start = b.op(f"getelementptr {machine.scalar}, ptr {group}, i64 {first}")
    for i, x in enumerate(_turned(b, machine, start)):
        k = b.op(f"add i64 {first}, {i}")
        sums = _added(b, machine, lines, k, x, sums)
    return sums


def _in_squares(tile: Tile) -> bool:
    """Whether there are registers for a square and more: with AVX-512, a line of memory
    of each column."""
    return tile.rows > 12


def _groups(tile: Tile) -> int:
    """Vectors of columns of a tile: sums of one would wait for each other, where that
    takes longer than to turn what is added."""
    return 1 if _in_squares(tile) else 2


def turned_columns(tile: Tile) -> int:
    """Columns of a tile."""
    return _groups(tile) * tile.lanes


def _at_once(machine: Machine) -> int:
    """How many k are turned at once."""
    tile = machine.tile
    return tile.lanes if _in_squares(tile) else _BLOCK_BYTES // machine.itemsize


def _turned(b: Builder, machine: Machine, start: str) -> list[str]:
    """Vectors of all columns, for each of the k that are turned at once."""
    scalar, lanes, each = machine.scalar, machine.tile.lanes, _at_once(machine)
    if _by_assembly(machine):
        return turned_square(b, start, "%b_column")
    columns, line = [], start
    for number in range(lanes):
        line = _at(b, line, "1", "%b_column") if number else line
        block = f"<{each} x {scalar}>"
        columns.append(b.op(f"load {block}, ptr {line}, align {machine.itemsize}"))
    if each == lanes:
        return transposed(b, machine, columns)
    vectors = [
        joined(b, machine, columns[i::each], each) for i in range(each)
    ]  # those of columns i, each + i, ...: a block of each, in their order
    width = 1
    while width < each:
        vectors = _interleaved(b, machine, vectors, width)
        width *= 2
    return vectors


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


def _at(b: Builder, base: str, number: str, step: str) -> str:
    skipped = b.op(f"mul i64 {number}, {step}")
    return b.op(f"getelementptr i8, ptr {base}, i64 {skipped}")


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


def _write(
    b: Builder, machine: Machine, sums: list[str], targets: list[str], skipped: str
) -> None:
    """Rows that stand twice are read before either is written."""
    lanes, vector, align = machine.tile.lanes, machine.vector, machine.itemsize
    skipped = b.op(f"trunc i64 {skipped} to i32")
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
