"""Index maps: one affine index per axis of an array.

A map says which element of an array each point of a space of numbered dimensions reads.
Maps are values; `treadle.fuse.maps` has the space whose dimensions they name.

>>> rows, columns = Affine(0, ((0, 1),)), Affine(0, ((1, 1),))
>>> reshape((rows, columns), (2, 3), (6,), {0: 2, 1: 3})
(Affine(offset=0, terms=((0, 3), (1, 1))),)
>>> reshape((rows,), (6,), (2, 3), {0: 6})
Split(dimension=0, inner=3)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from treadle.dims import is_inside, likely_less, one
from treadle.records import record


class Affine(NamedTuple):
    """``offset + sum(coefficient * dimension)``; terms are (dimension, coefficient)."""

    offset: int = 0
    terms: tuple[tuple[int, int], ...] = ()


Map = tuple[Affine, ...]
ZERO = Affine()


@record(frozen=True)
class Split:
    """There is a map once a dimension is two: an outer one, and an inner one of the
    given length."""

    dimension: int
    inner: int


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


def cut(entries: Map, split: Split, inner: int) -> Map:
    """The map after a split: the outer dimension keeps the name, `inner` is new."""

    def renamed(a: Affine) -> Affine:
        terms: list[tuple[int, int]] = []
        for d, c in a.terms:
            if d == split.dimension:
                terms += [(d, c * split.inner), (inner, c)]
            else:
                terms.append((d, c))
        return Affine(a.offset, tuple(terms))

    return tuple(map(renamed, entries))


# Reshape ------------------------------------------------------------------------------


def reshape(
    entries: Map,
    shape: Sequence[int],
    new_shape: Sequence[int],
    sizes: Mapping[int, int],
    units: Mapping[int, int] | None = None,
) -> Map | Split | None:
    """The index map of an array's elements in another shape.

    Args:
      entries: the map of an array of the given shape, which its points are inside of.
      new_shape: as many elements, in the same row-major order.
      sizes: of the dimensions.
      units: which axes of length 1 become each other. A dimension along one that is
        not among them moves into the axis in which it lies.

    Returns:
      The map, or the split that it takes to have one (begin again after it), or None if
      the indices are not affine.
    """
    if 0 in shape:
        # There is no element to find.
        return (ZERO,) * len(new_shape)
    out = [ZERO] * len(new_shape)
    runs = _runs(shape, new_shape)
    for axes, new_axes in runs:
        pairs = [(entries[i], shape[i]) for i in axes]
        digits = _regrouped(pairs, [new_shape[j] for j in new_axes], sizes)
        if not isinstance(digits, list):
            return digits
        for j, digit in zip(new_axes, digits, strict=True):
            out[j] = digit
    units = units or {}
    for i, entry in enumerate(entries):
        if i in units:
            out[units[i]] = entry
        elif shape[i] == 1 and entry.terms and runs:
            j, step = _place_of_unit(i, shape, new_shape, runs)
            out[j] = plus(out[j], Affine(0, scaled(entry, step).terms))
    return tuple(out)


def _regrouped(
    pairs: list[tuple[Affine, int]], lengths: list[int], sizes: Mapping[int, int]
) -> list[Affine] | Split | None:
    """The indices along axes of the given lengths, from those along others (with their
    lengths) that have as many elements together."""
    if [n for _, n in pairs] == lengths:
        return [a for a, _ in pairs]
    index = linear(pairs)
    return [index] if len(lengths) == 1 else _digits(index, lengths, sizes)


def _digits(
    index: Affine, lengths: Sequence[int], sizes: Mapping[int, int]
) -> list[Affine] | Split | None:
    """The mixed-radix digits of an affine index."""
    if index.offset:
        return None
    strides = [math.prod(lengths[j + 1 :]) for j in range(len(lengths))]
    digits: list[list[tuple[int, int]]] = [[] for _ in lengths]
    largest = [0] * len(lengths)
    for d, c in index.terms:
        if sizes[d] == 1:
            # Its index is 0 wherever it stands.
            place = next((j for j, s in enumerate(strides) if c >= s), 0)
            digits[place].append((d, max(1, c // strides[place])))
            continue
        places = (j for j, s in enumerate(strides) if c >= s and c % s == 0)
        j = next(places, None)
        if j is None:
            return None
        step = c // strides[j]
        # Cut where it need not be, it is right too.
        if likely_less(lengths[j], step * sizes[d]):
            # The dimension runs over into the digit before: cut it there.
            inner, rest = divmod(lengths[j], step)
            if rest or sizes[d] % inner or one(inner):
                return None  # A cut into ones would be asked for again, without end.
            return Split(d, inner)
        largest[j] += step * (sizes[d] - 1)
        digits[j].append((d, step))
    if not all(map(is_inside, largest, lengths)):
        return None
    return [Affine(0, tuple(terms)) for terms in digits]


def _runs(
    shape: Sequence[int], new_shape: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of axes of two shapes that have equal products, without axes of
    length 1. (Runs of more axes than must be are right too: of open sizes, an axis may
    be seen to have length 1 only in a product.)"""
    runs: list[tuple[list[int], list[int]]] = []
    old: list[int] = []
    new: list[int] = []
    size, rest = 1, [(j, n) for j, n in enumerate(new_shape) if n != 1]
    new_size = 1
    for i, n in enumerate(shape):
        if n == 1:
            continue
        old.append(i)
        size *= n
        while rest and likely_less(new_size, size):
            j, m = rest.pop(0)
            new.append(j)
            new_size *= m
        if new_size == size:
            runs.append((old, new))
            old, new, size, new_size = [], [], 1, 1
    new += [j for j, _ in rest]
    if runs and (old or new):
        before, after = runs.pop()
        old, new = before + old, after + new
    return [*runs, (old, new)] if old and new else runs


def _place_of_unit(
    axis: int,
    shape: Sequence[int],
    new_shape: Sequence[int],
    runs: list[tuple[list[int], list[int]]],
) -> tuple[int, int]:
    """The new axis in which an axis of length 1 lies, and the step along it."""
    axes, new_axes = next((r for r in reversed(runs) if r[0][0] < axis), runs[0])
    step = math.prod(shape[i] for i in axes if i > axis)
    j = new_axes[-1]
    for j in reversed(new_axes):
        if step < new_shape[j]:
            break
        step //= new_shape[j]
    return j, step
