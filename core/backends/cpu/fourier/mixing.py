"""Transforms of n real numbers by those of m = n / 2 complex ones.

The numbers at even and at odd places, as real and imaginary parts, have a transform z
of which that of the real numbers, x, is made::

    x[k] = s + t[k] * d,  x[m - k] = conj(s - t[k] * d)
    s = z[k] + conj(z[m - k]),  d = z[k] - conj(z[m - k]),  t[k] = -i exp(-2πi k / n)

but for a factor of 2, with ``z[m] = z[0]``. The same with ``conj(t[k])`` leads back.
"""

from __future__ import annotations

from collections.abc import Iterator

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import Value
from treadle.backends.cpu.fourier.lanes import (
    Complex,
    Lanes,
    at,
    first_of,
    groups_of,
    scaled,
)


def emit_mixing(b: Builder, lanes: Lanes) -> None:
    """``unpack(x, y, m, t)`` makes spectra of real numbers, ``pack`` takes them.
    ``unpack_block(block, m, t)`` and ``pack_block`` do so where the numbers are,
    with a line in each lane; the second exchanges the parts of what it makes."""
    for name, emit in (("unpack", _unpack_block), ("pack", _pack_block)):
        with b.function(
            f"define internal void @{name}_block(ptr noalias %x, i64 %m,"
            " ptr noalias %t) noinline"
        ):
            emit(b, lanes)
            b("ret void")
    for name, ends in (("unpack", _unpack_ends), ("pack", _pack_ends)):
        with b.function(
            f"define internal void @{name}(ptr noalias %x, ptr noalias %y, i64 %m,"
            " ptr noalias %t) noinline"
        ):
            ends(b, lanes)
            half = b.op("udiv i64 %m, 2")
            with b.loop("0", groups_of(b, lanes.count, half)) as group:
                _emit_pairs(b, lanes, first_of(b, lanes.count, group, half))
            b("ret void")


def _emit_pairs(b: Builder, lanes: Lanes, before: str) -> None:
    """The numbers after `before`, and as many from the other end."""
    size = 2 * lanes.itemsize
    near = scaled(b, b.op(f"add i64 {before}, 1"), size)
    last = b.op(f"sub i64 %m, {before}")
    far = scaled(b, b.op(f"sub i64 {last}, {lanes.count}"), size)
    z = lanes.load_numbers(b, at(b, "%x", near))
    other = _conjugate(lanes.reversed(lanes.load_numbers(b, at(b, "%x", far))))
    t = lanes.load_numbers(b, at(b, "%t", near))
    s, d = z + other, (z - other) * t
    lanes.store_numbers(b, s + d, at(b, "%y", near))
    back = lanes.reversed(_conjugate(s - d))
    lanes.store_numbers(b, back, at(b, "%y", far))


def _unpack_block(b: Builder, lanes: Lanes) -> None:
    end = at(b, "%x", scaled(b, "%m", lanes.row))
    re, im = lanes.load_pair(b, "%x")
    for place, value in (("%x", re + im), (end, re - im)):
        lanes.store_pair(b, Complex(value * 2.0, re.like(0.0)), place)
    for near, far, s, d in _each_pair(b, lanes):
        lanes.store_pair(b, s + d, near)
        lanes.store_pair(b, _conjugate(s - d), far)


def _pack_block(b: Builder, lanes: Lanes) -> None:
    end = at(b, "%x", scaled(b, "%m", lanes.row))
    first, last = (lanes.load_pair(b, place).re for place in ("%x", end))
    lanes.store_pair(b, Complex(first - last, first + last), "%x")
    for near, far, s, d in _each_pair(b, lanes):
        lanes.store_pair(b, _exchanged(s + d), near)
        lanes.store_pair(b, _exchanged(_conjugate(s - d)), far)


def _each_pair(b: Builder, lanes: Lanes) -> Iterator[tuple[str, str, Complex, Complex]]:
    """Two rows of a block at equal distances from its ends, s and t * d of these."""
    stop = b.op(f"add i64 {b.op('udiv i64 %m, 2')}, 1")
    with b.loop("1", stop) as k:
        near = at(b, "%x", scaled(b, k, lanes.row))
        far = at(b, "%x", scaled(b, b.op(f"sub i64 %m, {k}"), lanes.row))
        z, other = lanes.load_pair(b, near), _conjugate(lanes.load_pair(b, far))
        t = lanes.spread(b, at(b, "%t", scaled(b, k, 2 * lanes.itemsize)), 0)
        yield near, far, z + other, (z - other) * t


def _exchanged(z: Complex) -> Complex:
    return Complex(z.im, z.re)


def _conjugate(z: Complex) -> Complex:
    return Complex(z.re, -z.im)


def _unpack_ends(b: Builder, lanes: Lanes) -> None:
    """The first number and the last, which are real."""
    re, im = (_part(b, lanes, "%x", str(i)) for i in (0, 1))
    end = b.op("mul i64 %m, 2")
    imaginary = "1", b.op(f"add i64 {end}, 1")
    for place, value in (("0", re + im), (end, re - im)):
        _put(b, lanes, value * 2.0, place)
    for place in imaginary:
        _put(b, lanes, re.like(0.0), place)


def _pack_ends(b: Builder, lanes: Lanes) -> None:
    """Of the real parts of the first and the last: others have no meaning."""
    first, last = (_part(b, lanes, "%x", i) for i in ("0", b.op("mul i64 %m, 2")))
    _put(b, lanes, first + last, "0")
    _put(b, lanes, first - last, "1")


def _part(b: Builder, lanes: Lanes, x: str, index: str) -> Value:
    place = b.op(f"getelementptr {lanes.kind}, ptr {x}, i64 {index}")
    return Value(b, b.op(f"load {lanes.kind}, ptr {place}"), lanes.kind, 1)


def _put(b: Builder, lanes: Lanes, value: Value, index: str) -> None:
    place = b.op(f"getelementptr {lanes.kind}, ptr %y, i64 {index}")
    b(f"store {lanes.kind} {value.text}, ptr {place}")
