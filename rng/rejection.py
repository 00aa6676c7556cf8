"""Distributions drawn by rejection: gamma and what is made of it, Poisson."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import treadle.numpy as tnp
from treadle import (
    Array,
    custom_jvp,
    jit,
    stop_gradient,
    typeof,
    vmap,
    while_loop,
)
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.rng.continuous import exponential
from treadle.rng.key import Key, check_key, clone, compiled, split
from treadle.rng.normal import normal
from treadle.rng.uniform import fitting_shape, float_dtype, unit
from treadle.scipy.special import gammaln
from treadle.scipy.special.incomplete import gamma_slope


def gamma(
    key: Key, a: Any, shape: Sequence[int] | None = None, dtype: DTypeLike = tnp.float32
) -> Array:
    """The gamma distribution of shape parameter a and scale 1.

    Samples have a derivative in a: each keeps its place in the distribution (Figurnov
    et al., Implicit reparameterization gradients, 2018).
    """
    return _checked_gamma("gamma", key, a, shape, dtype, logarithm=False)


def loggamma(
    key: Key, a: Any, shape: Sequence[int] | None = None, dtype: DTypeLike = tnp.float32
) -> Array:
    """The logarithm of numbers of a gamma distribution: exact where these underflow."""
    return _checked_gamma("loggamma", key, a, shape, dtype, logarithm=True)


def _checked_gamma(
    name: str, key: Key, a: Any, shape: Any, dtype: Any, logarithm: bool
) -> Array:
    check_key(name, key)
    wanted = float_dtype(name, dtype)
    shape = fitting_shape(name, shape, a)
    alphas = tnp.broadcast_to(tnp.asarray(a).astype(wanted), shape)
    samples = _gammas(key, stop_gradient(alphas), shape=shape, logarithm=logarithm)
    return (_moving_log if logarithm else _moving)(alphas, samples)


@jit
def _slope(alpha: Any, logarithm: Any) -> Any:
    """That of the logarithm of samples by their parameter."""
    wide = alpha.astype(tnp.float32) if alpha.dtype.itemsize == 2 else alpha
    found = gamma_slope(wide, logarithm.astype(wide.dtype))
    return found.astype(alpha.dtype)


_moving_log = custom_jvp(lambda alpha, x: x)
"""Samples that move with their parameter so that each keeps its place among them."""


@_moving_log.defjvp
def _moving_log_jvp(primals: Any, tangents: Any) -> Any:
    (alpha, x), (change, _) = primals, tangents
    x = _moving_log(alpha, x)
    return x, _slope(alpha, x) * change


_moving = custom_jvp(lambda alpha, x: x)


@_moving.defjvp
def _moving_jvp(primals: Any, tangents: Any) -> Any:
    (alpha, x), (change, _) = primals, tangents
    x = _moving(alpha, x)
    there = x > 0
    slope = x * _slope(alpha, tnp.log(tnp.where(there, x, 1)))
    # Numbers that underflow don't move.
    return x, tnp.where(there, slope, 0).astype(x.dtype) * change


@compiled
def _gammas(key: Key, alphas: Any, *, shape: tuple[int, ...], logarithm: bool) -> Array:
    keys = split(key, alphas.size)
    samples = vmap(lambda k, a: _gamma(k, a, logarithm))(keys, alphas.ravel())
    return samples.reshape(shape)


def _gamma(key: Key, alpha: Any, logarithm: bool) -> Any:
    """One number, by the method of Marsaglia and Tsang [1].

    A small alpha is raised by 1, which a power of a uniform number makes good.

    [1] A simple method for generating gamma variables, ACM TOMS 26 (2000).
    """
    dtype = typeof(alpha).dtype
    large = alpha >= 1
    d = tnp.where(large, alpha, alpha + 1) - dtype.type(1 / 3)
    c = dtype.type(1 / 3) / tnp.sqrt(d)

    def rejected(state: Any) -> Any:
        _, x, v, u = state
        quick = u >= 1 - dtype.type(0.0331) * (x * x)
        exact = tnp.log(u) >= x * dtype.type(0.5) + d * (1 - v + tnp.log(v))
        return quick & exact

    def propose(state: Any) -> Any:
        key, x_key, u_key = split(state[0], 3)
        zero = tnp.zeros((), dtype)
        _, x, v = while_loop(
            lambda s: s[2] <= 0,
            lambda s: _positive_cube_root(s[0], c),
            (x_key, zero, zero - 1),
        )
        return key, x * x, v * v * v, unit(u_key, shape=(), dtype=dtype)

    key, last = split(key)
    # The first state is one that is rejected.
    start = (key, *(tnp.full((), n, dtype) for n in (0, 1, 2)))
    _, _, v, _ = while_loop(rejected, propose, start)
    if logarithm:
        waited = -exponential(last, (), dtype)
        boost = tnp.where(large | (waited == 0), dtype.type(0), waited / alpha)
        return tnp.log(d) + tnp.log(v) + boost
    boost = (1 - unit(last, shape=(), dtype=dtype)) ** (1 / alpha)
    return d * v * tnp.where(large, dtype.type(1), boost)


def _positive_cube_root(key: Key, c: Any) -> tuple[Key, Any, Any]:
    key, used = split(key)
    x = normal(used, (), typeof(c).dtype)
    return key, x, 1 + x * c


def beta(
    key: Key,
    a: Any,
    b: Any,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """The beta distribution of shape parameters a and b, on [0, 1]."""
    check_key("beta", key)
    shape = fitting_shape("beta", shape, a, b)
    k1, k2 = split(key)
    first, second = loggamma(k1, a, shape, dtype), loggamma(k2, b, shape, dtype)
    largest = tnp.maximum(first, second)
    x, y = tnp.exp(first - largest), tnp.exp(second - largest)
    return x / (x + y)


def dirichlet(
    key: Key,
    alpha: Any,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """Vectors of probabilities of the Dirichlet distribution.

    alpha: its parameters, along the last axis; `shape` is that of the other axes.
    """
    check_key("dirichlet", key)
    parameters = typeof(alpha).shape
    if not parameters:
        raise ValueError(f"dirichlet: alpha is a vector{at(user_source())}")
    if shape is None:
        shape = parameters[:-1]
    x = loggamma(key, alpha, (*shape, parameters[-1]), dtype)
    parts = tnp.exp(x - x.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)


# Poisson ------------------------------------------------------------------------------


def poisson(
    key: Key, lam: Any, shape: Sequence[int] | None = None, dtype: DTypeLike = tnp.int32
) -> Array:
    """How often something happens that happens `lam` times on average."""
    check_key("poisson", key)
    shape = fitting_shape("poisson", shape, lam)
    rates = tnp.broadcast_to(tnp.asarray(lam).astype(tnp.float32), shape)
    return _poisson(key, rates, shape=shape).astype(dtype)


@compiled
def _poisson(key: Key, lam: Any, *, shape: tuple[int, ...]) -> Array:
    small = tnp.isnan(lam) | (lam < 10)
    few = _counted(key, tnp.where(small, lam, 0.0), shape)
    # Each number comes from one of the two, so that they may share a key.
    many = _transformed(clone(key), tnp.where(small, 1e5, lam), small, shape)
    return tnp.where(lam == 0, 0, tnp.where(small, few, many))


def _counted(key: Key, lam: Any, shape: tuple[int, ...]) -> Any:
    """Counts how many uniform numbers can be multiplied before the product is less
    than exp(-lam)."""

    def more(state: Any) -> Any:
        return (state[2] > -lam).any()

    def step(state: Any) -> Any:
        key, count, total = state
        key, used = split(key)
        count = tnp.where(total > -lam, count + 1, count)
        u = unit(used, shape=shape, dtype=np.dtype(np.float32))
        return key, count, total + tnp.log(u)

    start = (key, tnp.zeros(shape, tnp.int32), tnp.zeros(shape))
    return while_loop(more, step, start)[1] - 1


def _transformed(key: Key, lam: Any, unread: Any, shape: tuple[int, ...]) -> Any:
    """Transformed rejection [1], but for numbers that are not read.

    [1] W. Hörmann, The transformed rejection method for generating Poisson random
        variables, Insurance: Mathematics and Economics 12 (1993).
    """
    logarithm, root = tnp.log(lam), tnp.sqrt(lam)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    limit = 0.9277 - 3.6224 / (b - 2)
    f32 = np.dtype(np.float32)

    def step(state: Any) -> Any:
        key, found, done = state
        key, u_key, v_key = split(key, 3)
        u = unit(u_key, shape=shape, dtype=f32) - 0.5
        v = unit(v_key, shape=shape, dtype=f32)
        edge = 0.5 - tnp.abs(u)
        k = tnp.floor((2 * a / edge + b) * u + lam + 0.43)
        s = tnp.log(v * inverse / (a / (edge * edge) + b))
        exact = s <= k * logarithm - lam - gammaln(k + 1)
        rejected = (k < 0) | ((edge < 0.013) & (v > edge))
        accepted = ((edge >= 0.07) & (v <= limit)) | (~rejected & exact)
        return key, tnp.where(accepted, k, found), done | accepted

    start = (key, tnp.full(shape, -1.0), unread)
    found = while_loop(lambda s: ~s[2].all(), step, start)[1]
    return found.astype(tnp.int32)
