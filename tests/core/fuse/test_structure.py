"""What is fused: the promises that a user's memory and time depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle.plan.steps import HostStep, NestStep, ProductStep, Step
from treadle.run.explain import walk


def steps_of(function: Callable[..., Any], *args: Any) -> list[Step]:
    return [s for _, s in walk(td.jit(function).lower(*args).plan.steps)]


def one_kernel(function: Callable[..., Any], *args: Any) -> bool:
    steps = steps_of(function, *args)
    return len(steps) == 1 and isinstance(steps[0], NestStep)


def softmax(x: Any) -> Any:
    e = tnp.exp(x - tnp.max(x, axis=-1, keepdims=True))
    return e / tnp.sum(e, axis=-1, keepdims=True)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    centred = x - tnp.mean(x, axis=-1, keepdims=True)
    variance = tnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / tnp.sqrt(variance + 1e-5) * scale + bias


def cross_entropy(logits: Any, labels: Any) -> Any:
    largest = td.stop_gradient(tnp.max(logits, axis=-1, keepdims=True))
    total = tnp.log(tnp.sum(tnp.exp(logits - largest), axis=-1, keepdims=True))
    hot = labels[:, None] == tnp.arange(logits.shape[-1])
    picked = tnp.sum(tnp.where(hot, logits, 0), axis=-1)
    return tnp.mean((total + largest)[:, 0] - picked)


def adamw(p: Any, g: Any, m: Any, v: Any, rate: Any, step: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    update = m / (1 - 0.9**step) / (tnp.sqrt(v / (1 - 0.99**step)) + 1e-8)
    return p - rate * (update + 0.01 * p), m, v


ROWS = tnp.asarray(np.ones((64, 33), np.float32))


def test_softmax_is_one_kernel() -> None:
    assert one_kernel(softmax, ROWS)
    assert one_kernel(softmax, tnp.ones((2, 3, 4, 33)))


def test_layer_norm_is_one_kernel() -> None:
    assert one_kernel(layer_norm, ROWS, tnp.ones(33), tnp.ones(33))


def test_an_adamw_update_is_one_kernel() -> None:
    assert one_kernel(adamw, *[ROWS] * 4, 0.1, 3.0)


def test_elementwise_chains_through_views_are_one_kernel() -> None:
    def chain(x: Any, y: Any) -> Any:
        return tnp.tanh(tnp.transpose(x)[::-1] * 2 + y[None, :]).reshape(3, 11, 64)

    assert one_kernel(chain, ROWS, tnp.ones(64))


def test_bias_and_activation_run_in_the_products_epilogue() -> None:
    def dense(x: Any, w: Any, b: Any) -> Any:
        return tnp.maximum(x @ w + b, 0)

    steps = steps_of(dense, ROWS, tnp.ones((33, 16)), tnp.ones(16))
    assert all(isinstance(s, ProductStep) for s in steps)
    assert all(s.product.epilogue is not None for s in steps)


def test_cross_entropy_with_its_gradient_stores_nothing_per_class() -> None:
    logits, labels = tnp.ones((256, 100)), tnp.zeros(256, dtype="int32")
    plan = td.jit(td.value_and_grad(cross_entropy)).lower(logits, labels).plan
    assert plan.arena < 8 * 256 * 4
    assert not any(isinstance(s, HostStep) for _, s in walk(plan.steps))


def test_a_matrix_seen_transposed_is_not_copied() -> None:
    def gradients(x: Any, y: Any) -> Any:
        return tnp.swapaxes(x, 0, 1) @ y, y @ tnp.swapaxes(x, 0, 1)

    steps = steps_of(gradients, ROWS, ROWS)
    assert all(isinstance(s, ProductStep) for s in steps)
