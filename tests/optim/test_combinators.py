"""Transforms of transforms: types, frozen parts, groups, numbers, and misuse."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.optim.trees import assert_close
from treadle import nn, optim, rng, tree


def test_zero_nans() -> None:
    grads = {"a": np.array([1.0, np.nan], np.float32), "b": np.ones(2, np.float32)}
    clean = optim.zero_nans()
    updates, state = clean.update(tree.map(tnp.asarray, grads), clean.init(grads))
    theirs = optax.zero_nans()
    expected, found = theirs.update(grads, theirs.init(grads))
    assert_close(updates, expected)
    assert tree.map(bool, state.found) == jax.tree.map(bool, found.found_nan)


def test_centralize_has_outputs_last() -> None:
    grads = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    first = optax.centralize().update(np.moveaxis(grads, -1, 0), ())[0]
    found = optim.centralize().update({"w": tnp.asarray(grads), "b": tnp.ones(3)}, ())
    np.testing.assert_allclose(found[0]["w"], np.moveaxis(first, 0, -1), atol=1e-6)
    assert found[0]["b"].tolist() == [1, 1, 1]


def test_target_networks_of_modules_keep_their_types() -> None:
    new = nn.BatchNorm(3).replace(weight=tnp.full(3, 3.0, td.bfloat16))
    old = new.replace(weight=tnp.ones(3, td.bfloat16))
    mixed = optim.incremental_update(new, old, 0.5)
    assert mixed.weight.dtype == td.bfloat16 and mixed.weight.tolist() == [2, 2, 2]
    assert type(mixed) is nn.BatchNorm


def test_accumulated_halves_are_float32() -> None:
    optimizer = optim.multi_steps(optim.identity(), 3)
    state = optimizer.init(tnp.ones(1, td.bfloat16))
    for value in (1.0, 2.0**-9, 2.0**-9):
        grads = tnp.full(1, value, td.bfloat16)
        updates, state = optimizer.update(grads, state)
    expected = np.float32(1 + 2 * 2.0**-9) / 3
    np.testing.assert_allclose(updates, [expected], rtol=1e-6)


def test_frozen_parts_stay_as_they_are() -> None:
    params = {"a": tnp.ones(2), "b": tnp.ones(2), "n": 3}
    grads = {"a": tnp.ones(2), "b": tnp.ones(2), "n": None}
    frozen = optim.masked(optim.freeze(), "a")
    for wrap in (
        lambda t: optim.multi_steps(t, 1),
        lambda t: optim.apply_if_finite(t, 3),
        lambda t: optim.conditionally_mask(t, lambda n: n >= 0),
    ):
        optimizer = wrap(optim.chain(optim.sgd(1.0), frozen))
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        assert updates["a"] is None and updates["n"] is None
        assert optim.apply_updates(params, updates)["a"] is params["a"]


def test_conditions_may_ask_for_the_value() -> None:
    optimizer = optim.conditionally_mask(
        optim.reduce_on_plateau(), lambda count, value: value < 1
    )
    grads = tnp.ones(1)
    state = optimizer.init(grads)
    for value in (2.0, 0.5):
        updates, state = optimizer.update(grads, state, value=value, other=1)
        assert updates.tolist() == [float(value < 1)]


def test_numbers_of_all_are_read_and_set() -> None:
    params = {"w": tnp.ones(2)}
    optimizer = optim.apply_if_finite(
        optim.multi_steps(
            optim.chain(optim.adaptive_grad_clip(0.1), optim.sgd(0.1)), 2
        ),
        3,
    )
    state = optimizer.init(params)
    assert set(optim.hyperparameters(state)) == {
        "max_consecutive_errors", "every", "clipping", "eps", "learning_rate"
    }  # fmt: skip
    state = optim.set_hyperparameters(state, every=1, clipping=1e9, learning_rate=1.0)
    updates, state = optimizer.update({"w": tnp.ones(2)}, state, params)
    assert updates["w"].tolist() == [-1, -1]
    assert bool(optim.has_updated(state.inner))


def test_modules_are_grouped_by_class_and_path() -> None:
    model = nn.Sequential(nn.Linear(2, 3, key=rng.key(0)), nn.LayerNorm(3))
    optimizer = optim.partition(
        {"norms": optim.freeze(), "rest": optim.sgd(1.0)},
        optim.groups(norms=nn.LayerNorm, rest="**"),
    )
    grads = tree.map(tnp.ones_like, model)
    updates, _ = optimizer.update(grads, optimizer.init(model), model)
    after = optim.apply_updates(model, updates)
    assert after.layers[1].weight is model.layers[1].weight
    np.testing.assert_allclose(after.layers[0].bias, model.layers[0].bias - 1)


def test_errors_say_what_to_do() -> None:
    params = {"a": tnp.ones(1), "b": tnp.ones(1)}
    with pytest.raises(ValueError, match=r"groups: b is in none of 'x'(.|\n)*rest="):
        optim.groups(x="a")(params)
    with pytest.raises(ValueError, match=r"needs the value(.|\n)*value=loss"):
        optim.reduce_on_plateau().update(params, optim.reduce_on_plateau().init(params))
    with pytest.raises(ValueError, match="every must be 1 or more, got 0"):
        optim.multi_steps(optim.sgd(0.1), 0)
    with pytest.raises(ValueError, match="masked sgd needs the parameters"):
        optim.masked(optim.sgd(0.1), "a").update(params, ())
    twice = optim.chain(*[optim.monitor({"n": optim.global_norm})] * 2)
    with pytest.raises(ValueError, match="two monitors measure 'n'"):
        optim.measurements(twice.init(params))
    with pytest.raises(TypeError, match="not the MultiStepsState that multi_steps"):
        optim.has_updated(())
