"""Vectors that tell a model where a token stands."""

from __future__ import annotations

from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.module import Module
from treadle.nn.state import State


def sinusoidal(
    places: tnp.ArrayLike,
    width: int,
    *,
    base: float = 10000.0,
    interleaved: bool = False,
) -> td.Array:
    """Sines and cosines of places (or of times, in diffusion) at `width // 2`
    frequencies (Vaswani 2017).

    Shapes: ``(...) -> (..., width)`` in float32.

    Args:
      base: the wavelengths go from 2 pi to about ``2 pi base``, geometrically.
      interleaved: whether a cosine follows each sine; by default all sines come first.

    Raises:
      ValueError: if the width is odd.

    >>> sinusoidal([0, 1], 4)
    Array([[0.    , 0.    , 1.    , 1.    ],
           [0.8415, 0.01  , 0.5403, 0.9999]], dtype=float32)
    """
    if width < 2 or width % 2:
        raise ValueError(f"sinusoidal: a width is even, got {width}{at(user_source())}")
    check.positive("sinusoidal", "base", base)
    speed = tnp.asarray(base ** -(np.arange(0, width, 2) / width), tnp.float32)
    angles = tnp.asarray(places)[..., None] * speed
    waves = (tnp.sin(angles), tnp.cos(angles))
    if not interleaved:
        return tnp.concatenate(waves, -1)
    return tnp.stack(waves, -1).reshape(*angles.shape[:-1], width)


_small = init.normal(0.02)


class SinusoidalEmbedding(Module):
    """Adds `sinusoidal` of their places to vectors.

    Shapes: ``(..., length, width) -> (..., length, width)``. Of a model with caches
    (`nn.with_cache`), places go on from call to call.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.SinusoidalEmbedding(4)(tnp.zeros((1, 4)))
    Array([[0., 0., 1., 1.]], dtype=float32)
    """

    width: int
    base: float
    interleaved: bool
    cache: State | None

    def __init__(
        self, width: int, *, base: float = 10000.0, interleaved: bool = False
    ) -> None:
        if width < 2 or width % 2:
            raise ValueError(
                f"SinusoidalEmbedding: a width is even, got {width}{at(user_source())}"
            )
        check.positive("SinusoidalEmbedding", "base", base)
        self.width, self.base, self.interleaved = width, float(base), interleaved
        self.cache = None

    def new_cache(self, batch: tuple[int, ...], length: int, dtype: Any) -> td.Array:
        """How many places each example has had: none."""
        return tnp.zeros(batch, tnp.int32)

    def __call__(
        self, x: tnp.ArrayLike, *, lengths: tnp.ArrayLike | None = None
    ) -> td.Array:
        x = check.last_axis("SinusoidalEmbedding", x, self.width, "width")
        places = _places(self.cache, x.shape[-2], lengths)
        waves = sinusoidal(
            places, self.width, base=self.base, interleaved=self.interleaved
        )
        return x + check.narrow(waves, x)


class PositionalEmbedding(Module):
    """Adds to vectors a learned one for each place.

    Shapes: ``(..., length, width) -> (..., length, width)``; the weight is (max_length,
    width). Of a model with caches (`nn.with_cache`), places go on from call to call.

    Args:
      weight_init: draws the table; by default from the normal distribution with
        standard deviation 0.02.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    Raises:
      ValueError: if there are more places than `max_length`.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> places = nn.PositionalEmbedding(512, 8, key=rng.key(0))
    >>> places(tnp.zeros((2, 5, 8))).shape
    (2, 5, 8)
    """

    max_length: int
    width: int
    dtype: Any
    weight: td.Array
    cache: State | None

    def __init__(
        self,
        max_length: int,
        width: int,
        *,
        weight_init: init.Initializer = _small,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        self.max_length, self.width = max_length, width
        self.dtype = check.dtype(dtype)
        self.weight = weight_init(key, (max_length, width), param_dtype)
        self.cache = None

    def new_cache(self, batch: tuple[int, ...], length: int, dtype: Any) -> td.Array:
        """How many places each example has had: none.

        Raises:
          ValueError: if there shall be room for more than `max_length`.
        """
        if length > self.max_length:
            raise ValueError(
                f"PositionalEmbedding has {self.max_length} places, and a cache was "
                f"asked for with room for {length}{at(user_source())}"
            )
        return tnp.zeros(batch, tnp.int32)

    def __call__(
        self, x: tnp.ArrayLike, *, lengths: tnp.ArrayLike | None = None
    ) -> td.Array:
        x = check.last_axis("PositionalEmbedding", x, self.width, "width")
        x, weight = check.operands("PositionalEmbedding", self.dtype, x, self.weight)
        if x.shape[-2] > self.max_length:
            raise ValueError(
                f"PositionalEmbedding has {self.max_length} places, got {td.typeof(x)} "
                f"with {x.shape[-2]}{at(user_source())}\n"
                "Cut what is longer, or make the layer with a larger `max_length`."
            )
        return x + weight[_places(self.cache, x.shape[-2], lengths)]


def _places(cache: State | None, length: int, lengths: Any) -> td.Array:
    """The places of a call, counted from the last one's if there is a cache."""
    if cache is None:
        return tnp.arange(length)
    before = cache.value
    cache.value = before + tnp.asarray(
        length if lengths is None else lengths, tnp.int32
    )
    return before[..., None] + tnp.arange(length)
