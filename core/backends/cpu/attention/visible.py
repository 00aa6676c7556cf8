"""Which keys masks let some rows of queries see: what all of them hide needs no work.

Padding, causal masks that are given as arrays, and pieces of a sequence that don't see
each other hide whole panels of keys. Masks are read until a key is found that counts,
from either end.
"""

from __future__ import annotations

import numpy as np

from treadle.backends.cpu.attention.parts import LOG2E, LOWEST, Code, Operands
from treadle.backends.cpu.attention.schedule import MASKS, Word
from treadle.backends.cpu.emit.access import load
from treadle.backends.cpu.emit.lanes import Value, select

_BOOL = np.dtype(np.bool_)
_HIDES = "bias", "seen"
"""Masks without which a key has no weight at all. (A derivative takes dropout, too.)"""


def narrowed(
    code: Code,
    masks: tuple[str, ...],
    where: Operands,
    keys: tuple[Value, Value],
    full: Value,
) -> tuple[Value, Value]:
    """The first of some keys, a whole number of panels, and the one after the last:
    unless `full`, without those at either end that masks hide from all of some rows.

    where: the batch element, the head, the first row, and how many.
    """
    begin, end = keys
    for mask in masks:
        if mask in _HIDES:
            first = code.ask(f"first_{mask}", "%args", *where, begin, end)
            last = code.ask(f"last_{mask}", "%args", *where, begin, end)
            begin, end = first, code.most(last, first)
    return select(full, keys[0], begin), select(full, keys[1], end)


def emit_visible(code: Code, masks: tuple[str, ...]) -> None:
    """Defines what `narrowed` calls."""
    for mask in masks:
        if mask in _HIDES:
            _emit_end(code, mask, last=False)
            _emit_end(code, mask, last=True)


def _emit_end(code: Code, mask: str, last: bool) -> None:
    """``first_MASK`` (``last_MASK``): of some keys, the first one of a panel that has one
    which counts (after the last one of such a panel, or the end)."""
    b, width = code.b, code.machine.tile.columns
    name = f"last_{mask}" if last else f"first_{mask}"
    with b.function(
        f"define internal i64 @{name}(ptr %args, i64 %batch, i64 %head, i64 %row, "
        "i64 %count, i64 %begin, i64 %end)"
    ):
        batch, head, row, count = code.ints("batch", "head", "row", "count")
        begin, end = code.ints("begin", "end")
        word = MASKS[mask]
        steps = code.words(*range(word + 1, word + 5))
        kind = code.machine.scalar if mask == "bias" else "i8"
        skipped = batch * steps[0] + head * steps[1] + row * steps[2]
        base = b.op(
            f"getelementptr {kind}, ptr {code.args(word, 'ptr')}, i64 {skipped.text}"
        )
        readable = steps[3].compare("eq", 1) & (end - begin).compare("sge", width)
        readable = readable & ~code.flag(Word.SHORT)  # where it would not pay
        rows = select(steps[2].compare("eq", 0), 1, count)
        rows = select(readable, rows, 0)
        missing = select(readable, begin, end) if last else select(readable, end, begin)
        with b.carrying("0", (end - begin).text, str(width), [("i64", "-1")]) as turn:
            place, found = (code.i64(x) for x in (turn.index, turn.values[0]))
            # The last panel overlaps the one before it.
            near = code.least(begin + place, end - width)
            far = code.most(end - width - place, begin)
            key, unknown = far if last else near, found.compare("slt", 0)
            stop = select(unknown, rows, 0)
            with b.carrying("0", stop.text, "1", [("i64", "0")]) as each:
                skipped = code.i64(each.index) * steps[2] + key
                at = b.op(f"getelementptr {kind}, ptr {base}, i64 {skipped.text}")
                each.next = [(code.i64(each.values[0]) | _counts(code, mask, at)).text]
            here = code.i64(each.values[0]).compare("ne", 0) & unknown
            turn.next = [select(here, key, found).text]
        found = code.i64(turn.values[0])
        nothing = found.compare("slt", 0)
        found = code.below(code.most(found + (2 * width - 1 if last else 0), 0), width)
        found = code.least(found, end)
        b(f"ret i64 {select(nothing, missing, found).text}")


def _counts(code: Code, mask: str, at: str) -> Value:
    """1 if a key of a panel counts, else 0."""
    b, width = code.b, code.machine.tile.columns
    if mask == "seen":
        counts = load(b, at, _BOOL, width, None)
    else:  # What is no number counts.
        bias = load(b, at, code.dtype, width, None)
        counts = bias.compare("uge", LOWEST / LOG2E)
    bits = b.op(f"bitcast {counts.type} {counts.text} to i{width}")
    some = b.op(f"icmp ne i{width} {bits}, 0")
    return Value(b, some, "i1", 1).cast("zext", "i64")
