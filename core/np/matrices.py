"""Matrices with a pattern: eye, triangles, diagonals; and grids."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np.creation import placed, zeros
from treadle.np.index import counted
from treadle.np.indexing import getitem
from treadle.np.join import stack
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_shape,
    broadcast_to_shape,
    cast,
    one_axis,
    operand,
    static_integer,
)
from treadle.np.reductions import sum as sum_of
from treadle.np.shapes import moveaxis, reshape
from treadle.ops.arithmetic import add
from treadle.ops.compare import eq, ge, select
from treadle.ops.movement import broadcast_in_dim
from treadle.ops.shape import iota, pad
from treadle.run.array import Array
from treadle.trace.value import typeof


def _rows_and_columns(n: int, m: int, k: int) -> tuple[Any, Any]:
    """The row, counted from -k, and the column of each element of a matrix."""
    dtype = dtypes.of_index(n + m)
    rows, columns = (iota(shape=(n, m), axis=a, dtype=dtype) for a in (0, 1))
    if not is_dim(n) and not is_dim(m) and not is_dim(k):
        # Diagonals beyond the corners are all the same: empty.
        k = min(max(k, -n), m)
    return rows if not is_dim(k) and k == 0 else add(rows, cast(k, dtype)), columns


def _on_diagonal(n: int, m: int, k: int) -> Any:
    return eq(*_rows_and_columns(n, m, k))


def _under_diagonal(n: int, m: int, k: int) -> Any:
    return ge(*_rows_and_columns(n, m, k))


def eye(
    n: int,
    m: int | None = None,
    k: int = 0,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
) -> Array:
    """Ones on the k-th diagonal, zeros elsewhere."""
    rows, columns = as_shape("eye", (n, n if m is None else m))
    found = _on_diagonal(rows, columns, k)
    return placed(cast(found, dtypes.canonical(dtype or dtypes.float32)), device)


def identity(n: int, dtype: DTypeLike | None = None) -> Array:
    """The square matrix with ones on its diagonal."""
    return eye(n, dtype=dtype)


def tri(
    n: int, m: int | None = None, k: int = 0, dtype: DTypeLike | None = None
) -> Array:
    """Ones on the k-th diagonal and below, zeros above."""
    rows, columns = as_shape("tri", (n, n if m is None else m))
    found = _under_diagonal(rows, columns, k)
    return cast(found, dtypes.canonical(dtype or dtypes.float32))


def tril(x: ArrayLike, k: int = 0) -> Array:
    """The elements on the k-th diagonal and below; zeros above."""
    return _triangle("tril", x, k, lower=True)


def triu(x: ArrayLike, k: int = 0) -> Array:
    """The elements on the k-th diagonal and above; zeros below."""
    return _triangle("triu", x, k - 1, lower=False)


def _triangle(name: str, x: Any, k: int, lower: bool) -> Any:
    x = operand(name, x)
    t = typeof(x)
    if t.ndim < 2:
        raise ValueError(
            f"{name} needs two axes or more, got shape {t.shape}{at(user_source())}"
        )
    n, m = t.shape[-2:]
    mask = broadcast_to_shape(_under_diagonal(n, m, k), t.shape)
    zero = t.dtype.type(0)
    return select(mask, x, zero) if lower else select(mask, zero, x)


def diag(x: ArrayLike, k: int = 0) -> Array:
    """The k-th diagonal of a matrix, or the matrix with a vector as k-th diagonal."""
    x, k = operand("diag", x), static_integer("diag", "k", k)
    t = typeof(x)
    if t.ndim == 2:
        return diagonal(x, k)
    if t.ndim != 1:
        raise ValueError(
            f"diag takes a vector or a matrix, got shape {t.shape}{at(user_source())}"
        )
    zero = t.dtype.type(0)
    rows = pad(x, zero, padding=((max(-k, 0), max(k, 0), 0),))
    n = t.shape[0] + max(k, -k)
    full = broadcast_in_dim(rows, shape=(n, n), dims=(0,))
    return select(_on_diagonal(n, n, k), full, zero)


def diagflat(x: ArrayLike, k: int = 0) -> Array:
    """The matrix with the elements of the flat array on its k-th diagonal."""
    return diag(reshape(operand("diagflat", x), (-1,)), k)


def diagonal(x: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The elements whose indices in two axes are equal (up to an offset), as the last
    axis."""
    x, offset = operand("diagonal", x), static_integer("diagonal", "offset", offset)
    t = typeof(x)
    a, b = one_axis("diagonal", axis1, t.ndim), one_axis("diagonal", axis2, t.ndim)
    rows, columns = max(-offset, 0), max(offset, 0)
    n = max(min(t.shape[a] - rows, t.shape[b] - columns), 0)
    i = counted(n)
    last = moveaxis(x, (a, b), (-2, -1))
    return getitem(last, (..., i + rows, i + columns))


def trace(
    x: ArrayLike,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
) -> Array:
    """The sum of the diagonal. dtype: in which it is summed."""
    return sum_of(diagonal(x, offset, axis1, axis2), -1, dtype)


def meshgrid(
    *arrays: ArrayLike, indexing: str = "xy", sparse: bool = False
) -> list[Array]:
    """The coordinates of a grid, one array per axis; the first axis of the result runs
    with the second array (indexing "xy") or the first ("ij").

    Args:
      sparse: whether each has length 1 along the axes of the others, for results that
        are broadcast.

    >>> x, y = meshgrid(np.arange(3), np.arange(2), sparse=True)
    >>> x.shape, y.shape
    ((1, 3), (2, 1))
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(
            f"meshgrid: indexing {indexing!r} is neither 'xy' nor 'ij'"
            f"{at(user_source())}"
        )
    axes = [reshape(operand("meshgrid", x), (-1,)) for x in arrays]
    order = list(range(len(axes)))
    if indexing == "xy" and len(axes) > 1:
        order[0], order[1] = 1, 0
    shape = [0] * len(axes)
    for x, place in zip(axes, order, strict=True):
        shape[place] = typeof(x).shape[0]
    if sparse:
        ones = [1] * len(axes)
        return [
            as_array(reshape(x, (*ones[:place], -1, *ones[place + 1 :])))
            for x, place in zip(axes, order, strict=True)
        ]
    return [
        as_array(broadcast_in_dim(x, shape=tuple(shape), dims=(place,)))
        for x, place in zip(axes, order, strict=True)
    ]


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The indices (rows, columns) of the lower triangle of a matrix."""
    return _as_indices(np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The indices (rows, columns) of the upper triangle of a matrix."""
    return _as_indices(np.triu_indices(n, k, m))


def _as_indices(found: Any) -> tuple[Array, Array]:
    dtype = dtypes.of_index(max([int(i.max(initial=0)) for i in found]))
    rows, columns = (Array(i.astype(dtype)) for i in found)
    return rows, columns


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """The indices of the diagonal of an array with `ndim` axes of length n."""
    return (iota(shape=(n,), axis=0, dtype=dtypes.of_index(n)),) * ndim


def vander(x: ArrayLike, n: int | None = None, increasing: bool = False) -> Array:
    """The powers n-1 to 0 of each element of a vector as a row (or 0 to n-1)."""
    base = as_array(operand("vander", x))
    if base.ndim != 1:
        raise ValueError(f"vander takes a vector, got {base.type}{at(user_source())}")
    n = base.size if n is None else static_integer("vander", "n", n)
    if not n:
        return zeros((base.size, 0), base.dtype)
    powers = range(n) if increasing else range(n - 1, -1, -1)
    return stack([base**p for p in powers], 1)
