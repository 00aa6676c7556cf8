"""Writes at data-dependent places: the inverses of `gather`, which explains the params.

    scatter_add(x, updates, *indices, axes, sizes, batch_dims, mode)

is x with `updates` (of the shape that the same gather of x would have) combined into it
at the places that the indices name. If a place occurs more than once, all its updates
are combined, in order: of `scatter_set` the last one stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import is_dim
from treadle.ops.arithmetic import div, mul, sub
from treadle.ops.cast import convert
from treadle.ops.compare import eq, select, where_zero
from treadle.ops.elementwise import any_dtype, number, real
from treadle.ops.gather import (
    Places,
    addressing,
    batch_indices,
    check_places,
    gather,
    locate,
)
from treadle.ops.movement import (
    broadcast_in_dim,
    full,
    instantiate,
    move_axis,
    reshape,
    spread,
    zeros_like,
)
from treadle.ops.shape import iota
from treadle.ops.window import highest, lowest
from treadle.trace.lowering import Scatter
from treadle.trace.op import Linear, Op, Zero
from treadle.trace.value import typeof


def _scatter(
    how: Any,
    combine: Any,
    accepts: Callable[..., bool],
    neutral: Callable[[np.dtype], Any] | None = None,
    **rules: Any,
) -> Op:
    """Declares a scatter.

    Args:
      how: as `treadle.trace.lowering.Scatter` says.
      combine: NumPy's ``ufunc.at``, or None to overwrite.
    """
    name = f"scatter_{how}"

    def type_rule(
        x: ArrayType, updates: ArrayType, *indices: ArrayType, **params: Any
    ) -> ArrayType:
        shape = check_places(name, x, indices, Places(**params))
        if updates.shape != shape:
            raise ValueError(
                f"{name} into {x}: updates must have shape {list(shape)}, got {updates}"
            )
        if updates.dtype != x.dtype:
            raise TypeError(f"{name} of different dtypes: {x}, {updates}")
        if not accepts(x.dtype):
            raise TypeError(f"{name} is not defined for dtype {x.dtype.name}")
        return ArrayType(x.shape, x.dtype)

    def run(x: Any, updates: Any, *indices: Any, **params: Any) -> Any:
        out, at = np.array(x), Places(**params)
        window = _window(x.shape, indices, at)
        if window is not None:
            old = out[window]
            out[window] = updates if combine is None else combine(old, updates)
            return out
        found = locate(x.shape, indices, at)
        view = np.transpose(out, found.view)
        updates = np.transpose(updates, np.argsort(found.order))[found.inside]
        places = tuple([i[found.inside] for i in found.selection])
        if combine is None:
            view[places] = updates
        else:
            combine.at(view, places, updates)
        return out

    op = Op(
        name,
        type_rule,
        run,
        lowering=Scatter(
            lambda types, p: addressing(types[0], types[2:], Places(**p)), how, neutral
        ),
        batch=lambda size, args, bdims, **p: _batch(op, size, args, bdims, p),
        **rules,
    )
    return op


def _window(shape: Sequence[int], indices: Any, at: Places) -> Any:
    """The only window that is written, if it is surely inside; None for others."""
    if any(np.ndim(i) for i in indices) or at.mode != "clip" or at.batch_dims:
        return None
    slices = [slice(0, n) for n in shape]
    for a, n, i in zip(at.axes, at.sizes, indices, strict=True):
        if n is None:
            return None
        start = min(max(int(i), 0), shape[a] - n)
        slices[a] = slice(start, start + n)
    return tuple(slices) if indices else None


def _batch(op: Op, size: int, args: Any, axes: Any, params: dict[str, Any]) -> Any:
    (x, updates, *indices), (x_axis, u_axis, *index_axes) = args, axes
    at = Places(**params)

    def lined(value: Any, axis: int | None, to: int) -> Any:
        if axis is None:
            return spread(value, to, size)
        return move_axis(value, axis, to)

    if indices and all(a is None for a in index_axes):
        rank = typeof(indices[0]).ndim
        x, updates = lined(x, x_axis, at.batch_dims), lined(updates, u_axis, rank)
        out = op(x, updates, *indices, **at._replace(axes=at.shifted())._asdict())
        return out, at.batch_dims
    at = at._replace(axes=at.shifted(), batch_dims=at.batch_dims + 1)
    x, updates = lined(x, x_axis, 0), lined(updates, u_axis, 0)
    moved = batch_indices(size, indices, index_axes, 0)
    return op(x, updates, *moved, **at._asdict()), 0


def _linear_jvp(op: Callable[..., Any]) -> Callable[..., Any]:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        (x, updates, *indices), (dx, du, *_) = primals, tangents
        out = op(x, updates, *indices, **params)
        return out, op(instantiate(dx), instantiate(du), *indices, **params)

    return jvp


# add ----------------------------------------------------------------------------------


def _add_transpose(
    ct: Any, x: Any, updates: Any, *indices: Any, **params: Any
) -> list[Any]:
    return [
        ct if isinstance(x, Linear) else None,
        gather(ct, *indices, **params) if isinstance(updates, Linear) else None,
        *(None for _ in indices),
    ]


scatter_add = _scatter("add", np.add, number, lambda d: 0, transpose=_add_transpose)
scatter_add.jvp = scatter_add.linearize = _linear_jvp(scatter_add)

# set ----------------------------------------------------------------------------------


def _set_transpose(
    ct: Any, x: Any, updates: Any, *indices: Any, **params: Any
) -> list[Any]:
    result: list[Any] = [None, None, *(None for _ in indices)]
    t = typeof(ct)
    if isinstance(x, Linear):
        shape = (updates.type if isinstance(updates, Linear) else typeof(updates)).shape
        nothing = full(shape, 0, t.dtype)
        result[0] = scatter_set(ct, nothing, *indices, **params)
    if isinstance(updates, Linear):
        back = gather(ct, *indices, **params)
        last = _stays(t, indices, Places(**params))
        result[1] = back if last is None else where_zero(last, back)
    return result


def _stays(x: ArrayType, indices: Sequence[Any], at: Places) -> Any:
    """Which elements of the updates are still there in the end; None means all.

    Each place writes its number on a board that has only the indexed axes of x, and
    then looks whether it is still there.
    """
    lead = typeof(indices[0]).shape if indices else ()
    count = math.prod(lead[at.batch_dims :])
    if not is_dim(count) and count <= 1:
        return None
    ordered = sorted(at.axes)
    shape = (*x.shape[: at.batch_dims], *(x.shape[a] for a in ordered))
    axes = tuple(at.batch_dims + ordered.index(a) for a in at.axes)
    board = ArrayType(shape, dtypes.of_index(math.prod(lead)))
    inner = at._replace(axes=axes)
    window = inner.window(board)
    number = iota(shape=(math.prod(lead),), axis=0, dtype=board.dtype)
    number = broadcast_in_dim(
        reshape(number, shape=lead),
        shape=(*lead, *window),
        dims=tuple(range(len(lead))),
    )
    params = inner._asdict()
    written = scatter_set(zeros_like(board), number, *indices, **params)
    stays = eq(gather(written, *indices, **params), number)
    kept = {a: n for a, n in zip(at.axes, at.sizes, strict=True)}
    read = [a for a in range(at.batch_dims, x.ndim) if kept.get(a, 1) is not None]
    dims = [len(lead) + k for k, a in enumerate(read) if a in kept]
    return broadcast_in_dim(
        stays,
        shape=(*lead, *at.window(x)),
        dims=(*range(len(lead)), *dims),
    )


scatter_set = _scatter("set", None, any_dtype, transpose=_set_transpose)
scatter_set.jvp = scatter_set.linearize = _linear_jvp(scatter_set)

# multiply -----------------------------------------------------------------------------


def _mul_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    """The partial in an update is the product of everything else at its place: zeros
    are counted rather than divided by. (Second derivatives at zeros are not exact.)"""
    (x, updates, *indices), (dx, du, *_) = primals, tangents
    out, total = scatter_mul(*primals, **params), None
    if not isinstance(dx, Zero):
        total = scatter_mul(dx, updates, *indices, **params)
    if not isinstance(du, Zero):
        t = typeof(x)
        is_zero = eq(updates, t.dtype.type(0))
        safe = select(is_zero, t.dtype.type(1), updates)
        counts = dtypes.of_index(typeof(updates).size)
        count = convert(is_zero, dtype=counts)
        zeros = scatter_add(full(t.shape, 0, counts), count, *indices, **params)
        others = sub(gather(zeros, *indices, **params), count)
        product = gather(scatter_mul(x, safe, *indices, **params), *indices, **params)
        partial = where_zero(eq(others, counts.type(0)), div(product, safe))
        term = mul(partial, du)
        base = zeros_like(t) if total is None else total
        total = scatter_add(base, term, *indices, **params)
    return out, Zero(typeof(out)) if total is None else total


def _mul_transpose(
    ct: Any, x: Any, updates: Any, *indices: Any, **params: Any
) -> list[Any]:
    back = scatter_mul(ct, updates, *indices, **params)
    return [back, None, *(None for _ in indices)]


scatter_mul = _scatter(
    "mul", np.multiply, number, lambda d: 1, jvp=_mul_jvp, transpose=_mul_transpose
)

# minimum and maximum ------------------------------------------------------------------


def _extreme_jvp(op: Callable[..., Any]) -> Callable[..., Any]:
    """The elements that are equal to the result share its derivative."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        (x, updates, *indices), (dx, du, *_) = primals, tangents
        out = op(*primals, **params)
        dtype = typeof(out).dtype
        from_x = convert(eq(x, out), dtype=dtype)
        from_updates = convert(
            eq(updates, gather(out, *indices, **params)), dtype=dtype
        )
        count = scatter_add(from_x, from_updates, *indices, **params)
        total = scatter_add(
            mul(instantiate(dx), from_x),
            mul(instantiate(du), from_updates),
            *indices,
            **params,
        )
        return out, div(total, count)

    return jvp


scatter_min = _scatter("min", np.minimum, real, highest)
scatter_max = _scatter("max", np.maximum, real, lowest)
for _op in (scatter_min, scatter_max):
    _op.jvp = _op.linearize = _extreme_jvp(_op)
