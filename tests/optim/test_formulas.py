"""Optimizers that Optax has not, or has otherwise, against their papers in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import optim, rng, tree
from treadle.errors import StructureError


def _way(optimizer: optim.Transform, start: Any, grads: list[Any]) -> list[np.ndarray]:
    values = tree.map(tnp.asarray, start)
    state = optimizer.init(values)
    path = []
    for g in grads:
        updates, state = optimizer.update(tree.map(tnp.asarray, g), state, values)
        values = optim.apply_updates(values, updates)
        path.append(np.asarray(values))
    return path


def _gradients(shape: tuple[int, ...], count: int) -> list[np.ndarray]:
    random = np.random.default_rng(4)
    return [random.normal(size=shape).astype(np.float32) for _ in range(count)]


def test_rprop() -> None:
    grads = _gradients((5,), 12)
    grads[3][2] = 0.0
    x, step, before = np.ones(5), np.full(5, 0.1), np.zeros(5)
    found = _way(optim.rprop(0.1, 0.4, 1.3, 0.02, 0.2), np.ones(5, np.float32), grads)
    for g, ours in zip(grads, found, strict=True):
        for i in range(5):
            if g[i] * before[i] > 0:
                step[i] = min(step[i] * 1.3, 0.2)
            elif g[i] * before[i] < 0:
                step[i] = max(step[i] * 0.4, 0.02)
            before[i] = 0.0 if g[i] * before[i] < 0 else g[i]
            x[i] -= step[i] * np.sign(before[i])
        np.testing.assert_allclose(ours, x, rtol=1e-5)


def _soap(x: np.ndarray, grads: list[np.ndarray], every: int) -> list[np.ndarray]:
    """Algorithm 3 of the paper for one square matrix, with a first step that only
    makes the bases."""
    b1, b2, eps, rate = 0.9, 0.8, 1e-8, 0.1
    left = right = None
    path, m, v = [], np.zeros_like(x), np.zeros_like(x)
    for t, g in enumerate(np.asarray(grads, np.float64), 1):
        if t == 1:
            left, right = (1 - b2) * g @ g.T, (1 - b2) * g.T @ g
            p, q = (np.linalg.eigh(s)[1][:, ::-1] for s in (left, right))
            path.append(x)
            continue
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * (p.T @ g @ q) ** 2
        hat, size = m / (1 - b1 ** (t - 1)), v / (1 - b2 ** (t - 1))
        x = x - rate * p @ ((p.T @ hat @ q) / (np.sqrt(size) + eps)) @ q.T
        path.append(x)
        left, right = b2 * left + (1 - b2) * g @ g.T, b2 * right + (1 - b2) * g.T @ g
        if t % every == 0:
            rows = np.argsort(-np.diag(p.T @ left @ p))
            columns = np.argsort(-np.diag(q.T @ right @ q))
            v = v[rows][:, columns]
            p = np.linalg.qr(left @ p[:, rows])[0]
            q = np.linalg.qr(right @ q[:, columns])[0]
    return path


def test_soap() -> None:
    start, grads = np.eye(4, dtype=np.float32), _gradients((4, 4), 9)
    ours = _way(optim.soap(0.1, 0.9, 0.8, weight_decay=0.0, frequency=3), start, grads)
    for a, b in zip(ours, _soap(np.eye(4), grads, 3), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


def test_soap_turns_with_the_problem() -> None:
    """Rotated gradients give rotated steps; Adam's are not."""
    grads = _gradients((3, 3), 6)
    turn = np.linalg.qr(_gradients((3, 3), 1)[0])[0]
    start = np.zeros((3, 3), np.float32)
    optimizer = optim.soap(0.1, weight_decay=0.0, frequency=2)
    plain = _way(optimizer, start, grads)[-1]
    turned = _way(optimizer, start, [turn @ g for g in grads])[-1]
    np.testing.assert_allclose(turned, turn @ plain, rtol=5e-3, atol=5e-3)
    assert abs(plain).max() > 0.05


def test_soap_leaves_long_axes_and_vectors_alone() -> None:
    grads = _gradients((2, 3), 4)
    start = np.zeros((2, 3), np.float32)
    plain = _way(optim.soap(0.1, 0.9, 0.8, max_size=1, weight_decay=0.0), start, grads)
    adam = _way(optim.adam(0.1, 0.9, 0.8), start, grads[1:])
    np.testing.assert_allclose(plain[-1], adam[-1], rtol=1e-4, atol=1e-6)
    state = optim.soap(0.1, max_size=2).init({"w": tnp.ones((2, 3)), "b": tnp.ones(2)})
    assert [len(sides) for sides in state[0].bases] == [0, 2]
    assert state[0].bases[1][0].shape == (2, 2) and state[0].bases[1][1] is None


def test_schedule_free_with_warm_up() -> None:
    grads = _gradients((3,), 7)
    x = z = np.ones(3)
    total = 0.0
    found = _way(
        optim.schedule_free_sgd(0.2, warmup_steps=4, b1=0.8),
        np.ones(3, np.float32),
        grads,
    )
    for t, (g, ours) in enumerate(zip(grads, found, strict=True), 1):
        rate = 0.2 * min(1, t / 4)
        total += rate**2
        z = z - rate * g
        x = x + rate**2 / total * (z - x)
        np.testing.assert_allclose(ours, 0.8 * x + 0.2 * z, rtol=2e-5, atol=2e-6)


def test_setting_the_learning_rate_of_schedule_free_sets_its_weights() -> None:
    """There is one learning rate, of which both the steps and the weights are made."""
    params = tnp.ones(2)
    optimizer = optim.schedule_free_sgd(0.1)
    state = optim.set_hyperparameters(optimizer.init(params), learning_rate=0.4)
    found, _ = optimizer.update(params, state, params)
    other = optim.schedule_free_sgd(0.4)
    expected, _ = other.update(params, other.init(params), params)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="no single learning rate"):
        optim.schedule_free(optim.scale(0.1)).init(params)
    with pytest.raises(TypeError, match="b1 is a number"):
        optim.schedule_free(optim.sgd(0.1), b1=optim.constant_schedule(0.9))


# Rounding -----------------------------------------------------------------------------


def _last(optimizer: optim.Transform, dtype: Any, steps: int) -> np.ndarray:
    """A least squares fit with noisy gradients, each far below a unit of bfloat16."""
    random = np.random.default_rng(6)
    target = random.normal(size=64)
    params = tnp.ones(64, dtype)
    noise = tnp.asarray(random.normal(size=(steps, 64)).astype(np.float32))
    target = tnp.asarray(target.astype(np.float32))

    @td.jit
    def train(params: Any, state: Any) -> Any:
        def body(carry: Any, noise: Any) -> Any:
            params, state = carry
            grads = params.astype(td.float32) - target + 0.1 * noise
            updates, state = optimizer.update(grads.astype(dtype), state, params)
            return (optim.apply_updates(params, updates), state), None

        return td.scan(body, (params, state), noise)[0][0]

    return np.asarray(train(params, optimizer.init(params)), np.float32)


@pytest.mark.parametrize("dtype", [td.bfloat16, td.float16])
def test_halves_follow_float32(dtype: Any) -> None:
    steps = 2000 if dtype == td.bfloat16 else 8000
    rate = 2.0 / steps
    expected = _last(optim.sgd(rate), td.float32, steps)
    error = {
        name: np.abs(_last(optimizer, dtype, steps) - expected).mean()
        for name, optimizer in {
            "plain": optim.sgd(rate),
            "kahan": optim.kahan(optim.sgd(rate)),
            "stochastic": optim.stochastic_rounding(optim.sgd(rate), key=rng.key(1)),
        }.items()
    }
    unit = float(tnp.finfo(dtype).eps)
    assert error["plain"] > 8 * unit
    assert error["kahan"] < unit
    assert error["stochastic"] < 6 * unit


def test_kahan_has_the_bits_of_two_halves() -> None:
    params = {"half": tnp.ones(3, td.bfloat16), "whole": tnp.ones(3)}
    optimizer = optim.kahan(optim.sgd(1.0))
    state = optimizer.init(params)
    assert state.rest["whole"].size == 0 and state.rest["half"].dtype == td.bfloat16
    grads = tree.map(lambda p: tnp.full(p.shape, 2.0**-12, p.dtype), params)
    update = td.jit(optimizer.update)
    for count in range(1, 40):
        updates, state = update(grads, state, params)
        params = optim.apply_updates(params, updates)
        exact = 1 - count * 2.0**-12
        whole = np.asarray(params["half"], np.float64) + np.asarray(
            state.rest["half"], np.float64
        )
        np.testing.assert_array_equal(whole, exact)
        np.testing.assert_array_equal(params["whole"], np.float32(exact))


@pytest.mark.parametrize("dtype", [td.bfloat16, td.float16])
def test_stochastic_rounding_is_right_on_average(dtype: Any) -> None:
    """Either neighbour, as often as it should be."""
    for value in (1.001, -0.3337, 3e-6, -1e-7, 700.3):
        params = tnp.zeros(20000, dtype)
        optimizer = optim.stochastic_rounding(optim.identity(), key=rng.key(3))
        grads = tnp.full(20000, value)
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        found = np.asarray(optim.apply_updates(params, updates), np.float64)
        near = np.unique(found)
        exact = float(np.float32(value))
        assert len(near) == 2 and near[0] < exact < near[1], (value, near)
        spread = near[1] - near[0]
        neighbour = np.asarray(tnp.asarray(near[0], dtype), np.float64)
        assert neighbour == near[0]
        np.testing.assert_allclose(found.mean(), exact, atol=0.02 * spread)


def test_stochastic_rounding_keeps_what_is_exact_or_not_finite() -> None:
    params = tnp.zeros(4, td.bfloat16)
    optimizer = optim.stochastic_rounding(optim.identity(), key=rng.key(3))
    grads = tnp.array([1.5, tnp.inf, -tnp.inf, tnp.nan])
    updates, state = optimizer.update(grads, optimizer.init(params), params)
    found = np.asarray(optim.apply_updates(params, updates), np.float32)
    np.testing.assert_array_equal(found, np.asarray(grads))
    again, _ = optimizer.update(0.001 * tnp.ones(4), state, params)
    first, _ = optimizer.update(0.001 * tnp.ones(4), optimizer.init(params), params)
    assert (np.asarray(first) != np.asarray(again)).any()


# Misuse -------------------------------------------------------------------------------


def test_errors_say_what_is_missing() -> None:
    params = {"w": tnp.ones((2, 2)), "b": tnp.ones(2)}
    with pytest.raises(ValueError, match=r"lbfgs|zoom(.|\n)*value_fn=loss"):
        optim.lbfgs().update(params, optim.lbfgs().init(params), params)
    sophia = optim.sophia(0.1, key=rng.key(0))
    with pytest.raises(ValueError, match=r"sophia(.|\n)*value_fn=loss"):
        sophia.update(params, sophia.init(params), params)
    polyak = optim.polyak_sgd()
    with pytest.raises(ValueError, match=r"needs the loss(.|\n)*value=loss"):
        polyak.update(params, polyak.init(params), params)
    with pytest.raises(ValueError, match="needs the parameters"):
        optim.prodigy().update(params, optim.prodigy().init(params))
    with pytest.raises(ValueError, match=r"'w': gives no|no matrix in a parameter"):
        muon = optim.scale_by_muon()
        muon.update(params, muon.init(params))
    with pytest.raises(ValueError, match="'dion'"):
        optim.muon(0.1, coefficients=(1.0, 2.0))
    with pytest.raises(ValueError, match="'spectral'"):
        optim.muon(0.1, preconditioning="other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="memory_size must be 1 or more"):
        optim.lbfgs(memory_size=0)
    with pytest.raises(ValueError, match="expected one line search"):
        optim.value_and_grad_from_state(
            lambda p: 0.0, params, optim.sgd(0.1).init(params)
        )
    with pytest.raises(ValueError, match="variant='x'"):
        optim.polyak_sgd(variant="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="initial_guess='x'"):
        optim.scale_by_zoom_linesearch(initial_guess="x")  # type: ignore[arg-type]
    with pytest.raises(StructureError):
        optim.muon(0.1, matrices={"w": True}).init(params)


@pytest.mark.parametrize(
    "matrices",
    ["body", ["body.w", "body.b"], ~tree.select("head"), tree.select("body")],
)
def test_muon_takes_what_masks_take(matrices: Any) -> None:
    """Of what is meant, matrices are what has two axes."""
    w, b = rng.normal(rng.key(0), (3, 4)), rng.normal(rng.key(1), (4,))
    params = {"body": {"w": w, "b": b}, "head": {"w": w}}
    axes = {"body": {"w": True, "b": False}, "head": {"w": False}}

    def updates(which: Any) -> Any:
        optimizer = optim.muon(0.1, matrices=which)
        return optimizer.update(params, optimizer.init(params), params)[0]

    found = updates(matrices)
    tree.map(np.testing.assert_array_equal, found, updates(axes))
    assert abs(found["body"]["w"] - found["head"]["w"]).max() > 0.01


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lbfgs_backtracks_to_the_minimum_of_rosenbrock(dtype: str) -> None:
    """Backtracking may end where the slope fell: such steps tell no curvature."""

    def rosenbrock(p: Any) -> Any:
        return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2

    search = optim.scale_by_backtracking_linesearch()
    optimizer = optim.lbfgs(line_search=search)

    @td.jit
    def step(params: Any, state: Any) -> tuple[Any, Any]:
        value, grads = td.value_and_grad(rosenbrock)(params)
        updates, state = optimizer.update(
            grads, state, params, value=value, value_fn=rosenbrock
        )
        return optim.apply_updates(params, updates), state

    params = tnp.array([-1.2, 1.0], dtype)
    state = optimizer.init(params)
    for _ in range(60):
        params, state = step(params, state)
    np.testing.assert_allclose(params, [1.0, 1.0], 1e-5)


def test_rows_are_bounded_where_there_are_any() -> None:
    params = {"w": 2 * np.ones((3, 4)), "b": np.full(4, 0.3), "s": np.float64(9)}
    for axis, long in ((-1, {"w"}), (0, {"w"}), ((0, 1), {"w"}), (1, {"w"})):
        start = tree.map(tnp.asarray, params)
        bounded = optim.keep_params_max_norm(1.5, axis=axis)
        still = tree.map(tnp.zeros_like, start)
        updates, _ = bounded.update(still, bounded.init(start), start)
        for name, before in params.items():
            after = np.asarray(start[name] + updates[name])
            if name in long:
                norm = np.linalg.norm(before, axis=axis, keepdims=True)
                before = before * 1.5 / norm
            np.testing.assert_allclose(after, before, 1e-6)
