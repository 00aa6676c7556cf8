"""Initialisers: spread, bounds, dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest

import treadle.numpy as tnp
from treadle import nn, rng

SHAPE = (3, 20, 50)
FAN_IN, FAN_OUT = 60, 150

VARIANCES = {
    "fan_in_uniform": 1 / (3 * FAN_IN),
    "lecun_normal": 1 / FAN_IN,
    "lecun_uniform": 1 / FAN_IN,
    "glorot_normal": 2 / (FAN_IN + FAN_OUT),
    "glorot_uniform": 2 / (FAN_IN + FAN_OUT),
    "he_normal": 2 / FAN_IN,
    "he_uniform": 2 / FAN_IN,
    "standard_normal": 1.0,
}


@pytest.mark.parametrize("name", VARIANCES)
def test_variance(name):
    x = np.asarray(getattr(nn.init, name)(rng.key(0), SHAPE))
    assert x.shape == SHAPE and x.dtype == np.float32
    assert abs(x.mean()) < 0.1 * x.std()
    assert x.var() == pytest.approx(VARIANCES[name], rel=0.1)


def test_bounds():
    uniform = np.asarray(nn.init.uniform(0.5)(rng.key(0), (1000,)))
    assert uniform.min() >= -0.5 and uniform.max() < 0.5
    cut = np.asarray(nn.init.truncated_normal(1.0)(rng.key(0), (10_000,)))
    assert np.abs(cut).max() <= 2 / 0.8796 and cut.std() == pytest.approx(1, rel=0.05)


def test_constants_and_dtypes():
    key = rng.key(0)
    assert nn.init.zeros(key, (2,), tnp.float16).dtype == tnp.float16
    assert nn.init.ones(key, (2,)).tolist() == [1, 1]
    assert nn.init.constant(3.0)(key, (2,)).tolist() == [3, 3]
    assert nn.init.normal(0.1)(key, (2,), tnp.bfloat16).dtype == tnp.bfloat16
    assert nn.init.he_normal(key, (2, 2), tnp.float64).dtype == tnp.float64


def test_fans():
    assert nn.init.fans((4, 5)) == (4, 5)
    assert nn.init.fans((7,)) == (7, 7)
    assert nn.init.fans(()) == (1, 1)
    assert math.prod(nn.init.fans(SHAPE)) == FAN_IN * FAN_OUT


def test_what_variance_scaling_takes():
    with pytest.raises(ValueError, match=r"mode is one of fan_in.*got 'fanin'"):
        nn.init.variance_scaling(1.0, "fanin", "normal")
    with pytest.raises(ValueError, match=r"distribution is one of.*got 'gauss'"):
        nn.init.variance_scaling(1.0, "fan_in", "gauss")
