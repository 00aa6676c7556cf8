"""Slices whose start is known only at run time.

Start indices are integer scalars, one per axis; as in XLA they are clamped so that the
slice lies inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.gather import Places, gather
from treadle.ops.movement import instantiate, linear_jvp, move_axis, spread, zeros_like
from treadle.ops.scatter import scatter_set
from treadle.trace.lowering import Addressing, Gather, Scatter
from treadle.trace.op import Linear, Op
from treadle.trace.value import typeof


def _check(
    name: str, x: ArrayType, sizes: tuple[int, ...], indices: Sequence[ArrayType]
) -> None:
    if not len(sizes) == len(indices) == x.ndim:
        raise ValueError(
            f"{name} of {x}: {len(indices)} start indices for a slice of {list(sizes)}"
        )
    for i in indices:
        if i.shape or not dtypes.is_integer(i.dtype):
            raise TypeError(f"{name}: start indices must be integer scalars, got {i}")
    if any(not 0 <= n <= whole for n, whole in zip(sizes, x.shape, strict=True)):
        raise ValueError(f"{name}: a slice of {list(sizes)} does not fit in {x}")


def _window(shape: tuple[int, ...], sizes: tuple[int, ...], indices: Any) -> Any:
    starts = [
        min(max(int(i), 0), whole - n)
        for i, n, whole in zip(indices, sizes, shape, strict=True)
    ]
    return tuple([slice(s, s + n) for s, n in zip(starts, sizes, strict=True)])


def _moving(x: ArrayType, sizes: tuple[int, ...]) -> Places:
    """The same slice as places for gather and scatter: of the axes not taken whole."""
    axes = tuple([a for a, n in enumerate(sizes) if n != x.shape[a]])
    return Places(axes, tuple([sizes[a] for a in axes]), 0, "clip")


def _indexes(size: int, at: Places, starts: Any, bdims: Any) -> list[Any]:
    return [
        spread(starts[a], 0, size) if bdims[a] is None else starts[a] for a in at.axes
    ]


# dynamic_slice ------------------------------------------------------------------------


def _slice_type(x: ArrayType, *indices: ArrayType, sizes: tuple[int, ...]) -> ArrayType:
    _check("dynamic_slice", x, sizes, indices)
    return ArrayType(sizes, x.dtype)


def _slice_run(x: Any, *indices: Any, sizes: tuple[int, ...]) -> Any:
    return x[_window(x.shape, sizes, indices)]


def _slice_transpose(
    ct: Any, x: Linear, *indices: Any, sizes: tuple[int, ...]
) -> list[Any]:
    back = dynamic_update_slice(zeros_like(x.type), ct, *indices)
    return [back, *(None for _ in indices)]


def _slice_batch(size: int, args: Any, bdims: Any, *, sizes: tuple[int, ...]) -> Any:
    (x, *starts), (axis, *start_axes) = args, bdims
    if all(a is None for a in start_axes):
        starts.insert(axis, np.int32(0))
        wide = (*sizes[:axis], size, *sizes[axis:])
        return dynamic_slice(x, *starts, sizes=wide), axis
    if axis is not None:
        x = move_axis(x, axis, 0)
    t = typeof(x)
    one = t if axis is None else ArrayType(t.shape[1:], t.dtype)
    at = _moving(one, sizes)
    indices = _indexes(size, at, starts, start_axes)
    if not indices:
        return x, (None if axis is None else 0)
    if axis is not None:
        at = at._replace(axes=at.shifted(), batch_dims=1)
    return gather(x, *indices, **at._asdict()), 0


def _addressing(x: ArrayType, shape: Sequence[int]) -> Addressing:
    """Of a window of some shape."""
    axes = tuple(range(x.ndim))
    limits = tuple([n - m for n, m in zip(x.shape, shape, strict=True)])
    return Addressing(axes, limits, axes, 0, False)


dynamic_slice = Op(
    "dynamic_slice",
    _slice_type,
    _slice_run,
    lowering=Gather(lambda types, params: _addressing(types[0], params["sizes"])),
    transpose=_slice_transpose,
    batch=_slice_batch,
)
dynamic_slice.jvp = dynamic_slice.linearize = linear_jvp(dynamic_slice)

# dynamic_update_slice -----------------------------------------------------------------


def _update_type(x: ArrayType, update: ArrayType, *indices: ArrayType) -> ArrayType:
    if update.dtype != x.dtype:
        raise TypeError(f"dynamic_update_slice of different dtypes: {x}, {update}")
    _check("dynamic_update_slice", x, update.shape, indices)
    return ArrayType(x.shape, x.dtype)


def _update_run(x: Any, update: Any, *indices: Any) -> Any:
    out = np.array(x)
    out[_window(out.shape, np.shape(update), indices)] = update
    return out


def _update_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    out = dynamic_update_slice(*primals)
    moved = [instantiate(t) for t in tangents[:2]]
    return out, dynamic_update_slice(*moved, *primals[2:])


def _update_transpose(ct: Any, x: Any, update: Any, *indices: Any) -> list[Any]:
    t = update.type if isinstance(update, Linear) else typeof(update)
    result: list[Any] = [None, None, *(None for _ in indices)]
    if isinstance(x, Linear):
        result[0] = dynamic_update_slice(ct, zeros_like(t), *indices)
    if isinstance(update, Linear):
        result[1] = dynamic_slice(ct, *indices, sizes=t.shape)
    return result


def _update_batch(size: int, args: Any, bdims: Any) -> Any:
    (x, update, *starts), (axis, u_axis, *start_axes) = args, bdims
    x = spread(x, 0, size) if axis is None else move_axis(x, axis, 0)
    update = spread(update, 0, size) if u_axis is None else move_axis(update, u_axis, 0)
    if all(a is None for a in start_axes):
        return dynamic_update_slice(x, update, np.int32(0), *starts), 0
    t = typeof(x)
    at = _moving(ArrayType(t.shape[1:], t.dtype), typeof(update).shape[1:])
    indices = _indexes(size, at, starts, start_axes)
    at = at._replace(axes=at.shifted(), batch_dims=1)
    return scatter_set(x, update, *indices, **at._asdict()), 0


dynamic_update_slice = Op(
    "dynamic_update_slice",
    _update_type,
    _update_run,
    lowering=Scatter(
        lambda types, params: _addressing(types[0], types[1].shape),
        "set",
        ordered=False,
    ),
    jvp=_update_jvp,
    transpose=_update_transpose,
    batch=_update_batch,
)
"""x with a slice replaced; compiled, in place where x is not used again."""


def dynamic_slice_axis(x: Any, start: Any, size: int, axis: int) -> Any:
    """A dynamic slice along one axis, of the others everything."""
    shape = typeof(x).shape
    starts = [np.int32(0)] * len(shape)
    starts[axis] = start
    sizes = (*shape[:axis], size, *shape[axis + 1 :])
    return dynamic_slice(x, *starts, sizes=sizes)


def dynamic_update_axis(x: Any, update: Any, start: Any, axis: int) -> Any:
    """A dynamic update along one axis."""
    starts = [np.int32(0)] * typeof(x).ndim
    starts[axis] = start
    return dynamic_update_slice(x, update, *starts)
