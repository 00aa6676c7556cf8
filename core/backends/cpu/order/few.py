"""The few smallest keys of a long row, for the kernel of `ordering`.

The row is dealt to groups, a vector of them at a time, two for each key that is wanted.
As many of their least keys as are wanted bound the last wanted key from above. Then the
row is read once more, and what is within the bound is collected, in the order of the
row: hardly more than what is wanted, if groups are alike. That is ordered; should it be
half of the row, all of it is.
"""

from __future__ import annotations

import numpy as np

from treadle.backends.cpu.emit.access import load, store
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import (
    Value,
    constant,
    counted_intrinsic,
    intrinsic,
    lane_numbers,
    select,
)

DIGIT = 256
"""Values of a byte."""

DTYPES: dict[str, np.dtype] = {"i32": np.dtype(np.uint32), "i64": np.dtype(np.uint64)}
"""Those of keys, by their IR types."""


def item(b: Builder, kind: str, base: str, index: str) -> str:
    """An element of an array."""
    return b.op(f"load {kind}, ptr {element(b, kind, base, index)}")


def put(b: Builder, kind: str, value: str, base: str, index: str) -> None:
    """Writes an element of an array."""
    b(f"store {kind} {value}, ptr {element(b, kind, base, index)}")


def element(b: Builder, kind: str, base: str, index: str) -> str:
    """The address of an element of an array."""
    return b.op(f"getelementptr {kind}, ptr {base}, i64 {index}")


def tally(b: Builder, key: str, table: str, word: str, shift: str) -> str:
    """Counts one more of a byte of a key; returns the count before."""
    place = counter(b, key, table, word, shift)
    count = b.op(f"load i32, ptr {place}")
    b(f"store i32 {b.op(f'add i32 {count}, 1')}, ptr {place}")
    return count


def counter(b: Builder, key: str, table: str, word: str, shift: str) -> str:
    """The address in a table of counts that a byte of a key selects."""
    moved = b.op(f"lshr {key} {word}, {shift}")
    digit = b.op(f"and {key} {moved}, {DIGIT - 1}")
    if key != "i64":
        digit = b.op(f"zext {key} {digit} to i64")
    return b.op(f"getelementptr i32, ptr {table}, i64 {digit}")


def emit_few(b: Builder, key: str, lanes: int) -> None:
    """``few``: the order of the %wanted smallest keys."""
    with b.function(
        "define internal void @few(ptr %keys, ptr %places, i64 %length, i64 %wanted, "
        "ptr %scratch)"
    ):
        bound = _bound(b, key, lanes)
        room = b.op("lshr i64 %length, 1")
        # What does not stay is written, too, and may come behind the last.
        size = b.op(f"add i64 {room}, 1")
        numbers = element(b, key, "%scratch", size)
        order = element(b, "i32", numbers, size)
        count = _collect(b, key, lanes, bound, numbers, room)
        rest = _aligned(b, element(b, "i32", order, "%wanted"))
        is_full = b.op(f"icmp eq i64 {count}, {room}")
        with b.when(is_full):
            call(b, "ordered", "%keys", "%places", "%length", "%wanted", "%scratch")
        with b.when(b.op(f"xor i1 {is_full}, true")):
            call(b, "ordered", "%scratch", order, count, "%wanted", rest)
            with b.loop("0", "%wanted") as i:
                at = b.op(f"zext i32 {item(b, 'i32', order, i)} to i64")
                put(b, "i32", item(b, "i32", numbers, at), "%places", i)
        b("ret void")


def call(
    b: Builder,
    name: str,
    keys: str,
    places: str,
    length: str,
    wanted: str,
    scratch: str,
) -> None:
    """Calls what finds the order of the `wanted` smallest keys."""
    b(
        f"call void @{name}(ptr {keys}, ptr {places}, i64 {length}, i64 {wanted},"
        f" ptr {scratch})"
    )


def _aligned(b: Builder, pointer: str) -> str:
    """Keys of eight bytes are aligned to them."""
    address = b.op(f"ptrtoint ptr {pointer} to i64")
    address = b.op(f"and i64 {b.op(f'add i64 {address}, 7')}, -8")
    return b.op(f"inttoptr i64 {address} to ptr")


def _bound(b: Builder, key: str, lanes: int) -> str:
    """A key that as many keys as are wanted do not exceed."""
    dtype = DTYPES[key]
    groups = b.op("shl i64 %wanted, 1")
    groups = b.op(f"and i64 {b.op(f'add i64 {groups}, {lanes - 1}')}, {-lanes}")
    largest = constant(b, -1, key, lanes)
    whole = b.op(f"sub i64 %length, {lanes - 1}")
    with b.loop("0", groups, str(lanes)) as group:
        least = [(largest.type, largest.text)]
        with b.carrying(group, whole, groups, least) as turn:
            found = load(b, element(b, key, "%keys", turn.index), dtype, lanes, None)
            last = Value(b, turn.values[0], key, lanes)
            turn.next = [intrinsic("umin", last, found).text]
        # One group of the last round may lie half outside of the row.
        least = [(largest.type, turn.values[0])]
        with b.carrying(turn.index, "%length", groups, least) as turn:
            number = Value(b, turn.index, "i64", 1)
            there = (lane_numbers(b, "i64", lanes) + number).compare(
                "slt", Value(b, "%length", "i64", 1)
            )
            address = element(b, key, "%keys", turn.index)
            found = select(there, load(b, address, dtype, lanes, there), largest)
            last = Value(b, turn.values[0], key, lanes)
            turn.next = [intrinsic("umin", last, found).text]
        final = Value(b, turn.values[0], key, lanes)
        store(b, element(b, key, "%scratch", group), final, dtype, None)
    order = element(b, key, "%scratch", groups)
    rest = _aligned(b, element(b, "i32", order, groups))
    call(b, "ordered", "%scratch", order, groups, "%wanted", rest)
    place = item(b, "i32", order, b.op("sub i64 %wanted, 1"))
    return item(b, key, "%scratch", b.op(f"zext i32 {place} to i64"))


def _collect(
    b: Builder, key: str, lanes: int, bound: str, numbers: str, room: str
) -> str:
    """Copies keys within a bound, with their places; returns how many there are, or
    how many there is room for.

    Of those that are equal to it, no more are copied than are wanted.
    """
    whole = b.op(f"sub i64 %length, {lanes - 1}")
    state = [("i64", "0"), ("i64", "%wanted")]
    with b.carrying("0", whole, str(lanes), state) as turn:
        address = element(b, key, "%keys", turn.index)
        found = load(b, address, DTYPES[key], lanes, None)
        within = found.compare("ule", Value(b, bound, key, 1))
        mask = b.op(f"bitcast {within.type} {within.text} to i{lanes}")
        mask = b.op(f"zext i{lanes} {mask} to i64")
        bits = intrinsic("ctpop", Value(b, mask, "i64", 1)).text
        hits = [*zip(("i64", "i64"), turn.values, strict=True), ("i64", mask)]
        with b.carrying("0", bits, "1", hits) as hit:
            left = Value(b, hit.values[2], "i64", 1)
            lane = counted_intrinsic("cttz", left, True).text
            index = b.op(f"add i64 {turn.index}, {lane}")
            others = b.op(f"and i64 {left.text}, {b.op(f'sub i64 {left.text}, 1')}")
            copied = _copied(b, key, bound, numbers, room, index, hit.values[:2])
            hit.next = [*copied, others]
        turn.next = hit.values[:2]
    with b.carrying(
        turn.index, "%length", "1", [("i64", v) for v in turn.values]
    ) as turn:
        word = item(b, key, "%keys", turn.index)
        bits = b.op(f"zext i1 {b.op(f'icmp ule {key} {word}, {bound}')} to i64")
        state = [("i64", v) for v in turn.values]
        with b.carrying("0", bits, "1", state) as hit:
            hit.next = _copied(b, key, bound, numbers, room, turn.index, hit.values)
        turn.next = hit.values
    return turn.values[0]


def _copied(
    b: Builder,
    key: str,
    bound: str,
    numbers: str,
    room: str,
    index: str,
    state: list[str],
) -> list[str]:
    """Copies a key; if it does not stay, the next one takes its place.

    state: how many keys stay so far, and how many more may that are equal to the bound.
    """
    place, left = state
    word = item(b, key, "%keys", index)
    put(b, key, word, "%scratch", place)
    put(b, "i32", b.op(f"trunc i64 {index} to i32"), numbers, place)
    tie = b.op(f"icmp eq {key} {word}, {bound}")
    left = b.op(f"sub i64 {left}, {b.op(f'zext i1 {tie} to i64')}")
    stays = b.op(f"icmp sge i64 {left}, 0")
    stays = b.op(f"select i1 {tie}, i1 {stays}, i1 true")
    place = b.op(f"add i64 {place}, {b.op(f'zext i1 {stays} to i64')}")
    return [b.least(place, room), left]
