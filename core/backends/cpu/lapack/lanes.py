"""Small matrices of a batch side by side: each in a lane of vectors, in a slab.

A slab is memory that holds, for each number of a matrix, a vector of its real parts
and, of complex numbers, one of its imaginary parts. What is done with the vectors is
done with each matrix alike and alone, so that its result does not depend on the others.
There are slabs of one lane, too, for few matrices: the same instructions, of scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from treadle import dtypes
from treadle.backends.cpu.emit import access
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import (
    Value,
    constant,
    host_lanes,
    intrinsic,
    lane_numbers,
    memory_kind,
    select,
    type_name,
)
from treadle.backends.cpu.fourier.lanes import Lanes, at, scaled
from treadle.backends.cpu.run.shared import SHARED
from treadle.backends.cpu.target import host
from treadle.records import record


class Number(NamedTuple):
    """A vector of numbers: real parts and, of complex ones, imaginary parts."""

    parts: tuple[Value, ...]

    def less(self, x: Number, y: Number, conj: bool = False) -> Number:
        """This minus x times y (or its conjugate)."""
        if len(self.parts) == 1:
            return Number((self.parts[0] - x.parts[0] * y.parts[0],))
        (re, im), (a, b), (c, d) = self.parts, x.parts, y.parts
        d = -d if conj else d
        return Number((re - a * c + b * d, im - a * d - b * c))

    def times(self, other: Number) -> Number:
        """The product."""
        if len(self.parts) == 1:
            return Number(((self.parts[0] * other.parts[0]).rounded_once(),))
        (a, b), (c, d) = self.parts, other.parts
        re, im = (b * d).rounded_once(), (b * c).rounded_once()
        return Number((a * c - re, a * d + im))

    def scaled(self, factor: Value) -> Number:
        return Number(tuple([(x * factor).rounded_once() for x in self.parts]))

    def over(self, other: Number) -> Number:
        """The quotient (of complex numbers: Smith 1962)."""
        if len(self.parts) == 1:
            return Number((self.parts[0] / other.parts[0],))
        (a, b), (c, d) = self.parts, other.parts
        upright = intrinsic("fabs", c).compare("oge", intrinsic("fabs", d))
        large, small = select(upright, c, d), select(upright, d, c)
        first, second = select(upright, a, b), select(upright, b, a)
        ratio = small / large
        size = large + small * ratio
        across = second - first * ratio
        re = (first + second * ratio) / size
        return Number((re, select(upright, across, -across) / size))

    def chosen(self, condition: Value, other: Number) -> Number:
        """This where a condition holds, else the other."""
        pairs = zip(self.parts, other.parts, strict=True)
        return Number(tuple([select(condition, x, y) for x, y in pairs]))


@record(frozen=True)
class Slab:
    """How matrices lie, and the names of the functions for them.

    count: lanes of a vector, as many matrices.
    """

    dtype: np.dtype
    count: int

    @property
    def parts(self) -> int:
        return 2 if dtypes.is_complex(self.dtype) else 1

    @property
    def real(self) -> np.dtype:
        return dtypes.to_real(self.dtype)

    @property
    def lanes(self) -> Lanes:
        return Lanes(memory_kind(self.real), self.count)

    @property
    def vector(self) -> int:
        """Bytes of a vector."""
        return self.count * self.real.itemsize

    @property
    def row(self) -> int:
        """Bytes of a number of each matrix."""
        return self.vector * self.parts

    @property
    def kind(self) -> str:
        """IR's type of a part."""
        return type_name(self.lanes.kind, self.count)

    def name(self, what: str) -> str:
        return f"@{what}_{self.count}"

    def load(self, b: Builder, address: str) -> Number:
        places = [at(b, address, str(i * self.vector)) for i in range(self.parts)]
        return Number(tuple([self._load(b, place) for place in places]))

    def _load(self, b: Builder, address: str) -> Value:
        return access.load(b, address, self.real, self.count, None)

    def store(self, b: Builder, x: Number, address: str) -> None:
        for i, part in enumerate(x.parts):
            place = at(b, address, str(i * self.vector))
            access.store(b, place, part, self.real, None)

    def zero(self, b: Builder) -> Number:
        return Number((constant(b, 0.0, self.lanes.kind, self.count),) * self.parts)

    def one(self, b: Builder) -> Number:
        one = constant(b, 1.0, self.lanes.kind, self.count)
        return Number((one, *self.zero(b).parts[1:]))


def slab(dtype: np.dtype) -> Slab:
    """Of as many matrices as this machine's vectors have lanes."""
    return Slab(dtype, 4 * host_lanes() // dtypes.to_real(dtype).itemsize)


def place(b: Builder, base: str, *steps: tuple[str, str]) -> str:
    """An address so many times so many bytes further."""
    for index, step in steps:
        base = at(b, base, scaled(b, index, step))
    return base


class Matrix(NamedTuple):
    """The first of some matrices, and bytes from one to the next."""

    base: str
    step: str


# To slabs, and back -------------------------------------------------------------------

_MOVED = "(ptr noalias %memory, i64 %step, i64 %last, i64 %numbers, ptr noalias %slab)"


def emit_moves(b: Builder, of: Slab) -> None:
    """``pack`` and ``unpack``: matrices of some real numbers, `step` bytes from one to
    the next. The last one, whose number in the slab is given, fills the lanes that are
    left."""
    for what in ("pack", "unpack"):
        with b.function(f"define internal void {of.name(what)}{_MOVED} {SHARED}"):
            if of.count == 1:
                _copy(b, of, what == "pack")
            else:
                _turn(b, of, _emit_in if what == "pack" else _emit_out)
            b("ret void")


def _copy(b: Builder, of: Slab, forth: bool) -> None:
    nbytes = scaled(b, "%numbers", of.vector)
    to, source = ("%slab", "%memory") if forth else ("%memory", "%slab")
    b.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    b(
        f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {nbytes},"
        " i1 false)"
    )


Move = Callable[[Builder, Slab, list[str], str, str, Value | None], None]


def _turn(b: Builder, of: Slab, move: Move) -> None:
    """Squares of as many numbers as there are lanes, of which the last may not be
    full."""
    lanes = [b.least(str(i), "%last") for i in range(of.count)]
    matrices = [place(b, "%memory", (lane, "%step")) for lane in lanes]
    whole = b.op(f"and i64 %numbers, {-of.count}")
    with b.loop("0", whole, str(of.count)) as i:
        rows = place(b, "%slab", (i, str(of.vector)))
        move(b, of, matrices, scaled(b, i, of.real.itemsize), rows, None)
    with b.when(b.op(f"icmp slt i64 {whole}, %numbers")):
        numbers = lane_numbers(b, "i64", of.count) + Value(b, whole, "i64", 1)
        inside = numbers.compare("slt", Value(b, "%numbers", "i64", 1))
        rows = place(b, "%slab", (whole, str(of.vector)))
        move(b, of, matrices, scaled(b, whole, of.real.itemsize), rows, inside)


def _emit_in(
    b: Builder,
    of: Slab,
    matrices: list[str],
    offset: str,
    rows: str,
    mask: Value | None,
) -> None:
    found = [
        access.load(b, at(b, x, offset), of.real, of.count, mask) for x in matrices
    ]
    for i, row in enumerate(of.lanes.transposed(found)):
        access.store(b, at(b, rows, str(i * of.vector)), row, of.real, None)


def _emit_out(
    b: Builder,
    of: Slab,
    matrices: list[str],
    offset: str,
    rows: str,
    mask: Value | None,
) -> None:
    places = [at(b, rows, str(i * of.vector)) for i in range(of.count)]
    found = [access.load(b, x, of.real, of.count, None) for x in places]
    for x, row in zip(matrices, of.lanes.transposed(found), strict=True):
        access.store(b, at(b, x, offset), row, of.real, mask)


def pack(
    b: Builder, of: Slab, matrix: Matrix, count: str, to: str, last: str = "%last"
) -> None:
    """Brings the numbers of matrices into a slab; the last one has this number."""
    _move(b, of.name("pack"), of, matrix, count, (to, last))


def unpack(
    b: Builder, of: Slab, matrix: Matrix, count: str, source: str, last: str = "%last"
) -> None:
    """Writes matrices from a slab."""
    _move(b, of.name("unpack"), of, matrix, count, (source, last))


def _move(
    b: Builder, name: str, of: Slab, m: Matrix, count: str, slab: tuple[str, str]
) -> None:
    parts = scaled(b, count, of.parts)
    where = f"ptr {m.base}, i64 {m.step}, i64 {slab[1]}"
    b(f"call void {name}({where}, i64 {parts}, ptr {slab[0]})")


# Sums of products ---------------------------------------------------------------------

_LESS = (
    "(ptr %c, i64 %c_row, i64 %c_column, ptr %a, i64 %a_row, i64 %a_k, ptr %b,"
    " i64 %b_k, i64 %b_column, i64 %rows, i64 %columns, i64 %count)"
)


class Entries(NamedTuple):
    """Where the entries of a matrix in a slab are: bytes to the next row and column."""

    base: str
    row: str
    column: str

    def at(self, b: Builder, i: str, j: str) -> str:
        return place(b, self.base, (i, self.row), (j, self.column))

    def turned(self) -> Entries:
        return Entries(self.base, self.column, self.row)

    def begin(self, b: Builder, i: str, j: str) -> Entries:
        """The same without its first rows and columns."""
        return self._replace(base=self.at(b, i, j))


def call_less(
    b: Builder,
    of: Slab,
    c: Entries,
    factors: tuple[Entries, Entries],
    sizes: tuple[str, str, str],
    conj: bool = False,
) -> None:
    """C minus A B: rows and columns of C, and how many products there are for each."""
    matrices = ", ".join([f"ptr {m[0]}, i64 {m[1]}, i64 {m[2]}" for m in (c, *factors)])
    numbers = ", ".join([f"i64 {n}" for n in sizes])
    name = of.name("less_conj" if conj and of.parts == 2 else "less")
    b(f"call void {name}({matrices}, {numbers})")


def emit_less(b: Builder, of: Slab, conj: bool = False) -> None:
    """``less``, what `call_less` calls. Products are taken away one after the other,
    however many there are: what has been begun can be gone on with."""
    if conj and of.parts == 1:
        return
    name = of.name("less_conj" if conj else "less")
    height, width = (4, 4) if host().vector_bytes == 64 else (2, 4)
    width //= of.parts
    with b.function(f"define internal void {name}{_LESS} {SHARED}"):
        with b.when(b.op("icmp sgt i64 %count, 0")):
            rows = b.op(f"and i64 %rows, {-height}")
            columns = b.op(f"and i64 %columns, {-width}")
            for i_range, tall in (("0", rows), height), ((rows, "%rows"), 1):
                with b.loop(*i_range, str(tall)) as i:
                    for j_range, wide in (
                        (("0", columns), width),
                        ((columns, "%columns"), 1),
                    ):
                        with b.loop(*j_range, str(wide)) as j:
                            _block(b, of, (i, j), (tall, wide), conj)
        b("ret void")


def _block(
    b: Builder, of: Slab, first: tuple[str, str], size: tuple[int, int], conj: bool
) -> None:
    """A block of C, in registers."""
    (i, j), (tall, wide) = first, size
    rows = [b.op(f"add i64 {i}, {n}") for n in range(tall)]
    columns = [b.op(f"add i64 {j}, {n}") for n in range(wide)]
    targets = [
        place(b, "%c", (m, "%c_row"), (n, "%c_column")) for m in rows for n in columns
    ]
    left = [place(b, "%a", (m, "%a_row")) for m in rows]
    right = [place(b, "%b", (n, "%b_column")) for n in columns]
    start = [of.load(b, x) for x in targets]
    carried = [(of.kind, v.text) for x in start for v in x.parts]
    offsets = [("i64", "0"), ("i64", "0")]
    with b.carrying("0", "%count", "1", [*carried, *offsets]) as turn:
        *texts, a_at, b_at = turn.values
        sums = numbers(b, of, texts)
        xs = [of.load(b, at(b, x, a_at)) for x in left]
        ys = [of.load(b, at(b, y, b_at)) for y in right]
        pairs = [(x, y) for x in xs for y in ys]
        found = [c.less(x, y, conj) for c, (x, y) in zip(sums, pairs, strict=True)]
        turn.next = [v.text for x in found for v in x.parts]
        turn.next += [b.op(f"add i64 {a_at}, %a_k"), b.op(f"add i64 {b_at}, %b_k")]
    for x, target in zip(numbers(b, of, turn.values[:-2]), targets, strict=True):
        of.store(b, x, target)


def numbers(b: Builder, of: Slab, texts: Sequence[str]) -> list[Number]:
    """Numbers whose parts have these names."""
    values = [Value(b, text, of.lanes.kind, of.count) for text in texts]
    return [
        Number(tuple(values[i : i + of.parts])) for i in range(0, len(values), of.parts)
    ]
