"""The kernel that differentiates attention.

A task owns some heads of keys. Scores are made again, transposed: a row is a key, so
that all vectors are of queries, with their largest scores and sums beside them::

    pack the keys as panels
    for each head of queries that has these keys
        pack queries, and cotangents of the result, as panels of both kinds
        for each query, the product of its result and the cotangent of that
        for each block of rows of keys
            for each chunk of queries that see some of them
                scores, and products of cotangents and values, by the micro-kernel
                for each tile: weights, and the cotangents of scores; of these, what
                    they add to the cotangents of values and keys
                turn the cotangents of scores, for what they add to those of queries
"""

from __future__ import annotations

from treadle.backends.cpu.attention.forward import FUNCTIONS, LOWEST, each
from treadle.backends.cpu.attention.parts import (
    LOG2E,
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
from treadle.backends.cpu.emit.lanes import Value, select
from treadle.backends.cpu.gemm.parts import COLD, share

_PITCH = pitch(COLUMNS)


def emit_backward(code: Code, symbol: str, masks: tuple[str, ...]) -> None:
    """Defines the kernel."""
    _emit_differentiate(code, masks)
    _emit_offsets(code, masks)
    _emit_products(code, masks)
    _emit_queries(code)
    _emit_block(code)
    _emit_prepare(code)
    _emit_head(code)
    b = code.b
    with b.function(f'define void @"{symbol}"(ptr %args, i64 %task) ' + COLD):
        batches, heads, shared = code.words(Word.BATCH, Word.HEADS, Word.SHARED)
        keys, depth, value_depth = code.words(Word.KEYS, Word.DEPTH, Word.VALUE_DEPTH)
        used = code.i64("%task") * code.word(Word.SCRATCH_STRIDE)
        base = code.args(Word.SCRATCH, "ptr")
        scratch = b.op(f"getelementptr i8, ptr {base}, i64 {used.text}")
        group = heads.op("udiv", shared)
        units = batches * shared
        deep, value_deep = _deep(code)
        _, dk, dv = _sums(code, scratch)
        mine = share(b, "%task", units.text, code.args(Word.TASKS))
        with b.loop(*mine) as index:
            unit = code.i64(index)
            batch, own = unit.op("udiv", shared), unit.op("urem", shared)
            k, step = code.head(Word.KEY, batch, own), code.word(Word.KEY + 2)
            panels = code.area(Area.KEYS, scratch)
            code.call("pack_rows", k, step, keys, depth, panels)
            code.zero(dk, keys * deep)
            code.zero(dv, keys * value_deep)
            with code.loop(0, group) as member:
                head = own * group + member
                code.call("backward_head", "%args", scratch, batch, head, own)
            for word, sums, columns, width, factor in (
                (Word.DK, dk, deep, depth, code.number(Word.SCALE)),
                (Word.DV, dv, value_deep, value_depth, code.real(1.0)),
            ):
                to, step = code.head(word, batch, own), code.word(word + 2)
                given = sums, columns, to, step, keys, width, factor
                code.call("scaled_copy", *given)
        b("ret void")


def _deep(code: Code) -> list[Value]:
    """The depths of keys and values, up to a whole panel."""
    width = code.machine.tile.columns
    sizes = code.words(Word.DEPTH, Word.VALUE_DEPTH)
    return [code.below(n + (width - 1), width) for n in sizes]


def _sums(code: Code, scratch: str = "%scratch") -> list[str]:
    """Where cotangents of queries, keys and values are added up."""
    queries, keys = code.words(Word.QUERIES, Word.KEYS)
    deep, _ = _deep(code)
    dq = code.area(Area.SUMS, scratch)
    dk = code.at(dq, queries * deep)
    return [dq, dk, code.at(dk, keys * deep)]


def _states(code: Code) -> list[str]:
    """For each query: its largest score, 1 / its sum, the product of its result and
    that one's cotangent, and 1, or 0 if it sees nothing."""
    width = code.machine.tile.columns
    long = code.below(code.word(Word.QUERIES) + (width - 1), width)
    base = code.area(Area.STATES)
    return [code.at(base, long * i) for i in range(4)]


def _emit_head(code: Code) -> None:
    """``backward_head``: a head of the queries."""
    b = code.b
    with b.function(
        "define internal void @backward_head(ptr %args, ptr %scratch, i64 %batch, "
        "i64 %head, i64 %own) " + COLD
    ):
        batch, head, own = code.ints("batch", "head", "own")
        queries, keys, depth, value_depth = code.words(
            Word.QUERIES, Word.KEYS, Word.DEPTH, Word.VALUE_DEPTH
        )
        for word, columns, areas in (
            (Word.QUERY, depth, (Area.QUERIES_T, Area.QUERIES)),
            (Word.CT, value_depth, (Area.CTS_T, Area.CTS)),
        ):
            base, step = code.head(word, batch, head), code.word(word + 2)
            for name, area in zip(("pack_turned", "pack_rows"), areas, strict=True):
                code.call(name, base, step, queries, columns, code.area(area))
        blind = code.ask("prepare", "%args", "%scratch", batch, head)
        dq, (deep, _) = _sums(code)[0], _deep(code)
        code.zero(dq, queries * deep)
        rows = code.word(Word.BLOCK)
        with code.loop(0, keys, rows) as key:
            count = code.least(keys - key, rows)
            where: Operands = (
                "%args",
                "%scratch",
                batch,
                head,
                own,
                key,
                count,
                blind,
            )
            code.call("backward_block", *where)
        to, step = code.head(Word.DQ, batch, head), code.word(Word.DQ + 2)
        scale = code.number(Word.SCALE)
        code.call("scaled_copy", dq, deep, to, step, queries, depth, scale)
        b("ret void")


def _emit_prepare(code: Code) -> None:
    """``prepare``: what is known of each query. Says whether one sees nothing."""
    b, lanes = code.b, code.lanes
    with b.function(
        "define internal i64 @prepare(ptr %args, ptr %scratch, i64 %batch, i64 %head)"
    ):
        batch, head = code.ints("batch", "head")
        heads, queries, depth = code.words(Word.HEADS, Word.QUERIES, Word.VALUE_DEPTH)
        peaks, shares, products, lives = _states(code)
        left = code.args(Word.ROWS, "ptr")
        left = code.at(left, (batch * heads + head) * queries * 2)
        ct, out = (code.head(w, batch, head) for w in (Word.CT, Word.OUT))
        steps = code.words(Word.CT + 2, Word.OUT + 2)
        whole = depth & -lanes
        mask = code.mask(depth - whole)
        with b.carrying("0", queries.text, "1", [("i64", "0")]) as turn:
            i = code.i64(turn.index)
            peak = code.load_one(code.at(left, i))
            code.store_one(code.at(peaks, i), peak)
            share = code.load_one(code.at(left, i, queries))
            code.store_one(code.at(shares, i), share)
            x, y = code.at(ct, i * steps[0]), code.at(out, i * steps[1])
            first = (
                code.load(code.at(x, whole), mask),
                code.load(code.at(y, whole), mask),
            )
            start = (first[0] * first[1]).rounded_once()
            carried = [(start.type, start.text)]
            with b.carrying("0", whole.text, str(lanes), carried) as t:
                j = code.i64(t.index)
                pair = code.load(code.at(x, j)), code.load(code.at(y, j))
                so_far = Value(b, t.values[0], start.kind, lanes)
                t.next = [(pair[0] * pair[1] + so_far).text]
            product = total(Value(b, t.values[0], start.kind, lanes))
            code.store_one(code.at(products, i), product)
            blind = peak.compare("ole", LOWEST)
            code.store_one(code.at(lives, i), select(blind, code.real(0.0), 1.0))
            so_far = code.i64(turn.values[0])
            turn.next = [(so_far | blind.cast("zext", "i64")).text]
        b(f"ret i64 {turn.values[0]}")


_BLOCK = (
    "(ptr %args, ptr %scratch, i64 %batch, i64 %head, i64 %own, i64 %key, i64 %count, "
    "i64 %full"
)


def _emit_block(code: Code) -> None:
    """``backward_block``: some rows of keys. All queries are visited if `full`."""
    b, width = code.b, code.machine.tile.columns
    with b.function(f"define internal void @backward_block{_BLOCK}) " + COLD):
        key, count, full = code.ints("key", "count", "full")
        batch, own = code.ints("batch", "own")
        keys, queries, before, after = code.words(
            Word.KEYS, Word.QUERIES, Word.BEFORE, Word.AFTER
        )
        depth = code.word(Word.DEPTH)
        everything = full.compare("ne", 0)
        place = key - keys + queries
        begin = code.below(code.most(place - after, 0), width)
        begin = select(everything, 0, begin)
        end = code.least(queries, code.most(place + count + before, 0))
        end = select(everything, queries, end)
        k, step = code.head(Word.KEY, batch, own), code.word(Word.KEY + 2)
        factor = (code.number(Word.SCALE) * LOG2E).rounded_once()
        given = code.at(k, key * step), step, code.area(Area.ROWS), depth
        code.call("scaled_copy", *given, count, depth, factor)
        with code.loop(begin, end, COLUMNS) as i0:
            i1 = code.least(i0 + COLUMNS, end)
            where: Operands = (
                "%args",
                "%scratch",
                *code.ints("batch", "head", "own"),
                key,
                count,
            )
            code.call("backward_products", *where, full, i0, i1)
            code.call("backward_queries", *where, full, i0, i1)
        b("ret void")


def _emit_products(code: Code, masks: tuple[str, ...]) -> None:
    """``backward_products``: what some queries add to cotangents of keys and values."""
    b, width = code.b, code.machine.tile.columns
    with b.function(
        f"define internal void @backward_products{_BLOCK}, i64 %i0, i64 %i1) " + COLD
    ):
        key, count, full, i0, i1 = code.ints("key", "count", "full", "i0", "i1")
        keys, queries, before, after = code.words(
            Word.KEYS, Word.QUERIES, Word.BEFORE, Word.AFTER
        )
        everything = full.compare("ne", 0)
        place = key - keys + queries
        tiles = tiles_of(code, count)
        if masks:
            where: Operands = (
                "%args",
                "%scratch",
                *code.ints("batch", "head"),
                key,
                count,
                i0,
                i1,
            )
            code.call("offsets", *where)
        _emit_scores(code, tiles, (i0, i1), place, everything)
        scores, grads = code.area(Area.SCORES), code.area(Area.GRADS)
        deeps, sums = _deep(code), _sums(code)
        with code.loop(0, tiles.total) as t:
            first, following = tiles.start(t), tiles.start(t + 1)
            near = code.below(code.most(place + first - after, 0), width)
            near = code.least(code.most(i0, near), i1)
            near = select(everything, i0, near)
            far = code.most(code.least(i1, place + following + before), near)
            far = select(everything, i1, far)
            lines = [code.at(x, first * _PITCH) for x in (scores, grads)]
            code.call(
                *("differentiate", "%args", "%scratch", *lines),
                *(first, key + first, following - first, i0, near, far, i1),
            )
            with b.when(far.compare("sgt", near).text):
                for line, area, deep, to in (
                    (lines[0], Area.CTS, deeps[1], sums[2]),
                    (lines[1], Area.QUERIES, deeps[0], sums[1]),
                ):
                    rows = Factor(code.at(line, near - i0), code.i64(_PITCH))
                    with code.loop(0, deep, width) as x:
                        panel = code.area(area)
                        panel = code.at(panel, x * queries, near * width)
                        result = code.at(to, (key + first) * deep, x)
                        only = t, t + 1
                        multiply(
                            *(code, tiles, only, rows, far - near, panel),
                            Factor(result, deep),
                            add=True,
                        )
        b("ret void")


def _emit_scores(
    code: Code, tiles: Tiles, chunk: tuple[Value, Value], place: Value, full: Value
) -> None:
    """Scores, and products of cotangents and values, of the tiles that some of the
    queries see."""
    width = code.machine.tile.columns
    before, after = code.words(Word.BEFORE, Word.AFTER)
    depth, value_depth = code.words(Word.DEPTH, Word.VALUE_DEPTH)
    batch, own, key = code.ints("batch", "own", "key")
    step = code.word(Word.VALUE + 2)
    value = code.at(code.head(Word.VALUE, batch, own), key * step)
    with code.loop(*chunk, width) as query:
        t0 = select(full, 0, tiles.since(query - before - place))
        t1 = tiles.until(query + after - place + (width - 1))
        t1 = select(full, tiles.total, t1)
        first = tiles.start(t0)
        for rows, area, sum_of, panels in (
            (Factor(code.area(Area.ROWS), depth), Area.SCORES, depth, Area.QUERIES_T),
            (Factor(value, step), Area.GRADS, value_depth, Area.CTS_T),
        ):
            given = Factor(code.at(rows.base, first * rows.step), rows.step)
            to = code.at(code.area(area), first * _PITCH + query - chunk[0])
            panel = code.at(code.area(panels), query * sum_of)
            result = Factor(to, code.i64(_PITCH))
            multiply(code, tiles, (t0, t1), given, sum_of, panel, result, add=False)


def _emit_queries(code: Code) -> None:
    """``backward_queries``: what some keys add to the cotangents of queries."""
    b, width = code.b, code.machine.tile.columns
    step = code.i64(pitch(block_rows(code.machine.tile)))
    with b.function(
        f"define internal void @backward_queries{_BLOCK}, i64 %i0, i64 %i1) " + COLD
    ):
        key, count, full, i0, i1 = code.ints("key", "count", "full", "i0", "i1")
        keys, queries, before, after = code.words(
            Word.KEYS, Word.QUERIES, Word.BEFORE, Word.AFTER
        )
        everything = full.compare("ne", 0)
        turned, some = code.area(Area.TURNED), i1 - i0
        grads = code.area(Area.GRADS), code.i64(_PITCH)
        code.call("pack_transpose", *grads, some, count, turned, step)
        tiles, (deep, _), dq = tiles_of(code, some), _deep(code), _sums(code)[0]
        place = i0 + keys - queries - key
        with code.loop(0, tiles.total) as t:
            first, following = tiles.start(t), tiles.start(t + 1)
            near = code.least(code.most(place + first - before, 0), count)
            near = select(everything, 0, near)
            far = code.least(code.most(place + following + after, 0), count)
            far = select(everything, count, far)
            with b.when(far.compare("sgt", near).text):
                rows = Factor(code.at(turned, first * step, near), step)
                with code.loop(0, deep, width) as x:
                    panel = code.area(Area.KEYS)
                    panel = code.at(panel, x * keys, (key + near) * width)
                    result = Factor(code.at(dq, (i0 + first) * deep, x), deep)
                    only = t, t + 1
                    multiply(
                        code, tiles, only, rows, far - near, panel, result, add=True
                    )
        b("ret void")


def _emit_offsets(code: Code, masks: tuple[str, ...]) -> None:
    """``offsets``: what masks add to the scores of a block, and by what the weights
    that are kept are multiplied: rows are read as they lie, and turned."""
    b, step = code.b, code.i64(pitch(block_rows(code.machine.tile)))
    with b.function(
        "define internal void @offsets(ptr %args, ptr %scratch, i64 %batch, i64 %head, "
        "i64 %key, i64 %some, i64 %i0, i64 %i1)"
    ):
        some, i0, i1 = code.ints("some", "i0", "i1")
        rows = code.area(Area.TURNED)
        for kind, start in ((("bias", "seen"), 0.0), (("kept",), 1.0)):
            given = [name for name in kind if name in masks]
            if not given:
                continue
            with code.loop(i0, i1) as query:
                line = code.at(rows, (query - i0) * step)
                code.call("fill", line, code.i64(0), some, code.real(start))
                for name in given:
                    each(code, name, line, query, FUNCTIONS[name])
            turned = _offsets(code)[kind == ("kept",)]
            where: Operands = (
                rows,
                step,
                some,
                i1 - i0,
                turned,
                code.i64(_PITCH),
            )
            code.call("pack_transpose", *where)
        b("ret void")


def _offsets(code: Code) -> tuple[str, str]:
    """What is added to the scores of a block, and what weights are multiplied with."""
    base = code.area(Area.OFFSETS)
    size = code.i64(block_rows(code.machine.tile) * _PITCH)
    return base, code.at(base, size)


def _emit_differentiate(code: Code, masks: tuple[str, ...]) -> None:
    """``differentiate``: scores of a tile to weights, and cotangents of weights to
    those of scores."""
    b, lanes = code.b, code.lanes
    with b.function(
        "define internal void @differentiate(ptr %args, ptr %scratch, ptr %scores, "
        "ptr %grads, i64 %first, i64 %key, i64 %height, i64 %i0, i64 %near, i64 %far, "
        "i64 %i1)"
    ):
        first, key, height = code.ints("first", "key", "height")
        i0, near, far, i1 = code.ints("i0", "near", "far", "i1")
        start = near - i0
        stop = start + code.below(far - near + (lanes - 1), lanes)
        states = [code.at(x, i0) for x in _states(code)]
        offsets = [code.at(x, first * _PITCH) for x in _offsets(code)]
        with code.loop(0, height) as i:
            line, grad, added, kept = (
                code.at(x, i * _PITCH) for x in ("%scores", "%grads", *offsets)
            )
            if "bias" in masks or "seen" in masks:
                with code.loop(start, stop, lanes) as j:
                    x = code.load(code.at(line, j)) + code.load(code.at(added, j))
                    code.store(code.at(line, j), x)
            _emit_edges(code, line, grad, key + i, (start, stop))
            with code.loop(start, stop, lanes) as j:
                at = code.at(line, j), code.at(grad, j)
                peak, share, product, life = (code.load(code.at(x, j)) for x in states)
                weight = (power(code.load(at[0]) - peak) * share).rounded_once()
                moved, left = code.load(at[1]), weight
                if "kept" in masks:
                    factor = code.load(code.at(kept, j))
                    moved = (moved * factor).rounded_once()
                    left = (weight * factor).rounded_once()
                code.store(at[0], left)
                moved = (weight * life).rounded_once() * (moved - product)
                code.store(at[1], moved.rounded_once())
            zero = code.real(0.0)
            code.call("fill", grad, code.i64(0), start, zero)
            code.call("fill", grad, stop, i1 - i0, zero)
        b("ret void")


def _emit_edges(
    code: Code, line: str, grad: str, key: Value, some: tuple[Value, Value]
) -> None:
    """Hides the queries that do not see a key."""
    keys, queries = code.words(Word.KEYS, Word.QUERIES)
    place = key - keys + queries - code.i64("%i0")
    before, after = code.words(Word.BEFORE, Word.AFTER)

    def within(x: Value) -> Value:
        return code.least(code.most(x, some[0]), some[1])

    first, last = within(place - after), within(place + before + 1)
    for base, number in ((line, LOWEST), (grad, 0.0)):
        code.call("fill", base, some[0], first, code.real(number))
        code.call("fill", base, last, some[1], code.real(number))
