"""One layer after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, overload

from treadle.nn.module import Module


class Sequential(Module):
    """Layers and functions, each called with the output of the one before.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> k1, k2 = rng.split(rng.key(0))
    >>> model = nn.Sequential(nn.Linear(2, 8, key=k1), nn.relu, nn.Linear(8, 1, key=k2))
    >>> model(tnp.ones((5, 2))).shape
    (5, 1)
    >>> model[0].out_features, model[:-1](tnp.ones((5, 2))).shape
    (8, (5, 8))
    """

    layers: tuple[Callable[[Any], Any], ...]

    def __init__(self, *layers: Callable[[Any], Any]) -> None:
        for layer in layers:
            if not callable(layer):
                raise TypeError(
                    f"Sequential takes layers and functions, got {layer!r:.60}"
                )
        self.layers = layers

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    @overload
    def __getitem__(self, index: int) -> Callable[[Any], Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Callable[[Any], Any]:
        if isinstance(index, slice):
            return Sequential(*self.layers[index])
        return self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Callable[[Any], Any]]:
        return iter(self.layers)
