"""Convolution layers. Channels are last."""

from __future__ import annotations

import math
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.nn import check, init
from treadle.nn.module import Module


class Conv2d(Module):
    """A convolution over height and width (not flipped, as everywhere in this field).

    Shapes: ``(..., height, width, in_channels) -> (..., height, width, out_channels)``;
    the weight is (*kernel_size, in_channels / groups, out_channels). The weight and the
    bias are drawn evenly from ±1/sqrt(fan_in).

    Args:
      kernel_size, stride, dilation: an int, or one each for height and width.
      padding: "SAME" (with stride 1, the output is as large as the input), "VALID"
        (none), an int, one each for height and width, or a (before, after) pair each.
      groups: in how many independent parts the channels are split; ``in_channels`` of
        them make a depthwise convolution.
      bias: whether there is one.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> conv = nn.Conv2d(3, 8, 3, stride=2, key=rng.key(0))
    >>> conv(tnp.zeros((16, 28, 28, 3))).shape
    (16, 14, 14, 8)
    """

    in_channels: int
    out_channels: int
    stride: tuple[int, int]
    padding: Any
    dilation: tuple[int, int]
    groups: int
    weight: td.Array
    bias: td.Array | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        *,
        stride: int | tuple[int, int] = 1,
        padding: Any = "SAME",
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        key: rng.Key,
    ) -> None:
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"Conv2d: {in_channels} in_channels and {out_channels} out_channels "
                f"can't be split in {groups} groups"
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.stride = check.pair("Conv2d", "stride", stride)
        self.dilation = check.pair("Conv2d", "dilation", dilation)
        check.padding("Conv2d", padding, (1, 1), (1, 1), (1, 1))
        self.padding = padding if isinstance(padding, str | int) else tuple(padding)
        self.groups = groups
        kernel = check.pair("Conv2d", "kernel_size", kernel_size)
        weight_key, bias_key = rng.split(key)
        shape = (*kernel, in_channels // groups, out_channels)
        self.weight = init.fan_in_uniform(weight_key, shape)
        draw = init.bias_uniform(math.prod(shape[:-1]))
        self.bias = draw(bias_key, (out_channels,)) if bias else None

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.image("Conv2d", x, self.in_channels)
        lead, (height, width) = x.shape[:-3], x.shape[-3:-1]
        dtype = tnp.result_type(x, self.weight)
        x, weight = x.astype(dtype), self.weight.astype(dtype)
        reach = [
            (k - 1) * d + 1
            for k, d in zip(self.weight.shape[:2], self.dilation, strict=True)
        ]
        out = td.conv_general(
            x if len(lead) == 1 else x.reshape(math.prod(lead), *x.shape[-3:]),
            weight,
            strides=self.stride,
            padding=check.padding(
                "Conv2d", self.padding, (height, width), tuple(reach), self.stride
            ),
            lhs_dilation=(1, 1),
            rhs_dilation=self.dilation,
            feature_groups=self.groups,
        )
        if self.bias is not None:
            out = out + self.bias
        return out if len(lead) == 1 else out.reshape(*lead, *out.shape[1:])
