"""Layers that are linear in each of their inputs."""

from __future__ import annotations

from typing import Any

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
      weight_init, bias_init: draw them. By default evenly from ±1/sqrt(in_features), as
        PyTorch does.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> nn.Linear(3, 4, key=rng.key(0))
    Linear(in_features=3, out_features=4, weight=f32[3,4], bias=f32[4])
    """

    in_features: int
    out_features: int
    dtype: Any
    weight: td.Array
    bias: td.Array | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        weight_init: init.Initializer = init.fan_in_uniform,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.dtype = check.dtype(dtype)
        weight_key, bias_key = rng.split(key)
        self.weight = weight_init(weight_key, (in_features, out_features), param_dtype)
        bias_init = bias_init or init.bias_uniform(in_features)
        self.bias = bias_init(bias_key, (out_features,), param_dtype) if bias else None

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.last_axis("Linear", x, self.in_features, "in_features")
        x, weight, bias = check.operands(
            "Linear", self.dtype, x, self.weight, self.bias
        )
        x = x @ weight
        return x if bias is None else x + bias


class Bilinear(Module):
    """``x1 · weight · x2 + bias`` for each output feature, over the last axes.

    Shapes: ``(..., in1_features), (..., in2_features) -> (..., out_features)``; the
    weight is (in1_features, in2_features, out_features).

    Args:
      bias: whether there is one.
      weight_init, bias_init: draw them. By default evenly from ±1/sqrt(in1_features),
        as PyTorch does.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> layer = nn.Bilinear(3, 4, 5, key=rng.key(0))
    >>> layer(tnp.ones((2, 3)), tnp.ones((2, 4))).shape
    (2, 5)
    """

    in1_features: int
    in2_features: int
    out_features: int
    dtype: Any
    weight: td.Array
    bias: td.Array | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        *,
        bias: bool = True,
        weight_init: init.Initializer | None = None,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        self.dtype = check.dtype(dtype)
        weight_key, bias_key = rng.split(key)
        draw_weight = weight_init or init.bias_uniform(in1_features)
        draw_bias = bias_init or init.bias_uniform(in1_features)
        shape = (in1_features, in2_features, out_features)
        self.weight = draw_weight(weight_key, shape, param_dtype)
        self.bias = draw_bias(bias_key, (out_features,), param_dtype) if bias else None

    def __call__(self, x1: tnp.ArrayLike, x2: tnp.ArrayLike) -> td.Array:
        x1 = check.last_axis("Bilinear", x1, self.in1_features, "in1_features")
        x2 = check.last_axis("Bilinear", x2, self.in2_features, "in2_features")
        weight, bias = self.weight, self.bias
        x1, weight, bias = check.operands("Bilinear", self.dtype, x1, weight, bias)
        x2, _ = check.operands("Bilinear", self.dtype, x2, self.weight)
        x = tnp.einsum("...i,ijo->...jo", x1, weight)
        x = tnp.einsum("...jo,...j->...o", x, x2)
        return x if bias is None else x + bias
