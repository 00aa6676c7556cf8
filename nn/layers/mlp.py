"""The multilayer perceptron."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.nn.functions.activation import relu
from treadle.nn.layers.linear import Linear
from treadle.nn.module import Module


class MLP(Module):
    """Linear layers with an activation between them.

    Shapes: ``(..., sizes[0]) -> (..., sizes[-1])``.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> model = nn.MLP((784, 512, 10), activation=nn.gelu, key=rng.key(0))
    >>> model(tnp.ones((32, 784))).shape
    (32, 10)
    """

    layers: list[Linear]
    activation: Callable[[td.Array], td.Array]

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        activation: Callable[[td.Array], td.Array] = relu,
        key: rng.Key,
    ) -> None:
        if len(sizes) < 2:
            raise ValueError(f"MLP takes two or more sizes, got {tuple(sizes)}")
        keys = rng.split(key, len(sizes) - 1)
        self.layers = [
            Linear(n_in, n_out, key=k)
            for (n_in, n_out), k in zip(pairwise(sizes), keys, strict=True)
        ]
        self.activation = activation

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)
