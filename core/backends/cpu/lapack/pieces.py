"""What the pieces of a divided matrix need besides LAPACK's routines."""

from __future__ import annotations

import numpy as np

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.lapack.arguments import item, word
from treadle.backends.cpu.lapack.lanes import place

_KINDS = (("float", np.dtype(np.float32)), ("double", np.dtype(np.float64)))


def emit_nonzero(b: Builder, numbers: str, count: str, itemsize: str) -> None:
    """Makes numbers of 4 or 8 bytes as large as the unit roundoff, if they are less."""
    for kind, dtype in _KINDS:
        # A power of two as IR has it: the bits of a double.
        least = f"0x{np.float64(np.finfo(dtype).eps / 2).view(np.uint64):016X}"
        b.declare(f"{kind} @llvm.fabs.{_name(dtype)}({kind})")
        b.declare(f"{kind} @llvm.copysign.{_name(dtype)}({kind}, {kind})")
        with (
            b.when(b.op(f"icmp eq i64 {itemsize}, {dtype.itemsize}")),
            b.loop("0", count) as i,
        ):
            address = place(b, numbers, (i, str(dtype.itemsize)))
            x = b.op(f"load {kind}, ptr {address}")
            size = b.op(f"call {kind} @llvm.fabs.{_name(dtype)}({kind} {x})")
            small = b.op(f"fcmp olt {kind} {size}, {least}")
            call = f"@llvm.copysign.{_name(dtype)}"
            given = f"{kind} {least}, {kind} {x}"
            large = b.op(f"call {kind} {call}({given})")
            found = b.op(f"select i1 {small}, {kind} {large}, {kind} {x}")
            b(f"store {kind} {found}, ptr {address}")


def _name(dtype: np.dtype) -> str:
    return f"f{8 * dtype.itemsize}"


def emit_counted(b: Builder, to: str, count: str, period: str) -> None:
    """Integers from 1 up to a period, again and again."""
    with b.loop("0", count) as i:
        number = b.op(f"add i64 {b.op(f'urem i64 {i}, {period}')}, 1")
        b(f"store i64 {number}, ptr {item(b, to, i)}")


def emit_failures(b: Builder, reports: str, count: str) -> None:
    """A failure if some reports are not 0."""
    with b.carrying("0", count, "1", [("i64", "0")]) as turn:
        report = word(b, reports, turn.index)
        turn.next = [b.op(f"or i64 {turn.values[0]}, {report}")]
    status = b.op("load ptr, ptr %places")
    before = word(b, status, "0")
    b(f"store i64 {b.op(f'or i64 {before}, {turn.values[0]}')}, ptr {status}")
