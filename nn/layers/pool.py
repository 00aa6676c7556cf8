"""Pooling over height and width. Channels are last."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.module import Module

Pair = int | tuple[int, int]


def max_pool(
    x: tnp.ArrayLike, window: Pair, stride: Pair | None = None, padding: Any = "VALID"
) -> td.Array:
    """The largest element in each window. Padding never wins; how equal elements share
    the derivative is not specified.

    Shapes: ``(..., height, width, channels) -> (..., height, width, channels)``.

    Args:
      window: an int, or one each for height and width.
      stride: the distance between windows; by default the window.
      padding: as for `Conv2d`, but less than the window.

    Raises:
      ValueError: for other shapes, or windows of nothing but padding.

    >>> import treadle.numpy as tnp
    >>> max_pool(tnp.arange(16.0).reshape(4, 4, 1), 2)[..., 0]
    Array([[ 5.,  7.],
           [13., 15.]], dtype=float32)
    """
    return _pool("max_pool", x, window, stride, padding)


def avg_pool(
    x: tnp.ArrayLike, window: Pair, stride: Pair | None = None, padding: Any = "VALID"
) -> td.Array:
    """The mean of each window, over the elements that are not padding.

    Arguments and shapes are those of `max_pool`.

    >>> import treadle.numpy as tnp
    >>> avg_pool(tnp.arange(16.0).reshape(4, 4, 1), 2)[..., 0]
    Array([[ 2.5,  4.5],
           [10.5, 12.5]], dtype=float32)
    """
    return _pool("avg_pool", x, window, stride, padding)


def global_avg_pool(x: tnp.ArrayLike) -> td.Array:
    """The mean over height and width: ``(..., height, width, channels) -> (...,
    channels)``.

    >>> import treadle.numpy as tnp
    >>> global_avg_pool(tnp.arange(16.0).reshape(4, 4, 1))
    Array([7.5], dtype=float32)
    """
    return check.image("global_avg_pool", x).mean((-3, -2))


def _pool(name: str, x: Any, window: Any, stride: Any, padding: Any) -> td.Array:
    x = check.image(name, x)
    sizes = check.pair(name, "window", window)
    strides = sizes if stride is None else check.pair(name, "stride", stride)
    shape = x.shape
    pads = check.padding(name, padding, shape[-3:-1], sizes, strides)
    if any(max(ends) >= size for ends, size in zip(pads, sizes, strict=True)):
        raise ValueError(
            f"{name}: padding of {pads} around windows of {sizes} makes windows of "
            f"nothing but padding{at(user_source())}"
        )
    (h, w), (height, width) = sizes, shape[-3:-1]
    if strides == sizes and pads == ((0, 0), (0, 0)) and not (height % h or width % w):
        tiles = x.reshape(*shape[:-3], height // h, h, width // w, w, shape[-1])
        return tiles.max((-4, -2)) if name == "max_pool" else tiles.mean((-4, -2))
    flat = x.reshape(math.prod(shape[:-3]), *shape[-3:])
    options: dict[str, Any] = {"window": sizes, "strides": strides, "padding": pads}
    if name == "max_pool":
        out = td.reduce_window_max(flat, **options)
    else:
        total = td.reduce_window_sum(flat, **options)
        out = total / _inside((height, width), sizes, strides, pads, x.dtype)
    return out.reshape(*shape[:-3], *out.shape[1:])


def _inside(size: Any, window: Any, stride: Any, pads: Any, dtype: Any) -> Any:
    """How many elements of each window are not padding: (height, width, 1)."""
    # Constants, unless the sizes are not fixed.
    lib: Any = tnp if any(map(is_dim, size)) else np
    counts = []
    for n, w, s, (low, high) in zip(size, window, stride, pads, strict=True):
        start = lib.arange((n + low + high - w) // s + 1) * s - low
        counts.append(lib.minimum(start + w, n) - lib.maximum(start, 0))
    return tnp.asarray(lib.outer(*counts)[..., None], dtype)


class MaxPool2d(Module):
    """`max_pool` as a layer.

    >>> MaxPool2d(2)
    MaxPool2d(window=2, stride=None, padding='VALID')
    """

    window: Pair
    stride: Pair | None = None
    padding: Any = "VALID"

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        return max_pool(x, self.window, self.stride, self.padding)


class AvgPool2d(Module):
    """`avg_pool` as a layer.

    >>> AvgPool2d(3, stride=2, padding="SAME")
    AvgPool2d(window=3, stride=2, padding='SAME')
    """

    window: Pair
    stride: Pair | None = None
    padding: Any = "VALID"

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        return avg_pool(x, self.window, self.stride, self.padding)
