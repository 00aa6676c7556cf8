"""Packs operands for units: blocks of 32 x 16 words, padded with zeros along k.

A word of 32 bits holds a *group* of elements that follow each other along k: a pair of
bfloat16, so that a block has 32 k, four bytes (`treadle.backends.cpu.integers`), so
that it has 64, or a float (`singles`): 16. A's rows become blocks [32 rows][k], B's
columns blocks [16 groups of k][32 columns][group], one behind the other along k. Both
are an operand's `outer` axis (rows of A or columns of B) against k, in one of two
orders::

    lines    [outer][k]                   as they lie, if k is contiguous
    groups   [k / group][outer][group]    lines interleaved, if the outer axis is

The order that isn't wanted is transposed, by words, in registers. What is contiguous
along neither is gathered first. Floats are rounded on the way, and integers made
longer. Whole vectors are moved without masks.
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
from treadle.backends.cpu.gemm.pack import transposed
from treadle.backends.cpu.gemm.parts import minimum
from treadle.backends.cpu.gemm.tile import Machine

_HALVES = f"<{SIDE} x i16>"
_AHEAD = 16
"""Lines between a copy and its prefetch; they may lie pages apart."""


def _bytes(b: Builder, base: str, index: str, size: int) -> str:
    skipped = b.op(f"mul i64 {index}, {size}")
    return b.op(f"getelementptr i8, ptr {base}, i64 {skipped}")


PACKERS = "pack_rows", "pack_columns"


def emit_pack(b: Builder, words: Machine, a: Operand, by: Operand) -> None:
    """Defines ``pack_rows`` of A and ``pack_columns`` of B.

    words: what has vectors of words.
    """
    b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    _emit_turn(b, words)
    for form in dict.fromkeys((a, by)):
        _emit_lines(b, form)
        _emit_groups(b, form)
    _emit_panel(b, words, "pack_rows", a, ("lines", "groups"))
    _emit_panel(b, words, "pack_columns", by, ("groups", "lines"))


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
            whole = b.op(f"and i64 %k, {-form.depth}")
            for start, stop in (("0", whole), (whole, "%k")):
                with b.loop(start, stop, str(form.depth)) as j:
                    _prefetch(b, form.at(b, later, j))
                    left = None if start == "0" else b.op(f"sub i64 %k, {j}")
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
        even, full = b.op(f"and i64 %k, {-group}"), b.op(f"and i64 %count, {-SIDE}")

        def columns(i: str, start: str, stop: str, present: bool, whole: bool) -> None:
            with b.loop(start, stop, str(SIDE)) as j:
                target = _bytes(b, "%to", i, BLOCK_BYTES // depth)
                skipped = b.op(f"mul i64 {b.op(f'udiv i64 {j}, {SIDE}')}, %panel")
                target = b.op(f"getelementptr i8, ptr {target}, i64 {skipped}")
                _interleave(b, form, (i, j), target, present, whole)

        with b.loop("0", even, str(group)) as i:
            columns(i, "0", full, present=True, whole=True)
            columns(i, full, "%count", present=True, whole=False)
        with b.loop(even, whole, str(group)) as i:
            columns(i, "0", "%count", present=False, whole=False)
        b("ret void")


def _interleave(
    b: Builder,
    form: Operand,
    corner: tuple[str, str],
    target: str,
    present: bool,
    whole: bool,
) -> None:
    """A group of lines from a corner on. If not all are `present`, some may be; if not
    `whole`, they may have fewer than 32 elements."""
    first, column = corner
    left = None if whole else b.op(f"sub i64 %count, {column}")
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
    if form.group == 1:
        b(f"store {form.vector(SIDE)} {values[0]}, ptr {target}, align 64")
        return
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


def _emit_turn(b: Builder, words: Machine) -> None:
    """``turn``: a square of words, as many as a vector has, transposed. Steps are in
    bytes."""
    with b.function(
        "define internal void @turn(ptr noalias readonly %source, i64 %step, "
        "ptr noalias %to, i64 %row)"
    ):
        rows = []
        for i in range(words.tile.lanes):
            place = _bytes(b, "%source", "%step", i)
            rows.append(b.op(f"load {words.vector}, ptr {place}, align 1"))
        for i, row in enumerate(transposed(b, words, rows)):
            place = _bytes(b, "%to", "%row", i)
            b(f"store {words.vector} {row}, ptr {place}, align 4")
        b("ret void")


def _turn_block(
    b: Builder, words: Machine, order: str, source: str, step: str, to: str
) -> None:
    """A block in the other order. step: bytes from a row to the next."""
    rows, row = {"lines": (SIDE, 4 * SIDE), "groups": (WORDS, LINE_BYTES)}[order]
    side = words.tile.lanes
    with b.loop("0", str(rows), str(side)) as i:
        skipped = b.op(f"mul i64 {i}, {step}")
        first = b.op(f"getelementptr i8, ptr {source}, i64 {skipped}")
        into = _bytes(b, to, i, 4)
        for j in range(0, SIDE * WORDS // rows, side):
            at = b.op(f"getelementptr i8, ptr {first}, i64 {4 * j}")
            place = b.op(f"getelementptr i8, ptr {into}, i64 {j * row}")
            b(f"call void @turn(ptr {at}, i64 {step}, ptr {place}, i64 {row})")


def _emit_panel(
    b: Builder, words: Machine, name: str, form: Operand, orders: tuple[str, str]
) -> None:
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
        # A row of lines holds the words of a block's k, one of groups its lines.
        row = {"lines": LINE_BYTES, "groups": 4 * SIDE}[other]
        long = {"lines": form.depth, "groups": SIDE}[other]
        with b.loop("0", "%k", str(form.depth)) as k0:
            left = b.op(f"sub i64 %k, {k0}")
            length = minimum(b, left, str(form.depth))
            source = form.at(b, "%source", k0, "%k_step")
            target = _bytes(b, "%to", k0, BLOCK_BYTES // form.depth)
            whole = "false"
            if form.as_packed and other == "lines":
                whole = b.op(f"icmp eq i64 %count, {SIDE}")
                full = b.op(f"icmp sge i64 {left}, {form.depth}")
                whole = b.op(f"and i1 {whole}, {full}")
            in_place = b.op(f"and i1 {whole}, {along[other]}")
            with b.when(b.op(f"xor i1 {in_place}, true")):
                with b.when(apart):
                    _gather(b, form, other, source, length, gathered)
                given = b.op(f"select i1 {apart}, ptr {gathered}, ptr {source}")
                between = b.op(f"select i1 {apart}, i64 {long}, i64 {step[other]}")
                _copy(b, form, other, given, between, length, turned)
            given = b.op(f"select i1 {in_place}, ptr {source}, ptr {turned}")
            between = b.op(f"mul i64 {step[other]}, {form.dtype.itemsize}")
            between = b.op(f"select i1 {in_place}, i64 {between}, i64 {row}")
            _turn_block(b, words, other, given, between, target)
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
