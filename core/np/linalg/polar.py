"""What is made of other factorizations: polar ones, products with Q, eigenvalues of
tridiagonal matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from treadle.api.custom import custom_jvp
from treadle.api.implicit import custom_linear_solve
from treadle.api.jacobian import stop_gradient
from treadle.api.linear import jvp
from treadle.errors import at, user_source
from treadle.np.complex_parts import conj
from treadle.np.contract import matmul
from treadle.np.linalg.factors import (
    EighResult,
    eigh,
    eigvalsh,
    qr,
    svd,
    symmetrized,
)
from treadle.np.linalg.functions import expm
from treadle.np.linalg.operands import adjoint, empty, floats, matrices, narrowed
from treadle.np.linalg.solving import solve
from treadle.np.matrices import diag
from treadle.np.operands import ArrayLike, cast
from treadle.np.shapes import expand_dims, matrix_transpose
from treadle.run.array import Array
from treadle.trace.value import typeof


class PolarResult(NamedTuple):
    """``A = U P``, or ``A = P U``."""

    U: Array
    P: Array


def polar(a: ArrayLike, side: str = "right") -> PolarResult:
    """The polar factors of matrices: U has orthonormal columns (or rows, whichever are
    fewer), and P is Hermitian and has no negative eigenvalues:
    ``(..., m, n) -> (..., m, n), (..., n, n)``.

    They have derivatives unless A is of lower rank, also where singular values are
    equal.

    Args:
      side: "right" for ``A = U P``; "left" for ``A = P U``, where P is m by m.

    Raises:
      ValueError: for another side.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.polar(tnp.array([[0.0, -2.0], [2.0, 0.0]])).U
    Array([[ 0., -1.],
           [ 1.,  0.]], dtype=float32)
    """
    a, dtype = matrices("polar", a)
    if side not in ("right", "left"):
        raise ValueError(
            f"polar: side is 'right' or 'left', got {side!r}{at(user_source())}"
        )
    shape = typeof(a).shape
    if empty(shape):
        u = a
    else:
        u = _columns(a) if shape[-2] >= shape[-1] else adjoint(_columns(adjoint(a)))
    p = matmul(adjoint(u), a) if side == "right" else matmul(a, adjoint(u))
    return PolarResult(narrowed(u, dtype), narrowed(symmetrized(p), dtype))


def _nearest(a: Any) -> Any:
    w, _, vh = svd(a, full_matrices=False)
    return matmul(w, vh)


_columns = custom_jvp(_nearest)
"""U of matrices with at least as many rows as columns."""


@_columns.defjvp
def _columns_jvp(primals: Any, tangents: Any) -> Any:
    """dU is U W and what of dA P⁻¹ is outside of the columns of U, where W is
    skew-Hermitian and P W + W P = Uᴴ dA - dAᴴ U."""
    (a,), (da,) = primals, tangents
    u = _columns(a)
    inside = matmul(adjoint(u), da)
    p = symmetrized(matmul(adjoint(u), a))
    turn = _lyapunov(p, inside - adjoint(inside))
    rest = da - matmul(u, inside)
    beside = matrix_transpose(solve(matrix_transpose(p), matrix_transpose(rest)))
    return u, matmul(u, turn) + beside


def _lyapunov(p: Any, q: Any) -> Any:
    """The X of ``P X + X P = Q`` for Hermitian P."""
    w, v = eigh(stop_gradient(p))
    sums = cast(expand_dims(w, -1) + expand_dims(w, -2), typeof(q).dtype)

    def by_vectors(v: Any, q: Any) -> Any:
        inside = matmul(matmul(adjoint(v), q), v)
        return matmul(matmul(v, inside / sums), adjoint(v))

    return custom_linear_solve(
        lambda x: matmul(p, x) + matmul(x, p),
        q,
        lambda _, right: by_vectors(v, right),
        lambda _, right: by_vectors(conj(v), right),
    )


def qr_multiply(
    a: ArrayLike, c: ArrayLike, mode: str = "right", *, conjugate: bool = False
) -> tuple[Array, Array]:
    """A product with the Q of ``A = Q R``, and R: ``C Q`` ("right") or ``Q C``
    ("left").

    Args:
      c: matrices, or one vector.
      conjugate: conjugates Q.

    Raises:
      ValueError: for another mode, or shapes that don't fit.

    >>> import treadle.numpy as tnp
    >>> product, r = tnp.linalg.qr_multiply(2 * tnp.eye(2), tnp.ones(2))
    >>> product.shape
    (2,)
    """
    (a, c), dtype = floats("qr_multiply", a, c)
    if mode not in ("right", "left"):
        raise ValueError(
            f"qr_multiply: mode is 'right' or 'left', got {mode!r}{at(user_source())}"
        )
    q, r = qr(a)
    q = matrix_transpose(adjoint(q)) if conjugate else q
    product = matmul(c, q) if mode == "right" else matmul(q, c)
    return narrowed(product, dtype), narrowed(r, dtype)


def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: Sequence[int] | None = None,
) -> Array | EighResult:
    """Eigenvalues, in ascending order, and eigenvectors (columns) of a Hermitian
    tridiagonal matrix.

    Args:
      d: its diagonal, of n numbers.
      e: the n - 1 numbers above it; below are their conjugates.
      eigvals_only: gives the eigenvalues alone.
      select: "a" for all; "i" for those with numbers from the first to the last of
        `select_range`, the last included.

    Raises:
      ValueError: for shapes that don't fit, or another selection.

    >>> import treadle.numpy as tnp
    >>> d, e = tnp.array([2.0, 2.0]), tnp.array([1.0])
    >>> tnp.linalg.eigh_tridiagonal(d, e, eigvals_only=True)
    Array([1., 3.], dtype=float32)
    """
    (d, e), dtype = floats("eigh_tridiagonal", d, e)
    shapes = typeof(d).shape, typeof(e).shape
    if [len(s) for s in shapes] != [1, 1] or shapes[0][0] != shapes[1][0] + 1:
        raise ValueError(
            "eigh_tridiagonal takes the n numbers of a diagonal and the n - 1 beside "
            f"it, got shapes {shapes[0]} and {shapes[1]}{at(user_source())}"
        )
    chosen = _chosen(select, select_range, shapes[0][0])
    upper = diag(e, 1)
    matrix = diag(d) + upper + adjoint(upper)
    if eigvals_only:
        return narrowed(eigvalsh(matrix)[chosen], dtype)
    w, v = eigh(matrix)
    return EighResult(narrowed(w[chosen], dtype), narrowed(v[:, chosen], dtype))


def _chosen(select: str, bounds: Sequence[int] | None, n: int) -> slice:
    if select in ("a", "all") and bounds is None:
        return slice(None)
    if select in ("i", "index") and bounds is not None:
        first, last = bounds
        if 0 <= first <= last < n:
            return slice(first, last + 1)
    raise ValueError(
        f"eigh_tridiagonal: select={select!r} with select_range={bounds!r} for {n} "
        f"eigenvalues{at(user_source())}\nIt is 'a', or 'i' with the numbers of the "
        "first and the last one. Choose by value from all eigenvalues."
    )


def expm_frechet(
    a: ArrayLike, e: ArrayLike, *, compute_expm: bool = True
) -> Array | tuple[Array, Array]:
    """``expm(A)`` and its derivative at A in the direction E; without `compute_expm`
    the derivative alone.

    Raises:
      ValueError: if the matrices are not square, or of two shapes.

    >>> import treadle.numpy as tnp
    >>> zero = tnp.zeros((2, 2))
    >>> tnp.linalg.expm_frechet(zero, tnp.eye(2), compute_expm=False)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    (a, e), dtype = floats("expm_frechet", a, e)
    matrices("expm_frechet", a, square=True)
    if typeof(a).shape != typeof(e).shape:
        raise ValueError(
            f"expm_frechet: shapes {typeof(a).shape} and {typeof(e).shape} differ"
            f"{at(user_source())}"
        )
    value, change = jvp(expm, (a,), (e,))
    found = narrowed(value, dtype), narrowed(change, dtype)
    return found if compute_expm else found[1]
