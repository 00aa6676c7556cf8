"""Initialisers of JAX's names against JAX's, number by number."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from treadle import nn, rng

AXES: list[dict[str, Any]] = [
    {},
    {"in_axis": 0, "out_axis": (1, 2)},
    {"in_axis": (0, 1), "batch_axis": 2, "out_axis": 3},
    {"in_axis": 1, "out_axis": -1, "batch_axis": (0,)},
]


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg", "fan_geo_avg"])
def test_variance_scaling(mode: Any, axes: dict[str, Any]) -> None:
    distributions: Any = ("uniform", "normal", "truncated_normal")
    for distribution in distributions:
        ours = nn.init.variance_scaling(2.0, mode, distribution, **axes)
        theirs = jax.nn.initializers.variance_scaling(2.0, mode, distribution, **axes)
        shape = (4, 3, 5, 2)
        close(ours(rng.key(1), shape), theirs(jax.random.key(1), shape))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 3, 4, 5), (4, 0)])
@pytest.mark.parametrize("axis", [-1, 0])
def test_orthogonal(shape: tuple[int, ...], axis: int) -> None:
    expected = jax.nn.initializers.orthogonal(2.0, axis)(jax.random.key(1), shape)
    close(nn.init.orthogonal(2.0, axis)(rng.key(1), shape), expected)


@pytest.mark.parametrize("shape", [(3, 3, 3), (4, 3, 2, 6), (1, 2, 3, 4, 4)])
def test_delta_orthogonal(shape: tuple[int, ...]) -> None:
    expected = jax.nn.initializers.delta_orthogonal(0.5)(jax.random.key(1), shape)
    close(nn.init.delta_orthogonal(0.5)(rng.key(1), shape), expected)


@pytest.mark.parametrize("name", ["glorot", "he", "lecun"])
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_named(name: str, kind: str) -> None:
    theirs = getattr(jax.nn.initializers, f"{name}_{kind}")()
    found = getattr(nn.init, f"{name}_{kind}")(rng.key(1), (3, 4, 5))
    close(found, theirs(jax.random.key(1), (3, 4, 5)))


def close(found: Any, expected: Any) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)
