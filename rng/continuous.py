"""Continuous distributions made of uniform numbers by a formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import treadle.numpy as tnp
from treadle import Array
from treadle.dtypes import DTypeLike
from treadle.rng.key import Key, as_shape, check_key, compiled
from treadle.rng.uniform import between, float_dtype, rounded


def exponential(
    key: Key, shape: Sequence[int] = (), dtype: DTypeLike = tnp.float32
) -> Array:
    """Waiting times with rate 1."""
    return _draw("exponential", key, shape, dtype, _exponential, _zero)


def _exponential(u: Array, dtype: np.dtype) -> Array:
    return -tnp.log1p(-u)


def gumbel(
    key: Key, shape: Sequence[int] = (), dtype: DTypeLike = tnp.float32
) -> Array:
    """The standard Gumbel distribution: of the largest of many numbers.

    ``argmax(logits + gumbel)`` is a sample of ``softmax(logits)``.
    """
    return _draw("gumbel", key, shape, dtype, _gumbel, _tiny)


def _gumbel(u: Array, dtype: np.dtype) -> Array:
    return -tnp.log(-rounded(tnp.log(u), dtype))


def laplace(
    key: Key, shape: Sequence[int] = (), dtype: DTypeLike = tnp.float32
) -> Array:
    """The two-sided exponential distribution."""
    return _draw("laplace", key, shape, dtype, _laplace, _above_minus_one)


def _laplace(u: Array, dtype: np.dtype) -> Array:
    return tnp.sign(u) * tnp.log1p(-tnp.abs(u))


def logistic(
    key: Key, shape: Sequence[int] = (), dtype: DTypeLike = tnp.float32
) -> Array:
    """The logistic distribution: the inverse of the sigmoid at uniform numbers."""
    return _draw("logistic", key, shape, dtype, _logistic, _tiny)


def _logistic(u: Array, dtype: np.dtype) -> Array:
    return rounded(tnp.log(u), dtype) - rounded(tnp.log1p(-u), dtype)


def cauchy(
    key: Key, shape: Sequence[int] = (), dtype: DTypeLike = tnp.float32
) -> Array:
    """The Cauchy distribution, which has no mean."""
    return _draw("cauchy", key, shape, dtype, _cauchy, _eps)


def _cauchy(u: Array, dtype: np.dtype) -> Array:
    return tnp.tan(rounded(math.pi * rounded(u - 0.5, dtype), dtype))


def _zero(dtype: np.dtype) -> Any:
    return 0


def _tiny(dtype: np.dtype) -> Any:
    return ml_dtypes.finfo(dtype).tiny


def _eps(dtype: np.dtype) -> Any:
    return ml_dtypes.finfo(dtype).eps


def _above_minus_one(dtype: np.dtype) -> Any:
    return -1 + float(ml_dtypes.finfo(dtype).epsneg)


def _draw(
    name: str,
    key: Key,
    shape: Any,
    dtype: Any,
    formula: Callable[[Array, np.dtype], Array],
    lowest: Callable[[np.dtype], Any],
) -> Array:
    check_key(name, key)
    wanted = float_dtype(name, dtype)
    low = wanted.type(lowest(wanted))
    shape = as_shape(name, shape)
    return _transformed(key, formula=formula, low=low, shape=shape, dtype=wanted)


@compiled
def _transformed(
    key: Key,
    *,
    formula: Callable[[Array, np.dtype], Array],
    low: np.generic,
    shape: tuple[int, ...],
    dtype: np.dtype,
) -> Array:
    u = between(key, low, dtype.type(1), shape=shape, dtype=dtype)
    return formula(u, dtype).astype(dtype)
