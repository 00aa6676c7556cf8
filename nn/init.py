"""Initialisers: ``init(key, shape, dtype)`` gives the first value of a parameter.

Weights have their input axis before their output axis, and what they slide over before
both: (..., in, out). `fan_in` is the number of inputs of one output.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Protocol

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source

Shape = tuple[int, ...]


class Initializer(Protocol):
    """Gives the first value of a parameter."""

    def __call__(self, key: rng.Key, shape: Shape, dtype: Any = ...) -> td.Array: ...


def zeros(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
    """Zeros; the key is not used.

    >>> from treadle import rng
    >>> zeros(rng.key(0), (2,))
    Array([0., 0.], dtype=float32)
    """
    return tnp.zeros(shape, dtype)


def ones(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
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

    def init(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
        return rng.normal(key, shape, dtype) * stddev

    return init


standard_normal = normal()


def uniform(limit: float = 1.0) -> Initializer:
    """An initialiser that draws evenly from -limit to limit.

    >>> from treadle import rng
    >>> round(float(uniform(0.5)(rng.key(0), (1000,)).max()), 2)
    0.5
    """

    def init(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
        return rng.uniform(key, shape, dtype, -limit, limit)

    return init


def bias_uniform(fan_in: int) -> Initializer:
    """An initialiser that draws evenly from ±1/sqrt(fan_in), as PyTorch draws biases.

    >>> from treadle import rng
    >>> round(float(bias_uniform(4)(rng.key(0), (1000,)).max()), 2)
    0.5
    """
    return uniform(1 / math.sqrt(max(fan_in, 1)))


_SHRINKAGE = 0.87962566103423978
"""The standard deviation of a normal variable cut off at two."""


def truncated_normal(stddev: float = 1.0) -> Initializer:
    """An initialiser that draws from the normal distribution without its tails beyond
    two standard deviations; what is left has standard deviation `stddev`.

    >>> from treadle import rng
    >>> round(float(truncated_normal(0.02)(rng.key(0), (1000,)).std()), 3)
    0.02
    """

    def init(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
        scale = stddev / _SHRINKAGE
        return rng.truncated_normal(key, -2.0, 2.0, shape, dtype) * scale

    return init


def fans(shape: Shape) -> tuple[int, int]:
    """The inputs of one output, and the outputs of one input.

    >>> fans((3, 3, 16, 32))
    (144, 288)
    """
    if len(shape) < 2:
        n = math.prod(shape)
        return n, n
    window = math.prod(shape[:-2])
    return window * shape[-2], window * shape[-1]


def variance_scaling(
    scale: float,
    mode: Literal["fan_in", "fan_out", "fan_avg"],
    distribution: Literal["normal", "truncated", "uniform"],
) -> Initializer:
    """An initialiser whose variance is ``scale / fan`` (He 2015, Glorot 2010).

    Args:
      mode: which fan: that of the inputs, of the outputs, or their mean.
      distribution: normal, normal without its tails beyond two standard deviations, or
        uniform.

    Raises:
      ValueError: for another mode or distribution.

    >>> from treadle import rng
    >>> he = variance_scaling(2.0, "fan_in", "normal")
    >>> round(float(he(rng.key(0), (200, 300)).std()), 2)
    0.1
    """
    for name, value, choices in (
        ("mode", mode, ("fan_in", "fan_out", "fan_avg")),
        ("distribution", distribution, ("normal", "truncated", "uniform")),
    ):
        if value not in choices:
            raise ValueError(
                f"variance_scaling: {name} is one of {', '.join(choices)}; got "
                f"{value!r}{at(user_source())}"
            )

    def init(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
        fan_in, fan_out = fans(shape)
        choices = {
            "fan_in": fan_in,
            "fan_out": fan_out,
            "fan_avg": (fan_in + fan_out) / 2,
        }
        stddev = math.sqrt(scale / max(choices[mode], 1))
        if distribution == "uniform":
            return uniform(math.sqrt(3) * stddev)(key, shape, dtype)
        draw = normal if distribution == "normal" else truncated_normal
        return draw(stddev)(key, shape, dtype)

    return init


fan_in_uniform = variance_scaling(1 / 3, "fan_in", "uniform")
"""Evenly from ±1/sqrt(fan_in): PyTorch's default for linear and convolution layers."""
lecun_normal = variance_scaling(1.0, "fan_in", "truncated")
lecun_uniform = variance_scaling(1.0, "fan_in", "uniform")
glorot_normal = variance_scaling(1.0, "fan_avg", "truncated")
glorot_uniform = variance_scaling(1.0, "fan_avg", "uniform")
he_normal = variance_scaling(2.0, "fan_in", "truncated")
he_uniform = variance_scaling(2.0, "fan_in", "uniform")
