"""The cart is Gymnasium's, step by step."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import treadle as td
from treadle.recipes import cartpole_ppo as cartpole

pytestmark = pytest.mark.oracle


def test_carts_move_as_gymnasium_moves_them() -> None:
    random = np.random.default_rng(0)
    environment = gymnasium.make("CartPole-v1").unwrapped
    move = td.jit(cartpole.move)
    lost = 0
    for seed in range(20):
        environment.reset(seed=seed)
        if seed % 2:  # Far and fast, to both sides.
            environment.state = random.uniform(-1, 1, 4) * [2.3, 3, 0.2, 3]
        cart = np.asarray(environment.state, np.float64)
        for _ in range(60):
            right = int(random.integers(2))
            expected, reward, over, _, _ = environment.step(right)
            cart, ended = move(cart.astype(np.float32), right)
            np.testing.assert_allclose(cart, expected, rtol=1e-5, atol=1e-6)
            assert bool(ended) == over and reward == 1
            if over:
                lost += 1
                break
            cart = np.asarray(environment.state, np.float64)
    assert lost >= 15


def test_the_limits_are_gymnasiums() -> None:
    made = gymnasium.make("CartPole-v1")
    assert made.spec is not None
    assert made.spec.max_episode_steps == cartpole.LONGEST
    assert made.unwrapped.x_threshold == cartpole.FARTHEST
    assert made.unwrapped.theta_threshold_radians == cartpole.STEEPEST


def test_whole_episodes_are_gymnasiums() -> None:
    """In float64, without setting the state back to Gymnasium's."""
    random = np.random.default_rng(1)
    environment = gymnasium.make("CartPole-v1").unwrapped
    for seed in range(10):
        environment.reset(seed=seed)
        cart, over = np.asarray(environment.state, np.float32).astype(np.float64), False
        environment.state = tuple(cart)
        steps = 0
        while not over:
            right = int(random.integers(2))
            _, _, over, _, _ = environment.step(right)
            cart, lost = cartpole.move(td.numpy.asarray(cart, td.float64), right)
            np.testing.assert_allclose(cart, environment.state, rtol=1e-12, atol=1e-14)
            assert bool(lost) == over
            steps += 1
        assert steps < 100
