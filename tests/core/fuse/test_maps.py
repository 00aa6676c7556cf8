"""Spaces: views carried through index maps, and what a split changes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.ir.following import dimension, numbered, read
from tests.core.ops.views import VIEWS
from treadle.arraytype import ArrayType
from treadle.fuse.maps import Space
from treadle.ir.graph import Atom, Equation, Var
from treadle.ir.maps import ZERO, Affine, Map, Split
from treadle.ops.movement import broadcast_in_dim, reshape, reverse, transpose
from treadle.ops.shape import slice_
from treadle.passes.units import Units
from treadle.trace.op import Op

a, b, c = map(dimension, range(3))


def array(*shape: int) -> Var:
    return Var(ArrayType(shape, np.dtype(np.float32)))


def view(op: Op, x: Atom, **params: Any) -> Equation:
    return Equation(op, [x], params, [Var(op.infer([x.type], params)[0])])


def space_of(*views: Equation) -> Space:
    return Space(Units(views))


def test_each_axis_has_a_dimension() -> None:
    space = space_of()
    assert space.index(array(4, 1, 3)) == (a, b, c)
    assert space.sizes == {0: 4, 1: 1, 2: 3}
    assert space.dimension(5) == dimension(3)


def test_axes_that_are_always_of_length_1_have_none() -> None:
    kept = view(broadcast_in_dim, array(4), shape=(4, 1), dims=(0,))
    space = space_of(kept)
    assert space.index(kept.outputs[0]) == (a, ZERO)
    assert space.sizes == {0: 4}


def test_a_split_changes_all_maps_and_the_sizes() -> None:
    space = space_of()
    space.maps["x"] = space.index(array(12, 5))
    space.maps["y"] = (Affine(1, ((0, 2),)),)
    space.split(Split(0, 3))
    assert space.sizes == {0: 4, 1: 5, 2: 3}
    assert space.maps == {
        "x": (Affine(0, ((0, 3), (2, 1))), b),
        "y": (Affine(1, ((0, 6), (2, 2))),),
    }


def test_a_copy_is_split_by_itself() -> None:
    space = space_of()
    space.maps["x"] = space.index(array(12))
    other = space.copy()
    other.freeze()
    other.split(Split(0, 3))
    assert space.sizes == {0: 12}
    assert space.maps == {"x": (a,)}
    assert not space.frozen
    assert other.frozen == {0}
    assert other.units is space.units


def test_a_question_is_asked_again_after_each_split() -> None:
    x = array(24)
    cube = view(reshape, x, shape=(2, 3, 4))
    space = space_of(cube)
    space.maps["x"] = space.index(x)
    found = space.settled(lambda: space.result(space.maps["x"], cube))
    assert space.sizes == {0: 2, 1: 4, 2: 3}
    assert found == (a, c, b)
    assert space.maps["x"] == (Affine(0, ((0, 12), (2, 4), (1, 1))),)


def test_a_question_changes_nothing() -> None:
    x = array(24)
    cube = view(reshape, x, shape=(6, 4))
    space = space_of(cube)
    entries = space.index(x)
    assert space.result(entries, cube) == Split(0, 4)
    assert space.seen(entries, cube.inputs[0], []) == entries
    assert space.sizes == {0: 24}


def test_frozen_dimensions_are_not_split() -> None:
    x = array(24)
    cube = view(reshape, x, shape=(6, 4))
    space = space_of(cube)
    entries = space.index(x)
    space.freeze()
    assert space.result(entries, cube) is None
    assert space.settled(lambda: space.result(entries, cube)) is None
    # A later one can be.
    later = (space.dimension(24),)
    assert space.result(later, cube) == Split(1, 4)


def test_views_are_seen_through_from_the_outermost() -> None:
    x = array(4, 6)
    turned = view(transpose, x, permutation=(1, 0))
    flipped = view(reverse, turned.outputs[0], axes=(0,))
    space = space_of(turned, flipped)
    entries = space.index(flipped.outputs[0])
    found = space.seen(entries, x, [flipped, turned])
    assert found == (b, Affine(5, ((0, -1),)))


def test_what_has_no_map_is_not_seen() -> None:
    x = array(2, 12)
    flipped = view(reverse, x, axes=(1,))
    flat = view(reshape, flipped.outputs[0], shape=(24,))
    # 18 = 2 · 9 and 12 do not nest.
    part = view(slice_, x, starts=(0, 0), limits=(2, 9), steps=(1, 1))
    other = view(reshape, part.outputs[0], shape=(3, 6))
    space = space_of(flipped, flat, part, other)
    entries = space.index(other.outputs[0])
    assert space.seen(entries, x, [other, part]) is None
    # The reshape of what is reversed asks for a split; what it gives is then reversed.
    line = (dimension(9),)
    space.sizes[9] = 24
    assert space.seen(line, x, [flat, flipped]) == Split(9, 12)


@pytest.mark.parametrize(
    "found",
    [
        view(reverse, array(4), axes=(0,)),
        view(slice_, array(4), starts=(0,), limits=(4,), steps=(1,)),
    ],
    ids=lambda eq: eq.op.name,
)
def test_views_without_a_way_forth_have_no_result(found: Equation) -> None:
    space = space_of(found)
    assert space.result(space.index(found.inputs[0]), found) is None


def test_a_broadcast_s_operand_says_nothing_about_new_axes() -> None:
    wide = view(broadcast_in_dim, array(4), shape=(5, 4), dims=(1,))
    kept = view(broadcast_in_dim, array(4), shape=(1, 4), dims=(1,))
    space = space_of(wide, kept)
    entries = space.index(wide.inputs[0])
    assert space.result(entries, wide) == (None, a)
    # But for the axes that there are no loops along.
    assert space.result(entries, kept) == (ZERO, a)


def test_nothing_is_said_about_axes_without_loops() -> None:
    x = array(1, 4)
    rows = view(transpose, x, permutation=(1, 0))
    one = view(slice_, array(3, 4), starts=(0, 0), limits=(1, 4), steps=(1, 1))
    space = space_of(rows, one)
    # The caller's batch of one has a loop; an axis cut to one element has none.
    assert space.seen((a, b), x, [rows]) == (b, a)
    assert space.seen((a, b), one.outputs[0], []) == (ZERO, b)
    assert space.seen((a, b), array(3, 4), [one]) == (a, b)


def test_axes_of_length_1_keep_their_loops_in_a_reshape() -> None:
    x = array(1, 4)
    turned = view(reshape, x, shape=(4, 1))
    space = space_of(turned)
    assert space.result((a, b), turned) == (b, a)
    assert space.seen((b, a), x, [turned]) == (a, b)


def test_what_a_view_drops_is_not_seen_behind_it() -> None:
    x = array(4)
    row = view(reshape, x, shape=(1, 4))
    column = view(transpose, row.outputs[0], permutation=(1, 0))
    space = space_of(row, column)
    # A reader along a batch of one has a dimension there.
    assert space.index(array(4, 1)) == (a, b)
    assert space.seen((a, b), x, [column, row]) == (a,)


def some_views(x: Var, r: random.Random) -> list[Equation]:
    """Views of views, innermost first."""
    chain: list[Equation] = []
    for _ in range(r.randrange(1, 6)):
        shape = x.type.shape
        op = r.choice([reshape, *VIEWS])
        params = (
            {"shape": regrouped(shape, r)} if op is reshape else VIEWS[op](shape, r)
        )
        chain.append(view(op, x, **params))
        x = chain[-1].outputs[0]  # type: ignore[assignment]
    return chain


def regrouped(shape: Sequence[int], r: random.Random) -> tuple[int, ...]:
    new: list[int] = []
    for n in shape:
        if new and r.random() < 0.4:
            new[-1] *= n
        elif n % 2 == 0 and r.random() < 0.4:
            new += [n // 2, 2]
        else:
            new.append(n)
    if r.random() < 0.3:
        new.insert(r.randrange(len(new) + 1), 1)
    return tuple(new)


def elements(space: Space, x: Var, entries: Map) -> np.ndarray:
    return read(numbered(x.type.shape), entries, space.sizes)


@given(st.integers(0, 2**32).map(random.Random))
def test_seen_reads_what_the_views_have(r: random.Random) -> None:
    x = array(*(r.choice([1, 2, 4, 6]) for _ in range(r.randrange(1, 4))))
    chain = some_views(x, r)
    out = chain[-1].outputs[0]
    space = space_of(*chain)
    space.maps["out"] = space.index(out)
    found = space.settled(lambda: space.seen(space.maps["out"], x, chain[::-1]))
    if found is None:
        return
    values = numbered(x.type.shape)
    for eq in chain:
        values = eq.op.run(values, **eq.params)
    expected = read(values, space.maps["out"], space.sizes)
    assert np.array_equal(elements(space, x, found), expected)


@given(st.integers(0, 2**32).map(random.Random))
def test_result_reads_what_the_operand_has(r: random.Random) -> None:
    x = array(*(r.choice([1, 2, 4, 6]) for _ in range(r.randrange(1, 4))))
    chain = some_views(x, r)
    space = space_of(*chain)
    space.maps["x"] = space.index(x)
    values = numbered(x.type.shape)
    for eq in chain:
        x = eq.outputs[0]  # type: ignore[assignment]
        found = space.settled(lambda eq=eq: space.result(space.maps["x"], eq))  # type: ignore[misc]
        if found is None:
            return
        # Any element along a new axis is the operand's: here the first.
        entries = tuple(ZERO if e is None else e for e in found)
        expected = read(values, space.maps["x"], space.sizes)
        values = eq.op.run(values, **eq.params)
        assert np.array_equal(read(values, entries, space.sizes), expected)
        space.maps["x"] = entries
