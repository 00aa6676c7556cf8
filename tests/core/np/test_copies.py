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
