"""The few smallest keys of a long row, for the kernel of `ordering`.

The last of them is found byte by byte from the highest: of the keys that agree with it
so far, the next byte is counted. Then the row is read once more, and what is smaller is
collected, with the first of those that are equal to it; that little is ordered.
"""

from __future__ import annotations

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.order.schedule import SHORT_ROW

DIGIT = 256
"""Values of a byte."""


def item(b: Builder, kind: str, base: str, index: str) -> str:
    """An element of an array."""
    address = b.op(f"getelementptr {kind}, ptr {base}, i64 {index}")
    return b.op(f"load {kind}, ptr {address}")


def put(b: Builder, kind: str, value: str, base: str, index: str) -> None:
    """Writes an element of an array."""
    address = b.op(f"getelementptr {kind}, ptr {base}, i64 {index}")
    b(f"store {kind} {value}, ptr {address}")


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


def emit_few(b: Builder, key: str) -> None:
    """``few``: the order of the %wanted smallest keys."""
    size = int(key[1:]) // 8
    with b.function(
        "define internal void @few(ptr %keys, ptr %places, i64 %length, i64 %wanted, "
        "ptr %scratch)"
    ):
        table = b.op(f"alloca [{DIGIT} x i32], align 64")
        state = [(key, "0"), (key, "0"), ("i64", "%wanted")]
        with b.carrying("0", str(size), "1", state) as turn:
            turn.next = _next_byte(b, key, table, turn.index, turn.values)
        last, _, ties = turn.values
        room = b.op("add i64 %wanted, 1")
        numbers = b.op(f"getelementptr {key}, ptr %scratch, i64 {room}")
        order = b.op(f"getelementptr i32, ptr {numbers}, i64 {room}")
        rest = b.op(f"getelementptr i32, ptr {order}, i64 %wanted")
        # Keys of eight bytes are aligned to them.
        address = b.op(f"ptrtoint ptr {rest} to i64")
        address = b.op(f"and i64 {b.op(f'add i64 {address}, 7')}, -8")
        rest = b.op(f"inttoptr i64 {address} to ptr")
        _collect(b, key, numbers, last, ties)
        few = f"ptr %scratch, ptr {order}, i64 %wanted, i64 %wanted"
        is_short = b.op(f"icmp sle i64 %wanted, {SHORT_ROW}")
        with b.when(is_short):
            b(f"call void @short({few})")
        with b.when(b.op(f"xor i1 {is_short}, true")):
            b(f"call void @long({few}, ptr {rest})")
        with b.loop("0", "%wanted") as i:
            at = b.op(f"zext i32 {item(b, 'i32', order, i)} to i64")
            put(b, "i32", item(b, "i32", numbers, at), "%places", i)
        b("ret void")


def _next_byte(
    b: Builder, key: str, table: str, turn: str, state: list[str]
) -> list[str]:
    """One more byte of the last key that is wanted.

    state: the key so far; which of its bits are known; and as which of the keys that
    agree in these it is wanted, counted from 1.
    """
    known, mask, rank = state
    size = int(key[1:]) // 8
    bits = b.op(f"mul i64 {b.op(f'sub i64 {size - 1}, {turn}')}, 8")
    shift = bits if key == "i64" else b.op(f"trunc i64 {bits} to {key}")
    b(f"call void @llvm.memset.p0.i64(ptr {table}, i8 0, i64 {4 * DIGIT}, i1 false)")
    with b.loop("0", "%length") as i:
        word = item(b, key, "%keys", i)
        differs = b.op(f"and {key} {b.op(f'xor {key} {word}, {known}')}, {mask}")
        with b.when(b.op(f"icmp eq {key} {differs}, 0")):
            tally(b, key, table, word, shift)
    # As long as the keys counted so far are fewer than the rank, the byte is greater.
    with b.carrying(
        "0", str(DIGIT), "1", [("i64", "0"), ("i64", "0"), ("i64", "0")]
    ) as step:
        below, digit, total = step.values
        count = b.op(f"zext i32 {item(b, 'i32', table, step.index)} to i64")
        total = b.op(f"add i64 {total}, {count}")
        beyond = b.op(f"icmp slt i64 {total}, {rank}")
        after = b.op(f"add i64 {step.index}, 1")
        step.next = [
            b.op(f"select i1 {beyond}, i64 {total}, i64 {below}"),
            b.op(f"select i1 {beyond}, i64 {after}, i64 {digit}"),
            total,
        ]
    below, digit, _ = step.values
    byte = digit if key == "i64" else b.op(f"trunc i64 {digit} to {key}")
    return [
        b.op(f"or {key} {known}, {b.op(f'shl {key} {byte}, {shift}')}"),
        b.op(f"or {key} {mask}, {b.op(f'shl {key} {DIGIT - 1}, {shift}')}"),
        b.op(f"sub i64 {rank}, {below}"),
    ]


def _collect(b: Builder, key: str, numbers: str, last: str, ties: str) -> None:
    """Copies what is smaller than a key, and the first `ties` that are equal to it.

    Every key goes to the scratch; if it does not stay, the next one takes its place.
    """
    with b.carrying("0", "%length", "1", [("i64", "0"), ("i64", ties)]) as turn:
        place, left = turn.values
        word = item(b, key, "%keys", turn.index)
        put(b, key, word, "%scratch", place)
        put(b, "i32", b.op(f"trunc i64 {turn.index} to i32"), numbers, place)
        less = b.op(f"icmp ult {key} {word}, {last}")
        equal = b.op(f"icmp eq {key} {word}, {last}")
        tie = b.op(f"and i1 {equal}, {b.op(f'icmp sgt i64 {left}, 0')}")
        stays = b.op(f"zext i1 {b.op(f'or i1 {less}, {tie}')} to i64")
        used = b.op(f"zext i1 {tie} to i64")
        turn.next = [
            b.op(f"add i64 {place}, {stays}"),
            b.op(f"sub i64 {left}, {used}"),
        ]
