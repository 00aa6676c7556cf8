"""Index maps: one affine index per axis of an array.

A map says which element of an array each point of a space of numbered dimensions reads.
Maps are values; `treadle.fuse.maps` has the space whose dimensions they name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Affine(NamedTuple):
    """``offset + sum(coefficient * dimension)``; terms are (dimension, coefficient)."""

    offset: int = 0
    terms: tuple[tuple[int, int], ...] = ()


Map = tuple[Affine, ...]
ZERO = Affine()


def scaled(a: Affine, factor: int) -> Affine:
    """An index times a number."""
    return Affine(a.offset * factor, tuple((d, c * factor) for d, c in a.terms))


def shifted(a: Affine, offset: int) -> Affine:
    """An index plus a number."""
    return Affine(a.offset + offset, a.terms)


def plus(a: Affine, b: Affine) -> Affine:
    """The sum of two indices."""
    return Affine(a.offset + b.offset, _merged((*a.terms, *b.terms)))


def linear(entries: Iterable[tuple[Affine, int]]) -> Affine:
    """The row-major index of several axes, given with their lengths."""
    offset, terms, stride = 0, [], 1
    for a, n in reversed(list(entries)):
        offset += a.offset * stride
        terms += [(d, c * stride) for d, c in a.terms]
        stride *= n
    return Affine(offset, _merged(terms))


def _merged(terms: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Terms with those of one dimension added, largest coefficient first."""
    total: dict[int, int] = {}
    for d, c in terms:
        total[d] = total.get(d, 0) + c
    pairs = [(d, c) for d, c in total.items() if c]
    return tuple(sorted(pairs, key=lambda t: -abs(t[1])))


def address(entries: Map, strides: Sequence[int]) -> tuple[int, dict[int, int]]:
    """Offset and stride per dimension, in elements, of an array access."""
    offset = 0
    total: dict[int, int] = {}
    for a, stride in zip(entries, strides, strict=True):
        offset += a.offset * stride
        for d, c in a.terms:
            total[d] = total.get(d, 0) + c * stride
    return offset, {d: s for d, s in total.items() if s}
