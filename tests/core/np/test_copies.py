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


def test_copies_of_models() -> None:
    model = nn.Linear(2, 3, key=rng.key(0))
    for kept in (copy.deepcopy(model), tree.map(tnp.copy, model)):
        fresh = tree.map(tnp.copy, model)
        td.jit(lambda m: tree.map(lambda x: x * 2, m), donate="m")(fresh)
        assert np.isfinite(np.asarray(kept(tnp.ones(2)))).all()
