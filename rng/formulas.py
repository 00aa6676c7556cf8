"""Continuous distributions with parameters, made of simpler ones by a formula.

All are differentiable in their parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import treadle.numpy as tnp
from treadle import Array
from treadle.dtypes import DTypeLike
from treadle.rng.continuous import exponential
from treadle.rng.discrete import rademacher
from treadle.rng.key import Key, as_shape, check_key, split
from treadle.rng.normal import normal
from treadle.rng.uniform import fitting_shape, float_dtype, uniform


def lognormal(
    key: Key,
    sigma: Any = 1.0,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """Numbers whose logarithm is normal, with mean 0 and deviation sigma."""
    shape, (sigma,) = _fitted("lognormal", key, shape, dtype, sigma)
    return tnp.exp(normal(key, shape, dtype) * sigma)


def maxwell(
    key: Key, shape: Sequence[int] = (), dtype: DTypeLike = tnp.float32
) -> Array:
    """The Maxwell distribution of scale 1: lengths of normal vectors in 3 dimensions.

    For others: ``scale * rng.maxwell(key, shape)``.
    """
    check_key("maxwell", key)
    x = normal(key, (*as_shape("maxwell", shape), 3), dtype)
    return tnp.sqrt((x * x).sum(-1))


def double_sided_maxwell(
    key: Key,
    loc: Any = 0.0,
    scale: Any = 1.0,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """Maxwell numbers times `scale`, with either sign, around `loc`."""
    name = "double_sided_maxwell"
    shape, (loc, scale) = _fitted(name, key, shape, dtype, loc, scale)
    k1, k2 = split(key)
    return rademacher(k2, shape, dtype) * maxwell(k1, shape, dtype) * scale + loc


def pareto(
    key: Key, b: Any, shape: Sequence[int] | None = None, dtype: DTypeLike = tnp.float32
) -> Array:
    """The Pareto distribution of exponent b, on [1, inf)."""
    shape, (b,) = _fitted("pareto", key, shape, dtype, b)
    return tnp.exp(exponential(key, shape, dtype) / b)


def rayleigh(
    key: Key,
    scale: Any = 1.0,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """The Rayleigh distribution: lengths of normal vectors in 2 dimensions."""
    shape, (scale,) = _fitted("rayleigh", key, shape, dtype, scale)
    # Of 0, one of 128 numbers of bfloat16, the length would be infinite.
    share = uniform(key, shape, dtype, minval=tnp.finfo(dtype).tiny)
    return scale * tnp.sqrt(tnp.log(share) * -2)


def triangular(
    key: Key,
    left: Any,
    mode: Any,
    right: Any,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """Numbers between `left` and `right` whose density rises evenly up to `mode`, then
    falls evenly."""
    given = (left, mode, right)
    shape, (left, mode, right) = _fitted("triangular", key, shape, dtype, *given)
    u = uniform(key, shape, dtype)
    width, rise, fall = right - left, mode - left, right - mode
    rising = u < rise / width
    # The side that is not taken may be flat, where a root has no derivative.
    root = tnp.sqrt(tnp.where(rising, u * width * rise, (1 - u) * width * fall))
    return tnp.where(rising, left + root, right - root)


def wald(
    key: Key,
    mean: Any,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """The Wald distribution, inverse Gaussian, of this mean and scale 1.

    By transformation with multiple roots: J. Michael, W. Schucany, R. Haas, Generating
    random variates using transformations with multiple roots, The American
    Statistician 30 (1976).
    """
    shape, (mean,) = _fitted("wald", key, shape, dtype, mean)
    k1, k2 = split(key)
    y = tnp.square(normal(k1, shape, dtype))
    square = mean * mean
    root = tnp.sqrt(4 * mean * y + square * (y * y))
    x = mean + square * y / 2 - mean / 2 * root
    return tnp.where(uniform(k2, shape, dtype) <= mean / (mean + x), x, square / x)


def weibull_min(
    key: Key,
    scale: Any,
    concentration: Any,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """The Weibull distribution: exponential numbers to the power of 1/concentration,
    times `scale`."""
    name, given = "weibull_min", (scale, concentration)
    shape, (scale, concentration) = _fitted(name, key, shape, dtype, *given)
    return tnp.power(exponential(key, shape, dtype), 1 / concentration) * scale


def _fitted(
    name: str, key: Key, shape: Any, dtype: Any, *parameters: Any
) -> tuple[tuple[int, ...], list[Array]]:
    """The shape of the result, and the parameters in its dtype."""
    check_key(name, key)
    wanted = float_dtype(name, dtype)
    shape = fitting_shape(name, shape, *parameters)
    return shape, [tnp.asarray(p).astype(wanted) for p in parameters]
