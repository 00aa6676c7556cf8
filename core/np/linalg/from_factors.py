"""Equations solved by factors that are there already, as SciPy does it."""

from __future__ import annotations

from typing import Any

from treadle import dtypes
from treadle.api.while_loops import fori_loop
from treadle.dims import same_shape
from treadle.errors import at, user_source
from treadle.np.index import counted
from treadle.np.linalg.factors import cholesky, lu_parts
from treadle.np.linalg.operands import check_matrices, empty, floats, matrices, narrowed
from treadle.np.linalg.solving import check_rows, solve_triangular, together
from treadle.np.operands import ArrayLike, broadcast_to_shape, cast
from treadle.np.places import where
from treadle.np.shapes import expand_dims
from treadle.ops.gather import take_along_axis
from treadle.ops.movement import full
from treadle.run.array import Array
from treadle.trace.value import typeof


def lu_factor(a: ArrayLike) -> tuple[Array, Array]:
    """The factors of ``A = P L U`` in one matrix, and the rows that were exchanged, for
    `lu_solve`.

    Shapes, with k = min(m, n): ``(..., m, n) -> (..., m, n), (..., k)``.

    >>> import treadle.numpy as tnp
    >>> a, b = tnp.array([[1.0, 2.0], [4.0, 4.0]]), tnp.array([5.0, 12.0])
    >>> tnp.linalg.lu_solve(tnp.linalg.lu_factor(a), b)
    Array([1., 2.], dtype=float32)
    """
    a, dtype = matrices("lu_factor", a)
    t = typeof(a)
    if empty(t.shape):
        k = min(t.shape[-2:])
        return narrowed(a, dtype), full((*t.shape[:-2], k), 0, dtypes.int32)
    packed, pivots, _ = lu_parts(a)
    return narrowed(packed, dtype), pivots


def lu_solve(
    lu_and_piv: tuple[ArrayLike, ArrayLike], b: ArrayLike, trans: int = 0
) -> Array:
    """The x with ``a @ x = b``, from what `lu_factor` gives for a.

    Args:
      trans: 0; 1 for ``a.T @ x = b``; 2 for its conjugate.

    Raises:
      ValueError: if the factors are not square, or b has another number of rows.
    """
    packed, pivots = lu_and_piv
    (packed, b), dtype = floats("lu_solve", packed, b)
    check_matrices("lu_solve", typeof(packed).shape, square=True)
    if trans not in (0, 1, 2):
        raise ValueError(
            f"lu_solve: trans is 0, 1 or 2, got {trans}{at(user_source())}"
        )
    n, exchanged = typeof(packed).shape[-1], typeof(pivots).shape
    if not exchanged or not same_shape(exchanged[-1:], (n,)):
        raise ValueError(
            f"lu_solve: factors of shape {typeof(packed).shape} and pivots of shape "
            f"{exchanged}: there is one pivot for each row{at(user_source())}"
        )
    vector = typeof(b).ndim == 1
    b = expand_dims(b, -1) if vector else b
    check_rows("lu_solve", packed, b)
    if empty(typeof(b).shape):
        x = b
    else:
        order = order_of(pivots, n)
        packed, b, restore = together(packed, b)
        lead = typeof(b).shape[:-1]
        places = expand_dims(broadcast_to_shape(order, lead), -1)
        x = restore(_solved(packed, places, b, trans))
    x = narrowed(x, dtype)
    return x[..., 0] if vector else x


def _solved(packed: Any, places: Any, b: Any, trans: int) -> Any:
    unit = {"lower": True, "unit_diagonal": True}
    axis, shape = typeof(b).ndim - 2, typeof(b).shape
    if not trans:
        b = take_along_axis(b, broadcast_to_shape(places, shape), axis)
        return solve_triangular(packed, solve_triangular(packed, b, **unit))
    x = solve_triangular(packed, b, trans)
    x = solve_triangular(packed, x, trans, **unit)
    rows = expand_dims(counted(shape[-2]), -1)
    # Where each row has gone: the inverse of a permutation.
    same = expand_dims(rows, 0)[0] == places.swapaxes(-1, -2)
    found = same.astype(places.dtype) @ cast(rows, places.dtype)
    return take_along_axis(x, broadcast_to_shape(found, shape), axis)


def order_of(pivots: Any, n: int) -> Any:
    """The order of rows that exchanges of rows, one after the other, amount to."""
    k = typeof(pivots).shape[-1]
    lead = typeof(pivots).shape[:-1]
    places = counted(n)

    def exchange(i: Any, order: Any) -> Any:
        other = expand_dims(pivots[..., i], -1)
        mine, its = expand_dims(order[..., i], -1), take_along_axis(order, other, -1)
        return where(places == i, its, where(places == other, mine, order))

    order = broadcast_to_shape(cast(places, dtypes.int32), (*lead, n))
    if empty((k,)):
        return order
    return fori_loop(0, k, exchange, order)


def cho_factor(a: ArrayLike, lower: bool = False) -> tuple[Array, bool]:
    """Cholesky's factor, upper by default, and which triangle it is, for `cho_solve`.

    >>> import treadle.numpy as tnp
    >>> a, b = tnp.array([[4.0, 2.0], [2.0, 5.0]]), tnp.array([6.0, 7.0])
    >>> tnp.linalg.cho_solve(tnp.linalg.cho_factor(a), b)
    Array([1., 1.], dtype=float32)
    """
    return cholesky(a, upper=not lower), lower


def cho_solve(c_and_lower: tuple[ArrayLike, bool], b: ArrayLike) -> Array:
    """The x with ``a @ x = b``, from what `cho_factor` gives for a.

    Raises:
      ValueError: if the factor is not square, or b has another number of rows.
    """
    c, lower = c_and_lower
    (c, b), dtype = floats("cho_solve", c, b)
    check_matrices("cho_solve", typeof(c).shape, square=True)
    check_rows("cho_solve", c, expand_dims(b, -1) if typeof(b).ndim == 1 else b)
    half = solve_triangular(c, b, 0 if lower else 2, lower)
    return narrowed(solve_triangular(c, half, 2 if lower else 0, lower), dtype)
