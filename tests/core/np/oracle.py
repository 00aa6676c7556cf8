"""One expression, three readings: Treadle's NumPy, the same under jit, and JAX's.

A case is a function of a module with NumPy's names (called `np` in the tables) and of
arrays. What it returns must agree in shape, dtype and value; under differentiation too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import treadle as td
import treadle.numpy as tnp

EPS = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "complex64": 1e-6}


@dataclass(frozen=True)
class Case:
    """`args` are NumPy arrays and Python numbers; `close` scales the tolerance;
    `smooth` says that the derivative may be compared."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    close: float = 4
    smooth: bool = True


def same(found: Any, expected: Any, close: float = 4) -> None:
    """Asserts equal structure, shapes, dtypes and (nearly) values."""
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            same(f, e, close)
        return
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    exact = EPS.get(expected.dtype.name, 0) * close
    wide = complex if expected.dtype.kind == "c" else float
    np.testing.assert_allclose(
        found.astype(wide), expected.astype(wide), rtol=exact, atol=exact
    )


def check(case: Case) -> None:
    """Values: eager and compiled, against JAX."""
    expected = case.function(jnp, *map(to_jax, case.args))
    same(case.function(tnp, *map(to_ours, case.args)), expected, case.close)
    compiled = td.jit(lambda *xs: case.function(tnp, *xs))
    same(compiled(*case.args), expected, case.close)


def check_batched(case: Case) -> None:
    """vmap over the first array, against the function of each example by itself."""
    place = next(i for i, x in enumerate(case.args) if isinstance(x, np.ndarray))
    x = case.args[place]
    examples = [x, np.flip(x).reshape(x.shape)]

    def function(example: Any) -> Any:
        args = [example if i == place else a for i, a in enumerate(case.args)]
        return case.function(tnp, *map(to_ours, args))

    found = td.vmap(function)(np.stack(examples))
    single = [function(e) for e in examples]
    if isinstance(single[0], list | tuple):
        for k, f in enumerate(found):
            same(f, np.stack([np.asarray(s[k]) for s in single]), case.close)
    else:
        same(found, np.stack([np.asarray(s) for s in single]), case.close)


def to_ours(x: Any) -> Any:
    return tnp.array(x) if isinstance(x, np.ndarray | np.generic) else x


def to_jax(x: Any) -> Any:
    return jnp.asarray(x) if isinstance(x, np.ndarray | np.generic) else x


def check_gradient(case: Case) -> None:
    """The gradient of a weighted sum of the results in the first float argument."""
    place = next(
        i
        for i, x in enumerate(case.args)
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
    )
    found = td.grad(lambda x: _score(tnp, case, place, x))(to_ours(case.args[place]))
    oracle = jax.jit(jax.grad(lambda x: _score(jnp, case, place, x)))
    expected = oracle(case.args[place])
    same(found, expected, 4 * case.close)


def _score(module: Any, case: Case, place: int, x: Any) -> Any:
    to_array = to_jax if module is jnp else to_ours
    args = [x if i == place else to_array(a) for i, a in enumerate(case.args)]
    out = case.function(module, *args)
    outs = out if isinstance(out, list | tuple) else [out]
    total = module.zeros((), "float32")
    for k, o in enumerate(outs):
        if o.dtype.kind == "f":
            n = int(np.prod(o.shape))
            weights = np.cos(np.arange(n) + k).astype("float32").reshape(o.shape)
            total = total + (to_array(weights) * o).sum()
    return total


def floats(*shape: int, seed: int = 0, low: float = -2, high: float = 2) -> Any:
    rng = np.random.default_rng([seed, *shape])
    return rng.uniform(low, high, shape).astype(np.float32)


def positive(*shape: int, seed: int = 1) -> Any:
    return floats(*shape, seed=seed, low=0.25, high=3)


def ints(*shape: int, seed: int = 2, low: int = -9, high: int = 9) -> Any:
    rng = np.random.default_rng([seed, *shape])
    return rng.integers(low, high, shape).astype(np.int32)


def bools(*shape: int, seed: int = 3) -> Any:
    return np.random.default_rng([seed, *shape]).random(shape) < 0.5
