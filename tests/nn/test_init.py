"""Initialisers: spread, bounds, dtype."""

from __future__ import annotations

import math
from typing import Any

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


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("axis", [-1, 0])
def test_orthogonal(shape, axis):
    q = np.asarray(nn.init.orthogonal(2.0, axis)(rng.key(1), shape))
    assert q.shape == shape
    q = np.moveaxis(q, axis, -1).reshape(-1, shape[axis])
    fewer = q.T @ q if q.shape[0] >= q.shape[1] else q @ q.T
    np.testing.assert_allclose(fewer, 4 * np.eye(len(fewer)), atol=1e-5)


def test_a_convolution_that_keeps_lengths():
    weight = np.asarray(nn.init.delta_orthogonal()(rng.key(0), (4, 3, 2, 6)))
    middle = weight[1, 1]
    np.testing.assert_allclose(middle @ middle.T, np.eye(2), atol=1e-6)
    assert (weight != 0).sum() == middle.size


@pytest.mark.parametrize("dtype", [tnp.bfloat16, tnp.float16, tnp.float64])
def test_orthogonal_in_other_dtypes(dtype):
    q = nn.init.orthogonal()(rng.key(0), (8, 8), dtype)
    assert q.dtype == dtype
    q = np.asarray(q, np.float64)
    tolerance = 1e-12 if dtype == tnp.float64 else 0.02
    np.testing.assert_allclose(q.T @ q, np.eye(8), atol=tolerance)


@pytest.mark.parametrize(("lower", "upper"), [(-2, 2), (-1, 3), (0, 0.5)])
def test_what_is_left_of_a_normal_distribution(lower, upper):
    x = nn.init.truncated_normal(0.1, lower, upper)(rng.key(0), (20_000,))
    assert np.asarray(x).std() == pytest.approx(0.1, rel=0.02)


def test_uniform_from_a_lower_end():
    x = np.asarray(nn.init.uniform(3.0, 2.0)(rng.key(0), (1000,)))
    assert 2 <= x.min() < 2.01 and 2.99 < x.max() <= 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.init.kaiming_normal("fan_avg"), "mode is one of fan_in, fan_out"),
        (lambda: nn.init.calculate_gain("gelu"), "nonlinearity is one of linear.*gelu"),
        (lambda: nn.init.sparse(1.5), r"from 0 to 1, got 1\.5"),
        (lambda: nn.init.sparse(0.5)(rng.key(0), (3,)), r"matrices .*shape \(3,\)"),
        (lambda: nn.init.eye(None, (3,)), r"eye makes arrays of 2 axes.*\(3,\)"),
        (lambda: nn.init.dirac()(None, (3, 3)), "dirac makes arrays of 3 to 5 axes"),
        (lambda: nn.init.dirac(2)(None, (3, 3, 3)), "3 outputs can't be split in 2"),
        (lambda: nn.init.orthogonal()(rng.key(0), (3,)), "of 2 or more axes"),
        (
            lambda: nn.init.delta_orthogonal()(rng.key(0), (3, 4, 2)),
            "no more inputs than outputs",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("given", [(), (-2, -1), (rng.key(0), 3)])
def test_initialisers_are_not_made_by_a_call(given: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"is one already(.|\n)*variance_scaling") as e:
        nn.init.glorot_normal(*given)
    assert f"at {__file__}:" in str(e.value)
