"""The U-Net of diffusion models: tells the noise in images (Ho 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.models.parts import cropped


class TimedBlock(nn.Module):
    """Two convolutions, each after a norm and an activation, with what is made of the
    time added between them; all of it added to what goes in.

    Shapes: ``(..., height, width, in_channels), (..., time) -> (..., out_channels)``.
    """

    norms: list[nn.GroupNorm]
    convs: list[nn.Conv2d]
    time: nn.Linear
    shortcut: nn.Linear | None
    dropout: nn.Dropout

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        time: int,
        *,
        groups: int,
        dropout: float,
        dtype: Any,
        param_dtype: Any,
        key: rng.Key,
    ) -> None:
        options: Any = {"dtype": dtype, "param_dtype": param_dtype}
        sizes = ((in_channels, out_channels), (out_channels, out_channels))
        draws = (nn.init.fan_in_uniform, nn.init.zeros)
        *keys, time_key, shortcut_key = rng.split(key, 4)
        self.norms = [
            nn.GroupNorm(groups, before, spatial_axes=2, **options)
            for before, _ in sizes
        ]
        # The block begins as what goes around it.
        self.convs = [
            nn.Conv2d(*size, 3, weight_init=draw, key=k, **options)
            for size, draw, k in zip(sizes, draws, keys, strict=True)
        ]
        self.time = nn.Linear(time, out_channels, key=time_key, **options)
        self.shortcut = (
            None
            if in_channels == out_channels
            else nn.Linear(in_channels, out_channels, key=shortcut_key, **options)
        )
        self.dropout = nn.Dropout(dropout)

    def __call__(self, x: td.Array, time: td.Array) -> td.Array:
        around = x if self.shortcut is None else self.shortcut(x)
        x = self.convs[0](nn.silu(self.norms[0](x)))
        x = x + self.time(nn.silu(time))[..., None, None, :]
        return around + self.convs[1](self.dropout(nn.silu(self.norms[1](x))))


class PixelAttention(nn.Module):
    """Every pixel looks at all others; what it sees is added to it.

    Shapes: ``(..., height, width, channels) -> (..., height, width, channels)``.
    """

    norm: nn.GroupNorm
    attention: nn.MultiHeadAttention

    def __init__(
        self,
        channels: int,
        heads: int,
        *,
        groups: int,
        dtype: Any,
        param_dtype: Any,
        key: rng.Key,
    ) -> None:
        options: Any = {"dtype": dtype, "param_dtype": param_dtype}
        self.norm = nn.GroupNorm(groups, channels, spatial_axes=2, **options)
        self.attention = nn.MultiHeadAttention(channels, heads, key=key, **options)

    def __call__(self, x: td.Array) -> td.Array:
        *lead, height, width, channels = x.shape
        pixels = self.norm(x).reshape(*lead, height * width, channels)
        return x + self.attention(pixels).reshape(x.shape)


class Stage(nn.Module):
    """Blocks at one size of the image, each with attention after it if there is any."""

    blocks: list[TimedBlock]
    attentions: list[PixelAttention | None]

    def __init__(
        self,
        sizes: Sequence[tuple[int, int]],
        time: int,
        heads: int,
        *,
        attends: bool,
        dropout: float,
        key: rng.Key,
        **options: Any,
    ) -> None:
        self.blocks, self.attentions = [], []
        for (before, width), k in zip(sizes, rng.split(key, len(sizes)), strict=True):
            block_key, attention_key = rng.split(k)
            self.blocks.append(
                TimedBlock(
                    before, width, time, dropout=dropout, key=block_key, **options
                )
            )
            self.attentions.append(
                PixelAttention(width, heads, key=attention_key, **options)
                if attends
                else None
            )

    def __call__(
        self, x: td.Array, time: td.Array, aside: list[td.Array] | None = None
    ) -> list[td.Array]:
        """What each block gives; before it, the last of `aside` joins if there is."""
        outs = []
        for block, attention in zip(self.blocks, self.attentions, strict=True):
            if aside is not None:
                x = tnp.concatenate([x, aside.pop()], -1)
            x = block(x, time)
            x = x if attention is None else attention(x)
            outs.append(x)
        return outs


class DiffusionUNet(nn.Module):
    """Tells from a noisy image, and from the time that it has got noise for, the noise
    in it: the model of `Diffusion`.

    Shapes: images ``(..., height, width, channels)`` and times ``(...)``, or one for
    all, ``-> (..., height, width, channels)``. Halves of images are rounded up, and cut
    on the way up.

    Args:
      widths: the channels at each size of the image; it is halved between them.
      depth: the number of blocks at each size on the way down; up it is one more.
      attends: at how many of the smallest sizes pixels attend to each other; in the
        middle they always do.
      groups: of the channels in `GroupNorm`; each width is a multiple of it.
      dropout: in the blocks, in training.
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    >>> from treadle import models, rng
    >>> import treadle.numpy as tnp
    >>> unet = models.DiffusionUNet((8, 16), 1, groups=4, key=rng.key(0))
    >>> unet(tnp.ones((2, 8, 8, 3)), tnp.array([3, 500])).shape
    (2, 8, 8, 3)
    """

    time: list[nn.Linear]
    stem: nn.Conv2d
    down: list[Stage]
    halvings: list[nn.Conv2d]
    middle: list[TimedBlock]
    attention: PixelAttention
    up: list[Stage]
    doublings: list[nn.Conv2d]
    norm: nn.GroupNorm
    head: nn.Conv2d

    def __init__(
        self,
        widths: Sequence[int],
        depth: int,
        *,
        channels: int = 3,
        heads: int = 4,
        attends: int = 1,
        groups: int = 8,
        dropout: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        options: Any = {"groups": groups, **dtypes}
        first, last, levels = widths[0], widths[-1], len(widths)
        time = 4 * first
        keys = iter(rng.split(key, 8 + 4 * levels))

        def conv(before: int, width: int, **more: Any) -> nn.Conv2d:
            return nn.Conv2d(before, width, 3, key=next(keys), **dtypes, **more)

        def stage(sizes: Sequence[tuple[int, int]], level: int) -> Stage:
            attending = levels - level <= attends
            more: Any = {"attends": attending, "dropout": dropout, "key": next(keys)}
            return Stage(sizes, time, heads, **more, **options)

        self.time = [
            nn.Linear(width, time, key=next(keys), **dtypes) for width in (first, time)
        ]
        self.stem = conv(channels, first)
        self.down, self.halvings, self.up, self.doublings = [], [], [], []
        # The channels of all that is kept on the way down, for the way up.
        kept, before = [first], first
        for level, width in enumerate(widths):
            if level:
                self.halvings.append(conv(before, before, stride=2, padding=1))
                kept.append(before)
            self.down.append(
                stage(
                    [(before if i == 0 else width, width) for i in range(depth)], level
                )
            )
            kept += [width] * depth
            before = width
        self.middle = [
            TimedBlock(last, last, time, dropout=dropout, key=next(keys), **options)
            for _ in range(2)
        ]
        self.attention = PixelAttention(last, heads, key=next(keys), **options)
        for level, width in reversed(list(enumerate(widths))):
            sizes = []
            for _ in range(depth + 1):
                sizes.append((before + kept.pop(), width))
                before = width
            self.up.append(stage(sizes, level))
            if level:
                self.doublings.append(conv(width, width))
        self.norm = nn.GroupNorm(groups, first, spatial_axes=2, **dtypes)
        self.head = conv(first, channels, weight_init=nn.init.zeros)

    def __call__(self, images: tnp.ArrayLike, times: tnp.ArrayLike) -> td.Array:
        x = self.stem(images)
        times = tnp.broadcast_to(tnp.asarray(times), x.shape[:-3])
        waves = nn.sinusoidal(times, self.time[0].in_features).astype(x.dtype)
        time = self.time[1](nn.silu(self.time[0](waves)))
        kept = [x]
        for level, stage in enumerate(self.down):
            if level:
                kept.append(self.halvings[level - 1](kept[-1]))
            kept += stage(kept[-1], time)
        x = self.attention(self.middle[0](kept[-1], time))
        x = self.middle[1](x, time)
        for level, stage in enumerate(self.up):
            if level:
                x = cropped(nn.Upsample(2)(x), kept[-1])
                x = self.doublings[level - 1](x)
            x = stage(x, time, kept)[-1]
        return self.head(nn.silu(self.norm(x)))
