"""Initialisers of PyTorch's names against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from treadle import nn, rng

torch_init: Any = torch.nn.init
KEY = rng.key(0)


def theirs(shape: tuple[int, ...], fill: Any, *args: Any, **options: Any) -> np.ndarray:
    """A weight of theirs in our layout: (*window, in, out)."""
    torch.manual_seed(0)
    weight = torch.empty(*shape[::-1][:2], *shape[:-2])
    fill(weight, *args, **options)
    return np.moveaxis(weight.numpy(), (0, 1), (-1, -2))


@pytest.mark.parametrize("name", ["xavier_uniform", "xavier_normal"])
@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_xavier(name: str, gain: float) -> None:
    _same_distribution(
        getattr(nn.init, name)(gain), getattr(torch_init, f"{name}_"), gain=gain
    )


@pytest.mark.parametrize("name", ["kaiming_uniform", "kaiming_normal"])
@pytest.mark.parametrize("mode", ["fan_in", "fan_out"])
@pytest.mark.parametrize(
    ("nonlinearity", "slope"), [("leaky_relu", 0.5), ("tanh", 0.0), ("relu", 0.0)]
)
def test_kaiming(name: str, mode: str, nonlinearity: str, slope: float) -> None:
    _same_distribution(
        getattr(nn.init, name)(mode, nonlinearity, slope),
        getattr(torch_init, f"{name}_"),
        a=slope,
        mode=mode,
        nonlinearity=nonlinearity,
    )


def _same_distribution(init: Any, fill: Any, **options: Any) -> None:
    """By its deviation, and by how far out its largest numbers are."""
    shape = (3, 3, 60, 90)
    ours = np.asarray(init(KEY, shape))
    expected = theirs(shape, fill, **options)
    assert ours.std() == pytest.approx(expected.std(), rel=0.02)
    most = np.quantile(np.abs(ours), [0.5, 0.99])
    np.testing.assert_allclose(
        most, np.quantile(np.abs(expected), [0.5, 0.99]), rtol=0.03
    )


@pytest.mark.parametrize("shape", [(5, 3, 4), (4, 5, 6, 2), (2, 2, 2, 2, 6)])
@pytest.mark.parametrize("groups", [1, 2])
def test_dirac(shape: tuple[int, ...], groups: int) -> None:
    ours = np.asarray(nn.init.dirac(groups)(KEY, shape))
    np.testing.assert_array_equal(ours, theirs(shape, torch_init.dirac_, groups))


def test_eye() -> None:
    np.testing.assert_array_equal(
        nn.init.eye(KEY, (3, 5)), theirs((3, 5), torch_init.eye_)
    )


@pytest.mark.parametrize("sparsity", [0.0, 0.33, 1.0])
def test_sparse(sparsity: float) -> None:
    ours = np.asarray(nn.init.sparse(sparsity, 0.5)(KEY, (200, 30)))
    expected = theirs((200, 30), torch_init.sparse_, sparsity, 0.5)
    for axis in (0, 1):
        zeros = (expected == 0).sum(axis)
        assert (ours == 0).sum(axis).mean() == zeros.mean()
    np.testing.assert_array_equal((ours == 0).sum(1), (expected == 0).sum(1))
    assert ours.std() == pytest.approx(expected.std(), rel=0.05)
    if sparsity == 0.33:
        assert len({tuple(row) for row in ours == 0}) == 200


@pytest.mark.parametrize("name", ["linear", "sigmoid", "tanh", "relu", "selu"])
def test_gain(name: str) -> None:
    assert nn.init.calculate_gain(name) == pytest.approx(
        torch_init.calculate_gain(name)
    )


def test_gain_of_leaky_relu() -> None:
    for slope in (0.01, 0.3):
        expected = torch_init.calculate_gain("leaky_relu", slope)
        assert nn.init.calculate_gain("leaky_relu", slope) == pytest.approx(expected)
