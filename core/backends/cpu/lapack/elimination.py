"""LU factorizations of small matrices, and systems that they solve, in lanes.

As LAPACK does it: with rows exchanged so that the largest element of each column comes
first. Each lane exchanges rows of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import (
    Value,
    intrinsic,
    select,
    type_name,
)
from treadle.backends.cpu.fourier.lanes import at, scaled
from treadle.backends.cpu.lapack.arguments import PARAMETERS, behind, matrix, size
from treadle.backends.cpu.lapack.lanes import (
    Entries,
    Matrix,
    Number,
    Slab,
    call_less,
    pack,
    place,
    unpack,
)
from treadle.backends.cpu.lapack.small import TRANSPOSED
from treadle.backends.cpu.lapack.substitution import emit_substitute, substitute
from treadle.backends.cpu.run.shared import SHARED


def emit(b: Builder, of: Slab, name: str) -> None:
    """The function that factors matrices (of m rows and n columns)."""
    _emit_exchange(b, of)
    _emit_whole(b, of)
    with b.function(f"define internal void @{name}{PARAMETERS} {SHARED}"):
        m, n, k = (size(b, i) for i in range(3))
        count = scaled(b, m, n)
        pivots = behind(b, of, count, "%room")
        order = place(b, pivots, (k, str(4 * of.count)))
        pack(b, of, matrix(b, 1), count, "%room")
        with b.loop("0", m) as i:
            number = Value(b, b.op(f"trunc i64 {i} to i32"), "i32", 1).splat(of.count)
            _put(b, number, _row(b, of, order, i))
        a = Entries("%room", str(of.row), scaled(b, m, of.row))
        with b.loop("0", k) as i:
            pivot = _largest(b, of, a.begin(b, i, i), i, m)
            _put(b, pivot, _row(b, of, pivots, i))
            own = Value(b, b.op(f"trunc i64 {i} to i32"), "i32", 1).splat(of.count)
            moved = pivot.compare("ne", own)
            bits = b.op(f"bitcast {moved.type} {moved.text} to i{of.count}")
            with b.when(b.op(f"icmp ne i{of.count} {bits}, 0")):
                row = _row(b, of, pivots, i)
                where = f"ptr {order}, ptr {row}, i64 {i}, i64 {m}, i64 {n}"
                call = f"call void {of.name('exchange')}(ptr {a.base}, i64 {a.column}"
                b(f"{call}, {where})")
            _eliminate(b, of, a.begin(b, i, i), i, (m, n))
        unpack(b, of, matrix(b, 2), count, "%room")
        _call_whole(b, of, matrix(b, 3), pivots, k)
        _call_whole(b, of, matrix(b, 4), order, m)
        b("ret void")


def _row(b: Builder, of: Slab, base: str, i: str) -> str:
    """The address of a vector of whole numbers."""
    return place(b, base, (i, str(4 * of.count)))


def _put(b: Builder, value: Value, address: str) -> None:
    b(f"store {value.type} {value.text}, ptr {address}, align 4")


def _get(b: Builder, of: Slab, address: str) -> Value:
    kind = type_name("i32", of.count)
    return Value(b, b.op(f"load {kind}, ptr {address}, align 4"), "i32", of.count)


def _size(x: Number) -> Value:
    """LAPACK's size of a number."""
    first, *others = (intrinsic("fabs", part) for part in x.parts)
    return first + others[0] if others else first


def _largest(b: Builder, of: Slab, a: Entries, first: str, m: str) -> Value:
    """The row whose element in the first column is largest."""
    own = Value(b, b.op(f"trunc i64 {first} to i32"), "i32", 1).splat(of.count)
    best = _size(of.load(b, a.base))
    start = [(best.type, best.text), (own.type, own.text)]
    with b.carrying("1", b.op(f"sub i64 {m}, {first}"), "1", start) as turn:
        best = Value(b, turn.values[0], of.lanes.kind, of.count)
        row = Value(b, turn.values[1], "i32", of.count)
        found = _size(of.load(b, a.at(b, turn.index, "0")))
        larger = found.compare("ogt", best)
        number = b.op(f"add i64 {turn.index}, {first}")
        number = b.op(f"trunc i64 {number} to i32")
        here = Value(b, number, "i32", 1).splat(of.count)
        turn.next = [select(larger, found, best).text, select(larger, here, row).text]
    return Value(b, turn.values[1], "i32", of.count)


def _emit_exchange(b: Builder, of: Slab) -> None:
    """``exchange``: rows of all columns, and of the order, in each lane its own."""
    with b.function(
        f"define internal void {of.name('exchange')}(ptr %a, i64 %column, ptr %order,"
        f" ptr %pivot, i64 %i, i64 %m, i64 %n) {SHARED}"
    ):
        pivot = _get(b, of, "%pivot")
        with b.loop("0", "%n") as j:
            column = place(b, "%a", (j, "%column"))

            def load(row: str) -> Number:
                return of.load(b, place(b, column, (row, str(of.row))))

            def store(x: Number, row: str) -> None:
                of.store(b, x, place(b, column, (row, str(of.row))))

            _exchange(b, of, pivot, load, store)
        _exchange(
            b,
            of,
            pivot,
            lambda row: Number((_get(b, of, _row(b, of, "%order", row)),)),
            lambda x, row: _put(b, x.parts[0], _row(b, of, "%order", row)),
        )
        b("ret void")


def _exchange(
    b: Builder,
    of: Slab,
    pivot: Value,
    load: Callable[[str], Number],
    store: Callable[[Number, str], None],
) -> None:
    """Row %i and, in each lane, that of the pivot."""
    own = load("%i")
    if of.count == 1:
        row = pivot.cast("zext", "i64").text
        store(load(row), "%i")
        store(own, row)
        return
    following = b.op("add i64 %i, 1")
    carried = [(v.type, v.text) for v in own.parts]
    with b.carrying(following, "%m", "1", carried) as turn:
        x = load(turn.index)
        texts = zip(own.parts, turn.values, strict=True)
        kept = Number(tuple([replace(v, text=text) for v, text in texts]))
        number = b.op(f"trunc i64 {turn.index} to i32")
        here = pivot.compare("eq", Value(b, number, "i32", 1))
        store(own.chosen(here, x), turn.index)
        turn.next = [v.text for v in x.chosen(here, kept).parts]
    texts = zip(own.parts, turn.values, strict=True)
    store(Number(tuple([replace(v, text=text) for v, text in texts])), "%i")


def _eliminate(
    b: Builder, of: Slab, a: Entries, i: str, sizes: tuple[str, str]
) -> None:
    """Divides the first column by its first element, and takes its products with the
    first row away from the rest."""
    rows, columns = (b.op(f"sub i64 {b.op(f'sub i64 {n}, {i}')}, 1") for n in sizes)
    first = of.load(b, a.base)
    nothing = _size(first).compare("oeq", 0.0)
    divisor = of.one(b).chosen(nothing, first)
    below = a.begin(b, "1", "0")
    with b.loop("0", rows) as row:
        entry = below.at(b, row, "0")
        of.store(b, of.load(b, entry).over(divisor), entry)
    rest, beside = a.begin(b, "1", "1"), a.begin(b, "0", "1")
    call_less(b, of, rest, (below, beside), (rows, columns, "1"))


# Whole numbers, one lane after the other ----------------------------------------------


def _emit_whole(b: Builder, of: Slab) -> None:
    """``out``: columns of a slab of whole numbers, to memory."""
    with b.function(
        f"define internal void {of.name('out')}(ptr %memory, i64 %step, i64 %last,"
        f" ptr %slab, i64 %length) {SHARED}"
    ):
        with b.loop("0", b.op("add i64 %last, 1")) as lane:
            to = place(b, "%memory", (lane, "%step"))
            source = place(b, "%slab", (lane, "4"))
            with b.loop("0", "%length") as i:
                x = b.op(f"load i32, ptr {_row(b, of, source, i)}")
                b(f"store i32 {x}, ptr {place(b, to, (i, '4'))}")
        b("ret void")


def _call_whole(b: Builder, of: Slab, m: Matrix, slab: str, length: str) -> None:
    where = f"ptr {m.base}, i64 {m.step}, i64 %last, ptr {slab}, i64 {length}"
    b(f"call void {of.name('out')}({where})")


# Systems ------------------------------------------------------------------------------


def emit_solve(b: Builder, of: Slab, name: str) -> None:
    """The function that solves systems by their factors and order."""
    emit_substitute(b, of)
    _emit_rows(b, of)
    with b.function(f"define internal void @{name}{PARAMETERS} {SHARED}"):
        n, columns, how = (size(b, i) for i in range(3))
        squares, count = scaled(b, n, n), scaled(b, n, columns)
        second = behind(b, of, squares, "%room")
        moved = Matrix(
            behind(b, of, count, second), scaled(b, count, of.dtype.itemsize)
        )
        right, found = matrix(b, 4), matrix(b, 5)
        turned = b.op(f"icmp eq i64 {how}, {TRANSPOSED}")
        straight = b.op(f"xor i1 {turned}, true")
        line = scaled(b, n, of.row)
        a = Entries("%room", str(of.row), line)
        x = Entries(second, scaled(b, columns, of.row), str(of.row))
        pack(b, of, matrix(b, 2), squares, "%room")
        with b.when(straight):
            _call_rows(b, of, moved, right, (n, columns), "false")
            pack(b, of, moved, count, second)
            substitute(b, of, (a, x), (n, columns), "true", "false")
            substitute(b, of, (a, x), (n, columns), "false", "true")
            unpack(b, of, found, count, second)
        with b.when(turned):
            pack(b, of, right, count, second)
            a = a.turned()
            substitute(b, of, (a, x), (n, columns), "false", "false")
            substitute(b, of, (a, x), (n, columns), "true", "true")
            unpack(b, of, moved, count, second)
            _call_rows(b, of, found, moved, (n, columns), "true")
        b("ret void")


def _emit_rows(b: Builder, of: Slab) -> None:
    """``rows``: rows of matrices in the order that is given, or to the places that are
    given."""
    kind = f"i{8 * of.real.itemsize}"
    with b.function(
        f"define internal void {of.name('rows')}(ptr noalias %to, i64 %to_step,"
        " ptr noalias %source, i64 %source_step, ptr %order, i64 %order_step,"
        f" i64 %last, i64 %n, i64 %count, i1 %scatters) {SHARED}"
    ):
        with b.loop("0", b.op("add i64 %last, 1")) as lane:
            to = place(b, "%to", (lane, "%to_step"))
            source = place(b, "%source", (lane, "%source_step"))
            order = place(b, "%order", (lane, "%order_step"))
            with b.loop("0", "%n") as i:
                row = b.op(f"load i32, ptr {place(b, order, (i, '4'))}")
                row = b.op(f"zext i32 {row} to i64")
                line = scaled(b, "%count", of.real.itemsize)
                first = b.op(f"select i1 %scatters, i64 {row}, i64 {i}")
                second = b.op(f"select i1 %scatters, i64 {i}, i64 {row}")
                at_first = place(b, to, (first, line))
                at_second = place(b, source, (second, line))
                with b.loop("0", "%count") as j:
                    offset = scaled(b, j, of.real.itemsize)
                    x = b.op(f"load {kind}, ptr {at(b, at_second, offset)}")
                    b(f"store {kind} {x}, ptr {at(b, at_first, offset)}")
        b("ret void")


def _call_rows(
    b: Builder,
    of: Slab,
    to: Matrix,
    source: Matrix,
    sizes: tuple[str, str],
    scatters: str,
) -> None:
    n, columns = sizes
    places = [to, source, matrix(b, 3)]
    texts = ", ".join([f"ptr {m.base}, i64 {m.step}" for m in places])
    numbers = f"i64 %last, i64 {n}, i64 {scaled(b, columns, of.parts)}"
    b(f"call void {of.name('rows')}({texts}, {numbers}, i1 {scatters})")
