"""What goes on from element to element, of complex numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.passes.parts import INF, equal, joined, pair
from treadle.ops.cumulative import cumprod, linear_recurrence
from treadle.ops.scatter import scatter_mul
from treadle.passes.pair_loops import LOOPS


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    r = np.random.default_rng(seed)
    return r.normal(size=shape) + 1j * r.normal(size=shape)


def turned(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    return np.flip(x, axis) if reverse else x


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_running_products(axis: int, reverse: bool) -> None:
    for shape in ((4, 3), (1, 5), (5, 1), (3, 2, 4)):
        x = normal(*shape)
        wanted = turned(np.cumprod(turned(x, axis, reverse), axis), axis, reverse)
        equal(LOOPS[cumprod](pair(x), axis=axis, reverse=reverse), wanted)
    empty = normal(0, 0)
    assert LOOPS[cumprod](pair(empty), axis=axis, reverse=reverse).re.shape == (0, 0)


def test_the_first_element_is_as_it_was() -> None:
    """Times one it would have a part that is no number."""
    x = np.array([complex(INF, 0), 1, 1])
    found = joined(LOOPS[cumprod](pair(x), axis=0, reverse=False))
    assert (found[0].real, found[0].imag) == (INF, 0)
    x = x[:1]
    given = pair(x)
    assert LOOPS[cumprod](given, axis=0, reverse=True) is given


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_recurrences(axis: int, reverse: bool) -> None:
    a, b = normal(4, 3), normal(4, 3, seed=1)
    rows = zip(
        *(np.moveaxis(turned(x, axis, reverse), axis, 0) for x in (a, b)), strict=True
    )
    h, found = np.zeros(a.shape[1 - axis], complex), []
    for factor, term in rows:
        h = factor * h + term
        found.append(h)
    wanted = turned(np.moveaxis(np.array(found), 0, axis), axis, reverse)
    equal(
        LOOPS[linear_recurrence](pair(a), pair(b), axis=axis, reverse=reverse), wanted
    )


def test_scattered_products() -> None:
    x, i = normal(5, 3), np.array([[4, 1], [1, 1]])
    updates = normal(2, 2, 3, seed=1)
    where = {"axes": (0,), "sizes": (None,), "batch_dims": 0, "mode": "clip"}
    wanted = x.copy()
    for n, row in zip(i.ravel(), updates.reshape(4, 3), strict=True):
        wanted[n] *= row
    equal(LOOPS[scatter_mul](pair(x), pair(updates), i, **where), wanted)
    # Each of a batch has places of its own.
    x, i, updates = normal(2, 5), np.array([[4, 1, 1], [0, 0, 3]]), normal(2, 3, seed=1)
    where |= {"axes": (1,), "batch_dims": 1}
    wanted = x.copy()
    for b in range(2):
        for n, value in zip(i[b], updates[b], strict=True):
            wanted[b, n] *= value
    equal(LOOPS[scatter_mul](pair(x), pair(updates), i, **where), wanted)
