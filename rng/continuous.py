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
from treadle.errors import at, user_source
from treadle.rng.key import Key, as_shape, check_key, compiled
from treadle.rng.uniform import between, float_dtype, rounded, unit, working_dtype


def exponential(
    key: Key, shape: Sequence[int] = (), dtype: DTypeLike = tnp.float32
) -> Array:
    """Waiting times with rate 1."""
    return _draw("exponential", key, shape, dtype, _exponential, _zero)


def _exponential(u: Array, dtype: np.dtype) -> Array:
    return -tnp.log1p(-u)


def gumbel(
    key: Key,
    shape: Sequence[int] = (),
    dtype: DTypeLike = tnp.float32,
    mode: str | None = None,
) -> Array:
    """The standard Gumbel distribution: of the largest of many numbers.

    ``argmax(logits + gumbel)`` is a sample of ``softmax(logits)``.

    Args:
      mode: "low", the default: the largest number of float32 is 16.6, which is that
        of 2²³; "high": of twice as many digits, for what is rarer.

    Raises:
      ValueError: for another mode.

    >>> from treadle import rng
    >>> rng.gumbel(rng.key(0), (2, 3), mode="high").shape
    (2, 3)
    """
    if mode_of("gumbel", mode) == "low":
        return _draw("gumbel", key, shape, dtype, _gumbel, _tiny)
    check_key("gumbel", key)
    shape = as_shape("gumbel", shape)
    return _fine_gumbel(key, shape=shape, dtype=float_dtype("gumbel", dtype))


def _gumbel(u: Array, dtype: np.dtype) -> Array:
    return -tnp.log(-rounded(tnp.log(u), dtype))


@compiled
def _fine_gumbel(key: Key, *, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Where the leading digits are small, more of them come from another number."""
    info = ml_dtypes.finfo(dtype)
    wide = working_dtype(dtype)
    high, low = unit(key, shape=(2, *shape), dtype=dtype).astype(wide)
    more = rounded(2.0**-info.nmant * low, dtype)
    small = rounded(rounded(high + more, dtype) + float(info.tiny), dtype)
    x = tnp.where(high >= 0.5, high, small)
    return (-tnp.log(-rounded(tnp.log1p(-x), dtype))).astype(dtype)


def mode_of(name: str, mode: str | None) -> str:
    """How many digits numbers are made of: "low" or "high".

    Raises:
      ValueError: for another word.
    """
    if mode not in (None, "low", "high"):
        raise ValueError(
            f"{name}: mode is 'low' or 'high', got {mode!r}{at(user_source())}"
        )
    return mode or "low"


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
