"""The feed-forward networks of transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.nn import init
from treadle.nn.functions.activation import gelu, silu
from treadle.nn.layers.dropout import Dropout
from treadle.nn.layers.linear import Linear
from treadle.nn.module import Module


class FeedForward(Module):
    """Two affine layers with an activation and dropout between them, on each place by
    itself.

    Shapes: ``(..., width) -> (..., width)``.

    Args:
      hidden: how many features there are in between, by default ``4 * width``.
      bias: whether the layers have one.
      weight_init, bias_init: draw the parameters, as in `Linear`.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> nn.FeedForward(8, key=rng.key(0))(tnp.ones((2, 5, 8))).shape
    (2, 5, 8)
    """

    activation: Callable[[td.Array], td.Array]
    up: Linear
    down: Linear
    dropout: Dropout

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        activation: Callable[[td.Array], td.Array] = gelu,
        dropout: float = 0.0,
        bias: bool = True,
        weight_init: init.Initializer = init.fan_in_uniform,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        hidden = 4 * width if hidden is None else hidden
        options: Any = {
            "bias": bias,
            "weight_init": weight_init,
            "bias_init": bias_init,
            "dtype": dtype,
            "param_dtype": param_dtype,
        }
        up_key, down_key = rng.split(key)
        self.activation, self.dropout = activation, Dropout(dropout)
        self.up = Linear(width, hidden, key=up_key, **options)
        self.down = Linear(hidden, width, key=down_key, **options)

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        return self.down(self.dropout(self.activation(self.up(x))))


class GatedMLP(Module):
    """``down(activation(gate(x)) * up(x))``, a feed-forward network with gates: SwiGLU,
    with `nn.gelu` GEGLU, with `nn.relu` ReGLU (Shazeer 2020).

    Shapes: ``(..., width) -> (..., width)``.

    Args:
      hidden: how many features there are in between, by default ``4 * width``.
      bias: whether the layers have one.
      weight_init, bias_init: draw the parameters, as in `Linear`.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> nn.GatedMLP(8, 20, key=rng.key(0))(tnp.ones((2, 5, 8))).shape
    (2, 5, 8)
    """

    activation: Callable[[td.Array], td.Array]
    gate: Linear
    up: Linear
    down: Linear
    dropout: Dropout

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        activation: Callable[[td.Array], td.Array] = silu,
        dropout: float = 0.0,
        bias: bool = False,
        weight_init: init.Initializer = init.fan_in_uniform,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        hidden = 4 * width if hidden is None else hidden
        options: Any = {
            "bias": bias,
            "weight_init": weight_init,
            "bias_init": bias_init,
            "dtype": dtype,
            "param_dtype": param_dtype,
        }
        gate_key, up_key, down_key = rng.split(key, 3)
        self.activation, self.dropout = activation, Dropout(dropout)
        self.gate = Linear(width, hidden, key=gate_key, **options)
        self.up = Linear(width, hidden, key=up_key, **options)
        self.down = Linear(hidden, width, key=down_key, **options)

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        return self.down(self.dropout(self.activation(self.gate(x)) * self.up(x)))
