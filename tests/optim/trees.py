"""Parameters, gradients and runs that the optimizer tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax

import treadle as td
import treadle.numpy as tnp
from treadle import optim, tree

STEPS = 25


def parameters(dtype: Any = np.float32) -> dict[str, Any]:
    """A small nested tree as NumPy arrays."""
    rng = np.random.default_rng(0)
    return {
        "layers": [
            {"weight": rng.normal(size=(3, 4)).astype(dtype)},
            {"weight": rng.normal(size=(4,)).astype(dtype)},
        ],
        "bias": rng.normal(size=()).astype(dtype),
    }


def gradients(params: Any, steps: int = STEPS) -> Iterator[Any]:
    """A gradient for each step, of scales from 1e-4 to 10, now and then zero."""
    rng = np.random.default_rng(1)
    for step in range(steps):
        size = 0.0 if step == 7 else 10.0 ** rng.uniform(-4, 1)
        yield jax.tree.map(
            lambda p, s=size: (s * rng.normal(size=p.shape)).astype(p.dtype), params
        )


def run(optimizer: optim.Transform, params: Any, steps: int = STEPS) -> list[Any]:
    """The parameters after each step of a compiled run."""
    values = tree.map(tnp.asarray, params)
    state = optimizer.init(values)

    @td.jit
    def step(values: Any, state: Any, grads: Any) -> Any:
        updates, state = optimizer.update(grads, state, values)
        return optim.apply_updates(values, updates), state

    path = []
    for grads in gradients(params, steps):
        values, state = step(values, state, tree.map(tnp.asarray, grads))
        path.append(values)
    return path


def run_optax(optimizer: Any, params: Any, steps: int = STEPS) -> list[Any]:
    """The same by Optax."""
    values = jax.tree.map(jax.numpy.asarray, params)
    state = optimizer.init(values)

    @jax.jit
    def step(values: Any, state: Any, grads: Any) -> Any:
        updates, state = optimizer.update(grads, state, values)
        return optax.apply_updates(values, updates), state

    path = []
    for grads in gradients(params, steps):
        values, state = step(values, state, grads)
        path.append(values)
    return path


def assert_close(
    ours: Any, theirs: Any, rtol: float = 2e-5, atol: float = 2e-6
) -> None:
    """Leaf by leaf, with the place in the message."""
    ours_flat = tree.flatten_with_path(ours)[0]
    theirs_flat = jax.tree.leaves(theirs)
    assert len(ours_flat) == len(theirs_flat)
    for (path, a), b in zip(ours_flat, theirs_flat, strict=True):
        np.testing.assert_allclose(
            np.asarray(a, np.float64),
            np.asarray(b, np.float64),
            rtol=rtol,
            atol=atol,
            err_msg=tree.key_name(path),
        )


def traces(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """The jitted function, and a list that grows by one whenever it is traced."""
    count: list[int] = []

    def counted(*args: Any) -> Any:
        count.append(1)
        return function(*args)

    return td.jit(counted), count
