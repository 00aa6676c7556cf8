"""The power of two that brings the largest of some numbers to between 1 and 2, and
whether all are finite.

Sizes of floats are ordered as the integers that they are as bits: those that are not
finite come last.
"""

from __future__ import annotations

import numpy as np

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.lapack.lanes import place, slab

_KINDS = (np.dtype(np.float32), np.dtype(np.float64))


def emit(b: Builder, to: str, numbers: str, count: str, itemsize: str) -> None:
    """The power and its inverse, of numbers of 4 or 8 bytes."""
    for dtype in _KINDS:
        with b.when(b.op(f"icmp eq i64 {itemsize}, {dtype.itemsize}")):
            _emit(b, to, numbers, count, dtype)


def _largest(b: Builder, numbers: str, count: str, dtype: np.dtype) -> str:
    """The largest size of numbers, as many as vectors have lanes, or more."""
    lanes, bits = slab(dtype).count, 8 * dtype.itemsize
    kind = f"i{bits}"
    vector = f"<{lanes} x {kind}>"
    positive = f"splat ({kind} {2 ** (bits - 1) - 1})"
    b.declare(f"{vector} @llvm.umax.v{lanes}{kind}({vector}, {vector})")
    b.declare(f"{kind} @llvm.vector.reduce.umax.v{lanes}{kind}({vector})")
    last = b.op(f"sub i64 {count}, {lanes}")
    first = [(vector, "zeroinitializer")]
    with b.carrying("0", count, str(lanes), first) as turn:
        index = b.least(turn.index, last)
        address = place(b, numbers, (index, str(dtype.itemsize)))
        x = b.op(f"load {vector}, ptr {address}, align {dtype.itemsize}")
        size = b.op(f"and {vector} {x}, {positive}")
        call = f"@llvm.umax.v{lanes}{kind}({vector} {turn.values[0]}, {vector} {size})"
        turn.next = [b.op(f"call {vector} {call}")]
    reduce = f"@llvm.vector.reduce.umax.v{lanes}{kind}({vector} {turn.values[0]})"
    return b.op(f"call {kind} {reduce}")


def _emit(b: Builder, to: str, numbers: str, count: str, dtype: np.dtype) -> None:
    bits = 8 * dtype.itemsize
    kind, mantissa = f"i{bits}", np.finfo(dtype).nmant
    largest = _largest(b, numbers, count, dtype)
    field = b.op(f"lshr {kind} {largest}, {mantissa}")
    # The exponents of 1 / x and x add up to this; neither may be one of no number.
    both = 2 * (2 ** (bits - mantissa - 2) - 1)
    is_finite = b.op(f"icmp ule {kind} {field}, {both}")
    power = b.op(f"sub {kind} {both}, {field}")
    for limit, compare in ((1, "ugt"), (both - 1, "ult")):
        inside = b.op(f"icmp {compare} {kind} {power}, {limit}")
        power = b.op(f"select i1 {inside}, {kind} {power}, {kind} {limit}")
    # A matrix of zeros stays as it is, and so do its values, whatever was found.
    none = b.op(f"icmp eq {kind} {largest}, 0")
    power = b.op(f"select i1 {none}, {kind} {both // 2}, {kind} {power}")
    inverse = b.op(f"sub {kind} {both}, {power}")
    inverse = b.op(f"select i1 {none}, {kind} 0, {kind} {inverse}")
    for i, of in enumerate((power, inverse)):
        shifted = b.op(f"shl {kind} {of}, {mantissa}")
        b(f"store {kind} {shifted}, ptr {place(b, to, (str(i), str(dtype.itemsize)))}")
    status = b.op("load ptr, ptr %places")
    failure = b.op(f"select i1 {is_finite}, i64 0, i64 1")
    b(f"store i64 {failure}, ptr {status}")


def emit_check(b: Builder, numbers: str, count: str, itemsize: str) -> None:
    """A failure if some numbers are not finite."""
    for dtype in _KINDS:
        with b.when(b.op(f"icmp eq i64 {itemsize}, {dtype.itemsize}")):
            few = b.op(f"icmp ult i64 {count}, {slab(dtype).count}")
            with b.when(few):
                _check(b, _largest_of_few(b, numbers, count, dtype), dtype)
            with b.when(b.op(f"xor i1 {few}, true")):
                _check(b, _largest(b, numbers, count, dtype), dtype)


def _largest_of_few(b: Builder, numbers: str, count: str, dtype: np.dtype) -> str:
    bits = 8 * dtype.itemsize
    kind = f"i{bits}"
    b.declare(f"{kind} @llvm.umax.{kind}({kind}, {kind})")
    with b.carrying("0", count, "1", [(kind, "0")]) as turn:
        address = place(b, numbers, (turn.index, str(dtype.itemsize)))
        x = b.op(f"load {kind}, ptr {address}")
        size = b.op(f"and {kind} {x}, {2 ** (bits - 1) - 1}")
        call = f"@llvm.umax.{kind}({kind} {turn.values[0]}, {kind} {size})"
        turn.next = [b.op(f"call {kind} {call}")]
    return turn.values[0]


def _check(b: Builder, largest: str, dtype: np.dtype) -> None:
    bits = 8 * dtype.itemsize
    infinite = (1 << bits - 1) - (1 << np.finfo(dtype).nmant)
    fails = b.op(f"icmp uge i{bits} {largest}, {infinite}")
    failure = b.op(f"zext i1 {fails} to i64")
    b(f"store i64 {failure}, ptr {b.op('load ptr, ptr %places')}")
