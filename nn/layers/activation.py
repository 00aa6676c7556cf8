"""Activations that have parameters or draw random numbers; all others are functions."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.functions.activation import leaky_relu
from treadle.nn.module import Module
from treadle.nn.state import draw_key


class PReLU(Module):
    """``x`` where positive, ``weight * x`` elsewhere (He 2015).

    Shapes: ``(..., features) -> (..., features)``; with one feature, any.

    Args:
      features: 1: one weight for all; otherwise one for each channel of the last axis.
      weight_init: makes it; `key` is needed only if it draws.
      dtype: in which the layer computes; by default that of the weight.
      param_dtype: in which the weight is made.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.PReLU()(tnp.array([-2.0, 3.0]))
    Array([-0.5,  3. ], dtype=float32)
    """

    features: int
    dtype: Any
    weight: td.Array

    def __init__(
        self,
        features: int = 1,
        *,
        weight_init: init.Initializer | None = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key | None = None,
    ) -> None:
        self.features, self.dtype = features, check.dtype(dtype)
        draw: Any = weight_init or init.constant(0.25)
        self.weight = draw(key, (features,), param_dtype)

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        if self.features != 1:
            x = check.last_axis("PReLU", x, self.features, "features")
        x, weight = check.operands("PReLU", self.dtype, x, self.weight)
        slope = weight if x.ndim else weight[0]
        return tnp.where(x > 0, x, slope * x)


class RReLU(Module):
    """``x`` where positive, elsewhere ``x`` times a random number, another one for each
    element (Xu 2015). In inference (`nn.inference`) that is the mean of the two bounds.

    The key is drawn from the `nn.stateful` scope, unless one is passed.

    Args:
      lower, upper: bounds of the random numbers.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.inference(nn.RReLU(0.1, 0.3))(tnp.array([-2.0, 3.0]))
    Array([-0.4,  3. ], dtype=float32)
    """

    lower: float
    upper: float
    inference: bool

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3) -> None:
        if lower > upper:
            raise ValueError(
                f"RReLU: the lower bound {lower!r} is above the upper one, {upper!r}"
                f"{at(user_source())}"
            )
        self.lower, self.upper, self.inference = lower, upper, False

    def __call__(self, x: tnp.ArrayLike, *, key: rng.Key | None = None) -> td.Array:
        x = check.as_array(x)
        if self.inference:
            return leaky_relu(x, (self.lower + self.upper) / 2)
        key = draw_key("RReLU") if key is None else key
        slope = rng.uniform(key, x.shape, tnp.float32, self.lower, self.upper)
        return leaky_relu(x, check.narrow(slope, x))
