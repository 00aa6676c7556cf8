"""Packs operands for units: blocks of 32 x 32 bfloat16, padded with zeros.

A's rows become blocks [32 rows][32 k], B's columns blocks [16 pairs of k][32 columns]
[2], one behind the other along k. Both are an operand's `outer` axis (rows of A or
columns of B) against k, in one of two orders::

    lines    [outer][k]           as they lie, if k is contiguous
    pairs    [k / 2][outer][2]    two lines interleaved, if the outer axis is

The order that isn't wanted is transposed, by pairs, in registers. What is contiguous
along neither is gathered first. Floats are rounded on the way. Whole vectors are moved
without masks.
"""

from __future__ import annotations

from treadle.backends.cpu.bfloat.unit import BLOCK_BYTES, SIDE, Format, line_mask
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.pack import transposed
from treadle.backends.cpu.gemm.parts import minimum
from treadle.backends.cpu.gemm.tile import Machine

_WORDS = f"<{SIDE} x i16>"
_AHEAD = 16
"""Lines between a copy and its prefetch; they may lie pages apart."""


def _bytes(b: Builder, base: str, index: str, size: int) -> str:
    skipped = b.op(f"mul i64 {index}, {size}")
    return b.op(f"getelementptr i8, ptr {base}, i64 {skipped}")


def emit_pack(b: Builder, words: Machine, a: Format, by: Format) -> None:
    """Defines ``pack_rows`` of A and ``pack_columns`` of B.

    words: what has vectors of words, which pairs are here.
    """
    b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    _emit_turn(b, words)
    for form in dict.fromkeys((a, by)):
        _emit_lines(b, form)
        _emit_pairs(b, form)
    _emit_panel(b, words, "pack_rows", a, ("lines", "pairs"))
    _emit_panel(b, words, "pack_columns", by, ("pairs", "lines"))


_COPY = "ptr noalias readonly %source, i64 %step, i64 %count, i64 %k, ptr noalias %to"


def _prefetch(b: Builder, address: str) -> None:
    b(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")


def _emit_lines(b: Builder, form: Format) -> None:
    """``lines``: `count` lines of `k` contiguous elements."""
    with b.function(f"define internal void @lines_{form.scalar}({_COPY})"):
        with b.loop("0", str(SIDE)) as i:
            line = form.at(b, "%source", i, "%step")
            later = form.at(b, line, str(_AHEAD), "%step")
            present = b.op(f"icmp slt i64 {i}, %count")
            wanted = b.op(f"select i1 {present}, i64 %k, i64 0")
            target = _bytes(b, "%to", i, 2 * SIDE)
            whole = b.op(f"and i64 {wanted}, {-SIDE}")
            for start, stop in (("0", whole), (whole, "%k")):
                with b.loop(start, stop, str(SIDE)) as j:
                    _prefetch(b, form.at(b, later, j))
                    mask = None if start == "0" else line_mask(b, wanted, j)
                    value = form.read(b, form.at(b, line, j), mask)
                    # A block has as many bytes as it takes for each of its k, times 32.
                    place = _bytes(b, target, j, BLOCK_BYTES // SIDE)
                    b(f"store {_WORDS} {value}, ptr {place}, align 64")
        b("ret void")


def _emit_pairs(b: Builder, form: Format) -> None:
    """``pairs``: `k` lines of `count` contiguous elements, to a whole block's end.

    More than 32 elements go to panels that are `panel` bytes apart, all of a line at
    once: lines of a large matrix lie pages apart.
    """
    with b.function(f"define internal void @pairs_{form.scalar}({_COPY}, i64 %panel)"):
        whole = b.op(f"and i64 {b.op(f'add i64 %k, {SIDE - 1}')}, {-SIDE}")
        even, full = b.op("and i64 %k, -2"), b.op(f"and i64 %count, {-SIDE}")

        def columns(i: str, start: str, stop: str, present: bool, whole: bool) -> None:
            with b.loop(start, stop, str(SIDE)) as j:
                target = _bytes(b, "%to", i, BLOCK_BYTES // SIDE)
                skipped = b.op(f"mul i64 {b.op(f'udiv i64 {j}, {SIDE}')}, %panel")
                target = b.op(f"getelementptr i8, ptr {target}, i64 {skipped}")
                _interleave(b, form, (i, j), target, present, whole)

        with b.loop("0", even, "2") as i:
            columns(i, "0", full, present=True, whole=True)
            columns(i, full, "%count", present=True, whole=False)
        with b.loop(even, whole, "2") as i:
            columns(i, "0", "%count", present=False, whole=False)
        b("ret void")


def _interleave(
    b: Builder,
    form: Format,
    corner: tuple[str, str],
    target: str,
    present: bool,
    whole: bool,
) -> None:
    """Two lines from a corner on. If not `present`, there may be one, or none; if not
    `whole`, fewer than 32 elements of each."""
    first, column = corner
    left = b.op(f"sub i64 %count, {column}")
    mask, values = None if whole else line_mask(b, left), []
    for i in (first, b.op(f"add i64 {first}, 1")):
        line = form.at(b, form.at(b, "%source", i, "%step"), column)
        if present:
            later = form.at(b, line, str(_AHEAD), "%step")
            for part in range(0, SIDE * form.dtype.itemsize, 64):
                _prefetch(b, b.op(f"getelementptr i8, ptr {later}, i64 {part}"))
        else:
            inside = b.op(f"icmp slt i64 {i}, %k")
            mask = line_mask(b, b.op(f"select i1 {inside}, i64 {left}, i64 0"))
        values.append(form.read(b, line, mask))
    for half in (0, 1):
        lanes = range(half * SIDE // 2, (half + 1) * SIDE // 2)
        picks = ", ".join(f"i32 {i}, i32 {i + SIDE}" for i in lanes)
        both = ", ".join(f"{_WORDS} {value}" for value in values)
        pair = b.op(f"shufflevector {both}, <{SIDE} x i32> <{picks}>")
        place = b.op(f"getelementptr i8, ptr {target}, i64 {64 * half}")
        b(f"store {_WORDS} {pair}, ptr {place}, align 64")


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
            rows.append(b.op(f"load {words.vector}, ptr {place}, align 2"))
        for i, row in enumerate(transposed(b, words, rows)):
            place = _bytes(b, "%to", "%row", i)
            b(f"store {words.vector} {row}, ptr {place}, align 4")
        b("ret void")


def _turn_block(
    b: Builder, words: Machine, order: str, source: str, step: str, to: str
) -> None:
    """A block in the other order. step: bytes from a row to the next."""
    rows, row = {"lines": (SIDE, 4 * SIDE), "pairs": (SIDE // 2, 2 * SIDE)}[order]
    side = words.tile.lanes
    with b.loop("0", str(rows), str(side)) as i:
        skipped = b.op(f"mul i64 {i}, {step}")
        first = b.op(f"getelementptr i8, ptr {source}, i64 {skipped}")
        into = _bytes(b, to, i, 4)
        for j in range(0, SIDE * SIDE // 2 // rows, side):
            at = b.op(f"getelementptr i8, ptr {first}, i64 {4 * j}")
            place = b.op(f"getelementptr i8, ptr {into}, i64 {j * row}")
            b(f"call void @turn(ptr {at}, i64 {step}, ptr {place}, i64 {row})")


def _emit_panel(
    b: Builder, words: Machine, name: str, form: Format, orders: tuple[str, str]
) -> None:
    """Packs `count` of the outer axis and all `k`: at most 32, but for pairs that lie
    as wanted, which go to panels that are `panel` bytes apart.

    orders: the wanted one and the other, which is transposed.
    """
    wanted, other = orders
    with b.function(
        f"define internal void @{name}(ptr %source, i64 %outer_step, i64 %k_step, "
        "i64 %count, i64 %k, ptr %to, i64 %panel)"
    ):
        turned = b.op(f"alloca [{BLOCK_BYTES} x i8], align 64")
        gathered = b.op(f"alloca [{SIDE * SIDE} x {form.scalar}], align 64")
        along, step = {}, {"lines": "%outer_step", "pairs": "%k_step"}
        along["lines"] = b.op("icmp eq i64 %k_step, 1")
        along["pairs"] = b.op("icmp eq i64 %outer_step, 1")
        with b.when(along[wanted]):
            _copy(b, form, wanted, "%source", step[wanted], "%k", "%to")
            b("ret void")
            b.label(b.fresh_label("unreachable"))
        apart = b.op(f"xor i1 {along[other]}, true")
        # A row of lines holds the pairs of a block's k, one of pairs its lines.
        row = {"lines": 2 * SIDE, "pairs": 4 * SIDE}[other]
        with b.loop("0", "%k", str(SIDE)) as k0:
            left = b.op(f"sub i64 %k, {k0}")
            length = minimum(b, left, str(SIDE))
            source = form.at(b, "%source", k0, "%k_step")
            target = _bytes(b, "%to", k0, BLOCK_BYTES // SIDE)
            whole = "false"
            if form.short and other == "lines":
                whole = b.op(f"icmp eq i64 %count, {SIDE}")
                whole = b.op(f"and i1 {whole}, {b.op(f'icmp sge i64 {left}, {SIDE}')}")
            in_place = b.op(f"and i1 {whole}, {along[other]}")
            with b.when(b.op(f"xor i1 {in_place}, true")):
                with b.when(apart):
                    _gather(b, form, other, source, length, gathered)
                given = b.op(f"select i1 {apart}, ptr {gathered}, ptr {source}")
                between = b.op(f"select i1 {apart}, i64 {SIDE}, i64 {step[other]}")
                _copy(b, form, other, given, between, length, turned)
            given = b.op(f"select i1 {in_place}, ptr {source}, ptr {turned}")
            between = b.op(f"mul i64 {step[other]}, {form.dtype.itemsize}")
            between = b.op(f"select i1 {in_place}, i64 {between}, i64 {row}")
            _turn_block(b, words, other, given, between, target)
        b("ret void")


def _copy(
    b: Builder, form: Format, order: str, source: str, step: str, k: str, to: str
) -> None:
    apart = ", i64 %panel" if order == "pairs" else ""
    b(
        f"call void @{order}_{form.scalar}(ptr {source}, i64 {step}, i64 %count, "
        f"i64 {k}, ptr {to}{apart})"
    )


def _gather(b: Builder, form: Format, order: str, source: str, k: str, to: str) -> None:
    """Makes lines of an order contiguous, 32 elements apart."""
    outer, inner = ("%count", "%outer_step"), (k, "%k_step")
    if order == "pairs":
        outer, inner = inner, outer
    align = form.dtype.itemsize
    with b.loop("0", outer[0]) as i:
        line, target = form.at(b, source, i, outer[1]), form.at(b, to, i, str(SIDE))
        with b.loop("0", inner[0]) as j:
            address = form.at(b, line, j, inner[1])
            value = b.op(f"load {form.scalar}, ptr {address}, align {align}")
            place = form.at(b, target, j)
            b(f"store {form.scalar} {value}, ptr {place}, align {align}")
