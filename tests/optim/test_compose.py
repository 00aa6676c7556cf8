"""Updates under jit, vmap, scan and grad, and with donated memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.optim.trees import assert_close, traces
from treadle import optim, tree

PARAMS = {"w": tnp.linspace(-1, 1, 6).reshape(2, 3), "b": tnp.ones(3)}
OPTIMIZERS = {
    "sgd": lambda: optim.sgd(0.1, momentum=0.9),
    "adamw": lambda: optim.adamw(optim.cosine_decay_schedule(0.1, 10)),
    "lion": lambda: optim.lion(0.01),
    "rmsprop": lambda: optim.rmsprop(0.1),
    "clipped": lambda: optim.chain(optim.clip_by_global_norm(1.0), optim.adam(0.1)),
}


def _loss(params: Any, x: Any) -> Any:
    return ((x @ params["w"] + params["b"]) ** 2).mean()


def _step(optimizer: optim.Transform, params: Any, state: Any, x: Any) -> Any:
    grads = td.grad(_loss)(params, x)
    updates, state = optimizer.update(grads, state, params)
    return optim.apply_updates(params, updates), state


def _data(steps: int) -> Any:
    return tnp.array(np.random.default_rng(3).normal(size=(steps, 5, 2)), td.float32)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_scan_is_a_loop(name: str) -> None:
    optimizer = OPTIMIZERS[name]()
    data = _data(4)
    params, state = PARAMS, optimizer.init(PARAMS)
    for x in data:
        params, state = _step(optimizer, params, state, x)

    def body(carry: Any, x: Any) -> Any:
        return _step(optimizer, *carry, x), None

    scanned = td.jit(lambda c, xs: td.scan(body, c, xs))
    (last, last_state), _ = scanned((PARAMS, optimizer.init(PARAMS)), data)
    assert_close(last, tree.map(np.asarray, params), rtol=1e-4, atol=1e-5)
    assert tree.structure(last_state) == tree.structure(state)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_vmap_is_many(name: str) -> None:
    optimizer = OPTIMIZERS[name]()
    many = tree.map(lambda p: tnp.stack([p, 2 * p, -p]), PARAMS)
    data = _data(3)
    states = td.vmap(optimizer.init)(many)
    one = td.vmap(lambda p, s, x: _step(optimizer, p, s, x))
    found, states = one(*one(many, states, data), data)
    for i in range(3):
        params = tree.map(lambda p, i=i: p[i], many)
        state = optimizer.init(params)
        for _ in range(2):
            params, state = _step(optimizer, params, state, data[i])
        assert_close(
            tree.map(lambda p, i=i: p[i], found),
            tree.map(np.asarray, params),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_donated_states(name: str) -> None:
    optimizer = OPTIMIZERS[name]()
    step = td.jit(lambda p, s, x: _step(optimizer, p, s, x), donate=(0, 1))
    data = _data(3)
    kept, kept_state = PARAMS, optimizer.init(PARAMS)
    params = tree.map(lambda p: p + 0.0, PARAMS)
    state = optimizer.init(params)
    other = optimizer.init(params)
    for x in data:
        params, state = step(params, state, x)
        kept, kept_state = _step(optimizer, kept, kept_state, x)
    assert_close(params, tree.map(np.asarray, kept), rtol=1e-4, atol=1e-5)
    # A state that was made from the same parameters shares no memory with the donated.
    tree.map(np.asarray, other)


def test_a_learning_rate_given_as_an_array_survives_donation() -> None:
    rate = tnp.asarray(0.5)
    optimizer = optim.sgd(rate)
    step = td.jit(lambda s: optimizer.update(PARAMS, s), donate=0)
    step(optimizer.init(PARAMS))
    updates, _ = step(optimizer.init(PARAMS))
    assert float(rate) == 0.5
    np.testing.assert_allclose(updates["b"], -0.5 * np.ones(3))


def test_init_under_jit() -> None:
    optimizer = optim.adamw(optim.cosine_decay_schedule(0.1, 10))
    inside = td.jit(optimizer.init)(PARAMS)
    outside = optimizer.init(PARAMS)
    assert tree.structure(inside) == tree.structure(outside)
    for a, b in zip(tree.leaves(inside), tree.leaves(outside), strict=True):
        assert a.type == b.type
        np.testing.assert_array_equal(a, b)


def test_steps_trace_once() -> None:
    optimizer = optim.adamw(optim.warmup_cosine_decay_schedule(0.0, 0.1, 5, 20))
    step, count = traces(lambda p, s, x: _step(optimizer, p, s, x))
    params, state = PARAMS, optimizer.init(PARAMS)
    for x in _data(5):
        params, state = step(params, state, x)
    assert len(count) == 1


def test_gradients_flow_through_an_update() -> None:
    data = _data(2)

    def after_two(rate: Any) -> Any:
        optimizer = optim.sgd(rate, momentum=0.9)
        params, state = PARAMS, optimizer.init(PARAMS)
        for x in data:
            params, state = _step(optimizer, params, state, x)
        return _loss(params, data[0])

    slope = td.grad(after_two)(0.1)
    numeric = (after_two(0.101) - after_two(0.099)) / 0.002
    np.testing.assert_allclose(slope, numeric, rtol=1e-2)


def test_a_leaf_takes_few_operations() -> None:
    def equations(count: int) -> int:
        params = {f"w{i}": tnp.ones(3) for i in range(count)}
        optimizer = optim.adamw(1e-3)
        update = td.jit(
            lambda g, s, p: optim.apply_updates(p, optimizer.update(g, s, p)[0])
        )
        return len(update.graph(params, optimizer.init(params), params).equations)

    assert equations(3) - equations(2) <= 15
