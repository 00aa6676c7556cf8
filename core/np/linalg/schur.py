"""Schur and Hessenberg forms, and what is solved and computed by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from treadle.api.custom import custom_jvp
from treadle.api.implicit import custom_linear_solve
from treadle.api.jacobian import stop_gradient
from treadle.api.while_loops import fori_loop
from treadle.dims import same_shape
from treadle.dtypes import is_complex
from treadle.errors import at, user_source
from treadle.np.complex_parts import real
from treadle.np.contract import matmul
from treadle.np.elementwise import sqrt
from treadle.np.index import counted
from treadle.np.linalg.operands import (
    adjoint,
    check_matrices,
    empty,
    floats,
    identity_of,
    matrices,
    narrowed,
    zeros,
)
from treadle.np.linalg.products import diagonal
from treadle.np.linalg.solving import solve_triangular
from treadle.np.matrices import triu
from treadle.np.operands import ArrayLike, broadcast_to_shape, cast
from treadle.np.places import where
from treadle.np.shapes import broadcast_shapes, expand_dims, matrix_transpose
from treadle.ops import schur as forms
from treadle.run.array import Array
from treadle.trace.value import typeof


class SchurResult(NamedTuple):
    """``A = Z T Zᴴ``."""

    T: Array
    Z: Array


class HessenbergResult(NamedTuple):
    """``A = Q H Qᴴ``."""

    H: Array
    Q: Array


def schur(a: ArrayLike, output: str = "real") -> SchurResult:
    """The Schur form of square matrices, ``A = Z T Zᴴ``, with unitary Z:
    ``(..., n, n) -> (..., n, n), (..., n, n)``.

    T is upper triangular; if it is real, with a block of two rows for each pair of
    complex eigenvalues.

    Args:
      output: "complex" gives complex factors of real matrices, too; "real" factors of
        the matrices' own dtype.

    Raises:
      ValueError: if the matrices are not square, or for another output.
      NotImplementedError: if it is differentiated: the factors are not unique.

    >>> import treadle.numpy as tnp
    >>> t, z = tnp.linalg.schur(tnp.array([[2.0, 1.0], [0.0, 3.0]]))
    >>> t
    Array([[2., 1.],
           [0., 3.]], dtype=float32)
    """
    a, dtype = matrices("schur", a, square=True)
    if output not in ("real", "complex"):
        raise ValueError(
            f"schur: output is 'real' or 'complex', got {output!r}{at(user_source())}"
        )
    if output == "complex":
        a, dtype = _complex(a)
    t, z = _schur(a)
    return SchurResult(narrowed(t, dtype), narrowed(z, dtype))


def _complex(a: Any) -> tuple[Any, np.dtype]:
    dtype = np.result_type(typeof(a).dtype, np.complex64)
    return cast(a, dtype), dtype


def _schur(a: Any) -> tuple[Any, Any]:
    t = typeof(a)
    if empty(t.shape):
        return a, identity_of(t.shape, t.dtype)
    t, z = forms.schur(matrix_transpose(a))
    return matrix_transpose(t), matrix_transpose(z)


def rsf2csf(T: ArrayLike, Z: ArrayLike) -> SchurResult:
    """The complex Schur form for a real one: the same ``Z T Zᴴ``, and T is triangular.

    Raises:
      ValueError: if shapes are not square, or differ.
    """
    (t, z), _ = floats("rsf2csf", T, Z)
    for x in (t, z):
        check_matrices("rsf2csf", typeof(x).shape, square=True)
    t, _ = _complex(t)
    z, _ = _complex(z)
    triangle, turn = _schur(t)
    return SchurResult(triangle, matmul(z, turn))


def hessenberg(a: ArrayLike, *, calc_q: bool = False) -> Array | HessenbergResult:
    """The Hessenberg form of square matrices, zero below the first subdiagonal: H of
    ``A = Q H Qᴴ``, or with `calc_q` both H and the unitary Q.

    Raises:
      ValueError: if the matrices are not square.
      NotImplementedError: if it is differentiated: the factors are not unique.

    >>> import treadle.numpy as tnp
    >>> h = tnp.linalg.hessenberg(tnp.ones((3, 3)))
    >>> float(h[2, 0])
    0.0
    """
    a, dtype = matrices("hessenberg", a, square=True)
    if empty(typeof(a).shape):
        h, q = a, a
    else:
        h, q = (matrix_transpose(x) for x in forms.hessenberg(matrix_transpose(a)))
    h, q = narrowed(triu(h, -1), dtype), narrowed(q, dtype)
    return HessenbergResult(h, q) if calc_q else h


def _columns(n: Any, one: Callable[[Any, Any], Any], start: Any) -> Any:
    """A matrix that is found column by column: ``one(j, columns before j)``."""
    places = counted(n)

    def step(j: Any, found: Any) -> Any:
        return where(places == j, expand_dims(one(j, found), -1), found)

    return fori_loop(0, n, step, start)


# Equations of Sylvester ---------------------------------------------------------------


def solve_sylvester(a: ArrayLike, b: ArrayLike, q: ArrayLike) -> Array:
    """The X of ``A X + X B = Q``: ``(..., m, m), (..., n, n), (..., m, n) ->
    (..., m, n)``, by Bartels and Stewart (1972). It is differentiable by all three.

    There is no one X where an eigenvalue of A is the negative of one of B.

    Raises:
      ValueError: if shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.solve_sylvester(tnp.eye(2), tnp.eye(1), tnp.ones((2, 1))).ravel()
    Array([0.5, 0.5], dtype=float32)
    """
    (a, b, q), dtype = floats("solve_sylvester", a, b, q)
    shapes = [typeof(x).shape for x in (a, b, q)]
    for shape, square in zip(shapes, (True, True, False), strict=True):
        check_matrices("solve_sylvester", shape, square)
    if not same_shape(shapes[2][-2:], (shapes[0][-1], shapes[1][-1])):
        raise ValueError(
            f"solve_sylvester: shapes {shapes[0]}, {shapes[1]} and {shapes[2]} don't "
            f"fit: Q has the rows of A and the columns of B{at(user_source())}"
        )
    return narrowed(sylvester(a, b, q), dtype)


def sylvester(a: Any, b: Any, q: Any) -> Any:
    """`solve_sylvester` of matrices of one dtype in which LAPACK computes."""
    lead = broadcast_shapes(*[typeof(x).shape[:-2] for x in (a, b, q)])
    q = broadcast_to_shape(q, (*lead, *typeof(q).shape[-2:]))
    if empty(typeof(q).shape):
        return q
    fixed = stop_gradient(a), stop_gradient(b)
    turned = matrix_transpose(fixed[0]), matrix_transpose(fixed[1])
    return custom_linear_solve(
        lambda x: matmul(a, x) + matmul(x, b),
        q,
        lambda _, right: _by_schur(*fixed, right),
        lambda _, right: _by_schur(*turned, right),
    )


def _by_schur(a: Any, b: Any, q: Any) -> Any:
    """With the Schur forms of A and B the equation is one of triangular matrices for
    each column of X, in terms of those before."""
    t = typeof(q)
    (ta, za), (tb, zb) = (_schur(_complex(x)[0]) for x in (a, b))
    right = matmul(matmul(adjoint(za), _complex(q)[0]), zb)
    one = identity_of(typeof(ta).shape, typeof(ta).dtype)

    def column(j: Any, found: Any) -> Any:
        beside = matmul(found, expand_dims(tb[..., j], -1))[..., 0]
        matrix = ta + tb[..., j, j][..., None, None] * one
        rest = expand_dims(right[..., j] - beside, -1)
        return solve_triangular(matrix, rest)[..., 0]

    found = _columns(t.shape[-1], column, zeros(t.shape, typeof(right).dtype))
    x = matmul(matmul(za, found), adjoint(zb))
    return x if is_complex(t.dtype) else real(x)


# Functions of matrices ----------------------------------------------------------------


def sqrtm(a: ArrayLike) -> Array:
    """The principal square roots of square matrices, X with ``X X = A``, as complex
    numbers: ``(..., n, n) -> (..., n, n)``, by Björck and Hammarling (1983).

    A singular matrix may have none: not-a-number. The derivative is that of the
    equation, and needs eigenvalues that are not 0.

    Raises:
      ValueError: if the matrices are not square.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.sqrtm(tnp.array([[4.0, 5.0], [0.0, 9.0]])).real
    Array([[2., 1.],
           [0., 3.]], dtype=float32)
    """
    given, _ = matrices("sqrtm", a, square=True)
    matrix, _ = _complex(given)
    return matrix if empty(typeof(matrix).shape) else _sqrtm(matrix)


def _root(a: Any) -> Any:
    t, z = _schur(a)
    shape, dtype = typeof(t).shape, typeof(t).dtype
    roots, one = sqrt(diagonal(t)), identity_of(shape, dtype)
    rows = counted(shape[-1])

    def column(j: Any, found: Any) -> Any:
        matrix = found + roots[..., j][..., None, None] * one
        right = where(rows < j, t[..., j], dtype.type(0))
        above = solve_triangular(matrix, expand_dims(right, -1))[..., 0]
        last = where(rows == j, roots[..., j][..., None], dtype.type(0))
        return where(rows < j, above, last)

    root = _columns(shape[-1], column, zeros(shape, dtype))
    return matmul(matmul(z, root), adjoint(z))


_sqrtm = custom_jvp(_root)


@_sqrtm.defjvp
def _sqrtm_jvp(primals: Any, tangents: Any) -> Any:
    """From ``X X = A``: ``X dX + dX X = dA``."""
    x = _sqrtm(*primals)
    return x, sylvester(x, x, tangents[0])


def funm(a: ArrayLike, func: Callable[[Any], Any]) -> Array:
    """The function of square matrices that `func` is of numbers, as complex numbers:
    ``(..., n, n) -> (..., n, n)``, by the recurrence of Parlett (1974).

    It is inexact where eigenvalues are close to each other: take `expm` and `sqrtm` for
    these functions.

    Args:
      func: from an array of eigenvalues to one of the same shape.

    Raises:
      ValueError: if the matrices are not square.
      NotImplementedError: if it is differentiated by `a`.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.funm(tnp.array([[1.0, 1.0], [0.0, 2.0]]), lambda x: x**3).real
    Array([[1., 7.],
           [0., 8.]], dtype=float32)
    """
    given, _ = matrices("funm", a, square=True)
    whole, dtype = _complex(given)
    if empty(typeof(whole).shape):
        return whole
    t, z = _schur(whole)
    shape = typeof(t).shape
    eigenvalues = diagonal(t)
    values = cast(func(eigenvalues), dtype)
    one = identity_of(shape, dtype)
    rows = counted(shape[-1])

    def column(j: Any, found: Any) -> Any:
        before = where(rows < j, t[..., j], dtype.type(0))
        own = values[..., j][..., None]
        right = matmul(found, expand_dims(before, -1))[..., 0] - before * own
        # F T = T F. Nothing is divided by a difference of equal eigenvalues.
        gap = eigenvalues - eigenvalues[..., j][..., None]
        gap = where(gap == 0, dtype.type(1), gap)
        matrix = where(one == 1, expand_dims(gap, -1), t)
        above = solve_triangular(matrix, expand_dims(right, -1))[..., 0]
        return where(rows < j, above, where(rows == j, own, dtype.type(0)))

    result = _columns(shape[-1], column, zeros(shape, dtype))
    return matmul(matmul(z, result), adjoint(z))
