"""Layers that move or add elements, and compute little or nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.functions.padding import MODES, pad_spatial
from treadle.nn.module import Module


def _axis(layer: str, axis: int, x: td.Array) -> int:
    """Counted from the front."""
    if -x.ndim <= axis < x.ndim:
        return axis % x.ndim
    raise ValueError(
        f"{layer}: axis {axis} of {td.typeof(x)} is out of range{at(user_source())}"
    )


class Flatten(Module):
    """Makes one axis of several.

    Args:
      start_axis, end_axis: the first and the last of them. By default all but the first
        axis, which is that of the batch; ``Flatten(-3)`` flattens images, whatever axes
        there are before.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.Flatten()(tnp.ones((5, 4, 4, 3))).shape
    (5, 48)
    """

    start_axis: int = 1
    end_axis: int = -1

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.as_array(x)
        first = _axis("Flatten", self.start_axis, x)
        last = _axis("Flatten", self.end_axis, x)
        if last < first:
            raise ValueError(
                f"Flatten: axis {self.start_axis} of {td.typeof(x)} is behind axis "
                f"{self.end_axis}{at(user_source())}"
            )
        whole = math.prod(x.shape[first : last + 1])
        return x.reshape(*x.shape[:first], whole, *x.shape[last + 1 :])


class Unflatten(Module):
    """Makes several axes of one.

    Args:
      axis: which one. shape: the lengths of the new axes; one may be -1.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.Unflatten(-1, (4, 4, 3))(tnp.ones((5, 48))).shape
    (5, 4, 4, 3)
    """

    axis: int
    shape: Sequence[int]

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.as_array(x)
        axis = _axis("Unflatten", self.axis, x)
        return x.reshape(*x.shape[:axis], *self.shape, *x.shape[axis + 1 :])


class Pad(Module):
    """Adds elements around the spatial axes. Channels are last.

    Shapes: ``(..., *spatial, channels) -> (..., *spatial, channels)``.

    Args:
      padding: an int or a (before, after) pair for each spatial axis, ``((2, 0),)`` for
        sequences; one int is that for height and width.
      mode: "constant", "reflect" (mirrors without the last element), "replicate"
        (repeats it), or "circular".
      value: what is added in mode "constant".

    Raises:
      ValueError: for options or inputs that don't fit.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.Pad(((1, 2),), mode="reflect")(tnp.arange(3.0)[:, None])[:, 0]
    Array([1., 0., 1., 2., 1., 0.], dtype=float32)
    """

    padding: tuple[tuple[int, int], ...]
    mode: str
    value: float

    def __init__(
        self,
        padding: int | Sequence[Any],
        *,
        mode: str = "constant",
        value: float = 0.0,
    ) -> None:
        rank = len(padding) if isinstance(padding, Sequence) else 2
        pairs = check.padding("Pad", padding, rank, names=())
        assert not isinstance(pairs, str)
        if mode not in MODES:
            raise ValueError(
                f"Pad: mode is one of {tuple(MODES)}; got {mode!r}{at(user_source())}"
            )
        self.padding, self.mode, self.value = pairs, mode, value

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.spatial("Pad", x, len(self.padding))
        return pad_spatial(x, self.padding, self.mode, self.value)


class Upsample(Module):
    """Images of another size, larger as a rule. Channels are last.

    Shapes: ``(..., *spatial, channels) -> (..., *new_spatial, channels)``. Pixels are
    areas, as for `td.image.resize`; a smaller image is not smoothed before.

    Args:
      scale_factor: how many times as large the image becomes (rounded down), a number
        for each spatial axis; one number is that for height and width.
      size: the new lengths, instead.
      mode: "nearest", "linear" (or "bilinear", "trilinear") or "cubic".
      align_corners: whether the middles of the outermost pixels stay where they are,
        instead of their borders; not for "nearest".

    Raises:
      ValueError: for options or inputs that don't fit.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.Upsample(2)(tnp.ones((5, 4, 6, 3))).shape
    (5, 8, 12, 3)
    >>> nn.Upsample(size=(5,), mode="linear", align_corners=True)(
    ...     tnp.arange(3.0)[:, None]
    ... )[:, 0]
    Array([0. , 0.5, 1. , 1.5, 2. ], dtype=float32)
    """

    scale_factor: tuple[float, ...] | None
    size: tuple[int, ...] | None
    mode: str
    align_corners: bool

    def __init__(
        self,
        scale_factor: float | Sequence[float] | None = None,
        *,
        size: int | Sequence[int] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        if (scale_factor is None) == (size is None):
            raise ValueError(
                f"Upsample takes a scale_factor or a size, got {scale_factor!r} and "
                f"{size!r}{at(user_source())}"
            )
        if mode not in _METHODS or (align_corners and mode == "nearest"):
            corners = " with align_corners" if align_corners else ""
            raise ValueError(
                f"Upsample: mode is one of {tuple(_METHODS)}; got {mode!r}{corners}"
                f"{at(user_source())}"
            )
        self.scale_factor = self.size = None
        if size is not None:
            rank = len(size) if isinstance(size, Sequence) else 2
            self.size = check.per_axis("Upsample", "size", size, rank)
        elif isinstance(scale_factor, Sequence):
            self.scale_factor = tuple(scale_factor)
        else:
            self.scale_factor = (scale_factor,) * 2  # type: ignore[assignment]
        self.mode, self.align_corners = mode, align_corners

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        rank = len(self.size or self.scale_factor or ())
        x = check.spatial("Upsample", x, rank)
        space, method = x.shape[-1 - rank : -1], _METHODS[self.mode]
        if self.size is not None:
            size: Any = self.size
        else:
            factors = zip(space, self.scale_factor or (), strict=True)
            size = [
                n * f if isinstance(f, int) else math.floor(n * f) for n, f in factors
            ]
        shape = (*x.shape[: -1 - rank], *size, x.shape[-1])
        moved = [0.0] * rank
        if self.align_corners:
            # From the middle of the first pixel to that of the last one.
            pairs = list(zip(space, size, strict=True))
            scales = [(m - 1) / (n - 1) if n > 1 and m > 1 else 1.0 for n, m in pairs]
            moved = [(1 - s) / 2 for s in scales]
        elif self.scale_factor is None or method == "nearest":
            return td.image.resize(x, shape, method, antialias=False)
        else:
            scales = list(map(float, self.scale_factor))
        axes = tuple(range(-1 - rank, -1))
        return td.image.scale_and_translate(
            x, shape, axes, scales, moved, method, antialias=False
        )


_METHODS = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
}


class PixelShuffle(Module):
    """Channels become pixels: an image is as many times as high and wide as
    `upscale_factor` says (Shi 2016).

    Shapes: ``(..., height, width, channels * factor**2) -> (..., height * factor, width
    * factor, channels)``. The channels that make one are neighbours, row by row, as in
    PyTorch.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.PixelShuffle(2)(tnp.arange(4.0).reshape(1, 1, 4))[..., 0]
    Array([[0., 1.],
           [2., 3.]], dtype=float32)
    """

    upscale_factor: int

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.spatial("PixelShuffle", x, 2)
        (*lead, height, width, channels), f = x.shape, self.upscale_factor
        if f < 1 or channels % f**2:
            raise ValueError(
                f"PixelShuffle: {channels} channels are no multiple of {f}²: "
                f"{td.typeof(x)}{at(user_source())}"
            )
        parts = x.reshape(*lead, height, width, channels // f**2, f, f)
        rows = tnp.moveaxis(parts, (-2, -1), (-4, -2))
        return rows.reshape(*lead, height * f, width * f, channels // f**2)


class PixelUnshuffle(Module):
    """Pixels become channels: the inverse of `PixelShuffle`.

    Shapes: ``(..., height * factor, width * factor, channels) -> (..., height, width,
    channels * factor**2)``.

    >>> from treadle import nn
    >>> import treadle.numpy as tnp
    >>> nn.PixelUnshuffle(2)(tnp.arange(4.0).reshape(2, 2, 1))
    Array([[[0., 1., 2., 3.]]], dtype=float32)
    """

    downscale_factor: int

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        x = check.spatial("PixelUnshuffle", x, 2)
        (*lead, height, width, channels), f = x.shape, self.downscale_factor
        if f < 1 or height % f or width % f:
            raise ValueError(
                f"PixelUnshuffle: height and width are no multiples of {f}: "
                f"{td.typeof(x)}{at(user_source())}"
            )
        parts = x.reshape(*lead, height // f, f, width // f, f, channels)
        columns = tnp.moveaxis(parts, (-4, -2), (-2, -1))
        return columns.reshape(*lead, height // f, width // f, channels * f**2)
