"""The index maps of views: what they read is what NumPy's view of the array has."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.ir.following import dimension, numbered, read, whole
from tests.core.ops.views import VIEWS, some_shape
from treadle.ops.movement import broadcast_in_dim, reshape, reverse, transpose
from treadle.ops.shape import slice_
from treadle.trace.lowering import Mapped, Reshape, View
from treadle.trace.op import Op, registry

SEEDS = st.integers(0, 2**32).map(random.Random)


def test_every_view_is_here() -> None:
    views = {op for op in registry.values() if isinstance(op.lowering, View)}
    assert views == {*VIEWS, reshape}
    assert isinstance(reshape.lowering, Reshape)


@pytest.mark.parametrize("op", VIEWS, ids=str)
@given(SEEDS)
def test_back_reads_the_view_s_elements_in_the_operand(
    op: Op, r: random.Random
) -> None:
    shape = some_shape(r)
    params = VIEWS[op](shape, r)
    x = numbered(shape)
    view = op.run(x, **params)
    entries, sizes = whole(view.shape)
    how = op.lowering
    assert isinstance(how, Mapped)
    found = how.back(entries, x.shape, view.shape, params)
    assert np.array_equal(read(x, found, sizes), view)


@pytest.mark.parametrize("op", [broadcast_in_dim, transpose], ids=str)
@given(SEEDS)
def test_forth_reads_the_operand_s_elements_in_the_view(
    op: Op, r: random.Random
) -> None:
    shape = some_shape(r)
    params = VIEWS[op](shape, r)
    x = numbered(shape)
    view = op.run(x, **params)
    entries, sizes = whole(shape)
    how = op.lowering
    assert isinstance(how, Mapped)
    assert how.forth is not None
    found = how.forth(entries, x.shape, view.shape, params)
    # An axis about which the operand says nothing: it has its elements anywhere there.
    new = {i: n for i, n in enumerate(view.shape) if found[i] is None}
    sizes |= {10 + i: n for i, n in new.items()}
    filled = tuple(dimension(10 + i) if e is None else e for i, e in enumerate(found))
    expected = np.broadcast_to(
        x.reshape(shape + [1] * len(new)), shape + list(new.values())
    )
    assert np.array_equal(read(view, filled, sizes), expected)
    assert x.size * int(np.prod(list(new.values()))) == view.size


@pytest.mark.parametrize("op", [reverse, slice_], ids=str)
def test_views_that_may_lack_elements_go_back_only(op: Op) -> None:
    assert isinstance(op.lowering, Mapped)
    assert op.lowering.forth is None


def test_nothing_reversed_is_nothing() -> None:
    entries, _ = whole((0, 3))
    assert isinstance(reverse.lowering, Mapped)
    params = {"axes": (0,)}
    assert reverse.lowering.back(entries, (0, 3), (0, 3), params) == entries
