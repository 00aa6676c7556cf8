"""A block without attention: places are mixed by a feed-forward network."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.layers.dropout import Dropout, DropPath
from treadle.nn.layers.feedforward import FeedForward
from treadle.nn.layers.norm import LayerNorm
from treadle.nn.layers.transformer import Added, Layer, Make
from treadle.nn.module import Module


class MLPMixerBlock(Module):
    """A feed-forward network over the places, then one over the features; each adds to
    what it reads (Tolstikhin 2021).

    Shapes: ``(..., length, width) -> (..., length, width)``.

    Args:
      length: the number of places, which is fixed.
      place_hidden: how many hidden features the first network has, by default
        ``width // 2``.
      hidden: how many the second has, by default ``4 * width``.
      norm, mlp: make the parts, as in `TransformerEncoderBlock`.
      dropout, drop_path: as in `TransformerEncoderBlock`.
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> block = nn.MLPMixerBlock(16, 8, key=rng.key(0))
    >>> block(tnp.ones((4, 16, 8))).shape
    (4, 16, 8)
    """

    length: int
    width: int
    place_norm: Layer
    place_mlp: Layer
    mlp_norm: Layer
    mlp: Layer
    added: Added

    def __init__(
        self,
        length: int,
        width: int,
        place_hidden: int | None = None,
        hidden: int | None = None,
        *,
        norm: Make = LayerNorm,
        mlp: Make = FeedForward,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        options: Any = {"dropout": dropout, **dtypes}
        place_hidden = max(width // 2, 1) if place_hidden is None else place_hidden
        hidden = 4 * width if hidden is None else hidden
        place_key, mlp_key = rng.split(key)
        self.length, self.width = length, width
        self.place_norm = norm(width, **dtypes)
        self.place_mlp = mlp(length, place_hidden, key=place_key, **options)
        self.mlp_norm = norm(width, **dtypes)
        self.mlp = mlp(width, hidden, key=mlp_key, **options)
        self.added = Added(True, Dropout(dropout), DropPath(drop_path))

    def __call__(self, x: td.Array) -> td.Array:
        x = check.last_axis("MLPMixerBlock", x, self.width, "width")
        if x.ndim < 2 or x.shape[-2] != self.length:
            raise ValueError(
                f"MLPMixerBlock takes arrays of shape (..., length={self.length}, "
                f"width={self.width}), got {td.typeof(x)}{at(user_source())}"
            )

        def mixed(x: td.Array) -> td.Array:
            return tnp.swapaxes(self.place_mlp(tnp.swapaxes(x, -1, -2)), -1, -2)

        x = self.added.to(x, self.place_norm, mixed)
        return self.added.to(x, self.mlp_norm, self.mlp)
