"""Initialisers that don't look at the shape: constants, and numbers drawn alike."""

from __future__ import annotations

import math
from typing import Any, Protocol

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check

Shape = tuple[int, ...]


class Initializer(Protocol):
    """Gives the first value of a parameter."""

    def __call__(self, key: rng.Key, shape: Shape, dtype: Any = ...) -> td.Array: ...


def zeros(key: rng.Key | None, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
    """Zeros; the key is not used.

    >>> from treadle import rng
    >>> zeros(rng.key(0), (2,))
    Array([0., 0.], dtype=float32)
    """
    return tnp.zeros(shape, dtype)


def ones(key: rng.Key | None, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
    """Ones; the key is not used.

    >>> from treadle import rng
    >>> ones(rng.key(0), (2,))
    Array([1., 1.], dtype=float32)
    """
    return tnp.ones(shape, dtype)


def constant(value: float) -> Initializer:
    """An initialiser that gives one value everywhere.

    >>> from treadle import rng
    >>> constant(0.5)(rng.key(0), (2,))
    Array([0.5, 0.5], dtype=float32)
    """
    return lambda key, shape, dtype=tnp.float32: tnp.full(shape, value, dtype)


def normal(stddev: float = 1.0) -> Initializer:
    """An initialiser that draws from the normal distribution.

    >>> from treadle import rng
    >>> round(float(normal(0.02)(rng.key(0), (1000,)).std()), 3)
    0.02
    """

    check.within("normal", "stddev", stddev)

    def init(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
        return rng.normal(key, shape, dtype) * stddev

    return init


standard_normal = normal()


def uniform(limit: float = 1.0, lower: float | None = None) -> Initializer:
    """An initialiser that draws evenly from `lower` (by default ``-limit``) to `limit`.

    >>> from treadle import rng
    >>> round(float(uniform(0.5)(rng.key(0), (1000,)).max()), 2)
    0.5
    """
    least = -limit if lower is None else lower

    def init(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
        return rng.uniform(key, shape, dtype, least, limit)

    return init


def bias_uniform(fan_in: int) -> Initializer:
    """An initialiser that draws evenly from ±1/sqrt(fan_in), as PyTorch draws biases.

    >>> from treadle import rng
    >>> round(float(bias_uniform(4)(rng.key(0), (1000,)).max()), 2)
    0.5
    """
    return uniform(1 / math.sqrt(max(fan_in, 1)))


def truncated_normal(
    stddev: float = 1.0, lower: float = -2.0, upper: float = 2.0
) -> Initializer:
    """An initialiser that draws from the normal distribution without its tails.

    Args:
      stddev: the standard deviation of what is left. (JAX's and PyTorch's is that of
        the whole distribution.)
      lower, upper: where it is cut off, in standard deviations of the whole.

    >>> from treadle import rng
    >>> round(float(truncated_normal(0.02)(rng.key(0), (1000,)).std()), 3)
    0.02
    """
    check.within("truncated_normal", "stddev", stddev)
    check.within("truncated_normal", "upper", upper, math.nextafter(lower, math.inf))
    whole = stddev / _stddev_between(lower, upper)

    def init(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
        return rng.truncated_normal(key, lower, upper, shape, dtype) * whole

    return init


def _stddev_between(a: float, b: float) -> float:
    """The standard deviation of a standard normal variable that is cut off at a, b."""
    mass = (math.erf(b / math.sqrt(2)) - math.erf(a / math.sqrt(2))) / 2
    at_a, at_b = (math.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in (a, b))
    mean = (at_a - at_b) / mass
    return math.sqrt(1 + (a * at_a - b * at_b) / mass - mean * mean)


def sparse(sparsity: float, stddev: float = 0.01) -> Initializer:
    """An initialiser of matrices (in, out) that draws from the normal distribution, and
    cuts each input off from a share of the outputs, another one for each (Martens
    2010).

    Args:
      sparsity: the share of zeros in each row, from 0 to 1, rounded up.

    Raises:
      ValueError: for another sparsity, or another rank.

    >>> from treadle import rng
    >>> (sparse(0.5)(rng.key(0), (3, 4)) == 0).sum(-1)
    Array([2, 2, 2], dtype=int32)
    """
    if not 0 <= sparsity <= 1:
        raise ValueError(
            f"sparse: sparsity is from 0 to 1, got {sparsity!r}{at(user_source())}"
        )

    def init(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
        if len(shape) != 2:
            raise ValueError(
                f"sparse makes matrices (in, out), got shape {shape}{at(user_source())}"
            )
        key, order_key = rng.split(key)
        order = tnp.argsort(rng.uniform(order_key, shape), -1)
        kept = order >= math.ceil(sparsity * shape[1])
        return tnp.where(kept, normal(stddev)(key, shape, dtype), 0)

    return init
