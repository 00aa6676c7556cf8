"""U-Net: down to a small image and up again, beside what was seen on the way down
(Ronneberger 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.models.parts import Activation, cropped


class ConvBlock(nn.Module):
    """Two convolutions, each with a norm and an activation after it.

    Shapes: ``(..., height, width, in_channels) -> (..., out_channels)``.
    """

    convs: list[nn.Conv2d]
    norms: list[nn.GroupNorm]
    dropout: nn.Dropout
    activation: Activation

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        groups: int,
        activation: Activation,
        dropout: float,
        dtype: Any,
        param_dtype: Any,
        key: rng.Key,
    ) -> None:
        options: Any = {"dtype": dtype, "param_dtype": param_dtype}
        self.convs = [
            nn.Conv2d(before, out_channels, 3, key=k, **options)
            for before, k in zip(
                (in_channels, out_channels), rng.split(key), strict=True
            )
        ]
        self.norms = [
            nn.GroupNorm(groups, out_channels, spatial_axes=2, **options)
            for _ in self.convs
        ]
        self.dropout = nn.Dropout(dropout)
        self.activation = activation

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = self.activation(norm(conv(x)))
        return self.dropout(x)


class UNet(nn.Module):
    """Tells of which class each pixel is.

    Shapes: images ``(..., height, width, channels) -> (..., height, width, classes)``,
    logits. Any height and width will do: halves are rounded up, and cut on the way up.
    Those that can be halved so often share one compiled program.

    Args:
      widths: the channels at each size of the image; it is halved between them.
      groups: of the channels in `GroupNorm`; each width is a multiple of it.
      activation: after each norm.
      dropout: the share of what each block gives that is left out in training.
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import models, rng
    >>> import treadle.numpy as tnp
    >>> unet = models.UNet((8, 16), 5, key=rng.key(0))
    >>> unet(tnp.ones((2, 15, 20, 3))).shape
    (2, 15, 20, 5)
    """

    down: list[ConvBlock]
    up: list[nn.ConvTranspose2d]
    joined: list[ConvBlock]
    head: nn.Conv2d

    def __init__(
        self,
        widths: Sequence[int],
        classes: int,
        *,
        channels: int = 3,
        groups: int = 8,
        activation: Activation = nn.relu,
        dropout: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        options: Any = {
            **dtypes,
            "groups": groups,
            "activation": activation,
            "dropout": dropout,
        }
        *keys, head_key = rng.split(key, len(widths) + 1)
        self.down, self.up, self.joined = [], [], []
        before = channels
        for width, level_key in zip(widths, keys, strict=True):
            down_key, up_key, joined_key = rng.split(level_key, 3)
            self.down.append(ConvBlock(before, width, key=down_key, **options))
            if self.down[1:]:
                self.up.append(
                    nn.ConvTranspose2d(width, before, 2, stride=2, key=up_key, **dtypes)
                )
                self.joined.append(
                    ConvBlock(2 * before, before, key=joined_key, **options)
                )
            before = width
        self.head = nn.Conv2d(widths[0], classes, 1, key=head_key, **dtypes)

    def __call__(self, images: tnp.ArrayLike) -> td.Array:
        first, *rest = self.down
        seen = [first(images)]
        for block in rest:
            seen.append(block(nn.max_pool(seen[-1], 2, padding="SAME")))
        x = seen.pop()
        for up, block in reversed(list(zip(self.up, self.joined, strict=True))):
            aside = seen.pop()
            x = block(tnp.concatenate([aside, cropped(up(x), aside)], -1))
        return self.head(x)
