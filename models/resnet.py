"""ResNet: convolutions with ways around them (He 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.models.parts import Activation

Block = Literal["basic", "bottleneck"]
_NARROWER = 4


class ConvNorm(nn.Module):
    """A convolution without a bias, normalised, and an activation if there is one.

    Shapes: ``(batch, height, width, in_channels) -> (batch, ..., out_channels)``.
    """

    conv: nn.Conv2d
    norm: nn.BatchNorm
    activation: Activation | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        activation: Activation | None = None,
        key: rng.Key,
    ) -> None:
        self.conv = nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=kernel_size // 2,
            bias=False,
            key=key,
        )
        self.norm = nn.BatchNorm(out_channels)
        self.activation = activation

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = self.norm(self.conv(x))
        return x if self.activation is None else self.activation(x)


class ResidualBlock(nn.Module):
    """Convolutions, added to what goes in; that is projected where it changes shape.

    Shapes: ``(batch, height, width, in_channels) -> (batch, ..., out_channels)``.
    """

    layers: list[ConvNorm]
    shortcut: ConvNorm | None
    activation: Activation

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        block: Block,
        stride: int,
        stride_first: bool,
        activation: Activation,
        key: rng.Key,
    ) -> None:
        narrow = out_channels // _NARROWER
        sizes = [(in_channels, out_channels, 3), (out_channels, out_channels, 3)]
        if block == "bottleneck":
            sizes = [(in_channels, narrow, 1), (narrow, narrow, 3)]
            sizes.append((narrow, out_channels, 1))
        strided = 0 if block == "basic" or stride_first else 1
        *keys, shortcut_key = rng.split(key, len(sizes) + 1)
        self.layers = [
            ConvNorm(
                *size,
                stride=stride if i == strided else 1,
                activation=None if i == len(sizes) - 1 else activation,
                key=k,
            )
            for i, (size, k) in enumerate(zip(sizes, keys, strict=True))
        ]
        self.shortcut = (
            None
            if in_channels == out_channels and stride == 1
            else ConvNorm(in_channels, out_channels, 1, stride=stride, key=shortcut_key)
        )
        self.activation = activation

    def __call__(self, x: td.Array) -> td.Array:
        around = x if self.shortcut is None else self.shortcut(x)
        for layer in self.layers:
            x = layer(x)
        return self.activation(x + around)


class ResNet(nn.Module):
    """Tells of which class an image is.

    Shapes: images ``(batch, height, width, channels) -> (batch, classes)``, logits. In
    training the norms take the batch's statistics: call it by `nn.stateful`.

    Args:
      widths, depths: the channels that each stage gives, and its number of blocks.
      classes: None: for `encode` alone.
      block: "basic" (two convolutions, ResNet-18 and -34) or "bottleneck" (three, and
        a fourth of the channels between them, ResNet-50 and up).
      stem: the channels of the first convolution.
      stride_stage, stride_first: whether the first stage halves the image as others
        do; and whether a bottleneck does so in its first convolution, not the second.

    >>> from treadle import models, nn, rng
    >>> import treadle.numpy as tnp
    >>> resnet = models.ResNet((8, 16), (1, 1), 10, stem=4, key=rng.key(0))
    >>> nn.inference(resnet)(tnp.ones((2, 32, 32, 3))).shape
    (2, 10)
    """

    stem: ConvNorm
    stages: list[list[ResidualBlock]]
    head: nn.Linear | None

    def __init__(
        self,
        widths: Sequence[int],
        depths: Sequence[int],
        classes: int | None,
        *,
        block: Block = "bottleneck",
        stem: int = 64,
        channels: int = 3,
        activation: Activation = nn.relu,
        stride_stage: bool = False,
        stride_first: bool = False,
        key: rng.Key,
    ) -> None:
        if block not in ("basic", "bottleneck"):
            raise ValueError(f'ResNet: block is "basic" or "bottleneck", got {block!r}')
        if len(widths) != len(depths):
            raise ValueError(f"ResNet: {len(widths)} widths for {len(depths)} stages")
        stem_key, head_key, *stage_keys = rng.split(key, 2 + len(depths))
        self.stem = ConvNorm(
            channels, stem, 7, stride=2, activation=activation, key=stem_key
        )
        self.stages = []
        before = stem
        for width, depth, stage_key in zip(widths, depths, stage_keys, strict=True):
            halves = bool(self.stages) or stride_stage
            blocks = []
            for i, block_key in enumerate(rng.split(stage_key, depth)):
                blocks.append(
                    ResidualBlock(
                        before,
                        width,
                        block=block,
                        stride=2 if halves and i == 0 else 1,
                        stride_first=stride_first,
                        activation=activation,
                        key=block_key,
                    )
                )
                before = width
            self.stages.append(blocks)
        self.head = (
            None if classes is None else nn.Linear(before, classes, key=head_key)
        )

    def __call__(self, images: tnp.ArrayLike) -> td.Array:
        if self.head is None:
            raise ValueError("this ResNet was made without classes: call `encode`")
        return self.head(self.encode(images).mean((-3, -2)))

    def encode(self, images: tnp.ArrayLike) -> td.Array:
        """What the last stage gives: ``(batch, less height, less width, channels)``."""
        x = nn.max_pool(self.stem(images), 3, 2, padding=1)
        for blocks in self.stages:
            for block in blocks:
                x = block(x)
        return x
