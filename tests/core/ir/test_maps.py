"""Index maps: what they read is what NumPy's arrays of indices say."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.ir.following import Sizes, dimension, numbered, read, reshaped, whole
from treadle.ir.maps import (
    ZERO,
    Affine,
    Map,
    Split,
    address,
    cut,
    linear,
    plus,
    reshape,
    scaled,
    shifted,
)

SEEDS = st.integers(0, 2**32).map(random.Random)
a, b, c = dimension(0), dimension(1), dimension(2)


def at(index: Affine, point: tuple[int, ...]) -> int:
    return index.offset + sum(k * point[d] for d, k in index.terms)


def some_index(r: random.Random) -> Affine:
    dims = r.sample(range(3), r.randrange(4))
    return Affine(r.randrange(-5, 6), tuple((d, r.randrange(1, 9)) for d in dims))


@given(SEEDS)
def test_arithmetic_of_indices_is_that_of_numbers(r: random.Random) -> None:
    x, y, z, k = some_index(r), some_index(r), some_index(r), r.randrange(-4, 5)
    point = tuple(r.randrange(7) for _ in range(3))
    assert at(scaled(x, k), point) == k * at(x, point)
    assert at(shifted(x, k), point) == k + at(x, point)
    assert at(plus(x, y), point) == at(x, point) + at(y, point)
    row_major = (at(x, point) * 5 + at(y, point)) * 3 + at(z, point)
    assert at(linear([(x, 9), (y, 5), (z, 3)]), point) == row_major
    offset, strides = address((x, y), (7, -2))
    whole_address = offset + sum(s * point[d] for d, s in strides.items())
    assert whole_address == 7 * at(x, point) - 2 * at(y, point)


def test_sums_name_each_dimension_once_and_the_largest_step_first() -> None:
    x = Affine(1, ((0, 2), (1, -3)))
    y = Affine(2, ((1, 3), (2, 9), (0, 5)))
    assert plus(x, y) == Affine(3, ((2, 9), (0, 7)))
    assert linear([(b, 4), (a, 3)]) == Affine(0, ((1, 3), (0, 1)))
    assert address((x, y), (1, 1)) == (3, {0: 7, 2: 9})


def test_a_split_leaves_other_dimensions_and_offsets_alone() -> None:
    entries = (Affine(4, ((0, 2), (1, -1))), b, ZERO)
    expected = (Affine(4, ((0, 10), (7, 2), (1, -1))), b, ZERO)
    assert cut(entries, Split(0, 5), 7) == expected


# Reshape ------------------------------------------------------------------------------

TABLE: dict[str, tuple[Map, tuple[int, ...], tuple[int, ...], Any]] = {
    "the same shape": ((a, b), (4, 6), (4, 6), (a, b)),
    "the same index, as it is": (
        (Affine(0, ((1, 1), (0, 6))),),
        (24,),
        (24, 1),
        (Affine(0, ((1, 1), (0, 6))), ZERO),
    ),
    "two axes become one": ((a, b), (4, 6), (24,), (Affine(0, ((0, 6), (1, 1))),)),
    "whatever is their index": (
        (Affine(3, ((0, -1),)), shifted(b, 2)),
        (4, 9),
        (36,),
        (Affine(29, ((0, -9), (1, 1))),),
    ),
    "an axis becomes two": ((a,), (4,), (2, 2), Split(0, 2)),
    "the first of them shorter": ((b,), (6,), (2, 3), Split(1, 3)),
    "the last of three": ((b,), (6,), (1, 3, 2), Split(1, 2)),
    "digits that are there": ((linear([(a, 4), (b, 6)]),), (24,), (4, 6), (a, b)),
    "in any order": ((Affine(0, ((1, 1), (0, 6))),), (24,), (4, 6), (a, b)),
    "one of them too long": (
        (linear([(a, 4), (b, 6)]),),
        (24,),
        (2, 2, 6),
        Split(0, 2),
    ),
    "with steps": ((scaled(a, 3),), (12,), (2, 6), Split(0, 2)),
    "with steps of a whole digit": ((scaled(a, 4),), (16,), (4, 4), (a, ZERO)),
    "several in a digit": (
        (linear([(a, 4), (b, 6), (c, 5)]),),
        (120,),
        (24, 5),
        (linear([(a, 4), (b, 6)]), c),
    ),
    "runs by themselves": ((a, b, c), (4, 6, 5), (2, 2, 30), Split(0, 2)),
    "a run without a map": ((a, shifted(b, 1), c), (4, 8, 5), (4, 2, 4, 5), None),
    "merged with an offset": (
        (a, shifted(b, 1), c),
        (4, 8, 5),
        (4, 40),
        (a, Affine(5, ((1, 5), (2, 1)))),
    ),
    "an offset has no digits": ((shifted(a, 1),), (6,), (2, 3), None),
    "but stays": ((shifted(a, 1),), (6,), (1, 6), (ZERO, shifted(a, 1))),
    "steps back have no digits": ((Affine(3, ((0, -1),)),), (4,), (2, 2), None),
    "nor have steps below 0": ((scaled(a, -2),), (4,), (2, 2), None),
    "the sum of two can be too long": ((plus(a, b),), (10,), (2, 5), None),
    "or nearly": ((plus(a, b),), (16,), (2, 8), None),
    "or just not": ((plus(a, b),), (18,), (2, 9), (ZERO, plus(a, b))),
    "steps over a digit": ((b, c), (6, 5), (10, 3), None),
    "steps of no whole digit": ((scaled(a, 3),), (10,), (5, 2), None),
    "steps that don't end at one": ((scaled(a, 2),), (9,), (3, 3), None),
    "unequal parts": ((a,), (6,), (2, 3), None),
    "units are dropped": ((a, ZERO, b), (4, 1, 6), (4, 6), (a, b)),
    "and made": ((a, b), (4, 6), (1, 4, 1, 6, 1), (ZERO, a, ZERO, b, ZERO)),
    "nothing at all": ((a, b), (0, 6), (3, 0, 2), (ZERO, ZERO, ZERO)),
    "nothing, in fewer axes": ((a, b), (4, 0), (0,), (ZERO,)),
    "one number": ((), (), (1, 1), (ZERO, ZERO)),
}
SIZES = {0: 4, 1: 6, 2: 5}


@pytest.mark.parametrize("name", TABLE)
def test_reshape(name: str) -> None:
    entries, shape, new_shape, expected = TABLE[name]
    assert reshape(entries, shape, new_shape, SIZES) == expected


UNITS = {0: 1, 1: 6, 2: 4, 3: 1, 4: 2}
u, v, w = dimension(0), dimension(3), dimension(4)


@pytest.mark.parametrize(
    ("entries", "shape", "new_shape", "units", "expected"),
    [
        # To the axis that is said to be the same.
        ((u, b), (1, 6), (6, 1), {0: 1}, (b, u)),
        ((u, v, b), (1, 1, 6), (1, 6, 1), {0: 0, 1: 2}, (u, b, v)),
        # To the axis in which it lies: of the run before it, if there is one.
        ((u, b), (1, 6), (6,), {}, (plus(b, u),)),
        ((b, u), (6, 1), (6,), {}, (plus(b, u),)),
        ((u, b, c), (1, 6, 4), (6, 4), {}, (plus(b, u), c)),
        ((b, u, c), (6, 1, 4), (6, 4), {}, (plus(b, u), c)),
        ((b, c, u), (6, 4, 1), (6, 4), {}, (b, plus(c, u))),
        ((b, u, c), (6, 1, 4), (24,), {}, (Affine(0, ((0, 4), (1, 4), (2, 1))),)),
        (
            (b, u, scaled(w, 3)),
            (6, 1, 6),
            (12, 3),
            {},
            (Affine(0, ((0, 2), (1, 2), (4, 1))), ZERO),
        ),
        ((u, v, b), (1, 1, 6), (1, 6), {0: 0}, (u, plus(b, v))),
        # To the largest digit of which it is a step.
        ((linear([(c, 4), (b, 6), (u, 1)]),), (24,), (4, 6), {}, (c, plus(b, u))),
        ((linear([(c, 4), (u, 1), (b, 6)]),), (24,), (4, 6), {}, (plus(c, u), b)),
        (
            (Affine(0, ((0, -12), (2, 6), (1, 1))),),
            (24,),
            (4, 6),
            {},
            (plus(u, c), b),
        ),
        # There is no other axis.
        ((u,), (1,), (1, 1), {0: 1}, (ZERO, u)),
        ((u,), (1,), (), {}, ()),
    ],
)
def test_axes_of_length_1(
    entries: Map, shape: Any, new_shape: Any, units: dict[int, int], expected: Map
) -> None:
    found = reshape(entries, shape, new_shape, UNITS, units)
    assert isinstance(found, tuple)
    assert [sorted(e.terms) for e in found] == [sorted(e.terms) for e in expected]


def factors(n: int, r: random.Random) -> list[int]:
    """Numbers whose product is n, in some order; 1 among them at times."""
    out = [1] if r.random() < 0.1 else []
    while n > 1 and r.random() < 0.6:
        f = r.choice([f for f in range(2, n + 1) if n % f == 0])
        out.append(f)
        n //= f
    out += [n] if n > 1 else []
    r.shuffle(out)
    return out


def some_map(shape: list[int], r: random.Random) -> tuple[Map, Sizes]:
    """An index inside of each axis: by several dimensions, from the end, or a slice."""
    entries, sizes = [], {}
    for n in shape:
        offset, step, count = 0, 1, n
        if n and r.random() < 0.2:
            offset = r.randrange(n)
            step = r.randrange(1, 3)
            count = -(-(n - offset) // step)
        terms = []
        for f in factors(count, r):
            name = len(sizes)
            sizes[name] = f
            count //= f
            terms.append((name, step * count))
        if n and r.random() < 0.1:
            offset, terms = n - 1 - offset, [(d, -k) for d, k in terms]
        entries.append(Affine(offset, tuple(terms)))
    if r.random() < 0.2:
        sizes[len(sizes)] = 2
    return tuple(entries), sizes


def other_shape(shape: list[int], r: random.Random) -> list[int]:
    """As many elements: neighbours merged, axes split, units anywhere; at times axes of
    any lengths."""
    if r.random() < 0.2:
        return factors(math.prod(shape), r)
    new: list[int] = []
    for n in shape:
        if new and r.random() < 0.3:
            new[-1] *= n
        else:
            new += factors(n, r) if n and r.random() < 0.4 else [n]
    for _ in range(r.randrange(3)):
        new.insert(r.randrange(len(new) + 1), 1)
    return [n for n in new if n != 1 or r.random() < 0.8]


def pairing(shape: list[int], new_shape: list[int]) -> dict[int, int]:
    old, new = ([i for i, n in enumerate(s) if n == 1] for s in (shape, new_shape))
    return dict(zip(old, new, strict=False))


def dims(entries: Map) -> set[int]:
    return {d for e in entries for d, _ in e.terms}


@given(SEEDS, st.booleans())
def test_a_reshaped_map_reads_the_same_elements(r: random.Random, paired: bool) -> None:
    for _ in range(20):
        shape = [r.choice([1, 1, 2, 3, 4, 6, 8]) for _ in range(r.randrange(5))]
        new_shape = other_shape(shape, r)
        units = pairing(shape, new_shape) if paired else {}
        entries, sizes = some_map(shape, r)
        found = reshaped(entries, shape, new_shape, sizes, units)
        if found is None:
            continue
        before, after, sizes = found
        x = numbered(shape)
        expected = read(x, before, sizes)
        assert np.array_equal(read(x.reshape(new_shape), after, sizes), expected)
        if math.prod(shape) > 1:
            assert dims(after) == dims(before)


@given(SEEDS)
def test_merging_and_splitting_axes_always_has_a_map(r: random.Random) -> None:
    parts = [factors(r.choice([1, 4, 6, 12]), r) or [1] for _ in range(4)]
    coarse = [math.prod(p) for p in parts]
    fine = [n for p in parts for n in p]
    for shape, new_shape in [(coarse, fine), (fine, coarse)]:
        entries, sizes = whole(shape)
        found = reshaped(entries, shape, new_shape, sizes, pairing(shape, new_shape))
        assert found is not None
        before, after, sizes = found
        x = numbered(shape)
        expected = read(x, before, sizes)
        assert np.array_equal(read(x.reshape(new_shape), after, sizes), expected)


@given(SEEDS)
def test_going_back_gives_the_same_map(r: random.Random) -> None:
    shape = [r.choice([2, 3, 4, 6]) for _ in range(r.randrange(1, 5))]
    new_shape = other_shape(shape, r)
    entries, sizes = whole(shape)
    found = reshaped(entries, shape, new_shape, sizes)
    if found is None:
        return
    before, after, sizes = found
    assert reshape(after, new_shape, shape, sizes) == before


def test_no_dimension_is_cut_into_ones() -> None:
    """It would be asked for again, without end."""
    outside = Affine(0, ((0, 4),))
    assert reshape((outside,), (4,), (2, 2), {0: 2}) is None
