"""Factorizations under the names, and with the results, of `jax.lax.linalg`.

`treadle.numpy.linalg` has NumPy's and SciPy's.
"""

from __future__ import annotations

from typing import Any

from treadle import dtypes
from treadle.lax.operands import array
from treadle.np.complex_parts import conj
from treadle.np.linalg import factors, from_factors, solving
from treadle.np.linalg.operands import matrices
from treadle.np.operands import ArrayLike
from treadle.np.shapes import matrix_transpose
from treadle.run.array import Array


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular L with ``A = L Lᴴ``; see `treadle.numpy.linalg.cholesky`."""
    return factors.cholesky(x, symmetrize_input=symmetrize_input)


def eigh(
    x: ArrayLike, *, lower: bool = True, symmetrize_input: bool = True
) -> tuple[Array, Array]:
    """Eigenvectors (as columns) and eigenvalues, ascending, of Hermitian matrices: the
    vectors come first."""
    uplo = "L" if lower else "U"
    values, vectors = factors.eigh(x, uplo, symmetrize_input)
    return vectors, values


def lu(x: ArrayLike) -> tuple[Array, Array, Array]:
    """The factors in one matrix, the rows that were exchanged, and the order of rows
    that this amounts to: ``A[order] = L U``."""
    packed, pivots = from_factors.lu_factor(x)
    return packed, pivots, lu_pivots_to_permutation(pivots, packed.shape[-2])


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """The order of rows that exchanges, one after the other, amount to."""
    return from_factors.order_of(array("lu", pivots), permutation_size)


def qr(x: ArrayLike, *, full_matrices: bool = True) -> tuple[Array, Array]:
    """The factors of ``A = Q R``; Q is square, or has no more columns than A."""
    q, r = factors.qr(x, "complete" if full_matrices else "reduced")
    return q, r


def svd(x: ArrayLike, *, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """``(U, s, Vh)`` with ``A = U diag(s) Vh``, or s alone."""
    return factors.svd(x, full_matrices, compute_uv)


def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """The x with ``op(a) @ x = b``, or ``x @ op(a) = b`` unless `left_side`, where one
    triangle of a counts, and op transposes or conjugates it if asked to.

    Raises:
      ValueError: for shapes that do not fit.

    >>> import treadle as td, treadle.numpy as tnp
    >>> a, b = tnp.array([[2.0, 0.0], [1.0, 1.0]]), tnp.array([[2.0], [3.0]])
    >>> td.lax.linalg.triangular_solve(a, b, left_side=True, lower=True).ravel()
    Array([1., 2.], dtype=float32)
    """
    matrix, _ = matrices("triangular_solve", a)
    right, _ = matrices("triangular_solve", b)
    if conjugate_a and dtypes.is_complex(matrix.dtype):
        matrix = conj(matrix)
    options = {"lower": lower, "unit_diagonal": unit_diagonal}
    if left_side:
        return solving.solve_triangular(matrix, right, int(transpose_a), **options)
    # x A = b is Aᵀ xᵀ = bᵀ.
    turned = matrix_transpose(right)
    x = solving.solve_triangular(matrix, turned, int(not transpose_a), **options)
    return matrix_transpose(x)
