"""Lookups at places that are the same in every row: some of the columns of each.

Vectors that run on from row to row (`points.py`) meet the same places again and again.
So what they read is chosen from windows, too, like what needs no lookup; only where
those are is found while the kernel runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from treadle.backends.cpu.emit.lanes import (
    Value,
    intrinsic,
    lane_numbers,
    mangled,
)
from treadle.backends.cpu.emit.windows import (
    Choice,
    larger,
    most_windows,
    number_kind,
    registers,
)
from treadle.dims import hint
from treadle.fuse.lowering.launches import Binding
from treadle.kernels.lower import schedule
from treadle.kernels.nest import Nest


class Still(NamedTuple):
    """A load of an operand at places that instructions say, and all operands that those
    read."""

    load: int
    places: frozenset[int]
    operands: frozenset[int]


@lru_cache(maxsize=4096)
def lookups(nest: Nest) -> dict[int, Still]:
    """By operand that is looked up once, what would have to stand still for it."""
    varying, found = schedule(nest).varying, {}
    loads: dict[int, list[int]] = {}
    for i, instr in enumerate(nest.body):
        if instr.name == "load" and nest.operands[instr.attr].gathers:
            loads.setdefault(instr.attr, []).append(i)
    for k, mine in loads.items():
        (i, *more), dtype = mine, nest.operands[k].dtype
        places = _behind(nest, nest.body[i].args)
        operands = frozenset([nest.body[p].attr for p in places if _reads(nest, p)])
        plain = not any(nest.operands[o].gathers for o in operands)
        moves = any(varying[a] for a in nest.body[i].args)
        if not more and plain and moves and registers(dtype) == 1:
            found[k] = Still(i, places, operands)
    return found


def _reads(nest: Nest, i: int) -> bool:
    return nest.body[i].name == "load"


def _behind(nest: Nest, args: Sequence[int]) -> frozenset[int]:
    """These instructions, and all that they are made of."""
    found: set[int] = set()
    left = [*args]
    while left:
        i = left.pop()
        if i not in found:
            found.add(i)
            left += nest.body[i].args
    return frozenset(found)


def windows_at(
    nest: Nest, operand: int, bindings: Sequence[Binding], points: int, lanes: int
) -> int:
    """How many windows suit lookups in this operand; 0 if those of a row are not those
    of the next, or rows lie too far apart. points: of a row."""
    still = lookups(nest).get(operand)
    last = nest.outer - 1
    if still is None or any(hint(bindings[o].strides[last]) for o in still.operands):
        return 0
    rows = -(-lanes // points) + 1
    reach = abs(hint(bindings[operand].strides[last])) * rows
    if reach <= 2 * lanes:
        return 2
    most = most_windows(lanes)
    return most if reach <= most * lanes else 0


def choice_at(offsets: Value, most: int) -> tuple[Choice, str, str]:
    """What an entry of a table would tell of elements at these offsets, how many
    windows that are, and whether these are no more than `most`."""
    b, lanes = offsets.b, offsets.lanes
    first, last = _reduced("smin", offsets), _reduced("smax", offsets)
    span = b.op(f"add i64 {b.op(f'sub i64 {last}, {first}')}, 1")
    back = larger(b, b.op(f"sub i64 {span}, {lanes}"), "0")
    there = offsets - Value(b, first, "i64", 1)
    begins = there & -lanes
    # The last window ends where the elements do.
    starts = intrinsic("smin", begins, Value(b, back, "i64", 1).splat(lanes))
    kind = number_kind(lanes)
    which = (begins + there - starts).cast("trunc", kind)
    short = b.op(f"trunc i64 {b.least(span, str(lanes))} to {kind}")
    mask = lane_numbers(b, kind, lanes).compare("ult", Value(b, short, kind, 1))
    count = b.op(f"udiv i64 {b.op(f'add i64 {span}, {lanes - 1}')}, {lanes}")
    fits = b.op(f"icmp ule i64 {count}, {most}")
    return Choice(which, mask, first, back), count, fits


def _reduced(how: str, x: Value) -> str:
    symbol = f"@llvm.vector.reduce.{how}.{mangled(x.kind, x.lanes)}"
    x.b.declare(f"{x.kind} {symbol}({x.type})")
    return x.b.op(f"call {x.kind} {symbol}({x.type} {x.text})")
