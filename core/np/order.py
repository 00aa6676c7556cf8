"""Sorting, whole or in part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import equal_shapes
from treadle.errors import at, user_source
from treadle.np.operands import (
    ArrayLike,
    as_array,
    cast,
    one_axis,
    operand,
    static_integer,
)
from treadle.np.shapes import flip, moveaxis, ravel
from treadle.ops import sort as sorts
from treadle.ops.shape import iota
from treadle.run.array import Array
from treadle.trace.value import typeof


def along(name: str, x: Any, axis: int | None) -> tuple[Any, int]:
    """The operand and the number of an axis; None flattens."""
    x = operand(name, x)
    if axis is None:
        return ravel(x), 0
    return x, one_axis(name, axis, typeof(x).ndim)


def sort(
    x: ArrayLike,
    axis: int | None = -1,
    descending: bool = False,
    *,
    stable: bool = True,
    kind: str | None = None,
) -> Array:
    """The elements in ascending order along an axis; not-a-number comes last.

    `stable` is kept in any case: equal elements keep their order. So is `kind`, one of
    NumPy's names of algorithms: they give the same elements. Complex numbers are
    in NumPy's order: by real parts, then by imaginary ones, last those of which a part
    is not a number. `descending` turns all of it round.
    """
    _check_kind("sort", kind)
    x, number = along("sort", x, axis)
    out = sorts.sort(x, axis=number, num_keys=1)[0]
    return flip(out, number) if descending else out


def argsort(
    x: ArrayLike,
    axis: int | None = -1,
    descending: bool = False,
    *,
    stable: bool = True,
    kind: str | None = None,
) -> Array:
    """The indices that sort along an axis. Equal elements keep their order, whatever
    `stable` and `kind` (NumPy's names of algorithms) say.

    int32; along an axis of 2³¹ elements or more, int64.
    """
    _check_kind("argsort", kind)
    x, number = along("argsort", x, axis)
    if not descending:
        return sorts.argsort(x, number)
    # Sorted from the end and turned round, equal elements keep their order.
    n = typeof(x).shape[number]
    return (n - 1) - flip(sorts.argsort(flip(x, number), number), number)


_KINDS = (None, "quicksort", "mergesort", "heapsort", "stable")


def _check_kind(name: str, kind: str | None) -> None:
    if kind not in _KINDS:
        raise ValueError(
            f"{name}: kind {kind!r} is none of {', '.join(map(repr, _KINDS[1:]))}"
            f"{at(user_source())}"
        )


def partition(x: ArrayLike, kth: int | Sequence[int], axis: int | None = -1) -> Array:
    """The elements along an axis, those before the kth not larger than it and those
    behind it not smaller: they are sorted."""
    x, number = along("partition", x, axis)
    _check_places("partition", kth, typeof(x).shape[number])
    return sort(x, number)


def argpartition(
    x: ArrayLike, kth: int | Sequence[int], axis: int | None = -1
) -> Array:
    """The indices that `partition` along an axis."""
    x, number = along("argpartition", x, axis)
    _check_places("argpartition", kth, typeof(x).shape[number])
    return argsort(x, number)


def _check_places(name: str, kth: Any, n: int) -> None:
    for k in kth if isinstance(kth, Sequence) else [kth]:
        if not -n <= static_integer(name, "kth", k) < n:
            raise ValueError(
                f"{name}: kth is {k}, but the axis has length {n}{at(user_source())}"
            )


def lexsort(keys: Sequence[ArrayLike] | Array, axis: int = -1) -> Array:
    """The indices that sort along an axis by several keys, the last of them first.
    Equal elements keep their order.

    >>> import treadle.numpy as tnp
    >>> tnp.lexsort([tnp.array([9, 1, 2]), tnp.array([5, 6, 5])]).tolist()
    [2, 0, 1]
    """
    columns = [operand("lexsort", k) for k in reversed([*keys])]
    if not columns:
        raise TypeError(f"lexsort takes one key or more{at(user_source())}")
    columns = [as_array(k) for k in columns]
    shape = columns[0].shape
    if not all(equal_shapes(c.shape, shape) for c in columns):
        raise ValueError(
            f"lexsort: keys have one shape, got {[c.shape for c in columns[::-1]]}"
            f"{at(user_source())}"
        )
    if not shape:
        return as_array(np.int32(0))
    number = one_axis("lexsort", axis, len(shape))
    place = iota(shape=shape, axis=number, dtype=dtypes.of_index(shape[number]))
    return sorts.sort(*columns, place, axis=number, num_keys=len(columns))[-1]


def sort_complex(x: ArrayLike) -> Array:
    """The elements as complex numbers, in ascending order along the last axis: by their
    real parts, then by their imaginary parts."""
    x = operand("sort_complex", x)
    return sort(cast(x, dtypes.to_complex(typeof(x).dtype)))


def top_k(x: ArrayLike, k: int, axis: int = -1) -> tuple[Array, Array]:
    """The k largest elements along an axis, in descending order, and their indices
    (int32; along an axis of 2³¹ elements or more, int64)."""
    x, number = along("top_k", x, axis)
    n, k = typeof(x).shape[number], static_integer("top_k", "k", k)
    if not 0 <= k <= n:
        raise ValueError(
            f"top_k: k is {k}, but the axis has length {n}{at(user_source())}"
        )
    values, places = sorts.top_k(moveaxis(x, number, -1), k=k)
    return moveaxis(values, -1, number), moveaxis(places, -1, number)
