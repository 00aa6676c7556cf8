"""Ops that only change indices: broadcast, reshape, transpose, reverse.

The compiler never runs them: they become index maps of whoever reads their result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import one, same_shape
from treadle.ir.maps import ZERO, Affine, Map, scaled, shifted
from treadle.trace.lowering import Mapped, Reshape, Shape
from treadle.trace.op import Linear, Op, Zero, registry
from treadle.trace.value import typeof


def linear_jvp(op: Op) -> Any:
    """The JVP of an op that is linear in its first argument and constant in others."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        out = op(*primals, **params)
        if isinstance(tangents[0], Zero):
            return out, Zero(typeof(out).strong())
        return out, op(tangents[0], *primals[1:], **params)

    return jvp


# broadcast_in_dim ---------------------------------------------------------------------


def _broadcast_type(
    x: ArrayType, *, shape: tuple[int, ...], dims: tuple[int, ...]
) -> ArrayType:
    if len(dims) != x.ndim or any(
        not (one(x.shape[i]) or x.shape[i] == shape[d]) for i, d in enumerate(dims)
    ):
        raise ValueError(f"can't broadcast {x} to {list(shape)} along axes {dims}")
    return ArrayType(shape, x.dtype, x.weak)


def _broadcast_run(x: Any, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    aligned = [1] * len(shape)
    for i, d in enumerate(dims):
        aligned[d] = x.shape[i]
    return np.broadcast_to(np.reshape(x, aligned), shape)


def _broadcast_transpose(
    ct: Any, x: Linear, *, shape: tuple[int, ...], dims: tuple[int, ...]
) -> list[Any]:
    from_one = {d for i, d in enumerate(dims) if one(x.shape[i]) and not one(shape[d])}
    new = tuple(d for d in range(len(shape)) if d not in dims or d in from_one)
    out = registry["reduce_sum"](ct, axes=new) if new else ct
    return [
        out if same_shape(typeof(out).shape, x.shape) else reshape(out, shape=x.shape)
    ]


def _broadcast_batch(
    size: int, args: Any, axes: Any, *, shape: tuple, dims: tuple
) -> Any:
    (x,), (axis,) = args, axes
    x = move_axis(x, axis, 0)
    dims = (0, *(d + 1 for d in dims))
    return broadcast_in_dim(x, shape=(size, *shape), dims=dims), 0


def _broadcast_back(
    entries: Map, shape: Shape, result: Shape, params: dict[str, Any]
) -> Map:
    return tuple(
        entries[d] if n == result[d] else ZERO
        for n, d in zip(shape, params["dims"], strict=True)
    )


def _broadcast_forth(
    entries: Map, shape: Shape, result: Shape, params: dict[str, Any]
) -> list[Affine | None]:
    known = {
        d: a
        for d, a, n in zip(params["dims"], entries, shape, strict=True)
        if n == result[d]
    }
    return [known.get(d) for d in range(len(result))]


broadcast_in_dim = Op(
    "broadcast_in_dim",
    _broadcast_type,
    _broadcast_run,
    transpose=_broadcast_transpose,
    batch=_broadcast_batch,
    lowering=Mapped(_broadcast_back, _broadcast_forth),
)

# reshape ------------------------------------------------------------------------------


def _reshape_type(x: ArrayType, *, shape: tuple[int, ...]) -> ArrayType:
    if math.prod(shape) != x.size:
        raise ValueError(
            f"can't reshape {x} ({x.size} elements) to {list(shape)} "
            f"({math.prod(shape)} elements)"
        )
    return ArrayType(shape, x.dtype, x.weak)


def _reshape_batch(size: int, args: Any, axes: Any, *, shape: tuple) -> Any:
    return reshape(move_axis(args[0], axes[0], 0), shape=(size, *shape)), 0


reshape = Op(
    "reshape",
    _reshape_type,
    lambda x, *, shape: np.reshape(x, shape),
    transpose=lambda ct, x, *, shape: [reshape(ct, shape=x.shape)],
    batch=_reshape_batch,
    lowering=Reshape(),
)

# transpose ----------------------------------------------------------------------------


def _transpose_type(x: ArrayType, *, permutation: tuple[int, ...]) -> ArrayType:
    if sorted(permutation) != list(range(x.ndim)):
        raise ValueError(f"{permutation} is not a permutation of the axes of {x}")
    return ArrayType(tuple([x.shape[p] for p in permutation]), x.dtype, x.weak)


def _transpose_batch(size: int, args: Any, axes: Any, *, permutation: tuple) -> Any:
    (x,), (axis,) = args, axes
    moved = tuple(p + (p >= axis) for p in permutation)
    return transpose(x, permutation=(axis, *moved)), 0


def _transpose_back(
    entries: Map, shape: Shape, result: Shape, params: dict[str, Any]
) -> Map:
    order = params["permutation"]
    return tuple(entries[order.index(i)] for i in range(len(order)))


def _transpose_forth(
    entries: Map, shape: Shape, result: Shape, params: dict[str, Any]
) -> list[Affine | None]:
    return [entries[p] for p in params["permutation"]]


transpose = Op(
    "transpose",
    _transpose_type,
    lambda x, *, permutation: np.transpose(x, permutation),
    transpose=lambda ct, x, *, permutation: [
        transpose(ct, permutation=tuple(int(i) for i in np.argsort(permutation)))
    ],
    batch=_transpose_batch,
    lowering=Mapped(_transpose_back, _transpose_forth),
)

# reverse ------------------------------------------------------------------------------


def _reverse_type(x: ArrayType, *, axes: tuple[int, ...]) -> ArrayType:
    if any(not 0 <= a < x.ndim for a in axes):
        raise ValueError(f"{x} has no axes {axes}")
    return x


def _reverse_back(
    entries: Map, shape: Shape, result: Shape, params: dict[str, Any]
) -> Map:
    return tuple(
        shifted(scaled(a, -1), n - 1) if i in params["axes"] and n else a
        for i, (a, n) in enumerate(zip(entries, shape, strict=True))
    )


reverse = Op(
    "reverse",
    _reverse_type,
    lambda x, *, axes: np.flip(x, axes),
    transpose=lambda ct, x, *, axes: [reverse(ct, axes=axes)],
    batch=lambda size, args, axis, *, axes: (
        reverse(args[0], axes=tuple(a + (a >= axis[0]) for a in axes)),
        axis[0],
    ),
    lowering=Mapped(_reverse_back),
)

for _op in (broadcast_in_dim, reshape, transpose, reverse):
    _op.jvp = _op.linearize = linear_jvp(_op)


# What rules are written with ----------------------------------------------------------


def move_axis(x: Any, source: int, destination: int) -> Any:
    """Moves one axis; the others keep their order."""
    if source == destination:
        return x
    order = [i for i in range(typeof(x).ndim) if i != source]
    order.insert(destination, source)
    return transpose(x, permutation=tuple(order))


def spread(x: Any, axis: int, size: int) -> Any:
    """Repeats along a new axis."""
    shape = typeof(x).shape
    dims = tuple(i + (i >= axis) for i in range(len(shape)))
    return broadcast_in_dim(x, shape=(*shape[:axis], size, *shape[axis:]), dims=dims)


def expand(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcasts a scalar (or a value of that shape already) to a shape."""
    if typeof(x).shape == shape:
        return x
    return broadcast_in_dim(x, shape=shape, dims=())


def restore_axes(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Broadcasts a reduced value back along the axes that were reduced."""
    kept = tuple(i for i in range(len(shape)) if i not in axes)
    return broadcast_in_dim(x, shape=shape, dims=kept)


def full(shape: tuple[int, ...], value: Any, dtype: np.dtype) -> Any:
    """An array with one value everywhere."""
    scalar = dtype.type(value)
    return broadcast_in_dim(scalar, shape=tuple(shape), dims=())


def zeros_like(t: ArrayType) -> Any:
    """Zeros of a type."""
    return full(t.shape, 0, t.dtype)


def instantiate(ct: Any) -> Any:
    """The array of zeros that a `Zero` stands for; anything else as it is."""
    return zeros_like(ct.type) if isinstance(ct, Zero) else ct
