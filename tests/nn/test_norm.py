"""Normalisation: formulas, running statistics, halves."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import agree_layer, close, random
from treadle import nn, rng, tree


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


NORMS = [
    nn.LayerNorm(64),
    nn.RMSNorm(64),
    nn.BatchNorm(64),
    nn.GroupNorm(4, 64),
    nn.InstanceNorm(64, spatial_axes=1),
]


@pytest.mark.parametrize("layer", NORMS)
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


def test_errors_of_axes():
    with pytest.raises(ValueError, match=r"\*features=\(3, 4\)\), got f32\[4,3\]"):
        nn.LayerNorm((3, 4))(tnp.ones((4, 3)))
    with pytest.raises(ValueError, match="5 features can't be split in 2 groups"):
        nn.GroupNorm(2, 5)
    with pytest.raises(
        ValueError, match=r"GroupNorm was made for 3 spatial.*f32\[2,4\]"
    ):
        nn.GroupNorm(2, 4, spatial_axes=3)(tnp.ones((2, 4)))
    for shape in ((3, 4), (3, 1, 4)):
        with pytest.raises(ValueError, match="InstanceNorm takes statistics of two"):
            nn.InstanceNorm(4)(tnp.ones(shape))


def test_initialisers_and_dtypes():
    draw = nn.init.normal(0.1)
    layer = nn.LayerNorm(4, weight_init=draw, key=rng.key(0), param_dtype=tnp.float16)
    assert layer.weight.dtype == layer.bias.dtype == tnp.float16
    assert layer.weight.tolist() != [1] * 4
    with pytest.raises(TypeError, match="takes a random key, got NoneType"):
        nn.LayerNorm(4, weight_init=draw)
    wide = nn.BatchNorm(4, dtype=tnp.float32, param_dtype=tnp.bfloat16)
    assert (wide.weight.dtype, wide.mean.value.dtype) == (tnp.bfloat16, tnp.float32)
    assert nn.stateful(wide)(tnp.ones((2, 4), tnp.bfloat16))[0].dtype == tnp.float32


def test_a_model_of_float32_stays_so():
    for layer in NORMS:
        with pytest.warns(nn.PrecisionWarning, match=type(layer).__name__):
            out, _ = nn.stateful(layer)(tnp.ones((2, 3, 64), tnp.float64))
        assert out.dtype == tnp.float32


def through(model, x):
    return nn.stateful(model)(x)


@pytest.mark.parametrize("transform", [lambda f: f, td.jit])
@pytest.mark.parametrize("shape", [(8, 3), (4, 5, 3)])
def test_statistics_over_a_mapped_axis(shape, transform):
    """Examples that are mapped over are one batch, with its state and gradients."""
    x = tnp.asarray(2 * random(*shape) + 1)
    whole = varied(nn.BatchNorm(3))
    shared = whole.replace(axis_name="batch")
    mapped = transform(
        td.vmap(through, in_axes=(None, 0), out_axes=(0, None), axis_name="batch")
    )
    expected, after = through(whole, x)
    found, mapped_after = mapped(shared, x)
    close(found, expected)
    close(mapped_after.mean.value, after.mean.value)
    close(mapped_after.var.value, after.var.value)

    def loss(call):
        return lambda model, x: (call(model, x)[0] ** 3).sum()

    ours = td.grad(loss(mapped), (0, 1))(shared, x)
    theirs = td.grad(loss(through), (0, 1))(whole, x)
    close(ours[1], theirs[1], 1e-4)
    close(ours[0].weight, theirs[0].weight, 1e-4)


def test_statistics_over_two_mapped_axes():
    x = tnp.asarray(random(2, 4, 3))
    model = nn.BatchNorm(3, axis_name=("a", "b"))
    axes = {"in_axes": (None, 0), "out_axes": (0, None)}
    inner = td.vmap(through, axis_name="b", **axes)
    found, after = td.vmap(inner, axis_name="a", **axes)(model, x)
    expected, whole = through(nn.BatchNorm(3), x)
    close(found, expected)
    close(after.var.value, whole.var.value)


def test_a_mean_of_all_batches():
    layer = nn.BatchNorm(3, momentum=None)
    batches = [2 * random(10, 3, seed=s) + 3 for s in range(4)]
    for x in batches:
        _, layer = nn.stateful(layer)(tnp.asarray(x))
    close(layer.mean.value, np.mean([x.mean(0) for x in batches], 0))
    close(layer.var.value, np.mean([x.var(0, ddof=1) for x in batches], 0))
    assert layer.batches.value.item() == 4


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


@pytest.mark.parametrize("make", [nn.BatchNorm, lambda n, **k: nn.GroupNorm(2, n, **k)])
def test_second_derivatives_are_those_of_finite_differences(make):
    # What the first derivative leaves out because it is zero has a derivative.
    layer = make(4, dtype=tnp.float64)
    x, v = (tnp.asarray(np.float64(random(3, 5, 4, seed=i))) for i in (0, 1))

    def slope(x):
        return td.grad(lambda x: tnp.sum(tnp.sin(nn.stateful(layer)(x)[0])))(x)

    ahead, behind = slope(x + 1e-5 * v), slope(x - 1e-5 * v)
    _, found = td.jvp(slope, (x,), (v,))
    np.testing.assert_allclose(found, (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-8)
