"""Linear, Embedding, MLP, Sequential: formulas, shapes, errors."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import agree_layer, close, random
from treadle import nn, rng, tree

KEY = rng.key(0)


@pytest.mark.parametrize("lead", [(), (2,), (2, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(lead, bias):
    layer = nn.Linear(3, 4, bias=bias, key=KEY)
    formula = (lambda w, b, x: x @ w + b) if bias else (lambda w, x: x @ w)
    agree_layer(layer, formula, random(*lead, 3))


def test_linear_errors():
    layer = nn.Linear(3, 4, key=KEY)
    with pytest.raises(ValueError) as caught:
        layer(tnp.ones((3, 5)))
    message = str(caught.value)
    assert "Linear takes arrays of shape (..., in_features=3), got f32[3,5]" in message
    assert "test_linear.py" in message and "moveaxis" in message
    with pytest.raises(ValueError, match=r"got f32\[\]"):
        layer(tnp.array(1.0))
    with pytest.raises(ValueError, match=r"Linear takes.*got f32\[2\]"):
        td.jit(layer)(tnp.ones(2))


def test_a_layer_computes_in_its_own_dtype():
    layer = nn.Linear(3, 4, key=KEY)
    assert layer(np.ones(3, np.float16)).dtype == layer(np.ones(3, int)).dtype == "f4"
    with pytest.warns(nn.PrecisionWarning, match=r"float32, and takes a f64\[3\]"):
        assert layer(np.ones(3)).dtype == np.float32
    half = nn.Linear(3, 4, dtype=tnp.bfloat16, key=KEY)
    assert half.weight.dtype == np.float32
    assert half(tnp.ones(3)).dtype == tnp.bfloat16
    wide = nn.Linear(3, 4, param_dtype=tnp.float64, key=KEY)
    assert wide(tnp.ones(3)).dtype == np.float64
    assert layer(tnp.ones(3, np.complex64)).dtype == np.complex64


def test_parameters_are_drawn_within_bounds():
    layer = nn.Linear(100, 50, key=KEY)
    for x in (layer.weight, layer.bias):
        assert np.abs(np.asarray(x)).max() <= 0.1 < np.abs(np.asarray(x)).max() * 1.2
    other = nn.Linear(100, 50, weight_init=nn.init.zeros, key=KEY)
    assert not np.asarray(other.weight).any()
    different = nn.Linear(100, 50, key=rng.key(1))
    assert np.asarray(different.weight)[0, 0] != np.asarray(layer.weight)[0, 0]


def test_embedding():
    tokens = np.array([[1, 0, 9], [2, 2, 2]], np.int32)
    layer = nn.Embedding(10, 4, key=KEY)
    agree_layer(layer, lambda w, t: w[t], tokens)
    x = random(2, 4)
    close(layer.attend(tnp.asarray(x)), jnp.asarray(x) @ np.asarray(layer.weight).T)
    with pytest.raises(TypeError, match=r"integer tokens, got f32\[2\]"):
        layer(tnp.ones(2))


def test_mlp():
    layer = nn.MLP((3, 5, 2), activation=nn.tanh, key=KEY)
    agree_layer(
        layer,
        lambda w, b, v, c, x: jnp.tanh(x @ w + b) @ v + c,
        random(4, 3),
    )
    with pytest.raises(ValueError, match="two or more sizes"):
        nn.MLP((3,), key=KEY)


def test_sequential():
    layer = nn.Sequential(nn.Linear(3, 4, key=KEY), nn.relu, nn.LayerNorm(4))
    assert [len(tree.leaves(x)) for x in (layer, layer[0], layer[2])] == [4, 2, 2]
    x = tnp.asarray(random(2, 3))
    expected = layer[2](nn.relu(layer[0](x)))
    close(td.jit(lambda m, x: m(x))(layer, x), expected)
    assert len(layer) == 3 and list(layer)[1] is nn.relu
    with pytest.raises(TypeError, match="takes layers and functions, got 3"):
        nn.Sequential(3)
    assert layer[:-1](x).shape == (2, 4) and isinstance(layer[:-1], nn.Sequential)
    _, after = nn.stateful(nn.Sequential(nn.BatchNorm(3)))(x)
    assert after[0].mean.value.tolist() != [0.0] * 3
