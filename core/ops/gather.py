"""Reads at data-dependent places: `gather`, and the ways in which programs ask for it.

    gather(x, *indices, axes, sizes, batch_dims, mode)

`indices` are integer arrays of one shape, one per axis in `axes` of x; together they
name a place in x. What is read there has, along each indexed axis, the size in `sizes`:
None for a single element (the axis disappears), n for a window of n that starts at the
index. Axes of x that are not indexed are read whole. The first `batch_dims` axes of x
and of the indices correspond: batch element b of the indices reads that of x.

    axes of the result = axes of the indices (batch first), then those read, in order

mode: what happens where a place (the whole window) is not inside x. "clip" moves it to
the nearest one that is; "drop" reads zeros there (and a scatter writes nothing there).
Negative indices are outside; treadle.numpy counts them from the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.movement import (
    linear_jvp,
    move_axis,
    spread,
    zeros_like,
)
from treadle.trace.lowering import Addressing, Gather
from treadle.trace.op import Linear, Op, registry
from treadle.trace.value import typeof

Sizes = tuple[int | None, ...]
MODES = ("clip", "drop")


class Places(NamedTuple):
    """The params that `gather` and the scatters share."""

    axes: tuple[int, ...]
    sizes: Sizes
    batch_dims: int
    mode: str

    def window(self, x: ArrayType) -> tuple[int, ...]:
        """The shape of what is read, or written, at one place."""
        sizes = dict(zip(self.axes, self.sizes, strict=True))
        shape = [sizes.get(a, n) for a, n in enumerate(x.shape) if a >= self.batch_dims]
        return tuple([n for n in shape if n is not None])

    def limits(self, x: ArrayType) -> list[int]:
        """Per index, the largest value that is inside."""
        return [
            x.shape[a] - (1 if n is None else n)
            for a, n in zip(self.axes, self.sizes, strict=True)
        ]

    def shifted(self, by: int = 1) -> tuple[int, ...]:
        return tuple([a + by for a in self.axes])


def check_places(
    name: str, x: ArrayType, indices: Sequence[ArrayType], at: Places
) -> tuple[int, ...]:
    """The shape of gathered values.

    Raises:
      TypeError, ValueError: if indices, axes and sizes do not fit x.
    """
    if not len(indices) == len(at.axes) == len(at.sizes):
        raise ValueError(
            f"{name} of {x}: {len(indices)} index arrays for axes {at.axes} and sizes "
            f"{at.sizes}: there must be one of each per indexed axis"
        )
    inside = all(at.batch_dims <= a < x.ndim for a in at.axes)
    if not inside or len(set(at.axes)) != len(at.axes) or at.batch_dims > x.ndim:
        raise ValueError(
            f"{name} of {x}: axes {at.axes} with {at.batch_dims} batch axes"
        )
    if at.mode not in MODES:
        raise ValueError(f'{name}: mode {at.mode!r} is neither "clip" nor "drop"')
    for i in indices:
        if not dtypes.is_integer(i.dtype):
            raise TypeError(f"{name}: indices must be integers, got {i}")
        if i.shape != indices[0].shape:
            raise ValueError(
                f"{name}: index arrays of different shapes: "
                f"{', '.join(map(repr, indices))}"
            )
    batch = x.shape[: at.batch_dims]
    shape = indices[0].shape if indices else batch
    if shape[: at.batch_dims] != batch:
        raise ValueError(
            f"{name} of {x}: the first {at.batch_dims} axes of the indices "
            f"{indices[0]} must be those of the array"
        )
    for a, n, limit in zip(at.axes, at.sizes, at.limits(x), strict=True):
        if limit < 0 < math.prod(shape):
            raise ValueError(
                f"{name} of {x}: axis {a} has length {x.shape[a]}, too short for "
                f"{'an element' if n is None else f'a window of {n}'}"
            )
    return (*shape, *at.window(x))


class Located(NamedTuple):
    """Places as NumPy's indexing wants them: one index per element of a window.

    view: the order of x's axes that `selection` is for: batch, indexed, whole axes.
    selection: arrays of one shape: the indices' axes, then one axis per window.
    inside: which of them to read or write. order: from NumPy's axes to the result's.
    """

    view: tuple[int, ...]
    selection: tuple[Any, ...]
    inside: Any
    order: tuple[int, ...]


def locate(shape: tuple[int, ...], indices: Sequence[Any], at: Places) -> Located:
    """Turns places in an array of the given shape into an index of NumPy's."""
    lead = indices[0].shape if indices else shape[: at.batch_dims]
    windows = [n for n in at.sizes if n is not None]
    full = (*lead, *windows)
    inside = np.ones(lead, bool)
    index = list(np.indices(full, sparse=True)[: at.batch_dims])
    axis = len(lead)
    places: dict[int, int] = {}
    limits = at.limits(ArrayType(shape, dtypes.int32))
    for i, a, n, limit in zip(indices, at.axes, at.sizes, limits, strict=True):
        i = np.asarray(i)
        if i.dtype == dtypes.uint64:
            i = np.minimum(i, np.uint64(limit + 1))
        i = i.astype(np.int64)
        if at.mode == "drop":
            inside &= (i >= 0) & (i <= limit)
        i = np.clip(i, 0, limit).reshape((*lead, *(1 for _ in windows)))
        if n is not None:
            i = i + np.arange(n).reshape((-1, *(1 for _ in full[axis + 1 :])))
            places[a] = axis
            axis += 1
        index.append(i)
    whole = [a for a in range(at.batch_dims, len(shape)) if a not in at.axes]
    places |= {a: len(full) + k for k, a in enumerate(whole)}
    return Located(
        (*range(at.batch_dims), *at.axes, *whole),
        tuple([np.broadcast_to(i, full) for i in index]),
        np.broadcast_to(inside.reshape((*lead, *(1 for _ in windows))), full),
        (*range(len(lead)), *(places[a] for a in sorted(places))),
    )


def _gather_type(x: ArrayType, *indices: ArrayType, **params: Any) -> ArrayType:
    return ArrayType(check_places("gather", x, indices, Places(**params)), x.dtype)


def _gather_run(x: Any, *indices: Any, **params: Any) -> Any:
    found = locate(x.shape, indices, Places(**params))
    out = np.array(np.transpose(x, found.view)[found.selection])
    if not found.inside.all():
        out[~found.inside] = 0
    return np.transpose(out, found.order)


def _gather_transpose(ct: Any, x: Linear, *indices: Any, **params: Any) -> list[Any]:
    nothing = zeros_like(x.type)
    back = registry["scatter_add"](nothing, ct, *indices, **params)
    return [back, *(None for _ in indices)]


def batch_indices(
    size: int, indices: Sequence[Any], axes: Sequence[int | None], to: int
) -> list[Any]:
    """All index arrays with their batch axis at `to`."""
    return [
        spread(i, to, size) if a is None else move_axis(i, a, to)
        for i, a in zip(indices, axes, strict=True)
    ]


def _gather_batch(size: int, args: Any, bdims: Any, **params: Any) -> Any:
    (x, *indices), (axis, *index_axes) = args, bdims
    at = Places(**params)
    if all(a is None for a in index_axes) and indices:
        # Examples share the places: their axis is one that is read whole.
        x = move_axis(x, axis, at.batch_dims)
        out = gather(x, *indices, **at._replace(axes=at.shifted())._asdict())
        return out, typeof(indices[0]).ndim
    if axis is None:
        lined = batch_indices(size, indices, index_axes, at.batch_dims)
        return gather(x, *lined, **params), at.batch_dims
    lined = batch_indices(size, indices, index_axes, 0)
    at = at._replace(axes=at.shifted(), batch_dims=at.batch_dims + 1)
    return gather(move_axis(x, axis, 0), *lined, **at._asdict()), 0


def addressing(x: ArrayType, indices: Sequence[ArrayType], at: Places) -> Addressing:
    """Where a gather of x reads, or a scatter into it writes."""
    rank = indices[0].ndim if indices else at.batch_dims
    size_of = dict(zip(at.axes, at.sizes, strict=True))
    axis = rank
    window: list[int | None] = []
    for a in range(x.ndim):
        if a < at.batch_dims:
            window.append(a)
        elif a in size_of and size_of[a] is None:
            window.append(None)
        else:
            window.append(axis)
            axis += 1
    limits = tuple(at.limits(x))
    return Addressing(at.axes, limits, tuple(window), rank, at.mode == "drop")


gather = Op(
    "gather",
    _gather_type,
    _gather_run,
    lowering=Gather(
        lambda types, params: addressing(types[0], types[1:], Places(**params))
    ),
    transpose=_gather_transpose,
    batch=_gather_batch,
)
gather.jvp = gather.linearize = linear_jvp(gather)


# How programs ask for it --------------------------------------------------------------


def take(x: Any, indices: Any, axis: int, mode: str = "clip") -> Any:
    """``x[..., indices, ...]``: the axes of `indices` stand in the place of `axis`.

    An embedding lookup is ``take(table, tokens, 0)``.
    """
    out = gather(x, indices, axes=(axis,), sizes=(None,), batch_dims=0, mode=mode)
    n = typeof(indices).ndim
    for i in range(axis):
        # The axes before `axis` came after those of the indices.
        out = move_axis(out, n + i, i)
    return out


def take_along_axis(x: Any, indices: Any, axis: int, mode: str = "clip") -> Any:
    """One index per element of the result: ``out[i, j] = x[i, indices[i, j]]``.

    `indices` has the rank of x; its other axes have x's lengths. The label pick of a
    cross-entropy is ``take_along_axis(logits, labels_with_a_last_axis_of_1, -1)``.
    """
    rank = typeof(x).ndim
    axis %= rank
    x, indices = move_axis(x, axis, rank - 1), move_axis(indices, axis, rank - 1)
    out = gather(
        x, indices, axes=(rank - 1,), sizes=(None,), batch_dims=rank - 1, mode=mode
    )
    return move_axis(out, rank - 1, axis)
