"""Losses scaled up: what float16 loses without, and keeps with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng, tree

X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
Y = np.sin(X.sum(-1, keepdims=True))
SMALL = 2.0**-20
"""Of losses, so that their gradients are below what float16 holds."""


def make(compute: str) -> Any:
    model = nn.MLP((4, 16, 1), activation=nn.tanh, key=rng.key(0))
    return nn.Precision(compute=compute, output="float32").apply(model)


def train(model: Any, scale: nn.LossScale, steps: int = 60) -> tuple[Any, ...]:
    """The losses, the last scale, and how many steps were left out."""
    optimizer = optim.apply_if_finite(optim.sgd(0.1 / SMALL, momentum=0.9), 100)
    state = optimizer.init(model)

    @td.jit
    def step(model: Any, state: Any, scale: Any) -> tuple:
        def loss(model: Any) -> Any:
            value = nn.squared_error(model(X), Y).mean() * SMALL
            return scale.apply(value), value

        (_, value), grads = td.value_and_grad(loss, has_aux=True)(model)
        grads = scale.unscale(grads)
        updates, state = optimizer.update(grads, state, model)
        scale = scale.adjust(nn.all_finite(grads))
        return optim.apply_updates(model, updates), state, scale, value / SMALL

    losses = []
    for _ in range(steps):
        model, state, scale, value = step(model, state, scale)
        losses.append(float(value))
    return losses, scale, int(state.total)


def test_float16_follows_float32_and_does_not_without_a_scale() -> None:
    one = nn.LossScale(1.0, growth_interval=None)
    wide, _, _ = train(make("float32"), one)
    assert wide[-1] < 0.2 * wide[0]
    # So large at first that gradients are infinite, and growing on the way.
    found, scale, left_out = train(
        make("float16"), nn.LossScale(2.0**48, growth_interval=10)
    )
    assert left_out > 2
    assert 1 < float(scale.scale) < 2.0**48
    np.testing.assert_allclose(found[-1], wide[-1], rtol=0.3)
    static, _, none = train(
        make("float16"), nn.LossScale(2.0**20, growth_interval=None)
    )
    assert none == 0
    np.testing.assert_allclose(static, wide, rtol=0.05)
    lost, _, _ = train(make("float16"), one)
    assert lost[-1] > 0.6 * lost[0]


def test_a_scale_is_part_of_a_state_that_is_carried() -> None:
    scale = nn.LossScale(8.0, growth_interval=2, min_scale=2.0)
    with pytest.raises(TypeError, match="nothing to differentiate"):
        td.grad(lambda s: s.apply(1.0))(scale)
    finite = tnp.array([True, True, False, True, True, False, False, False])

    def step(scale: Any, finite: Any) -> Any:
        after = scale.adjust(finite)
        return after, after.scale

    last, found = td.scan(step, scale, finite)
    assert found.tolist() == [8, 16, 8, 8, 16, 8, 4, 2]
    assert last.adjust(False).scale == 2.0
    assert tree.structure(last) == tree.structure(scale)


def test_a_scale_never_becomes_infinite() -> None:
    scale = nn.LossScale(2.0**127, growth_interval=1)
    assert scale.adjust(True).scale == 2.0**127


def test_scaling_leaves_dtypes_that_are_wide_enough() -> None:
    scale = nn.LossScale(4.0)
    assert scale.apply(tnp.ones((), tnp.float16)).dtype == tnp.float32
    assert scale.apply(tnp.ones((), tnp.float64)).dtype == tnp.float64
    grads = {"a": tnp.ones(2, tnp.float64), "b": tnp.ones(2, td.bfloat16), "c": None}
    found = scale.unscale(grads | {"n": 3})
    assert found["a"].dtype == tnp.float64
    assert found["b"].dtype == tnp.float32
    assert found["c"] is None
    assert found["n"] == 3
    np.testing.assert_array_equal(found["b"], 0.25)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_all_finite(bad: float) -> None:
    grads = {"w": tnp.ones((2, 3)), "n": tnp.arange(2), "none": None}
    assert nn.all_finite(grads)
    for kind in (tnp.float16, tnp.float64, tnp.complex64):
        assert not nn.all_finite(grads | {"b": tnp.array([1.0, bad], kind)})


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 0.0},
        {"scale": np.inf},
        {"growth_interval": 0},
        {"growth_factor": 0.5},
        {"backoff_factor": 0.0},
        {"backoff_factor": 2.0},
        {"scale": 2.0, "min_scale": 4.0},
    ],
)
def test_numbers_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"LossScale: {list(options)[-1]} is "):
        nn.LossScale(**options)
