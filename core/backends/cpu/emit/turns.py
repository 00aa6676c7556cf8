"""Vectors of bfloat16 two at a time: one has the even elements, the other the odd ones.

A word of memory holds both, so a shift makes floats of one half of it and a mask of the
other, where neighbours have to be taken apart; and what two vectors are rounded to is
one word again. Elementwise sweeps may do so, for which an element's lane is the same to
all.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.half import subnormal_lanes, upper
from treadle.backends.cpu.emit.lanes import Value
from treadle.backends.cpu.target import host
from treadle.dtypes import bfloat16
from treadle.kernels.lower import Sweep, is_running, is_store, schedule
from treadle.kernels.nest import CONTIGUOUS, Nest

_UPPER = -0x10000


def goes_by_turns(nest: Nest, sweep: Sweep) -> bool:
    """Whether all that a sweep moves is bfloat16, side by side."""
    if nest.axis != "inner" or sweep.reductions or sweep.restores or sweep.saves:
        return False
    varying, moves = schedule(nest).varying, 0
    for i in sweep.body:
        instr = nest.body[i]
        stores = is_store(instr)
        if is_running(instr) or (stores and instr.name != "store"):
            return False
        if not stores and (instr.name != "load" or not varying[i]):
            continue
        operand, indices = nest.operands[instr.attr], instr.args[stores:]
        plain = operand.kind == "array" and operand.inner == CONTIGUOUS
        if not (plain and varying[i] and operand.dtype == bfloat16):
            return False
        if operand.beside or any(varying[a] for a in indices):
            return False
        moves += 1
    return moves > 0


def load_turns(b: Builder, address: str, lanes: int) -> list[Value]:
    """Two vectors, of twice as many consecutive elements."""
    words = f"<{2 * lanes} x i16>"
    text = b.op(f"load {words}, ptr {address}, align 2")
    return _apart(Value(b, text, "i16", 2 * lanes))


def store_turns(b: Builder, address: str, even: Value, odd: Value) -> None:
    """Two vectors of numbers that are rounded."""
    both = even.both
    if both is None or both is not odd.both:
        both = _together(even.as_int(), odd.as_int())
    b(f"store {both.type} {both.text}, ptr {address}, align 2")


def rounded_turns(even: Value, odd: Value) -> list[Value]:
    """Floats rounded to bfloat16 (see `treadle.backends.cpu.emit.half`)."""
    if 32 * even.lanes != 512 or "avx512bf16" not in host().flags:
        raised = [upper(x) for x in (even, odd)]
        both = _together(*raised)
        return [replace((x & _UPPER).as_float(), both=both) for x in raised]
    b, lanes = even.b, even.lanes
    short, convert = "<32 x bfloat>", "@llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    b.declare(f"{short} {convert}({even.type}, {even.type})")
    text = b.op(
        f"call {short} {convert}({even.type} {odd.text}, {even.type} {even.text})"
    )
    usual = Value(b, b.op(f"bitcast {short} {text} to <32 x i16>"), "i16", 32)
    usual = usual.shuffle([i for k in range(lanes) for i in (k, lanes + k)])
    masks = [subnormal_lanes(x) for x in (even, odd)]
    which = b.op(f"or i{lanes} {masks[0]}, {masks[1]}")
    some, before = b.op(f"icmp ne i{lanes} {which}, 0"), b.block
    with b.when(some, seldom=True):
        other = _together(upper(even), upper(odd))
        inside = b.block
    found = f"[{usual.text}, %{before}], [{other.text}, %{inside}]"
    return _apart(usual.new(f"phi {usual.type} {found}"))


def _apart(both: Value) -> list[Value]:
    lanes = both.lanes // 2
    text = both.b.op(f"bitcast {both.type} {both.text} to <{lanes} x i32>")
    words = Value(both.b, text, "i32", lanes)
    return [replace(x.as_float(), both=both) for x in (words << 16, words & _UPPER)]


def _together(even: Value, odd: Value) -> Value:
    """Of the upper halves of two vectors of words."""
    words = even.op("lshr", 16) | (odd & _UPPER)
    lanes = 2 * words.lanes
    text = words.b.op(f"bitcast {words.type} {words.text} to <{lanes} x i16>")
    return Value(words.b, text, "i16", lanes)
