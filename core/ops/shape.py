"""Ops that cut and join: slice, pad, concatenate; and iota, which is only indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import positive_part
from treadle.ir.maps import Map, scaled, shifted
from treadle.ops.arithmetic import sub
from treadle.ops.compare import select
from treadle.ops.movement import (
    broadcast_in_dim,
    full,
    instantiate,
    linear_jvp,
    move_axis,
    spread,
)
from treadle.trace.lowering import Index, Join, Mapped, Shape
from treadle.trace.op import Linear, Op, registry
from treadle.trace.value import typeof

# slice --------------------------------------------------------------------------------


def _slice_type(
    x: ArrayType, *, starts: tuple, limits: tuple, steps: tuple
) -> ArrayType:
    if not len(starts) == len(limits) == len(steps) == x.ndim:
        raise ValueError(f"slice of {x}: {starts}, {limits}, {steps}")
    shape = []
    for n, start, limit, step in zip(x.shape, starts, limits, steps, strict=True):
        if not 0 <= start <= limit <= n or step < 1:
            raise ValueError(f"slice {start}:{limit}:{step} of an axis of length {n}")
        shape.append(-(-(limit - start) // step))
    return ArrayType(tuple(shape), x.dtype, x.weak)


def _slice_run(x: Any, *, starts: tuple, limits: tuple, steps: tuple) -> Any:
    return x[tuple(map(slice, starts, limits, steps))]


def _slice_transpose(
    ct: Any, x: Linear, *, starts: tuple, limits: tuple, steps: tuple
) -> list[Any]:
    padding = []
    for n, out, start, step in zip(
        x.shape, typeof(ct).shape, starts, steps, strict=True
    ):
        covered = start + (out - 1) * step + 1 if out else start
        padding.append((start, n - covered, step - 1 if out else 0))
    return [pad(ct, x.dtype.type(0), padding=tuple(padding))]


def _slice_batch(
    size: int, args: Any, axes: Any, *, starts: tuple, limits: tuple, steps: tuple
) -> Any:
    (x,), (axis,) = args, axes

    def put(values: tuple, new: int) -> tuple:
        return (*values[:axis], new, *values[axis:])

    return slice_(
        x, starts=put(starts, 0), limits=put(limits, size), steps=put(steps, 1)
    ), axis


def _slice_back(
    entries: Map, shape: Shape, result: Shape, params: dict[str, Any]
) -> Map:
    # Nothing may begin behind the end; but what is the same for all of nothing is read.
    return tuple(
        shifted(scaled(a, step), start if n else 0)
        for a, n, start, step in zip(
            entries, result, params["starts"], params["steps"], strict=True
        )
    )


slice_ = Op(
    "slice",
    _slice_type,
    _slice_run,
    transpose=_slice_transpose,
    batch=_slice_batch,
    lowering=Mapped(_slice_back),
)
slice_.jvp = slice_.linearize = linear_jvp(slice_)


def slice_axis(x: Any, axis: int, start: int, limit: int, step: int = 1) -> Any:
    """``x[..., start:limit:step, ...]`` along one axis."""
    shape = typeof(x).shape
    starts, limits, steps = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], steps[axis] = start, limit, step
    return slice_(x, starts=tuple(starts), limits=tuple(limits), steps=tuple(steps))


# pad ----------------------------------------------------------------------------------

Padding = tuple[tuple[int, int, int], ...]


def _pad_type(x: ArrayType, value: ArrayType, *, padding: Padding) -> ArrayType:
    if value.shape or value.dtype != x.dtype or len(padding) != x.ndim:
        raise ValueError(f"pad of {x} with {value} by {padding}")
    shape = [
        low + high + n + (max(n - 1, 0) * inner if inner else 0)
        for n, (low, high, inner) in zip(x.shape, padding, strict=True)
    ]
    if any(n < 0 for n in shape):
        raise ValueError(f"padding {padding} removes more than {x} has")
    return ArrayType(tuple(shape), x.dtype, x.weak)


def _pad_run(x: Any, value: Any, *, padding: Padding) -> Any:
    out_type = _pad_type(
        ArrayType(x.shape, x.dtype), ArrayType((), x.dtype), padding=padding
    )
    spread_out = [
        max(low, 0) + n + max(n - 1, 0) * i + max(high, 0)
        for n, (low, high, i) in zip(x.shape, padding, strict=True)
    ]
    out = np.full(spread_out, value, x.dtype)
    out[
        tuple(
            slice(max(low, 0), max(low, 0) + n + max(n - 1, 0) * i, i + 1)
            for n, (low, _, i) in zip(x.shape, padding, strict=True)
        )
    ] = x
    return out[
        tuple(
            slice(max(-low, 0), max(-low, 0) + n)
            for n, (low, _, _) in zip(out_type.shape, padding, strict=True)
        )
    ]


def _pad_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, padding: Padding
) -> Any:
    return pad(*primals, padding=padding), pad(
        *map(instantiate, tangents), padding=padding
    )


def _pad_transpose(ct: Any, x: Any, value: Any, *, padding: Padding) -> list[Any]:
    sum_all = registry["reduce_sum"]
    ct_type = typeof(ct)
    result: list[Any] = [None, None]
    t = x.type if isinstance(x, Linear) else typeof(x)
    inside = _unpad(ct, t, padding)
    if isinstance(x, Linear):
        result[0] = inside
    if isinstance(value, Linear):
        whole = sum_all(ct, axes=tuple(range(ct_type.ndim)))
        part = sum_all(inside, axes=tuple(range(t.ndim)))
        result[1] = sub(whole, part)
    return result


def _unpad(ct: Any, t: ArrayType, padding: Padding) -> Any:
    """Cuts the original elements out of a padded array (cropped ones are zero)."""
    zero = t.dtype.type(0)
    cut = tuple((positive_part(-lo), positive_part(-hi), 0) for lo, hi, _ in padding)
    uncropped = pad(ct, zero, padding=cut)
    starts = tuple(max(lo, 0) for lo, _, _ in padding)
    steps = tuple(inner + 1 for _, _, inner in padding)
    limits = tuple(
        s + (n - 1) * step + 1 if n else s
        for s, n, step in zip(starts, t.shape, steps, strict=True)
    )
    return slice_(uncropped, starts=starts, limits=limits, steps=steps)


def _pad_batch(size: int, args: Any, axes: Any, *, padding: Padding) -> Any:
    (x, value), (axis, value_axis) = args, axes
    if value_axis is None:
        wide = (*padding[:axis], (0, 0, 0), *padding[axis:])
        return pad(x, value, padding=wide), axis
    x = spread(x, 0, size) if axis is None else move_axis(x, axis, 0)
    value = move_axis(value, value_axis, 0)
    wide = ((0, 0, 0), *padding)
    t = typeof(x)
    inside = pad(
        full(t.shape, True, np.dtype(bool)),
        np.False_,
        padding=wide,
    )
    filled = pad(x, t.dtype.type(0), padding=wide)
    rows = broadcast_in_dim(value, shape=typeof(filled).shape, dims=(0,))
    return select(inside, filled, rows), 0


def _pad_pieces(
    types: Sequence[ArrayType], steps: Sequence[int], *, padding: Padding
) -> list[tuple[int, tuple[int, ...]]]:
    offset = sum(low * s for (low, _, _), s in zip(padding, steps, strict=True))
    strides = tuple(s * (p[2] + 1) for p, s in zip(padding, steps, strict=True))
    return [(offset, strides)]


pad = Op(
    "pad",
    _pad_type,
    _pad_run,
    jvp=_pad_jvp,
    transpose=_pad_transpose,
    batch=_pad_batch,
    lowering=Join(_pad_pieces, filled=True),
)

# concatenate --------------------------------------------------------------------------


def _concatenate_type(*types: ArrayType, axis: int) -> ArrayType:
    first = types[0]
    for t in types:
        same = t.ndim == first.ndim and all(
            a == b
            for i, (a, b) in enumerate(zip(t.shape, first.shape, strict=True))
            if i != axis
        )
        if not same or t.dtype != first.dtype or not 0 <= axis < t.ndim:
            raise ValueError(
                f"concatenate along axis {axis} of {', '.join(map(repr, types))}"
            )
    total = sum(t.shape[axis] for t in types)
    shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
    return ArrayType(shape, first.dtype)


def _concatenate_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, axis: int
) -> Any:
    return concatenate(*primals, axis=axis), concatenate(
        *map(instantiate, tangents), axis=axis
    )


def _concatenate_transpose(ct: Any, *args: Any, axis: int) -> list[Any]:
    out, start = [], 0
    for a in args:
        n = (a if isinstance(a, Linear) else typeof(a)).shape[axis]
        linear = isinstance(a, Linear)
        out.append(slice_axis(ct, axis, start, start + n) if linear else None)
        start += n
    return out


def _concatenate_batch(size: int, args: Any, axes: Any, *, axis: int) -> Any:
    lined = [
        spread(x, 0, size) if a is None else move_axis(x, a, 0)
        for x, a in zip(args, axes, strict=True)
    ]
    return concatenate(*lined, axis=axis + 1), 0


def _concatenate_pieces(
    types: Sequence[ArrayType], steps: Sequence[int], *, axis: int
) -> list[tuple[int, tuple[int, ...]]]:
    start, result = 0, []
    for t in types:
        result.append((start * steps[axis], tuple(steps)))
        start += t.shape[axis]
    return result


concatenate = Op(
    "concatenate",
    _concatenate_type,
    lambda *xs, axis: np.concatenate(xs, axis),
    jvp=_concatenate_jvp,
    transpose=_concatenate_transpose,
    batch=_concatenate_batch,
    lowering=Join(_concatenate_pieces),
)

# iota ---------------------------------------------------------------------------------


def _iota_run(*, shape: tuple[int, ...], axis: int, dtype: np.dtype) -> Any:
    aligned = [1] * len(shape)
    aligned[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis]).astype(dtype).reshape(aligned), shape)


iota = Op(
    "iota",
    lambda *, shape, axis, dtype: ArrayType(shape, dtype),
    _iota_run,
    batch=lambda size, args, axes, **params: (iota(**params), None),
    lowering=Index(),
    differentiable=False,
)
"""Counts 0, 1, 2… along one axis of a shape."""
