"""Optimizers take the same way as their counterparts in Optax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.optim.table import OPTAX
from tests.optim.trees import (
    STEPS,
    assert_close,
    gradients,
    parameters,
    run,
    run_optax,
)
from treadle import optim, tree

# One of each family; the whole table is compared in `tests/oracles/`.
QUICK = (
    "sgd nesterov",
    "adamw mask",
    "adamw schedule",
    "lion mask",
    "rmsprop momentum",
    "rmsprop centered",
    "adagrad",
    "amsgrad",
    "adabelief",
    "yogi",
    "novograd",
    "adan",
    "adopt",
    "lars masks",
    "lamb",
    "adafactor factored",
    "muon",
    "prodigy",
    "schedule_free_adamw",
)


@pytest.mark.parametrize("name", QUICK)
def test_same_way_as_optax(name: str) -> None:
    ours, theirs = OPTAX[name]
    params = parameters()
    for a, b in zip(run(ours(), params), run_optax(theirs(), params), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("name", ["sgd nesterov", "adamw", "lion", "rmsprop centered"])
def test_eager_agrees_with_compiled(name: str) -> None:
    params = parameters()
    optimizer = OPTAX[name][0]()
    values = tree.map(tnp.asarray, params)
    state = optimizer.init(values)
    for expected, grads in zip(
        run(optimizer, params, 5), gradients(params, 5), strict=True
    ):
        updates, state = optimizer.update(grads, state, values)
        values = optim.apply_updates(values, updates)
        assert_close(values, expected)


@pytest.mark.parametrize("name", ["sgd nesterov", "adamw", "rmsprop centered"])
def test_float64_parameters_stay(name: str) -> None:
    params = parameters(np.float64)
    last = run(OPTAX[name][0](), params)[-1]
    assert {x.dtype for x in tree.leaves(last)} == {td.float64}
    assert_close(last, run_optax(OPTAX[name][1](), parameters())[-1], rtol=1e-4)


def test_complex_parameters() -> None:
    rng = np.random.default_rng(2)
    p = (rng.normal(size=3) + 1j * rng.normal(size=3)).astype(np.complex64)
    for name in ("adam", "rmsprop centered", "sgd momentum"):
        ours, theirs = (make() for make in OPTAX[name])
        state, reference = ours.init(p), theirs.init(p)
        for _ in range(3):
            mine, state = ours.update(p, state, p)
            yours, reference = theirs.update(p, reference, p)
            np.testing.assert_allclose(mine, yours, rtol=2e-5, err_msg=name)


def test_adam_reaches_a_minimum() -> None:
    target = tnp.array([1.0, -2.0, 3.0])
    optimizer = optim.adam(optim.exponential_decay(0.1, 100, 0.5))

    @td.jit
    def step(x: Any, state: Any) -> Any:
        grads = td.grad(lambda x: ((x - target) ** 2).sum())(x)
        updates, state = optimizer.update(grads, state, x)
        return optim.apply_updates(x, updates), state

    x = tnp.zeros(3)
    state = optimizer.init(x)
    for _ in range(20 * STEPS):
        x, state = step(x, state)
    np.testing.assert_allclose(x, target, atol=1e-3)
