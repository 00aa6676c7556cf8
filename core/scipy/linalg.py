"""`treadle.scipy.linalg`: linear algebra with SciPy's names and arguments.

    from treadle.scipy import linalg
    linalg.cholesky(a, lower=True)

Where SciPy and NumPy differ (`cholesky`, `eigh`, `qr`, `solve`), this is SciPy's; the
others are those of `treadle.numpy.linalg`. All are batched and differentiable. Options
about memory and checks (`overwrite_a`, `check_finite`, …) are taken and change nothing:
arrays do not change, and what is not finite gives results that are not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np import linalg
from treadle.np.contract import matmul
from treadle.np.creation import full
from treadle.np.indexing import take_along_axis
from treadle.np.join import concatenate
from treadle.np.linalg import block_diag as block_diag
from treadle.np.linalg import circulant as circulant
from treadle.np.linalg import companion as companion
from treadle.np.linalg import convolution_matrix as convolution_matrix
from treadle.np.linalg import dft as dft
from treadle.np.linalg import eigh_tridiagonal as eigh_tridiagonal
from treadle.np.linalg import expm as expm
from treadle.np.linalg import expm_frechet as expm_frechet
from treadle.np.linalg import fiedler as fiedler
from treadle.np.linalg import fiedler_companion as fiedler_companion
from treadle.np.linalg import funm as funm
from treadle.np.linalg import hadamard as hadamard
from treadle.np.linalg import hankel as hankel
from treadle.np.linalg import helmert as helmert
from treadle.np.linalg import hilbert as hilbert
from treadle.np.linalg import invhilbert as invhilbert
from treadle.np.linalg import invpascal as invpascal
from treadle.np.linalg import leslie as leslie
from treadle.np.linalg import pascal as pascal
from treadle.np.linalg import pivots
from treadle.np.linalg import polar as polar
from treadle.np.linalg import qr_multiply as qr_multiply
from treadle.np.linalg import schur as schur
from treadle.np.linalg import solve_sylvester as solve_sylvester
from treadle.np.linalg import sqrtm as sqrtm
from treadle.np.linalg import toeplitz as toeplitz
from treadle.np.linalg.operands import adjoint, matrices
from treadle.np.matrices import tril
from treadle.np.operands import ArrayLike
from treadle.run.array import Array
from treadle.trace.value import typeof

Result = TypeVar("Result")


def _taking(options: str, function: Callable[..., Result]) -> Callable[..., Result]:
    """A function that also takes SciPy's options that change nothing here."""
    ignored = options.split()

    @wraps(function)
    def taking(*args: Any, **named: Any) -> Result:
        return function(*args, **{k: v for k, v in named.items() if k not in ignored})

    return taking


_IN_PLACE = "overwrite_a check_finite"
cho_factor = _taking(_IN_PLACE, linalg.cho_factor)
cho_solve = _taking("overwrite_b check_finite", linalg.cho_solve)
det = _taking(_IN_PLACE, linalg.det)
hessenberg = _taking(_IN_PLACE, linalg.hessenberg)
inv = _taking(_IN_PLACE, linalg.inv)
lu = _taking(_IN_PLACE, linalg.lu)
lu_factor = _taking(_IN_PLACE, linalg.lu_factor)
lu_solve = _taking("overwrite_b check_finite", linalg.lu_solve)
rsf2csf = _taking("check_finite", linalg.rsf2csf)
solve_triangular = _taking("overwrite_b check_finite", linalg.solve_triangular)
svd = _taking("overwrite_a check_finite lapack_driver", linalg.svd)


def cholesky(
    a: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> Array:
    """The upper triangular U with ``a = Uᴴ U``, or the lower L with ``a = L Lᴴ``, for
    Hermitian positive definite matrices, of which that triangle is read.

    Shapes: ``(..., n, n) -> (..., n, n)``. Not-a-number where a is not positive
    definite.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.scipy.linalg.cholesky(tnp.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 1.],
           [0., 2.]], dtype=float32)
    """
    a, _ = matrices("cholesky", a, square=True)
    found = linalg.cholesky(a if lower else adjoint(a), symmetrize_input=False)
    return found if lower else adjoint(found)


def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    type: int = 1,
    check_finite: bool = True,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """Eigenvalues, in ascending order, and eigenvectors (columns) of Hermitian
    matrices: ``(..., n, n) -> (..., n), (..., n, n)``.

    Args:
      b: Hermitian positive definite matrices, for ``a v = w b v``.
      lower: which triangles of a and b are read.
      eigvals_only: give the eigenvalues alone.
      type: 2 for ``a b v = w v``, 3 for ``b a v = w v``.
      subset_by_index: the numbers of the first and the last eigenvalue wanted.

    Raises:
      ValueError: if the matrices are not square, or there is no such type.

    >>> import treadle as td, treadle.numpy as tnp
    >>> a, b = tnp.array([[2.0, 1.0], [1.0, 2.0]]), tnp.eye(2) * 2
    >>> td.scipy.linalg.eigh(a, b, eigvals_only=True)
    Array([0.5, 1.5], dtype=float32)
    """
    if type not in (1, 2, 3):
        raise ValueError(f"eigh: type is 1, 2 or 3, got {type}{at(user_source())}")
    options: Any = {"UPLO": "L" if lower else "U", "symmetrize_input": False}
    factor: Any = None
    if b is not None:
        a = _from_triangle("eigh", a, lower)
        factor = cholesky(_from_triangle("eigh", b, lower), lower=True)
        a = _reduced(a, factor, type)
        options = {}
    if eigvals_only:
        values, vectors = linalg.eigvalsh(a, **options), None
    else:
        values, vectors = linalg.eigh(a, **options)
    if vectors is not None and factor is not None:
        vectors = (
            matmul(factor, vectors)
            if type == 3
            else solve_triangular(factor, vectors, "C", lower=True)
        )
    if subset_by_index is not None:
        first, last = subset_by_index
        values = values[..., first : last + 1]
        vectors = None if vectors is None else vectors[..., first : last + 1]
    return values if vectors is None else (values, vectors)


def _reduced(a: Any, factor: Any, type: int) -> Any:
    """The matrix of the same eigenvalues, by the Cholesky factor of b."""
    if type != 1:
        return matmul(matmul(adjoint(factor), a), factor)
    half = solve_triangular(factor, a, lower=True)
    return adjoint(solve_triangular(factor, adjoint(half), lower=True))


def _from_triangle(name: str, a: ArrayLike, lower: bool, conjugate: bool = True) -> Any:
    """The whole Hermitian (or symmetric) matrices of which one triangle is given."""
    a, _ = matrices(name, a, square=True)
    turn = adjoint if conjugate else linalg.matrix_transpose
    given = tril(a if lower else turn(a))
    below = tril(given, -1)
    if conjugate and dtypes.is_complex(typeof(given).dtype):
        given = below + (given - below).real
    return given + turn(below)


def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array, ...]:
    """Orthonormal columns Q and the upper triangular R with ``a = Q R``.

    Shapes, with k = min(m, n): ``(..., m, n) -> (..., m, m), (..., m, n)``; with mode
    "economic" ``(..., m, k), (..., k, n)``; with mode "r" R alone, in a tuple.

    Args:
      pivoting: whether columns are exchanged, so that R's diagonal descends; what is
        returned has another part then, the numbers of the columns, as int32: ``a[:, P]
        = Q R``. Its derivative is that of the columns in this order.

    Raises:
      ValueError: if there is no such mode.

    >>> import treadle as td, treadle.numpy as tnp
    >>> [x.shape for x in td.scipy.linalg.qr(tnp.ones((3, 2)), mode="economic")]
    [(3, 2), (2, 2)]
    """
    if mode not in ("full", "economic", "r"):
        raise ValueError(
            f"qr: mode is 'full', 'economic' or 'r', got {mode!r}{at(user_source())}"
        )
    order: tuple[Array, ...] = ()
    if pivoting:
        x, _ = matrices("qr", a)
        order = (pivots.column_pivots(x),)
        a = take_along_axis(x, order[0][..., None, :], -1)
    if mode == "r":
        r = linalg.qr(a, "r")
        *lead, k, n = r.shape
        zeros = full((*lead, typeof(a).shape[-2] - k, n), 0, r.dtype)
        return (concatenate((r, zeros), -2), *order)
    q, r = linalg.qr(a, "complete" if mode == "full" else "reduced")
    return (q, r, *order)


_KINDS = {
    "gen": "gen",
    "general": "gen",
    "sym": "sym",
    "symmetric": "sym",
    "her": "her",
    "hermitian": "her",
    "pos": "pos",
    "positive definite": "pos",
}


def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """The x with ``a @ x = b``, as `treadle.numpy.linalg.solve`.

    Args:
      lower: which triangle of a is read, if it is not general.
      assume_a: "gen", "sym" (symmetric), "her" (Hermitian), or "pos" (positive
        definite: by Cholesky's factor).

    Raises:
      ValueError: if a is not square, b has another number of rows, or there is no such
        kind of matrix.

    >>> import treadle as td, treadle.numpy as tnp
    >>> a, b = tnp.array([[4.0, 2.0], [2.0, 5.0]]), tnp.array([6.0, 7.0])
    >>> td.scipy.linalg.solve(a, b, assume_a="pos")
    Array([1., 1.], dtype=float32)
    """
    kind = _KINDS.get(assume_a)
    if kind is None:
        raise ValueError(
            f"solve: assume_a is one of {', '.join(map(repr, _KINDS))}, got "
            f"{assume_a!r}{at(user_source())}"
        )
    if kind == "pos":
        return linalg.cho_solve((cholesky(a, lower), lower), b)
    if kind != "gen":
        a = _from_triangle("solve", a, lower, conjugate=kind == "her")
    return linalg.solve(a, b)
