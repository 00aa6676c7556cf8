"""Dropout: what is kept, from which key, and when."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng

ONES = np.ones(10_000, np.float32)


def test_a_share_is_dropped_and_the_rest_scaled():
    out = np.asarray(nn.Dropout(0.2)(tnp.asarray(ONES), key=rng.key(0)))
    assert set(np.unique(out)) == {np.float32(0), np.float32(1 / 0.8)}
    assert abs(out.mean() - 1) < 0.02


def test_gradients_flow_where_kept():
    layer, key = nn.Dropout(0.5), rng.key(3)
    x = tnp.asarray(ONES)
    grads = td.grad(lambda x: layer(x, key=key).sum())(x)
    assert grads.tolist() == layer(x, key=key).tolist()


def test_the_scope_gives_each_layer_another_key():
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    out, _ = nn.stateful(model, key=rng.key(0))(tnp.asarray(ONES))
    assert abs((np.asarray(out) > 0).mean() - 0.25) < 0.02


@pytest.mark.parametrize("layer", [nn.Dropout(0.0), nn.Dropout(0.5, inference=True)])
def test_nothing_happens(layer):
    x = tnp.asarray(ONES)
    assert layer(x) is x


def test_everything_dropped():
    assert not np.asarray(nn.Dropout(1.0)(tnp.asarray(ONES))).any()


def test_errors():
    with pytest.raises(ValueError, match=r"from 0 to 1, got 1\.5"):
        nn.Dropout(1.5)
    with pytest.raises(RuntimeError, match=r"Dropout needs a random key"):
        nn.Dropout(0.5)(tnp.ones(2))
