"""repr and summary."""

from __future__ import annotations

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng

KEY = rng.key(0)


def test_repr_of_layers():
    assert repr(nn.Sequential(nn.Dropout(0.5), nn.relu)) == (
        "Sequential(layers=("
        "Dropout(rate=0.5, broadcast_axes=(), inference=False), relu))"
    )
    assert repr(nn.BatchNorm(2).mean) == "State(value=f32[2])"


def test_summary():
    model = nn.Sequential(nn.Linear(2, 300, key=KEY), nn.BatchNorm(300))
    assert nn.summary(model) == (
        "array                type                    elements     bytes\n"
        "layers.0.weight      f32[2,300]                   600  2.34 KiB\n"
        "layers.0.bias        f32[300]                     300  1.17 KiB\n"
        "layers.1.weight      f32[300]                     300  1.17 KiB\n"
        "layers.1.bias        f32[300]                     300  1.17 KiB\n"
        "layers.1.mean.value  f32[300] (not trained)       300  1.17 KiB\n"
        "layers.1.var.value   f32[300] (not trained)       300  1.17 KiB\n"
        "Sequential           trainable                  1,500  5.86 KiB\n"
        "Sequential           not trained                  600  2.34 KiB"
    )


def test_counts():
    model = nn.Sequential(nn.Linear(2, 3, key=KEY), nn.BatchNorm(3))
    assert nn.count(model) == 9 + 6
    assert list(nn.parameters(model)) == [
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.weight",
        "layers.1.bias",
    ]
    assert nn.count({"steps": tnp.arange(3), "x": tnp.ones(2)}) == 2
    assert nn.count([]) == 0


def test_models_that_were_never_made():
    model = td.eval_shape(lambda key: nn.Linear(50_000, 60_000, key=key), KEY)
    assert nn.count(model) == 50_001 * 60_000
    assert "11.2 GiB" in nn.summary(model)
    assert "weight=f32[50000,60000]" in repr(model)


def test_empty_models_print():
    empty = nn.Sequential()
    assert repr(empty) == "Sequential(layers=())"
    assert "trainable" in nn.summary(empty)
