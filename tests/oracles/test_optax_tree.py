"""Arithmetic of trees against Optax's, and what states have by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.optim.trees import assert_close, parameters
from treadle import optim, rng, tree

X, Y = parameters(), jax.tree.map(lambda x: x * x - 1, parameters())
COMPLEX = jax.tree.map(lambda x, y: x + 1j * y, X, Y)
TABLE: dict[str, tuple] = {
    "add": (X, Y, X),
    "sub": (X, Y),
    "mul": (X, Y),
    "div": (X, Y),
    "scale": (3.0, X),
    "add_scale": (X, 3.0, Y),
    "where": (False, X, Y),
    "clip": (X, -0.5, 0.7),
    "conj": (COMPLEX,),
    "real": (COMPLEX,),
    "vdot": (COMPLEX, X),
    "sum": (X,),
    "max": (X,),
    "min": (X,),
    "size": (X,),
    "zeros_like": (X,),
    "ones_like": (X, "int32"),
    "full_like": (X, 5),
    "cast": (X, "float16"),
    "cast_like": (X, jax.tree.map(lambda x: x.astype("float16"), X)),
}


@pytest.mark.parametrize("name", TABLE)
def test_trees_are_optax(name: str) -> None:
    ours, theirs = getattr(optim.tree, name), getattr(optax.tree, name)
    expected = [np.asarray(x) for x in jax.tree.leaves(theirs(*TABLE[name]))]
    args = [tree.map(_array, arg) for arg in TABLE[name]]
    compiled = td.jit(lambda first: ours(first, *args[1:]))
    for found in (ours(*args), compiled(args[0])):
        leaves = [np.asarray(x) for x in tree.leaves(found)]
        assert len(leaves) == len(expected)
        for mine, other in zip(leaves, expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-6)
            assert mine.dtype == other.dtype or name == "size"


def _array(x: Any) -> Any:
    return tnp.asarray(x) if isinstance(x, np.ndarray | np.generic) else x


def test_random_trees_are_optax() -> None:
    found = optim.tree.random_like(rng.key(4), tree.map(tnp.asarray, X))
    assert_close(found, optax.tree.random_like(jax.random.key(4), X), rtol=1e-5)
    keys = optim.tree.split_key_like(rng.key(4), {"a": 1, "b": 2})
    theirs = optax.tree.split_key_like(jax.random.key(4), {"a": 1, "b": 2})
    assert np.asarray(rng.key_data(keys["b"])).tolist() == list(
        np.asarray(jax.random.key_data(theirs["b"]))
    )
    halves = optim.tree.random_like(rng.key(0), X, rng.uniform, td.float16)
    assert halves["bias"].dtype == td.float16


def loss(params: Any, x: Any, y: Any, tanh: Callable) -> Any:
    return ((tanh(x @ params["w"]) + params["b"] - y) ** 2).sum()


W = {"w": np.array([0.3, -1.2, 0.7], np.float32), "b": np.array(0.5, np.float32)}
DATA = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
BATCH = DATA[0], DATA[1, :, 0]


def test_second_order() -> None:
    params, other = tree.map(tnp.asarray, W), jax.tree.map(lambda x: x + 1, W)

    def theirs(p: Any) -> Any:
        return loss(p, *BATCH, jnp.tanh)

    expected = jax.jvp(jax.grad(theirs), (W,), (other,))[1]
    found = optim.hvp(loss, params, tree.map(tnp.asarray, other), *BATCH, tnp.tanh)
    assert_close(found, expected, 1e-4, 1e-5)
    matrix = jax.hessian(theirs)(W)
    diagonal = optim.hessian_diag(loss, params, *BATCH, tnp.tanh)
    np.testing.assert_allclose(diagonal["w"], np.diag(matrix["w"]["w"]), rtol=1e-4)
    np.testing.assert_allclose(diagonal["b"], matrix["b"]["b"], rtol=1e-5)


def test_fisher_diag() -> None:
    params = tree.map(tnp.asarray, W)
    found = optim.fisher_diag(lambda p, x, y: loss(p, x, y, tnp.tanh), params, *BATCH)
    squares = [jax.grad(loss)(W, x, y, jnp.tanh) for x, y in zip(*BATCH, strict=True)]
    for name in W:
        expected = np.mean([np.asarray(g[name]) ** 2 for g in squares], 0)
        np.testing.assert_allclose(found[name], expected, rtol=1e-4)


def test_safe_norm() -> None:
    x = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    for least in (0.0, 6.0):

        def ours(x: Any, least: float = least) -> Any:
            return optim.safe_norm(x, least, axis=1).sum()

        def theirs(x: Any, least: float = least) -> Any:
            return optax.safe_norm(x, least, axis=1).sum()

        assert float(ours(tnp.asarray(x))) == float(theirs(x))
        np.testing.assert_allclose(td.grad(ours)(tnp.asarray(x)), jax.grad(theirs)(x))
