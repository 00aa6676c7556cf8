"""Convolution and pooling as functions with a signature, against JAX."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
from tests.refused import refused

X = np.random.default_rng(0).normal(size=(2, 7, 4)).astype("f")
W = np.random.default_rng(1).normal(size=(3, 2, 6)).astype("f")


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({}, {}),
        ({"lhs_dilation": [2]}, {"lhs_dilation": (2,)}),
        ({"rhs_dilation": (np.int64(2),)}, {"rhs_dilation": (2,)}),
    ],
)
def test_a_convolution(options: dict[str, Any], theirs: dict[str, Any]) -> None:
    ours = td.conv_general(
        X, W, strides=[2], padding=[[1, 2]], feature_groups=2, **options
    )
    expected = jax.lax.conv_general_dilated(
        X,
        W,
        window_strides=(2,),
        padding=((1, 2),),
        feature_group_count=2,
        dimension_numbers=("NWC", "WIO", "NWC"),
        **theirs,
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["max", "sum"])
def test_windows(kind: str) -> None:
    reduce = {"max": (-np.inf, jax.lax.max), "sum": (0.0, jax.lax.add)}[kind]
    found = getattr(td, f"reduce_window_{kind}")(
        X, window=[3], strides=np.array([2]), padding=[(1, 0)]
    )
    expected = jax.lax.reduce_window(
        jnp.asarray(X), *reduce, (1, 3, 1), (1, 2, 1), ((0, 0), (1, 0), (0, 0))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_they_say_what_they_take() -> None:
    for function in (td.conv_general, td.reduce_window_max, td.reduce_window_sum):
        names = inspect.signature(function).parameters
        assert {"x", "strides", "padding"} <= set(names)
        assert "primitive" not in str(function.__doc__)


def test_wrong_options() -> None:
    pool: Any = td.reduce_window_max
    refused(
        lambda: pool(X, window=2, strides=(1,), padding=[(0, 0)]),
        ValueError,
        "reduce_window_max: window takes an int for each spatial axis, got 2",
    )
    conv: Any = td.conv_general
    for padding in ("SAME", [1], [(1, 2, 3)], 0):
        refused(
            lambda padding=padding: conv(X, W, strides=(1,), padding=padding),
            ValueError,
            "conv_general: padding takes a pair (before, after)",
            repr(padding),
        )
    refused(lambda: conv(X, W, strides=(1.5,), padding=[(0, 0)]), ValueError, "strides")
