"""The built-in producer: copies a block of a strided operand into row-major order.

It has a producer's signature (`treadle.kernels.contract`); its arguments are the five
words of an operand: the address, then the strides b0, b1, row and column. Blocks whose
columns are contiguous in memory are copied by vectors, blocks whose rows are by
transposing lanes x lanes squares in registers, others element by element.
"""

from __future__ import annotations

from treadle.backends.cpu.builder import Builder
from treadle.backends.cpu.gemm_tile import Machine, lane_mask, masked_load

HOOK = "ptr, i64, i64, i64, i64, i64, i64, ptr, i64"
"""Parameter types of a producer."""

_AHEAD = 16
"""Rows between a copy and its prefetch; rows may lie pages apart."""


def emit_pack(b: Builder, machine: Machine) -> None:
    """Defines ``pack``."""
    with b.function(
        "define internal void @pack(ptr %operand, i64 %b0, i64 %b1, i64 %i0, i64 %i1, "
        "i64 %j0, i64 %j1, ptr %block, i64 %stride)"
    ):
        words = [_word(b, i) for i in range(1, 5)]
        row, column = words[2], words[3]
        source = b.op("load ptr, ptr %operand, align 8")
        for index, step in zip(("%b0", "%b1", "%i0", "%j0"), words, strict=True):
            offset = b.op(f"mul i64 {index}, {step}")
            source = b.op(f"getelementptr {machine.scalar}, ptr {source}, i64 {offset}")
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
    _emit_copy(b, machine)
    _emit_transpose(b, machine)


def _word(b: Builder, index: int) -> str:
    address = b.op(f"getelementptr i64, ptr %operand, i64 {index}")
    return b.op(f"load i64, ptr {address}, align 8")


_PARAMETERS = (
    "ptr noalias readonly %source, i64 %step, i64 %rows, i64 %columns, "
    "ptr noalias %block, i64 %stride"
)


def _at(b: Builder, machine: Machine, base: str, index: str, step: str) -> str:
    offset = b.op(f"mul i64 {index}, {step}")
    return b.op(f"getelementptr {machine.scalar}, ptr {base}, i64 {offset}")


def _emit_copy(b: Builder, machine: Machine) -> None:
    """``pack_copy``: columns are contiguous, rows are `step` apart."""
    lanes, vector, align = machine.tile.lanes, machine.vector, machine.itemsize
    b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    with b.function(f"define internal void @pack_copy({_PARAMETERS})"):
        whole = b.op(f"and i64 %columns, {-lanes}")
        rest = b.op(f"sub i64 %columns, {whole}")
        mask = lane_mask(b, machine, rest)
        ragged = b.op(f"icmp ne i64 {rest}, 0")
        ahead = b.op(f"mul i64 %step, {_AHEAD}")
        with b.loop("0", "%rows") as i:
            line = _at(b, machine, "%source", i, "%step")
            target = _at(b, machine, "%block", i, "%stride")
            later = b.op(f"getelementptr {machine.scalar}, ptr {line}, i64 {ahead}")
            with b.loop("0", whole, str(lanes)) as j:
                pointers = [
                    b.op(f"getelementptr {machine.scalar}, ptr {base}, i64 {j}")
                    for base in (later, line, target)
                ]
                b(
                    f"call void @llvm.prefetch.p0(ptr {pointers[0]}, i32 0, i32 3, "
                    "i32 1)"
                )
                value = b.op(f"load {vector}, ptr {pointers[1]}, align {align}")
                b(f"store {vector} {value}, ptr {pointers[2]}, align {align}")
            with b.when(ragged):
                pointers = [
                    b.op(f"getelementptr {machine.scalar}, ptr {base}, i64 {whole}")
                    for base in (line, target)
                ]
                value = masked_load(b, machine, pointers[0], mask)
                b(f"store {vector} {value}, ptr {pointers[1]}, align {align}")
        b("ret void")


def _emit_transpose(b: Builder, machine: Machine) -> None:
    """``pack_transpose``: rows are contiguous, columns are `step` apart."""
    lanes, vector, align = machine.tile.lanes, machine.vector, machine.itemsize
    b.declare("i64 @llvm.smin.i64(i64, i64)")
    b.declare("i64 @llvm.smax.i64(i64, i64)")
    with b.function(f"define internal void @pack_transpose({_PARAMETERS})"):
        last = b.op("sub i64 %columns, 1")
        # The last square overlaps the one before. If there is only one and it has too
        # few columns, the last of them is read again.
        start = b.op(f"sub i64 %columns, {lanes}")
        start = b.op(f"call i64 @llvm.smax.i64(i64 {start}, i64 0)")
        steps = []
        for lane in range(lanes):
            number = b.op(f"call i64 @llvm.smin.i64(i64 {lane}, i64 {last})")
            steps.append(b.op(f"mul i64 {number}, %step"))
        with b.loop("0", "%rows", str(lanes)) as i:
            mask = lane_mask(b, machine, b.op(f"sub i64 %rows, {i}"))
            first = b.op(f"getelementptr {machine.scalar}, ptr %source, i64 {i}")
            target = _at(b, machine, "%block", i, "%stride")
            with b.loop("0", "%columns", str(lanes)) as j:
                at = b.op(f"call i64 @llvm.smin.i64(i64 {j}, i64 {start})")
                corner = _at(b, machine, first, at, "%step")
                square = [
                    masked_load(b, machine, _at(b, machine, corner, step, "1"), mask)
                    for step in steps
                ]
                address = _at(b, machine, target, at, "1")
                for value in transposed(b, machine, square):
                    b(f"store {vector} {value}, ptr {address}, align {align}")
                    address = _at(b, machine, address, "%stride", "1")
        b("ret void")


def transposed(b: Builder, machine: Machine, square: list[str]) -> list[str]:
    """Transposes lanes x lanes elements, by shuffles that are one instruction each.

    Most machines shuffle cheaply inside blocks of 16 bytes, and whole blocks.
    """
    lanes = machine.tile.lanes
    per_block = 16 // machine.itemsize
    blocks = [
        list(range(block, block + per_block)) for block in range(0, lanes, per_block)
    ]

    def shuffle(x: str, y: str, order: list[int]) -> str:
        picks = ", ".join(f"i32 {lane}" for lane in order)
        pair = f"{machine.vector} {x}, {machine.vector} {y}"
        return b.op(f"shufflevector {pair}, <{lanes} x i32> <{picks}>")

    def within_blocks(rows: list[str], size: int) -> list[str]:
        """Transposes corresponding blocks; `size` elements already belong together."""
        if len(rows) == 1:
            return rows
        halves = []
        for half in (0, per_block // 2):
            order = [
                lane + half + start + k + which
                for lane in range(0, lanes, per_block)
                for start in range(0, per_block // 2, size)
                for which in (0, lanes)
                for k in range(size)
            ]
            pairs = zip(rows[::2], rows[1::2], strict=True)
            halves.append([shuffle(x, y, order) for x, y in pairs])
        low, high = halves
        return within_blocks(low, 2 * size) + within_blocks(high, 2 * size)

    def of_blocks(rows: list[str]) -> list[str]:
        """Transposes a square of blocks."""
        if len(rows) == 1:
            return rows
        halves = []
        for half in (0, 1):
            chosen = [lane for block in blocks[half::2] for lane in block]
            order = chosen + [lanes + lane for lane in chosen]
            pairs = zip(rows[::2], rows[1::2], strict=True)
            halves.append([shuffle(x, y, order) for x, y in pairs])
        even, odd = (of_blocks(half) for half in halves)
        return [row for pair in zip(even, odd, strict=True) for row in pair]

    groups = [
        within_blocks(square[i : i + per_block], 1) for i in range(0, lanes, per_block)
    ]
    columns = [of_blocks(list(rows)) for rows in zip(*groups, strict=True)]
    return [column for block in zip(*columns, strict=True) for column in block]


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
        line = _at(b, machine, source, i, row)
        target = _at(b, machine, "%block", i, "%stride")
        with b.loop("0", columns) as j:
            value = b.op(
                f"load {scalar}, ptr {_at(b, machine, line, j, column)}, align {align}"
            )
            address = b.op(f"getelementptr {scalar}, ptr {target}, i64 {j}")
            b(f"store {scalar} {value}, ptr {address}, align {align}")
