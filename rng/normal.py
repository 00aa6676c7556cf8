"""Normal distributions: the inverse of the distribution function at uniform numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import treadle.numpy as tnp
from treadle import Array, dtypes, stop_gradient
from treadle.dtypes import DTypeLike
from treadle.rng.key import Key, as_shape, check_key, compiled, split
from treadle.rng.uniform import (
    between,
    fitting_shape,
    float_dtype,
    rounded,
    working_dtype,
)
from treadle.scipy.special import erf, erfinv


def normal(
    key: Key, shape: Sequence[int] = (), dtype: DTypeLike = tnp.float32
) -> Array:
    """Numbers with mean 0 and variance 1; if the dtype is complex, that is the variance
    of both parts together.

    For others: ``mean + deviation * rng.normal(key, shape)``, which is differentiable
    in both.

    >>> from treadle import rng
    >>> rng.normal(rng.key(0), (3,))
    Array([ 1.6226, 2.0253, -0.4336], dtype=float32)
    """
    check_key("normal", key)
    if dtypes.is_complex(dtypes.canonical(dtype)):
        return _complex(key, as_shape("normal", shape), dtypes.canonical(dtype))
    wanted = float_dtype("normal", dtype)
    return _normal(key, shape=as_shape("normal", shape), dtype=wanted)


def _complex(key: Key, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    parts = [normal(k, shape, tnp.finfo(dtype).dtype) for k in split(key)]
    return (parts[0] + 1j * parts[1]) / dtype.type(math.sqrt(2))


@compiled
def _normal(key: Key, *, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    above = np.nextafter(dtype.type(-1), dtype.type(0), dtype=dtype)
    u = between(key, above, dtype.type(1), shape=shape, dtype=dtype)
    return _scaled(u, dtype)


def _scaled(u: Array, dtype: np.dtype) -> Array:
    """The normal numbers that belong to uniform ones between -1 and 1."""
    return (rounded(erfinv(u), dtype) * _root_of_two(dtype)).astype(dtype)


def _root_of_two(dtype: np.dtype) -> np.generic:
    return dtype.type(math.sqrt(2)).astype(working_dtype(dtype))


def truncated_normal(
    key: Key,
    lower: Any,
    upper: Any,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """Standard normal numbers, given that they lie between `lower` and `upper`."""
    check_key("truncated_normal", key)
    wanted = float_dtype("truncated_normal", dtype)
    shape = fitting_shape("truncated_normal", shape, lower, upper)
    low, high = (tnp.asarray(v).astype(wanted) for v in (lower, upper))
    return _truncated(key, low, high, shape=shape, dtype=wanted)


@compiled
def _truncated(
    key: Key, low: Any, high: Any, *, shape: tuple[int, ...], dtype: np.dtype
) -> Array:
    root = _root_of_two(dtype)
    a, b = (
        rounded(erf(rounded(v.astype(root.dtype) / root, dtype)), dtype)
        for v in (low, high)
    )
    u = between(key, a, b, shape=shape, dtype=dtype)
    # Rounding must not lead out of the interval.
    inside_low = tnp.nextafter(stop_gradient(low), dtype.type(math.inf))
    inside_high = tnp.nextafter(stop_gradient(high), dtype.type(-math.inf))
    return tnp.clip(_scaled(u, dtype), inside_low, inside_high)
