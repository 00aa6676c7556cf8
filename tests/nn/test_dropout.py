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


RANDOM = [
    nn.AlphaDropout(0.3),
    nn.DropPath(0.3),
    nn.GaussianDropout(0.3),
    nn.GaussianNoise(0.5),
    nn.RReLU(),
]


@pytest.mark.parametrize("layer", RANDOM, ids=lambda layer: type(layer).__name__)
def test_other_layers_in_a_scope_and_in_inference(layer):
    x = tnp.asarray(ONES.reshape(100, 100) - 2)
    first, second = (nn.stateful(layer, key=rng.key(i))(x)[0] for i in (0, 1))
    assert first.tolist() != second.tolist()
    half, _ = nn.stateful(layer, key=rng.key(0))(x.astype(tnp.bfloat16))
    assert half.dtype == tnp.bfloat16
    with pytest.raises(RuntimeError, match=f"{type(layer).__name__} needs a random"):
        layer(x)
    if not isinstance(layer, nn.RReLU):
        assert nn.inference(layer)(x) is x


@pytest.mark.parametrize(
    ("layer", "mean", "variance"),
    [
        (nn.Dropout(0.3), 1.0, 0.3 / 0.7),
        (nn.DropPath(0.3), 1.0, 0.3 / 0.7),
        (nn.GaussianDropout(0.3), 1.0, 0.3 / 0.7),
        (nn.GaussianNoise(0.3), 1.0, 0.09),
    ],
)
def test_means_and_variances(layer, mean, variance):
    out = np.asarray(layer(tnp.asarray(ONES[:, None]), key=rng.key(2)))
    assert out.mean() == pytest.approx(mean, abs=0.02)
    assert out.var() == pytest.approx(variance, rel=0.05)


def test_alpha_dropout_keeps_mean_and_variance():
    x = rng.normal(rng.key(0), (200, 500))
    for axes in ((), 1):
        layer = nn.AlphaDropout(0.4, broadcast_axes=axes)
        out = np.asarray(layer(x, key=rng.key(1)))
        assert out.mean() == pytest.approx(0, abs=0.1)
        assert out.std() == pytest.approx(1, abs=0.05)
    rows = {tuple(row) for row in out.tolist() if len(set(row)) == 1}
    assert len(rows) == 1  # whole rows, all at the same value


def test_whole_channels():
    layer = nn.Dropout(0.5, broadcast_axes=(-3, -2))
    out = np.asarray(layer(tnp.ones((50, 4, 5, 6)), key=rng.key(0)))
    assert (out == out[:, :1, :1]).all()
    assert abs((out[:, 0, 0] == 0).mean() - 0.5) < 0.1


@pytest.mark.parametrize(("batch_axes", "count"), [(0, 1), (1, 60), (2, 300)])
def test_whole_examples(batch_axes, count):
    layer = nn.DropPath(0.5, batch_axes=batch_axes)
    out = np.asarray(layer(tnp.ones((60, 5, 4)), key=rng.key(0)))
    examples = out.reshape(count, -1)
    assert (examples == examples[:, :1]).all()
    assert count == 1 or abs((examples[:, 0] == 0).mean() - 0.5) < 0.15


def test_slopes_are_spread_evenly():
    out = np.asarray(nn.RReLU(0.1, 0.5)(tnp.asarray(-ONES), key=rng.key(0)))
    assert -0.5 <= out.min() < -0.49 and -0.11 < out.max() <= -0.1
    assert out.mean() == pytest.approx(-0.3, abs=0.01)


@pytest.mark.parametrize("layer", [nn.AlphaDropout(1.0), nn.DropPath(1.0)])
def test_nothing_is_left(layer):
    assert not np.asarray(layer(tnp.ones((3, 2)))).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.AlphaDropout(-0.1), r"AlphaDropout: rate is from 0 to 1, got -0"),
        (lambda: nn.DropPath(2), "DropPath: rate is from 0 to 1, got 2"),
        (lambda: nn.GaussianDropout(1.0), "from 0 to below 1, got 1"),
        (lambda: nn.GaussianNoise(-1.0), "stddev is 0 or more, got -1"),
        (
            lambda: nn.Dropout(0.5, broadcast_axes=2)(tnp.ones((2, 3)), key=rng.key(0)),
            r"Dropout: of the axes to broadcast over, 2 is none of f32\[2,3\]",
        ),
        (lambda: nn.RReLU(0.5, 0.1), "lower bound 0.5 is above the upper one, 0.1"),
    ],
)
def test_errors_of_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_errors():
    with pytest.raises(ValueError, match=r"from 0 to 1, got 1\.5"):
        nn.Dropout(1.5)
    with pytest.raises(RuntimeError, match=r"Dropout needs a random key"):
        nn.Dropout(0.5)(tnp.ones(2))
