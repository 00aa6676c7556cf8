"""What holds of every optimizer: frozen parts, halves, states that go on elsewhere."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.optim.table import ALL, WITHOUT_OPTAX
from tests.optim.trees import assert_close, gradients, parameters
from treadle import optim, tree
from treadle.checkpoint import restore, save

STEPS = 4
# Rounding makes them go other ways: on purpose, or where it decides how far.
OTHER_WAYS = ("kahan", "stochastic_rounding", "lbfgs", "backtracking")


def _loss(params: Any) -> Any:
    """A bowl: what line searches and others evaluate."""
    return sum(((x.astype(td.float32) - 1.0) ** 2).sum() for x in tree.leaves(params))


def _step(optimizer: optim.Transform, grads: Any, state: Any, params: Any) -> Any:
    updates, state = optimizer.update(
        grads, state, params, value=_loss(params), value_fn=_loss
    )
    return optim.apply_updates(params, updates), state


def _train(optimizer: optim.Transform, params: Any, state: Any, grads: Any) -> Any:
    for g in grads:
        params, state = _step(optimizer, g, state, params)
    return params, state


def _start(dtype: Any = td.float32) -> tuple[Any, list[Any]]:
    params = parameters()
    grads = [
        tree.map(lambda g: tnp.asarray(g, dtype), g) for g in gradients(params, STEPS)
    ]
    return tree.map(lambda p: tnp.asarray(p, dtype), params), grads


@pytest.mark.parametrize("name", ALL)
def test_training_goes_on_where_it_stopped(name: str, tmp_path: Path) -> None:
    """To the last bit, from a checkpoint, by an optimizer made once more."""
    optimizer = ALL[name]()
    params, grads = _start()
    half, state = _train(optimizer, params, optimizer.init(params), grads[:2])
    expected = tree.leaves(_train(optimizer, half, state, grads[2:3]))
    save(tmp_path / "state", state)
    restored = restore(tmp_path / "state", optimizer.init(params))
    assert tree.structure(restored) == tree.structure(state)
    found = tree.leaves(_train(ALL[name](), half, restored, grads[2:3]))
    pickled = tree.leaves(pickle.loads(pickle.dumps((params, state))))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    for a, b in zip(tree.leaves((params, state)), pickled, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("name", ALL)
def test_frozen_leaves_stay(name: str) -> None:
    optimizer = ALL[name]()
    params, grads = _start()
    frozen = [{**g, "bias": None} for g in grads]
    last, _ = _train(optimizer, params, optimizer.init(params), frozen)
    assert last["bias"] is params["bias"]
    for before, after in zip(
        tree.leaves(params["layers"]), tree.leaves(last["layers"]), strict=True
    ):
        assert np.isfinite(np.asarray(after)).all()
        assert (np.asarray(after) != np.asarray(before)).any()


@pytest.mark.parametrize("name", [n for n in ALL if n not in OTHER_WAYS])
def test_halves_go_the_way_of_float32(name: str) -> None:
    """Within a few units of bfloat16, with moments of float32."""
    optimizer = ALL[name]()
    params, grads = _start(td.bfloat16)
    wide = [tree.map(lambda x: x.astype(td.float32), t) for t in (params, *grads)]
    last, state = _train(optimizer, params, optimizer.init(params), grads)
    expected, _ = _train(optimizer, wide[0], optimizer.init(wide[0]), wide[1:])
    for leaf in tree.leaves(last):
        assert leaf.dtype == td.bfloat16
    for leaf in tree.leaves(state):
        assert getattr(leaf, "dtype", None) != td.bfloat16
    assert_close(last, tree.map(np.asarray, expected), rtol=0.04, atol=0.04)


@pytest.mark.parametrize("name", WITHOUT_OPTAX)
def test_compiled_agrees_with_eager(name: str) -> None:
    optimizer = ALL[name]()
    params, grads = _start()
    expected, state = params, optimizer.init(params)
    step = td.jit(lambda g, s, p: _step(optimizer, g, s, p))
    found, other = params, optimizer.init(params)
    for g in grads[:3]:
        expected, state = _step(optimizer, g, state, expected)
        found, other = step(g, other, found)
        assert tree.structure(other) == tree.structure(state)
        assert_close(found, tree.map(np.asarray, expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_every_number_can_be_read(name: str) -> None:
    params, _ = _start()
    state = ALL[name]().init(params)
    numbers = optim.hyperparameters(state)
    for key, value in numbers.items():
        assert value.shape == () and value.dtype == td.float32, key
    for part in tree.leaves(state, is_leaf=lambda x: isinstance(x, optim.MomentState)):
        if isinstance(part, optim.MomentState):
            assert part.hyper.count.dtype == td.int32
