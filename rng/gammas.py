"""Distributions made of gamma numbers, whose derivatives they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import treadle.numpy as tnp
from treadle import Array
from treadle.dims import plain
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.rng.continuous import exponential
from treadle.rng.discrete import rademacher
from treadle.rng.key import Key, as_shape, check_key, split
from treadle.rng.normal import normal
from treadle.rng.rejection import gamma, loggamma
from treadle.rng.uniform import fitting_shape, float_dtype


def chisquare(
    key: Key,
    df: Any,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """Sums of the squares of `df` normal numbers; df need not be whole."""
    check_key("chisquare", key)
    df = tnp.asarray(df).astype(float_dtype("chisquare", dtype))
    shape = fitting_shape("chisquare", shape, df)
    return 2 * tnp.exp(loggamma(key, df / 2, shape, dtype))


def f(
    key: Key,
    dfnum: Any,
    dfden: Any,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """The F distribution: ratios of chi-square numbers, each divided by its degrees of
    freedom."""
    check_key("f", key)
    wanted = float_dtype("f", dtype)
    shape = fitting_shape("f", shape, dfnum, dfden)
    below, above = split(key)
    high, low = (tnp.asarray(df).astype(wanted) for df in (dfnum, dfden))
    ratio = chisquare(above, high, shape, dtype) / high
    return ratio / (chisquare(below, low, shape, dtype) / low)


def t(
    key: Key,
    df: Any,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """Student's t distribution with df degrees of freedom."""
    check_key("t", key)
    half = tnp.asarray(df).astype(float_dtype("t", dtype)) / 2
    shape = fitting_shape("t", shape, df)
    k1, k2 = split(key)
    return normal(k1, shape, dtype) * tnp.sqrt(half / gamma(k2, half, shape, dtype))


def generalized_normal(
    key: Key, p: Any, shape: Sequence[int] | None = None, dtype: DTypeLike = tnp.float32
) -> Array:
    """Numbers with a density in proportion to ``exp(-|x|**p)``."""
    check_key("generalized_normal", key)
    p = tnp.asarray(p).astype(float_dtype("generalized_normal", dtype))
    shape = fitting_shape("generalized_normal", shape, p)
    k1, k2 = split(key)
    sizes = gamma(k1, 1 / p, shape, dtype) ** (1 / p)
    return rademacher(k2, shape, dtype) * sizes


def ball(
    key: Key,
    d: int,
    p: Any = 2,
    shape: Sequence[int] = (),
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """Vectors of length d spread evenly over the unit ball of the p-norm:
    shape ``(*shape, d)``.

    By F. Barthe et al., A probabilistic approach to the geometry of the l_p^n-ball,
    Annals of Probability 33 (2005).
    """
    check_key("ball", key)
    shape, d = as_shape("ball", shape), plain(d)
    if d < 0:
        raise ValueError(f"ball: d is {d}, not a dimension{at(user_source())}")
    p = tnp.asarray(p).astype(float_dtype("ball", dtype))
    k1, k2 = split(key)
    x = generalized_normal(k1, p, (*shape, d), dtype)
    sizes = (tnp.abs(x) ** p).sum(-1) + exponential(k2, shape, dtype)
    return x / (sizes ** (1 / p))[..., None]
