"""How lines come into a block, one in each lane, and leave it.

Functions ``name(ptr x, lines, step, gap, n, ptr block, flip)`` take n numbers of each
of some lines to a block, or back to memory, times a factor. All but n count bytes:

- line: from one line to the next;
- step: from one number of a line to the next (of real lines, two numbers are one);
- gap: from the real part of a number to the imaginary one;
- flip: from the first part of a row of the block to where real parts go, so that an
  inverse transform is one of numbers whose parts are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value
from treadle.backends.cpu.fourier.lanes import (
    Complex,
    Lanes,
    at,
    first_of,
    groups_of,
    scaled,
)

_PARAMETERS = (
    "ptr noalias %x, i64 %line, i64 %step, i64 %gap, i64 %n, ptr noalias %block,"
    " i64 %flip"
)


def emit_moving(b: Builder, lanes: Lanes) -> None:
    """``load_NAME`` and ``store_NAME``: of lines whose numbers lie side by side
    ("across"), of real ones that do ("parts"), of lines that lie one behind the other
    ("along"), and of the first lines only, for fewer than there are lanes ("few", which
    takes their number as `lanes`)."""
    _emit(b, "load_across", _load_across, lanes)
    _emit(b, "store_across", _store_across, lanes)
    _emit(b, "load_parts", _load_parts, lanes)
    _emit(b, "store_parts", _store_parts, lanes)
    _emit(b, "load_along", _load_along, lanes)
    _emit(b, "store_along", _store_along, lanes)
    _emit(b, "load_few", _load_few, lanes)
    _emit(b, "store_few", _store_few, lanes)


def _emit(
    b: Builder, name: str, body: Callable[[Builder, Lanes], None], lanes: Lanes
) -> None:
    more = f", {lanes.kind} %factor" if name.startswith("store") else ""
    more += ", i64 %lanes" if name.endswith("few") else ""
    with b.function(f"define internal void @{name}({_PARAMETERS}{more}) noinline"):
        body(b, lanes)
        b("ret void")


def _places(b: Builder, lanes: Lanes) -> tuple[str, str]:
    """Where the real and the imaginary parts of a block are."""
    other = b.op(f"sub i64 {lanes.vector_bytes}, %flip")
    return at(b, "%block", "%flip"), at(b, "%block", other)


def _factor(b: Builder, lanes: Lanes) -> Value:
    return Value(b, "%factor", lanes.kind, 1)


def _load_across(b: Builder, lanes: Lanes) -> None:
    parts = _places(b, lanes)
    with b.loop("0", "%n") as i:
        z = lanes.load_numbers(b, at(b, "%x", scaled(b, i, "%step")))
        row = scaled(b, i, lanes.row)
        for part, value in zip(parts, z, strict=True):
            lanes.store(b, value, at(b, part, row))


def _store_across(b: Builder, lanes: Lanes) -> None:
    parts, factor = _places(b, lanes), _factor(b, lanes).splat(lanes.count)
    with b.loop("0", "%n") as i:
        row = scaled(b, i, lanes.row)
        re, im = (lanes.load(b, at(b, part, row)) for part in parts)
        y = at(b, "%x", scaled(b, i, "%step"))
        lanes.store_numbers(b, Complex(re * factor, im * factor), y)


def _load_parts(b: Builder, lanes: Lanes) -> None:
    parts = _places(b, lanes)
    with b.loop("0", "%n") as i:
        x, row = at(b, "%x", scaled(b, i, "%step")), scaled(b, i, lanes.row)
        for part, place in zip(parts, (x, at(b, x, "%gap")), strict=True):
            value = lanes.load(b, place).shuffle(lanes.order)
            lanes.store(b, value, at(b, part, row))


def _store_parts(b: Builder, lanes: Lanes) -> None:
    parts, factor = _places(b, lanes), _factor(b, lanes).splat(lanes.count)
    back = [lanes.order.index(i) for i in range(lanes.count)]
    with b.loop("0", "%n") as i:
        y, row = at(b, "%x", scaled(b, i, "%step")), scaled(b, i, lanes.row)
        for part, place in zip(parts, (y, at(b, y, "%gap")), strict=True):
            value = lanes.load(b, at(b, part, row)) * factor
            lanes.store(b, value.shuffle(back), place)


def _load_along(b: Builder, lanes: Lanes) -> None:
    """Square by square: as many parts of numbers as there are lanes."""
    parts, some = _places(b, lanes), lanes.count // 2
    with b.loop("0", groups_of(b, some, "%n")) as group:
        first = first_of(b, some, group, "%n")
        x = at(b, "%x", scaled(b, first, 2 * lanes.itemsize))
        given = []
        for i in range(lanes.count):
            given.append(lanes.load(b, at(b, x, scaled(b, "%line", i))))
        row = scaled(b, first, lanes.row)
        for i, value in enumerate(lanes.transposed(given)):
            place = at(b, parts[i % 2], row)
            lanes.store(b, value, at(b, place, str(i // 2 * lanes.row)))


def _store_along(b: Builder, lanes: Lanes) -> None:
    parts, some = _places(b, lanes), lanes.count // 2
    factor = _factor(b, lanes).splat(lanes.count)
    with b.loop("0", groups_of(b, some, "%n")) as group:
        first = first_of(b, some, group, "%n")
        row, given = scaled(b, first, lanes.row), []
        for i in range(lanes.count):
            place = at(b, parts[i % 2], row)
            value = lanes.load(b, at(b, place, str(i // 2 * lanes.row)))
            given.append(value * factor)
        y = at(b, "%x", scaled(b, first, 2 * lanes.itemsize))
        for i, value in enumerate(lanes.transposed(given)):
            lanes.store(b, value, at(b, y, scaled(b, "%line", i)))


def _load_few(b: Builder, lanes: Lanes) -> None:
    # What is in the other lanes is computed with, too.
    zero = Value(b, "zeroinitializer", lanes.kind, lanes.count)
    with b.loop("0", "%n") as i:
        row = at(b, "%block", scaled(b, i, lanes.row))
        lanes.store_pair(b, Complex(zero, zero), row)
    for place, part in _each_few(b, lanes):
        b(f"store {lanes.kind} {_number(b, lanes, place).text}, ptr {part}")


def _store_few(b: Builder, lanes: Lanes) -> None:
    for place, part in _each_few(b, lanes):
        value = _number(b, lanes, part) * _factor(b, lanes)
        b(f"store {lanes.kind} {value.text}, ptr {place}")


def _number(b: Builder, lanes: Lanes, place: str) -> Value:
    return Value(b, b.op(f"load {lanes.kind}, ptr {place}"), lanes.kind, 1)


def _each_few(b: Builder, lanes: Lanes) -> Iterator[tuple[str, str]]:
    """The addresses of each part of each number: in memory, and in the block."""
    parts = _places(b, lanes)
    with b.loop("0", "%n") as i, b.loop("0", "%lanes") as lane:
        line, row = at(b, "%x", scaled(b, lane, "%line")), scaled(b, i, lanes.row)
        place = at(b, line, scaled(b, i, "%step"))
        ahead = b.op(f"add i64 {row}, {scaled(b, lane, lanes.itemsize)}")
        for part, found in zip(parts, (place, at(b, place, "%gap")), strict=True):
            yield found, at(b, part, ahead)
