"""The affine layer."""

from __future__ import annotations

import math

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.nn import check, init
from treadle.nn.module import Module


class Linear(Module):
    """``x @ weight + bias`` over the last axis.

    Shapes: ``(..., in_features) -> (..., out_features)``; the weight is (in_features,
    out_features).

    Args:
      bias: whether there is one.
      init: draws the weight. The default, like PyTorch's, draws evenly from
        ±1/sqrt(in_features), and the bias always does.

    >>> from treadle import nn, rng
    >>> nn.Linear(3, 4, key=rng.key(0))
    Linear(in_features=3, out_features=4, weight=f32[3,4], bias=f32[4])
    """

    in_features: int
    out_features: int
    weight: td.Array
    bias: td.Array | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        init: init.Initializer = init.fan_in_uniform,
        key: rng.Key,
    ) -> None:
        self.in_features, self.out_features = in_features, out_features
        weight_key, bias_key = rng.split(key)
        self.weight = init(weight_key, (in_features, out_features))
        self.bias = spread_bias(bias_key, out_features, in_features) if bias else None

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.last_axis("Linear", x, self.in_features, "in_features")
        x = x @ self.weight
        return x if self.bias is None else x + self.bias


def spread_bias(key: rng.Key, size: int, fan_in: int) -> td.Array:
    """A bias drawn evenly from ±1/sqrt(fan_in)."""
    return init.uniform(1 / math.sqrt(max(fan_in, 1)))(key, (size,))
