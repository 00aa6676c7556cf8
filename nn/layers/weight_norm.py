"""Layers whose weight is made of another one at each call."""

from __future__ import annotations

from functools import partial
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.functions.normalize import length, normalize
from treadle.nn.module import Module
from treadle.nn.state import State
from treadle.nn.surgery import at as at_place

_FIRST_ITERATIONS = 15
"""Of the power method, when the layer is made: PyTorch's number."""


class WeightNorm(Module):
    """A layer with its weight taken as a direction, and the length as a parameter of
    its own: it computes with ``scale * weight / |weight|`` (Salimans 2016).

    At first that is the weight of the layer. Lengths of halves are computed in float32.

    Args:
      layer: any Module; it is called with what this one is called with.
      where: the path of the weight in it.
      axis: along which there is a length for each index: for each output, by default.
        None: one length for all.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> layer = nn.WeightNorm(nn.Linear(3, 4, key=rng.key(0)))
    >>> layer.scale.shape, layer(tnp.ones((5, 3))).shape
    ((4,), (5, 4))
    """

    layer: Module
    where: str
    axis: int | None
    scale: td.Array

    def __init__(
        self, layer: Module, where: str = "weight", *, axis: int | None = -1
    ) -> None:
        self.layer, self.where, self.axis = layer, where, axis
        weight = _weight("WeightNorm", layer, where)
        wide = check.wide(weight)
        self.scale = check.narrow(length(wide, self._summed(wide)).ravel(), weight)

    def _summed(self, weight: td.Array) -> tuple[int, ...]:
        kept = () if self.axis is None else (self.axis % weight.ndim,)
        return tuple(i for i in range(weight.ndim) if i not in kept)

    def folded(self) -> Module:
        """The layer with the weight that it computes with, for when training is over.

        >>> from treadle import nn, rng
        >>> nn.WeightNorm(nn.Linear(3, 4, key=rng.key(0))).folded()
        Linear(in_features=3, out_features=4, weight=f32[3,4], bias=f32[4])
        """
        weight = _weight("WeightNorm", self.layer, self.where)
        wide = check.wide(weight)
        size = length(wide, self._summed(wide), eps=1e-12)
        made = wide * (check.wide(self.scale).reshape(size.shape) / size)
        return _with_weight(self.layer, self.where, check.narrow(made, weight))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer: Any = self.folded()
        return layer(*args, **kwargs)


class SpectralNorm(Module):
    """A layer with its weight divided by its largest singular value, so that it never
    lengthens what it is given (Miyato 2018).

    The singular value is found by the power method, as PyTorch does: its vectors `u`
    and `v` are State cells, which each call in training improves (call the model by
    `nn.stateful`). In inference (`nn.inference`) they stay. No gradient goes through
    them. Halves are computed in float32.

    Args:
      layer: any Module; it is called with what this one is called with.
      where: the path of the weight in it.
      iterations: of the power method, in each call.
      axis: that of the outputs; the weight is taken as a matrix of this axis by all
        others.
      eps: the least length that vectors are divided by.

    Raises:
      RuntimeError: when called in training outside of `nn.stateful`.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> k1, k2 = rng.split(rng.key(0))
    >>> layer = nn.SpectralNorm(nn.Linear(3, 4, key=k1), iterations=20, key=k2)
    >>> output, layer = nn.stateful(layer)(tnp.ones((5, 3)))
    >>> largest = tnp.linalg.norm(layer.folded().weight, 2)
    >>> bool(abs(largest - 1) < 1e-4)
    True
    """

    layer: Module
    where: str
    iterations: int
    axis: int
    eps: float
    inference: bool
    u: State
    v: State

    def __init__(
        self,
        layer: Module,
        where: str = "weight",
        *,
        iterations: int = 1,
        axis: int = -1,
        eps: float = 1e-12,
        key: rng.Key,
    ) -> None:
        check.within("SpectralNorm", "eps", eps)
        if iterations < 1:
            raise ValueError(
                f"SpectralNorm: iterations is 1 or more, got {iterations}"
                f"{at(user_source())}"
            )
        self.layer, self.where, self.iterations = layer, where, iterations
        self.axis, self.eps, self.inference = axis, eps, False
        matrix = self._matrix(check.wide(_weight("SpectralNorm", layer, where)))
        u, v = (
            normalize(rng.normal(k, (n,), matrix.dtype), eps=eps)
            for k, n in zip(rng.split(key), matrix.shape, strict=True)
        )
        u, v = self._improved(matrix, u, v, _FIRST_ITERATIONS)
        self.u, self.v = State(u), State(v)

    def _matrix(self, weight: td.Array) -> td.Array:
        outputs = weight.shape[self.axis]
        return tnp.moveaxis(weight, self.axis, 0).reshape(outputs, -1)

    def _improved(
        self, matrix: td.Array, u: td.Array, v: td.Array, iterations: int
    ) -> tuple[td.Array, td.Array]:
        for _ in range(iterations):
            u = normalize(matrix @ v, eps=self.eps)
            v = normalize(matrix.T @ u, eps=self.eps)
        return u, v

    def folded(self) -> Module:
        """The layer with the weight that it computes with, for when training is over.

        >>> from treadle import nn, rng
        >>> k1, k2 = rng.split(rng.key(0))
        >>> nn.SpectralNorm(nn.Linear(3, 4, key=k1), key=k2).folded()
        Linear(in_features=3, out_features=4, weight=f32[3,4], bias=f32[4])
        """
        weight = _weight("SpectralNorm", self.layer, self.where)
        wide = check.wide(weight)
        u, v = check.wide(self.u.value), check.wide(self.v.value)
        largest = u @ (self._matrix(wide) @ v)
        return _with_weight(
            self.layer, self.where, check.narrow(wide / largest, weight)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.inference:
            weight = _weight("SpectralNorm", self.layer, self.where)
            matrix = td.stop_gradient(self._matrix(check.wide(weight)))
            found = self._improved(matrix, self.u.value, self.v.value, self.iterations)
            for cell, new in zip((self.u, self.v), found, strict=True):
                cell.value = new.astype(cell.value.dtype)
        layer: Any = self.folded()
        return layer(*args, **kwargs)


def _follow(path: str, part: Any) -> Any:
    for name in path.split("."):
        part = part[int(name)] if name.isdigit() else getattr(part, name)
    return part


def _weight(owner: str, layer: Module, where: str) -> td.Array:
    """
    Raises:
      AttributeError: if there is no such field.
      TypeError: if there is no array of floating-point numbers.
    """
    if not isinstance(layer, Module):
        raise TypeError(f"{owner} takes a layer, got {layer!r:.60}{at(user_source())}")
    weight = _follow(where, layer)
    if not td.is_array(weight) or not td.dtypes.is_float(weight.dtype):
        raise TypeError(
            f"{owner}: `{where}` of {type(layer).__name__} is no array of "
            f"floating-point numbers, it is {weight!r:.60}{at(user_source())}"
        )
    return weight


def _with_weight(layer: Module, where: str, weight: td.Array) -> Module:
    return at_place(layer, partial(_follow, where)).set(weight)
