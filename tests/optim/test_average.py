"""Averages of the parameters."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.optim.trees import gradients, parameters, run
from treadle import optim, tree


def test_the_average_of_the_way() -> None:
    params = parameters()
    optimizer = optim.chain(optim.adam(0.1), optim.average_parameters(0.9))
    values, state = params, optimizer.init(params)
    expected = tree.map(np.asarray, params)
    plain = run(optim.adam(0.1), params)
    for grads, there in zip(gradients(params), plain, strict=True):
        updates, state = optimizer.update(grads, state, values)
        values = optim.apply_updates(values, updates)
        expected = tree.map(lambda a, p: 0.9 * a + 0.1 * np.asarray(p), expected, there)
    found = optim.averaged(values, state)
    for a, b in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_is_not_trained_comes_from_the_parameters() -> None:
    params = {"w": tnp.ones(2, td.bfloat16), "n": 3}
    optimizer = optim.chain(optim.sgd(0.5), optim.average_parameters(0.999))
    state = optimizer.init(params)
    assert state[1].average["w"].dtype == td.float32
    grads = {"w": tnp.ones(2, td.bfloat16), "n": None}
    _, state = optimizer.update(grads, state, params)
    np.testing.assert_allclose(state[1].average["w"], 0.9995, rtol=1e-6)
    found = optim.averaged(params, state)
    assert found["n"] == 3 and found["w"].dtype == td.bfloat16


def test_there_must_be_one() -> None:
    params = {"w": tnp.ones(2)}
    with pytest.raises(ValueError, match="found 0"):
        optim.averaged(params, optim.sgd(0.1).init(params))
