"""Numbers that describe samples."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import treadle.numpy as tnp
from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike, none, one_axis
from treadle.ops.cumulative import cummax, cummin
from treadle.run.array import Array
from treadle.scipy.operands import floats


class ModeResult(NamedTuple):
    """The most frequent values, and how often they come."""

    mode: Array
    count: Array  # type: ignore[assignment]


def _sorted(name: str, a: ArrayLike, axis: int | None) -> tuple[Any, int]:
    """The array with the axis in question last, and which that was."""
    a = tnp.asarray(a)
    if axis is None:
        a, axis = a.reshape(-1), 0
    axis = one_axis(name, axis, a.ndim)
    return tnp.moveaxis(a, axis, -1), axis


def mode(a: ArrayLike, axis: int | None = 0, keepdims: bool = False) -> ModeResult:
    """The most frequent value along an axis (of all, if it is None); of equally
    frequent ones the smallest. Of nothing it is not-a-number.

    >>> import treadle as td
    >>> import treadle.numpy as tnp
    >>> td.scipy.stats.mode(tnp.array([3, 1, 3, 2]))
    ModeResult(mode=Array(3, dtype=int32), count=Array(2, dtype=int32))
    """
    ndim = tnp.asarray(a).ndim
    x, place = _sorted("mode", a, axis)
    x = tnp.sort(x, axis=-1)
    # The end of each run of equal values, and how long the run is until there.
    n = x.shape[-1]
    i = tnp.arange(n)
    starts = tnp.concatenate(
        [tnp.ones_like(x[..., :1], dtype=bool), x[..., 1:] != x[..., :-1]], axis=-1
    )
    first = cummax(tnp.where(starts, i, 0), axis=x.ndim - 1, reverse=False)
    lengths = i - first + 1
    if none(n):
        shape = (*x.shape[:-1], 1)
        value = tnp.full(shape, math.nan, dtypes.to_float(x.dtype))
        count = tnp.zeros(shape, lengths.dtype)
    else:
        best = tnp.argmax(lengths, axis=-1, keepdims=True)
        value = tnp.take_along_axis(x, best, axis=-1)
        count = tnp.take_along_axis(lengths, best, axis=-1)
    if axis is None and keepdims:
        shape = (1,) * ndim
        return ModeResult(value.reshape(shape), count.reshape(shape))
    if keepdims:
        return ModeResult(*[tnp.moveaxis(v, -1, place) for v in (value, count)])
    return ModeResult(value[..., 0], count[..., 0])


_METHODS = ("average", "min", "max", "dense", "ordinal")


def rankdata(
    a: ArrayLike, method: str = "average", *, axis: int | None = None
) -> Array:
    """The ranks of elements among all, or along an axis, from 1 on.

    Args:
      method: which rank equal elements get: the "average", "min" or "max" of theirs,
        "dense" (as "min", but the next rank is one more), or "ordinal" (in order).

    Raises:
      ValueError: if there is no such method.

    >>> import treadle as td
    >>> import treadle.numpy as tnp
    >>> td.scipy.stats.rankdata(tnp.array([10.0, 30.0, 20.0, 20.0]))
    Array([1. , 4. , 2.5, 2.5], dtype=float32)
    """
    if method not in _METHODS:
        raise ValueError(
            f"rankdata: method is one of {', '.join(_METHODS)}, got {method!r}"
            f"{at(user_source())}"
        )
    x, place = _sorted("rankdata", a, axis)
    order = tnp.argsort(x, axis=-1, stable=True)
    inverse = tnp.argsort(order, axis=-1)
    if method == "ordinal":
        return tnp.moveaxis(inverse + 1, -1, place)
    x = tnp.take_along_axis(x, order, axis=-1)
    new = x[..., 1:] != x[..., :-1]
    one = tnp.ones_like(x[..., :1], dtype=bool)
    starts = tnp.concatenate([one, new], axis=-1)
    ends = tnp.concatenate([new, one], axis=-1)
    i = tnp.arange(x.shape[-1])
    first = cummax(tnp.where(starts, i, 0), axis=x.ndim - 1, reverse=False)
    last = cummin(tnp.where(ends, i, x.shape[-1]), axis=x.ndim - 1, reverse=True)
    ranks = {
        "average": (first + last) / 2 + 1,
        "min": first + 1,
        "max": last + 1,
        "dense": tnp.cumsum(starts, axis=-1),
    }[method]
    return tnp.moveaxis(tnp.take_along_axis(ranks, inverse, axis=-1), -1, place)


def sem(
    a: ArrayLike, axis: int | None = 0, ddof: int = 1, *, keepdims: bool = False
) -> Array:
    """The standard error of the mean along an axis, or of all.

    Args:
      ddof: by how much fewer than the samples are the degrees of freedom.

    >>> import treadle as td
    >>> import treadle.numpy as tnp
    >>> td.scipy.stats.sem(tnp.array([1.0, 2.0, 3.0]))
    Array(0.5774, dtype=float32)
    """
    (x,) = floats("sem", a)
    n = x.size if axis is None else x.shape[one_axis("sem", axis, x.ndim)]
    return tnp.std(x, axis=axis, ddof=ddof, keepdims=keepdims) / n**0.5
