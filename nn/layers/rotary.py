"""Rotary embedding of places."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.module import Module


class Llama3Scaling(NamedTuple):
    """How Llama 3 slows rotations down for contexts longer than it was trained on: by
    `factor` those of which there are fewer than `low` in `length` places, not at all
    those of which there are more than `high`, and between them gradually.

    >>> Llama3Scaling(factor=8.0, length=64)(np.array([1.0, 0.08]))
    array([1.  , 0.01])
    """

    factor: float
    low: float = 1.0
    high: float = 4.0
    length: int = 8192

    def __call__(self, frequencies: np.ndarray) -> np.ndarray:
        turns = self.length * frequencies / (2 * math.pi)
        kept = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


class LinearScaling(NamedTuple):
    """Rotations that are slower by a factor: places are interpolated (Chen 2023).

    >>> LinearScaling(4.0)(np.array([1.0, 0.5]))
    array([0.25 , 0.125])
    """

    factor: float

    def __call__(self, frequencies: np.ndarray) -> np.ndarray:
        return frequencies / self.factor


class YarnScaling(NamedTuple):
    """YaRN (Peng 2023): rotations are slower by `factor` where there are fewer than
    `slow` in `length` places, stay where there are more than `fast`, and change
    gradually with the number of the pair between; what is turned grows by `magnitude`.

    Args:
      length: how many places the model was trained on.
      attention: the magnitude; by default ``1 + log(factor) / 10``, at least 1.
      rounded: whether the ramp begins and ends at whole numbers of pairs.

    >>> scaling = YarnScaling(factor=4.0, length=256)
    >>> scaling(np.array([1.0, 0.1, 0.01])), round(scaling.magnitude, 4)
    (array([1.    , 0.0625, 0.0025]), 1.1386)
    """

    factor: float
    length: int
    fast: float = 32.0
    slow: float = 1.0
    attention: float | None = None
    rounded: bool = True

    @property
    def magnitude(self) -> float:
        """By what turned queries and keys are multiplied."""
        if self.attention is not None:
            return self.attention
        return 1 + 0.1 * math.log(max(self.factor, 1))

    def __call__(self, frequencies: np.ndarray) -> np.ndarray:
        count = len(frequencies)
        # From one pair to the next, the logarithm of the frequency falls by this.
        fall = -math.log(frequencies[1] / frequencies[0]) if count > 1 else math.inf
        first = math.log(self.length * frequencies[0] / (2 * math.pi))
        low, high = ((first - math.log(n)) / fall for n in (self.fast, self.slow))
        if self.rounded:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * count - 1)
        width = high - low or 0.001
        slowed = np.clip((np.arange(count) - low) / width, 0, 1)
        return frequencies * (1 - slowed + slowed / self.factor)


class RotaryEmbedding(Module):
    """Turns pairs of elements of queries and keys by angles that grow with the place,
    so that products depend on the distance alone (Su 2021).

    Shapes: ``(..., length, heads, depth) -> (..., length, heads, depth)``; places are
    (..., length). Angles are computed in float32.

    Args:
      size: how many elements of each head are turned, the first ones; an even number.
      base: the slowest rotation takes about ``2 pi base`` places.
      interleaved: whether pairs are neighbours (GPT-J); by default the first half pairs
        with the second (GPT-NeoX, Llama).
      scaling: changes the frequencies, for contexts longer than in training:
        `LinearScaling`, `Llama3Scaling`, `YarnScaling`, or a function. If it has a
        `magnitude`, what is turned is multiplied by it.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> rotary = nn.RotaryEmbedding(4)
    >>> rotary(tnp.ones((6, 2, 4))).shape
    (6, 2, 4)
    """

    size: int
    base: float
    interleaved: bool
    scaling: Callable[[np.ndarray], np.ndarray] | None

    def __init__(
        self,
        size: int,
        *,
        base: float = 10000.0,
        interleaved: bool = False,
        scaling: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        if size < 2 or size % 2:
            raise ValueError(
                f"RotaryEmbedding turns pairs: a size is even, got {size}"
                f"{at(user_source())}"
            )
        check.positive("RotaryEmbedding", "base", base)
        self.size, self.base, self.interleaved = size, float(base), interleaved
        self.scaling = scaling

    def frequencies(self) -> np.ndarray:
        """By how much each pair turns from one place to the next, in radians."""
        plain = self.base ** -(np.arange(0, self.size, 2) / self.size)
        return plain if self.scaling is None else self.scaling(plain)

    def __call__(
        self, x: tnp.ArrayLike, places: tnp.ArrayLike | None = None
    ) -> td.Array:
        x = check.as_array(x)
        if x.ndim < 3 or x.shape[-1] < self.size:
            raise ValueError(
                f"RotaryEmbedding takes (..., length, heads, depth of {self.size} or "
                f"more), got {td.typeof(x)}{at(user_source())}"
            )
        turned = self._turned(check.wide(x[..., : self.size]), places)
        return tnp.concatenate([check.narrow(turned, x), x[..., self.size :]], -1)

    def _turned(self, x: td.Array, places: Any) -> td.Array:
        places = tnp.arange(x.shape[-3]) if places is None else tnp.asarray(places)
        speed = tnp.asarray(self.frequencies(), tnp.float32)
        angles = (places[..., None] * speed)[..., None, :]
        magnitude = getattr(self.scaling, "magnitude", 1)
        cos, sin = magnitude * tnp.cos(angles), magnitude * tnp.sin(angles)
        if self.interleaved:
            first, second = x[..., 0::2], x[..., 1::2]
        else:
            first, second = x[..., : self.size // 2], x[..., self.size // 2 :]
        turned = (first * cos - second * sin, second * cos + first * sin)
        if self.interleaved:
            return tnp.stack(turned, -1).reshape(x.shape)
        return tnp.concatenate(turned, -1)
