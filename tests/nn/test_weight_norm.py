"""Layers whose weight is made of another one: places, shapes, the singular value."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import close, random
from treadle import nn, rng, tree

KEY, OTHER = rng.split(rng.key(0))


class Block(nn.Module):
    layers: list

    def __call__(self, x):
        return self.layers[1](self.layers[0](x))


def block():
    first, second = nn.Linear(5, 4, key=KEY), nn.Linear(4, 3, key=OTHER)
    return Block([first, second])


def test_a_weight_of_an_inner_layer():
    x = tnp.asarray(random(6, 5))
    normed = nn.WeightNorm(block(), "layers.1.weight")
    assert normed.scale.shape == (3,)
    close(normed(x), block()(x))
    double = normed.replace(scale=2 * normed.scale).folded()
    close(double.layers[1].weight, 2 * block().layers[1].weight)
    assert double.layers[0].weight is normed.layer.layers[0].weight


@pytest.mark.parametrize(("axis", "shape"), [(0, (5,)), (-1, (4,)), (None, (1,))])
def test_lengths_along_an_axis(axis, shape):
    normed = nn.WeightNorm(nn.Linear(5, 4, key=KEY), axis=axis)
    others = None if axis is None else 1 - axis % 2
    weight = np.asarray(normed.layer.weight)
    expected = np.sqrt((weight**2).sum(others)).reshape(shape)
    close(normed.scale, expected)
    longer = nn.at(normed, lambda m: m.layer.weight).apply(lambda w: 3 * w)
    close(longer.folded().weight, weight)


def test_a_direction_of_zeros():
    normed = nn.WeightNorm(nn.Linear(5, 4, key=KEY, weight_init=nn.init.zeros))
    grads = td.grad(lambda m: m(tnp.ones((2, 5))).sum())(normed)
    assert all(np.isfinite(np.asarray(g)).all() for g in tree.leaves(grads))


@pytest.mark.parametrize("axis", [-1, 0])
def test_the_largest_singular_value(axis):
    inner = nn.Linear(5, 4, key=KEY)
    normed = nn.SpectralNorm(inner, axis=axis, key=OTHER)
    for _ in range(30):
        _, normed = nn.stateful(normed)(tnp.ones((2, 5)))
    expected = np.asarray(inner.weight) / np.linalg.norm(inner.weight, 2)
    close(normed.folded().weight, expected.astype(np.float32))
    assert nn.inference(normed)(tnp.ones((2, 5))).shape == (2, 4)


def test_vectors_are_states_in_training_only():
    normed = nn.SpectralNorm(nn.Linear(5, 4, key=KEY), key=OTHER)
    x = tnp.ones((2, 5))
    with pytest.raises(RuntimeError, match="State cell was written outside"):
        normed(x)
    close(nn.inference(normed)(x), normed.folded()(x))
    grads = td.grad(lambda m: nn.stateful(m)(x)[0].sum())(normed)
    assert grads.u.value is None and grads.layer.weight.shape == (5, 4)


def test_halves_have_vectors_in_float32():
    inner = nn.Linear(64, 32, key=KEY, param_dtype=tnp.bfloat16)
    normed = nn.SpectralNorm(inner, iterations=20, key=OTHER)
    assert normed.u.value.dtype == normed.v.value.dtype == tnp.float32
    output, normed = nn.stateful(normed)(tnp.ones((2, 64)))
    assert output.dtype == tnp.bfloat16
    largest = np.linalg.norm(np.asarray(normed.folded().weight, np.float32), 2)
    assert largest == pytest.approx(1, rel=0.02)


def test_errors():
    inner = nn.Linear(5, 4, key=KEY, bias=False)
    with pytest.raises(AttributeError, match="Linear has no field `wight`"):
        nn.WeightNorm(inner, "wight")
    with pytest.raises(TypeError, match=r"WeightNorm: `bias` of Linear is no array"):
        nn.WeightNorm(inner, "bias")
    with pytest.raises(ValueError, match="iterations is 1 or more, got 0"):
        nn.SpectralNorm(inner, iterations=0, key=KEY)
