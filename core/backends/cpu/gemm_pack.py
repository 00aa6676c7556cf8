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
    with b.function(f"define internal void @pack_transpose({_PARAMETERS})"):
        last = b.op("sub i64 %columns, 1")
        b.declare("i64 @llvm.smin.i64(i64, i64)")
        with b.loop("0", "%rows", str(lanes)) as i:
            left = b.op(f"sub i64 %rows, {i}")
            mask = lane_mask(b, machine, left)
            first = b.op(f"getelementptr {machine.scalar}, ptr %source, i64 {i}")
            target = _at(b, machine, "%block", i, "%stride")
            with b.loop("0", "%columns", str(lanes)) as j:
                square = []
                for lane in range(lanes):
                    column = b.op(f"add i64 {j}, {lane}")
                    # Beyond the last column the last one is read again.
                    column = b.op(f"call i64 @llvm.smin.i64(i64 {column}, i64 {last})")
                    address = _at(b, machine, first, column, "%step")
                    square.append(masked_load(b, machine, address, mask))
                corner = b.op(f"getelementptr {machine.scalar}, ptr {target}, i64 {j}")
                for lane, value in enumerate(_transposed(b, machine, square)):
                    address = _at(b, machine, corner, str(lane), "%stride")
                    b(f"store {vector} {value}, ptr {address}, align {align}")
        b("ret void")


def _transposed(b: Builder, machine: Machine, square: list[str]) -> list[str]:
    """Transposes lanes x lanes elements: swaps of ever larger off-diagonal blocks."""
    lanes, vector = machine.tile.lanes, machine.vector
    size = 1
    while size < lanes:
        result = list(square)
        for i in range(lanes):
            if i & size:
                continue
            pair = f"{vector} {square[i]}, {vector} {square[i | size]}"
            upper = [k if not k & size else lanes + k - size for k in range(lanes)]
            lower = [k + size if not k & size else lanes + k for k in range(lanes)]
            for at, order in ((i, upper), (i | size, lower)):
                picks = ", ".join(f"i32 {k}" for k in order)
                result[at] = b.op(f"shufflevector {pair}, <{lanes} x i32> <{picks}>")
        square = result
        size *= 2
    return square


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
