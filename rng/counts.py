"""How often something happens: binomial, multinomial and geometric distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import treadle.numpy as tnp
from treadle import Array, dtypes, scan, typeof, while_loop
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.rng.key import Key, check_key, clone, compiled, split
from treadle.rng.uniform import fitting_shape, uniform, unit

_STIRLING = np.array(
    [
        0.0810614667953272,
        0.0413406959554092,
        0.0276779256849983,
        0.02079067210376509,
        0.0166446911898211,
        0.0138761288230707,
        0.0118967099458917,
        0.0104112652619720,
        0.00925546218271273,
        0.00833056343336287,
    ]
)
"""How much log(k!) is more than Stirling's formula for k + 1 gives, for k to 9."""


def geometric(
    key: Key, p: Any, shape: Sequence[int] | None = None, dtype: DTypeLike = tnp.int32
) -> Array:
    """How many trials it takes to the first success, if each succeeds with
    probability p: 1, 2, …"""
    check_key("geometric", key)
    p = tnp.asarray(p)
    p = p.astype(dtypes.to_float(p.dtype))
    u = uniform(key, fitting_shape("geometric", shape, p), p.dtype)
    waited = tnp.log(tnp.where(u == 0, 1, u)) / tnp.log1p(-p)
    return (tnp.floor(waited) + 1).astype(dtype)


def binomial(
    key: Key,
    n: Any,
    p: Any,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """How many of n trials succeed, if each does with probability p.

    Fractions of n are dropped. Where n or p is negative or nan, p is more than 1, or
    the dtype has no such number, the result is nan.
    """
    check_key("binomial", key)
    shape = fitting_shape("binomial", shape, n, p)
    p = tnp.asarray(p)
    p = tnp.broadcast_to(p.astype(dtypes.to_float(p.dtype)), shape)
    n = tnp.broadcast_to(tnp.asarray(n).astype(p.dtype), shape)
    return _binomial(key, n, p, shape=shape).astype(dtype)


@compiled
def _binomial(key: Key, n: Any, p: Any, *, shape: tuple[int, ...]) -> Array:
    rare = p < 0.5
    q = tnp.where(rare, p, 1 - p)
    no_number = tnp.isnan(n) | (n < 0)
    wrong = no_number | tnp.isnan(q) | (q < 0)
    q = tnp.where(tnp.isnan(q) | (q < 0), 0.01, q)
    few = no_number | (n * q <= 10)
    n = tnp.floor(n)
    # Nothing is waited for, and nothing drawn again, for numbers of the other kind.
    counted = _waited(key, tnp.where(few, n, -1), q, shape)
    # Each number comes from one of the two, so that they may share a key.
    many = _transformed(
        clone(key), tnp.where(few, 1e4, n), tnp.where(few, 0.5, q), few, shape
    )
    found = tnp.where(few, counted, many)
    found = tnp.where(tnp.isinf(n), n, tnp.where(rare, found, n - found))
    return tnp.where(wrong, np.nan, found)


def _waited(key: Key, n: Any, p: Any, shape: tuple[int, ...]) -> Any:
    """Adds up how long each success is waited for, until that is more than n."""
    rate = tnp.log1p(-p)

    def more(state: Any) -> Any:
        return (state[2] <= n).any()

    def step(state: Any) -> Any:
        key, count, waited = state
        used, key = split(key)
        u = unit(used, shape=shape, dtype=typeof(p).dtype)
        count = tnp.where(waited <= n, count + 1, count)
        return key, count, waited + tnp.ceil(tnp.log(u) / rate)

    start = (key, tnp.zeros_like(p), tnp.zeros_like(p))
    return while_loop(more, step, start)[1] - 1


def _transformed(key: Key, n: Any, p: Any, unread: Any, shape: tuple[int, ...]) -> Any:
    """Transformed rejection [1], but for numbers that are not read.

    [1] W. Hörmann, The generation of binomial random variates, Journal of Statistical
        Computation and Simulation 46 (1993).
    """
    deviation = tnp.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    middle = n * p + 0.5
    limit = 0.92 - 4.2 / b
    odds = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = tnp.floor((n + 1) * p)

    def step(state: Any) -> Any:
        key, found, done = state
        key, u_key, v_key = split(key, 3)
        dtype = typeof(p).dtype
        u = unit(u_key, shape=shape, dtype=dtype) - 0.5
        v = unit(v_key, shape=shape, dtype=dtype)
        edge = 0.5 - tnp.abs(u)
        k = tnp.floor((2 * a / edge + b) * u + middle)
        exact = tnp.log(v * alpha / (a / (edge * edge) + b)) <= (
            (m + 0.5) * tnp.log((m + 1) / (odds * (n - m + 1)))
            + (n + 1) * tnp.log((n - m + 1) / (n - k + 1))
            + (k + 0.5) * tnp.log(odds * (n - k + 1) / (k + 1))
            + _tail(m)
            + _tail(n - m)
            - _tail(k)
            - _tail(n - k)
        )
        accepted = ((edge >= 0.07) & (v <= limit)) | ((k >= 0) & (k <= n) & exact)
        return key, tnp.where(accepted, k, found), done | accepted

    start = (key, tnp.full_like(p, -1), unread)
    return while_loop(lambda s: ~s[2].all(), step, start)[1]


def _tail(k: Any) -> Any:
    """How much log(k!) is more than Stirling's formula for k + 1 gives."""
    exact = tnp.asarray(_STIRLING, k.dtype)[tnp.clip(k, 0, 9).astype(tnp.int32)]
    after = tnp.maximum(k, 0) + 1
    square = after * after
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / after
    return tnp.where(k <= 9, exact, series)


def multinomial(
    key: Key,
    n: Any,
    p: Any,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike = tnp.float32,
) -> Array:
    """How many of n trials end in each of several ways, which have the probabilities p.

    Args:
      n: the number of trials, of a shape that broadcasts to `shape`.
      p: the probabilities, along the last axis.
      shape: that of the other axes of the result, as for `dirichlet`; those of n and p
        by default.

    >>> from treadle import rng
    >>> rng.multinomial(rng.key(0), 10, [0.2, 0.3, 0.5], shape=(4, 2)).shape
    (4, 2, 3)
    """
    check_key("multinomial", key)
    p = tnp.asarray(p)
    if not p.ndim:
        raise ValueError(f"multinomial: p is a vector{at(user_source())}")
    p = p.astype(dtypes.to_float(p.dtype))
    shape = fitting_shape("multinomial", shape, n, p[..., 0])
    left = tnp.broadcast_to(tnp.asarray(n).astype(p.dtype), shape)
    p = tnp.moveaxis(tnp.broadcast_to(p, (*shape, p.shape[-1])), -1, 0)
    rest = tnp.flip(tnp.cumsum(tnp.flip(p, 0), 0), 0)
    ratios = tnp.clip(p / tnp.where(rest == 0, 1, rest), 0, 1)

    def step(left: Any, row: Any) -> Any:
        key, ratio = row
        count = binomial(key, left, ratio, dtype=ratio.dtype)
        return left - count, count

    _, counts = scan(step, left, (split(key, ratios.shape[0]), ratios))
    return tnp.moveaxis(counts, 0, -1).astype(dtype)
