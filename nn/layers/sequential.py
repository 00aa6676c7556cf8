"""Layers around layers and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, overload

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.module import Module

_CLASS = """\
{owner} takes layers and functions, got the class {part}{at}
Make a layer of it: `{part}(...)`."""

Part = Callable[[Any], Any]


def _part(owner: str, part: Part) -> Part:
    if isinstance(part, type):
        raise TypeError(
            _CLASS.format(owner=owner, part=part.__name__, at=at(user_source()))
        )
    if callable(part):
        return part
    raise TypeError(
        f"{owner} takes layers and functions, got {part!r:.60}{at(user_source())}"
        + f"\nWithout the list: `{owner}(*layers)`." * isinstance(part, list | tuple)
    )


class Sequential(Module):
    """Layers and functions, each called with the output of the one before.

    Args:
      layers: one after the other, or a dict of them by name.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> k1, k2 = rng.split(rng.key(0))
    >>> model = nn.Sequential(nn.Linear(2, 8, key=k1), nn.relu, nn.Linear(8, 1, key=k2))
    >>> model(tnp.ones((5, 2))).shape
    (5, 1)
    >>> model[0].out_features, model[:-1](tnp.ones((5, 2))).shape
    (8, (5, 8))
    >>> named = nn.Sequential({"body": nn.Linear(2, 8, key=k1), "head": nn.softmax})
    >>> named["body"].out_features
    8
    """

    layers: tuple[Part, ...]
    names: tuple[str, ...] | None = None

    @overload
    def __init__(self, layers: Mapping[str, Part], /) -> None: ...
    @overload
    def __init__(self, *layers: Part) -> None: ...
    def __init__(self, *layers: Any) -> None:
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            self.names = tuple(layers[0])
            layers = tuple(layers[0].values())
        self.layers = tuple([_part("Sequential", layer) for layer in layers])

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    @overload
    def __getitem__(self, index: int | str) -> Part: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | str | slice) -> Part:
        if isinstance(index, str):
            if self.names is None or index not in self.names:
                known = "has no names" if self.names is None else f"has {self.names}"
                raise KeyError(
                    f"Sequential {known}, no layer {index!r}{at(user_source())}"
                )
            index = self.names.index(index)
        if not isinstance(index, slice):
            return self.layers[index]
        part = self.layers[index]
        if self.names is None:
            return Sequential(*part)
        return Sequential(dict(zip(self.names[index], part, strict=True)))

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Part]:
        return iter(self.layers)


class Identity(Module):
    """Gives what it takes: in place of a layer that is not needed.

    >>> from treadle import nn
    >>> nn.Identity()(3)
    3
    """

    def __call__(self, x: Any) -> Any:
        return x


class Lambda(Module):
    """A function as a layer, where a Module is asked for.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.Lambda(tnp.square)(3)
    Array(9, dtype=int32)
    """

    function: Part

    def __init__(self, function: Part) -> None:
        self.function = _part("Lambda", function)

    def __call__(self, x: Any) -> Any:
        return self.function(x)


class Residual(Module):
    """``shortcut(x) + layer(x)``; without a shortcut, ``x + layer(x)`` (He 2015).

    Args:
      layer: a layer or function; `Sequential` makes one of several.
      shortcut: for layers whose outputs have another shape than their inputs.

    Raises:
      ValueError: if what is added differs in shape.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> k1, k2 = rng.split(rng.key(0))
    >>> nn.Residual(nn.Linear(3, 3, key=k1))(tnp.ones((2, 3))).shape
    (2, 3)
    >>> wider = nn.Residual(nn.MLP((3, 8, 5), key=k1), nn.Linear(3, 5, key=k2))
    >>> wider(tnp.ones((2, 3))).shape
    (2, 5)
    """

    layer: Part
    shortcut: Part | None

    def __init__(self, layer: Part, shortcut: Part | None = None) -> None:
        self.layer = _part("Residual", layer)
        self.shortcut = None if shortcut is None else _part("Residual", shortcut)

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        out = check.as_array(self.layer(x))
        kept = check.as_array(x if self.shortcut is None else self.shortcut(x))
        if kept.shape != out.shape:
            raise ValueError(
                f"Residual adds arrays of one shape; the layer made {td.typeof(out)} "
                f"of {td.typeof(x)}, the shortcut {td.typeof(kept)}{at(user_source())}"
                "\nGive a `shortcut` that makes the shape of the layer's outputs."
            )
        return kept.astype(out.dtype) + out
