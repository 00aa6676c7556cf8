"""ResNet: convolutions with ways around them (He 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.models.parts import Activation

Block = Literal["basic", "bottleneck"]
_NARROWER = 4
_DEPTHS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
_CIFAR = (20, 32, 44, 56, 110)


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
        norm_init: nn.init.Initializer = nn.init.ones,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        self.conv = nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=kernel_size // 2,
            bias=False,
            key=key,
            **dtypes,
        )
        self.norm = nn.BatchNorm(out_channels, weight_init=norm_init, **dtypes)
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
        zero_last: bool,
        dtype: Any,
        param_dtype: Any,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        narrow = out_channels // _NARROWER
        sizes = [(in_channels, out_channels, 3), (out_channels, out_channels, 3)]
        if block == "bottleneck":
            sizes = [(in_channels, narrow, 1), (narrow, narrow, 3)]
            sizes.append((narrow, out_channels, 1))
        strided = 0 if block == "basic" or stride_first else 1
        last_init = nn.init.zeros if zero_last else nn.init.ones
        *keys, shortcut_key = rng.split(key, len(sizes) + 1)
        self.layers = [
            ConvNorm(
                *size,
                stride=stride if i == strided else 1,
                activation=None if i == len(sizes) - 1 else activation,
                norm_init=last_init if i == len(sizes) - 1 else nn.init.ones,
                key=k,
                **dtypes,
            )
            for i, (size, k) in enumerate(zip(sizes, keys, strict=True))
        ]
        self.shortcut = (
            None
            if in_channels == out_channels and stride == 1
            else ConvNorm(
                in_channels, out_channels, 1, stride=stride, key=shortcut_key, **dtypes
            )
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
      small: for images as small as CIFAR's: the stem is a 3x3 convolution that leaves
        them as large as they are, and there is no pooling after it.
      zero_last: whether the last norm of each block begins with the weight 0, so that
        blocks begin as what goes around them (Goyal 2017).
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import models, nn, rng
    >>> import treadle.numpy as tnp
    >>> resnet = models.ResNet((8, 16), (1, 1), 10, stem=4, key=rng.key(0))
    >>> nn.inference(resnet)(tnp.ones((2, 32, 32, 3))).shape
    (2, 10)
    """

    stem: ConvNorm
    stages: list[list[ResidualBlock]]
    head: nn.Linear | None
    small: bool

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
        small: bool = False,
        zero_last: bool = False,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        if block not in ("basic", "bottleneck"):
            raise ValueError(f'ResNet: block is "basic" or "bottleneck", got {block!r}')
        if len(widths) != len(depths):
            raise ValueError(f"ResNet: {len(widths)} widths for {len(depths)} stages")
        stem_key, head_key, *stage_keys = rng.split(key, 2 + len(depths))
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        window, stride = (3, 1) if small else (7, 2)
        self.small = small
        self.stem = ConvNorm(
            channels,
            stem,
            window,
            stride=stride,
            activation=activation,
            key=stem_key,
            **dtypes,
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
                        zero_last=zero_last,
                        key=block_key,
                        **dtypes,
                    )
                )
                before = width
            self.stages.append(blocks)
        self.head = (
            None
            if classes is None
            else nn.Linear(before, classes, key=head_key, **dtypes)
        )

    @classmethod
    def of_depth(cls, depth: int, classes: int | None, **options: Any) -> ResNet:
        """The ResNets of the paper: ResNet-18, -34, -50, -101 and -152; and those for
        CIFAR with 6 n + 2 layers: -20, -32, -44, -56, -110.

        Args:
          options: those of `ResNet`, `key` among them.

        Raises:
          ValueError: for other depths.

        >>> from treadle import models, rng
        >>> len(models.ResNet.of_depth(20, 10, key=rng.key(0)).stages)
        3
        """
        if depth in _DEPTHS:
            block: Block = "basic" if depth < 50 else "bottleneck"
            first = 64 if block == "basic" else 64 * _NARROWER
            widths = [first * 2**i for i in range(4)]
            return cls(widths, _DEPTHS[depth], classes, block=block, **options)
        if depth not in _CIFAR:
            known = sorted([*_DEPTHS, *_CIFAR])
            raise ValueError(f"ResNet.of_depth: depth is one of {known}, got {depth!r}")
        n = (depth - 2) // 6
        options = {"stem": 16, "small": True, **options}
        return cls((16, 32, 64), (n, n, n), classes, block="basic", **options)

    def __call__(self, images: tnp.ArrayLike) -> td.Array:
        if self.head is None:
            raise ValueError("this ResNet was made without classes: call `encode`")
        return self.head(self.encode(images).mean((-3, -2)))

    def encode(self, images: tnp.ArrayLike) -> td.Array:
        """What the last stage gives: ``(batch, less height, less width, channels)``."""
        x = self.stem(images)
        x = x if self.small else nn.max_pool(x, 3, 2, padding=1)
        for blocks in self.stages:
            for block in blocks:
                x = block(x)
        return x
