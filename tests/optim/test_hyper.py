"""Hyperparameters are numbers in the state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.optim.trees import traces
from treadle import optim, tree

PARAMS = {"w": tnp.ones(3), "b": tnp.ones(())}


def test_names_and_values() -> None:
    state = optim.adamw(1e-3, weight_decay=0.1).init(PARAMS)
    found = optim.hyperparameters(state)
    expected = {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 0.1}
    assert found.keys() == expected.keys() | {"learning_rate"}
    for name, value in expected.items():
        assert found[name].dtype == td.float32 and found[name].shape == ()
        np.testing.assert_allclose(found[name], value, rtol=1e-6)


def test_changing_one_compiles_nothing() -> None:
    optimizer = optim.adamw(1e-3)
    step, count = traces(lambda g, s, p: optimizer.update(g, s, p))
    state = optimizer.init(PARAMS)
    first, state = step(PARAMS, state, PARAMS)
    state = optim.set_hyperparameters(state, learning_rate=2e-3, weight_decay=0)
    second, state = step(PARAMS, state, PARAMS)
    state = optim.set_hyperparameters(state, learning_rate=np.float64(0.5))
    third, _ = step(PARAMS, state, PARAMS)
    assert len(count) == 1
    np.testing.assert_allclose(second["w"], -2e-3 * np.ones(3), rtol=1e-4)
    assert float(third["w"][0]) < -0.4 < float(first["w"][0])


def test_another_optimizer_of_the_kind_compiles_nothing() -> None:
    one = optim.sgd(optim.cosine_decay_schedule(0.1, 50), momentum=0.9)
    two = optim.sgd(optim.cosine_decay_schedule(0.2, 90, alpha=0.1), momentum=0.5)
    step, count = traces(one.update)
    step(PARAMS, one.init(PARAMS))
    ours, _ = step(PARAMS, two.init(PARAMS))
    expected, _ = two.update(PARAMS, two.init(PARAMS))
    np.testing.assert_allclose(ours["w"], expected["w"], rtol=1e-6)
    assert len(count) == 1


def test_schedules_are_read_at_the_count() -> None:
    optimizer = optim.sgd(optim.linear_schedule(0.0, 1.0, 10))
    state = optimizer.init(PARAMS)
    for count in range(12):
        rate = optim.hyperparameters(state)["learning_rate"]
        np.testing.assert_allclose(rate, min(count / 10, 1.0), rtol=1e-6, atol=1e-7)
        updates, state = optimizer.update(PARAMS, state)
        np.testing.assert_allclose(updates["b"], -rate)
    state = optim.set_hyperparameters(state, learning_rate=0.3)
    assert float(optim.hyperparameters(state)["learning_rate"]) == np.float32(0.3)


def test_any_hyperparameter_takes_a_schedule_and_plain_functions_are_schedules() -> (
    None
):
    optimizer = optim.adamw(0.0, b1=lambda t: 0.9 - 0.1 * t, weight_decay=lambda t: 7.0)
    state = optimizer.init(PARAMS)
    _, state = optimizer.update(PARAMS, state, PARAMS)
    found = optim.hyperparameters(state)
    np.testing.assert_allclose(found["b1"], 0.8, rtol=1e-6)
    assert float(found["weight_decay"]) == 7.0


def test_a_schedule_replaces_a_number() -> None:
    state = optim.sgd(0.1).init(PARAMS)
    state = optim.set_hyperparameters(state, learning_rate=optim.constant_schedule(0.7))
    assert "constant(value=0.7)" in repr(state)
    assert float(optim.hyperparameters(state)["learning_rate"]) == np.float32(0.7)


def test_shared_names_are_qualified() -> None:
    optimizer = optim.partition(
        {"slow": optim.sgd(0.1, momentum=0.9), "fast": optim.sgd(1.0)},
        {"w": "slow", "b": "fast"},
    )
    state = optimizer.init(PARAMS)
    assert set(optim.hyperparameters(state)) == {
        "momentum",
        "fast.0.learning_rate",
        "slow.1.learning_rate",
    }
    state = optim.set_hyperparameters(state, **{"fast.0.learning_rate": 2.0})
    updates, _ = optimizer.update(PARAMS, state, PARAMS)
    np.testing.assert_allclose(updates["b"], -2.0)
    with pytest.raises(ValueError, match=r"several parts(.|\n)*fast\.0\.learning"):
        optim.set_hyperparameters(state, learning_rate=1.0)


def test_errors_name_what_there_is() -> None:
    state = optim.adam(1e-3).init(PARAMS)
    with pytest.raises(
        ValueError, match=r"no hyperparameter 'lr'(.|\n)*b1, b2, eps, l"
    ):
        optim.set_hyperparameters(state, lr=0.1)
    with pytest.raises(TypeError, match="learning_rate='fast': expected a number"):
        optim.set_hyperparameters(state, learning_rate="fast")
    with pytest.raises(TypeError, match="expected a number, or a schedule"):
        optim.set_hyperparameters(state, learning_rate=tnp.ones(2))
    with pytest.raises(TypeError, match=r"momentum='0\.9'"):
        optim.sgd(0.1, momentum="0.9").init(PARAMS)
    bad = optim.sgd(lambda t: tnp.ones(2))
    with pytest.raises(ValueError, match=r"gave an array of type f32\[2\]"):
        bad.update(PARAMS, bad.init(PARAMS))


def test_inside_jit() -> None:
    optimizer = optim.sgd(0.1)

    @td.jit
    def step(state: Any, rate: Any) -> Any:
        state = optim.set_hyperparameters(state, learning_rate=rate)
        return optimizer.update(PARAMS, state)

    updates, state = step(optimizer.init(PARAMS), 0.25)
    np.testing.assert_allclose(updates["b"], -0.25)
    assert float(optim.hyperparameters(state)["learning_rate"]) == 0.25


def test_a_sweep_over_learning_rates_by_vmap() -> None:
    rates = tnp.array([0.1, 0.2, 0.4])
    states = td.vmap(lambda rate: optim.sgd(rate).init(PARAMS))(rates)
    updates, states = td.vmap(lambda s: optim.sgd(0.0).update(PARAMS, s), in_axes=(0,))(
        states
    )
    np.testing.assert_allclose(updates["b"], -np.asarray(rates))
    halved = optim.set_hyperparameters(states, learning_rate=rates / 2)
    np.testing.assert_allclose(
        optim.hyperparameters(halved)["learning_rate"], rates / 2
    )


def test_states_have_stable_paths() -> None:
    state = optim.adamw(optim.constant_schedule(0.1)).init({"w": tnp.ones(2)})
    paths = [tree.key_name(path) for path, _ in tree.flatten_with_path(state)[0]]
    assert paths == [
        "[0].hyper.count",
        "[0].hyper.values['b1']",
        "[0].hyper.values['b2']",
        "[0].hyper.values['eps']",
        "[0].mean['w']",
        "[0].mean_square['w']",
        "[1].count",
        "[1].values['weight_decay']",
        "[2].count",
        "[2].values['learning_rate'].numbers['value']",
    ]
    assert state[0].hyper.count.dtype == td.int32


def test_a_state_shows_its_numbers() -> None:
    state = optim.sgd(0.1, momentum=0.9).init(PARAMS)
    assert repr(state) == (
        "(MomentState(hyper=Hyperparameters(count=0, momentum=0.9), "
        "velocity=<dict of 2 arrays, 4 numbers>), "
        "Hyperparameters(count=0, learning_rate=0.1))"
    )
