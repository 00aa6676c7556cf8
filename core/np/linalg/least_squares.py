"""Equations that have no solution or many: least squares, pseudoinverses, ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.api.custom import custom_jvp
from treadle.api.jacobian import stop_gradient
from treadle.errors import at, user_source
from treadle.np import reductions
from treadle.np.contract import matmul
from treadle.np.elementwise import square
from treadle.np.linalg.factors import svd, symmetrized
from treadle.np.linalg.operands import adjoint, empty, floats, matrices, narrowed, zeros
from treadle.np.linalg.solving import check_rows
from treadle.np.operands import ArrayLike, as_inexact, cast
from treadle.np.places import where
from treadle.np.shapes import expand_dims
from treadle.ops.matrix import real as real_of
from treadle.run.array import Array
from treadle.trace.routine import most
from treadle.trace.value import typeof

Tolerance = float | Array | np.ndarray | None


def _tolerance(a: Any, factor: float = 1.0) -> Any:
    """What is small beside the largest singular value: rounding errors."""
    t = typeof(a)
    real = dtypes.to_real(t.dtype)
    return most(*t.shape[-2:]) * (factor * float(np.finfo(real).eps))


def _inverses(s: Any, relative: Any, dtype: np.dtype) -> Any:
    """``1 / s``, or 0 where s is small beside the largest, which comes first."""
    bound = s[..., :1] * cast_like(relative, s)
    kept = (s > bound) & (s > 0)
    return cast(where(kept, 1 / where(kept, s, 1), 0), dtype)


def cast_like(relative: Any, s: Any) -> Any:
    """A tolerance, for each matrix if there is one for each."""
    found = cast(as_inexact("a tolerance", relative), typeof(s).dtype)
    return expand_dims(found, -1) if typeof(found).ndim else found


def pinv(a: ArrayLike, rtol: Tolerance = None, hermitian: bool = False) -> Array:
    """The Moore-Penrose pseudoinverses: ``(..., m, n) -> (..., n, m)``.

    Args:
      rtol: singular values up to this fraction of the largest count as zero; by default
        ``10 * max(m, n)`` roundings.
      hermitian: the matrices are Hermitian: see `svd`.

    The derivative is that of Golub & Pereyra 1973, and of what `rtol` leaves. (Second
    ones take it that what counts as zero is.)

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.pinv(tnp.array([[2.0, 0.0], [0.0, 0.0]]))
    Array([[0.5, 0. ],
           [0. , 0. ]], dtype=float32)
    """
    a, dtype = matrices("pinv", a, square=hermitian)
    *lead, m, n = typeof(a).shape
    if empty(typeof(a).shape):
        return zeros((*lead, n, m), dtype)
    rtol = _tolerance(a, 10.0) if rtol is None else rtol
    a = symmetrized(a) if hermitian else a
    factors = svd(stop_gradient(a), full_matrices=False, hermitian=hermitian)
    return narrowed(_inverse(rtol, *factors, a), dtype)


def _inverse_of(rtol: Any, u: Any, s: Any, vh: Any, a: Any) -> Any:
    """The pseudoinverse of a, of which the others are the factors."""
    inverses = _inverses(s, rtol, typeof(a).dtype)
    return matmul(adjoint(vh) * expand_dims(inverses, -2), adjoint(u))


_inverse = custom_jvp(_inverse_of, nondiff_argnums=(0,))


def _turned(factors: Any, rtol: Any, da: Any) -> Any:
    """What a pseudoinverse gains besides, in terms of its singular vectors, where
    singular values count as zero that aren't: vectors that are left out turn into
    those that are not [1].

    [1] V. Noferini, A formula for the Fréchet derivative of a generalized matrix
    function (2017).
    """
    u, s, vh = factors
    inverses = _inverses(s, rtol, typeof(s).dtype)
    left_out = where(inverses == 0, s, 0)
    pairs = expand_dims(inverses * inverses, -1) * expand_dims(left_out, -2)
    pairs = pairs + adjoint(pairs)
    rows, columns = expand_dims(s, -1), expand_dims(s, -2)
    apart = where(pairs == 0, 1, abs(rows - columns))
    together = where(pairs == 0, 1, rows + columns)
    change = matmul(matmul(adjoint(u), da), adjoint(vh))
    flipped = adjoint(change)
    dtype = typeof(change).dtype
    even = cast(0.5 * pairs / apart, dtype) * (change + flipped)
    odd = cast(0.5 * pairs / together, dtype) * (change - flipped)
    return adjoint(even - odd)


def _inverse_jvp(rtol: Any, primals: Any, tangents: Any) -> Any:
    """By the matrix alone: derivatives of the factors are infinite where singular
    values are equal, and wrong where they are nearly so."""
    (u, s, vh, a), da = primals, tangents[3]
    p = _inverse(rtol, u, s, vh, a)
    dah, ph = adjoint(da), adjoint(p)
    left = matmul(matmul(p, ph), dah)
    right = matmul(dah, matmul(ph, p))
    dp = left - matmul(matmul(left, a), p)
    dp = dp + right - matmul(p, matmul(a, right))
    dp = dp - matmul(matmul(p, da), p)
    turned = _turned((u, s, vh), rtol, da)
    return p, dp + matmul(matmul(adjoint(vh), turned), adjoint(u))


_inverse.defjvp(_inverse_jvp)


def matrix_rank(
    a: ArrayLike,
    tol: Tolerance = None,
    hermitian: bool = False,
    *,
    rtol: Tolerance = None,
) -> Array:
    """The number of singular values that are not small, as int32.

    Args:
      tol: what is small.
      rtol: the same, as a fraction of the largest singular value; by default ``max(m,
        n)`` roundings.
      hermitian: the matrices are Hermitian: see `svd`.

    Raises:
      ValueError: if both tolerances are given.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.matrix_rank(tnp.ones((3, 3)))
    Array(1, dtype=int32)
    """
    if tol is not None and rtol is not None:
        raise ValueError(f"matrix_rank: give tol or rtol, not both{at(user_source())}")
    x = as_inexact("matrix_rank", a)
    if typeof(x).ndim < 2:
        return cast(reductions.any(x != 0), dtypes.int32)
    x, _ = matrices("matrix_rank", x, square=hermitian)
    if empty(typeof(x).shape):
        return zeros(typeof(x).shape[:-2], dtypes.int32)
    s = svd(x, compute_uv=False, hermitian=hermitian)
    assert not isinstance(s, tuple)
    if tol is None:
        relative = _tolerance(x) if rtol is None else rtol
        bound = s[..., :1] * cast_like(relative, s)
    else:
        bound = cast_like(tol, s)
    return reductions.sum(cast(s > bound, dtypes.int32), -1)


class LstsqResult(NamedTuple):
    """x with the least ``norm(a @ x - b)``, its square for each column of b, the rank
    of a, and its singular values."""

    x: Array
    residuals: Array
    rank: Array
    s: Array


def lstsq(a: ArrayLike, b: ArrayLike, rcond: float | None = None) -> LstsqResult:
    """The x with the least ``norm(a @ x - b)``, and of those the shortest.

    Shapes: ``(..., m, n), (..., m, k) -> (..., n, k)``, or ``(m, n), (m,) -> (n,)``.
    The residuals are always there: NumPy leaves them out where a's columns depend on
    each other, or there are not more rows than columns.

    Args:
      rcond: singular values up to this fraction of the largest count as zero; by
        default ``max(m, n)`` roundings.

    The derivative is that of Golub & Pereyra 1973, and of what `rcond` leaves. (Second
    ones take it that what counts as zero is.)

    Raises:
      ValueError: if b has another number of rows.

    >>> import treadle.numpy as tnp
    >>> a = tnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> tnp.linalg.lstsq(a, tnp.array([1.0, 3.0, 5.0])).x.round(3)
    Array([1., 2.], dtype=float32)
    """
    (a, b), dtype = floats("lstsq", a, b)
    vector = typeof(b).ndim == 1
    b = expand_dims(b, -1) if vector else b
    check_rows("lstsq", *[matrices("lstsq", a)[0], b])
    shape, columns = typeof(a).shape, typeof(b).shape[-1]
    if empty(shape):
        x = zeros((*shape[:-2], shape[-1], columns), typeof(a).dtype)
        s = zeros((*shape[:-2], min(shape[-2:])), dtypes.to_real(typeof(a).dtype))
        rank = zeros(shape[:-2], dtypes.int32)
    else:
        rcond = _tolerance(a) if rcond is None else rcond
        factors = svd(a, full_matrices=False)
        u, s, vh = map(stop_gradient, factors)
        x = _apply(rcond, u, s, vh, a, b)
        s = factors.S
        kept = (s > s[..., :1] * rcond) & (s > 0)
        rank = reductions.sum(cast(kept, dtypes.int32), -1)
    rest = b - matmul(a, x)
    parts = square(real_of(rest))
    if dtypes.is_complex(typeof(rest).dtype):
        parts = parts + square(rest.imag)
    residuals = reductions.sum(parts, -2)
    found = x[..., 0] if vector else x
    return LstsqResult(
        narrowed(found, dtype), narrowed(residuals, dtype), rank, narrowed(s, dtype)
    )


def _applied(rcond: Any, u: Any, s: Any, vh: Any, a: Any, b: Any) -> Any:
    """The same times b."""
    inverses = expand_dims(_inverses(s, rcond, typeof(b).dtype), -1)
    return matmul(adjoint(vh), inverses * matmul(adjoint(u), b))


_apply = custom_jvp(_applied, nondiff_argnums=(0,))


def _apply_jvp(rcond: Any, primals: Any, tangents: Any) -> Any:
    u, s, vh, a, b = primals
    da, db = tangents[3:]
    x, p = _apply(rcond, u, s, vh, a, b), _inverse(rcond, u, s, vh, a)
    # dx = P (db - dA x) + P Pᴴ dAᴴ (b - A x) + (1 - P A) dAᴴ Pᴴ x.
    dah, ph = adjoint(da), adjoint(p)
    outside = matmul(ph, matmul(dah, b - matmul(a, x)))
    inside = matmul(dah, matmul(ph, x))
    known = db - matmul(da, x) + outside - matmul(a, inside)
    across = matmul(_turned((u, s, vh), rcond, da), matmul(adjoint(u), b))
    return x, inside + matmul(p, known) + matmul(adjoint(vh), across)


_apply.defjvp(_apply_jvp)
