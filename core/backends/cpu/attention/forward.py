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

from treadle.backends.cpu.attention.parts import (
    LOG2E,
    Code,
    Factor,
    Operands,
    Tiles,
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
from treadle.backends.cpu.emit.access import load
from treadle.backends.cpu.emit.lanes import Value, select
from treadle.backends.cpu.gemm.parts import COLD, share

LOWEST = -1e30
"""See `treadle.control.attention`."""

_BOOL = np.dtype(np.bool_)
_PITCH = pitch(COLUMNS)


def emit_forward(code: Code, symbol: str, masks: tuple[str, ...]) -> None:
    """Defines the kernel."""
    _emit_soften(code, masks)
    _emit_block(code)
    b = code.b
    with b.function(f'define void @"{symbol}"(ptr %args, i64 %task) ' + COLD):
        batches, heads, shared = code.words(Word.BATCH, Word.HEADS, Word.SHARED)
        pieces, queries, keys = code.words(Word.PIECES, Word.QUERIES, Word.KEYS)
        depth, value_depth = code.words(Word.DEPTH, Word.VALUE_DEPTH)
        units = batches * heads * pieces
        used = code.i64("%task") * code.word(Word.SCRATCH_STRIDE)
        base = code.args(Word.SCRATCH, "ptr")
        scratch = b.op(f"getelementptr i8, ptr {base}, i64 {used.text}")
        factor = (code.number(Word.SCALE) * LOG2E).rounded_once()
        rows = code.word(Word.BLOCK)
        blocks = (queries + rows - 1).op("udiv", rows)
        mine = share(b, "%task", units.text, code.args(Word.TASKS))
        with b.loop(*mine) as index:
            unit = code.i64(index)
            above = unit.op("udiv", pieces)
            piece, head = unit.op("urem", pieces), above.op("urem", heads)
            batch, group = above.op("udiv", heads), heads.op("udiv", shared)
            first = unit.compare("eq", code.i64(mine[0]))
            begins = unit.op("urem", pieces * group).compare("eq", 0)
            with b.when((first | begins).text):
                own = batch, head.op("udiv", group)
                k, v = (code.head(w, *own) for w in (Word.KEY, Word.VALUE))
                steps = code.words(Word.KEY + 2, Word.VALUE + 2)
                panels = code.area(Area.KEYS_T, scratch)
                code.call("pack_turned", k, steps[0], keys, depth, panels)
                panels = code.area(Area.VALUES, scratch)
                code.call("pack_rows", v, steps[1], keys, value_depth, panels)
            bounds = share(b, piece.text, blocks.text, pieces.text)
            start, stop = (code.i64(x) * rows for x in bounds)
            query, step = code.head(Word.QUERY, batch, head), code.word(Word.QUERY + 2)
            own_rows = code.area(Area.ROWS, scratch)
            with code.loop(start, code.least(stop, queries), rows) as row:
                count = code.least(queries - row, rows)
                from_ = code.at(query, row * step)
                code.call(
                    *("scaled_copy", from_, step, own_rows, depth),
                    *(count, depth, factor),
                )
                where: Operands = (
                    "%args",
                    scratch,
                    batch,
                    head,
                    row,
                    count,
                )
                blind = code.ask("forward_block", *where, code.i64(0))
                with b.when(blind.compare("ne", 0).text):
                    code.ask("forward_block", *where, code.i64(1))
        b("ret void")


def _emit_block(code: Code) -> None:
    """``forward_block``: some rows of queries. Says whether one sees nothing, unless it
    has visited all keys (`full`)."""
    b, rows = code.b, block_rows(code.machine.tile)
    with b.function(
        "define internal i64 @forward_block(ptr %args, ptr %scratch, i64 %batch, "
        "i64 %head, i64 %row, i64 %count, i64 %full) " + COLD
    ):
        row, count, full = code.ints("row", "count", "full")
        keys, queries, before, after, value_depth = code.words(
            Word.KEYS, Word.QUERIES, Word.BEFORE, Word.AFTER, Word.VALUE_DEPTH
        )
        all_keys = full.compare("ne", 0)
        place = row + keys - queries
        width = code.machine.tile.columns
        deep = code.below(value_depth + (width - 1), width)
        begin = select(all_keys, 0, code.below(code.most(place - before, 0), width))
        end = code.least(keys, code.most(place + count + after, 0))
        end = select(all_keys, keys, end)
        tiles = tiles_of(code, count)
        states, out = code.area(Area.STATES), code.area(Area.OUT)
        sums = code.at(states, code.i64(rows))
        code.call("fill", states, code.i64(0), code.i64(rows), code.real(LOWEST))
        code.zero(sums, code.i64(rows))
        code.zero(out, count * deep)
        with code.loop(begin, end, COLUMNS) as c0:
            c1 = code.least(c0 + COLUMNS, end)
            _emit_scores(code, tiles, (c0, c1), place, all_keys)
            with code.loop(0, tiles.total) as t:
                first, following = tiles.start(t), tiles.start(t + 1)
                near = code.below(code.most(place + first - before, 0), width)
                near = select(all_keys, c0, code.most(c0, near))
                far = code.least(c1, place + following + after)
                far = select(all_keys, c1, far)
                some = far - near
                block = code.area(Area.SCORES)
                block = code.at(block, first * _PITCH + near - c0)
                mixed = code.at(out, first * deep)
                with b.when(some.compare("sgt", 0).text):
                    batch, head = code.ints("batch", "head")
                    height = following - first
                    given: Operands = (
                        "%args",
                        block,
                        batch,
                        head,
                        row + first,
                        height,
                        near,
                        some,
                        mixed,
                        deep,
                        code.at(states, first),
                        code.at(sums, first),
                    )
                    code.call("soften", *given)
                    with code.loop(0, deep, width) as x:
                        panel = code.area(Area.VALUES)
                        panel = code.at(panel, x * keys, near * width)
                        scores = Factor(block, code.i64(_PITCH))
                        to = Factor(code.at(mixed, x), deep)
                        only = t, t + 1
                        multiply(code, tiles, only, scores, some, panel, to, add=True)
        blind = _emit_finish(code, (out, deep), (states, sums))
        b(f"ret i64 {select(all_keys, 0, blind).text}")


def _emit_scores(
    code: Code, tiles: Tiles, keys: tuple[Value, Value], place: Value, all_keys: Value
) -> None:
    """Of the tiles that see some of the keys."""
    width = code.machine.tile.columns
    before, after, depth = code.words(Word.BEFORE, Word.AFTER, Word.DEPTH)
    with code.loop(*keys, width) as key:
        t0 = select(all_keys, 0, tiles.since(key - after - place))
        t1 = tiles.until(key + before - place + (width - 1))
        t1 = select(all_keys, tiles.total, t1)
        first = tiles.start(t0)
        queries = Factor(code.at(code.area(Area.ROWS), first * depth), depth)
        block = code.area(Area.SCORES)
        to = code.at(block, first * _PITCH + key - keys[0])
        panel = code.at(code.area(Area.KEYS_T), key * depth)
        scores = Factor(to, code.i64(_PITCH))
        multiply(code, tiles, (t0, t1), queries, depth, panel, scores, add=False)


def _emit_finish(code: Code, out: tuple[str, Value], states: tuple[str, str]) -> Value:
    """Writes the result and what is left for the derivative; says whether a row has
    seen nothing."""
    b = code.b
    batch, head, row, count = code.ints("batch", "head", "row", "count")
    heads, queries, value_depth = code.words(Word.HEADS, Word.QUERIES, Word.VALUE_DEPTH)
    target, step = code.head(Word.OUT, batch, head), code.word(Word.OUT + 2)
    left = code.at(code.args(Word.ROWS, "ptr"), (batch * heads + head) * queries * 2)
    with b.carrying("0", count.text, "1", [("i64", "0")]) as turn:
        i = code.i64(turn.index)
        peak = code.load_one(code.at(states[0], i))
        share = code.real(1.0) / code.load_one(code.at(states[1], i))
        to, from_ = code.at(target, (row + i) * step), code.at(out[0], i * out[1])
        one = code.i64(1)
        code.call("scaled_copy", from_, one, to, one, one, value_depth, share)
        code.store_one(code.at(left, row + i), peak)
        code.store_one(code.at(left, row + i, queries), share)
        blind = peak.compare("ole", LOWEST).cast("zext", "i64")
        turn.next = [(code.i64(turn.values[0]) | blind).text]
    return code.i64(turn.values[0])


def _emit_soften(code: Code, masks: tuple[str, ...]) -> None:
    """``soften``: scores of a tile to weights; shrinks what is mixed so far."""
    b, lanes = code.b, code.lanes
    with b.function(
        "define internal void @soften(ptr %args, ptr %block, i64 %batch, i64 %head, "
        "i64 %query, i64 %height, i64 %key, i64 %some, ptr %mixed, i64 %deep, "
        "ptr %peaks, ptr %sums)"
    ):
        query, height, some, deep = code.ints("query", "height", "some", "deep")
        room = code.below(some + (lanes - 1), lanes)
        with code.loop(0, height) as i:
            line = code.at("%block", i * _PITCH)
            for name in ("bias", "seen"):
                if name in masks:
                    each(code, name, line, query + i, FUNCTIONS[name])
            _emit_edges(code, line, query + i, room)
            old = code.load_one(code.at("%peaks", i))
            first = [(old.splat(lanes).type, old.splat(lanes).text)]
            with b.carrying("0", room.text, str(lanes), first) as turn:
                x = code.load(code.at(line, code.i64(turn.index)))
                so_far = Value(b, turn.values[0], x.kind, lanes)
                turn.next = [largest(x, so_far).text]
            peak = across(Value(b, turn.values[0], old.kind, lanes))
            code.store_one(code.at("%peaks", i), peak)
            none = code.real(0.0, lanes)
            with b.carrying("0", room.text, str(lanes), [(none.type, none.text)]) as t:
                place = code.at(line, code.i64(t.index))
                weight = power(code.load(place) - peak)
                code.store(place, weight)
                t.next = [(Value(b, t.values[0], none.kind, lanes) + weight).text]
            shrinks = power(old - peak)
            place = code.at("%sums", i)
            more = total(Value(b, t.values[0], none.kind, lanes))
            code.store_one(place, code.load_one(place) * shrinks + more)
            if "kept" in masks:
                each(code, "kept", line, query + i, FUNCTIONS["kept"])
            with b.when(shrinks.compare("one", 1.0).text):
                mixed = code.at("%mixed", i * deep)
                with code.loop(0, deep, lanes) as j:
                    x = code.load(code.at(mixed, j))
                    code.store(code.at(mixed, j), (x * shrinks).rounded_once())
        b("ret void")


def _emit_edges(code: Code, line: str, query: Value, room: Value) -> None:
    """Hides the keys that a query does not see, of those from %key on."""
    key, (keys, queries) = code.i64("%key"), code.words(Word.KEYS, Word.QUERIES)
    place = query + keys - queries - key
    before, after = code.words(Word.BEFORE, Word.AFTER)

    def within(x: Value) -> Value:
        return code.least(code.most(x, 0), room)

    lowest, end = code.real(LOWEST), within(keys - key)
    code.call("fill", line, code.i64(0), within(place - before), lowest)
    code.call("fill", line, within(place + after + 1), end, lowest)
    code.call("fill", line, end, room, code.real(-math.inf))


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
            at = code.at(line, j)
            x = code.load(at) if lanes > 1 else code.load_one(at)
            x = function(code, x, given)
            if lanes > 1:
                code.store(at, x)
            else:
                code.store_one(at, x)
