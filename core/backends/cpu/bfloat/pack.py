"""Packs operands for units: blocks of 32 x 16 words, padded with zeros along k.

A word of 32 bits holds a *group* of elements that follow each other along k: a pair of
bfloat16, so that a block has 32 k, or four bytes (`treadle.backends.cpu.whole`), so
that it has 64. A's rows become blocks [32 rows][k], B's columns blocks [16 groups of k]
[32 columns][group], one behind the other along k. Both are an operand's `outer` axis
(rows of A or columns of B) against k, in one of two orders::

    lines    [outer][k]                   as they lie, if k is contiguous
    groups   [k / group][outer][group]    lines interleaved, if the outer axis is

The order that isn't wanted is transposed, by words. What is contiguous along neither is
gathered first. Floats are rounded on the way, and integers made longer.
"""

from __future__ import annotations

from treadle.backends.cpu.bfloat.unit import (
    BLOCK_BYTES,
    LINE_BYTES,
    SIDE,
    WORDS,
    Operand,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.parts import minimum

_HALVES = f"<{SIDE} x i16>"
_AHEAD = 16
"""Lines between a copy and its prefetch; they may lie pages apart."""


def _bytes(b: Builder, base: str, index: str, size: int) -> str:
    skipped = b.op(f"mul i64 {index}, {size}")
    return b.op(f"getelementptr i8, ptr {base}, i64 {skipped}")


def emit_pack(b: Builder, a: Operand, by: Operand) -> None:
    """Defines ``pack_rows`` of A and ``pack_columns`` of B, which need a
    ``pack_transpose`` of floats (see `treadle.backends.cpu.gemm.pack`)."""
    b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    for form in dict.fromkeys((a, by)):
        _emit_lines(b, form)
        _emit_groups(b, form)
    _emit_panel(b, "pack_rows", a, ("lines", "groups"))
    _emit_panel(b, "pack_columns", by, ("groups", "lines"))


_COPY = "ptr noalias readonly %source, i64 %step, i64 %count, i64 %k, ptr noalias %to"


def _prefetch(b: Builder, address: str) -> None:
    b(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")


def _emit_lines(b: Builder, form: Operand) -> None:
    """``lines``: `count` lines of `k` contiguous elements."""
    with b.function(f"define internal void @lines_{form.name}({_COPY})"):
        # What is beyond them gives sums that are not stored.
        with b.loop("0", "%count") as i:
            line = form.at(b, "%source", i, "%step")
            later = form.at(b, line, str(_AHEAD), "%step")
            target = _bytes(b, "%to", i, LINE_BYTES)
            with b.loop("0", "%k", str(form.depth)) as j:
                _prefetch(b, form.at(b, later, j))
                left = b.op(f"sub i64 %k, {j}")
                value = form.read(b, form.at(b, line, j), left, form.depth)
                # A block has as many bytes as it takes for each of its k, times 32.
                place = _bytes(b, target, j, BLOCK_BYTES // form.depth)
                b(f"store {form.vector(form.depth)} {value}, ptr {place}, align 64")
        b("ret void")


def _emit_groups(b: Builder, form: Operand) -> None:
    """``groups``: `k` lines of `count` contiguous elements, to a whole block's end.

    More than 32 elements go to panels that are `panel` bytes apart, all of a line at
    once: lines of a large matrix lie pages apart.
    """
    depth, group = form.depth, form.group
    with b.function(f"define internal void @groups_{form.name}({_COPY}, i64 %panel)"):
        whole = b.op(f"and i64 {b.op(f'add i64 %k, {depth - 1}')}, {-depth}")
        even = b.op(f"and i64 %k, {-group}")
        for start, stop in (("0", even), (even, whole)):
            step = str(group)
            with b.loop(start, stop, step) as i, b.loop("0", "%count", str(SIDE)) as j:
                target = _bytes(b, "%to", i, BLOCK_BYTES // depth)
                skipped = b.op(f"mul i64 {b.op(f'udiv i64 {j}, {SIDE}')}, %panel")
                target = b.op(f"getelementptr i8, ptr {target}, i64 {skipped}")
                _interleave(b, form, (i, j), target, present=start == "0")
        b("ret void")


def _interleave(
    b: Builder, form: Operand, corner: tuple[str, str], target: str, present: bool
) -> None:
    """A group of lines from a corner on. If not all are `present`, some may be."""
    first, column = corner
    left = b.op(f"sub i64 %count, {column}")
    values = []
    for number in range(form.group):
        i = b.op(f"add i64 {first}, {number}")
        line = form.at(b, form.at(b, "%source", i, "%step"), column)
        count = left
        if present:
            later = form.at(b, line, str(_AHEAD), "%step")
            for part in range(0, SIDE * form.dtype.itemsize, LINE_BYTES):
                _prefetch(b, b.op(f"getelementptr i8, ptr {later}, i64 {part}"))
        else:
            inside = b.op(f"icmp slt i64 {i}, %k")
            count = b.op(f"select i1 {inside}, i64 {left}, i64 0")
        values.append(form.read(b, line, count, SIDE))
    if form.group == 4:
        values = [_as_halves(b, *values[i : i + 2]) for i in (0, 2)]
    for half in (0, 1):
        lanes = range(half * SIDE // 2, (half + 1) * SIDE // 2)
        picks = ", ".join(f"i32 {i}, i32 {i + SIDE}" for i in lanes)
        both = ", ".join(f"{_HALVES} {value}" for value in values)
        words = b.op(f"shufflevector {both}, <{SIDE} x i32> <{picks}>")
        place = b.op(f"getelementptr i8, ptr {target}, i64 {64 * half}")
        b(f"store {_HALVES} {words}, ptr {place}, align 64")


def _as_halves(b: Builder, low: str, high: str) -> str:
    """Pairs of bytes from two lines."""
    low, high = (
        b.op(f"zext <{SIDE} x i8> {value} to {_HALVES}") for value in (low, high)
    )
    eights = ", ".join(["i16 8"] * SIDE)
    return b.op(f"or {_HALVES} {low}, {b.op(f'shl {_HALVES} {high}, <{eights}>')}")


def _emit_panel(b: Builder, name: str, form: Operand, orders: tuple[str, str]) -> None:
    """Packs `count` of the outer axis and all `k`: at most 32, but for groups that lie
    as wanted, which go to panels that are `panel` bytes apart.

    orders: the wanted one and the other, which is transposed.
    """
    wanted, other = orders
    with b.function(
        f"define internal void @{name}(ptr %source, i64 %outer_step, i64 %k_step, "
        "i64 %count, i64 %k, ptr %to, i64 %panel)"
    ):
        turned = b.op(f"alloca [{BLOCK_BYTES} x i8], align 64")
        gathered = b.op(f"alloca [{SIDE * form.depth} x {form.scalar}], align 64")
        along, step = {}, {"lines": "%outer_step", "groups": "%k_step"}
        along["lines"] = b.op("icmp eq i64 %k_step, 1")
        along["groups"] = b.op("icmp eq i64 %outer_step, 1")
        with b.when(along[wanted]):
            _copy(b, form, wanted, "%source", step[wanted], "%k", "%to")
            b("ret void")
            b.label(b.fresh_label("unreachable"))
        apart = b.op(f"xor i1 {along[other]}, true")
        with b.loop("0", "%k", str(form.depth)) as k0:
            length = minimum(b, b.op(f"sub i64 %k, {k0}"), str(form.depth))
            source = form.at(b, "%source", k0, "%k_step")
            with b.when(apart):
                _gather(b, form, other, source, length, gathered)
            source = b.op(f"select i1 {apart}, ptr {gathered}, ptr {source}")
            long = form.depth if other == "lines" else SIDE
            between = b.op(f"select i1 {apart}, i64 {long}, i64 {step[other]}")
            _copy(b, form, other, source, between, length, turned)
            # A row of lines holds the words of a block's k, one of groups its lines.
            rows = {"lines": WORDS, "groups": SIDE}[other]
            columns = {"lines": SIDE, "groups": WORDS}[other]
            target = _bytes(b, "%to", k0, BLOCK_BYTES // form.depth)
            b(
                f"call void @pack_transpose(ptr {turned}, i64 {rows}, i64 {rows}, "
                f"i64 {columns}, ptr {target}, i64 {columns})"
            )
        b("ret void")


def _copy(
    b: Builder, form: Operand, order: str, source: str, step: str, k: str, to: str
) -> None:
    apart = ", i64 %panel" if order == "groups" else ""
    b(
        f"call void @{order}_{form.name}(ptr {source}, i64 {step}, i64 %count, "
        f"i64 {k}, ptr {to}{apart})"
    )


def _gather(
    b: Builder, form: Operand, order: str, source: str, k: str, to: str
) -> None:
    """Makes lines of an order contiguous, a block's length apart."""
    outer, inner, long = ("%count", "%outer_step"), (k, "%k_step"), form.depth
    if order == "groups":
        outer, inner, long = inner, outer, SIDE
    align = form.dtype.itemsize
    with b.loop("0", outer[0]) as i:
        line, target = form.at(b, source, i, outer[1]), form.at(b, to, i, str(long))
        with b.loop("0", inner[0]) as j:
            address = form.at(b, line, j, inner[1])
            value = b.op(f"load {form.scalar}, ptr {address}, align {align}")
            place = form.at(b, target, j)
            b(f"store {form.scalar} {value}, ptr {place}, align {align}")
