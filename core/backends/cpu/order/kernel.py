"""The kernel that orders rows of unsigned integers, as `schedule` says.

Short rows: the place of a key is the number of keys before it, counted a vector at a
time. Long rows: a radix sort, byte by byte from the lowest, of keys with their places;
all counts are taken in one pass, and bytes that all keys share are skipped. If few
places of a long row are wanted, `few` finds their keys first. All are stable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from treadle.backends.cpu.emit.access import load
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import (
    Value,
    constant,
    host_lanes,
    lane_numbers,
)
from treadle.backends.cpu.gemm.parts import Args, share
from treadle.backends.cpu.order.few import (
    DIGIT,
    DTYPES,
    call,
    counter,
    emit_few,
    item,
    put,
    tally,
)
from treadle.backends.cpu.order.schedule import FEW, SHORT_ROW
from treadle.backends.cpu.run.native import Source
from treadle.dims import is_dim


def source(itemsize: int, length: int, count: int) -> Source:
    """The kernel for keys of 4 or 8 bytes, of which there are so many in a row, and so
    many places are wanted."""
    return _source(itemsize, _way(length, count))


def common() -> list[Source]:
    """The kernels for rows of known lengths, and of any."""
    return [_source(size, way) for size in (4, 8) for way in ("short", "long", "")]


def _way(length: int, count: int) -> str:
    """The one function that such rows take; nothing if there may be several."""
    if is_dim(length) or is_dim(count):
        return ""
    if length <= SHORT_ROW:
        return "short"
    return "long" if count * FEW > length else ""


@functools.cache
def _source(itemsize: int, way: str) -> Source:
    key = f"i{8 * itemsize}"
    symbol = f"order_{key}"
    if way:
        symbol = f"{symbol}_{way}"
    within = (_source(itemsize, ""),) if way else ()
    emitted = functools.partial(emit, key, symbol, host_lanes(), way)
    return Source(symbol, symbol, emitted, within=within)


def emit(key: str, symbol: str, lanes: int, way: str = "") -> str:
    """The IR text of a module that defines the kernel for keys of IR type `key`.

    way: the function that all rows take, if it is known: "short" or "long".
    """
    b = Builder()
    if way != "long":
        _emit_short(b, key, lanes)
    if way != "short":
        _emit_long(b, key)
    if not way:
        _emit_ordered(b)
        emit_few(b, key, lanes)
    with b.function(
        f'define void @"{symbol}"(ptr %args, i64 %task, i64 %slot) nounwind'
    ):
        args = Args(b)
        tasks, rows, length, count = (args(i) for i in range(4))
        keys, places = args(4, "ptr"), args(5, "ptr")
        used = b.op(f"mul i64 %task, {args(7)}")
        scratch = b.op(f"getelementptr i8, ptr {args(6, 'ptr')}, i64 {used}")
        few = b.op(f"icmp sle i64 {b.op(f'mul i64 {count}, {FEW}')}, {length}")
        is_long = b.op(f"icmp sgt i64 {length}, {SHORT_ROW}")
        few = b.op(f"and i1 {few}, {is_long}")
        few = b.op(f"and i1 {few}, {b.op(f'icmp sgt i64 {count}, 0')}")
        others = b.op(f"xor i1 {few}, true")
        with b.loop(*share(b, "%task", rows, tasks)) as row:
            start = b.op(f"mul i64 {row}, {length}")
            row_keys = b.op(f"getelementptr {key}, ptr {keys}, i64 {start}")
            start = b.op(f"mul i64 {row}, {count}")
            row_places = b.op(f"getelementptr i32, ptr {places}, i64 {start}")
            of_row = row_keys, row_places, length, count, scratch
            if way:
                _call(b, way, *of_row)
            else:
                with b.when(few):
                    call(b, "few", *of_row)
                with b.when(others):
                    call(b, "ordered", *of_row)
        b("ret void")
    return b.text()


def _call(b: Builder, way: str, *of_row: str) -> None:
    if way == "long":
        call(b, way, *of_row)
    else:
        keys, places, length, wanted, _ = of_row
        args = f"ptr {keys}, ptr {places}, i64 {length}, i64 {wanted}"
        b(f"call void @short({args})")


def _emit_ordered(b: Builder) -> None:
    """``ordered``: short or long."""
    with b.function(
        "define internal void @ordered(ptr %keys, ptr %places, i64 %length, "
        "i64 %wanted, ptr %scratch)"
    ):
        is_short = b.op(f"icmp sle i64 %length, {SHORT_ROW}")
        of_row = "%keys", "%places", "%length", "%wanted", "%scratch"
        with b.when(is_short):
            _call(b, "short", *of_row)
        with b.when(b.op(f"xor i1 {is_short}, true")):
            _call(b, "long", *of_row)
        b("ret void")


def _emit_short(b: Builder, key: str, lanes: int) -> None:
    """``short``: counts the keys that come before each key, of a vector of keys at
    once."""
    with b.function(
        "define internal void @short(ptr %keys, ptr %places, i64 %length, i64 %wanted)"
    ):
        with b.loop("0", "%length", str(lanes)) as first:
            stop = b.least(b.op(f"add i64 {first}, {lanes}"), "%length")
            count = _keys_before(b, key, lanes, first, stop)
            with b.loop(first, stop) as i:
                place = count.lane(b.op(f"sub i64 {i}, {first}")).cast("sext", "i64")
                with b.when(place.compare("slt", Value(b, "%wanted", "i64", 1)).text):
                    number = b.op(f"trunc i64 {i} to i32")
                    put(b, "i32", number, "%places", place.text)
        b("ret void")


def _keys_before(b: Builder, key: str, lanes: int, first: str, stop: str) -> Value:
    """How many keys come before each of first..stop: of equal ones, those that are in
    front of it."""
    numbers = lane_numbers(b, "i64", lanes) + Value(b, first, "i64", 1)
    there = numbers.compare("slt", Value(b, "%length", "i64", 1))
    address = b.op(f"getelementptr {key}, ptr %keys, i64 {first}")
    mine = load(b, address, DTYPES[key], lanes, there)
    count = constant(b, 0, "i32", lanes)

    def among(other: Value, at: str) -> Value:
        ahead = numbers.compare("sgt", Value(b, at, "i64", 1))
        tie = other.compare("eq", mine) & ahead
        return other.compare("ult", mine) | tie

    parts: tuple[tuple[str, str, Callable[[Value, str], Value]], ...] = (
        ("0", first, lambda other, _: other.compare("ule", mine)),
        (first, stop, among),
        (stop, "%length", lambda other, _: other.compare("ult", mine)),
    )
    for start, end, is_before in parts:
        with b.carrying(start, end, "1", [(count.type, count.text)]) as turn:
            word = item(b, key, "%keys", turn.index)
            other = Value(b, word, key, 1).splat(lanes)
            more = is_before(other, turn.index).cast("sext", "i32")
            count = Value(b, turn.values[0], "i32", lanes)
            turn.next = [(count - more).text]
        count = Value(b, turn.values[0], "i32", lanes)
    return count


def _emit_long(b: Builder, key: str) -> None:
    """``long``: radix sort."""
    size = int(key[1:]) // 8
    table = size * DIGIT
    b.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    b.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    with b.function(
        "define internal void @long(ptr %keys, ptr %places, i64 %length, i64 %wanted, "
        "ptr %scratch)"
    ):
        counts = b.op(f"alloca [{table} x i32], align 64")
        b(
            f"call void @llvm.memset.p0.i64(ptr {counts}, i8 0, i64 {4 * table},"
            " i1 false)"
        )
        half = b.op(f"getelementptr {key}, ptr %scratch, i64 %length")
        numbers = b.op(f"getelementptr {key}, ptr {half}, i64 %length")
        more = b.op(f"getelementptr i32, ptr {numbers}, i64 %length")
        _count(b, key, size, counts, numbers)
        pointers = [("ptr", p) for p in ("%keys", numbers, "%scratch", more)]
        spare = [("ptr", half)]
        with b.carrying("0", str(size), "1", [*pointers, *spare]) as turn:
            turn.next = _pass(b, key, counts, turn.index, turn.values)
        nbytes = b.op("mul i64 %wanted, 4")
        b(
            f"call void @llvm.memcpy.p0.p0.i64(ptr %places, ptr {turn.values[1]},"
            f" i64 {nbytes}, i1 false)"
        )
        b("ret void")


def _count(b: Builder, key: str, size: int, counts: str, numbers: str) -> None:
    """Numbers the keys, and counts every value of each of their bytes."""
    with b.loop("0", "%length") as i:
        word = item(b, key, "%keys", i)
        put(b, "i32", b.op(f"trunc i64 {i} to i32"), numbers, i)
        for byte in range(size):
            table = b.op(f"getelementptr i32, ptr {counts}, i64 {byte * DIGIT}")
            tally(b, key, table, word, str(8 * byte))


def _pass(
    b: Builder, key: str, counts: str, byte: str, pointers: list[str]
) -> list[str]:
    """Sorts by one byte, unless it is the same in all keys.

    pointers: keys and places; where to write them; and where the keys that this pass
    reads may be written over by the next (the first ones are an argument). Returns the
    same for the next pass.
    """
    keys, numbers, to_keys, to_numbers, spare = pointers
    table = b.op(
        f"getelementptr i32, ptr {counts}, i64 {b.op(f'mul i64 {byte}, {DIGIT}')}"
    )
    bits = b.op(f"mul i64 {byte}, 8")
    shift = bits if key == "i64" else b.op(f"trunc i64 {bits} to {key}")
    word = b.op(f"load {key}, ptr {keys}")
    shared = b.op(f"load i32, ptr {counter(b, key, table, word, shift)}")
    needed = b.op(f"icmp ne i64 {b.op(f'zext i32 {shared} to i64')}, %length")
    with b.when(needed):
        with b.carrying("0", str(DIGIT), "1", [("i32", "0")]) as turn:
            place = b.op(f"getelementptr i32, ptr {table}, i64 {turn.index}")
            count = b.op(f"load i32, ptr {place}")
            b(f"store i32 {turn.values[0]}, ptr {place}")
            turn.next = [b.op(f"add i32 {turn.values[0]}, {count}")]
        with b.loop("0", "%length") as i:
            word, number = item(b, key, keys, i), item(b, "i32", numbers, i)
            place = tally(b, key, table, word, shift)
            at = b.op(f"zext i32 {place} to i64")
            put(b, key, word, to_keys, at)
            put(b, "i32", number, to_numbers, at)

    def either(yes: str, no: str) -> str:
        return b.op(f"select i1 {needed}, ptr {yes}, ptr {no}")

    # The keys as they were given are only read: their place goes to `spare`.
    return [
        either(to_keys, keys),
        either(to_numbers, numbers),
        either(spare, to_keys),
        either(numbers, to_numbers),
        either(to_keys, spare),
    ]
