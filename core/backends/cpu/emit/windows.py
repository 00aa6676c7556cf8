"""Vectors of elements that do not lie side by side: windows, and a choice of lanes.

A vector of some consecutive points of short rows is read as a few whole vectors, the
*windows*, that begin where its first element lies, and each lane takes what belongs to
it. Where windows begin, and what lanes take, is the same for each group of rows: a
table that a task makes once.

An entry of the table is of one register: 32-bit words of larger elements, or smaller
elements themselves. It has, for each word, the window's number times words of a window,
plus the word's number there; where the first window begins; how far behind it the last
one does; and how many words each may read. The numbers of words fill a line of memory:
where there are more lanes, they have fewer bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from treadle.backends.cpu.emit.access import to_memory, to_register
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import (
    Value,
    lane_numbers,
    mangled,
    memory_kind,
    select,
)
from treadle.backends.cpu.run.shared import SHARED
from treadle.backends.cpu.target import host

_MOST_WINDOWS = 8
"""More take longer than elements that are loaded one by one."""
ENTRY_BYTES = 128
_START, _LAST, _COUNT = 64, 72, 80


def can_choose(dtype: np.dtype) -> bool:
    """Whether lanes of elements of this size can be chosen by an instruction."""
    flags = host().flags
    if host().arch != "x86_64":
        return False
    if dtype.itemsize >= 4:
        return "avx2" in flags if host().vector_bytes == 32 else "avx512f" in flags
    return {"avx512vl", "avx512bw"}.issubset(flags) and host().vector_bytes == 64


def most_windows(lanes: int) -> int:
    """That an operand may have: their words' numbers have to fit an entry."""
    return min(_MOST_WINDOWS, 2 ** _number_bits(lanes) // lanes)


def _number_bits(lanes: int) -> int:
    return min(32, 8 * _START // lanes)


def number_kind(lanes: int) -> str:
    """The kind of the numbers of words."""
    return f"i{_number_bits(lanes)}"


def offset_bytes(lanes: int) -> int:
    """Of an entry for `load_offsets`."""
    return max(ENTRY_BYTES, 8 * lanes)


def registers(dtype: np.dtype) -> int:
    """Registers of a vector, and words of a large element."""
    return max(dtype.itemsize // 4, 1)


class Shape(NamedTuple):
    """The loops that vectors of points run over: rows of `along` times `down` elements,
    as many vectors of them as make whole rows (all i64 in registers)."""

    vectors: str
    along: str
    down: str


def table(
    b: Builder, lanes: int, shape: Shape, steps: tuple[str, str, str], words: int
) -> tuple[str, str]:
    """Makes an operand's table on the stack; returns it, and its number of windows, 0
    if these do not do. steps: elements between rows, between what is `down`, and
    `along`."""
    nbytes = words * ENTRY_BYTES
    return _made(b, "windows", _emit_table, lanes, shape, steps, words, nbytes)


def offsets(b: Builder, lanes: int, shape: Shape, steps: tuple[str, str, str]) -> str:
    """Makes a table of how many steps each point is from the first one of its group of
    rows, for `load_offsets`."""
    nbytes = offset_bytes(lanes)
    return _made(b, "offsets", _emit_offsets, lanes, shape, steps, 1, nbytes)[0]


def load_offsets(b: Builder, at: str, lanes: int, vector: str) -> Value:
    """The offsets of a vector's points."""
    moved = b.op(f"mul i64 {vector}, {offset_bytes(lanes)}")
    place = b.op(f"getelementptr i8, ptr {at}, i64 {moved}")
    return Value(b, b.op(f"load <{lanes} x i64>, ptr {place}, align 64"), "i64", lanes)


def store_apart(
    b: Builder, at: str, vector: str, base: str, value: Value, dtype: np.dtype
) -> None:
    """Stores a vector's points where the offsets of a table say, one by one: a scatter
    takes twice as long (Zen 4)."""
    value = to_memory(value, dtype)
    moved = b.op(f"mul i64 {vector}, {offset_bytes(value.lanes)}")
    entry = b.op(f"getelementptr i8, ptr {at}, i64 {moved}")
    for lane in range(value.lanes):
        number = b.op(f"getelementptr i64, ptr {entry}, i64 {lane}")
        offset = b.op(f"load i64, ptr {number}")
        place = b.op(f"getelementptr {value.kind}, ptr {base}, i64 {offset}")
        element = b.op(f"extractelement {value.type} {value.text}, i64 {lane}")
        b(f"store {value.kind} {element}, ptr {place}, align {dtype.itemsize}")


def _made(
    b: Builder,
    what: str,
    emit: Callable[[Builder, int], None],
    lanes: int,
    shape: Shape,
    steps: tuple[str, str, str],
    words: int,
    each: int,
) -> tuple[str, str]:
    """Calls the function that makes tables of a kind; gives one, and its answer. each:
    bytes for each vector."""
    symbol = f"@treadle.{what}.{lanes}"
    if symbol not in b.library:
        inner = Builder()
        names = ("vectors", "along", "down", "row", "below", "beside", "words")
        parameters = ", ".join(["ptr %at", *(f"i64 %{n}" for n in names)])
        with inner.function(f"define internal i64 {symbol}({parameters}) {SHARED}"):
            emit(inner, lanes)
        b.library[symbol] = "\n".join(inner.lines)
    # As long as it has to be: entries 4096 bytes apart would share lines of the cache.
    nbytes = b.op(f"mul i64 {shape.vectors}, {each}")
    at = b.op(f"alloca i8, i64 {nbytes}, align 64")
    numbers = (shape.vectors, shape.along, shape.down, *steps, str(words))
    texts = ", ".join([f"ptr {at}", *(f"i64 {n}" for n in numbers)])
    return at, b.op(f"call i64 {symbol}({texts})")


def _emit_offsets(b: Builder, lanes: int) -> None:
    points = b.op(f"mul i64 %vectors, {lanes}")
    with b.carrying("0", points, "1", [("i64", "0")] * 3) as point:
        place = b.op(f"udiv i64 {point.index}, {lanes}")
        place = b.op(f"mul i64 {place}, {offset_bytes(lanes) // 8}")
        place = b.op(f"add i64 {place}, {b.op(f'urem i64 {point.index}, {lanes}')}")
        place = b.op(f"getelementptr i64, ptr %at, i64 {place}")
        b(f"store i64 {_offset(b, point.values)}, ptr {place}")
        point.next = _next(b, point.values)
    b("ret i64 0")


def _offset(b: Builder, digits: Sequence[str]) -> str:
    """Of a point, whose row and place in that are given."""
    total = "0"
    for digit, step in zip(digits, ("row", "below", "beside"), strict=True):
        total = b.op(f"add i64 {total}, {b.op(f'mul i64 {digit}, %{step}')}")
    return total


def _next(b: Builder, digits: Sequence[str]) -> list[str]:
    """The digits of the next point."""
    row, low, column = digits
    column, low = _carried_over(b, b.op(f"add i64 {column}, 1"), low, "%along")
    low, row = _carried_over(b, low, row, "%down")
    return [row, low, column]


def _emit_table(b: Builder, lanes: int) -> None:
    places = b.op(f"alloca i64, i64 {lanes}, align 64")
    entries = b.op("mul i64 %vectors, %words")
    elements = b.op(f"udiv i64 {lanes}, %words")
    upper = b.op("sub i64 %words, 1")
    number = number_kind(lanes)
    with b.carrying("0", entries, "1", [("i64", "0")] * 4) as turn:
        *before, most = turn.values
        begin = [("i64", x) for x in before]
        bounds = [("i64", str(1 << 60)), ("i64", str(-(1 << 60)))]
        with b.carrying("0", elements, "1", [*begin, *bounds]) as point:
            *digits, first, last = point.values
            word = b.op(f"mul i64 {_offset(b, digits)}, %words")
            at = b.op(f"mul i64 {point.index}, %words")
            for extra in ("0", upper):
                there = b.op(f"add i64 {at}, {extra}")
                place = b.op(f"getelementptr i64, ptr {places}, i64 {there}")
                b(f"store i64 {b.op(f'add i64 {word}, {extra}')}, ptr {place}")
            end = b.op(f"add i64 {word}, {upper}")
            reached = [b.least(first, word), larger(b, last, end)]
            point.next = [*_next(b, digits), *reached]
        *after, first, last = point.values
        span = b.op(f"add i64 {b.op(f'sub i64 {last}, {first}')}, 1")
        count = b.op(f"udiv i64 {b.op(f'add i64 {span}, {lanes - 1}')}, {lanes}")
        back = larger(b, b.op(f"sub i64 {span}, {lanes}"), "0")
        final = b.op(f"sub i64 {count}, 1")
        entry = b.op(f"mul i64 {turn.index}, {ENTRY_BYTES}")
        entry = b.op(f"getelementptr i8, ptr %at, i64 {entry}")
        with b.loop("0", str(lanes)) as w:
            place = b.op(f"getelementptr i64, ptr {places}, i64 {w}")
            there = b.op(f"sub i64 {b.op(f'load i64, ptr {place}')}, {first}")
            window = b.least(b.op(f"udiv i64 {there}, {lanes}"), final)
            begins = b.op(f"mul i64 {window}, {lanes}")
            inside = b.op(f"sub i64 {there}, {b.least(begins, back)}")
            word = b.op(f"add i64 {begins}, {inside}")
            word = b.op(f"trunc i64 {word} to {number}")
            mine = b.op(f"getelementptr {number}, ptr {entry}, i64 {w}")
            b(f"store {number} {word}, ptr {mine}")
        short = b.least(span, str(lanes))
        for byte, found in ((_START, first), (_LAST, back), (_COUNT, short)):
            mine = b.op(f"getelementptr i8, ptr {entry}, i64 {byte}")
            b(f"store i64 {found}, ptr {mine}")
        turn.next = [*after, larger(b, most, count)]
    most = turn.values[3]
    few = b.op(f"icmp sle i64 {most}, {most_windows(lanes)}")
    b(f"ret i64 {b.op(f'select i1 {few}, i64 {most}, i64 0')}")


def larger(b: Builder, x: str, y: str) -> str:
    """The larger of two numbers."""
    larger = b.op(f"icmp sgt i64 {x}, {y}")
    return b.op(f"select i1 {larger}, i64 {x}, i64 {y}")


def _carried_over(b: Builder, digit: str, above: str, size: str) -> tuple[str, str]:
    """A digit that may have reached its size, and the one above it."""
    full = b.op(f"icmp eq i64 {digit}, {size}")
    above = b.op(f"add i64 {above}, {b.op(f'zext i1 {full} to i64')}")
    return b.op(f"select i1 {full}, i64 0, i64 {digit}"), above


@lru_cache(maxsize=1 << 12)
def windows_of(
    lanes: int, points: int, along: int, steps: tuple[int, int, int], words: int
) -> int:
    """How many windows `table` finds for rows of so many points, in lines of `along`;
    `lanes` times as many points as rows and vectors have in common."""
    count = math.lcm(points, lanes)
    at = np.arange(count)
    row, below, beside = steps
    first = row * (at // points) + below * (at % points // along)
    reached = ((first + beside * (at % along)) * words).reshape(-1, lanes // words)
    spans = reached.max(1) - reached.min(1) + words
    return int(-(-spans.max() // lanes))


class Choice(NamedTuple):
    """An entry of a table, read: which words lanes take, the mask of a window, where
    the first one begins, and how far behind it the last one does."""

    which: Value
    mask: Value
    start: str
    last: str


def read_choices(b: Builder, dtype: np.dtype, lanes: int, entries: str) -> list[Choice]:
    """The entries at this address: one for each register of a vector."""
    number, found = number_kind(lanes), []
    for n in range(registers(dtype)):
        entry = b.op(f"getelementptr i8, ptr {entries}, i64 {n * ENTRY_BYTES}")
        start, last, count = (
            b.op(f"load i64, ptr {b.op(f'getelementptr i8, ptr {entry}, i64 {at}')}")
            for at in (_START, _LAST, _COUNT)
        )
        words = b.op(f"load <{lanes} x {number}>, ptr {entry}, align 64")
        limit = Value(b, b.op(f"trunc i64 {count} to {number}"), number, 1)
        mask = lane_numbers(b, number, lanes).compare("ult", limit)
        which = Value(b, words, number, lanes)
        found.append(Choice(which, mask, start, last))
    return found


def load_windows(
    b: Builder,
    base: str,
    dtype: np.dtype,
    lanes: int,
    choices: Sequence[Choice],
    windows: str,
) -> Value:
    """The vector that entries of a table tell of. base: the address of the first point
    of its group of rows. windows: how many it has, at most; of "1" or "2" in
    no loop."""
    parts = [_register(b, base, dtype, lanes, choice, windows) for choice in choices]
    kind = memory_kind(dtype)
    if len(parts) == 1:
        (words,) = parts
        value = words if words.kind == kind else words.cast("bitcast", kind)
        return to_register(value, dtype)
    half = lanes // len(parts)
    of = f"<{half} x {kind}>"
    low, high = (
        Value(b, b.op(f"bitcast {p.type} {p.text} to {of}"), kind, half) for p in parts
    )
    return to_register(low.shuffle([*range(lanes)], high), dtype)


def _register(
    b: Builder, base: str, dtype: np.dtype, lanes: int, choice: Choice, windows: str
) -> Value:
    kind = f"i{8 * min(dtype.itemsize, 4)}"
    align, of = int(kind[1:]) // 8, f"<{lanes} x {kind}>"
    symbol = f"@llvm.masked.load.{mangled(kind, lanes)}.p0"
    b.declare(f"{of} {symbol}(ptr, <{lanes} x i1>, {of})")
    which, mask = choice.which, choice.mask

    def window(offset: str) -> Value:
        # What is shorter than a window, beside others that are not, has no second one.
        place = b.op(f"getelementptr {kind}, ptr {base}, i64 {offset}")
        text = b.op(
            f"call {of} {symbol}(ptr align {align} {place},"
            f" {mask.type} {mask.text}, {of} zeroinitializer)"
        )
        return Value(b, text, kind, lanes)

    narrow = which if kind == which.kind else which.cast("trunc", kind)
    if windows == "2" and _chooses_of_two(kind, lanes):
        second = window(b.op(f"add i64 {choice.start}, {choice.last}"))
        return _chosen_of_two(window(choice.start), second, narrow)
    found = _chosen(window(choice.start), narrow)
    if windows == "1":
        return found
    with b.carrying("1", windows, "1", [(found.type, found.text)]) as turn:
        before = Value(b, turn.values[0], kind, lanes)
        begins = b.least(b.op(f"mul i64 {turn.index}, {lanes}"), choice.last)
        chosen = _chosen(window(b.op(f"add i64 {choice.start}, {begins}")), narrow)
        behind = b.op(f"mul i64 {turn.index}, {lanes}")
        behind = b.op(f"trunc i64 {behind} to {which.kind}")
        mine = (which & -lanes).compare("eq", Value(b, behind, which.kind, 1))
        turn.next = [select(mine, chosen, before).text]
    return Value(b, turn.values[0], kind, lanes)


def _chooses_of_two(kind: str, lanes: int) -> bool:
    """Whether there is an instruction for `_chosen_of_two`, of a whole register."""
    wide = int(kind[1:]) * lanes == 8 * host().vector_bytes
    return kind == "i32" and wide and "avx512f" in host().flags


def _chosen_of_two(x: Value, y: Value, which: Value) -> Value:
    """As `_chosen`, of the lanes of x and, behind these, those of y."""
    width = int(x.kind[1:]) * x.lanes
    symbol = f"@llvm.x86.avx512.vpermi2var.d.{width}"
    x.b.declare(f"{x.type} {symbol}({x.type}, {x.type}, {x.type})")
    args = ", ".join(f"{v.type} {v.text}" for v in (x, which, y))
    return x.new(f"call {x.type} {symbol}({args})")


def _chosen(x: Value, which: Value) -> Value:
    """The lanes of x that the last bits of `which` tell."""
    width = int(x.kind[1:]) * x.lanes
    if x.kind == "i8" and width == 128:
        # A byte's highest bit would ask for a zero.
        symbol, which = "@llvm.x86.ssse3.pshuf.b.128", which & (x.lanes - 1)
    elif width == 256 and x.kind == "i32":
        symbol = "@llvm.x86.avx2.permd"
    else:
        name = {"i32": "si", "i16": "hi", "i8": "qi"}[x.kind]
        symbol = f"@llvm.x86.avx512.permvar.{name}.{width}"
    x.b.declare(f"{x.type} {symbol}({x.type}, {x.type})")
    return x.new(f"call {x.type} {symbol}({x.type} {x.text}, {x.type} {which.text})")
