"""QR factorizations of small matrices in lanes, by Householder's reflections.

As LAPACK does it: each column is reflected onto its first element, which becomes real,
of the other sign than before. The vector v of a reflection I - tau v vᴴ begins with 1;
the rest of it lies in place of what it has made zero. That and tau have the opposite
sign here, so that all products are taken away. Columns whose squares would leave the
range of numbers are multiplied by a power of two first.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, intrinsic, select
from treadle.backends.cpu.fourier.lanes import scaled
from treadle.backends.cpu.lapack.arguments import PARAMETERS, behind, matrix, size
from treadle.backends.cpu.lapack.lanes import (
    Entries,
    Number,
    Slab,
    numbers,
    pack,
    place,
    unpack,
)
from treadle.backends.cpu.run.shared import SHARED

_REFLECT = (
    "(ptr %v, i64 %v_row, ptr %tau, ptr %a, i64 %a_row, i64 %a_column, i64 %rows,"
    " i64 %columns, i1 %conj)"
)
_WIDTH = 4
"""Columns that are reflected together."""

_RANGES = {
    "float": (2.0**60, -80, 2.0**-60, 100),
    "double": (2.0**500, -700, 2.0**-500, 700),
}
"""Above which size, and below which, numbers are multiplied by which power of two."""


def emit(b: Builder, of: Slab, name: str, orthogonal: bool = True) -> None:
    """The function that factors matrices (of m rows and n columns; so many columns of Q
    are asked for, or rows of R alone)."""
    _emit_reflect(b, of)
    _emit_column(b, of)
    with b.function(f"define internal void @{name}{PARAMETERS} {SHARED}"):
        m, n, columns = (size(b, i) for i in range(3))
        k, count = b.least(m, n), scaled(b, m, n)
        made = scaled(b, m, columns) if orthogonal else "0"
        second = behind(b, of, count, "%room")
        taus = behind(b, of, made, second)
        pack(b, of, matrix(b, 1), count, "%room")
        a = Entries("%room", scaled(b, n, of.row), str(of.row))
        with b.loop("0", k) as i:
            corner, rows = a.begin(b, i, i), b.op(f"sub i64 {m}, {i}")
            tau = place(b, taus, (i, str(of.row)))
            where = f"ptr {corner.base}, i64 {corner.row}, i64 {rows}, ptr {tau}"
            b(f"call void {of.name('column')}({where})")
            others = b.op(f"sub i64 {b.op(f'sub i64 {n}, {i}')}, 1")
            _call(b, of, corner, tau, corner.begin(b, "0", "1"), (rows, others), "true")
        if orthogonal:
            q = Entries(second, scaled(b, columns, of.row), str(of.row))
            _emit_product(b, of, a, q, taus, (m, columns, k))
            unpack(b, of, matrix(b, 2), made, second)
        with b.loop("1", columns) as i, b.loop("0", b.least(i, n)) as j:
            of.store(b, of.zero(b), a.at(b, i, j))
        r = matrix(b, 3 if orthogonal else 2)
        unpack(b, of, r, scaled(b, columns, n), "%room")
        b("ret void")


def _emit_product(
    b: Builder, of: Slab, a: Entries, q: Entries, taus: str, sizes: tuple[str, ...]
) -> None:
    """Q, with m rows and some columns, of k reflections."""
    m, columns, k = sizes
    _emit_identity(b, of, q, (m, columns))
    with b.loop("0", k) as back:
        i = b.op(f"sub i64 {b.op(f'sub i64 {k}, {back}')}, 1")
        rows = b.op(f"sub i64 {m}, {i}"), b.op(f"sub i64 {columns}, {i}")
        tau = place(b, taus, (i, str(of.row)))
        _call(b, of, a.begin(b, i, i), tau, q.begin(b, i, i), rows, "false")


def _emit_identity(b: Builder, of: Slab, q: Entries, sizes: tuple[str, str]) -> None:
    with b.loop("0", sizes[0]) as i, b.loop("0", sizes[1]) as j:
        of.store(b, of.zero(b), q.at(b, i, j))
    with b.loop("0", sizes[1]) as i:
        of.store(b, of.one(b), q.at(b, i, i))


# A reflection -------------------------------------------------------------------------


def _emit_column(b: Builder, of: Slab) -> None:
    """``column``: makes the vector of a reflection of a column, and its factor tau."""
    with b.function(
        f"define internal void {of.name('column')}(ptr %x, i64 %step, i64 %rows,"
        f" ptr %tau) {SHARED}"
    ):
        largest = _over(b, of, "0", lambda t, x: intrinsic("maxnum", t, _size(x)))
        high, down, low, up = _RANGES[of.lanes.kind]
        large, little = largest.compare("ogt", high), largest.compare("olt", low)

        def chosen(sign: int) -> Value:
            powers = (2.0 ** (sign * n) for n in (down, up))
            first, second = (largest.like(power) for power in powers)
            return select(large, first, select(little, second, largest.like(1.0)))

        factor = chosen(1)

        def squares(total: Value, x: Number) -> Value:
            for part in x.scaled(factor).parts:
                total = total + part * part
            return total

        below = _over(b, of, "1", squares)
        alpha = of.load(b, "%x").scaled(factor)
        real, *imaginary = alpha.parts
        for part in imaginary:
            below = below + part * part
        nothing = below.compare("oeq", 0.0)
        norm = intrinsic("sqrt", below + real * real)
        beta = -intrinsic("copysign", norm, real)
        safe = select(nothing, beta.like(1.0), beta)
        tau = Number(((real - safe) / safe, *[x / safe for x in imaginary]))
        of.store(b, of.zero(b).chosen(nothing, tau), "%tau")
        pivot = Number((safe - real, *[-x for x in imaginary]))
        multiplier = of.one(b).over(of.one(b).chosen(nothing, pivot))
        with b.loop("1", "%rows") as i:
            entry = place(b, "%x", (i, "%step"))
            x = of.load(b, entry).scaled(factor)
            of.store(b, x.times(multiplier), entry)
        first = Number(((beta * chosen(-1)).rounded_once(), *of.zero(b).parts[1:]))
        of.store(b, of.load(b, "%x").chosen(nothing, first), "%x")
        b("ret void")


def _over(
    b: Builder, of: Slab, first: str, add: Callable[[Value, Number], Value]
) -> Value:
    """What the rows of a column from the first one on amount to."""
    start = of.zero(b).parts[0]
    with b.carrying(first, "%rows", "1", [(of.kind, start.text)]) as turn:
        total = Value(b, turn.values[0], of.lanes.kind, of.count)
        x = of.load(b, place(b, "%x", (turn.index, "%step")))
        turn.next = [add(total, x).text]
    return Value(b, turn.values[0], of.lanes.kind, of.count)


def _size(x: Number) -> Value:
    first, *others = (intrinsic("fabs", part) for part in x.parts)
    return intrinsic("maxnum", first, others[0]) if others else first


def _call(
    b: Builder,
    of: Slab,
    v: Entries,
    tau: str,
    a: Entries,
    sizes: tuple[str, str],
    conj: str,
) -> None:
    """A minus tau (or its conjugate) v vᴴ A; v begins with 1, whatever lies there."""
    matrices = f"ptr {v.base}, i64 {v.row}, ptr {tau}, ptr {a.base}, i64 {a.row}"
    rest = f"i64 {a.column}, i64 {sizes[0]}, i64 {sizes[1]}, i1 {conj}"
    b(f"call void {of.name('reflect')}({matrices}, {rest})")


def _emit_reflect(b: Builder, of: Slab) -> None:
    """``reflect``, what `_call` calls."""
    width = _WIDTH // of.parts
    with b.function(f"define internal void {of.name('reflect')}{_REFLECT} {SHARED}"):
        tau = of.load(b, "%tau")
        if of.parts == 2:
            re, im = tau.parts
            tau = Number((re, select(Value(b, "%conj", "i1", 1), -im, im)))
        whole = b.op(f"and i64 %columns, {-width}")
        for ends, wide in (("0", whole), width), ((whole, "%columns"), 1):
            with b.loop(*ends, str(wide)) as j:
                _reflect(b, of, tau, j, wide)
        b("ret void")


def _reflect(b: Builder, of: Slab, tau: Number, first: str, wide: int) -> None:
    columns = [
        place(b, "%a", (b.op(f"add i64 {first}, {n}"), "%a_column"))
        for n in range(wide)
    ]
    tops = [of.load(b, x) for x in columns]
    carried = [(of.kind, v.text) for x in tops for v in x.parts]

    def entries(row: str) -> tuple[Number, list[str]]:
        v = of.load(b, place(b, "%v", (row, "%v_row")))
        return v, [place(b, x, (row, "%a_row")) for x in columns]

    with b.carrying("1", "%rows", "1", carried) as turn:
        v, places = entries(turn.index)
        sums = numbers(b, of, turn.values)
        pairs = zip(sums, places, strict=True)
        found = [t.less(of.load(b, x), v, conj=True) for t, x in pairs]
        turn.next = [part.text for x in found for part in x.parts]
    along = [tau.times(t) for t in numbers(b, of, turn.values)]
    for top, factor, column in zip(tops, along, columns, strict=True):
        parts = zip(top.parts, factor.parts, strict=True)
        of.store(b, Number(tuple([x + y for x, y in parts])), column)
    with b.loop("1", "%rows") as i:
        v, places = entries(i)
        for x, factor in zip(places, along, strict=True):
            of.store(b, of.load(b, x).less(v, factor), x)
