"""Factorizations under the names, and with the results, of `jax.lax.linalg`.

`treadle.numpy.linalg` has NumPy's and SciPy's.
"""

from __future__ import annotations

from operator import index
from typing import Any

from treadle import dtypes
from treadle.api.custom import custom_jvp
from treadle.dims import same_shape
from treadle.errors import at, user_source
from treadle.lax.operands import array
from treadle.lax.reflections import householder_product as householder_product
from treadle.lax.reflections import ormqr as ormqr
from treadle.lax.tridiagonal import cholesky_update as cholesky_update
from treadle.lax.tridiagonal import tridiagonal_solve as tridiagonal_solve
from treadle.np.complex_parts import conj
from treadle.np.contract import matmul
from treadle.np.indexing import take_along_axis
from treadle.np.linalg import factors, from_factors, pivots, solving
from treadle.np.linalg.operands import empty, floats, matrices, narrowed, zeros
from treadle.np.linalg.schur import schur as schur_form
from treadle.np.matrices import tril
from treadle.np.operands import ArrayLike
from treadle.np.shapes import matrix_transpose
from treadle.ops import condensed
from treadle.run.array import Array
from treadle.trace.routine import most
from treadle.trace.value import typeof


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular L with ``A = L Lᴴ``; see `treadle.numpy.linalg.cholesky`."""
    return factors.cholesky(x, symmetrize_input=symmetrize_input)


def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = True,
) -> list[Array]:
    """Eigenvalues of square matrices, and the eigenvectors that are asked for, as
    complex numbers: ``[w, left, right]``. Columns of the left ones are u with ``uᴴ A =
    w uᴴ``. Each has length 1, and its largest element is real.

    Args:
      enable_eigvec_derivs: False makes derivatives of eigenvectors an error: they are
        infinite where eigenvalues are equal, and have jumps where two elements of a
        vector are the largest.

    Raises:
      ValueError: if the matrices are not square.
      NotImplementedError: for a derivative that is not enabled.

    >>> import treadle as td, treadle.numpy as tnp
    >>> w, left, right = td.lax.linalg.eig(tnp.array([[2.0, 1.0], [0.0, 3.0]]))
    >>> left.real.round(3) + 0
    Array([[ 0.707,  0.   ],
           [-0.707,  1.   ]], dtype=float32)
    """
    vectors = compute_left_eigenvectors or compute_right_eigenvectors
    if vectors and not enable_eigvec_derivs:
        x = _without_derivative(x)
    w, *found = factors.eig_parts(
        "eig", x, compute_right_eigenvectors, compute_left_eigenvectors
    )
    return [w, *[matrix_transpose(v) for v in reversed(found)]]


@custom_jvp
def _without_derivative(x: ArrayLike) -> ArrayLike:
    return x


@_without_derivative.defjvp
def _no_derivative(primals: Any, tangents: Any) -> Any:
    raise NotImplementedError(
        f"eig: derivatives of eigenvectors are not enabled{at(user_source())}\n"
        "Pass `enable_eigvec_derivs=True`."
    )


def eigh(
    x: ArrayLike,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
) -> tuple[Array, Array]:
    """Eigenvectors (as columns) and eigenvalues, ascending, of Hermitian matrices: the
    vectors come first.

    Args:
      lower, symmetrize_input: see `treadle.numpy.linalg.eigh`.
      sort_eigenvalues: they are sorted in any case.
      subset_by_index: the numbers of the first eigenvalue wanted, and of the one behind
        the last.
    """
    uplo = "L" if lower else "U"
    values, vectors = factors.eigh(x, uplo, symmetrize_input)
    if subset_by_index is None:
        return vectors, values
    chosen = _chosen("eigh", subset_by_index, values.shape[-1])
    return vectors[..., chosen], values[..., chosen]


def _chosen(name: str, bounds: tuple[int, int], n: int) -> slice:
    try:
        first, end = (index(x) for x in bounds)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name}: subset_by_index is a pair of integers, got {bounds!r:.60}"
            f"{at(user_source())}"
        ) from None
    if not 0 <= first <= end <= n:
        raise ValueError(
            f"{name}: subset_by_index is {bounds!r} of {n} numbers{at(user_source())}\n"
            "It is the first one, and the one behind the last."
        )
    return slice(first, end)


def hessenberg(a: ArrayLike) -> tuple[Array, Array]:
    """Square matrices in Hessenberg form, H of ``A = Q H Qᴴ``, as LAPACK leaves them:
    below the first subdiagonal stand the vectors of the reflections that make Q, and
    apart their factors. `treadle.numpy.linalg.hessenberg` gives H and Q.

    Shapes: ``(..., n, n) -> (..., n, n), (..., n - 1)``.

    Raises:
      ValueError: if the matrices are not square.
      NotImplementedError: if it is differentiated.

    >>> import treadle as td, treadle.numpy as tnp
    >>> h, taus = td.lax.linalg.hessenberg(tnp.eye(3))
    >>> taus
    Array([0., 0.], dtype=float32)
    """
    a, dtype = matrices("hessenberg", a, square=True)
    t = typeof(a)
    if empty(t.shape):
        beside = most(t.shape[-1], 1) - 1
        return narrowed(a, dtype), zeros((*t.shape[:-2], beside), dtype)
    h, taus = condensed.hessenberg_vectors(matrix_transpose(a))
    return narrowed(matrix_transpose(h), dtype), narrowed(taus, dtype)


def lu(x: ArrayLike) -> tuple[Array, Array, Array]:
    """The factors in one matrix, the rows that were exchanged, and the order of rows
    that this amounts to: ``A[order] = L U``."""
    packed, pivots = from_factors.lu_factor(x)
    return packed, pivots, lu_pivots_to_permutation(pivots, packed.shape[-2])


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """The order of rows that exchanges, one after the other, amount to."""
    return from_factors.order_of(array("lu", pivots), permutation_size)


def qr(
    x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True
) -> tuple[Array, ...]:
    """The factors of ``A = Q R``; Q is square, or has no more columns than A.

    Args:
      pivoting: whether columns are exchanged, so that R's diagonal descends; their
        numbers come behind Q and R then, as int32: ``A[:, P] = Q R``.
    """
    order: tuple[Array, ...] = ()
    if pivoting:
        given, _ = matrices("qr", x)
        order = (pivots.column_pivots(given),)
        x = take_along_axis(array("qr", x), order[0][..., None, :], -1)
    q, r = factors.qr(x, "complete" if full_matrices else "reduced")
    return (q, r, *order)


def schur(x: ArrayLike, *, compute_schur_vectors: bool = True) -> tuple[Array, ...]:
    """T and the unitary Z of ``A = Z T Zᴴ``, or ``(T,)``: see
    `treadle.numpy.linalg.schur`."""
    t, z = schur_form(x)
    return (t, z) if compute_schur_vectors else (t,)


def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """``(U, s, Vh)`` with ``A = U diag(s) Vh``, or s alone.

    Args:
      subset_by_index: the numbers of the first singular value wanted, and of the one
        behind the last; the others have no vectors then, either.
    """
    if not compute_uv:
        s = factors.svd(x, compute_uv=False)
        if subset_by_index is None:
            return s
        return s[..., _chosen("svd", subset_by_index, s.shape[-1])]
    u, s, vh = factors.svd(x, full_matrices)
    if subset_by_index is None:
        return u, s, vh
    chosen = _chosen("svd", subset_by_index, s.shape[-1])
    return u[..., chosen], s[..., chosen], vh[..., chosen, :]


def symmetric_product(
    a_matrix: ArrayLike,
    c_matrix: ArrayLike,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Array:
    """``alpha A Aᵀ + beta C`` of any matrices A and symmetric C:
    ``(..., m, n), (..., m, m) -> (..., m, m)``.

    Args:
      symmetrize_output: makes the upper triangle what the lower one is. (Without, it is
        right where C's is.)

    Raises:
      ValueError: for shapes that don't fit.

    >>> import treadle as td, treadle.numpy as tnp
    >>> a = tnp.array([[1.0], [2.0]])
    >>> td.lax.linalg.symmetric_product(a, tnp.eye(2), beta=3.0)
    Array([[4., 2.],
           [2., 7.]], dtype=float32)
    """
    (a, c), dtype = floats("symmetric_product", a_matrix, c_matrix)
    for x, square in ((a, False), (c, True)):
        matrices("symmetric_product", x, square)
    shapes = typeof(a).shape, typeof(c).shape
    if not same_shape(shapes[0][-2:-1], shapes[1][-1:]):
        raise ValueError(
            f"symmetric_product: shapes {shapes[0]} and {shapes[1]}: the second has "
            f"the rows of the first, in both directions{at(user_source())}"
        )
    found = alpha * matmul(a, matrix_transpose(a))
    found = found + beta * c if beta else found
    if symmetrize_output:
        found = tril(found) + matrix_transpose(tril(found, -1))
    return narrowed(found, dtype)


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


def tridiagonal(
    a: ArrayLike, *, lower: bool = True
) -> tuple[Array, Array, Array, Array]:
    """Hermitian matrices in tridiagonal form, T of ``A = Q T Qᴴ``, as LAPACK leaves
    them: ``(a, d, e, taus)``, where d is T's diagonal, e what is beside it, and a has
    the vectors of the reflections that make Q beyond that; `taus` are their factors.

    Shapes: ``(..., n, n) -> (..., n, n), (..., n), (..., n - 1), (..., n - 1)``.

    Args:
      lower: the triangle that is read, and holds the vectors.

    Raises:
      ValueError: if the matrices are not square.
      NotImplementedError: if it is differentiated.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.lax.linalg.tridiagonal(tnp.array([[2.0, 1.0], [1.0, 3.0]]))[1:3]
    (Array([2., 3.], dtype=float32), Array([1.], dtype=float32))
    """
    a, dtype = matrices("tridiagonal", a, square=True)
    t = typeof(a)
    if empty(t.shape):
        real, lead = dtypes.to_real(dtype), t.shape[:-2]
        beside = most(t.shape[-1], 1) - 1
        none = [zeros((*lead, beside), kind) for kind in (real, dtype)]
        return narrowed(a, dtype), zeros(t.shape[:-1], real), *none
    form, *rest = condensed.tridiagonal(matrix_transpose(a), lower=lower)
    d, e, taus = (narrowed(x, dtype) for x in rest)
    return narrowed(matrix_transpose(form), dtype), d, e, taus
