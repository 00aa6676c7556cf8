"""Convolution layers, and those that lead back. Channels are last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.functions.padding import pad_spatial
from treadle.nn.module import Module

Ints = int | Sequence[int]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


class _Conv(Module):
    """A convolution over as many axes as its class says."""

    _rank: ClassVar[int]
    _paddings: ClassVar[tuple[str, ...]] = ("SAME", "VALID")

    in_channels: int
    out_channels: int
    stride: tuple[int, ...]
    padding: check.Padding
    padding_mode: PaddingMode
    dilation: tuple[int, ...]
    groups: int
    precision: Any
    dtype: Any
    weight: td.Array
    bias: td.Array | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        *,
        stride: Ints = 1,
        padding: str | int | Sequence[Any] = "SAME",
        padding_mode: PaddingMode = "zeros",
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        weight_init: init.Initializer = init.fan_in_uniform,
        bias_init: init.Initializer | None = None,
        precision: Any = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        name, rank = type(self).__name__, self._rank
        if padding_mode not in get_args(PaddingMode):
            raise ValueError(
                f"{name}: padding_mode is one of {get_args(PaddingMode)}; got "
                f"{padding_mode!r}{at(user_source())}"
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.stride = check.per_axis(name, "stride", stride, rank)
        self.padding = check.padding(name, padding, rank, self._paddings)
        self.padding_mode = padding_mode
        self.dilation = check.per_axis(name, "dilation", dilation, rank)
        self.groups = groups
        self.precision = check.precision(name, precision)
        self.dtype = check.dtype(dtype)
        shape = _weight_shape(
            name, rank, in_channels, out_channels, kernel_size, groups
        )
        self.weight, self.bias = _drawn(
            shape, bias, weight_init, bias_init, param_dtype, key
        )

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        name, rank = type(self).__name__, self._rank
        x = check.spatial(name, x, rank, self.in_channels)
        x, weight, bias = check.operands(name, self.dtype, x, self.weight, self.bias)
        reach = _reach(weight, self.dilation)
        pads = check.pads(self.padding, x.shape[-1 - rank : -1], reach, self.stride)
        if self.padding_mode != "zeros":
            x = pad_spatial(x, pads, self.padding_mode)
            pads = ((0, 0),) * rank
        alone = self.stride == weight.shape[:-2] == (1,) * rank
        if self.groups == 1 and alone and not any(map(any, pads)):
            return _of_points(x, weight, bias)
        return _convolved(
            x,
            weight,
            bias,
            window_strides=self.stride,
            padding=pads,
            rhs_dilation=self.dilation,
            feature_group_count=self.groups,
            precision=self.precision,
        )


class Conv1d(_Conv, init=False):
    """A convolution over a sequence.

    Shapes: ``(..., length, in_channels) -> (..., length, out_channels)``; the weight is
    (kernel_size, in_channels / groups, out_channels). Arguments are those of `Conv2d`;
    padding may also be "CAUSAL": all of it before the sequence, so that no output
    depends on later elements.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> conv = nn.Conv1d(3, 8, 5, padding="CAUSAL", dilation=2, key=rng.key(0))
    >>> conv(tnp.zeros((16, 100, 3))).shape
    (16, 100, 8)
    """

    _rank = 1
    _paddings = ("SAME", "VALID", "CAUSAL")


class Conv2d(_Conv, init=False):
    """A convolution over height and width (not flipped, as everywhere in this field).

    Shapes: ``(..., height, width, in_channels) -> (..., height, width, out_channels)``;
    the weight is (*kernel_size, in_channels / groups, out_channels). The weight and the
    bias are drawn evenly from ±1/sqrt(fan_in) by default.

    Args:
      kernel_size, stride, dilation: an int, or one each for height and width.
      padding: "SAME" (with stride 1, the output is as large as the input), "VALID"
        (none), an int, one each for height and width, or a (before, after) pair each.
      padding_mode: what is added: "zeros"; "reflect" (mirrors without the last
        element), "replicate" (repeats it), or "circular".
      groups: in how many independent parts the channels are split; ``in_channels`` of
        them make a depthwise convolution.
      bias: whether there is one.
      weight_init, bias_init: draw them.
      precision: "highest" multiplies pixel by pixel, where otherwise filters of 3 x 3
        take fewer products and lose more digits (of float32); as
        `treadle.lax.conv_general_dilated` says. (Other layers need no such choice:
        their products have all digits.)
      dtype: in which the layer computes; by default that of its parameters.
      param_dtype: in which the parameters are made.

    Raises:
      ValueError: for options or inputs that don't fit.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> conv = nn.Conv2d(3, 8, 3, stride=2, key=rng.key(0))
    >>> conv(tnp.zeros((16, 28, 28, 3))).shape
    (16, 14, 14, 8)
    """

    _rank = 2


class Conv3d(_Conv, init=False):
    """A convolution over depth, height and width.

    Shapes: ``(..., depth, height, width, in_channels) -> (..., depth, height, width,
    out_channels)``; arguments are those of `Conv2d`.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> nn.Conv3d(1, 4, 3, key=rng.key(0))(tnp.zeros((2, 8, 8, 8, 1))).shape
    (2, 8, 8, 8, 4)
    """

    _rank = 3


class _ConvTranspose(Module):
    """The transpose of a convolution over as many axes as its class says."""

    _rank: ClassVar[int]

    in_channels: int
    out_channels: int
    stride: tuple[int, ...]
    padding: check.Padding
    output_padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    precision: Any
    dtype: Any
    weight: td.Array
    bias: td.Array | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        *,
        stride: Ints = 1,
        padding: str | int | Sequence[Any] = "SAME",
        output_padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        weight_init: init.Initializer = init.fan_in_uniform,
        bias_init: init.Initializer | None = None,
        precision: Any = None,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        name, rank = type(self).__name__, self._rank
        self.in_channels, self.out_channels = in_channels, out_channels
        self.stride = check.per_axis(name, "stride", stride, rank)
        self.padding = check.padding(name, padding, rank)
        self.output_padding = check.per_axis(
            name, "output_padding", output_padding, rank, low=0
        )
        self.dilation = check.per_axis(name, "dilation", dilation, rank)
        self.groups = groups
        self.precision = check.precision(name, precision)
        self.dtype = check.dtype(dtype)
        most = map(max, self.stride, self.dilation)
        if any([more >= m for more, m in zip(self.output_padding, most, strict=True)]):
            raise ValueError(
                f"{name}: output_padding must be less than stride or dilation, got "
                f"{self.output_padding} with stride {self.stride} and dilation "
                f"{self.dilation}{at(user_source())}"
            )
        shape = _weight_shape(
            name, rank, in_channels, out_channels, kernel_size, groups
        )
        self.weight, self.bias = _drawn(
            shape, bias, weight_init, bias_init, param_dtype, key
        )

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        name, rank = type(self).__name__, self._rank
        x = check.spatial(name, x, rank, self.in_channels)
        x, weight, bias = check.operands(name, self.dtype, x, self.weight, self.bias)
        reach = _reach(weight, self.dilation)
        # Those of the convolution that leads from outputs to inputs. Its inputs are a
        # multiple of its strides with "SAME", so that any multiple tells them.
        pads = check.pads(self.padding, self.stride, reach, self.stride)
        more = self.output_padding
        if self.padding == "SAME":
            short = zip(self.stride, reach, more, strict=True)
            more = tuple([max(s - r, 0) + m for s, r, m in short])
        around = zip(reach, pads, more, strict=True)
        return _convolved(
            x,
            tnp.flip(weight, tuple(range(rank))),
            bias,
            window_strides=(1,) * rank,
            padding=[(r - 1 - low, r - 1 - high + m) for r, (low, high), m in around],
            lhs_dilation=self.stride,
            rhs_dilation=self.dilation,
            feature_group_count=self.groups,
            precision=self.precision,
        )


class ConvTranspose1d(_ConvTranspose, init=False):
    """The transpose of a convolution over a sequence.

    Shapes: ``(..., length, in_channels) -> (..., new_length, out_channels)``; arguments
    are those of `ConvTranspose2d`.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> nn.ConvTranspose1d(3, 8, 4, stride=2, key=rng.key(0))(tnp.zeros((9, 3))).shape
    (18, 8)
    """

    _rank = 1


class ConvTranspose2d(_ConvTranspose, init=False):
    """The transpose of a convolution over height and width: what upsamples in networks.

    Every element of the input adds the weight, times itself, to a window of the output;
    windows are `stride` apart.

    Shapes: ``(..., height, width, in_channels) -> (..., new_height, new_width,
    out_channels)``; the weight is (*kernel_size, in_channels / groups, out_channels).

    Args:
      kernel_size, stride, dilation: an int, or one each for height and width.
      padding: what is cut from the ends of the output. "SAME": so much that it is
        `stride` times as large as the input; "VALID": nothing; an int, one each for
        height and width, or a (before, after) pair each.
      output_padding: elements that the output has more at the end of each axis.
      groups, bias, weight_init, bias_init, precision, dtype, param_dtype: as for
        `Conv2d`.

    Raises:
      ValueError: for options or inputs that don't fit.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> conv = nn.ConvTranspose2d(3, 8, 4, stride=2, padding=1, key=rng.key(0))
    >>> conv(tnp.zeros((16, 14, 14, 3))).shape
    (16, 28, 28, 8)
    """

    _rank = 2


class ConvTranspose3d(_ConvTranspose, init=False):
    """The transpose of a convolution over depth, height and width.

    Shapes: ``(..., depth, height, width, in_channels) -> (..., new_depth, new_height,
    new_width, out_channels)``; arguments are those of `ConvTranspose2d`.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> conv = nn.ConvTranspose3d(1, 4, 2, stride=2, key=rng.key(0))
    >>> conv(tnp.zeros((2, 3, 4, 5, 1))).shape
    (2, 6, 8, 10, 4)
    """

    _rank = 3


def _weight_shape(
    name: str, rank: int, in_channels: int, out_channels: int, kernel: Ints, groups: int
) -> tuple[int, ...]:
    if groups < 1 or in_channels % groups or out_channels % groups:
        raise ValueError(
            f"{name}: {in_channels} in_channels and {out_channels} out_channels "
            f"can't be split in {groups} groups{at(user_source())}"
        )
    window = check.per_axis(name, "kernel_size", kernel, rank)
    return (*window, in_channels // groups, out_channels)


def _drawn(
    shape: tuple[int, ...],
    bias: bool,
    weight_init: init.Initializer,
    bias_init: init.Initializer | None,
    dtype: Any,
    key: rng.Key,
) -> tuple[td.Array, td.Array | None]:
    weight_key, bias_key = rng.split(key)
    draw = bias_init or init.bias_uniform(math.prod(shape[:-1]))
    weight = weight_init(weight_key, shape, dtype)
    return weight, draw(bias_key, shape[-1:], dtype) if bias else None


def _reach(weight: td.Array, dilation: tuple[int, ...]) -> list[int]:
    """Over how many elements a window goes."""
    return [(k - 1) * d + 1 for k, d in zip(weight.shape[:-2], dilation, strict=True)]


def _of_points(x: Any, weight: Any, bias: Any) -> td.Array:
    """By a filter that meets each element alone: a product."""
    out = x @ weight.reshape(weight.shape[-2:])
    return out if bias is None else out + bias


def _channels_last(rank: int) -> td.lax.ConvDimensionNumbers:
    space = tuple(range(rank))
    image = (0, rank + 1, *[axis + 1 for axis in space])
    return td.lax.ConvDimensionNumbers(image, (rank + 1, rank, *space), image)


_LAYOUTS = {rank: _channels_last(rank) for rank in (1, 2, 3)}


def _convolved(x: Any, weight: Any, bias: Any, **options: Any) -> td.Array:
    """With any leading axes, and the bias added."""
    space = weight.ndim - 1
    lead = x.shape[:-space]
    if len(lead) != 1:
        x = x.reshape(math.prod(lead), *x.shape[-space:])
    out = td.lax.conv_general_dilated(
        x, weight, dimension_numbers=_LAYOUTS[weight.ndim - 2], **options
    )
    if bias is not None:
        out = out + bias
    return out if len(lead) == 1 else out.reshape(*lead, *out.shape[1:])
