"""Transforms that combine, gather, limit and watch: step for step Optax's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

import treadle as td
import treadle.numpy as tnp
from tests.optim.trees import assert_close, gradients, parameters, run, run_optax
from treadle import optim, rng, tree

STEPS = 8
BIAS = {"layers": False, "bias": True}
SEVERAL = {"layers": [{"weight": False}, {"weight": False}], "bias": True}


def every(first: Any, second: Any, where: Any) -> Callable[[Any], Any]:
    return lambda count: where(count < 3, first, second)


# Ours and theirs; each is run with gradients of which one is zero.
TABLE: dict[str, tuple[Callable, Callable]] = {
    "named_chain": (
        lambda: optim.named_chain({"z": optim.clip(0.5), "a": optim.sgd(0.1, 0.9)}),
        lambda: optax.named_chain(("z", optax.clip(0.5)), ("a", optax.sgd(0.1, 0.9))),
    ),
    "masked": (
        lambda: optim.masked(optim.adam(0.1), "bias"),
        lambda: optax.masked(optax.adam(0.1), SEVERAL),
    ),
    "masked freeze": (
        lambda: optim.chain(optim.sgd(0.1), optim.masked(optim.freeze(), BIAS)),
        lambda: optax.chain(optax.sgd(0.1), optax.freeze(SEVERAL)),
    ),
    "partition by groups": (
        lambda: optim.partition(
            {"fast": optim.adam(0.1), "slow": optim.sgd(0.01)},
            optim.groups(fast=["**.1", "bias"], slow="**"),
        ),
        lambda: optax.partition(
            {"fast": optax.adam(0.1), "slow": optax.sgd(0.01)},
            {"layers": [{"weight": "slow"}, {"weight": "fast"}], "bias": "fast"},
        ),
    ),
    "multi_steps": (
        lambda: optim.multi_steps(optim.adam(0.1), 3),
        lambda: optax.MultiSteps(optax.adam(0.1), 3).gradient_transformation(),
    ),
    "multi_steps of sums": (
        lambda: optim.multi_steps(optim.sgd(0.1, 0.9), 2, use_mean=False),
        lambda: optax.MultiSteps(
            optax.sgd(0.1, 0.9), 2, use_grad_mean=False
        ).gradient_transformation(),
    ),
    "multi_steps by a schedule": (
        lambda: optim.multi_steps(optim.sgd(0.1), every(1, 2, tnp.where)),
        lambda: optax.MultiSteps(
            optax.sgd(0.1), every(1, 2, jnp.where)
        ).gradient_transformation(),
    ),
    "apply_every": (
        lambda: optim.chain(
            optim.adam(0.1), optim.multi_steps(optim.identity(), 2, use_mean=False)
        ),
        lambda: optax.chain(optax.adam(0.1), optax.apply_every(2)),
    ),
    "conditionally_transform": (
        lambda: optim.conditionally_transform(optim.adam(0.1), lambda n: n % 2 == 1),
        lambda: optax.conditionally_transform(optax.adam(0.1), lambda n: n % 2 == 1),
    ),
    "conditionally_mask": (
        lambda: optim.conditionally_mask(optim.adam(0.1), lambda count: count > 2),
        lambda: optax.conditionally_mask(optax.adam(0.1), lambda step: step > 2),
    ),
    "skip_large_updates": (
        lambda: optim.skip_large_updates(optim.multi_steps(optim.sgd(0.1), 2), 3.0),
        lambda: optax.MultiSteps(
            optax.sgd(0.1), 2,
            should_skip_update_fn=lambda *a: optax.skip_large_updates(
                *a, max_squared_norm=9.0),
        ).gradient_transformation(),
    ),
    "adaptive_grad_clip": (
        lambda: optim.chain(optim.adaptive_grad_clip(0.1, 0.01), optim.sgd(0.1)),
        lambda: optax.chain(optax.adaptive_grad_clip(0.1, 0.01), optax.sgd(0.1)),
    ),
    "add_noise": (
        lambda: optim.chain(optim.add_noise(0.1, 0.55, key=rng.key(3)), optim.sgd(0.1)),
        lambda: optax.chain(optax.add_noise(0.1, 0.55, jax.random.key(3)),
                            optax.sgd(0.1)),
    ),
    "keep_params_nonnegative": (
        lambda: optim.chain(optim.sgd(0.1), optim.keep_params_nonnegative()),
        lambda: optax.chain(optax.sgd(0.1), optax.keep_params_nonnegative()),
    ),
    "flatten": (
        lambda: optim.flatten(optim.chain(
            optim.clip_by_block_rms(0.5), optim.add_decayed_weights(0.1),
            optim.sgd(0.1, 0.9))),
        lambda: optax.flatten(optax.chain(
            optax.clip_by_block_rms(0.5), optax.add_decayed_weights(0.1),
            optax.sgd(0.1, 0.9))),
    ),
    "stateless": (
        lambda: optim.stateless(lambda g, p: tree.map(lambda x, y: y / 9 - x, g, p)),
        lambda: optax.stateless(
            lambda g, p: jax.tree.map(lambda x, y: y / 9 - x, g, p)),
    ),
    "normalize_by_update_norm": (
        lambda: optim.chain(optim.normalize_by_update_norm(0.5), optim.sgd(0.1)),
        lambda: optax.chain(optax.normalize_by_update_norm(0.5), optax.sgd(0.1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_the_way_is_optax(name: str) -> None:
    ours, theirs = TABLE[name]
    params = parameters()
    way = zip(
        run(ours(), params, STEPS), run_optax(theirs(), params, STEPS), strict=True
    )
    for mine, expected in way:
        assert_close(mine, expected)


@pytest.mark.parametrize("name", TABLE)
def test_states_keep_their_types(name: str) -> None:
    """So one program serves all steps, and a `scan` may carry the state."""
    params = tree.map(tnp.asarray, parameters())
    optimizer = TABLE[name][0]()
    state = optimizer.init(params)
    types = td.eval_shape(optimizer.update, params, state, params)[1]
    assert tree.structure(types) == tree.structure(state)
    assert tree.leaves(types) == [td.typeof(x) for x in tree.leaves(state)]


def test_apply_if_finite_is_optax() -> None:
    params = parameters()
    ours = optim.apply_if_finite(optim.adam(0.1), 2)
    theirs = optax.apply_if_finite(optax.adam(0.1), 2)
    mine, state = tree.map(tnp.asarray, params), ours.init(params)
    hers, their_state = params, theirs.init(params)
    step = td.jit(ours.update)
    for number, grads in enumerate(gradients(params, 9)):
        if number in (2, 4, 5, 6):
            grads["bias"] = np.full_like(grads["bias"], np.nan)
        updates, state = step(tree.map(tnp.asarray, grads), state, mine)
        expected, their_state = theirs.update(grads, their_state, hers)
        assert_close(updates, expected)
        assert int(state.in_a_row) == int(their_state.notfinite_count)
        assert int(state.total) == int(their_state.total_notfinite)


@pytest.mark.parametrize("least", [0.0, 2.0])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 5.0])
def test_safe_root_mean_squares_is_optax(scale: float, least: float) -> None:
    x = scale * np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    found = td.value_and_grad(optim.safe_root_mean_squares)(tnp.asarray(x), least)
    theirs = jax.value_and_grad(optax.safe_root_mean_squares)(jnp.asarray(x), least)
    for mine, expected in zip(found, theirs, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5)


def test_flattened_leaves_may_be_halves_or_frozen() -> None:
    params = {"a": tnp.ones(2, td.bfloat16), "n": 3, "b": tnp.ones(3)}
    grads = {"a": tnp.ones(2, td.bfloat16), "n": None, "b": tnp.ones(3)}
    optimizer = optim.flatten(optim.adam(0.001))
    updates, state = td.jit(optimizer.update)(grads, optimizer.init(params), params)
    assert updates["n"] is None and updates["a"].dtype == td.float32
    np.testing.assert_allclose(updates["a"], -0.001, rtol=1e-5)
    assert optim.tree.get(state, "mean").shape == (5,)


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4, 5)])
def test_norms_of_units_are_optax(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected = optax.transforms.unitwise_norm(x)
    found = tnp.broadcast_to(optim.unit_norm(tnp.asarray(x)), expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 2},
        {"factor": 0.5, "patience": 3, "cooldown": 2, "rtol": 0.0, "atol": 0.1},
        {"patience": 2, "accumulation_size": 3, "factor": 0.3, "min_scale": 0.2},
    ],
)
def test_reduce_on_plateau_is_optax(options: dict[str, Any]) -> None:
    ours, theirs = optim.reduce_on_plateau(**options), contrib.reduce_on_plateau(
        **options
    )  # fmt: skip
    grads = np.ones(2, np.float32)
    state, their_state = ours.init(grads), theirs.init(grads)
    step, their_step = td.jit(ours.update), jax.jit(theirs.update)
    values = np.random.default_rng(5).normal(size=60).astype(np.float32)
    for value in values + np.linspace(3, 0, 60, dtype=np.float32):
        updates, state = step(tnp.asarray(grads), state, None, value=value)
        expected, their_state = their_step(grads, their_state, value=value)
        np.testing.assert_allclose(updates, expected, rtol=1e-6)
    assert float(state.scale) < 1


def test_monitors_keep_what_they_measure() -> None:
    params = parameters()
    optimizer = optim.chain(
        optim.monitor({"before": optim.global_norm}),
        optim.clip_by_global_norm(1.0),
        optim.monitor({"after": optim.global_norm}, decay=0.9),
    )
    state = optimizer.init(params)
    ema = optax.ema(0.9)
    their_state = ema.init(jnp.zeros(()))
    for grads in gradients(params, 9):
        _, state = td.jit(optimizer.update)(tree.map(tnp.asarray, grads), state)
        norm = optax.tree.norm(grads)
        expected, their_state = ema.update(jnp.minimum(norm, 1), their_state)
        found = optim.measurements(state)
        np.testing.assert_allclose(found["before"], norm, rtol=1e-5)
        np.testing.assert_allclose(found["after"], expected, rtol=1e-5)


def test_target_networks_are_optax() -> None:
    new, old = parameters(), jax.tree.map(lambda x: 2 * x, parameters())
    ours = optim.incremental_update(
        *[tree.map(tnp.asarray, x) for x in (new, old)], 0.1
    )
    assert_close(ours, optax.incremental_update(new, old, 0.1))
    for step in (9, 10):
        found = td.jit(optim.periodic_update)(new, old, step, 5)
        assert_close(found, optax.periodic_update(new, old, step, 5))
