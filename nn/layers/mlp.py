"""The multilayer perceptron."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import init
from treadle.nn.functions.activation import relu
from treadle.nn.layers.dropout import Dropout
from treadle.nn.layers.linear import Linear
from treadle.nn.module import Module


class MLP(Module):
    """Linear layers with an activation between them.

    Shapes: ``(..., sizes[0]) -> (..., sizes[-1])``.

    Args:
      activation: of every layer but the last.
      final_activation: of the last one, if any.
      dropout: the rate of `Dropout` after each activation but the final one.
      bias, weight_init, bias_init, dtype, param_dtype: of each layer, as for `Linear`.

    Raises:
      ValueError: for fewer than two sizes, or a rate that is none.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> model = nn.MLP((784, 512, 10), activation=nn.gelu, key=rng.key(0))
    >>> model(tnp.ones((32, 784))).shape
    (32, 10)
    """

    layers: list[Linear]
    activation: Callable[[td.Array], td.Array]
    final_activation: Callable[[td.Array], td.Array] | None
    dropout: Dropout | None

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        activation: Callable[[td.Array], td.Array] = relu,
        final_activation: Callable[[td.Array], td.Array] | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        weight_init: init.Initializer = init.fan_in_uniform,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        if len(sizes) < 2:
            raise ValueError(
                f"MLP takes two or more sizes, got {tuple(sizes)}{at(user_source())}"
            )
        self.layers = [
            Linear(
                n_in,
                n_out,
                bias=bias,
                weight_init=weight_init,
                bias_init=bias_init,
                dtype=dtype,
                param_dtype=param_dtype,
                key=k,
            )
            for (n_in, n_out), k in zip(
                pairwise(sizes), rng.split(key, len(sizes) - 1), strict=True
            )
        ]
        self.activation, self.final_activation = activation, final_activation
        self.dropout = Dropout(dropout) if dropout else None

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
            if self.dropout is not None:
                x = self.dropout(x)
        out = last(x)
        return out if self.final_activation is None else self.final_activation(out)
