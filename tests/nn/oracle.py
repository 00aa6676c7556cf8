"""Comparisons with JAX: values and gradients, eager and jitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import tree


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    """Equal up to a relative and absolute tolerance; of one shape and dtype."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def agree(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *xs: np.ndarray,
    tolerance: float = 2e-5,
) -> None:
    """Values of two functions, and gradients of a weighted sum of the result in every
    floating argument."""
    moving = [i for i, x in enumerate(xs) if x.dtype.kind == "f"]

    def scored(*args: Any) -> Any:
        out = theirs(*args)
        return (out * random(*out.shape, seed=99)).sum(), out

    grads, expected = jax.jit(jax.grad(scored, moving, has_aux=True))(*xs)
    weights = random(*expected.shape, seed=99)

    def loss(*args: Any) -> Any:
        return (ours(*args) * weights).sum()

    arrays = [tnp.asarray(x) for x in xs]
    for transform in (lambda f: f, td.jit):
        close(transform(ours)(*arrays), expected, tolerance)
        for found, grad in zip(
            transform(td.grad(loss, moving))(*arrays), grads, strict=True
        ):
            close(found, grad, tolerance)


def agree_layer(
    layer: Any, formula: Callable[..., Any], *xs: np.ndarray, tolerance: float = 2e-5
) -> None:
    """A layer and a formula of its parameters (in order) and inputs, also in the
    gradients of the parameters."""
    leaves, form = tree.flatten(layer)
    count = len(leaves)

    def ours(*args: Any) -> Any:
        return form.unflatten(args[:count])(*args[count:])

    agree(ours, formula, *map(np.asarray, leaves), *xs, tolerance=tolerance)
