"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from typing import Any

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np import reductions
from treadle.np.complex_parts import imag, real
from treadle.np.elementwise import abs, isnan, sqrt, square
from treadle.np.linalg.factors import svdvals
from treadle.np.linalg.operands import check_matrices, empty, matrices
from treadle.np.linalg.solving import inv
from treadle.np.operands import ArrayLike, Axis, all_axes, as_inexact, cast, one_axis
from treadle.np.places import where
from treadle.np.powers import power
from treadle.np.shapes import expand_dims, moveaxis
from treadle.ops.arithmetic import add
from treadle.ops.compare import ne
from treadle.run.array import Array
from treadle.trace.value import typeof

_MATRIX_ORDERS = "'fro', 'nuc', 1, -1, 2, -2, inf or -inf"


def norm(
    x: ArrayLike,
    ord: float | str | None = None,
    axis: Axis = None,
    keepdims: bool = False,
) -> Array:
    """The norm of vectors along one axis, of matrices over two, or the Euclidean norm
    of all elements.

    Args:
      ord: of vectors: 2 (the default), 1, any other p, 0 (how many elements are not
        zero), inf (the largest) or -inf. Of matrices: "fro" (the default), "nuc" (the
        sum of the singular values), 2 and -2 (the largest and the smallest of them), 1
        and -1 (the largest and smallest sum of a column), inf and -inf (of a row).
      axis: one axis, or two; by default all axes of x, which are one or two if `ord` is
        given.

    Raises:
      ValueError: for another order, or a wrong number of axes.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.norm(tnp.array([3.0, 4.0]))
    Array(5., dtype=float32)
    >>> tnp.linalg.norm(tnp.array([[1.0, 2.0], [3.0, 4.0]]), 1)
    Array(6., dtype=float32)
    """
    x = as_inexact("norm", x)
    dtype = typeof(x).dtype
    if dtype.itemsize == 2:
        # The squares of halves overflow early.
        return cast(norm(cast(x, dtypes.float32), ord, axis, keepdims), dtype)
    axes = all_axes("norm", axis, typeof(x).ndim)
    if ord is None or (len(axes), ord) in ((2, "fro"), (1, 2)):
        return sqrt(reductions.sum(_squares(x), axes, None, keepdims))
    if len(axes) == 2:
        order = axis if axis is not None else axes
        assert not isinstance(order, int)
        rows, columns = (one_axis("norm", a, typeof(x).ndim) for a in order)
        return _matrix_norm(x, ord, rows, columns, keepdims)
    if len(axes) != 1 or isinstance(ord, str):
        raise ValueError(
            f"norm: order {ord!r} over {len(axes)} axes{at(user_source())}\n"
            "Orders are those of vectors (one axis) or matrices (two)."
        )
    return _vector_norm(abs(x), ord, axes, keepdims)


def vector_norm(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    ord: float = 2,
) -> Array:
    """The norm of vectors: of all elements along some axes, by default all. The orders
    are those of `norm`.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.vector_norm(tnp.array([[3.0, 4.0], [0.0, 12.0]]))
    Array(13., dtype=float32)
    """
    x = as_inexact("vector_norm", x)
    dtype = typeof(x).dtype
    if dtype.itemsize == 2:
        wide = cast(x, dtypes.float32)
        found = vector_norm(wide, axis=axis, keepdims=keepdims, ord=ord)
        return cast(found, dtype)
    if isinstance(ord, str):
        raise ValueError(f"vector_norm: order {ord!r} is no number{at(user_source())}")
    axes = all_axes("vector_norm", axis, typeof(x).ndim)
    if ord == 2:
        return sqrt(reductions.sum(_squares(x), axes, None, keepdims))
    return _vector_norm(abs(x), ord, axes, keepdims)


def matrix_norm(
    x: ArrayLike, /, *, keepdims: bool = False, ord: float | str | None = "fro"
) -> Array:
    """The norm of matrices in the last two axes. The orders are those of `norm`.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.matrix_norm(tnp.array([[3.0, 0.0], [0.0, 4.0]]), ord=2)
    Array(4., dtype=float32)
    """
    check_matrices("matrix_norm", typeof(as_inexact("matrix_norm", x)).shape)
    return norm(x, ord, (-2, -1), keepdims)


def cond(x: ArrayLike, p: float | str | None = None) -> Array:
    """The condition numbers of matrices: ``norm(A, p) * norm(inv(A), p)``; of the
    singular values by default, the largest over the smallest.

    Raises:
      ValueError: for empty matrices, or if p is not 2 or -2 and they are not square.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.cond(tnp.array([[2.0, 0.0], [0.0, 1.0]]))
    Array(2., dtype=float32)
    """
    a, dtype = matrices("cond", x, square=p not in (None, 2, -2))
    if empty(typeof(a).shape[-2:]):
        raise ValueError(
            f"cond of empty matrices, of shape {typeof(a).shape}{at(user_source())}"
        )
    if p in (None, 2, -2):
        s = svdvals(a)
        first, last = s[..., 0], s[..., -1]
        found = last / first if p == -2 else first / last
    else:
        found = matrix_norm(a, ord=p) * matrix_norm(inv(a), ord=p)
    # A singular matrix is badly conditioned; one with not-a-number is neither.
    sound = ~reductions.any(isnan(a), (-2, -1))
    infinite = typeof(found).dtype.type(math.inf)
    found = where(isnan(found) & sound, infinite, found)
    return cast(found, dtype) if dtype.itemsize == 2 else found


def _squares(x: Any) -> Any:
    parts = real(x), imag(x)
    same = typeof(parts[0]).dtype == typeof(x).dtype
    return square(x) if same else add(square(parts[0]), square(parts[1]))


def _vector_norm(size: Any, ord: Any, axes: Any, keepdims: bool) -> Any:
    if ord == math.inf:
        return _largest(size, axes, keepdims)
    if ord == -math.inf:
        return reductions.min(size, axes, keepdims)
    if ord == 0:
        present = cast(ne(size, 0.0), typeof(size).dtype)
        return reductions.sum(present, axes, None, keepdims)
    if ord == 1:
        return reductions.sum(size, axes, None, keepdims)
    total = reductions.sum(power(size, ord), axes, None, keepdims)
    return power(total, 1 / ord)


def _largest(size: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    """The largest of numbers that are not negative: of none, 0."""
    none = empty(tuple([typeof(size).shape[a] for a in axes]))
    return reductions.max(size, axes, keepdims, initial=0 if none else None)


def _matrix_norm(x: Any, ord: Any, rows: int, columns: int, keepdims: bool) -> Any:
    if ord in (1, -1, math.inf, -math.inf) and not isinstance(ord, str):
        sums = reductions.sum(abs(x), rows if ord in (1, -1) else columns, None, True)
        extreme = _largest if ord > 0 else reductions.min
        return extreme(sums, (rows, columns), keepdims)
    if ord not in ("nuc", 2, -2):
        raise ValueError(
            f"norm: order {ord!r} of matrices{at(user_source())}\n"
            f"It is {_MATRIX_ORDERS}."
        )
    s = svdvals(moveaxis(x, (rows, columns), (-2, -1)))
    reduce: Any = {"nuc": reductions.sum, 2: _largest, -2: reductions.min}[ord]
    found = reduce(s, (-1,))
    if not keepdims:
        return found
    for a in sorted((rows, columns)):
        found = expand_dims(found, a)
    return found
