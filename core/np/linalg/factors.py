"""Factorizations of matrices, and their eigenvalues and singular values."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import numpy as np

from treadle import dtypes
from treadle.api.jacobian import stop_gradient
from treadle.errors import at, user_source
from treadle.np.binary import multiply
from treadle.np.contract import matmul
from treadle.np.elementwise import abs, isfinite
from treadle.np.index import counted
from treadle.np.indexing import take_along_axis
from treadle.np.linalg.operands import (
    adjoint,
    empty,
    identity_of,
    matrices,
    narrowed,
    zeros,
)
from treadle.np.matrices import tril, triu
from treadle.np.operands import ArrayLike, cast
from treadle.np.order import argsort
from treadle.np.places import where
from treadle.np.reductions import all
from treadle.np.shapes import expand_dims, matrix_transpose
from treadle.ops import eigen, orthogonal, singular, triangular
from treadle.ops import lu as lu_ops
from treadle.ops.arithmetic import add
from treadle.run.array import Array
from treadle.trace.value import typeof


class QRResult(NamedTuple):
    """``A = Q R``."""

    Q: Array
    R: Array


class QRRawResult(NamedTuple):
    """Q and R as LAPACK has them."""

    h: Array
    tau: Array


class SVDResult(NamedTuple):
    """``A = U diag(S) Vh``."""

    U: Array
    S: Array
    Vh: Array


class EighResult(NamedTuple):
    """``A = V diag(w) Vᴴ``, where w are the eigenvalues and V the eigenvectors."""

    eigenvalues: Array
    eigenvectors: Array


class EigResult(NamedTuple):
    """``A V = V diag(w)``, where w are the eigenvalues and V the eigenvectors."""

    eigenvalues: Array
    eigenvectors: Array


def symmetrized(a: Any) -> Any:
    """The Hermitian part of matrices, also of numbers whose sums are infinite."""
    half = multiply(a, 0.5)
    return add(half, adjoint(half))


def cholesky(
    a: ArrayLike, /, *, upper: bool = False, symmetrize_input: bool = True
) -> Array:
    """The lower triangular L with ``A = L Lᴴ``, for Hermitian positive definite A.

    Shapes: ``(..., n, n) -> (..., n, n)``. Not-a-number where A is not positive
    definite.

    Args:
      upper: gives the upper triangular U with ``A = Uᴴ U`` instead.
      symmetrize_input: takes ``(A + Aᴴ) / 2``, so that gradients are Hermitian; if not,
        only the lower triangle is read.

    Raises:
      ValueError: if the matrices are not square.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.cholesky(tnp.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    a, dtype = matrices("cholesky", a, square=True)
    if not empty(typeof(a).shape):
        a = triangular.cholesky(symmetrized(a) if symmetrize_input else a)
    return narrowed(adjoint(a) if upper else a, dtype)


@overload
def qr(a: ArrayLike, mode: Literal["reduced", "complete"] = "reduced") -> QRResult: ...
@overload
def qr(a: ArrayLike, mode: Literal["r"]) -> Array: ...
@overload
def qr(a: ArrayLike, mode: Literal["raw"]) -> QRRawResult: ...
def qr(a: ArrayLike, mode: str = "reduced") -> QRResult | QRRawResult | Array:
    """The factors of ``A = Q R``: orthonormal columns, and an upper triangle.

    Shapes, with k = min(m, n): ``(..., m, n) -> (..., m, k), (..., k, n)``.

    Args:
      mode: "reduced"; "complete", with m instead of k; "r", for R alone; "raw", for
        ``(h, tau)``, ``(..., n, m), (..., k)``: the reflections that make Q, as LAPACK
        has them. Those are below the diagonal of the transpose of h, and R above it.

    Raises:
      ValueError: for another mode.
      NotImplementedError: for the derivative of a complete factorization with more
        rows than columns, where Q is not unique, and of a raw one.

    >>> import treadle.numpy as tnp
    >>> q, r = tnp.linalg.qr(tnp.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> bool(tnp.allclose(q @ r, tnp.array([[3.0, 1.0], [4.0, 2.0]]), atol=1e-6))
    True
    """
    a, dtype = matrices("qr", a)
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ValueError(
            f"qr: mode is 'reduced', 'complete', 'r' or 'raw', got {mode!r}"
            f"{at(user_source())}"
        )
    full = mode == "complete"
    shape = typeof(a).shape
    if mode == "raw":
        return _raw_qr(a, dtype)
    if empty(shape):
        *lead, m, n = shape
        k = m if full else min(m, n)
        found = [
            identity_of((*lead, m, k), typeof(a).dtype),
            zeros((*lead, k, n), typeof(a).dtype),
        ]
    else:
        found = orthogonal.qr(a, full=full, vectors=mode != "r")
    r = narrowed(found[-1], dtype)
    return r if mode == "r" else QRResult(narrowed(found[0], dtype), r)


def _raw_qr(a: Any, dtype: np.dtype) -> QRRawResult:
    shape = typeof(a).shape
    if empty(shape):
        *lead, m, n = shape
        shapes = (*lead, n, m), (*lead, min(m, n))
        found = [zeros(shape, typeof(a).dtype) for shape in shapes]
    else:
        found = orthogonal.qr_vectors(a)
    return QRRawResult(*[narrowed(x, dtype) for x in found])


@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: Literal[True] = True,
    hermitian: bool = False,
) -> SVDResult: ...
@overload
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    *,
    compute_uv: Literal[False],
    hermitian: bool = False,
) -> Array: ...
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
) -> SVDResult | Array:
    """The singular value decomposition ``A = U diag(S) Vh``, S in descending order.

    Shapes, with k = min(m, n): ``(..., m, n) -> (..., m, m), (..., k), (..., n, n)``;
    without `full_matrices` only the first k columns of U and rows of Vh.

    Args:
      compute_uv: False gives S alone.
      hermitian: A is Hermitian: its eigenvalues are found instead.

    Raises:
      NotImplementedError: for the derivative of full U and Vh where m and n differ.

    The derivatives of U and Vh are infinite where singular values are equal; those of S
    are not (Giles 2008), but second ones are, or not-a-number, as in JAX: they are made
    of U's and Vh's. What has a formula without them (``sum(S**2)``: the sum of the
    squares of A's elements), and `pinv` and `lstsq`, have derivatives of any order.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.svd(tnp.array([[0.0, 2.0], [3.0, 0.0]]), compute_uv=False)
    Array([3., 2.], dtype=float32)
    """
    a, dtype = matrices("svd", a, square=hermitian)
    if empty(typeof(a).shape):
        found = _empty_svd(a, full_matrices)
    elif hermitian:
        found = _hermitian_svd(a, compute_uv)
    elif compute_uv:
        found = singular.svd(a, full=full_matrices, vectors=True)
    else:
        (s,) = singular.svd(a, full=False, vectors=False)
        found = (None, s, None)
    if not compute_uv:
        return narrowed(found[1], dtype)
    return SVDResult(*[narrowed(x, dtype) for x in found])


def _empty_svd(a: Any, full: bool) -> Any:
    t = typeof(a)
    *lead, m, n = t.shape
    k = min(m, n)
    return (
        identity_of((*lead, m, m if full else k), t.dtype),
        zeros((*lead, k), dtypes.to_real(t.dtype)),
        identity_of((*lead, n if full else k, n), t.dtype),
    )


def _hermitian_svd(a: Any, vectors: bool) -> Any:
    if not vectors:
        s = abs(eigvalsh(a))
        order = argsort(-s, -1)
        return None, take_along_axis(s, order, -1), None
    w, v = eigh(a)
    order = argsort(-abs(w), -1)
    w = take_along_axis(w, order, -1)
    v = take_along_axis(v, expand_dims(order, -2), -1)
    sign = expand_dims(where(w < 0, -1.0, 1.0), -2)
    return v * cast(sign, typeof(v).dtype), abs(w), adjoint(v)


def svdvals(x: ArrayLike, /) -> Array:
    """The singular values of matrices, in descending order: ``(..., m, n) -> (..., k)``
    with k = min(m, n)."""
    return svd(x, compute_uv=False)


def _triangle(name: str, uplo: str) -> bool:
    if not isinstance(uplo, str) or uplo.upper() not in ("L", "U"):
        raise ValueError(f"{name}: UPLO is 'L' or 'U', got {uplo!r}{at(user_source())}")
    return uplo.upper() == "L"


def eigh(a: ArrayLike, UPLO: str = "L", symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues, in ascending order, and eigenvectors (columns) of Hermitian
    matrices: ``(..., n, n) -> (..., n), (..., n, n)``.

    Args:
      UPLO: the triangle that is read, "L" or "U", if the input is not symmetrized.
      symmetrize_input: takes ``(A + Aᴴ) / 2``, so that gradients are Hermitian.

    The derivatives of eigenvectors are infinite where eigenvalues are equal; those of
    eigenvalues are not (Giles 2008), but second ones are, or not-a-number.

    Raises:
      ValueError: if the matrices are not square.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.eigh(tnp.array([[2.0, 1.0], [1.0, 2.0]])).eigenvalues
    Array([1., 3.], dtype=float32)
    """
    w, vh = _eigh("eigh", a, UPLO, symmetrize_input, True)
    return EighResult(w, adjoint(vh))


def eigvalsh(a: ArrayLike, UPLO: str = "L", *, symmetrize_input: bool = True) -> Array:
    """The eigenvalues of Hermitian matrices, in ascending order: ``(..., n, n) ->
    (..., n)``. The arguments are those of `eigh`."""
    return _eigh("eigvalsh", a, UPLO, symmetrize_input, False)[0]


def _eigh(name: str, a: Any, uplo: str, symmetrize: bool, vectors: bool) -> Any:
    a, dtype = matrices(name, a, square=True)
    lower, t = _triangle(name, uplo), typeof(a)
    if empty(t.shape):
        return zeros(t.shape[:-1], dtypes.to_real(dtype)), narrowed(a, dtype)
    a = symmetrized(a) if symmetrize else a
    found = eigen.eigh(a, lower=lower, vectors=vectors)
    return [narrowed(x, dtype) for x in found]


def eig(a: ArrayLike) -> EigResult:
    """Eigenvalues and eigenvectors (columns) of square matrices, as complex numbers:
    ``(..., n, n) -> (..., n), (..., n, n)``. In no particular order; each vector has
    length 1, and its largest element is real.

    Matrices with elements that are not finite give not-a-number.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.eig(tnp.array([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    Array([0.+1.j, 0.-1.j], dtype=complex64)
    """
    w, v = eig_parts("eig", a, True)
    return EigResult(w, matrix_transpose(v))


def eigvals(a: ArrayLike) -> Array:
    """The eigenvalues of square matrices, as complex numbers: ``(..., n, n) ->
    (..., n)``."""
    return eig_parts("eigvals", a, False)[0]


def eig_parts(name: str, a: Any, vectors: bool, left: bool = False) -> Any:
    """Eigenvalues of matrices and, as rows, those eigenvectors that are asked for: the
    right ones first."""
    a, _ = matrices(name, a, square=True)
    t = typeof(a)
    dtype = np.result_type(t.dtype, np.complex64)
    if empty(t.shape):
        return [zeros(t.shape[:-1], dtype)] + [zeros(t.shape, dtype)] * (vectors + left)
    # LAPACK may not come back from numbers that are not finite.
    sound = stop_gradient(all(isfinite(a), (-2, -1), True))
    known = matrix_transpose(where(sound, a, t.dtype.type(0)))
    found = eigen.eig(known, vectors=vectors, left=left)
    masks = sound[..., 0], sound, sound
    nan = dtype.type(np.nan)
    return [where(m, x, nan) for m, x in zip(masks, found, strict=False)]


def lu_parts(a: Any) -> tuple[Any, Any, Any]:
    """The factors of matrices as LAPACK packs them, pivots, and the order of rows."""
    by_columns, pivots, order = lu_ops.lu(matrix_transpose(a))
    return matrix_transpose(by_columns), pivots, order


class LUResult(NamedTuple):
    """``A = P L U``."""

    P: Array
    L: Array
    U: Array


@overload
def lu(a: ArrayLike, permute_l: Literal[False] = False) -> LUResult: ...
@overload
def lu(a: ArrayLike, permute_l: Literal[True]) -> tuple[Array, Array]: ...
def lu(a: ArrayLike, permute_l: bool = False) -> LUResult | tuple[Array, Array]:
    """The factors of ``A = P L U`` (SciPy's `lu`): a permutation, a lower triangle with
    ones on its diagonal, and an upper triangle.

    Shapes: ``(..., m, n) -> (..., m, m), (..., m, k), (..., k, n)``, k = min(m, n).

    Args:
      permute_l: gives ``P L, U`` instead.

    >>> import treadle.numpy as tnp
    >>> p, lower, upper = tnp.linalg.lu(tnp.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> upper
    Array([[4., 4.],
           [0., 1.]], dtype=float32)
    """
    a, dtype = matrices("lu", a)
    t = typeof(a)
    *lead, m, n = t.shape
    real = dtypes.to_real(t.dtype)
    if empty(t.shape):
        p = identity_of((*lead, m, m), real)
        k = min(m, n)
        left, right = identity_of((*lead, m, k), t.dtype), zeros((*lead, k, n), t.dtype)
    else:
        packed, pivots, order = lu_parts(a)
        k = typeof(pivots).shape[-1]
        # Row order[i] of P L is row i of L.
        p = cast(expand_dims(counted(m), 1) == expand_dims(order, -2), real)
        left = tril(packed[..., :k], -1) + identity_of((*lead, m, k), t.dtype)
        right = triu(packed[..., :k, :])
    p, left, right = (narrowed(x, dtype) for x in (p, left, right))
    return (matmul(p, left), right) if permute_l else LUResult(p, left, right)
