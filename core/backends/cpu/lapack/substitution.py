"""Systems of equations with small triangular matrices, in lanes.

From each unknown the products with earlier ones are taken away, one after the other;
what is left is divided by the diagonal's element.
"""

from __future__ import annotations

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.fourier.lanes import scaled
from treadle.backends.cpu.lapack.arguments import PARAMETERS, behind, matrix, size
from treadle.backends.cpu.lapack.lanes import (
    Entries,
    Slab,
    call_less,
    pack,
    unpack,
)
from treadle.backends.cpu.lapack.small import LEFT, LOWER, TRANSPOSED, UNIT
from treadle.backends.cpu.run.shared import SHARED

PANEL = 4
"""Rows that are begun together."""

_ENTRIES = (
    "(ptr %a, i64 %a_row, i64 %a_column, ptr %x, i64 %x_row, i64 %x_column,"
    " i64 %n, i64 %columns, i1 %unit)"
)


def emit(b: Builder, of: Slab, name: str) -> None:
    """The function that solves op(A) X = B, or X op(A) = B."""
    emit_substitute(b, of)
    with b.function(f"define internal void @{name}{PARAMETERS} {SHARED}"):
        n, others, how = (size(b, i) for i in range(3))
        squares, count = scaled(b, n, n), scaled(b, n, others)
        second = behind(b, of, squares, "%room")
        pack(b, of, matrix(b, 1), squares, "%room")
        pack(b, of, matrix(b, 2), count, second)
        left, lower, transposed, unit = (
            b.op(f"icmp ne i64 {b.op(f'and i64 {how}, {flag}')}, 0")
            for flag in (LEFT, LOWER, TRANSPOSED, UNIT)
        )
        # X op(A) = B is op(A)ᵀ Xᵀ = Bᵀ.
        turned = b.op(f"icmp eq i1 {transposed}, {left}")
        one, line = str(of.row), scaled(b, n, of.row)
        a = _chosen(b, turned, ("%room", one, line), ("%room", line, one))
        wide = scaled(b, others, of.row)
        x = _chosen(b, left, (second, wide, one), (second, one, line))
        backward = b.op(f"icmp eq i1 {lower}, {turned}")
        substitute(b, of, (a, x), (n, others), unit, backward)
        unpack(b, of, matrix(b, 3), count, second)
        b("ret void")


def _chosen(
    b: Builder, condition: str, x: tuple[str, str, str], y: tuple[str, str, str]
) -> Entries:
    """The first entries where a condition holds, else the second; both begin alike."""
    steps = [
        b.op(f"select i1 {condition}, i64 {p}, i64 {q}")
        for p, q in zip(x[1:], y[1:], strict=True)
    ]
    return Entries(x[0], *steps)


def substitute(
    b: Builder,
    of: Slab,
    entries: tuple[Entries, Entries],
    sizes: tuple[str, str],
    unit: str,
    backward: str,
) -> None:
    """Makes B the X with T X = B. T is lower triangular, or if `backward` upper: then
    its last row is the first."""
    a, x = entries
    last = b.op(f"sub i64 {sizes[0]}, 1")
    a = _from(b, backward, a, (last, last))
    x = _from(b, backward, x, (last, "0"))
    matrices = ", ".join([f"ptr {m[0]}, i64 {m[1]}, i64 {m[2]}" for m in (a, x)])
    counts = ", ".join([f"i64 {n}" for n in sizes])
    b(f"call void {of.name('substitute')}({matrices}, {counts}, i1 {unit})")


def _from(b: Builder, backward: str, x: Entries, first: tuple[str, str]) -> Entries:
    """The entries, or if `backward` those from another one on, in the other
    direction; in a direction without steps back, they are as they were."""
    base = b.op(f"select i1 {backward}, ptr {x.at(b, *first)}, ptr {x.base}")
    steps = []
    for step, place in zip((x.row, x.column), first, strict=True):
        back = step if place == "0" else b.op(f"sub i64 0, {step}")
        steps.append(b.op(f"select i1 {backward}, i64 {back}, i64 {step}"))
    return Entries(base, *steps)


def emit_substitute(b: Builder, of: Slab) -> None:
    """``substitute``, for a lower triangle."""
    signature = f"define internal void {of.name('substitute')}{_ENTRIES} {SHARED}"
    with b.function(signature):
        a = Entries("%a", "%a_row", "%a_column")
        x = Entries("%x", "%x_row", "%x_column")
        divides = b.op("xor i1 %unit, true")
        with b.loop("0", "%n", str(PANEL)) as start:
            height = b.least(b.op(f"sub i64 %n, {start}"), str(PANEL))
            rows = x.begin(b, start, "0")
            factors = a.begin(b, start, "0"), x
            call_less(b, of, rows, factors, (height, "%columns", start))
            with b.loop("0", height) as i:
                row = rows.begin(b, i, "0")
                at_row = b.op(f"add i64 {start}, {i}")
                factors = a.begin(b, at_row, start), rows
                call_less(b, of, row, factors, ("1", "%columns", i))
                with b.when(divides):
                    diagonal = of.load(b, a.at(b, at_row, at_row))
                    with b.loop("0", "%columns") as j:
                        entry = row.at(b, "0", j)
                        of.store(b, of.load(b, entry).over(diagonal), entry)
        b("ret void")
