"""ViT: a transformer over the patches of an image (Dosovitskiy 2020)."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.models.parts import INIT, Activation, PreNormBlock, exact_gelu


class ViT(nn.Module):
    """Tells of which class an image is.

    Shapes: images ``(batch, image, image, channels) -> (batch, classes)``, logits.

    Args:
      image, patch: the sizes of images and patches, in pixels; of patches there is a
        whole number.
      depth: the number of layers.
      classes: None: for `encode` alone.
      hidden: the width inside of the feed-forward parts; by default ``4 * width``.
      pooler: whether there is a layer for `pool`.
      attention_bias: whether the projections to query, key and value have a bias.
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import models, rng
    >>> import treadle.numpy as tnp
    >>> vit = models.ViT(8, 4, 16, 2, 4, 10, key=rng.key(0))
    >>> vit(tnp.ones((2, 8, 8, 3))).shape
    (2, 10)
    """

    image: int
    patches: nn.Conv2d
    first: td.Array
    positions: td.Array
    layers: list[PreNormBlock]
    norm: nn.LayerNorm
    pooler: nn.Linear | None
    head: nn.Linear | None
    dropout: nn.Dropout

    def __init__(
        self,
        image: int,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        classes: int | None,
        *,
        channels: int = 3,
        hidden: int | None = None,
        pooler: bool = False,
        attention_bias: bool = True,
        activation: Activation = exact_gelu,
        eps: float = 1e-12,
        dropout: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        if image % patch:
            raise ValueError(f"ViT: {image} pixels are no whole number of {patch}")
        keys = rng.split(key, 6)
        self.image = image
        self.patches = nn.Conv2d(
            channels, width, patch, stride=patch, padding="VALID", key=keys[0], **dtypes
        )
        self.first = INIT(keys[1], (width,), param_dtype)
        self.positions = INIT(keys[2], (1 + (image // patch) ** 2, width), param_dtype)
        self.layers = [
            PreNormBlock(
                width,
                heads,
                hidden=hidden,
                attention_bias=attention_bias,
                activation=activation,
                eps=eps,
                dropout=dropout,
                key=layer_key,
                **dtypes,
            )
            for layer_key in rng.split(keys[3], depth)
        ]
        self.norm = nn.LayerNorm(width, eps=eps, **dtypes)
        self.pooler = (
            nn.Linear(width, width, weight_init=INIT, key=keys[4], **dtypes)
            if pooler
            else None
        )
        self.head = (
            None
            if classes is None
            else nn.Linear(width, classes, weight_init=INIT, key=keys[5], **dtypes)
        )
        self.dropout = nn.Dropout(dropout)

    def __call__(self, images: tnp.ArrayLike) -> td.Array:
        if self.head is None:
            raise ValueError("this ViT was made without classes: call `encode`")
        return self.head(self.encode(images)[..., 0, :])

    def encode(self, images: tnp.ArrayLike) -> td.Array:
        """Vectors for the image and for each patch: ``(batch, 1 + patches, width)``.

        Raises:
          ValueError: for images of another size.
        """
        x = self.patches(images)
        lead, width = x.shape[:-3], x.shape[-1]
        x = x.reshape(*lead, x.shape[-3] * x.shape[-2], width)
        if x.shape[-2] + 1 != self.positions.shape[0]:
            raise ValueError(
                f"ViT takes images of {self.image} x {self.image}, got "
                f"{td.typeof(tnp.asarray(images))}: `td.image.resize` them"
            )
        first = tnp.broadcast_to(self.first.astype(x.dtype), (*lead, 1, width))
        x = tnp.concatenate([first, x], -2) + self.positions.astype(x.dtype)
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def pool(self, x: td.Array) -> td.Array:
        """A vector for the image, made of the first of `encode`: ``(batch, width)``."""
        if self.pooler is None:
            raise ValueError("this ViT was made without a pooler: `pooler=True`")
        return tnp.tanh(self.pooler(x[..., 0, :]))
