"""The kernel that mixes values by attention.

A task owns some heads, or some rows of queries of them::

    pack the transposed keys, and the values, as panels
    for each block of rows of queries
        for each chunk of keys that some of them see
            scores of the tiles of the block, by the micro-kernel
            for each tile: weights, against the largest score so far; what they mix is
                added to the block's result, which shrinks where that score has grown
        divide by the sums of weights

Scores are in units of log(2). What is not seen has the score `LOWEST`, from which no
weight comes but in a row that sees nothing: that mixes all values alike, so that a
block with such a row is done once more, with all keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from treadle.backends.cpu.attention.halves import narrow, scale, store_weights
from treadle.backends.cpu.attention.panels import (
    pack_panels,
    pack_turned,
    panels_of,
    rows_of,
)
from treadle.backends.cpu.attention.parts import (
    LOG2E,
    LOWEST,
    Code,
    Factor,
    Operands,
    across,
    largest,
    multiply,
    power,
    tiles_of,
    total,
)
from treadle.backends.cpu.attention.schedule import (
    COLUMNS,
    MASKS,
    Area,
    Word,
    block_rows,
    pitch,
)
from treadle.backends.cpu.attention.visible import emit_visible, narrowed
from treadle.backends.cpu.emit.access import load
from treadle.backends.cpu.emit.lanes import Value, select
from treadle.backends.cpu.gemm.parts import share
from treadle.backends.cpu.run.divided import COLD

Ends = tuple[Value, Value]
"""The first of some numbers, and the one after the last."""

_BOOL = np.dtype(np.bool_)
_PITCH = pitch(COLUMNS)


def emit_forward(code: Code, symbol: str, masks: tuple[str, ...]) -> None:
    """Defines the kernel."""
    _emit_soften(code, masks)
    _emit_finish(code)
    emit_visible(code, masks)
    _emit_block(code, masks)
    b = code.b
    with b.function(
        f'define void @"{symbol}"(ptr %args, i64 %task, i64 %slot) ' + COLD
    ):
        batches, heads, shared = code.words(Word.BATCH, Word.HEADS, Word.SHARED)
        pieces, queries, keys = code.words(Word.PIECES, Word.QUERIES, Word.KEYS)
        depth, value_depth = code.words(Word.DEPTH, Word.VALUE_DEPTH)
        units = batches * heads * pieces
        used = code.i64("%slot") * code.word(Word.OWN_STRIDE)
        base = code.args(Word.OWN, "ptr")
        scratch = b.op(f"getelementptr i8, ptr {base}, i64 {used.text}")
        factor = (code.number(Word.SCALE) * LOG2E).rounded_once()
        rows = code.word(Word.BLOCK)
        blocks = (queries + rows - 1).op("udiv", rows)
        group = heads.op("udiv", shared)
        mine = share(b, "%task", units.text, code.args(Word.TASKS))
        with b.loop(*mine) as index:
            unit = code.i64(index)
            above = unit.op("udiv", pieces)
            piece, head = unit.op("urem", pieces), above.op("urem", heads)
            batch, own = above.op("udiv", heads), head.op("udiv", group)
            first = unit.compare("eq", code.i64(mine[0]))
            begins = unit.op("urem", pieces * group).compare("eq", 0)
            with b.when((first | begins).text):
                k, v = (code.rows(w, batch, own) for w in (Word.KEY, Word.VALUE))
                pack_turned(code, k, keys, depth, Area.KEYS_T, factor, scratch)
                pack_panels(code, v, keys, value_depth, Area.VALUES, scratch)
            bounds = share(b, piece.text, blocks.text, pieces.text)
            start, stop = (code.i64(x) * rows for x in bounds)
            with code.loop(start, code.least(stop, queries), rows) as row:
                count = code.least(queries - row, rows)
                where: Operands = ("%args", scratch, batch, head, own, row, count)
                blind = code.ask("forward_block", *where, code.i64(0))
                with b.when(blind.compare("ne", 0).text):
                    code.ask("forward_block", *where, code.i64(1))
        b("ret void")


def keys_seen(code: Code, place: Value, count: Value, full: Value) -> Ends:
    """Of rows, the first of which is at this place: the first key that one sees (down
    to a whole panel), and the one after the last; all of them if `full`."""
    keys, before, after = code.words(Word.KEYS, Word.BEFORE, Word.AFTER)
    begin = code.below(code.most(place - before, 0), code.machine.tile.columns)
    end = code.least(keys, code.most(place + count + after, 0))
    return select(full, 0, begin), select(full, keys, end)


def keys_of(code: Code, place: Value, rows: Ends, chunk: Ends, full: Value) -> Ends:
    """The same of a chunk of keys, for some of the rows: the first key and how many."""
    before, after = code.words(Word.BEFORE, Word.AFTER)
    near = code.below(code.most(place + rows[0] - before, 0), code.machine.tile.columns)
    near = select(full, chunk[0], code.most(chunk[0], near))
    far = code.least(chunk[1], place + rows[1] + after)
    return near, code.most(select(full, chunk[1], far) - near, 0)


def _emit_block(code: Code, masks: tuple[str, ...]) -> None:
    """``forward_block``: some rows of queries. Says whether one sees nothing, unless it
    has visited all keys (`full`)."""
    b, rows = code.b, block_rows(code.machine.tile)
    with b.function(
        "define internal i64 @forward_block(ptr %args, ptr %scratch, i64 %batch, "
        "i64 %head, i64 %own, i64 %row, i64 %count, i64 %full) " + COLD
    ):
        batch, head, own = code.ints("batch", "head", "own")
        row, count, full = code.ints("row", "count", "full")
        keys, queries, value_depth = code.words(
            Word.KEYS, Word.QUERIES, Word.VALUE_DEPTH
        )
        width = code.machine.tile.columns
        full, short = full.compare("ne", 0), code.flag(Word.SHORT)
        place = row + keys - queries
        seen = keys_seen(code, place, count, full)
        begin, end = narrowed(code, masks, (batch, head, row, count), seen, full)
        tiles = tiles_of(code, count)
        query = code.rows(Word.QUERY, batch, head, row)
        depth = code.word(Word.DEPTH)
        query, long = rows_of(code, query, count, depth, Area.ROWS), code.units(depth)
        value = code.rows(Word.VALUE, batch, own)
        values = panels_of(code, value, keys, code.area(Area.VALUES))
        states, out = code.area(Area.STATES), code.area(Area.OUT)
        sums = code.at(states, code.i64(rows))
        target = code.rows(Word.OUT, batch, head, row)
        deep = code.below(value_depth + (width - 1), width)
        mixed = Factor(
            code.either(short, target.base, out), select(short, target.step, deep)
        )
        # At least one chunk, so that there is a result where nothing is seen.
        with code.loop(begin, code.most(end, begin + 1), COLUMNS) as c0:
            chunk = c0, code.least(c0 + COLUMNS, end)
            again = c0.compare("sgt", begin).cast("zext", "i64")
            block = Factor(code.area(Area.SCORES), code.i64(_PITCH))
            scored: Operands = (
                *("%args", *query, long, code.area(Area.KEYS_T)),
                *(block.base, row, count, *chunk, code.i64("%full")),
            )
            code.call("products", *scored)
            with code.loop(0, tiles.total) as t:
                first, following = tiles.start(t), tiles.start(t + 1)
                near, some = keys_of(code, place, (first, following), chunk, full)
                with b.when((some + 1).compare("sgt", again).text):
                    line = code.at(block.base, first * _PITCH + near - c0)
                    to = code.at(mixed.base, first * mixed.step)
                    given: Operands = (
                        *("%args", line, batch, head, row + first, following - first),
                        *(near, some, to, mixed.step, code.at(states, first)),
                        *(code.at(sums, first), again),
                    )
                    code.call("soften", *given)
                    with code.loop(0, value_depth, width) as x:
                        multiply(
                            *(code, tiles, (t, t + 1), Factor(line, block.step)),
                            code.units(some),
                            values.at(code, near, x),
                            Factor(code.at(to, x), mixed.step),
                            columns=code.least(value_depth - x, width),
                            add=again,
                        )
        blind = code.ask(
            *("finish", "%args", *mixed, *target, states, sums),
            *(batch, head, row, count, short.cast("zext", "i64")),
        )
        b(f"ret i64 {select(full, 0, blind).text}")


def emit_products(code: Code) -> None:
    """``products``: of rows and panels of keys, or values, of the tiles that see some
    of the keys; all of them if `full`."""
    b, width, lanes = code.b, code.machine.tile.columns, code.lanes
    with b.function(
        "define internal void @products(ptr %args, ptr %rows, i64 %step, i64 %depth, "
        "ptr %panels, ptr %block, i64 %row, i64 %count, i64 %c0, i64 %c1, i64 %full)"
    ):
        step, depth, row, count = code.ints("step", "depth", "row", "count")
        c0, c1, full = code.ints("c0", "c1", "full")
        full, tiles = full.compare("ne", 0), tiles_of(code, count)
        before, after, keys, queries = code.words(
            Word.BEFORE, Word.AFTER, Word.KEYS, Word.QUERIES
        )
        place = row + keys - queries
        with code.loop(c0, c1, width) as key:
            t0 = select(full, 0, tiles.since(key - after - place))
            t1 = tiles.until(key + before - place + (width - 1))
            t1 = select(full, tiles.total, t1)
            first = tiles.start(t0)
            some = code.least(c1 - key + (lanes - 1), width)
            to = code.at("%block", first * _PITCH + key - c0)
            multiply(
                *(code, tiles, (t0, t1), Factor(code.at("%rows", first * step), step)),
                depth,
                Factor(code.at("%panels", key * depth), code.i64(width)),
                Factor(to, code.i64(_PITCH)),
                columns=code.below(some, lanes),
                add=code.i64(0),
            )
        b("ret void")


def _emit_finish(code: Code) -> None:
    """``finish``: writes the result of some rows, where it is not there (`short`), and
    what is left for the derivative; says whether a row has seen nothing."""
    b = code.b
    with b.function(
        "define internal i64 @finish(ptr %args, ptr %mixed, i64 %deep, ptr %out, "
        "i64 %step, ptr %peaks, ptr %sums, i64 %batch, i64 %head, i64 %row, "
        "i64 %count, i64 %short)"
    ):
        batch, head, row, count = code.ints("batch", "head", "row", "count")
        deep, step = code.ints("deep", "step")
        heads, queries = code.words(Word.HEADS, Word.QUERIES)
        before = (batch * heads + head) * queries * 2
        left = code.at(code.args(Word.ROWS, "ptr"), before)
        apart = code.i64("%short").compare("eq", 0)
        with b.carrying("0", count.text, "1", [("i64", "0")]) as turn:
            i = code.i64(turn.index)
            peak = code.load_one(code.at("%peaks", i))
            share = code.real(1.0) / code.load_one(code.at("%sums", i))
            with b.when(apart.text):
                to = code.beyond("%out", i * step)
                from_, one = code.at("%mixed", i * deep), code.i64(1)
                wide = code.word(Word.VALUE_DEPTH)
                code.call("give_rows", from_, one, to, one, one, wide, share)
            code.store_one(code.at(left, row + i), peak)
            code.store_one(code.at(left, row + i, queries), share)
            blind = peak.compare("ole", LOWEST).cast("zext", "i64")
            turn.next = [(code.i64(turn.values[0]) | blind).text]
        b(f"ret i64 {turn.values[0]}")


def _emit_soften(code: Code, masks: tuple[str, ...]) -> None:
    """``soften``: scores of a tile to weights; shrinks what is mixed so far, if it is
    not the first of a block (`again`)."""
    b, lanes = code.b, code.lanes
    with b.function(
        "define internal void @soften(ptr %args, ptr %block, i64 %batch, i64 %head, "
        "i64 %query, i64 %height, i64 %key, i64 %some, ptr %mixed, i64 %deep, "
        "ptr %peaks, ptr %sums, i64 %again)"
    ):
        query, height, some, deep = code.ints("query", "height", "some", "deep")
        again, short = code.i64("%again"), code.flag(Word.SHORT)
        room = code.below(some + (lanes - 1), lanes)
        edges, thinned = edges_of(code, query, height, some), "kept" in masks
        with code.loop(0, height) as i:
            line = code.at("%block", i * _PITCH)
            if code.pairs:
                scale(code, line, room)
            for name in ("bias", "seen"):
                if name in masks:
                    each(code, name, line, query + i, FUNCTIONS[name])
            with b.when(edges.text):
                hide(code, line, query + i, room)
            at_peak, at_sum = code.at("%peaks", i), code.at("%sums", i)
            with b.when(again.compare("eq", 0).text):
                code.store_one(at_peak, code.real(LOWEST))
                code.store_one(at_sum, code.real(0.0))
            old = code.load_one(at_peak)
            first = [(old.splat(lanes).type, old.splat(lanes).text)]
            with b.carrying("0", room.text, str(lanes), first) as turn:
                x = code.load(code.at(line, code.i64(turn.index)))
                so_far = Value(b, turn.values[0], x.kind, lanes)
                turn.next = [largest(x, so_far).text]
            peak = across(Value(b, turn.values[0], old.kind, lanes))
            code.store_one(at_peak, peak)
            with b.when(again.compare("ne", 0).text):
                shrinks = power(old - peak)
                sum_ = (code.load_one(at_sum) * shrinks).rounded_once()
                code.store_one(at_sum, sum_)
                mixed = code.at("%mixed", i * deep)
                with code.loop(0, deep, lanes) as j:
                    x = code.load(code.at(mixed, j))
                    code.store(code.at(mixed, j), (x * shrinks).rounded_once())
            none = code.real(0.0, lanes)
            with b.carrying("0", room.text, str(lanes), [(none.type, none.text)]) as t:
                place = code.at(line, code.i64(t.index))
                weight = power(code.load(place) - peak)
                store_weights(code, line, code.i64(t.index), weight, thinned)
                t.next = [(Value(b, t.values[0], none.kind, lanes) + weight).text]
            sum_ = code.load_one(at_sum)
            sum_ = sum_ + total(Value(b, t.values[0], none.kind, lanes))
            code.store_one(at_sum, sum_)
            with b.when(short.text):  # never of half floats
                share = code.real(1.0) / sum_
                with code.loop(0, room, lanes) as j:
                    x = code.load(code.at(line, j)) * share
                    code.store(code.at(line, j), x.rounded_once())
            if thinned:
                each(code, "kept", line, query + i, FUNCTIONS["kept"])
                narrow(code, line, line, room)
        b("ret void")


def edges_of(code: Code, query: Value, height: Value, some: Value) -> Value:
    """Whether a row of a tile does not see all of some keys from %key on, or these are
    no whole vectors."""
    keys, queries = code.words(Word.KEYS, Word.QUERIES)
    before, after = code.words(Word.BEFORE, Word.AFTER)
    place = query + keys - queries - code.i64("%key")
    late = (place + height - 1).compare("sgt", before)
    early = (place + after + 1).compare("slt", some)
    return late | early | (some & (code.lanes - 1)).compare("ne", 0)


def hide(
    code: Code, line: str, query: Value, room: Value, grad: str | None = None
) -> None:
    """Hides the keys that a query does not see, of those from %key on."""
    key, (keys, queries) = code.i64("%key"), code.words(Word.KEYS, Word.QUERIES)
    place = query + keys - queries - key
    before, after = code.words(Word.BEFORE, Word.AFTER)

    def within(x: Value) -> Value:
        return code.least(code.most(x, 0), room)

    lowest, end = code.real(LOWEST), within(keys - key)
    first, last = within(place - before), within(place + after + 1)
    code.call("fill", line, code.i64(0), first, lowest)
    code.call("fill", line, last, end, lowest)
    code.call("fill", line, end, room, code.real(-math.inf))
    if grad is not None:  # What is hidden, or lies beyond, may not be finite.
        code.call("fill", grad, code.i64(0), first, code.real(0.0))
        code.call("fill", grad, code.least(last, end), room, code.real(0.0))


def _biased(code: Code, x: Value, bias: Value) -> Value:
    scaled = (bias * LOG2E).rounded_once()
    # A large number that a user adds must not become infinite.
    low = scaled.compare("olt", LOWEST) & bias.compare("ogt", -math.inf)
    return x + select(low, LOWEST, scaled)


def _hidden(code: Code, x: Value, seen: Value) -> Value:
    # Not a `select`: of that and its store LLVM makes a masked store, which some
    # processors are slow at.
    there = seen.cast("sext", f"i{8 * code.size}")
    lowest = code.real(LOWEST, x.lanes).as_int()
    return ((x.as_int() & there) | (lowest & ~there)).as_float()


def _thinned(code: Code, x: Value, kept: Value) -> Value:
    return select(kept, (x * code.number(Word.RATE)).rounded_once(), 0.0)


def _ask_for(code: Code, place: str, step: Value) -> None:
    """Has what the next row reads brought near: a piece of a row is too short for the
    processor to see where it goes on."""
    b = code.b
    b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    place = code.at(place, step)
    b(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")


FUNCTIONS = {"bias": _biased, "seen": _hidden, "kept": _thinned}
"""What each mask does with a row: `kept` with weights, the others with scores."""


def each(
    code: Code,
    mask: str,
    line: str,
    query: Value,
    function: Callable[[Code, Value, Value], Value],
) -> None:
    """Applies a mask to the scores of a row: in vectors, where its keys are contiguous,
    else one by one."""
    b, word = code.b, MASKS[mask]
    dtype = code.dtype if mask == "bias" else _BOOL
    batch, head, key, some = code.ints("batch", "head", "key", "some")
    kind = code.machine.scalar if mask == "bias" else "i8"
    steps = code.words(*range(word + 1, word + 5))
    skipped = batch * steps[0] + head * steps[1] + query * steps[2] + key * steps[3]
    base = code.args(word, "ptr")
    base = b.op(f"getelementptr {kind}, ptr {base}, i64 {skipped.text}")
    straight = steps[3].compare("eq", 1)
    whole = select(straight, some & -code.lanes, 0)
    for start, stop, lanes in ((code.i64(0), whole, code.lanes), (whole, some, 1)):
        with code.loop(start, stop, lanes) as j:
            place = b.op(f"getelementptr {kind}, ptr {base}, i64 {(j * steps[3]).text}")
            given = load(b, place, dtype, lanes, None)
            if mask == "bias" and lanes > 1:
                _ask_for(code, place, steps[2])
            at = code.at(line, j)
            x = code.load(at) if lanes > 1 else code.load_one(at)
            x = function(code, x, given)
            if lanes > 1:
                code.store(at, x)
            else:
                code.store_one(at, x)
