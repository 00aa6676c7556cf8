"""Products of Householder's reflections: what factorizations leave of their unitary
factors.

Those of k vectors are ``I - V T Vᴴ`` with a triangular T [1], so that products of
matrices are all that they take, and their derivatives.

[1] R. Schreiber, C. Van Loan, A storage-efficient WY representation for products of
Householder transformations (1989).
"""

from __future__ import annotations

from typing import Any

from treadle.errors import at, user_source
from treadle.np.complex_parts import conj
from treadle.np.contract import matmul
from treadle.np.linalg.operands import (
    adjoint,
    check_matrices,
    empty,
    floats,
    identity_of,
    narrowed,
)
from treadle.np.linalg.solving import solve_triangular
from treadle.np.matrices import tril, triu
from treadle.np.operands import ArrayLike, broadcast_to_shape
from treadle.np.shapes import broadcast_shapes, expand_dims
from treadle.run.array import Array
from treadle.trace.value import typeof


def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """The first columns of the product of reflections ``I - tau v vᴴ``, as many as a
    has: of Q, if a and taus are what a factorization ``A = Q R`` leaves.

    Shapes: ``(..., m, n), (..., k) -> (..., m, n)``, with k up to n, and n up to m.

    Args:
      a: below its diagonal stand the vectors v, column by column; each has a one on the
        diagonal, and zeros above it.
      taus: the factors, of which there may be fewer than columns.

    Raises:
      ValueError: for shapes that don't fit.

    >>> import treadle as td, treadle.numpy as tnp
    >>> a = tnp.array([[3.0, 1.0], [4.0, 2.0]])
    >>> h, taus = tnp.linalg.qr(a, mode="raw")
    >>> q = td.lax.linalg.householder_product(h.mT, taus)
    >>> bool(tnp.allclose(q, tnp.linalg.qr(a).Q, atol=1e-6))
    True
    """
    (a, taus), dtype = floats("householder_product", a, taus)
    vectors, taus = _vectors("householder_product", a, taus)
    m, n = typeof(a).shape[-2:]
    if n > m:
        raise ValueError(
            f"householder_product: shape {typeof(a).shape} has {n} columns and {m} "
            f"rows{at(user_source())}\nIt needs at least as many rows as columns."
        )
    start = identity_of((*typeof(vectors).shape[:-2], m, n), typeof(a).dtype)
    if empty(typeof(vectors).shape):
        return narrowed(start, dtype)
    # The product of the vectors and these columns is the vectors' first rows.
    inside = adjoint(vectors[..., :n, :])
    return narrowed(_applied(vectors, taus, start, inside, False), dtype)


def ormqr(
    a: ArrayLike,
    taus: ArrayLike,
    c: ArrayLike,
    *,
    left: bool = True,
    transpose: bool = False,
) -> Array:
    """The product of a matrix and the whole product Q of reflections, which itself is
    not made: ``Q C``, or ``C Q`` if not `left`.

    Shapes: ``(..., m, n), (..., k), (..., m, p) -> (..., m, p)``, or
    ``(..., p, m) -> (..., p, m)`` from the right.

    Args:
      a, taus: as `householder_product` takes them.
      transpose: multiplies with ``Qᴴ`` instead.

    Raises:
      ValueError: for shapes that don't fit.

    >>> import treadle as td, treadle.numpy as tnp
    >>> h, taus = tnp.linalg.qr(tnp.array([[3.0], [4.0]]), mode="raw")
    >>> c = tnp.array([[3.0], [4.0]])
    >>> td.lax.linalg.ormqr(h.mT, taus, c, transpose=True).round(4) + 0
    Array([[-5.],
           [ 0.]], dtype=float32)
    """
    (a, taus, c), dtype = floats("ormqr", a, taus, c)
    vectors, taus = _vectors("ormqr", a, taus)
    check_matrices("ormqr", typeof(c).shape)
    m, shape = typeof(vectors).shape[-2], typeof(c).shape
    if shape[-2 if left else -1] != m:
        raise ValueError(
            f"ormqr: shapes {typeof(a).shape} and {shape}: the second needs {m} "
            f"{'rows' if left else 'columns'}{at(user_source())}"
        )
    if empty(typeof(vectors).shape) or empty(shape):
        return narrowed(c, dtype)
    # C Q is the adjoint of Qᴴ Cᴴ.
    c = c if left else adjoint(c)
    inside = matmul(adjoint(vectors), c)
    found = _applied(vectors, taus, c, inside, transpose == left)
    return narrowed(found if left else adjoint(found), dtype)


def _vectors(name: str, a: Any, taus: Any) -> tuple[Any, Any]:
    """The vectors of the reflections as columns, and their factors."""
    check_matrices(name, typeof(a).shape)
    shape, factors = typeof(a).shape, typeof(taus).shape
    if not factors or factors[-1] > min(shape[-2:]):
        raise ValueError(
            f"{name}: shapes {shape} and {factors}: the second has a factor for each "
            f"reflection, at most {min(shape[-2:])}{at(user_source())}"
        )
    k = factors[-1]
    below = tril(a[..., :k], -1)
    lead = broadcast_shapes(shape[:-2], factors[:-1])
    vectors = below + identity_of(typeof(below).shape, typeof(a).dtype)
    return (
        broadcast_to_shape(vectors, (*lead, shape[-2], k)),
        broadcast_to_shape(taus, (*lead, k)),
    )


def _applied(v: Any, taus: Any, c: Any, inside: Any, adjoint_of_it: bool) -> Any:
    """``C - V T Vᴴ C``, or with the adjoint of T, which is ``(I + D S)⁻¹ D``: D are the
    factors, and S what is above the diagonal of ``Vᴴ V``. `inside` is ``Vᴴ C``."""
    factors = expand_dims(taus, -1)
    overlaps = factors * triu(matmul(adjoint(v), v), 1)
    options = {"unit_diagonal": True}
    if adjoint_of_it:
        inside = conj(factors) * solve_triangular(overlaps, inside, 2, **options)
    else:
        inside = solve_triangular(overlaps, factors * inside, **options)
    return c - matmul(v, inside)
