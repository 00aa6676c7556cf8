"""Pooling layers. Channels are last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.nn.functions import pool
from treadle.nn.module import Module

Ints = int | Sequence[int]


def _each(layer: Any, name: str) -> Any:
    """An option of a layer as that of a function, which counts axes by it."""
    value, rank = getattr(layer, name), layer._rank
    values = tuple(value) if hasattr(value, "__len__") else (value,) * rank
    if len(values) == rank:
        return values
    raise ValueError(
        f"{type(layer).__name__}: {name} has one entry for each of {rank} spatial "
        f"axes, got {value!r}{at(user_source())}"
    )


class _MaxPool(Module):
    _rank: ClassVar[int]

    window: Ints
    stride: Ints | None = None
    padding: Any = "VALID"
    ceil_mode: bool = False

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        return pool.max_pool(
            x,
            _each(self, "window"),
            self.stride,
            self.padding,
            ceil_mode=self.ceil_mode,
        )


class MaxPool1d(_MaxPool):
    """`max_pool` over a sequence as a layer; one int as `window` is that for its axis.

    >>> MaxPool1d(3, stride=2)
    MaxPool1d(window=3, stride=2, padding='VALID', ceil_mode=False)
    """

    _rank = 1


class MaxPool2d(_MaxPool):
    """`max_pool` over height and width as a layer.

    >>> MaxPool2d(2)
    MaxPool2d(window=2, stride=None, padding='VALID', ceil_mode=False)
    """

    _rank = 2


class MaxPool3d(_MaxPool):
    """`max_pool` over depth, height and width as a layer.

    >>> MaxPool3d((1, 2, 2)).window
    (1, 2, 2)
    """

    _rank = 3


class _AvgPool(Module):
    _rank: ClassVar[int]

    window: Ints
    stride: Ints | None = None
    padding: Any = "VALID"
    ceil_mode: bool = False
    count_include_pad: bool = False

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        return pool.avg_pool(
            x,
            _each(self, "window"),
            self.stride,
            self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
        )


class AvgPool1d(_AvgPool):
    """`avg_pool` over a sequence as a layer; one int as `window` is that for its axis.

    >>> AvgPool1d(3, stride=2).padding
    'VALID'
    """

    _rank = 1


class AvgPool2d(_AvgPool):
    """`avg_pool` over height and width as a layer.

    >>> AvgPool2d(3, stride=2, padding="SAME").stride
    2
    """

    _rank = 2


class AvgPool3d(_AvgPool):
    """`avg_pool` over depth, height and width as a layer.

    >>> AvgPool3d((1, 2, 2)).window
    (1, 2, 2)
    """

    _rank = 3


class _LPPool(Module):
    _rank: ClassVar[int]

    norm: float
    window: Ints
    stride: Ints | None = None
    padding: Any = "VALID"

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        window = _each(self, "window")
        return pool.lp_pool(x, self.norm, window, self.stride, self.padding)


class LPPool1d(_LPPool):
    """`lp_pool` over a sequence as a layer; one int as `window` is that for its axis.

    >>> LPPool1d(2, 3).norm
    2
    """

    _rank = 1


class LPPool2d(_LPPool):
    """`lp_pool` over height and width as a layer.

    >>> LPPool2d(2, 3).window
    3
    """

    _rank = 2


class LPPool3d(_LPPool):
    """`lp_pool` over depth, height and width as a layer.

    >>> LPPool3d(2, (1, 3, 3)).window
    (1, 3, 3)
    """

    _rank = 3


class _AdaptiveAvgPool(Module):
    _rank: ClassVar[int]

    output_size: Any

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        return pool.adaptive_avg_pool(x, _each(self, "output_size"))


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """`adaptive_avg_pool` over a sequence as a layer.

    >>> import treadle.numpy as tnp
    >>> AdaptiveAvgPool1d(4)(tnp.ones((2, 10, 3))).shape
    (2, 4, 3)
    """

    _rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """`adaptive_avg_pool` over height and width as a layer.

    >>> import treadle.numpy as tnp
    >>> AdaptiveAvgPool2d((7, None))(tnp.ones((2, 10, 9, 3))).shape
    (2, 7, 9, 3)
    """

    _rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """`adaptive_avg_pool` over depth, height and width as a layer.

    >>> import treadle.numpy as tnp
    >>> AdaptiveAvgPool3d(2)(tnp.ones((2, 4, 5, 6, 3))).shape
    (2, 2, 2, 2, 3)
    """

    _rank = 3


class _AdaptiveMaxPool(Module):
    _rank: ClassVar[int]

    output_size: Any

    def __call__(self, x: tnp.ArrayLike) -> td.Array:
        return pool.adaptive_max_pool(x, _each(self, "output_size"))


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """`adaptive_max_pool` over a sequence as a layer.

    >>> import treadle.numpy as tnp
    >>> AdaptiveMaxPool1d(4)(tnp.ones((2, 10, 3))).shape
    (2, 4, 3)
    """

    _rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """`adaptive_max_pool` over height and width as a layer.

    >>> import treadle.numpy as tnp
    >>> AdaptiveMaxPool2d((7, None))(tnp.ones((2, 10, 9, 3))).shape
    (2, 7, 9, 3)
    """

    _rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """`adaptive_max_pool` over depth, height and width as a layer.

    >>> import treadle.numpy as tnp
    >>> AdaptiveMaxPool3d(2)(tnp.ones((2, 4, 5, 6, 3))).shape
    (2, 2, 2, 2, 3)
    """

    _rank = 3
