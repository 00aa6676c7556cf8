"""The built-in producer: copies a block of a strided operand into row-major order.

It has a producer's signature (see `arguments`); its arguments are the five words of an
operand: the address, then the strides b0, b1, row and column. Blocks whose
columns are contiguous in memory are copied by vectors, blocks whose rows are by
transposing lanes x lanes squares in registers, others element by element.
"""

from __future__ import annotations

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.pairs import widened
from treadle.backends.cpu.gemm.tile import Machine, Stored, lane_mask, masked_load

HOOK = "ptr, i64, i64, i64, i64, i64, i64, ptr, i64"
"""Parameter types of a producer."""

_AHEAD = 16
"""Rows between a copy and its prefetch; rows may lie pages apart."""


COPIES = "pack", "pack_copy", "pack_transpose"


def emit_pack(b: Builder, machine: Machine) -> None:
    """Defines ``pack``, and what `emit_copies` does."""
    if _lies_apart(machine):
        b.declare(f"void @pack({HOOK})")
        emit_copies(b, machine)
        return
    with b.function(
        "define internal void @pack(ptr %operand, i64 %b0, i64 %b1, i64 %i0, i64 %i1, "
        "i64 %j0, i64 %j1, ptr %block, i64 %stride)"
    ):
        words = [_word(b, i) for i in range(1, 5)]
        row, column = words[2], words[3]
        source = b.op("load ptr, ptr %operand, align 8")
        for index, step in zip(("%b0", "%b1", "%i0", "%j0"), words, strict=True):
            offset = b.op(f"mul i64 {index}, {step}")
            source = b.op(
                f"getelementptr {machine.operand.scalar}, ptr {source}, i64 {offset}"
            )
        rows = b.op("sub i64 %i1, %i0")
        columns = b.op("sub i64 %j1, %j0")
        for step, name in ((column, "copy"), (row, "transpose")):
            with b.when(b.op(f"icmp eq i64 {step}, 1")):
                other = row if name == "copy" else column
                b(
                    f"call void @pack_{name}(ptr {source}, i64 {other}, i64 {rows}, "
                    f"i64 {columns}, ptr %block, i64 %stride)"
                )
                b("ret void")
                b.label(b.fresh_label("unreachable"))
        _emit_strided(b, machine, source, row, column, rows, columns)
        b("ret void")
    emit_copies(b, machine)


def emit_copies(b: Builder, machine: Machine) -> None:
    """Defines ``pack_copy`` and ``pack_transpose``; or declares them, if they lie
    apart."""
    if _lies_apart(machine):
        for name in COPIES[1:]:
            b.declare(f"void @{name}(ptr, i64, i64, i64, ptr, i64)")
        return
    _emit_copy(b, machine)
    _emit_transpose(b, machine)


def _lies_apart(machine: Machine) -> bool:
    """Whether a module of its own has them, which copies only what is multiplied."""
    return machine.apart and not machine.halves


def _word(b: Builder, index: int) -> str:
    address = b.op(f"getelementptr i64, ptr %operand, i64 {index}")
    return b.op(f"load i64, ptr {address}, align 8")


_PARAMETERS = (
    "ptr noalias readonly %source, i64 %step, i64 %rows, i64 %columns, "
    "ptr noalias %block, i64 %stride"
)


def _at(b: Builder, of: Machine | Stored, base: str, index: str, step: str) -> str:
    offset = b.op(f"mul i64 {index}, {step}")
    return b.op(f"getelementptr {of.scalar}, ptr {base}, i64 {offset}")


def _loaded(
    b: Builder, machine: Machine, address: str, mask: str = "", lanes: int = 0
) -> str:
    """A vector of an operand, or under a mask, or one element, as what is multiplied.

    lanes: of the vector; 0: as many as the machine has.
    """
    lanes = lanes or machine.tile.lanes
    given, align = machine.operand.scalar, machine.operand.itemsize
    kind = given if lanes == 1 else f"<{lanes} x {given}>"
    if mask:
        value = masked_load(b, machine, address, mask, machine.operand)
    else:
        value = b.op(f"load {kind}, ptr {address}, align {align}")
    return widened(b, value, lanes) if machine.halves else value


def _emit_copy(b: Builder, machine: Machine) -> None:
    """``pack_copy``: columns are contiguous, rows are `step` apart."""
    lanes, vector, align = machine.tile.lanes, machine.vector, machine.itemsize
    given = machine.operand
    b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    with b.function(f"define internal void @pack_copy({_PARAMETERS})"):
        whole = b.op(f"and i64 %columns, {-lanes}")
        rest = b.op(f"sub i64 %columns, {whole}")
        mask = lane_mask(b, machine, rest)
        ragged = b.op(f"icmp ne i64 {rest}, 0")
        ahead = b.op(f"mul i64 %step, {_AHEAD}")
        with b.loop("0", "%rows") as i:
            line = _at(b, given, "%source", i, "%step")
            target = _at(b, machine, "%block", i, "%stride")
            later = b.op(f"getelementptr {given.scalar}, ptr {line}, i64 {ahead}")
            with b.loop("0", whole, str(lanes)) as j:
                pointers = [
                    b.op(f"getelementptr {of.scalar}, ptr {base}, i64 {j}")
                    for of, base in ((given, later), (given, line), (machine, target))
                ]
                b(
                    f"call void @llvm.prefetch.p0(ptr {pointers[0]}, i32 0, i32 3, "
                    "i32 1)"
                )
                value = _loaded(b, machine, pointers[1])
                b(f"store {vector} {value}, ptr {pointers[2]}, align {align}")
            with b.when(ragged):
                pointers = [
                    b.op(f"getelementptr {of.scalar}, ptr {base}, i64 {whole}")
                    for of, base in ((given, line), (machine, target))
                ]
                value = _loaded(b, machine, pointers[0], mask)
                b(f"store {vector} {value}, ptr {pointers[1]}, align {align}")
        b("ret void")


def emit_pack_panels(b: Builder, machine: Machine) -> None:
    """``pack_panels``: copies contiguous columns into panels of the tile's width.

    All panels at once, so that it reads a row on and on: rows of a large matrix lie
    pages apart. A panel has room for `depth` rows.
    """
    tile, vector, align = machine.tile, machine.vector, machine.itemsize
    with b.function(
        "define internal void @pack_panels(ptr noalias readonly %source, i64 %step, "
        "i64 %rows, i64 %columns, ptr noalias %panels, i64 %depth)"
    ):
        ahead = b.op(f"mul i64 %step, {_AHEAD}")
        with b.loop("0", "%rows") as i:
            line = _at(b, machine, "%source", i, "%step")
            later = _at(b, machine, line, ahead, "1")
            target = _at(b, machine, "%panels", i, str(tile.columns))
            with b.loop("0", "%columns", str(tile.columns)) as j:
                place = _at(b, machine, target, j, "%depth")
                for lane in range(0, tile.columns, tile.lanes):
                    at = b.op(f"add i64 {j}, {lane}")
                    prefetched = _at(b, machine, later, at, "1")
                    b(
                        f"call void @llvm.prefetch.p0(ptr {prefetched}, i32 0, i32 3, "
                        "i32 1)"
                    )
                    address = _at(b, machine, line, at, "1")
                    value = b.op(f"load {vector}, ptr {address}, align {align}")
                    address = _at(b, machine, place, str(lane), "1")
                    b(f"store {vector} {value}, ptr {address}, align {align}")
        b("ret void")


def _emit_transpose(b: Builder, machine: Machine) -> None:
    """``pack_transpose``: rows are contiguous, columns are `step` apart.

    Squares of lanes x lanes elements are transposed in registers, in two passes: first
    inside blocks of 16 bytes, then the blocks, as most machines shuffle cheaply. The
    passes are loops because LLVM takes 0.1 ms for every shuffle that it compiles.
    """
    lanes = machine.tile.lanes
    b.declare("i64 @llvm.smin.i64(i64, i64)")
    b.declare("i64 @llvm.smax.i64(i64, i64)")
    with b.function(f"define internal void @pack_transpose({_PARAMETERS})"):
        buffer = b.op(f"alloca [{lanes} x {machine.vector}], align 64")
        last = b.op("sub i64 %columns, 1")
        # The last square overlaps the one before. If there is only one and it has too
        # few columns, the last of them is read again.
        start = b.op(f"sub i64 %columns, {lanes}")
        start = b.op(f"call i64 @llvm.smax.i64(i64 {start}, i64 0)")
        with b.loop("0", "%rows", str(lanes)) as i:
            mask = lane_mask(b, machine, b.op(f"sub i64 %rows, {i}"))
            first = _at(b, machine.operand, "%source", i, "1")
            target = _at(b, machine, "%block", i, "%stride")
            with b.loop("0", "%columns", str(lanes)) as j:
                at = b.op(f"call i64 @llvm.smin.i64(i64 {j}, i64 {start})")
                corner = _at(b, machine.operand, first, at, "%step")
                _within_blocks(b, machine, corner, last, mask, buffer)
                _of_blocks(b, machine, _at(b, machine, target, at, "1"), buffer)
        b("ret void")


def _within_blocks(
    b: Builder, machine: Machine, corner: str, last: str, mask: str, buffer: str
) -> None:
    """Reads a square, transposes inside blocks, sorts rows by place in the block."""
    size = 16 // machine.itemsize
    groups = machine.tile.lanes // size
    with b.loop("0", str(groups)) as group:
        rows = []
        for k in range(size):
            row = b.op(f"add i64 {b.op(f'mul i64 {group}, {size}')}, {k}")
            row = b.op(f"call i64 @llvm.smin.i64(i64 {row}, i64 {last})")
            address = _at(b, machine.operand, corner, row, "%step")
            rows.append(_loaded(b, machine, address, mask))
        for k, row in enumerate(_merged(b, machine, rows)):
            place = b.op(f"add i64 {group}, {k * groups}")
            address = b.op(f"getelementptr {machine.vector}, ptr {buffer}, i64 {place}")
            b(f"store {machine.vector} {row}, ptr {address}, align 64")


def _of_blocks(b: Builder, machine: Machine, target: str, buffer: str) -> None:
    """Transposes the blocks, and writes the square."""
    vector, align = machine.vector, machine.itemsize
    size = 16 // machine.itemsize
    groups = machine.tile.lanes // size
    with b.loop("0", str(size)) as k:
        rows = []
        for group in range(groups):
            place = b.op(f"add i64 {b.op(f'mul i64 {k}, {groups}')}, {group}")
            address = b.op(f"getelementptr {vector}, ptr {buffer}, i64 {place}")
            rows.append(b.op(f"load {vector}, ptr {address}, align 64"))
        for group, row in enumerate(_exchanged(b, machine, rows)):
            place = b.op(f"add i64 {k}, {group * size}")
            address = _at(b, machine, target, place, "%stride")
            b(f"store {vector} {row}, ptr {address}, align {align}")


def _shuffle(b: Builder, machine: Machine, x: str, y: str, order: list[int]) -> str:
    picks = ", ".join(f"i32 {lane}" for lane in order)
    pair = f"{machine.vector} {x}, {machine.vector} {y}"
    return b.op(f"shufflevector {pair}, <{len(order)} x i32> <{picks}>")


def _merged(
    b: Builder, machine: Machine, rows: list[str], joined: int = 1
) -> list[str]:
    """Transposes corresponding blocks; `joined` elements already belong together."""
    if len(rows) == 1:
        return rows
    lanes, size = machine.tile.lanes, 16 // machine.itemsize
    result = []
    for half in (0, size // 2):
        order = [
            lane + half + start + k + which
            for lane in range(0, lanes, size)
            for start in range(0, size // 2, joined)
            for which in (0, lanes)
            for k in range(joined)
        ]
        pairs = zip(rows[::2], rows[1::2], strict=True)
        shuffled = [_shuffle(b, machine, x, y, order) for x, y in pairs]
        result += _merged(b, machine, shuffled, 2 * joined)
    return result


def joined(b: Builder, machine: Machine, parts: list[str], size: int) -> str:
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


def columns(b: Builder, machine: Machine, corner: str, step: str) -> list[str]:
    """The first columns of `lanes` rows that are `step` elements apart: as many as 16
    bytes of a row are. Rows that go into one vector are put together as they are read.
    """
    size = 16 // machine.itemsize
    kind, align = f"<{size} x {machine.scalar}>", machine.itemsize
    vectors = []
    for first in range(size):
        parts = []
        for row in range(first, machine.tile.lanes, size):
            address = _at(b, machine, corner, str(row), step)
            parts.append(b.op(f"load {kind}, ptr {address}, align {align}"))
        vectors.append(joined(b, machine, parts, size))
    return _merged(b, machine, vectors)


def transposed(b: Builder, machine: Machine, rows: list[str]) -> list[str]:
    """A square of lanes x lanes elements, in registers."""
    size = 16 // machine.itemsize
    merged = [
        _merged(b, machine, rows[start : start + size])
        for start in range(0, len(rows), size)
    ]
    columns = [_exchanged(b, machine, list(x)) for x in zip(*merged, strict=True)]
    return [row for blocks in zip(*columns, strict=True) for row in blocks]


def _exchanged(b: Builder, machine: Machine, rows: list[str]) -> list[str]:
    """Transposes a square of blocks."""
    if len(rows) == 1:
        return rows
    lanes, size = machine.tile.lanes, 16 // machine.itemsize
    halves = []
    for half in (0, size):
        chosen = [
            start + half + k for start in range(0, lanes, 2 * size) for k in range(size)
        ]
        order = chosen + [lanes + lane for lane in chosen]
        pairs = zip(rows[::2], rows[1::2], strict=True)
        shuffled = [_shuffle(b, machine, x, y, order) for x, y in pairs]
        halves.append(_exchanged(b, machine, shuffled))
    return [row for pair in zip(*halves, strict=True) for row in pair]


def _emit_strided(
    b: Builder,
    machine: Machine,
    source: str,
    row: str,
    column: str,
    rows: str,
    columns: str,
) -> None:
    scalar, align = machine.scalar, machine.itemsize
    with b.loop("0", rows) as i:
        line = _at(b, machine.operand, source, i, row)
        target = _at(b, machine, "%block", i, "%stride")
        with b.loop("0", columns) as j:
            place = _at(b, machine.operand, line, j, column)
            value = _loaded(b, machine, place, lanes=1)
            address = b.op(f"getelementptr {scalar}, ptr {target}, i64 {j}")
            b(f"store {scalar} {value}, ptr {address}, align {align}")
