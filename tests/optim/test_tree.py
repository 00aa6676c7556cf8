"""Trees of nothing, and what states have by name."""

from __future__ import annotations

import numpy as np
import pytest

import treadle.numpy as tnp
from treadle import optim
from treadle.errors import StructureError


def test_of_nothing() -> None:
    empty = {"a": None, "b": tnp.ones((0, 2))}
    assert optim.tree.max(empty) == -np.inf and optim.tree.min(empty) == np.inf
    assert optim.tree.sum({}) == 0 and optim.tree.vdot({}, {}) == 0
    assert optim.tree.size(empty) == 0
    assert optim.tree.add(empty, empty)["a"] is None


def test_parts_of_states_by_name() -> None:
    params = {"w": tnp.ones(2)}
    state = optim.chain(
        optim.adam(0.1), optim.monitor({"norm": optim.global_norm})
    ).init(params)
    assert optim.tree.get(state, "mean")["w"].tolist() == [0, 0]
    assert optim.tree.get(state, "nowhere", 3) == 3
    state = optim.tree.set(state, mean=params, count=tnp.array(9))
    assert optim.tree.get(state, "mean") == params
    assert set(map(int, optim.tree.get_all(state, "count").values())) == {9}
    with pytest.raises(KeyError, match=r"it is at 0\.0\.hyper\.count, 0\.1"):
        optim.tree.get(state, "count")
    with pytest.raises(KeyError, match="it is nowhere"):
        optim.tree.get(state, "means")
    with pytest.raises(KeyError, match="no part named 'means'"):
        optim.tree.set(state, means=1)
    with pytest.raises(StructureError):
        optim.tree.set(state, mean={"b": tnp.ones(1)})
