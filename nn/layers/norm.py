"""Normalisation layers."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.module import Module
from treadle.nn.state import State


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axis, then ``* weight + bias`` (Ba 2016).

    Shapes: ``(..., features) -> (..., features)``. Halves are computed in float32.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.LayerNorm(2)(tnp.array([[1.0, 3.0]]))
    Array([[-1.,  1.]], dtype=float32)
    """

    features: int
    eps: float
    weight: td.Array | None
    bias: td.Array | None

    def __init__(
        self, features: int, *, eps: float = 1e-5, scale: bool = True, bias: bool = True
    ) -> None:
        self.features, self.eps = features, eps
        self.weight = tnp.ones(features) if scale else None
        self.bias = tnp.zeros(features) if bias else None

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.last_axis("LayerNorm", x, self.features, "features")
        wide = check.wide(x)
        centred = wide - wide.mean(-1, keepdims=True)
        variance = tnp.square(centred).mean(-1, keepdims=True)
        out = check.narrow(centred * td.lax.rsqrt(variance + self.eps), x)
        if self.weight is not None:
            out = out * self.weight
        return out if self.bias is None else out + self.bias


class RMSNorm(Module):
    """Mean square 1 over the last axis, then ``* weight`` (Zhang and Sennrich 2019).

    Shapes: ``(..., features) -> (..., features)``. Halves are computed in float32.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.RMSNorm(2)(tnp.array([[3.0, 4.0]]))
    Array([[0.8485, 1.1314]], dtype=float32)
    """

    features: int
    eps: float
    weight: td.Array

    def __init__(self, features: int, *, eps: float = 1e-6) -> None:
        self.features, self.eps = features, eps
        self.weight = tnp.ones(features)

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.last_axis("RMSNorm", x, self.features, "features")
        wide = check.wide(x)
        square = tnp.square(wide).mean(-1, keepdims=True)
        out = check.narrow(wide * td.lax.rsqrt(square + self.eps), x)
        return out * self.weight


_TOO_FEW = """\
BatchNorm takes statistics of two or more values per channel in training, got {}{}
Call it on a batch (under `td.vmap` it would see one example at a time), or switch to \
the running statistics: `nn.inference(model)`."""


class BatchNorm(Module):
    """Mean 0 and variance 1 of each channel over all other axes (Ioffe 2015).

    Shapes: ``(..., features) -> (..., features)``. In training, the statistics are the
    batch's, and a running average of them is kept in State cells: call the model by
    `nn.stateful`. In inference (`nn.inference`) that average is used.

    Args:
      momentum: the share of the new batch in the average.
      eps: what is added to the variance, against division by zero.

    Raises:
      ValueError: when called in training with fewer than two values per channel.
      RuntimeError: when called in training outside of `nn.stateful`.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> norm, x = nn.BatchNorm(1), tnp.array([[1.0], [3.0]])
    >>> output, norm = nn.stateful(norm)(x)
    >>> norm.mean.value, norm.var.value
    (Array([0.2], dtype=float32), Array([1.1], dtype=float32))
    """

    features: int
    momentum: float
    eps: float
    inference: bool
    weight: td.Array
    bias: td.Array
    mean: State
    var: State

    def __init__(
        self, features: int, *, momentum: float = 0.1, eps: float = 1e-5
    ) -> None:
        self.features, self.momentum, self.eps = features, momentum, eps
        self.inference = False
        self.weight, self.bias = tnp.ones(features), tnp.zeros(features)
        self.mean, self.var = State(tnp.zeros(features)), State(tnp.ones(features))

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.last_axis("BatchNorm", x, self.features, "features")
        wide = check.wide(x)
        if self.inference:
            mean, variance = self.mean.value, self.var.value
            centred = wide - mean
        else:
            axes, count = tuple(range(x.ndim - 1)), x.size // max(self.features, 1)
            if count < 2:
                raise ValueError(_TOO_FEW.format(td.typeof(x), at(user_source())))
            mean = wide.mean(axes)
            centred = wide - mean
            variance = tnp.square(centred).mean(axes)
            self._remember(mean, variance, count)
        scale = td.lax.rsqrt(variance + self.eps) * self.weight
        return check.narrow(centred * scale + self.bias, x)

    def _remember(self, mean: Any, variance: Any, count: int) -> None:
        # The variance of the population, from a batch as a sample of it.
        unbiased = variance * (count / (count - 1))
        for cell, new in ((self.mean, mean), (self.var, unbiased)):
            new = td.stop_gradient(new).astype(cell.value.dtype)
            cell.value = (1 - self.momentum) * cell.value + self.momentum * new
