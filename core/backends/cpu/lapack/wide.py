"""Systems of equations with one small triangular matrix and many right sides.

Right sides are in lanes, of some vectors at once; each lane has the same matrix. What
is done with a right side does not depend on the others.
"""

from __future__ import annotations

from treadle.backends.cpu.emit import access
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, lane_numbers
from treadle.backends.cpu.fourier.lanes import at, scaled
from treadle.backends.cpu.lapack.arguments import behind, matrix, size
from treadle.backends.cpu.lapack.lanes import (
    Entries,
    Matrix,
    Slab,
    pack,
    place,
    unpack,
)
from treadle.backends.cpu.lapack.small import AT_ONCE, LEFT, LOWER, TRANSPOSED, UNIT
from treadle.backends.cpu.lapack.substitution import substitute


def emit(b: Builder, of: Slab) -> None:
    """``wide``: solves op(A) X = B, or X op(A) = B, for one A."""
    _emit_rows(b, of)
    with b.function(
        "define internal void @wide(ptr %args, i64 %index, ptr noalias %room) noinline"
    ):
        n, others, how = (size(b, i) for i in range(3))
        squares = scaled(b, n, n)
        sides = behind(b, of, squares, "%room")
        alike = Matrix(matrix(b, 1).base, "0")
        pack(b, of, alike, squares, "%room", last="0")
        left, lower, transposed, unit = (
            b.op(f"icmp ne i64 {b.op(f'and i64 {how}, {flag}')}, 0")
            for flag in (LEFT, LOWER, TRANSPOSED, UNIT)
        )
        turned = b.op(f"icmp eq i1 {transposed}, {left}")
        one, line = str(of.row), scaled(b, n, of.row)
        steps = [
            b.op(f"select i1 {turned}, i64 {p}, i64 {q}")
            for p, q in ((one, line), (line, one))
        ]
        a = Entries("%room", steps[0], steps[1])
        backward = b.op(f"icmp eq i1 {lower}, {turned}")
        # On the left, the numbers of a right side lie one after the other: turned.
        between = b.op(f"and i64 {b.op(f'add i64 {n}, {of.count - 1}')}, {-of.count}")
        between = scaled(b, between, of.row)
        x = Entries(
            sides,
            b.op(f"select i1 {left}, i64 {AT_ONCE * of.row}, i64 {of.row}"),
            b.op(f"select i1 {left}, i64 {of.row}, i64 {between}"),
        )
        with b.loop("0", others, str(AT_ONCE * of.count)) as first:
            most = b.least(b.op(f"sub i64 {others}, {first}"), str(AT_ONCE * of.count))
            vectors = b.op(f"add i64 {most}, {of.count - 1}")
            vectors = b.op(f"udiv i64 {vectors}, {of.count}")
            _move(b, of, "pack", left, (first, most, vectors), x)
            substitute(b, of, (a, x), (n, vectors), unit, backward)
            _move(b, of, "unpack", left, (first, most, vectors), x)
        b("ret void")


def _move(
    b: Builder,
    of: Slab,
    what: str,
    left: str,
    sides: tuple[str, str, str],
    x: Entries,
) -> None:
    """Brings some right sides to where they are solved for, or back.

    sides: the first one, how many, and in how many vectors.
    """
    memory = matrix(b, 2 if what == "pack" else 3).base
    first, most, vectors = sides
    n, others = size(b, 0), size(b, 1)
    with b.when(left):
        start = at(b, memory, scaled(b, first, of.real.itemsize))
        line = scaled(b, others, of.real.itemsize)
        b(
            f"call void @{what}_rows(ptr {start}, i64 {line}, i64 {n}, i64 {most}, "
            f"ptr {x.base})"
        )
    with b.when(b.op(f"xor i1 {left}, true")), b.loop("0", vectors) as vector:
        begun = b.op(f"mul i64 {vector}, {of.count}")
        rest = b.op(f"sub i64 {most}, {begun}")
        last = b.op(f"sub i64 {b.least(rest, str(of.count))}, 1")
        step = scaled(b, n, of.real.itemsize)
        base = place(b, memory, (b.op(f"add i64 {first}, {begun}"), step))
        slab = place(b, x.base, (vector, x.column))
        move = pack if what == "pack" else unpack
        move(b, of, Matrix(base, step), n, slab, last=last)


def _emit_rows(b: Builder, of: Slab) -> None:
    """``pack_rows`` and ``unpack_rows``: some columns of rows that lie apart, vector by
    vector."""
    for what in ("pack_rows", "unpack_rows"):
        with b.function(
            f"define internal void @{what}(ptr noalias %memory, i64 %line, i64 %n, "
            "i64 %columns, ptr noalias %slab) noinline"
        ):
            with (
                b.loop("0", "%n") as row,
                b.loop("0", "%columns", str(of.count)) as column,
            ):
                there = place(b, "%memory", (row, "%line"))
                there = at(b, there, scaled(b, column, of.real.itemsize))
                here = place(b, "%slab", (row, str(AT_ONCE * of.row)))
                here = at(b, here, scaled(b, column, of.real.itemsize))
                left = b.op(f"sub i64 %columns, {column}")
                whole = b.op(f"icmp sge i64 {left}, {of.count}")
                inside = lane_numbers(b, "i64", of.count)
                inside = inside.compare("slt", Value(b, left, "i64", 1))
                for condition, mask in (
                    (whole, None),
                    (b.op(f"xor i1 {whole}, true"), inside),
                ):
                    with b.when(condition):
                        if what == "pack_rows":
                            x = access.load(b, there, of.real, of.count, mask)
                            access.store(b, here, x, of.real, None)
                        else:
                            x = access.load(b, here, of.real, of.count, None)
                            access.store(b, there, x, of.real, mask)
            b("ret void")
