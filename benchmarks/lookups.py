"""Rows of `operations.py`: reads and writes where data say, counts, searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import treadle as td
import treadle.numpy as tnp

Function = Callable[..., Any]
rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype("float32")


def rows() -> Iterator[Any]:
    """What it is, the function in Treadle and in JAX, and its arguments."""
    table, updates, line = normal(10_000, 4), normal(50_000, 4), normal(100_000)
    ids = rng.integers(0, 10_000, 50_000, dtype="int32")
    points = normal(10_000, 3)
    order = rng.permutation(100_000).astype("int32")
    few = rng.integers(0, 1000, 20, dtype="int32")
    square, columns = normal(1000, 1000), rng.integers(0, 1000, 500, dtype="int32")
    functions: dict[str, tuple[Function, *tuple[np.ndarray, ...]]] = {
        "50000 rows of 4 read": (lambda np, x, i: x[i], table, ids),
        "50000 rows of 3 read": (lambda np, x, i: x[i], points, ids),
        "50000 rows of 8 read": (lambda np, x, i: x[i], normal(10_000, 8), ids),
        "differences of 50000 pairs of rows of 3": (
            lambda np, x, i: x[i] - x[i[::-1]],
            *(points, ids),
        ),
        "2 of 3 columns of 100000 rows": (
            lambda np, x, i: np.take(x, i, axis=1),
            *(normal(100_000, 3), np.array([2, 0], "int32")),
        ),
        "30000 rows of 3 padded at both ends": (
            lambda np, x: np.pad(x, ((0, 0), (1, 1))),
            normal(30_000, 3),
        ),
        "50000 rows of 4 written": (
            lambda np, x, i, u: x.at[i].set(u),
            *(table, ids, updates),
        ),
        "50000 rows of 4 added": (
            lambda np, x, i, u: x.at[i].add(u),
            *(table, ids, updates),
        ),
        "100000 numbers written in any order": (
            lambda np, x, i: x.at[i].set(x),
            *(line, order),
        ),
        "100000 numbers read back to front": (lambda np, x: x[::-1] + x, line),
        "100000 numbers with one put in": (lambda np, x: np.insert(x, 50, 3.0), line),
        "which of 100000 numbers occur among 20": (
            lambda np, x, y: np.isin(x, y),
            *(order, few),
        ),
        "100000 numbers in 20 bins": (
            lambda np, x: np.digitize(x, np.linspace(-2.0, 2.0, 20)),
            line,
        ),
        "100000 numbers counted in 10 bins": (
            lambda np, x: np.bincount(x % 10, length=10),
            order,
        ),
        "convolution of 100000 with 31": (
            lambda np, x, y: np.convolve(x, y),
            *(line, normal(31)),
        ),
        "500 of 1000 columns read": (lambda np, x, i: x[:, i], square, columns),
        "500 of 1000 columns added to": (
            lambda np, x, i: x.at[:, i].add(x[:, : len(i)]),
            *(square, columns),
        ),
        "3 of each of 10000 rows of 16": (
            lambda np, x, i: np.take_along_axis(x, i, 1),
            *(normal(10_000, 16), rng.integers(0, 16, (10_000, 3), dtype="int32")),
        ),
        "20000 rows of 4 joined": (
            lambda np, x: np.concatenate([x, x], -1),
            normal(20_000, 4),
        ),
    }
    for title, (function, *arrays) in functions.items():
        yield title, partial(function, tnp), partial(function, jnp), tuple(arrays)
    yield from draws()


def draws() -> Iterator[Any]:
    """Random numbers that loops draw, and orders of them."""
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "10 of 100000 drawn without replacement": lambda draw, key: draw.categorical(
            key, np.zeros(100_000, "float32"), shape=(10,), replace=False
        ),
        "100000 binomial numbers": lambda draw, key: draw.binomial(
            key, 10.0, 0.3, (100_000,)
        ),
        "100000 numbers of Poisson's": lambda draw, key: draw.poisson(
            key, 3.0, (100_000,)
        ),
    }
    for title, function in functions.items():

        def ours(words: Any, function: Any = function) -> Any:
            return function(td.rng, td.rng.wrap_key_data(words))

        def theirs(words: Any, function: Any = function) -> Any:
            return function(jax.random, jax.random.wrap_key_data(words))

        yield title, ours, theirs, (np.array([0, 1], "uint32"),)
