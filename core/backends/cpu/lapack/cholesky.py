"""Cholesky's factorization of small matrices, in lanes or by columns.

From each element of L the products of earlier columns are taken away, one column after
the other; what is left is multiplied by the reciprocal of the diagonal's. Both ways do
this alike, so that it makes no difference which of them a matrix goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from treadle.backends.cpu.emit import access
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import (
    Value,
    constant,
    intrinsic,
    lane_numbers,
    select,
)
from treadle.backends.cpu.fourier.lanes import at, scaled
from treadle.backends.cpu.lapack.arguments import PARAMETERS, matrix, size
from treadle.backends.cpu.lapack.lanes import (
    Entries,
    Number,
    Slab,
    call_less,
    emit_less,
    numbers,
    pack,
    place,
    unpack,
)
from treadle.backends.cpu.run.shared import SHARED

PANEL = 4
"""Columns that are begun together."""


def emit(b: Builder, of: Slab, name: str) -> None:
    """The function that factors matrices in lanes."""
    emit_less(b, of, conj=True)
    with b.function(f"define internal void @{name}{PARAMETERS} {SHARED}"):
        n = size(b, 0)
        count = scaled(b, n, n)
        pack(b, of, matrix(b, 1), count, "%room")
        _emit_factor(b, of, n)
        unpack(b, of, matrix(b, 2), count, "%room")
        b("ret void")


def emit_alone(b: Builder, of: Slab, name: str) -> None:
    """The function that factors one matrix."""
    with b.function(f"define internal void @{name}{PARAMETERS} {SHARED}"):
        _emit_alone(b, of, size(b, 0))
        b("ret void")


def _real(x: Number) -> Value:
    return x.parts[0]


def _positive(x: Value) -> Value:
    return x.compare("ogt", 0.0)


# In lanes -----------------------------------------------------------------------------


def _emit_factor(b: Builder, of: Slab, n: str) -> None:
    line = scaled(b, n, of.row)
    a = Entries("%room", line, str(of.row))
    failed = b.op(f"alloca <{of.count} x i1>")
    b(f"store <{of.count} x i1> zeroinitializer, ptr {failed}")
    with b.loop("0", n, str(PANEL)) as start:
        left = b.op(f"sub i64 {n}, {start}")
        width = b.least(left, str(PANEL))
        begun = a.begin(b, start, "0")
        factors = begun, begun.turned()
        corner = a.begin(b, start, start)
        call_less(b, of, corner, factors, (left, width, start), conj=True)
        with b.loop("0", width) as j:
            column = corner.begin(b, j, j)
            row = corner.begin(b, j, "0")
            size = b.op(f"sub i64 {left}, {j}")
            call_less(b, of, column, (row, row.turned()), (size, "1", j), conj=True)
            _emit_column(b, of, column, size, failed)
    with b.loop("0", n) as i, b.loop(b.op(f"add i64 {i}, 1"), n) as j:
        of.store(b, of.zero(b), a.at(b, i, j))
    flags = Value(b, b.op(f"load <{of.count} x i1>, ptr {failed}"), "i1", of.count)
    bits = b.op(f"bitcast {flags.type} {flags.text} to i{of.count}")
    some = b.op(f"icmp ne i{of.count} {bits}, 0")
    with b.when(some, seldom=True):
        _emit_nan(b, of, a, n, flags)


def _emit_nan(b: Builder, of: Slab, a: Entries, n: str, where: Value) -> None:
    """Makes lower triangles not-a-number."""
    nan = Number(tuple([v.like(float("nan")) for v in of.zero(b).parts]))
    with b.loop("0", n) as i, b.loop("0", b.op(f"add i64 {i}, 1")) as j:
        entry = a.at(b, i, j)
        of.store(b, nan.chosen(where, of.load(b, entry)), entry)


def _emit_column(b: Builder, of: Slab, column: Entries, size: str, failed: str) -> None:
    """Divides a column by the square root of its first element."""
    first = _real(of.load(b, column.base))
    known = Value(b, b.op(f"load <{of.count} x i1>, ptr {failed}"), "i1", of.count)
    fails = known | ~_positive(first)
    b(f"store {fails.type} {fails.text}, ptr {failed}")
    root = intrinsic("sqrt", first)
    of.store(b, Number((root, *of.zero(b).parts[1:])), column.base)
    factor = 1.0 / root
    with b.loop("1", size) as i:
        entry = column.at(b, i, "0")
        of.store(b, of.load(b, entry).scaled(factor), entry)


# By columns ---------------------------------------------------------------------------


class _Columns(NamedTuple):
    """A matrix by columns, each of so many bytes: vectors of consecutive rows."""

    b: Builder
    of: Slab
    n: str
    step: str

    def vector(self, column: str, row: str) -> str:
        """The address of a vector of rows; the first one is a multiple of lanes."""
        nbytes = self.of.parts * self.of.real.itemsize
        return place(self.b, "%room", (column, self.step), (row, str(nbytes)))

    def element(self, column: str, row: str) -> Number:
        """An element, in all lanes."""
        lane = self.b.op(f"and i64 {row}, {self.of.count - 1}")
        first = self.b.op(f"sub i64 {row}, {lane}")
        base = self.vector(column, first)
        base = place(self.b, base, (lane, str(self.of.real.itemsize)))
        found = []
        for i in range(self.of.parts):
            address = at(self.b, base, str(i * self.of.vector))
            one = access.load(self.b, address, self.of.real, 1, None)
            found.append(one.splat(self.of.count))
        return Number(tuple(found))

    @contextmanager
    def rows(self, start: str) -> Iterator[str]:
        """The loop over vectors of rows, from that of a row on."""
        first = self.b.op(f"and i64 {start}, {-self.of.count}")
        with self.b.loop(first, self.n, str(self.of.count)) as row:
            yield row


def _emit_alone(b: Builder, of: Slab, n: str) -> None:
    full = b.op(f"and i64 {b.op(f'add i64 {n}, {of.count - 1}')}, {-of.count}")
    a = _Columns(b, of, n, scaled(b, full, of.parts * of.real.itemsize))
    _emit_turned(a, matrix(b, 1).base)
    failed = b.op("alloca i1")
    b(f"store i1 false, ptr {failed}")
    with b.loop("0", n, str(PANEL)) as start:
        left = b.op(f"sub i64 {n}, {start}")
        whole = b.op(f"icmp sge i64 {left}, {PANEL}")
        with b.when(whole):
            _emit_begin(a, start, PANEL)
        with b.when(b.op(f"xor i1 {whole}, true")), b.loop(start, n) as column:
            _emit_begin(a, column, 1, start)
        last = b.op(f"add i64 {start}, {b.least(left, str(PANEL))}")
        with b.loop(start, last) as j:
            _emit_column_alone(a, j, last, failed)
    _emit_turned_back(a, matrix(b, 2).base, failed)


def _emit_begin(a: _Columns, column: str, width: int, count: str = "") -> None:
    """Takes away the products of `count` earlier columns (all, if that is not said)
    from some columns."""
    b, of = a.b, a.of
    columns = [b.op(f"add i64 {column}, {n}") for n in range(width)]
    with a.rows(column) as row:
        places = [a.vector(j, row) for j in columns]
        start = [of.load(b, x) for x in places]
        carried = [(of.kind, v.text) for x in start for v in x.parts]
        with b.carrying("0", count or column, "1", carried) as turn:
            sums = numbers(b, of, turn.values)
            x = of.load(b, a.vector(turn.index, row))
            others = [a.element(turn.index, j) for j in columns]
            pairs = zip(sums, others, strict=True)
            found = [c.less(x, y, conj=True) for c, y in pairs]
            turn.next = [v.text for x in found for v in x.parts]
        for x, to in zip(numbers(b, of, turn.values), places, strict=True):
            of.store(b, x, to)


def _emit_column_alone(a: _Columns, j: str, last: str, failed: str) -> None:
    """Finishes a column, and takes its products away from the next ones, up to
    `last`."""
    b, of = a.b, a.of
    first = _real(a.element(j, j))
    fails = ~_positive(first.lane(0))
    known = Value(b, b.op(f"load i1, ptr {failed}"), "i1", 1)
    b(f"store i1 {(known | fails).text}, ptr {failed}")
    root = intrinsic("sqrt", first)
    factor = 1.0 / root
    own = Value(b, j, "i64", 1)
    with a.rows(j) as row:
        entry = a.vector(j, row)
        number = lane_numbers(b, "i64", of.count) + Value(b, row, "i64", 1)
        is_first = number.compare("eq", own)
        x = of.load(b, entry).scaled(factor)
        diagonal = Number((root, *of.zero(b).parts[1:]))
        of.store(b, diagonal.chosen(is_first, x), entry)
    with b.loop(b.op(f"add i64 {j}, 1"), last) as k:
        other = a.element(j, k)
        with a.rows(k) as row:
            entry = a.vector(k, row)
            x = of.load(b, entry).less(of.load(b, a.vector(j, row)), other, conj=True)
            of.store(b, x, entry)


def _emit_turned(a: _Columns, memory: str) -> None:
    """Reads the lower triangle, by squares; rows behind the last are like it."""
    b, of = a.b, a.of
    bottom = b.op(f"sub i64 {a.n}, 1")
    with a.rows("0") as row:
        lines = [b.least(b.op(f"add i64 {row}, {i}"), bottom) for i in range(of.count)]
        end = b.op(f"add i64 {row}, {of.count}")
        with b.loop("0", b.least(end, a.n), str(of.count)) as column:
            found = [_load_line(a, _line(a, memory, i, column), column) for i in lines]
            for p in range(of.parts):
                square = of.lanes.transposed([x.parts[p] for x in found])
                for k, vector in enumerate(square):
                    j = b.op(f"add i64 {column}, {k}")
                    with b.when(b.op(f"icmp slt i64 {j}, {a.n}")):
                        to = at(b, a.vector(j, row), str(p * of.vector))
                        access.store(b, to, vector, of.real, None)


def _emit_turned_back(a: _Columns, memory: str, failed: str) -> None:
    """Writes the lower triangle, not-a-number if that has failed, and zeros."""
    b, of = a.b, a.of
    nan = constant(b, float("nan"), of.lanes.kind, of.count)
    bad = Value(b, b.op(f"load i1, ptr {failed}"), "i1", 1).splat(of.count)
    bottom = b.op(f"sub i64 {a.n}, 1")
    with a.rows("0") as row, a.rows("0") as column:
        found = []
        columns = [b.op(f"add i64 {column}, {k}") for k in range(of.count)]
        columns = [b.least(j, bottom) for j in columns]
        vectors = [of.load(b, a.vector(j, row)) for j in columns]
        for p in range(of.parts):
            square = [select(bad, nan, x.parts[p]) for x in vectors]
            found.append(of.lanes.transposed(square))
        for k in range(of.count):
            i = b.op(f"add i64 {row}, {k}")
            with b.when(b.op(f"icmp slt i64 {i}, {a.n}")):
                number = lane_numbers(b, "i64", of.count)
                number = number + Value(b, column, "i64", 1)
                inside = number.compare("sle", Value(b, i, "i64", 1))
                x = Number(tuple([parts[k] for parts in found]))
                x = x.chosen(inside, of.zero(b))
                _store_line(a, x, _line(a, memory, i, column), column)


def _line(a: _Columns, memory: str, i: str, column: str) -> str:
    b, size = a.b, a.of.parts * a.of.real.itemsize
    index = b.op(f"add i64 {scaled(b, i, a.n)}, {column}")
    return place(b, memory, (index, str(size)))


def _masks(a: _Columns, column: str) -> list[Value]:
    """Which real numbers, from a column on, are of the same row."""
    b, of = a.b, a.of
    left = scaled(b, b.op(f"sub i64 {a.n}, {column}"), of.parts)
    number = lane_numbers(b, "i64", of.count)
    return [
        (number + i * of.count).compare("slt", Value(b, left, "i64", 1))
        for i in range(of.parts)
    ]


def _load_line(a: _Columns, address: str, column: str) -> Number:
    """As many numbers of a row as there are lanes, or those that it has."""
    b, of = a.b, a.of
    found = [
        access.load(b, at(b, address, str(i * of.vector)), of.real, of.count, mask)
        for i, mask in enumerate(_masks(a, column))
    ]
    if of.parts == 1:
        return Number(tuple(found))
    x, y = found
    every = list(range(0, 2 * of.count, 2))
    return Number((x.shuffle(every, y), x.shuffle([i + 1 for i in every], y)))


def _store_line(a: _Columns, x: Number, address: str, column: str) -> None:
    b, of = a.b, a.of
    vectors = list(x.parts)
    if of.parts == 2:
        turns = [i for k in range(of.count) for i in (k, k + of.count)]
        halves = turns[: of.count], turns[of.count :]
        vectors = [x.parts[0].shuffle(half, x.parts[1]) for half in halves]
    for i, (vector, mask) in enumerate(zip(vectors, _masks(a, column), strict=True)):
        access.store(b, at(b, address, str(i * of.vector)), vector, of.real, mask)
