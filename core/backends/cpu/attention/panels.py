"""Rows and panels, as the micro-kernel reads them: where they lie, or copies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treadle.backends.cpu.attention.parts import Code, Factor
from treadle.backends.cpu.attention.schedule import Area, Word
from treadle.backends.cpu.emit.access import store
from treadle.backends.cpu.emit.half import rounded
from treadle.backends.cpu.emit.lanes import Value, select
from treadle.backends.cpu.gemm.pack import columns


class Panels(NamedTuple):
    """A matrix as panels, each of some columns: address, and elements from row to row,
    and to the next column of which a panel begins."""

    base: str
    step: Value
    column: Value

    def at(self, code: Code, row: Value, column: Value) -> Factor:
        """From a row on; of pairs of rows, an even one."""
        row = code.units(row)
        place = code.at(self.base, row * self.step, column * self.column)
        return Factor(place, self.step)


def taken(
    code: Code,
    rows: Factor,
    count: Value,
    depth: Value,
    area: Area,
    scratch: str = "%scratch",
) -> Factor:
    """Rows of half floats as floats, or as pairs, in scratch memory."""
    copy, step = code.area(area, scratch), code.units(depth)
    code.call("take_rows", *rows, count, depth, copy, step)
    return Factor(copy, step)


def pack_turned(
    code: Code,
    rows: Factor,
    count: Value,
    depth: Value,
    area: Area,
    factor: Value,
    scratch: str,
) -> None:
    """Makes panels of transposed rows, times a number (but for pairs)."""
    if code.is_half:
        rows = taken(code, rows, count, depth, Area.TAKEN, scratch)
    given = count, code.units(depth), code.area(area, scratch), factor
    code.call("pack_turned", *rows, *given)


def rows_of(code: Code, rows: Factor, count: Value, depth: Value, area: Area) -> Factor:
    """Rows as the micro-kernel reads them: where they lie, or a copy."""
    if code.is_half:
        return taken(code, rows, count, depth, area)
    there, copy = code.flag(Word.IN_PLACE), code.area(area)
    with code.b.when((~there).text):
        code.call("pack_copy", rows.base, rows.step, count, depth, copy, depth)
    base = code.either(there, rows.base, copy)
    return Factor(base, select(there, rows.step, depth))


def pack_panels(
    code: Code,
    rows: Factor,
    count: Value,
    depth: Value,
    area: Area,
    scratch: str = "%scratch",
) -> None:
    """Makes what `panels_of` gives."""
    panels = code.area(area, scratch)
    if code.pairs:
        code.call("pack_pairs", *rows, count, depth, panels)
        return
    if code.is_half:
        rows = taken(code, rows, count, depth, Area.TAKEN, scratch)
    with code.b.when((~code.flag(Word.IN_PLACE)).text):
        code.call("pack_rows", rows.base, rows.step, count, depth, panels)


def panels_of(code: Code, rows: Factor, count: Value, panels: str) -> Panels:
    """Rows as panels: where they lie, or what `pack_panels` made."""
    there, width = code.flag(Word.IN_PLACE), code.machine.tile.columns
    if code.is_half:
        return Panels(panels, code.i64(width), code.units(count))
    return Panels(
        code.either(there, rows.base, panels),
        select(there, rows.step, width),
        select(there, 1, count),
    )


def emit_panels(code: Code) -> None:
    """Defines what copies rows."""
    _emit_scaled_copy(code, "scaled_copy", code.dtype)
    _emit_scaled_copy(code, "give_rows", code.stored)
    _emit_pack_rows(code)
    _emit_pack_turned(code)


def _emit_scaled_copy(code: Code, name: str, dtype: np.dtype) -> None:
    """``scaled_copy`` (``give_rows``): rows times a number (as results)."""
    b, scalar = code.b, code.machine.scalar
    to = code.at if dtype == code.dtype else code.beyond

    def settled(x: Value) -> Value:
        return x if dtype == code.dtype else rounded(x, dtype)

    with b.function(
        f"define internal void @{name}(ptr %from, i64 %step, ptr %to, i64 %to_step,"
        f" i64 %rows, i64 %columns, {scalar} %factor)"
    ):
        step, to_step, rows, columns = code.ints("step", "to_step", "rows", "columns")
        factor = Value(b, "%factor", scalar, 1).splat(code.lanes)
        whole = columns & -code.lanes
        mask = code.mask(columns - whole)
        ragged = columns.compare("sgt", whole)
        with code.loop(0, rows) as i:
            source, target = code.at("%from", i * step), to("%to", i * to_step)
            with code.loop(0, whole, code.lanes) as j:
                x = (code.load(code.at(source, j)) * factor).rounded_once()
                store(b, to(target, j), settled(x), dtype, None)
            with b.when(ragged.text):
                x = (code.load(code.at(source, whole), mask) * factor).rounded_once()
                store(b, to(target, whole), settled(x), dtype, mask)
        b("ret void")


def _emit_pack_rows(code: Code) -> None:
    """``pack_rows``: rows as panels, each of some of their columns."""
    b, width = code.b, code.machine.tile.columns
    with b.function(
        "define internal void @pack_rows(ptr %from, i64 %step, i64 %rows, i64 %columns,"
        " ptr %panels)"
    ):
        step, rows, columns = code.ints("step", "rows", "columns")
        with code.loop(0, columns, width) as j:
            some = code.least(columns - j, width)
            source, target = code.at("%from", j), code.at("%panels", j * rows)
            wide = code.i64(width)
            code.call("pack_copy", source, step, rows, some, target, wide)
        b("ret void")


def _emit_pack_turned(code: Code) -> None:
    """``pack_turned``: the transpose of rows, times a number (but for pairs), as
    panels, each of some rows. Whole squares are turned in registers."""
    b, width, lanes = code.b, code.machine.tile.columns, code.lanes
    wide, scalar = code.i64(width), code.machine.scalar
    with b.function(
        "define internal void @pack_turned(ptr %from, i64 %step, i64 %rows,"
        f" i64 %columns, ptr %panels, {scalar} %factor)"
    ):
        step, rows, deep = code.ints("step", "rows", "columns")
        factor = Value(b, "%factor", scalar, 1)
        spread = factor.splat(lanes)
        with code.loop(0, rows, width) as i:
            some = code.least(rows - i, width)
            source, target = code.at("%from", i * step), code.at("%panels", i * deep)
            whole = select(some.compare("sge", lanes), deep & -lanes, 0)
            with code.loop(0, whole, lanes) as j, code.loop(0, some, lanes) as k:
                # The last square overlaps the one before.
                first = code.least(k, some - lanes)
                corner = code.at(source, first * step, j)
                place = code.at(target, j * width, first)
                with code.loop(0, code.i64(lanes), 16 // code.size) as c:
                    line, to = code.at(corner, c), code.at(place, c * width)
                    found = columns(b, code.machine, line, step.text)
                    for number, text in enumerate(found):
                        x = Value(b, text, scalar, lanes)
                        x = x if code.pairs else (x * spread).rounded_once()
                        code.store(code.at(to, code.i64(number * width)), x)
            left = deep - whole
            with b.when(left.compare("sgt", 0).text):
                to = code.at(target, whole * width)
                given = code.at(source, whole), step, left, some, to, wide
                code.call("pack_transpose", *given)
                if not code.pairs:
                    code.call("scaled_copy", to, wide, to, wide, left, wide, factor)
        b("ret void")
