"""Normalisation: formulas, running statistics, halves."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import treadle.numpy as tnp
from tests.nn.oracle import agree_layer, close, random
from treadle import nn, tree


def standard(x, axes=-1, eps=1e-5):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(axes, keepdims=True) + eps)


def varied(layer):
    """The layer with parameters that are not zeros and ones."""
    leaves, form = tree.flatten(layer)
    return form.unflatten(
        [x + 0.5 * random(*x.shape, seed=i) for i, x in enumerate(leaves)]
    )


def test_layer_norm():
    x = 3 * random(2, 5, 6) + 1
    agree_layer(varied(nn.LayerNorm(6)), lambda w, b, x: standard(x) * w + b, x)
    agree_layer(nn.LayerNorm(6, scale=False, bias=False), standard, x)


def test_rms_norm():
    def formula(w, x):
        return w * x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)

    agree_layer(varied(nn.RMSNorm(6)), formula, 3 * random(4, 6))


@pytest.mark.parametrize("shape", [(8, 3), (2, 4, 4, 3)])
def test_batch_norm_in_training(shape):
    axes = tuple(range(len(shape) - 1))
    weights = varied(nn.BatchNorm(3))
    fixed = (weights.mean, weights.var)

    class Train(nn.Module):
        weight: object
        bias: object

        def __call__(self, x):
            cells = dict(zip(("mean", "var"), fixed, strict=True))
            layer = weights.replace(weight=self.weight, bias=self.bias, **cells)
            return nn.stateful(layer)(x)[0]

    agree_layer(
        Train(weights.weight, weights.bias),
        lambda w, b, x: standard(x, axes) * w + b,
        2 * random(*shape) + 1,
        tolerance=1e-4,
    )


def test_batch_norm_in_inference():
    layer = nn.inference(varied(nn.BatchNorm(3)))
    layer = layer.replace(var=nn.State(tnp.array([0.5, 1.0, 2.0])))
    cells = layer.mean.value, layer.var.value
    weight, bias, mean, var = map(np.asarray, (layer.weight, layer.bias, *cells))

    def formula(x):
        return (x - mean) / jnp.sqrt(var + 1e-5) * weight + bias

    x = random(4, 3)
    close(layer(tnp.asarray(x)), formula(x))


def test_running_statistics():
    layer = nn.BatchNorm(3, momentum=0.25)
    batches = [2 * random(10, 3, seed=s) + 3 for s in range(3)]
    mean, var = np.zeros(3), np.ones(3)
    for x in batches:
        _, layer = nn.stateful(layer)(tnp.asarray(x))
        mean = 0.75 * mean + 0.25 * x.mean(0)
        var = 0.75 * var + 0.25 * x.var(0, ddof=1)
    close(layer.mean.value, mean.astype(np.float32))
    close(layer.var.value, var.astype(np.float32))


@pytest.mark.parametrize("layer", [nn.LayerNorm(64), nn.RMSNorm(64), nn.BatchNorm(64)])
def test_halves_are_computed_in_float32(layer):
    x = tnp.asarray(100 * random(8, 64) + 1000)
    half = tree.map(lambda p: p.astype(tnp.bfloat16), layer)
    found, _ = nn.stateful(half)(x.astype(tnp.bfloat16))
    expected, _ = nn.stateful(layer)(x.astype(tnp.bfloat16).astype(tnp.float32))
    assert found.dtype == tnp.bfloat16
    difference = found.astype(tnp.float32) - expected
    assert np.abs(np.asarray(difference)).max() < 0.02


@pytest.mark.parametrize("layer", [nn.LayerNorm(4), nn.RMSNorm(4), nn.BatchNorm(4)])
def test_errors(layer):
    name = type(layer).__name__
    with pytest.raises(
        ValueError, match=rf"{name} takes.*features=4\), got f32\[4,3\]"
    ):
        layer(tnp.ones((4, 3)))


@pytest.mark.parametrize("x", [np.ones((1, 4)), np.ones(4), np.ones((0, 4))])
def test_statistics_of_too_few_values(x):
    with pytest.raises(ValueError, match="two or more values per channel"):
        nn.stateful(nn.BatchNorm(4))(tnp.asarray(x, tnp.float32))


@pytest.mark.parametrize("layer", [nn.LayerNorm(4), nn.RMSNorm(4), nn.BatchNorm(4)])
def test_integers_are_normalised_as_float32(layer):
    x = tnp.arange(12).reshape(3, 4) * tnp.array([1, 3, 2, 5])
    found, _ = nn.stateful(layer)(x)
    expected, _ = nn.stateful(layer)(x.astype(tnp.float32))
    close(found, expected)
