"""Means and straight lines, taken off."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from treadle import np as tnp
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike, as_array, as_inexact, one_axis
from treadle.run.array import Array


def detrend(
    data: ArrayLike,
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] = 0,
) -> Array:
    """The data without their mean or their least-squares line, along an axis.

    Args:
      type: "linear" takes a line off, "constant" the mean, whatever `bp` says.
      bp: places where another line begins.

    Raises:
      ValueError: for another type, or places outside.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.scipy.signal.detrend(tnp.array([1.0, 2.0, 6.0]), type="constant")
    Array([-2., -1.,  3.], dtype=float32)
    """
    x = as_array(as_inexact("detrend", data))
    if type in ("constant", "c"):
        return x - x.mean(one_axis("detrend", axis, x.ndim), keepdims=True)
    if type not in ("linear", "l"):
        raise ValueError(
            f"detrend: type is 'linear' or 'constant', got {type!r}{at(user_source())}"
        )
    x = tnp.moveaxis(x, axis, -1)
    n = x.shape[-1]
    ends = [0, *sorted({int(b) for b in np.atleast_1d(bp)} - {0, n}), n]
    if ends[1] < 0 or ends[-2] > n:
        raise ValueError(
            f"detrend: lines begin at {bp}, of {n} numbers{at(user_source())}"
        )
    parts = [_level(x[..., a:b]) for a, b in pairwise(ends)]
    return tnp.moveaxis(tnp.concatenate(parts, axis=-1), -1, axis)


def _level(x: Any) -> Any:
    """x without its line, along the last axis."""
    places = tnp.arange(x.shape[-1]).astype(x.dtype)
    places = places - places.mean()
    x = x - x.mean(-1, keepdims=True)
    squares = (places * places).sum()
    # A single number lies on any line.
    slope = (x * places).sum(-1, keepdims=True) / tnp.where(squares == 0, 1, squares)
    return x - slope * places
