"""Programs of `lax`, in rows: a function of the module and of arrays, and arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """`function` takes `jax.lax` or `treadle.lax`, then arrays.

    smooth: whether derivatives are compared, in the arguments that are floats.
    mapped: whether it is compared under vmap.
    close: what scales the tolerance.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    smooth: bool = True
    mapped: bool = True
    close: float = 8


def floats(*shape: int, seed: int = 0, low: float = -2, high: float = 2) -> Any:
    rng = np.random.default_rng([seed, *shape])
    return rng.uniform(low, high, shape).astype(np.float32)


def inside(*shape: int) -> Any:
    return floats(*shape, seed=5, low=-0.9, high=0.9)


def positive(*shape: int, seed: int = 1) -> Any:
    return floats(*shape, seed=seed, low=1.1, high=3)


def ints(*shape: int, low: int = -9, high: int = 9, dtype: str = "int32") -> Any:
    rng = np.random.default_rng([2, *shape])
    return rng.integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> Any:
    return np.random.default_rng([3, *shape]).random(shape) < 0.5


def complexes(*shape: int) -> Any:
    return (floats(*shape) + 1j * floats(*shape, seed=9)).astype(np.complex64)
