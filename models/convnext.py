"""ConvNeXt: a convolutional network with the manners of a transformer (Liu 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.models.parts import Activation, exact_gelu

_EPS = 1e-6
_DRAWN: dict[str, Any] = {
    "weight_init": nn.init.truncated_normal(0.02),
    "bias_init": nn.init.zeros,
}


class ConvNeXtBlock(nn.Module):
    """A convolution of each channel by itself, and a feed-forward network on each
    pixel, scaled and added to what goes in.

    Shapes: ``(batch, height, width, channels) -> (batch, height, width, channels)``.
    """

    conv: nn.Conv2d
    norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    scale: td.Array | None
    activation: Activation
    drop_path: nn.DropPath

    def __init__(
        self,
        channels: int,
        *,
        activation: Activation,
        scale: float,
        drop_path: float,
        dtype: Any,
        param_dtype: Any,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        options: Any = {**_DRAWN, **dtypes}
        conv_key, up_key, down_key = rng.split(key, 3)
        self.conv = nn.Conv2d(
            channels, channels, 7, groups=channels, key=conv_key, **options
        )
        self.norm = nn.LayerNorm(channels, eps=_EPS, **dtypes)
        self.up = nn.Linear(channels, 4 * channels, key=up_key, **options)
        self.down = nn.Linear(4 * channels, channels, key=down_key, **options)
        self.scale = tnp.full((channels,), scale, param_dtype) if scale else None
        self.activation = activation
        self.drop_path = nn.DropPath(drop_path)

    def __call__(self, x: td.Array) -> td.Array:
        added = self.down(self.activation(self.up(self.norm(self.conv(x)))))
        if self.scale is not None:
            added = added * self.scale.astype(added.dtype)
        return x + self.drop_path(added)


class Halving(nn.Module):
    """Images of half the height and width, after a norm.

    Shapes: ``(..., height, width, in_channels) -> (..., less, out_channels)``.
    """

    norm: nn.LayerNorm
    conv: nn.Conv2d

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        dtype: Any,
        param_dtype: Any,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        options: Any = {**_DRAWN, **dtypes, "padding": "VALID", "key": key}
        self.norm = nn.LayerNorm(in_channels, eps=_EPS, **dtypes)
        self.conv = nn.Conv2d(in_channels, out_channels, 2, stride=2, **options)

    def __call__(self, x: td.Array) -> td.Array:
        return self.conv(self.norm(x))


class ConvNeXt(nn.Module):
    """Tells of which class an image is.

    Shapes: images ``(batch, height, width, channels) -> (batch, classes)``, logits.

    Args:
      widths, depths: the channels of each stage, and its number of blocks. ConvNeXt-T
        has (96, 192, 384, 768) and (3, 3, 9, 3); S has 27 blocks in the third stage; B
        and L have 128 and 192 channels in the first.
      classes: None: for `encode` alone.
      patch: the size of the first convolution's window, and its stride.
      scale: what the factors of each channel of a block begin with; 0: there are none.
      drop_path: the share of examples that skip the last block in training; it grows to
        that from 0 for the first.
      eps: of the last norm.
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import models, nn, rng
    >>> import treadle.numpy as tnp
    >>> convnext = models.ConvNeXt((8, 16), (1, 1), 10, key=rng.key(0))
    >>> convnext(tnp.ones((2, 32, 32, 3))).shape
    (2, 10)
    """

    stem: nn.Conv2d
    stem_norm: nn.LayerNorm
    halvings: list[Halving]
    stages: list[list[ConvNeXtBlock]]
    norm: nn.LayerNorm
    head: nn.Linear | None

    def __init__(
        self,
        widths: Sequence[int],
        depths: Sequence[int],
        classes: int | None,
        *,
        channels: int = 3,
        patch: int = 4,
        activation: Activation = exact_gelu,
        scale: float = 1e-6,
        drop_path: float = 0.0,
        eps: float = _EPS,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        if len(widths) != len(depths):
            raise ValueError(f"ConvNeXt: {len(widths)} widths for {len(depths)} stages")
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        options: Any = {**_DRAWN, **dtypes}
        stem_key, halving_key, stages_key, head_key = rng.split(key, 4)
        self.stem = nn.Conv2d(
            channels,
            widths[0],
            patch,
            stride=patch,
            padding="VALID",
            key=stem_key,
            **options,
        )
        self.stem_norm = nn.LayerNorm(widths[0], eps=_EPS, **dtypes)
        self.halvings = [
            Halving(before, width, key=k, **dtypes)
            for before, width, k in zip(
                widths,
                widths[1:],
                rng.split(halving_key, len(widths) - 1),
                strict=False,
            )
        ]
        keys = iter(rng.split(stages_key, sum(depths)))
        rates = iter(np.linspace(0, drop_path, sum(depths)).tolist())
        self.stages = [
            [
                ConvNeXtBlock(
                    width,
                    activation=activation,
                    scale=scale,
                    drop_path=next(rates),
                    key=next(keys),
                    **dtypes,
                )
                for _ in range(depth)
            ]
            for width, depth in zip(widths, depths, strict=True)
        ]
        self.norm = nn.LayerNorm(widths[-1], eps=eps, **dtypes)
        self.head = (
            None
            if classes is None
            else nn.Linear(widths[-1], classes, key=head_key, **options)
        )

    def __call__(self, images: tnp.ArrayLike) -> td.Array:
        if self.head is None:
            raise ValueError("this ConvNeXt was made without classes: call `encode`")
        return self.head(self.pool(self.encode(images)))

    def encode(self, images: tnp.ArrayLike) -> td.Array:
        """What the last stage gives: ``(batch, less height, less width, channels)``."""
        x = self.stem_norm(self.stem(images))
        for i, blocks in enumerate(self.stages):
            x = self.halvings[i - 1](x) if i else x
            for block in blocks:
                x = block(x)
        return x

    def pool(self, x: td.Array) -> td.Array:
        """A vector for the image, of what `encode` gives: ``(batch, channels)``."""
        return self.norm(x.mean((-3, -2)))
