"""Parts of models of images. Channels are last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.functions.activation import relu, sigmoid
from treadle.nn.layers.conv import Conv2d
from treadle.nn.layers.linear import Linear
from treadle.nn.module import Module


class PatchEmbedding(Module):
    """Cuts an image in patches and makes a vector of each (Dosovitskiy 2020).

    Shapes: ``(..., height, width, in_channels) -> (..., patches, features)``, row by
    row. Height and width are multiples of the patches'.

    Args:
      patch_size: an int, or one each for height and width.
      bias, weight_init, bias_init, dtype, param_dtype: as for `Conv2d`.

    Raises:
      ValueError: for images of which a rest would be left.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> patches = nn.PatchEmbedding(3, 64, 16, key=rng.key(0))
    >>> patches(tnp.zeros((2, 224, 224, 3))).shape
    (2, 196, 64)
    """

    projection: Conv2d

    def __init__(
        self,
        in_channels: int,
        features: int,
        patch_size: int | Sequence[int],
        *,
        bias: bool = True,
        weight_init: init.Initializer = init.fan_in_uniform,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        size = check.per_axis("PatchEmbedding", "patch_size", patch_size, 2)
        self.projection = Conv2d(
            in_channels,
            features,
            size,
            stride=size,
            padding="VALID",
            bias=bias,
            weight_init=weight_init,
            bias_init=bias_init,
            dtype=dtype,
            param_dtype=param_dtype,
            key=key,
        )

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.spatial("PatchEmbedding", x, 2, self.projection.in_channels)
        height, width = self.projection.stride
        if x.shape[-3] % height or x.shape[-2] % width:
            raise ValueError(
                f"PatchEmbedding: patches of {height} x {width} pixels leave a rest of "
                f"{td.typeof(x)}{at(user_source())}"
            )
        out = self.projection(x)
        *lead, rows, columns, features = out.shape
        return out.reshape(*lead, rows * columns, features)


class SqueezeExcite(Module):
    """Weighs the channels of an image by what they are on average (Hu 2018).

    Shapes: ``(..., height, width, channels) -> (..., height, width, channels)``.

    Args:
      squeezed: how many features the averages are squeezed to.
      activation: of these. gate: makes the weight of each channel.
      weight_init, bias_init, dtype, param_dtype: of both layers, as for `Linear`.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> nn.SqueezeExcite(8, 2, key=rng.key(0))(tnp.zeros((5, 4, 4, 8))).shape
    (5, 4, 4, 8)
    """

    squeeze: Linear
    excite: Linear
    activation: Callable[[td.Array], td.Array]
    gate: Callable[[td.Array], td.Array]

    def __init__(
        self,
        channels: int,
        squeezed: int,
        *,
        activation: Callable[[td.Array], td.Array] = relu,
        gate: Callable[[td.Array], td.Array] = sigmoid,
        weight_init: init.Initializer = init.fan_in_uniform,
        bias_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        options: dict[str, Any] = {
            "weight_init": weight_init,
            "bias_init": bias_init,
            "dtype": dtype,
            "param_dtype": param_dtype,
        }
        squeeze_key, excite_key = rng.split(key)
        self.squeeze = Linear(channels, squeezed, key=squeeze_key, **options)
        self.excite = Linear(squeezed, channels, key=excite_key, **options)
        self.activation, self.gate = activation, gate

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.spatial("SqueezeExcite", x, 2, self.squeeze.in_features)
        x, _ = check.operands(
            "SqueezeExcite", self.squeeze.dtype, x, self.squeeze.weight
        )
        mean = check.narrow(check.wide(x).mean((-3, -2)), x)
        gate = self.gate(self.excite(self.activation(self.squeeze(mean))))
        return x * gate[..., None, None, :]


class LocalResponseNorm(Module):
    """Divides by a power of what neighbouring channels are (Krizhevsky 2012): ``x / (k
    + alpha * m)**beta``, where m is the mean square of `size` channels around.

    Shapes: ``(..., channels) -> (..., channels)``. Halves are computed in float32.

    Args:
      size: how many channels count as neighbours; beyond the first and the last one,
        they are zeros.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.LocalResponseNorm(2, alpha=1.0, beta=0.5)(tnp.array([2.0, 4.0]))
    Array([1.1547, 1.206 ], dtype=float32)
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def __check_init__(self) -> None:
        for name, least in {"size": 1, "alpha": 0, "beta": 0, "k": 0}.items():
            check.within("LocalResponseNorm", name, getattr(self, name), least)

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.as_array(x)
        wide = check.wide(x)
        lead = x.ndim - 1
        around = [(0, 0)] * lead + [(self.size // 2, (self.size - 1) // 2)]
        window = (1,) * lead + (self.size,)
        total = td.lax.reduce_window(
            tnp.square(wide), 0.0, td.lax.add, window, padding=around
        )
        mean = total / self.size
        return check.narrow(wide / (self.k + self.alpha * mean) ** self.beta, x)
