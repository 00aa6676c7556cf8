"""Normalisation by statistics that are remembered for inference."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.functions.normalize import mean_square
from treadle.nn.layers.norm import affine, spatial
from treadle.nn.module import Module
from treadle.nn.state import State

_TOO_FEW = """\
BatchNorm takes statistics of two or more values per channel in training, got {}{}
Call it on a batch; under `td.vmap`, which shows it one example at a time, name the \
axis: `td.vmap(..., axis_name="batch")` and `nn.BatchNorm(..., axis_name="batch")`. Or \
switch to the running statistics: `nn.inference(model)`."""


class BatchNorm(Module):
    """Mean 0 and variance 1 of each channel over all other axes (Ioffe 2015).

    Shapes: ``(..., features) -> (..., features)``. In training, the statistics are the
    batch's, and a running average of them is kept in State cells: call the model by
    `nn.stateful`. In inference (`nn.inference`) that average is used. Halves are
    computed in float32, in which the average stays.

    Args:
      momentum: the share of the new batch in the average. None: all batches have equal
        shares.
      eps: what is added to the variance, against division by zero.
      scale, bias: whether there is a weight, and a bias.
      running: whether there is a running average. Without one, the statistics are the
        batch's in inference, too.
      axis_name: an axis of a `td.vmap` (or several) over which the batch extends. To
        keep the state, call `nn.stateful` inside, and return the model with
        ``out_axes=None``.
      weight_init, bias_init: make them; `key` is needed only if they draw.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

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
    momentum: float | None
    eps: float
    axis_name: Any
    inference: bool
    dtype: Any
    weight: td.Array | None
    bias: td.Array | None
    mean: State | None
    var: State | None
    batches: State | None

    def __init__(
        self,
        features: int,
        *,
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        scale: bool = True,
        bias: bool = True,
        running: bool = True,
        axis_name: str | tuple[str, ...] | None = None,
        weight_init: init.Initializer = init.ones,
        bias_init: init.Initializer = init.zeros,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key | None = None,
    ) -> None:
        check.within("BatchNorm", "eps", eps)
        check.within("BatchNorm", "momentum", momentum, 0, 1)
        self.features, self.momentum, self.eps = features, momentum, eps
        self.axis_name, self.inference = axis_name, False
        self.dtype = check.dtype(dtype)
        self.weight, self.bias = affine(
            (features,),
            weight_init if scale else None,
            bias_init if bias else None,
            param_dtype,
            key,
        )
        self.mean, self.var, self.batches = _cells(
            features, running, momentum, param_dtype
        )

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.last_axis("BatchNorm", x, self.features, "features")
        x, weight, bias = check.operands(
            "BatchNorm", self.dtype, x, self.weight, self.bias
        )
        wide = check.wide(x)
        if self.inference and self.mean is not None and self.var is not None:
            mean, variance = self.mean.value, self.var.value
            centred = wide - mean
        else:
            axes, count = tuple(range(x.ndim - 1)), x.size // max(self.features, 1)
            if self.axis_name is not None:
                count = count * td.axis_size(self.axis_name)
            if count < 2:
                raise ValueError(_TOO_FEW.format(td.typeof(x), at(user_source())))
            mean = self._over_the_axis(wide.mean(axes))
            centred = wide - mean
            squares = mean_square(wide, mean, axes).reshape(mean.shape)
            variance = self._over_the_axis(squares)
            if not self.inference:
                _remember(self, mean, variance * (count / (count - 1)))
        scale = td.lax.rsqrt(variance + self.eps)
        if weight is not None:
            scale = scale * check.wide(weight)
        return check.scaled(centred * scale, x, None, bias)

    def _over_the_axis(self, mean: td.Array) -> td.Array:
        return mean if self.axis_name is None else td.pmean(mean, self.axis_name)


class InstanceNorm(Module):
    """Mean 0 and variance 1 of each channel of each example, then ``* weight + bias``
    (Ulyanov 2016).

    Shapes: ``(batch, ..., features) -> (batch, ..., features)``. Halves are computed in
    float32.

    Args:
      features: the number of channels, the length of the last axis.
      spatial_axes: how many axes before the channels belong to one example: 2 for
        images, whatever is before. By default all but the first.
      momentum: the share of the new batch in the running average, if there is one.
      eps: what is added to the variance, against division by zero.
      scale, bias: whether there is a weight, and a bias.
      running: whether the averages over examples are remembered, in State cells (call
        the model by `nn.stateful`), and used in inference (`nn.inference`).
      weight_init, bias_init: make them; `key` is needed only if they draw.
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    Raises:
      ValueError: when called with less than two values per channel of an example.
      RuntimeError: when called in training outside of `nn.stateful`, if `running`.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.InstanceNorm(1)(tnp.array([[[1.0], [3.0]], [[0.0], [8.0]]])).ravel()
    Array([-1.,  1., -1.,  1.], dtype=float32)
    """

    features: int
    spatial_axes: int | None
    momentum: float
    eps: float
    inference: bool
    dtype: Any
    weight: td.Array | None
    bias: td.Array | None
    mean: State | None
    var: State | None

    def __init__(
        self,
        features: int,
        *,
        spatial_axes: int | None = None,
        momentum: float = 0.1,
        eps: float = 1e-5,
        scale: bool = True,
        bias: bool = True,
        running: bool = False,
        weight_init: init.Initializer = init.ones,
        bias_init: init.Initializer = init.zeros,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key | None = None,
    ) -> None:
        check.within("InstanceNorm", "eps", eps)
        check.within("InstanceNorm", "momentum", momentum, 0, 1)
        self.features, self.spatial_axes = features, spatial_axes
        self.momentum, self.eps, self.inference = momentum, eps, False
        self.dtype = check.dtype(dtype)
        self.weight, self.bias = affine(
            (features,),
            weight_init if scale else None,
            bias_init if bias else None,
            param_dtype,
            key,
        )
        self.mean, self.var, _ = _cells(features, running, momentum, param_dtype)

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.last_axis("InstanceNorm", x, self.features, "features")
        x, weight, bias = check.operands(
            "InstanceNorm", self.dtype, x, self.weight, self.bias
        )
        wide = check.wide(x)
        if self.inference and self.mean is not None and self.var is not None:
            mean, variance = self.mean.value, self.var.value
            centred = wide - mean
        else:
            axes = spatial("InstanceNorm", x, self.spatial_axes)
            count: Any = 1
            for axis in axes:
                count = count * x.shape[axis]
            if count < 2:
                raise ValueError(
                    "InstanceNorm takes statistics of two or more values per channel "
                    f"of an example, got {td.typeof(x)}{at(user_source())}"
                )
            mean = wide.mean(axes, keepdims=True)
            centred = wide - mean
            variance = tnp.square(centred).mean(axes, keepdims=True)
            if not self.inference and self.mean is not None:
                lead = tuple(range(x.ndim - 1))
                unbiased = variance * (count / (count - 1))
                _remember(self, mean.mean(lead), unbiased.mean(lead))
        return check.scaled(
            centred * td.lax.rsqrt(variance + self.eps), x, weight, bias
        )


def _cells(
    features: int, running: bool, momentum: float | None, dtype: Any
) -> tuple[State | None, State | None, State | None]:
    """For the mean, the variance, and, where it is needed, the number of batches."""
    if not running:
        return None, None, None
    wide = tnp.result_type(dtype, tnp.float32)
    mean, var = State(tnp.zeros(features, wide)), State(tnp.ones(features, wide))
    return mean, var, State(0) if momentum is None else None


def _remember(layer: Any, mean: td.Array, variance: td.Array) -> None:
    """Puts statistics of a batch into the average. The variance is an estimate of the
    population's, of which the batch is a sample."""
    if layer.mean is None:
        return
    share = layer.momentum
    if share is None:
        layer.batches.value = layer.batches.value + 1
        share = 1 / layer.batches.value
    for cell, new in ((layer.mean, mean), (layer.var, variance)):
        old = check.wide(cell.value)
        mixed = (1 - share) * old + share * td.stop_gradient(new)
        cell.value = mixed.astype(cell.value.dtype)
