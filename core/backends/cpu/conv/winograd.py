"""Winograd's short convolutions: transforms of tiles of images, filters and results.

Of 4 x 4 outputs of a filter of 3 x 3, each channel and feature takes 36 products
instead of 144 [1]: with V = B' d B of 6 x 6 inputs d, and U = G g G' of a filter g, the
outputs are A' M A, where M is the sum over channels of U * V, number by number. So M is
36 matrix products, of tiles and features, over channels. The filter's gradient is the
transposed map: G' S G, where S is the sum over tiles of V * (A y A'), of the outputs'
gradients y. Of a filter of one row of 3, tiles are 4 outputs of a row, which take 6
products instead of 12.

A polynomial of degree 5 is known from five points and its leading coefficient. The
points 0, +-p, +-1/p are as good as any: with p = sqrt(1/2) what float32 loses is, at 64
to 512 channels, about twice as much as in 144 products, and half of what it is with the
0, +-1, +-2 of [1] (a search for such points: [2]).

[1] A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2016.
[2] B. Barabasz et al., Error Analysis and Improving the Accuracy of Winograd
Convolution for Deep Neural Networks, 2018.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind
from treadle.backends.cpu.gemm.tile import Machine

OUT = 4
"""Columns of outputs of a tile."""
TAPS = 3
SIDE = OUT + TAPS - 1
"""Columns of inputs of a tile."""


class Form(NamedTuple):
    """What a tile is."""

    name: str
    """With which functions' names begin."""
    out: int
    """Rows of outputs."""
    taps: int
    """Rows of the filter."""
    kind: Kind
    filter_kind: Kind
    """Of the kernel, and of that of the filter's gradient."""

    @property
    def places(self) -> int:
        """How many products there are."""
        return (self.out + self.taps - 1) * SIDE


SQUARES = Form("winograd", OUT, TAPS, Kind.WINOGRAD, Kind.WINOGRAD_FILTER)
LINES = Form("line", 1, 1, Kind.WINOGRAD_LINES, Kind.WINOGRAD_LINES_FILTER)

_P, _Q = 0.5**0.5, 2.0**0.5
_PP, _QQ = 0.5, 2.0
_OF_P, _OF_Q = -2 / 3, 1 / 6
"""One over the derivatives of x (x^2 - p^2) (x^2 - q^2) at p and q; at 0 that is 1."""


class Arithmetic:
    """Arithmetic on vectors, as IR."""

    def __init__(self, b: Builder, machine: Machine) -> None:
        self.b, self.kind, self.lanes = b, machine.vector, machine.tile.lanes
        self.fma = f"@llvm.fmuladd.{machine.suffix}"
        b.declare(f"{self.kind} {self.fma}({', '.join([self.kind] * 3)})")

    def constant(self, value: float) -> str:
        rounded = struct.unpack("f", struct.pack("f", value))[0]
        bits = struct.unpack("Q", struct.pack("d", rounded))[0]
        return f"<{', '.join([f'float 0x{bits:016X}'] * self.lanes)}>"

    def add(self, x: str, y: str) -> str:
        return self.b.op(f"fadd {self.kind} {x}, {y}")

    def sub(self, x: str, y: str) -> str:
        return self.b.op(f"fsub {self.kind} {x}, {y}")

    def times(self, factor: float, x: str) -> str:
        return self.b.op(f"fmul {self.kind} {x}, {self.constant(factor)}")

    def plus(self, y: str, factor: float, x: str) -> str:
        """y + factor * x."""
        kind, number = self.kind, self.constant(factor)
        given = f"{kind} {x}, {kind} {number}, {kind} {y}"
        return self.b.op(f"call {kind} {self.fma}({given})")


Values = Sequence[str]


def of_image(do: Arithmetic, d: Values) -> list[str]:
    """B' d: six numbers of six."""
    first = do.plus(do.add(d[0], d[4]), -_PP - _QQ, d[2])
    last = do.plus(do.add(d[1], d[5]), -_PP - _QQ, d[3])
    pairs = []
    for point, other in ((_P, _QQ), (_Q, _PP)):
        even, odd = do.plus(d[4], -other, d[2]), do.plus(d[3], -other, d[1])
        pairs += [do.plus(even, point, odd), do.plus(even, -point, odd)]
    return [first, *pairs, last]


def of_filter(do: Arithmetic, g: Values) -> list[str]:
    """G g: six numbers of three."""
    pairs = []
    for point, square, factor in ((_P, _PP, _OF_P), (_Q, _QQ, _OF_Q)):
        even = do.times(factor, do.plus(g[0], square, g[2]))
        pairs += [do.plus(even, sign * point * factor, g[1]) for sign in (1, -1)]
    return [g[0], *pairs, g[2]]


def to_result(do: Arithmetic, m: Values) -> list[str]:
    """A' m: four numbers of six."""
    both, apart = do.add(m[1], m[2]), do.sub(m[1], m[2])
    both_q, apart_q = do.add(m[3], m[4]), do.sub(m[3], m[4])
    return [
        do.add(m[0], do.add(both, both_q)),
        do.plus(do.times(_P, apart), _Q, apart_q),
        do.plus(do.times(_PP, both), _QQ, both_q),
        do.plus(do.plus(m[5], _P * _PP, apart), _Q * _QQ, apart_q),
    ]


def of_result(do: Arithmetic, y: Values) -> list[str]:
    """A y: six numbers of four."""
    pairs = []
    for point, square in ((_P, _PP), (_Q, _QQ)):
        even, odd = do.plus(y[0], square, y[2]), do.plus(y[1], square, y[3])
        pairs += [do.plus(even, point, odd), do.plus(even, -point, odd)]
    return [y[0], *pairs, y[3]]


def to_filter(do: Arithmetic, s: Values) -> list[str]:
    """G' s: three numbers of six."""
    both, apart = do.add(s[1], s[2]), do.sub(s[1], s[2])
    both_q, apart_q = do.add(s[3], s[4]), do.sub(s[3], s[4])
    odd = do.plus(do.times(_P * _OF_P, apart), _Q * _OF_Q, apart_q)
    return [
        do.plus(do.plus(s[0], _OF_P, both), _OF_Q, both_q),
        odd,
        do.plus(do.plus(s[5], _PP * _OF_P, both), _QQ * _OF_Q, both_q),
    ]


class Transform(NamedTuple):
    """What becomes of the columns of a tile, then of its rows."""

    line: Callable[[Arithmetic, Values], list[str]]
    given: int
    made: int


IMAGE = Transform(of_image, SIDE, SIDE)
FILTER = Transform(of_filter, TAPS, SIDE)
RESULT = Transform(to_result, SIDE, OUT)
RESULT_GRADIENT = Transform(of_result, OUT, SIDE)
FILTER_GRADIENT = Transform(to_filter, SIDE, TAPS)


def buffer(b: Builder, machine: Machine, form: Form) -> str:
    """Room for what columns become: to be made where a function begins."""
    return b.op(f"alloca [{form.places} x {machine.vector}], align 64")


def emit_transform(
    b: Builder,
    machine: Machine,
    form: Form,
    transform: Transform,
    room: str,
    load: Callable[[int, str], str],
    store: Callable[[str, list[str]], None],
) -> None:
    """Transforms a tile of vectors.

    room: a `buffer`. load: gives what is in a row (a number) and a column (an i64).
    store: writes a row (an i64) of the result. Columns and rows are loops: LLVM would
    take six times as long, and find too few registers.
    """
    do = Arithmetic(b, machine)
    vector, given = machine.vector, transform.given
    if form.out == 1:
        store("0", transform.line(do, [load(0, str(i)) for i in range(given)]))
        return
    with b.loop("0", str(given)) as column:
        made = transform.line(do, [load(row, column) for row in range(given)])
        for row, value in enumerate(made):
            place = b.op(f"add i64 {column}, {row * given}")
            place = b.op(f"getelementptr {vector}, ptr {room}, i64 {place}")
            b(f"store {vector} {value}, ptr {place}, align 64")
    with b.loop("0", str(transform.made)) as line:
        start = b.op(f"mul i64 {line}, {given}")
        start = b.op(f"getelementptr {vector}, ptr {room}, i64 {start}")
        values = []
        for number in range(given):
            place = b.op(f"getelementptr {vector}, ptr {start}, i64 {number}")
            values.append(b.op(f"load {vector}, ptr {place}, align 64"))
        store(line, transform.line(do, values))
