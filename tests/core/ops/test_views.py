"""The index maps of views: what they read is what NumPy's view of the array has."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.ir.following import dimension, numbered, read, whole
from treadle.ops.movement import broadcast_in_dim, reshape, reverse, transpose
from treadle.ops.shape import slice_
from treadle.trace.lowering import Mapped, Reshape, View
from treadle.trace.op import Op, registry

Params = dict[str, Any]
SEEDS = st.integers(0, 2**32).map(random.Random)


def some_shape(r: random.Random) -> list[int]:
    return [r.choice([1, 2, 3, 5]) for _ in range(r.randrange(5))]


def broadcast_params(shape: list[int], r: random.Random) -> Params:
    """New axes anywhere; longer ones in the place of some of length 1."""
    result = [r.choice([n, 4]) if n == 1 else n for n in shape]
    dims = list(range(len(shape)))
    for _ in range(r.randrange(3)):
        place = r.randrange(len(result) + 1)
        result.insert(place, r.choice([1, 2, 4]))
        dims = [d + (d >= place) for d in dims]
    return {"shape": tuple(result), "dims": tuple(dims)}


def transpose_params(shape: list[int], r: random.Random) -> Params:
    return {"permutation": tuple(r.sample(range(len(shape)), len(shape)))}


def reverse_params(shape: list[int], r: random.Random) -> Params:
    return {"axes": tuple(i for i in range(len(shape)) if r.random() < 0.5)}


def slice_params(shape: list[int], r: random.Random) -> Params:
    starts = [r.randrange(n) for n in shape]
    limits = [r.randrange(s, n) + 1 for s, n in zip(starts, shape, strict=True)]
    steps = [r.randrange(1, 4) for _ in shape]
    return {"starts": tuple(starts), "limits": tuple(limits), "steps": tuple(steps)}


VIEWS: dict[Op, Callable[[list[int], random.Random], Params]] = {
    broadcast_in_dim: broadcast_params,
    transpose: transpose_params,
    reverse: reverse_params,
    slice_: slice_params,
}


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
