"""Softmax as an operation: its meaning, its formula and its derivative."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
from tests.core.fuse.graphs import traced
from treadle import dtypes
from treadle.control.softmax import softmax
from treadle.run.eager import evaluate

X = np.random.default_rng(0).normal(0, 5, (3, 4, 5)).astype(np.float32)


def formula(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    graph = traced(lambda x: softmax.lowering.formula(x, axes=axes)[0], x)
    return np.asarray(evaluate(graph, [x])[0])


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_values_and_derivatives_are_those_of_jax(axes: tuple[int, ...]) -> None:
    ours, theirs = partial(softmax, axes=axes), partial(jax.nn.softmax, axis=axes)
    wanted = theirs(X)
    for found in (ours(X), formula(X, axes), td.jit(ours)(X)):
        np.testing.assert_allclose(found, wanted, 2e-6)
    weights = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    t = X[::-1].copy()
    _, found = td.jvp(ours, (X,), (t,))
    _, wanted = jax.jvp(theirs, (X,), (t,))
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-6)
    found = td.grad(lambda x: (ours(x) * weights).sum())(X)
    wanted = jax.grad(lambda x: (theirs(x) * weights).sum())(X)
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reduced", [(0,), (1,), (0, 1)])
def test_examples(axis: int, reduced: tuple[int, ...]) -> None:
    found = td.vmap(partial(softmax, axes=reduced), axis, axis)(X)
    for i in range(X.shape[axis]):
        one = softmax(np.take(X, i, axis), axes=reduced)
        np.testing.assert_allclose(np.take(np.asarray(found), i, axis), one, 1e-6)


def test_large_numbers_and_nothing() -> None:
    x = np.float32([[1e38, 1e38, 0], [-1e38, -3e38, -np.inf]])
    for found in (softmax(x, axes=(1,)), formula(x, (1,))):
        np.testing.assert_array_equal(found, [[0.5, 0.5, 0], [1, 0, 0]])
    for shape in ((0, 3), (3, 0)):
        empty = np.zeros(shape, np.float32)
        assert np.asarray(softmax(empty, axes=(1,))).shape == shape
        assert formula(empty, (1,)).shape == shape


def test_half_floats_are_computed_in_single_precision() -> None:
    x = (X / 4).astype(dtypes.float16)
    wanted = np.asarray(softmax(x.astype(np.float32), axes=(2,))).astype(np.float16)
    for found in (softmax(x, axes=(2,)), formula(x, (2,))):
        assert np.asarray(found).dtype == np.float16
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64"])
def test_others_have_none(dtype: Any) -> None:
    with pytest.raises(TypeError, match=f"softmax is not defined for dtype {dtype}"):
        softmax(np.ones((2, 2), dtype), axes=(1,))
