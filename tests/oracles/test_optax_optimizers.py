"""Every optimizer, with each of its options, takes the same way as Optax's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.optim.table import OPTAX
from tests.optim.trees import assert_close, gradients, parameters, run, run_optax
from treadle import optim, rng, tree

# RAdam's rate has a difference of large numbers, which Optax takes as it is.
ROUGH = {"radam": 2e-4}


@pytest.mark.parametrize("name", OPTAX)
def test_same_way_as_optax(name: str) -> None:
    ours, theirs = OPTAX[name]
    params = parameters()
    for a, b in zip(run(ours(), params), run_optax(theirs(), params), strict=True):
        assert_close(a, b, rtol=ROUGH.get(name, 2e-5), atol=5e-6)


@pytest.mark.parametrize(
    "name", ["adagrad", "adamax", "amsgrad", "adabelief", "yogi", "radam", "adan"]
)
def test_complex_parameters(name: str) -> None:
    random = np.random.default_rng(2)
    p = (random.normal(size=3) + 1j * random.normal(size=3)).astype(np.complex64)
    ours, theirs = (make() for make in OPTAX[name])
    state, reference = ours.init(p), theirs.init(p)
    for _ in range(3):
        mine, state = ours.update(p, state, p)
        yours, reference = theirs.update(p, reference, p)
        np.testing.assert_allclose(mine, yours, rtol=ROUGH.get(name, 2e-5))


@pytest.mark.parametrize("reset", [False, True])
def test_lookahead(reset: bool) -> None:
    ours = optim.lookahead(optim.adam(0.05), 3, 0.3, reset_state=reset)
    theirs = optax.lookahead(optax.adam(0.05), 3, 0.3, reset_state=reset)
    params = parameters()
    values, pair = tree.map(tnp.asarray, params), optax.LookaheadParams(params, params)
    state, reference = ours.init(values), theirs.init(pair)
    for grads in gradients(params, 10):
        updates, state = ours.update(grads, state, values)
        values = optim.apply_updates(values, updates)
        moves, reference = theirs.update(grads, reference, pair)
        pair = optax.apply_updates(pair, moves)
        assert_close(values, pair.fast)
        assert_close(optim.averaged(values, state), pair.slow)


def test_schedule_free_averages() -> None:
    ours = optim.schedule_free_adamw(0.05, b1=0.8)
    theirs = optax.contrib.schedule_free_adamw(0.05, b1=0.8)
    params = parameters()
    values, other = tree.map(tnp.asarray, params), jax.tree.map(jnp.asarray, params)
    state, reference = ours.init(values), theirs.init(other)
    for grads in gradients(params, 6):
        updates, state = ours.update(grads, state, values)
        values = optim.apply_updates(values, updates)
        moves, reference = theirs.update(grads, reference, other)
        other = optax.apply_updates(other, moves)
    expected = optax.contrib.schedule_free_eval_params(reference, other)
    assert_close(optim.averaged(values, state), expected)


def _quartic(lib: Any) -> Callable[[Any], Any]:
    """A sum of functions of one element each: signs don't matter to its Hessian."""

    def loss(p: Any) -> Any:
        matrix, vector = p
        return (lib.cosh(matrix) + matrix).sum() + (vector**4).sum()

    return loss


@pytest.mark.parametrize("threshold", [1.0, None])
def test_sophia(threshold: float | None) -> None:
    rng_ = np.random.default_rng(5)
    start = (
        rng_.normal(size=(2, 3)).astype(np.float32),
        rng_.normal(size=3).astype(np.float32),
    )
    numbers = {"b1": 0.8, "b2": 0.9, "gamma": 0.7, "eps": 0.1}
    ours = optim.sophia(
        0.1, update_interval=3, clip_threshold=threshold, **numbers, key=rng.key(0)
    )
    theirs = optax.contrib.sophia(
        0.1, update_interval=3, clip_threshold=threshold, **numbers
    )
    loss, other_loss = _quartic(tnp), _quartic(jnp)

    @td.jit
    def step(values: Any, state: Any) -> Any:
        grads = td.grad(loss)(values)
        updates, state = ours.update(grads, state, values, value_fn=loss)
        return optim.apply_updates(values, updates), state

    @jax.jit
    def their_step(other: Any, reference: Any) -> Any:
        moves, reference = theirs.update(
            jax.grad(other_loss)(other), reference, other, obj_fn=other_loss
        )
        return optax.apply_updates(other, moves), reference

    values, other = tree.map(tnp.asarray, start), jax.tree.map(jnp.asarray, start)
    state, reference = ours.init(values), theirs.init(other)
    for _ in range(8):
        values, state = step(values, state)
        other, reference = their_step(other, reference)
        assert_close(values, other)


@pytest.mark.parametrize("variant", ["sps", "sps+"])
def test_polyak_sgd(variant: Any) -> None:
    ours = optim.polyak_sgd(0.3, 0.8, 0.2, 1e-3, variant)
    theirs = optax.polyak_sgd(0.3, 0.8, 0.2, 1e-3, variant)
    params = parameters()
    state, reference = ours.init(params), theirs.init(params)
    for number, grads in enumerate(gradients(params, 10)):
        value = 0.1 * number
        updates, state = ours.update(grads, state, params, value=value)
        moves, reference = theirs.update(grads, reference, params, value=value)
        assert_close(updates, moves)


def _rosenbrock(p: Any) -> Any:
    x, y = p["x"], p["y"]
    return (100 * (y - x**2) ** 2 + (1 - x) ** 2).sum()


SEARCHES: dict[str, tuple[Callable, Callable]] = {
    "lbfgs": (lambda: optim.lbfgs(memory_size=4), lambda: optax.lbfgs(memory_size=4)),
    "lbfgs unscaled": (
        lambda: optim.lbfgs(0.5, 3, scale_first=False),
        lambda: optax.lbfgs(0.5, 3, scale_init_precond=False),
    ),
    "lbfgs backtracking": (
        lambda: optim.lbfgs(line_search=optim.scale_by_backtracking_linesearch(30)),
        lambda: optax.lbfgs(linesearch=optax.scale_by_backtracking_linesearch(30)),
    ),
    "lbfgs alone": (
        lambda: optim.lbfgs(1e-3, line_search=optim.identity()),
        lambda: optax.lbfgs(1e-3, linesearch=None),
    ),
    "sgd zoom": (
        lambda: optim.chain(
            optim.sgd(1.0), optim.scale_by_zoom_linesearch(15, curv_rtol=0.1)
        ),
        lambda: optax.chain(
            optax.sgd(1.0), optax.scale_by_zoom_linesearch(15, curv_rtol=0.1)
        ),
    ),
    "sgd zoom limited": (
        lambda: optim.chain(
            optim.sgd(1.0),
            optim.scale_by_zoom_linesearch(
                4, 0.01, 1e-3, 3.0, 1e-2, 0.5, None, 1e-4, "one"
            ),
        ),
        lambda: optax.chain(
            optax.sgd(1.0),
            optax.scale_by_zoom_linesearch(
                4, 0.01, 1e-3, 3.0, 1e-2, 0.5, None, 1e-4, "one"
            ),
        ),
    ),
    "sgd backtracking": (
        lambda: optim.chain(
            optim.sgd(1.0),
            optim.scale_by_backtracking_linesearch(
                40, 0.1, 0.6, 2.0, 3.0, 1e-3, 1e-3, store_grads=True
            ),
        ),
        lambda: optax.chain(
            optax.sgd(1.0),
            optax.scale_by_backtracking_linesearch(
                40, 0.1, 0.6, 2.0, 3.0, 1e-3, 1e-3, store_grad=True
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_line_searches(name: str) -> None:
    """In float64, since two searches part for good where rounding decides one test."""
    ours, theirs = (make() for make in SEARCHES[name])
    start = {"x": np.array([-1.2, 0.5]), "y": np.array([1.0, -0.7])}
    values, state = (
        tree.map(tnp.asarray, start),
        ours.init(tree.map(tnp.asarray, start)),
    )

    @td.jit
    def step(values: Any, state: Any) -> Any:
        value, grads = td.value_and_grad(_rosenbrock)(values)
        updates, state = ours.update(
            grads, state, values, value=value, value_fn=_rosenbrock
        )
        return optim.apply_updates(values, updates), state

    with jax.enable_x64(True):
        other = jax.tree.map(jnp.asarray, start)
        reference = theirs.init(other)

        @jax.jit
        def their_step(other: Any, reference: Any) -> Any:
            value, grads = jax.value_and_grad(_rosenbrock)(other)
            moves, reference = theirs.update(
                grads,
                reference,
                other,
                value=value,
                grad=grads,
                value_fn=_rosenbrock,
            )
            return optax.apply_updates(other, moves), reference

        for _ in range(12):
            values, state = step(values, state)
            other, reference = their_step(other, reference)
            assert_close(values, other, rtol=1e-4, atol=1e-5)


def test_what_a_search_keeps() -> None:
    optimizer = optim.lbfgs()
    params = {"x": tnp.array([-1.2, 0.5]), "y": tnp.array([1.0, -0.7])}
    state = optimizer.init(params)
    for _ in range(3):
        value, grads = optim.value_and_grad_from_state(_rosenbrock, params, state)
        expected, expected_grads = jax.value_and_grad(_rosenbrock)(
            jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), params)
        )
        np.testing.assert_allclose(value, expected, rtol=1e-4)
        assert_close(grads, expected_grads, rtol=1e-3, atol=1e-4)
        updates, state = optimizer.update(
            grads, state, params, value=value, value_fn=_rosenbrock
        )
        params = optim.apply_updates(params, updates)
