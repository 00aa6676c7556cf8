"""What is fused: the promises that a user's memory and time depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.backends.cpu.device import CPUTarget
from treadle.compile import stages
from treadle.kernels.nest import Nest
from treadle.ops.conv import conv_general
from treadle.plan.steps import HostStep, NestStep, ProductStep, Step, walk


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


def kernels_of(function: Callable[..., Any], *args: Any) -> set[Nest]:
    """What must be compiled besides the product kernel, which is one for all sizes."""
    found = set()
    for step in steps_of(function, *args):
        if isinstance(step, NestStep):
            found.add(step.launch.nest)
        elif isinstance(step, ProductStep) and step.product.epilogue is not None:
            found.add(step.product.epilogue.nest)
    return found


def dense_step(w: Any, b: Any, x: Any, y: Any) -> Any:
    def loss(w: Any, b: Any) -> Any:
        return cross_entropy(tnp.tanh(x @ w + b) @ w.T @ w, y)

    return td.value_and_grad(loss, (0, 1))(w, b)


def recurrent_step(w: Any, b: Any, x: Any, y: Any) -> Any:
    def loss(w: Any, b: Any) -> Any:
        def advance(h: Any, frame: Any) -> Any:
            return tnp.tanh(frame @ w + b + h), None

        frames = tnp.swapaxes(x[:, None] * tnp.ones((6, 1)), 0, 1)
        last, _ = td.scan(advance, tnp.zeros((len(x), len(b))), frames)
        return cross_entropy(last, y)

    return td.value_and_grad(loss, (0, 1))(w, b)


def attention_step(w: Any, b: Any, x: Any, y: Any) -> Any:
    def loss(w: Any, b: Any) -> Any:
        h = layer_norm(x[:, None] * tnp.ones((6, 1)) + tnp.arange(6.0)[:, None], 1, 0)
        heads = tnp.swapaxes((h @ w + b).reshape(len(x), 6, 2, 5), 1, 2)
        weights = nn.softmax(heads @ tnp.swapaxes(heads, -1, -2))
        mixed = tnp.swapaxes(weights @ heads, 1, 2).reshape(len(x), 6, 10)
        return cross_entropy(mixed.mean(1), y)

    return td.value_and_grad(loss, (0, 1))(w, b)


SAME = {
    **{"strides": (1, 1), "padding": ((1, 1), (1, 1)), "feature_groups": 1},
    **{"lhs_dilation": (1, 1), "rhs_dilation": (1, 1)},
}


def convolution_step(w: Any, b: Any, x: Any, y: Any) -> Any:
    def loss(w: Any, b: Any) -> Any:
        image = x[:, :16].reshape(len(x), 4, 4, 1)
        filters = w[:9].reshape(3, 3, 1, 10)
        h = conv_general(image, filters, **SAME)
        h = nn.max_pool(nn.relu(h + b), 2)
        return cross_entropy(h.reshape(len(x), -1) - h.sum(), y)

    return td.value_and_grad(loss, (0, 1))(w, b)


def vmapped_step(w: Any, b: Any, x: Any, y: Any) -> Any:
    def one(w: Any, b: Any, x: Any, y: Any) -> Any:
        return -nn.log_softmax(tnp.tanh(x @ w + b))[y]

    def loss(w: Any, b: Any) -> Any:
        return td.vmap(one, (None, None, 0, 0))(w, b, x, y).sum() / len(x)

    return td.value_and_grad(loss, (0, 1))(w, b)


STEPS = [dense_step, recurrent_step, attention_step, convolution_step, vmapped_step]


@pytest.mark.parametrize("step", STEPS)
def test_a_batch_of_one_has_the_kernels_of_any_other(step: Callable[..., Any]) -> None:
    w, b = tnp.ones((33, 10)), tnp.zeros(10)

    def kernels(size: int) -> set[Nest]:
        return kernels_of(step, w, b, tnp.ones((size, 33)), tnp.arange(size) % 10)

    assert kernels(1) == kernels(3) == kernels(64)


def test_axes_of_length_one_by_construction_are_no_loops() -> None:
    """What `keepdims`, None and broadcasts make has length 1 in every call."""

    def f(x: Any) -> Any:
        rows = tnp.mean(x, axis=1, keepdims=True)
        return tnp.exp(rows) * 2 + tnp.sqrt(rows), x[:, None, :] * 2

    for nest in kernels_of(f, ROWS):
        assert nest.outer <= 1


@pytest.mark.parametrize(("length", "kernels"), [(3, 2), (8, 2), (9, 1), (40, 1)])
def test_what_is_dear_once_a_short_row_is_a_kernel_along_rows(
    length: int, kernels: int
) -> None:
    """Within the rows, it would be computed for one number at a time."""

    def forces(x: Any) -> Any:
        return (tnp.sum(x * x, -1) + 0.01) ** -1.5

    x = np.random.default_rng(0).normal(size=(70, length)).astype(np.float32)
    assert len(steps_of(forces, x)) == kernels
    expected = (np.sum(x.astype(np.float64) ** 2, -1) + 0.01) ** -1.5
    found = td.jit(forces)(x)
    np.testing.assert_allclose(found, expected, 1e-5)
    np.testing.assert_array_equal(td.jit(forces)(x[:5]), found[:5])
    sized = td.jit(forces, dynamic={"x": ("n", "k")})
    assert np.array_equal(sized(x), found)
    assert np.array_equal(sized(x[:, :2]), td.jit(forces)(x[:, :2]))


def test_both_words_of_split_keys_are_made_at_once_along_many_keys() -> None:
    keys = rng.split(rng.key(0), 100)
    split = td.vmap(lambda key: rng.split(key, 3))
    (step,) = stages(td.jit(split).graph(keys), CPUTarget()).plan.steps
    names = [i.name for i in step.launch.nest.body]
    assert names.count("threefry2x32") == 2
    assert step.launch.inner == 100
