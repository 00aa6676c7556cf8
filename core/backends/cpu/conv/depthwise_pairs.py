"""Sums of depthwise convolutions of bfloat16: two products at a time.

What two pixels have for a channel becomes a pair, and so do the two factors, by turns
of words in pieces of 16 bytes, as machines do it fastest. VDPBF16PS adds both products
(see `treadle.backends.cpu.bfloat.vectors` on the order, and on subnormal numbers). Its
sums are of channels in the order of the pieces, which ends where they are stored. An
odd product at the end has zeros beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.pairs import (
    added_by_model,
    halves,
    rounded_by_instruction,
    rounded_by_model,
)
from treadle.backends.cpu.gemm.parts import offset
from treadle.backends.cpu.gemm.tile import (
    Machine,
    lane_mask,
    masked_load,
    masked_store,
)

_PIECE = 8  # words


def emit_pair_sums(
    b: Builder,
    machine: Machine,
    places: Sequence[str],
    channel: str,
    keep: str,
    left: str | None,
) -> None:
    """Two vectors of all sums, from a channel on: of those `left`, if that is given.

    places: see ``tile_N``; keep: whether to add to what is there.
    """
    lanes, vector = machine.tile.lanes, machine.vector
    mask = None if left is None else _word_mask(b, 2 * lanes, left)
    zero = f"<{2 * lanes} x i16> zeroinitializer"

    def load(base: str) -> str:
        address = offset(b, machine.operand, base, channel, "1")
        return _load(b, 2 * lanes, address, mask)

    def added(first: str, totals: Sequence[str], paired: bool) -> list[str]:
        entries = [first]
        if paired:
            entries.append(b.op(f"getelementptr [2 x i64], ptr {first}, i64 1"))
        steps = [b.op(f"load i64, ptr {entry}, align 8") for entry in entries]
        factors = []
        for entry in entries:
            slot = b.op(f"getelementptr i64, ptr {entry}, i64 1")
            factor = b.op(f"load i64, ptr {slot}, align 8")
            factors.append(load(b.op(f"getelementptr i8, ptr %factors, i64 {factor}")))
        by = _paired(b, lanes, factors, zero)
        before, after = iter(totals), []
        for place in places:
            pixels = []
            for step in steps:
                pixel = b.op(f"getelementptr i8, ptr {place}, i64 {step}")
                pixels.append(load(b.op(f"load ptr, ptr {pixel}, align 8")))
            for x, y in zip(_paired(b, lanes, pixels, zero), by, strict=True):
                after.append(_multiply_add(b, machine, x, y, next(before)))
        return after

    even = b.op("and i64 %count, -2")
    totals = ["zeroinitializer"] * (2 * len(places))
    for start, stop, step in (("0", even, "2"), (even, "%count", "1")):
        with b.carrying(start, stop, step, [(vector, x) for x in totals]) as turn:
            entry = b.op(f"getelementptr [2 x i64], ptr %steps, i64 {turn.index}")
            turn.next = added(entry, turn.values, paired=step == "2")
        totals = turn.values
    lines = [b.op(f"mul i64 {j}, %out_row") for j in range(len(places))]
    lines = [b.op(f"getelementptr i8, ptr %out, i64 {line}") for line in lines]
    sums = list(zip(totals[::2], totals[1::2], strict=True))
    # A branch: products that waited for what was there would wait for memory.
    with b.when(b.op(f"xor i1 {keep}, true")):
        for line, both in zip(lines, sums, strict=True):
            address = offset(b, machine.result, line, channel, "1")
            if machine.short:
                _store_short(b, machine, address, both, mask)
            else:
                _store_floats(b, machine, address, both, left, keep=False)
    floats = replace(machine, halves=False, short=False)
    with b.when(keep):
        for line, both in zip(lines, sums, strict=True):
            address = offset(b, floats.result, line, channel, "1")
            _store_floats(b, floats, address, both, left, keep=True)


def _word_mask(b: Builder, count: int, left: str) -> str:
    words, limit = f"<{count} x i16>", b.op(f"trunc i64 {left} to i16")
    first = b.op(f"insertelement {words} poison, i16 {limit}, i64 0")
    zeros = f"<{count} x i32> zeroinitializer"
    limits = b.op(f"shufflevector {words} {first}, {words} poison, {zeros}")
    numbers = ", ".join(f"i16 {i}" for i in range(count))
    return b.op(f"icmp slt {words} <{numbers}>, {limits}")


def _load(b: Builder, count: int, address: str, mask: str | None) -> str:
    words = f"<{count} x i16>"
    if mask is None:
        return b.op(f"load {words}, ptr {address}, align 2")
    name = f"@llvm.masked.load.v{count}i16.p0"
    b.declare(f"{words} {name}(ptr, <{count} x i1>, {words})")
    return b.op(
        f"call {words} {name}(ptr align 2 {address}, <{count} x i1> {mask}, "
        f"{words} zeroinitializer)"
    )


def _paired(b: Builder, lanes: int, given: Sequence[str], zero: str) -> list[str]:
    """Words of two in turns, or of one and zeros: of the first and of the second half
    of each piece."""
    count, half = 2 * lanes, _PIECE // 2
    words = f"<{count} x i16>"
    other = f"{words} {given[1]}" if len(given) == 2 else zero
    found = []
    for start in (0, half):
        picks = ", ".join(
            f"i32 {piece + start + i + which}"
            for piece in range(0, count, _PIECE)
            for i in range(half)
            for which in (0, count)
        )
        pair = f"{words} {given[0]}, {other}"
        found.append(b.op(f"shufflevector {pair}, <{count} x i32> <{picks}>"))
    return found


def _multiply_add(b: Builder, machine: Machine, x: str, y: str, total: str) -> str:
    lanes, vector = machine.tile.lanes, machine.vector
    words = f"<{2 * lanes} x i16>"
    if not machine.assembly:
        pairs = [b.op(f"bitcast {words} {a} to <{lanes} x i32>") for a in (x, y)]
        of_x, of_y = (halves(b, pair, lanes) for pair in pairs)
        return added_by_model(b, total, of_x, of_y, lanes)
    short, name = f"<{2 * lanes} x bfloat>", "@llvm.x86.avx512bf16.dpbf16ps.512"
    b.declare(f"{vector} {name}({vector}, {short}, {short})")
    of = [f"{short} {b.op(f'bitcast {words} {a} to {short}')}" for a in (x, y)]
    return b.op(f"call {vector} {name}({vector} {total}, {of[0]}, {of[1]})")


def _in_order(lanes: int) -> list[int]:
    """Where channels are in the sums of first halves and of second ones."""
    half = _PIECE // 2
    return [
        start + piece + i
        for piece in range(0, lanes, half)
        for start in (0, lanes)
        for i in range(half)
    ]


def _store_short(
    b: Builder, machine: Machine, address: str, sums: tuple[str, str], mask: str | None
) -> None:
    lanes, count = machine.tile.lanes, 2 * machine.tile.lanes
    every = ", ".join(f"i32 {i}" for i in range(count))
    both = ", ".join(f"{machine.vector} {x}" for x in sums)
    value = b.op(f"shufflevector {both}, <{count} x i32> <{every}>")
    by = rounded_by_instruction if machine.assembly else rounded_by_model
    words, value = f"<{count} x i16>", by(b, value, count)
    picks = ", ".join(f"i32 {i}" for i in _in_order(lanes))
    value = b.op(
        f"shufflevector {words} {value}, {words} poison, <{count} x i32> <{picks}>"
    )
    if mask is None:
        b(f"store {words} {value}, ptr {address}, align 2")
        return
    name = f"@llvm.masked.store.v{count}i16.p0"
    b.declare(f"void {name}({words}, ptr, <{count} x i1>)")
    b(
        f"call void {name}({words} {value}, ptr align 2 {address}, "
        f"<{count} x i1> {mask})"
    )


def _store_floats(
    b: Builder,
    machine: Machine,
    address: str,
    sums: tuple[str, str],
    left: str | None,
    keep: bool,
) -> None:
    lanes, vector = machine.tile.lanes, machine.vector
    order = _in_order(lanes)
    both = ", ".join(f"{vector} {x}" for x in sums)
    for start in (0, lanes):
        picks = ", ".join(f"i32 {i}" for i in order[start : start + lanes])
        value = b.op(f"shufflevector {both}, <{lanes} x i32> <{picks}>")
        place = b.op(f"getelementptr {machine.scalar}, ptr {address}, i64 {start}")
        mask = None if left is None else lane_mask(b, machine, left, start)
        if keep:
            old = f"load {vector}, ptr {place}, align {machine.itemsize}"
            old = b.op(old) if mask is None else masked_load(b, machine, place, mask)
            value = b.op(f"fadd {vector} {old}, {value}")
        if mask is None:
            b(f"store {vector} {value}, ptr {place}, align {machine.itemsize}")
        else:
            masked_store(b, machine, value, place, mask)
