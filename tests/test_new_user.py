"""What someone does who has read the pages and no code, in one go."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng
from treadle.errors import DonatedError

KEY = rng.key(0)


def test_a_deep_copy_outlives_a_donated_model():
    """It is how one keeps what a step takes: a target network, a best model."""
    model = nn.cast(nn.MLP((4, 8, 2), key=KEY), tnp.bfloat16)
    optimizer = optim.adamw(0.1)

    @td.jit(donate=("model", "state"))
    def step(model, state):
        grads = td.grad(lambda m: m(tnp.ones((3, 4))).astype("float32").sum())(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state

    before = [np.array(x) for x in td.tree.leaves(model)]
    state = optimizer.init(model)
    kept = copy.deepcopy((model, state))
    first = step(model, state)
    with pytest.raises(DonatedError, match=r"donated to step"):
        td.tree.leaves(model)[0].tolist()
    assert all(map(np.array_equal, td.tree.leaves(kept[0]), before))
    assert td.tree.equal(step(*kept), first)
