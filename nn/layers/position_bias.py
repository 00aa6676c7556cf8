"""What is added to scores of attention for the distance of query and key."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.nn import check, init
from treadle.nn.module import Module


def alibi_slopes(heads: int) -> np.ndarray:
    """By how much each head's scores fall with the distance (Press 2022).

    >>> alibi_slopes(2)
    array([0.0625, 0.0039], dtype=float32)
    """
    whole = 2 ** math.floor(math.log2(heads))
    slopes = 2.0 ** (-8 / whole * np.arange(1, whole + 1))
    # Further heads lie between those of twice as many.
    between = 2.0 ** (-4 / whole * np.arange(1, 2 * (heads - whole) + 1, 2))
    return np.concatenate([slopes, between]).astype(np.float32)


class ALiBi(Module):
    """Scores fall with the distance, for each head at another rate (Press 2022).

    Shapes: ``(..., queries), (..., keys) -> (..., heads, queries, keys)``: places in,
    what is added to scores out. It is the `position_bias` of a `MultiHeadAttention`, or
    the mask of a call.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.ALiBi(8)(tnp.arange(3), tnp.arange(3))[0]
    Array([[ 0. , -0.5, -1. ],
           [-0.5,  0. , -0.5],
           [-1. , -0.5,  0. ]], dtype=float32)
    """

    heads: int

    def __call__(
        self, query_places: tnp.ArrayLike, key_places: tnp.ArrayLike
    ) -> td.Array:
        slopes = tnp.asarray(alibi_slopes(self.heads))
        nearness = -tnp.abs(_distance(query_places, key_places))
        return slopes[:, None, None] * nearness[..., None, :, :]


class RelativePositionBias(Module):
    """A learned number for each head and distance; far distances share one, the more
    the farther (Raffel 2020, T5).

    Shapes: ``(..., queries), (..., keys) -> (..., heads, queries, keys)``: places in,
    what is added to scores out. The weight is (buckets, heads).

    Args:
      buckets: how many classes of distances there are.
      max_distance: from which distance on all are in the last one.
      bidirectional: whether keys after the query have classes of their own, half of
        them; else they count as at its place.
      weight_init: draws the table; by default from the normal distribution.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> bias = nn.RelativePositionBias(4, key=rng.key(0))
    >>> bias(tnp.arange(3), tnp.arange(5)).shape
    (4, 3, 5)
    """

    heads: int
    buckets: int
    max_distance: int
    bidirectional: bool
    dtype: Any
    weight: td.Array

    def __init__(
        self,
        heads: int,
        *,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        weight_init: init.Initializer = init.standard_normal,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        self.heads, self.buckets, self.max_distance = heads, buckets, max_distance
        self.bidirectional, self.dtype = bidirectional, check.dtype(dtype)
        self.weight = weight_init(key, (buckets, heads), param_dtype)

    def __call__(
        self, query_places: tnp.ArrayLike, key_places: tnp.ArrayLike
    ) -> td.Array:
        weight = self.weight if self.dtype is None else self.weight.astype(self.dtype)
        bucket = self._bucket(-_distance(query_places, key_places))
        return tnp.moveaxis(weight[bucket], -1, -3)

    def _bucket(self, ahead: td.Array) -> td.Array:
        """The class of a key so many places after the query."""
        n = self.buckets // 2 if self.bidirectional else self.buckets
        side = tnp.where(ahead > 0, n, 0) if self.bidirectional else 0
        far = tnp.abs(ahead) if self.bidirectional else tnp.maximum(-ahead, 0)
        near = n // 2  # so many distances have a class each
        growth = (n - near) / math.log(self.max_distance / near)
        steps = tnp.log(tnp.maximum(far, 1) / near) * growth
        shared = tnp.minimum(near + steps.astype(tnp.int32), n - 1)
        return side + tnp.where(far < near, far, shared)


def _distance(query_places: Any, key_places: Any) -> td.Array:
    """By how many places queries are after keys."""
    query, key = tnp.asarray(query_places), tnp.asarray(key_places)
    return query[..., :, None] - key[..., None, :]
