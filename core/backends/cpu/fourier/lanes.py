"""Fourier transforms of several lines at once: one in each lane of a vector.

A block holds, for each number of the lines, a vector of real parts and one of imaginary
parts. A pass of radix r makes of n = r * m * s numbers the next ones (Stockham's order,
after which nothing needs to be put in order [1])::

    y[q + s * (r * p + k)] = w ** (p * k) * sum_j x[q + s * (p + m * j)] * v ** (j * k)

with ``v = exp(-2πi / r)`` and ``w = exp(-2πi / (r * m))``, for p < m and q < s.

[1] C. Van Loan, Computational Frameworks for the Fast Fourier Transform (1992), 1.7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value, multiply_add
from treadle.records import record

RADICES = (8, 4, 2, 3, 5, 7)
"""Of which a pass can be; those that are tried first come first."""

_BLOCK_BYTES = 16
"""Within so many bytes any lanes change places in one instruction."""


class Complex(NamedTuple):
    """The real and the imaginary parts of a vector of numbers."""

    re: Value
    im: Value

    def __add__(self, other: Complex) -> Complex:  # type: ignore[override]
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.re - other.re, self.im - other.im)

    def __mul__(self, other: Complex) -> Complex:  # type: ignore[override]
        return Complex(
            multiply_add(self.re, other.re, -(self.im * other.im)),
            multiply_add(self.re, other.im, self.im * other.re),
        )

    def turned(self) -> Complex:
        """Times -i."""
        return Complex(self.im, -self.re)


@record(frozen=True)
class Lanes:
    """Vectors of numbers with parts of an IR type.

    kind: "float" or "double".
    count: numbers in a vector.
    """

    kind: str
    count: int

    @property
    def itemsize(self) -> int:
        return 4 if self.kind == "float" else 8

    @property
    def vector_bytes(self) -> int:
        return self.count * self.itemsize

    @property
    def row(self) -> int:
        """Bytes of both parts of a vector."""
        return 2 * self.vector_bytes

    @property
    def _blocks(self) -> list[range]:
        """The lanes of each part of a vector that moves its lanes cheaply."""
        size = _BLOCK_BYTES // self.itemsize
        return [range(i, i + size) for i in range(0, self.count, size)]

    @property
    def order(self) -> list[int]:
        """Which number of consecutive ones is in each lane."""
        found = []
        for block in self._blocks:
            half = len(block) // 2
            first = range(block.start // 2, block.start // 2 + half)
            found += [*first, *[i + self.count // 2 for i in first]]
        return found

    def load(self, b: Builder, address: str) -> Value:
        text = b.op(f"load {self._type}, ptr {address}, align {self.itemsize}")
        return Value(b, text, self.kind, self.count)

    def store(self, b: Builder, value: Value, address: str) -> None:
        b(f"store {self._type} {value.text}, ptr {address}, align {self.itemsize}")

    @property
    def _type(self) -> str:
        return f"<{self.count} x {self.kind}>"

    def load_pair(self, b: Builder, address: str) -> Complex:
        """A row of a block."""
        im = at(b, address, str(self.vector_bytes))
        return Complex(self.load(b, address), self.load(b, im))

    def store_pair(self, b: Builder, z: Complex, address: str) -> None:
        self.store(b, z.re, address)
        self.store(b, z.im, at(b, address, str(self.vector_bytes)))

    def spread(self, b: Builder, address: str, index: int) -> Complex:
        """A number of a table, in all lanes."""
        parts = [
            b.op(f"load {self.kind}, ptr {place}, align {self.itemsize}")
            for place in (
                at(b, address, str((2 * index + i) * self.itemsize)) for i in (0, 1)
            )
        ]
        return Complex(
            *(Value(b, text, self.kind, 1).splat(self.count) for text in parts)
        )

    def load_numbers(self, b: Builder, address: str) -> Complex:
        """Numbers that lie one behind the other, in `order`."""
        x = self.load(b, address)
        y = self.load(b, at(b, address, str(self.vector_bytes)))
        parts = []
        for i in (0, 1):
            mask = []
            for block in self._blocks:
                mine = list(block)[i::2]
                mask += [*mine, *[k + self.count for k in mine]]
            parts.append(x.shuffle(mask, y))
        return Complex(*parts)

    def store_numbers(self, b: Builder, z: Complex, address: str) -> None:
        x, y = self._zipped(z.re, z.im)
        self.store(b, x, address)
        self.store(b, y, at(b, address, str(self.vector_bytes)))

    def reversed(self, z: Complex) -> Complex:
        """Numbers in `order`, the last first."""
        mask = [self.order.index(self.count - 1 - i) for i in self.order]
        return Complex(z.re.shuffle(mask), z.im.shuffle(mask))

    def _zipped(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Lanes of x and y in turns, within blocks."""
        low: list[int] = []
        high: list[int] = []
        for block in self._blocks:
            half = len(block) // 2
            for found, mine in ((low, block[:half]), (high, block[half:])):
                for i in mine:
                    found += [i, i + self.count]
        return x.shuffle(low, y), x.shuffle(high, y)

    def transposed(self, rows: Sequence[Value]) -> list[Value]:
        """As many vectors as they have lanes: the i-th lanes of all, for each i."""
        found, size = list(rows), len(self._blocks[0])
        step = self.count // 2
        while step >= size:  # Exchanges parts of vectors.
            lanes = range(self.count)
            low = [i if not i & step else i - step + self.count for i in lanes]
            high = [i + step if not i & step else i + self.count for i in lanes]
            for i in lanes:
                if not i & step:
                    x, y = found[i], found[i + step]
                    found[i], found[i + step] = x.shuffle(low, y), x.shuffle(high, y)
            step //= 2
        result: list[Value] = []
        for start in range(0, self.count, size):
            block = found[start : start + size]
            for _ in range(size.bit_length() - 1):
                pairs = zip(block[: size // 2], block[size // 2 :], strict=True)
                block = [v for pair in pairs for v in self._zipped(*pair)]
            result += block
        return result


def at(b: Builder, address: str, offset: str) -> str:
    """An address so many bytes further."""
    return b.op(f"getelementptr i8, ptr {address}, i64 {offset}")


def scaled(b: Builder, index: str, factor: int | str) -> str:
    return b.op(f"mul i64 {index}, {factor}")


def roots(k: np.ndarray, n: int) -> np.ndarray:
    """``exp(-2πi k / n)``, found by angles of at most an eighth of a turn: of larger
    ones the rounding shows."""
    eighths, rest = np.divmod(8 * (k % n), n)
    back = eighths % 2 == 1
    angle = np.where(back, n - rest, rest) * (math.pi / 4 / n)
    c, s = np.cos(angle), np.sin(angle)
    c, s = np.where(back, s, c), np.where(back, c, s)
    return (c - 1j * s) * np.array([1, -1j, -1, 1j])[eighths // 2]


def groups_of(b: Builder, count: int, n: str) -> str:
    """How many groups of so many n numbers are."""
    return b.op(f"udiv i64 {b.op(f'add i64 {n}, {count - 1}')}, {count}")


def first_of(b: Builder, count: int, group: str, n: str) -> str:
    """The first number of a group: the last one begins early enough to be full."""
    return b.least(scaled(b, group, count), b.op(f"sub i64 {n}, {count}"))


# Butterflies --------------------------------------------------------------------------


def butterfly(x: Sequence[Complex]) -> list[Complex]:
    """The transform of as many vectors of numbers as a radix says."""
    r = len(x)
    if r == 1:
        return list(x)
    if r % 2:
        return _odd(x)
    even, odd = butterfly(x[::2]), butterfly(x[1::2])
    turned = [_rotated(z, k, r) for k, z in enumerate(odd)]
    pairs = list(zip(even, turned, strict=True))
    return [a + b for a, b in pairs] + [a - b for a, b in pairs]


def _rotated(z: Complex, k: int, r: int) -> Complex:
    """``z * exp(-2πi k / r)``, for eighths of a turn."""
    if 8 * k % r:
        raise ValueError(f"no butterfly of radix {r}")
    quarters, half = divmod(8 * k // r, 2)
    for _ in range(quarters):
        z = z.turned()
    if half:
        z = Complex((z.re + z.im) * math.sqrt(0.5), (z.im - z.re) * math.sqrt(0.5))
    return z


def _odd(x: Sequence[Complex]) -> list[Complex]:
    """By sums and differences of numbers that turn in opposite directions."""
    r, half = len(x), range(1, len(x) // 2 + 1)
    sums = [x[j] + x[-j] for j in half]
    differences = [x[j] - x[-j] for j in half]
    total = x[0]
    for z in sums:
        total = total + z
    found = [total] * r
    for k in half:
        along, across = x[0], None
        for j, s, d in zip(half, sums, differences, strict=True):
            w = complex(roots(np.array(j * k), r))
            c, t = w.real, -w.imag
            along = Complex(
                multiply_add(s.re, c, along.re), multiply_add(s.im, c, along.im)
            )
            across = (
                Complex(d.re * t, d.im * t)
                if across is None
                else Complex(
                    multiply_add(d.re, t, across.re), multiply_add(d.im, t, across.im)
                )
            )
        assert across is not None
        found[k], found[r - k] = along + across.turned(), along - across.turned()
    return found


# Passes -------------------------------------------------------------------------------


def emit_passes(b: Builder, lanes: Lanes) -> None:
    """``ptr passes(ptr recipe, ptr block, ptr other)`` transforms a block, and says
    which of the two it is in then.

    recipe: 64-bit words: the number of passes, and for each its radix, m, s, and the
    address of its factors: ``w ** (p * k)`` for p from 1, k from 1.
    """
    for known in RADICES:
        _emit_pass(b, lanes, known)
    with b.function("define internal ptr @passes(ptr %recipe, ptr %block, ptr %other)"):
        count = b.op("load i64, ptr %recipe")
        blocks = [("ptr", "%block"), ("ptr", "%other")]
        with b.carrying("0", count, "1", blocks) as turn:
            first = b.op(f"getelementptr [4 x i64], ptr %recipe, i64 {turn.index}")
            radix, m, s, table = (
                b.op(f"load i64, ptr {at(b, first, str(8 * (i + 1)))}")
                for i in range(4)
            )
            x, y = turn.values
            for known in RADICES:
                with b.when(b.op(f"icmp eq i64 {radix}, {known}")):
                    factors = b.op(f"inttoptr i64 {table} to ptr")
                    b(
                        f"call void @pass{known}(ptr {x}, ptr {y}, i64 {m}, i64 {s},"
                        f" ptr {factors})"
                    )
            turn.next = [y, x]
        b(f"ret ptr {turn.values[0]}")


def _emit_pass(b: Builder, lanes: Lanes, radix: int) -> None:
    with b.function(
        f"define internal void @pass{radix}(ptr noalias %x, ptr noalias %y, i64 %m,"
        " i64 %s, ptr noalias %factors) noinline"
    ):
        group = scaled(b, "%s", lanes.row)
        apart = scaled(b, group, "%m")
        # The factors of the first group are 1, and all of the last pass's.
        _emit_group(b, lanes, ("%x", "%y"), (apart, group), [None] * radix)
        with b.loop("1", "%m") as p:
            x = at(b, "%x", scaled(b, p, group))
            y = at(b, "%y", scaled(b, scaled(b, p, radix), group))
            before = b.op(f"sub i64 {p}, 1")
            width = 2 * (radix - 1) * lanes.itemsize
            table = at(b, "%factors", scaled(b, before, width))
            factors = [lanes.spread(b, table, k) for k in range(radix - 1)]
            _emit_group(b, lanes, (x, y), (apart, group), [None, *factors])
        b("ret void")


def _emit_group(
    b: Builder,
    lanes: Lanes,
    blocks: tuple[str, str],
    steps: tuple[str, str],
    factors: Sequence[Complex | None],
) -> None:
    """The butterflies of one p: those of s numbers that follow each other."""
    with b.loop("0", steps[1], str(lanes.row)) as q:
        x, y = (at(b, block, q) for block in blocks)
        given = []
        for j in range(len(factors)):
            given.append(lanes.load_pair(b, at(b, x, scaled(b, steps[0], j))))
        for k, (z, w) in enumerate(zip(butterfly(given), factors, strict=True)):
            place = at(b, y, scaled(b, steps[1], k))
            lanes.store_pair(b, z if w is None else z * w, place)
