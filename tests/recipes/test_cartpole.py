"""The cart: episodes end as they should, advantages are what the formula says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from treadle import nn, rng
from treadle.recipes import cartpole_ppo as cartpole
from treadle.recipes.loop import beginning
from treadle.recipes.step import make_step
from treadle.recipes.task import Trained

CONFIG = cartpole.Config(batch_size=3, moves=40, width=8)


def test_lost_carts_start_anew_and_the_others_go_on() -> None:
    agent = cartpole.Agent(CONFIG, key=rng.key(0))
    played, after = nn.stateful(agent.play)(CONFIG.moves, rng.key(1))
    carts, over, age = (np.asarray(played[n]) for n in ("carts", "over", "age"))
    assert over.any()
    following = np.concatenate([carts[1:], np.asarray(after.carts.value)[None]])
    assert (np.abs(following[over]) <= 0.05).all()
    right = np.asarray(played["right"])
    for t, i in np.argwhere(~over):
        moved, lost = cartpole.move(carts[t, i], right[t, i])
        np.testing.assert_allclose(following[t, i], moved, rtol=1e-5, atol=1e-6)
        assert not lost
    ages = np.concatenate([np.zeros((1, 3)), np.where(over, 0, age)])
    np.testing.assert_array_equal(age, ages[:-1] + 1)
    np.testing.assert_array_equal(after.ages.value, ages[-1])


def test_the_oldest_episodes_are_stopped_but_not_lost() -> None:
    agent = cartpole.Agent(CONFIG, key=rng.key(0))
    agent = nn.at(agent, lambda a: a.ages.value).set(np.array([499, 499, 3], np.int32))
    played, _ = nn.stateful(agent.play)(1, rng.key(1))
    assert np.asarray(played["over"]).tolist() == [[True, True, False]]
    assert (np.asarray(played["next"]) != 0).all()


def test_advantages_are_sums_of_what_surprised() -> None:
    random = np.random.default_rng(0)
    over = random.random((9, 2)) < 0.3
    value, following = random.normal(size=(2, 9, 2)).astype(np.float32)
    played = {"value": value, "next": following, "over": over}
    found = cartpole.advantages(CONFIG, played)
    surprise = 1 + CONFIG.discount * following - value
    for i in range(2):
        for t in range(9):
            expected, weight = 0.0, 1.0
            for later in range(t, 9):
                expected += weight * surprise[later, i]
                weight *= CONFIG.discount * CONFIG.smoothing
                if over[later, i]:
                    break
            np.testing.assert_allclose(found[t, i], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_it_learns() -> None:
    config = replace(cartpole.Config(), steps=30)
    data = cartpole.load(config)
    learner = cartpole.learner(config, data.facts, rng.key(0))
    state, step = beginning(learner, config).state, make_step(learner)
    batches = data.batches.repeat()
    returns = []
    for _ in range(config.steps):
        state, metrics = step(state, next(batches))
        returns.append(float(metrics["return"]))
    assert max(returns[:2]) < 60 < 150 < np.mean(returns[-3:])


def test_a_sample_is_an_episode() -> None:
    agent = cartpole.Agent(CONFIG, key=rng.key(0))
    trained = Trained(agent, CONFIG, {}, Path())
    *moves, end = cartpole.sample(trained, cartpole.Episode(300, 1.0, 4))
    assert end == f"lost after {len(moves)} moves"
    assert all(len(line) == len(moves[0]) for line in moves)
    again = list(cartpole.sample(trained, cartpole.Episode(300, 1.0, 4)))
    assert again == [*moves, end]
