"""The kernel that differentiates attention.

A task owns some heads of keys. Scores are made again, as forward::

    pack the transposed keys and values, and the keys, as panels
    for each head of queries that has these keys
        for each block of rows of queries
            for each row, the product of its result and the cotangent of that
            for each chunk of keys that some of them see
                scores, and products of cotangents and values, by the micro-kernel
                for each tile: weights, and the cotangents of scores; of these, what
                    they add to those of queries
                for each tile of keys: what the block adds to their cotangents, and to
                    those of values; there, the block is read transposed
"""

from __future__ import annotations

from treadle.backends.cpu.attention.forward import (
    FUNCTIONS,
    Ends,
    each,
    edges_of,
    hide,
    keys_of,
    keys_seen,
)
from treadle.backends.cpu.attention.halves import (
    blank,
    narrow,
    scale,
    store_weights,
)
from treadle.backends.cpu.attention.panels import (
    Panels,
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
    Tiles,
    multiply,
    power,
    tiles_of,
    total,
)
from treadle.backends.cpu.attention.schedule import (
    COLUMNS,
    Area,
    Word,
    block_rows,
    pitch,
)
from treadle.backends.cpu.attention.visible import emit_visible, narrowed
from treadle.backends.cpu.emit.lanes import Value, select
from treadle.backends.cpu.gemm.parts import share
from treadle.backends.cpu.run.divided import COLD

_PITCH = pitch(COLUMNS)


def emit_backward(code: Code, symbol: str, masks: tuple[str, ...]) -> None:
    """Defines the kernel."""
    _emit_differentiate(code, masks)
    _emit_prepare(code)
    _emit_keys(code)
    _emit_queries(code)
    emit_visible(code, masks)
    _emit_block(code, masks)
    b = code.b
    with b.function(
        f'define void @"{symbol}"(ptr %args, i64 %task, i64 %slot) ' + COLD
    ):
        batches, heads, shared = code.words(Word.BATCH, Word.HEADS, Word.SHARED)
        queries, keys = code.words(Word.QUERIES, Word.KEYS)
        depth, value_depth = code.words(Word.DEPTH, Word.VALUE_DEPTH)
        used = code.i64("%slot") * code.word(Word.OWN_STRIDE)
        base = code.args(Word.OWN, "ptr")
        scratch = b.op(f"getelementptr i8, ptr {base}, i64 {used.text}")
        factor = (code.number(Word.SCALE) * LOG2E).rounded_once()
        group, rows = heads.op("udiv", shared), code.word(Word.BLOCK)
        units, apart = batches * shared, ~code.flag(Word.SHORT)
        dk, dv = _sums(code, scratch)
        mine = share(b, "%task", units.text, code.args(Word.TASKS))
        with b.loop(*mine) as index:
            unit = code.i64(index)
            batch, own = unit.op("udiv", shared), unit.op("urem", shared)
            k, v = (code.rows(w, batch, own) for w in (Word.KEY, Word.VALUE))
            for given, deep, area, number in (
                (k, depth, Area.KEYS_T, factor),
                (v, value_depth, Area.VALUES_T, code.real(1.0)),
            ):
                pack_turned(code, given, keys, deep, area, number, scratch)
            pack_panels(code, k, keys, depth, Area.KEYS, scratch)
            with b.when(apart.text):
                for sums in (dk, dv):
                    code.zero(sums.base, keys * sums.step)
            with code.loop(0, group) as member, code.loop(0, queries, rows) as row:
                head, count = own * group + member, code.least(queries - row, rows)
                where: Operands = ("%args", scratch, batch, head, own, row, count)
                blind = code.ask("prepare", *where)
                code.call("backward_block", *where, blind)
            with b.when(apart.text):
                for word, sums, width in (
                    (Word.DK, dk, depth),
                    (Word.DV, dv, value_depth),
                ):
                    to = code.rows(word, batch, own)
                    code.call("give_rows", *sums, *to, keys, width, code.real(1.0))
        b("ret void")


def _sums(code: Code, scratch: str = "%scratch") -> list[Factor]:
    """Where cotangents of keys and values are added up."""
    width, keys = code.machine.tile.columns, code.word(Word.KEYS)
    sizes = code.words(Word.DEPTH, Word.VALUE_DEPTH)
    deep, value_deep = (code.below(n + (width - 1), width) for n in sizes)
    dk = code.area(Area.SUMS, scratch)
    return [Factor(dk, deep), Factor(code.at(dk, keys * deep), value_deep)]


def _states(code: Code) -> list[str]:
    """For each row of a block: its largest score, 1 / its sum, the product of its
    result and that one's cotangent, and the scale, or 0 if it sees nothing."""
    base, rows = code.area(Area.STATES), code.i64(block_rows(code.machine.tile))
    return [code.at(base, rows * i) for i in range(4)]


_BLOCK = (
    "(ptr %args, ptr %scratch, i64 %batch, i64 %head, i64 %own, i64 %row, i64 %count"
)


def _emit_prepare(code: Code) -> None:
    """``prepare``: what is known of each row of a block. Says whether one sees
    nothing."""
    b, lanes = code.b, code.lanes
    with b.function(f"define internal i64 @prepare{_BLOCK})"):
        batch, head, row, count = code.ints("batch", "head", "row", "count")
        heads, queries, depth = code.words(Word.HEADS, Word.QUERIES, Word.VALUE_DEPTH)
        peaks, shares, products, lives = _states(code)
        left = code.args(Word.ROWS, "ptr")
        left = code.at(left, (batch * heads + head) * queries * 2, row)
        ct, out = (code.rows(w, batch, head, row) for w in (Word.CT, Word.OUT))
        scale, whole = code.number(Word.SCALE), depth & -lanes
        mask = code.mask(depth - whole)
        with b.carrying("0", count.text, "1", [("i64", "0")]) as turn:
            i = code.i64(turn.index)
            peak = code.load_one(code.at(left, i))
            code.store_one(code.at(peaks, i), peak)
            share = code.load_one(code.at(left, i, queries))
            code.store_one(code.at(shares, i), share)
            x, y = (code.beyond(rows.base, i * rows.step) for rows in (ct, out))
            first = [code.load_given(code.beyond(at, whole), mask) for at in (x, y)]
            start = (first[0] * first[1]).rounded_once()
            carried = [(start.type, start.text)]
            with b.carrying("0", whole.text, str(lanes), carried) as t:
                j = code.i64(t.index)
                pair = [code.load_given(code.beyond(at, j)) for at in (x, y)]
                so_far = Value(b, t.values[0], start.kind, lanes)
                t.next = [(pair[0] * pair[1] + so_far).text]
            product = total(Value(b, t.values[0], start.kind, lanes))
            code.store_one(code.at(products, i), product)
            blind = peak.compare("ole", LOWEST)
            code.store_one(code.at(lives, i), select(blind, code.real(0.0), scale))
            so_far = code.i64(turn.values[0])
            turn.next = [(so_far | blind.cast("zext", "i64")).text]
        b(f"ret i64 {turn.values[0]}")


def _emit_block(code: Code, masks: tuple[str, ...]) -> None:
    """``backward_block``: some rows of queries. All keys are visited if `full`."""
    b = code.b
    with b.function(
        f"define internal void @backward_block{_BLOCK}, i64 %full) " + COLD
    ):
        row, count = code.ints("row", "count")
        batch, head = code.ints("batch", "head")
        keys, queries, depth, value_depth = code.words(
            Word.KEYS, Word.QUERIES, Word.DEPTH, Word.VALUE_DEPTH
        )
        full = code.i64("%full").compare("ne", 0)
        place = row + keys - queries
        # What is written once is written for all keys.
        whole, rows = full | code.flag(Word.SHORT), (batch, head, row, count)
        seen = keys_seen(code, place, count, whole)
        begin, end = narrowed(code, masks, rows, seen, whole)
        query, ct = _given(code)
        pack_panels(code, query, count, depth, Area.QUERIES)
        pack_panels(code, ct, count, value_depth, Area.CTS)
        query = rows_of(code, query, count, depth, Area.ROWS)
        ct = rows_of(code, ct, count, value_depth, Area.CT_ROWS)
        with code.loop(begin, code.most(end, begin + 1), COLUMNS) as c0:
            chunk = c0, code.least(c0 + COLUMNS, end)
            for factor, panels, deep, area in (
                (query, Area.KEYS_T, depth, Area.SCORES),
                (ct, Area.VALUES_T, value_depth, Area.GRADS),
            ):
                given: Operands = (
                    *("%args", *factor, code.units(deep)),
                    *(code.area(panels), code.area(area)),
                    *(row, count, *chunk, code.i64("%full")),
                )
                code.call("products", *given)
            where: Operands = (
                *("%args", "%scratch", batch, head, code.i64("%own"), row, count),
                *(
                    code.i64("%full"),
                    *chunk,
                    c0.compare("sgt", begin).cast("zext", "i64"),
                ),
            )
            code.call("backward_queries", *where)
            with b.when(chunk[1].compare("sgt", c0).text):
                if code.pairs:
                    for area in _LINES:
                        code.call("interleave", code.area(area), count, chunk[1] - c0)
                code.call("backward_keys", *where)
        if code.is_half:
            dq = code.rows(Word.DQ, batch, head, row)
            found = *_block_dq(code), *dq, count, depth
            code.call("give_rows", *found, code.real(1.0))
        b("ret void")


def _block_dq(code: Code) -> Factor:
    """Where the cotangents of a block of half floats are added up."""
    width = code.machine.tile.columns
    deep = code.below(code.word(Word.DEPTH) + (width - 1), width)
    return Factor(code.area(Area.DQ), deep)


_CHUNK = f"{_BLOCK}, i64 %full, i64 %c0, i64 %c1, i64 %again)"


def _given(code: Code) -> tuple[Factor, Factor]:
    """A block of queries, and of the cotangents of what they give."""
    batch, head, row = code.ints("batch", "head", "row")
    query = code.rows(Word.QUERY, batch, head, row)
    return query, code.rows(Word.CT, batch, head, row)


def _emit_queries(code: Code) -> None:
    """``backward_queries``: scores of a block to weights and their cotangents, and what
    these add to the cotangents of queries."""
    b, width = code.b, code.machine.tile.columns
    with b.function(f"define internal void @backward_queries{_CHUNK}"):
        batch, head, own = code.ints("batch", "head", "own")
        row, count, again = code.ints("row", "count", "again")
        keys, queries, depth = code.words(Word.KEYS, Word.QUERIES, Word.DEPTH)
        chunk: Ends = code.i64("%c0"), code.i64("%c1")
        full = code.i64("%full").compare("ne", 0)
        tiles = tiles_of(code, count)
        key = code.rows(Word.KEY, batch, own)
        panels = panels_of(code, key, keys, code.area(Area.KEYS))
        dq = code.rows(Word.DQ, batch, head, row)
        if code.is_half:
            dq = _block_dq(code)
        with code.loop(0, tiles.total) as t:
            ends = first, _ = tiles.start(t), tiles.start(t + 1)
            near, some = keys_of(code, row + keys - queries, ends, chunk, full)
            lines = [code.at(code.area(x), first * _PITCH) for x in _LINES]
            given: Operands = ("%args", "%scratch", *lines, batch, head, first)
            rows = row + first, ends[1] - first
            code.call("differentiate", *given, *rows, near, some, *chunk)
            line = code.at(lines[1], code.units(near - chunk[0]))
            with code.loop(0, depth, width) as x:
                multiply(
                    *(code, tiles, (t, t + 1), Factor(line, code.i64(_PITCH))),
                    code.units(some),
                    panels.at(code, near, x),
                    Factor(code.at(dq.base, first * dq.step, x), dq.step),
                    columns=code.least(depth - x, width),
                    add=again,
                )
        b("ret void")


_LINES = Area.SCORES, Area.GRADS


def _emit_keys(code: Code) -> None:
    """``backward_keys``: what a block adds to the cotangents of keys and values."""
    b = code.b
    with b.function(f"define internal void @backward_keys{_CHUNK}"):
        batch, own, row, count = code.ints("batch", "own", "row", "count")
        keys, queries, before, after = code.words(
            Word.KEYS, Word.QUERIES, Word.BEFORE, Word.AFTER
        )
        depth, value_depth = code.words(Word.DEPTH, Word.VALUE_DEPTH)
        c0, c1 = code.ints("c0", "c1")
        full, short = code.i64("%full").compare("ne", 0), code.flag(Word.SHORT)
        query, ct = _given(code)
        products = []
        for area, rows, of, sums, word, deep in (
            (Area.SCORES, ct, Area.CTS, 1, Word.DV, value_depth),
            (Area.GRADS, query, Area.QUERIES, 0, Word.DK, depth),
        ):
            panels = panels_of(code, rows, count, code.area(of))
            apart, there = _sums(code)[sums], code.rows(word, batch, own)
            base = code.either(short, there.base, apart.base)
            result = Factor(base, select(short, there.step, apart.step))
            products.append((code.area(area), panels, result, deep))
        tiles = tiles_of(code, c1 - c0)
        place = c0 - (row + keys - queries)
        with code.loop(0, tiles.total) as t:
            first, following = tiles.start(t), tiles.start(t + 1)
            near = code.least(code.most(place + first - after, 0), count)
            near = select(full, 0, near)
            far = code.least(code.most(place + following + before, 0), count)
            far = select(full, count, far)
            for product in products:
                ends = near, code.most(far - near, 0)
                _emit_product(code, (t, t + 1), tiles, ends, first, product)
        b("ret void")


def _emit_product(
    code: Code,
    some: tuple[Value, Value],
    tiles: Tiles,
    rows: tuple[Value, Value],
    first: Value,
    product: tuple[str, Panels, Factor, Value],
) -> None:
    """What some rows (the first, and how many) add to a tile of keys."""
    block, panels, result, deep = product
    width = code.machine.tile.columns
    add = (~code.flag(Word.SHORT)).cast("zext", "i64")
    near, count = rows
    if code.pairs:  # of rows: there is one where the first of them was
        count, near = count + (near & 1), near & -2
    line = code.at(block, near * _PITCH + first)
    step = code.i64(2 * _PITCH if code.pairs else _PITCH)
    with code.loop(0, deep, width) as x:
        to = code.at(result.base, (code.i64("%c0") + first) * result.step, x)
        multiply(
            *(code, tiles, some, Factor(line, step), code.units(count)),
            panels.at(code, near, x),
            Factor(to, result.step),
            columns=code.least(deep - x, width),
            add=add,
            turned=True,
        )


def _emit_differentiate(code: Code, masks: tuple[str, ...]) -> None:
    """``differentiate``: scores of a tile to weights, and cotangents of weights to
    those of scores; 0 for those keys of the chunk that none of its rows sees."""
    b, lanes = code.b, code.lanes
    with b.function(
        "define internal void @differentiate(ptr %args, ptr %scratch, ptr %scores, "
        "ptr %grads, i64 %batch, i64 %head, i64 %first, i64 %query, i64 %height, "
        "i64 %key, i64 %some, i64 %c0, i64 %c1)"
    ):
        first, query, height = code.ints("first", "query", "height")
        key, some, c0, c1 = code.ints("key", "some", "c0", "c1")
        start = key - c0
        room = code.below(some + (lanes - 1), lanes)
        edges, thinned = edges_of(code, query, height, some), "kept" in masks
        with code.loop(0, height) as i:
            whole = [code.at(x, i * _PITCH) for x in ("%scores", "%grads")]
            line, grad = (code.at(x, start) for x in whole)
            into, into_grad = (code.at(x, code.units(start)) for x in whole)
            if code.pairs:
                scale(code, line, room)
            for name in ("bias", "seen"):
                if name in masks:
                    each(code, name, line, query + i, FUNCTIONS[name])
            if thinned:
                each(code, "kept", grad, query + i, FUNCTIONS["kept"])
            with b.when(edges.text):
                hide(code, line, query + i, room, grad)
            peak, share, product, life = (
                code.load_one(code.at(x, first + i)) for x in _states(code)
            )
            with code.loop(0, room, lanes) as j:
                at = code.at(line, j), code.at(grad, j)
                weight = (power(code.load(at[0]) - peak) * share).rounded_once()
                store_weights(code, line if thinned else into, j, weight, thinned)
                moved = (weight * life).rounded_once() * (code.load(at[1]) - product)
                store_weights(code, into_grad, j, moved.rounded_once())
            if thinned:
                each(code, "kept", line, query + i, FUNCTIONS["kept"])
                narrow(code, line, into, room)
            for row in whole:
                blank(code, row, code.i64(0), start)
                blank(code, row, start + room, c1 - c0)
        b("ret void")
