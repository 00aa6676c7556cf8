"""Normalisation of each example by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.functions.normalize import mean_square, standardize
from treadle.nn.module import Module


def affine(
    shape: tuple[int, ...],
    weight_init: init.Initializer | None,
    bias_init: init.Initializer | None,
    dtype: Any,
    key: rng.Key | None,
) -> tuple[td.Array | None, td.Array | None]:
    """The weight and the bias of a norm, each None if its initialiser is. The usual
    initialisers need no key; those that draw say so."""
    keys: Any = (None, None) if key is None else rng.split(key)
    weight, bias = (
        None if draw is None else draw(k, shape, dtype)
        for draw, k in zip((weight_init, bias_init), keys, strict=True)
    )
    return weight, bias


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axis, then ``* weight + bias`` (Ba 2016).

    Shapes: ``(..., features) -> (..., features)``. Halves are computed in float32.

    Args:
      features: the length of the last axis; a tuple for several axes.
      eps: what is added to the variance, against division by zero.
      scale, bias: whether there is a weight, and a bias.
      weight_init, bias_init: make them; `key` is needed only if they draw.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    Raises:
      ValueError: when called with other features.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.LayerNorm(2)(tnp.array([[1.0, 3.0]]))
    Array([[-1.,  1.]], dtype=float32)
    >>> nn.LayerNorm((3, 4)).weight.shape
    (3, 4)
    """

    features: int | tuple[int, ...]
    eps: float
    dtype: Any
    weight: td.Array | None
    bias: td.Array | None

    def __init__(
        self,
        features: int | Sequence[int],
        *,
        eps: float = 1e-5,
        scale: bool = True,
        bias: bool = True,
        weight_init: init.Initializer = init.ones,
        bias_init: init.Initializer = init.zeros,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key | None = None,
    ) -> None:
        check.within("LayerNorm", "eps", eps)
        self.features, self.eps = _features(features), eps
        self.dtype = check.dtype(dtype)
        self.weight, self.bias = affine(
            _shape(self.features),
            weight_init if scale else None,
            bias_init if bias else None,
            param_dtype,
            key,
        )

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x, axes = _last_axes("LayerNorm", x, self.features)
        x, weight, bias = check.operands(
            "LayerNorm", self.dtype, x, self.weight, self.bias
        )
        out = standardize(check.wide(x), axes, eps=self.eps)
        return check.scaled(out, x, weight, bias)


class RMSNorm(Module):
    """Mean square 1 over the last axis, then ``* weight`` (Zhang and Sennrich 2019).

    Shapes: ``(..., features) -> (..., features)``. Halves are computed in float32.

    Args:
      features: the length of the last axis; a tuple for several axes.
      eps: what is added to the mean square, against division by zero.
      scale: whether there is a weight.
      weight_init: makes it; `key` is needed only if it draws.
      dtype: in which the layer computes; by default that of the weight.
      param_dtype: in which the weight is made.

    Raises:
      ValueError: when called with other features.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.RMSNorm(2)(tnp.array([[3.0, 4.0]]))
    Array([[0.8485, 1.1314]], dtype=float32)
    """

    features: int | tuple[int, ...]
    eps: float
    dtype: Any
    weight: td.Array | None

    def __init__(
        self,
        features: int | Sequence[int],
        *,
        eps: float = 1e-6,
        scale: bool = True,
        weight_init: init.Initializer = init.ones,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key | None = None,
    ) -> None:
        check.within("RMSNorm", "eps", eps)
        self.features, self.eps = _features(features), eps
        self.dtype = check.dtype(dtype)
        self.weight, _ = affine(
            _shape(self.features),
            weight_init if scale else None,
            None,
            param_dtype,
            key,
        )

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x, axes = _last_axes("RMSNorm", x, self.features)
        x, weight = check.operands("RMSNorm", self.dtype, x, self.weight)
        wide = check.wide(x)
        square = tnp.square(wide).mean(axes, keepdims=True)
        return check.scaled(wide * td.lax.rsqrt(square + self.eps), x, weight, None)


class GroupNorm(Module):
    """Mean 0 and variance 1 of each group of channels of each example, then
    ``* weight + bias`` (Wu and He 2018).

    Shapes: ``(batch, ..., features) -> (batch, ..., features)``. Halves are computed in
    float32.

    Args:
      groups: in how many parts the channels are split. One: all are normalised
        together; as many as features: each by itself (`InstanceNorm`).
      features: the number of channels, the length of the last axis.
      spatial_axes: how many axes before the channels belong to one example: 2 for
        images, whatever is before. By default all but the first.
      eps: what is added to the variance, against division by zero.
      scale, bias: whether there is a weight, and a bias, for each channel.
      weight_init, bias_init: make them; `key` is needed only if they draw.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    Raises:
      ValueError: if the channels can't be split so, and when called with others.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.GroupNorm(2, 4)(tnp.array([[1.0, 3.0, 0.0, 8.0]]))
    Array([[-1.,  1., -1.,  1.]], dtype=float32)
    """

    groups: int
    features: int
    spatial_axes: int | None
    eps: float
    dtype: Any
    weight: td.Array | None
    bias: td.Array | None

    def __init__(
        self,
        groups: int,
        features: int,
        *,
        spatial_axes: int | None = None,
        eps: float = 1e-5,
        scale: bool = True,
        bias: bool = True,
        weight_init: init.Initializer = init.ones,
        bias_init: init.Initializer = init.zeros,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key | None = None,
    ) -> None:
        check.within("GroupNorm", "eps", eps)
        if groups < 1 or features % groups:
            raise ValueError(
                f"GroupNorm: {features} features can't be split in {groups} groups"
                f"{at(user_source())}"
            )
        self.groups, self.features = groups, features
        self.spatial_axes, self.eps = spatial_axes, eps
        self.dtype = check.dtype(dtype)
        self.weight, self.bias = affine(
            (features,),
            weight_init if scale else None,
            bias_init if bias else None,
            param_dtype,
            key,
        )

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.last_axis("GroupNorm", x, self.features, "features")
        x, weight, bias = check.operands(
            "GroupNorm", self.dtype, x, self.weight, self.bias
        )
        axes = spatial("GroupNorm", x, self.spatial_axes)
        if math.prod(x.shape[axis] for axis in axes) == 1:
            # Not sums of one element: how these round depends on what is around them.
            axes = ()
        wide = check.wide(x)
        # Channel by channel, so that arrays of the size of x are read along all
        # channels; then the means and variances of channels give those of groups.
        means = wide.mean(axes, keepdims=True)
        centred = wide - means
        apart = means - self._of_groups(means)
        squares = mean_square(wide, means, axes)
        variance = self._of_groups(squares + tnp.square(apart))
        scale = td.lax.rsqrt(variance + self.eps)
        if weight is not None:
            scale = scale * check.wide(weight)
        return check.scaled((centred + apart) * scale, x, None, bias)

    def _of_groups(self, x: td.Array) -> td.Array:
        """For each channel, the mean over the channels of its group."""
        size = self.features // self.groups
        of_groups = x.reshape(*x.shape[:-1], self.groups, size).mean(-1, keepdims=True)
        each = tnp.broadcast_to(of_groups, (*of_groups.shape[:-1], size))
        return each.reshape(x.shape)


def spatial(layer: str, x: td.Array, count: int | None) -> tuple[int, ...]:
    """The axes of one example before its channels: so many, or all but the first.

    Raises:
      ValueError: if there are less.
    """
    last = x.ndim - 1
    if count is None:
        return tuple(range(1, last))
    if count > last:
        raise ValueError(
            f"{layer} was made for {count} spatial axes before the channels, got "
            f"{td.typeof(x)}{at(user_source())}"
        )
    return tuple(range(last - count, last))


def _features(features: int | Sequence[int]) -> int | tuple[int, ...]:
    if isinstance(features, Sequence):
        return tuple(map(index, features))
    return index(features)


def _shape(features: int | tuple[int, ...]) -> tuple[int, ...]:
    return features if isinstance(features, tuple) else (features,)


def _last_axes(
    layer: str, x: Any, features: int | tuple[int, ...]
) -> tuple[td.Array, tuple[int, ...]]:
    """`x` as an array whose last axes have those lengths, and these axes.

    Raises:
      ValueError: if they have others.
    """
    if not isinstance(features, tuple):
        return check.last_axis(layer, x, features, "features"), (-1,)
    x = check.as_array(x)
    if tuple(x.shape[max(x.ndim - len(features), 0) :]) != features:
        raise ValueError(
            f"{layer} takes arrays of shape (..., *features={features}), got "
            f"{td.typeof(x)}{at(user_source())}"
        )
    return x, tuple(range(-len(features), 0))
