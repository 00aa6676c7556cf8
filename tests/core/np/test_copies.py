"""Copies have memory of their own: they stay when what they were made of is donated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng, tree


@pytest.mark.parametrize(
    "copied", [tnp.copy, lambda x: x.copy(), copy.copy, copy.deepcopy]
)
@pytest.mark.parametrize("place", [lambda x: x, lambda x: td.device_put(x, "cpu")])
def test_a_copy_outlives_what_is_donated(
    copied: Callable[[Any], Any], place: Callable[[Any], Any]
) -> None:
    x = place(tnp.arange(4.0))
    kept = copied(x)
    td.jit(lambda x: x + 1, donate="x")(x)
    with pytest.raises(td.errors.DonatedError):
        np.asarray(x)
    assert kept.tolist() == [0, 1, 2, 3]
    assert type(kept) is type(x) and kept.device == x.device
    assert td.jit(lambda x: tnp.copy(x) + x.copy())(kept).tolist() == [0, 2, 4, 6]


SAME = {
    "array": tnp.array,
    "array of its dtype": lambda x: tnp.array(x, x.dtype, copy=True),
    "astype": lambda x: x.astype(x.dtype),
    "tnp.astype": lambda x: tnp.astype(x, x.dtype),
    "flatten": lambda x: x.flatten(),
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("place", [lambda x: x, lambda x: td.device_put(x, "cpu")])
@pytest.mark.parametrize("first", [True, False])
def test_what_copies_in_numpy_is_another_array(
    name: str, place: Callable[[Any], Any], first: bool
) -> None:
    """Which of the two is donated does not matter: the other one stays as it is, also
    when results have taken all the memory that was given up."""
    x = place(td.jit(lambda: tnp.arange(64.0) + 1)())
    y = SAME[name](x)
    given, kept = (x, y) if first else (y, x)
    results = [td.jit(lambda x: x * 2, donate="x")(given)]
    results += [r * 3 for r in results]
    with pytest.raises(td.errors.DonatedError):
        np.asarray(given)
    assert kept.tolist() == list(range(1, 65))
    assert type(kept) is type(x) and kept.device == x.device


def test_what_does_not_copy_in_numpy_is_the_array_itself() -> None:
    x = tnp.arange(4.0)
    assert tnp.asarray(x) is x and tnp.array(x, copy=None) is x
    assert tnp.array(x, copy=False) is x and tnp.asarray(x, copy=False) is x
    assert x.astype(x.dtype, copy=False) is x
    assert tnp.array(x) is not x and tnp.asarray(x, copy=True) is not x


VIEWS = {
    "reshape": lambda x: tnp.reshape(x, (3, 2)),
    "transpose": tnp.transpose,
    "flip": tnp.flip,
    "split": lambda x: tnp.split(x, 2)[0],
    "broadcast_to": lambda x: tnp.broadcast_to(x, (4, 2, 3)),
    "meshgrid": lambda x: tnp.meshgrid(x[0], x[1])[0],
    "real": lambda x: tnp.real(x + 0j),
    "atleast_3d": tnp.atleast_3d,
    "unstack": lambda x: tnp.unstack(x)[0],
    "stop_gradient": td.lax.stop_gradient,
    "vmap": td.vmap(lambda row: row.reshape(3, 1)),
    "remat": td.remat(lambda x: x),
    "jvp": lambda x: td.jvp(tnp.ravel, (x,), (x,))[1],
    "compiled": td.jit(tnp.ravel),
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_the_caller_writes_changes_no_result(name: str) -> None:
    mine = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = VIEWS[name](mine)
    wanted = np.array(found)
    mine[...] = -1
    np.testing.assert_array_equal(np.asarray(found), wanted)


def test_copies_of_models() -> None:
    model = nn.Linear(2, 3, key=rng.key(0))
    for kept in (copy.deepcopy(model), tree.map(tnp.copy, model)):
        fresh = tree.map(tnp.copy, model)
        td.jit(lambda m: tree.map(lambda x: x * 2, m), donate="m")(fresh)
        assert np.isfinite(np.asarray(kept(tnp.ones(2)))).all()
