"""Matrices that follow a pattern, by their names in `scipy.linalg`.

Those that are made of vectors take batches of these: the last axis is a vector's.
"""

from __future__ import annotations

from typing import Any

from treadle.dtypes import float32
from treadle.errors import at, user_source
from treadle.np.binary import maximum
from treadle.np.complex_parts import conj
from treadle.np.elementwise import abs
from treadle.np.index import counted
from treadle.np.join import concatenate
from treadle.np.matrices import eye
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_inexact,
    broadcast_to_shape,
    cast,
    operand,
    promoted,
)
from treadle.np.places import where
from treadle.np.shapes import (
    atleast_1d,
    atleast_2d,
    broadcast_shapes,
    expand_dims,
    flip,
)
from treadle.ops.movement import full
from treadle.ops.shape import pad
from treadle.run.array import Array
from treadle.trace.value import typeof


def _vector(name: str, x: Any, least: int = 1) -> Any:
    """Vectors along the last axis; a number is a vector of one."""
    x = atleast_1d(as_array(operand(name, x)))
    if x.shape[-1] < least:
        raise ValueError(
            f"{name} takes vectors of at least {least} numbers, got shape "
            f"{typeof(x).shape}{at(user_source())}"
        )
    return x


def _vectors(name: str, *xs: Any, least: int = 1) -> list[Any]:
    """Vectors of one dtype, with the same leading axes."""
    found = [_vector(name, x, least) for x in promoted(name, *xs)]
    lead = broadcast_shapes(*[x.shape[:-1] for x in found])
    return [broadcast_to_shape(x, (*lead, x.shape[-1])) for x in found]


def _zeros(x: Any, n: int) -> Any:
    """Vectors of n zeros, as many as there are in x."""
    return full((*x.shape[:-1], n), 0, x.dtype)


def block_diag(*arrays: ArrayLike) -> Array:
    """Matrices along the diagonal of one that is zero elsewhere.

    A vector is a matrix of one row, and a number one of one element.

    Raises:
      ValueError: for arrays of more than two axes.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.block_diag(1.0, tnp.ones((1, 2)))
    Array([[1., 0., 0.],
           [0., 1., 1.]], dtype=float32)
    """
    blocks = promoted("block_diag", *arrays) if arrays else [full((1, 0), 0, float32)]
    blocks = [atleast_2d(as_array(x)) for x in blocks]
    for x in blocks:
        if x.ndim != 2:
            raise ValueError(
                f"block_diag takes matrices, got shape {x.shape}{at(user_source())}"
            )
    width = sum([x.shape[1] for x in blocks])
    rows, left = [], 0
    for x in blocks:
        right = width - left - x.shape[1]
        zero = x.dtype.type(0)
        rows.append(pad(x, zero, padding=((0, 0, 0), (left, right, 0))))
        left = left + x.shape[1]
    return concatenate(rows)


def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Matrices with the same number all along each diagonal: ``(..., m), (..., n) ->
    (..., m, n)``.

    Args:
      c: the first column.
      r: the first row, of which the first element is not read; conj(c) by default.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.toeplitz(tnp.array([1, 2, 3]), tnp.array([1, 5, 6]))
    Array([[1, 5, 6],
           [2, 1, 5],
           [3, 2, 1]], dtype=int32)
    """
    first = conj(_vector("toeplitz", c)) if r is None else r
    column, row = _vectors("toeplitz", c, first)
    m, n = column.shape[-1], row.shape[-1]
    along = concatenate([flip(column, -1), row[..., 1:]], axis=-1)
    return along[..., counted(n) - counted(m)[:, None] + (m - 1)]


def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Matrices with the same number all along each antidiagonal: ``(..., m), (..., n)
    -> (..., m, n)``.

    Args:
      c: the first column.
      r: the last row, of which the first element is not read; zeros by default.
    """
    given = _vector("hankel", c)
    last = full(given.shape, 0, given.dtype) if r is None else r
    column, row = _vectors("hankel", given, last)
    along = concatenate([column, row[..., 1:]], axis=-1)
    return along[..., counted(column.shape[-1])[:, None] + counted(row.shape[-1])]


def circulant(c: ArrayLike) -> Array:
    """Square matrices of which each column is the one before, moved down by one:
    ``(..., n) -> (..., n, n)``."""
    column = _vector("circulant", c)
    n = column.shape[-1]
    return column[..., (counted(n)[:, None] - counted(n)) % n]


def companion(a: ArrayLike) -> Array:
    """The companion matrices of polynomials, whose eigenvalues are the roots:
    ``(..., n) -> (..., n - 1, n - 1)``, coefficients of high powers first."""
    v = _vector("companion", as_inexact("companion", a), 2)
    n = v.shape[-1] - 1
    first = -v[..., 1:] / v[..., :1]
    return _first_row(first, eye(n, k=-1, dtype=v.dtype))


def _first_row(row: Any, below: Any) -> Any:
    """Matrices with this first row, and these other ones."""
    n = row.shape[-1]
    return where(counted(n)[:, None] == 0, expand_dims(row, -2), below)


def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """Leslie's matrices: ``(..., n), (..., n - 1) -> (..., n, n)``.

    Args:
      f: the first row.
      s: what is below the diagonal.

    Raises:
      ValueError: unless f has one number more than s.
    """
    first, below = _vectors("leslie", f, s)
    n = first.shape[-1]
    if n != below.shape[-1] + 1:
        raise ValueError(
            f"leslie: f has one number more than s, got {n} and {below.shape[-1]}"
            f"{at(user_source())}"
        )
    padded = concatenate([below, _zeros(below, 1)], axis=-1)
    lower = eye(n, k=-1, dtype=below.dtype) * expand_dims(padded, -2)
    return _first_row(first, lower)


def fiedler(a: ArrayLike) -> Array:
    """The distances of numbers: ``|a[i] - a[j]|``, ``(..., n) -> (..., n, n)``."""
    v = _vector("fiedler", a)
    return abs(expand_dims(v, -1) - expand_dims(v, -2))


def fiedler_companion(a: ArrayLike) -> Array:
    """Fiedler's companion matrix of a polynomial, which has five diagonals, and the
    roots as its eigenvalues: ``(..., n) -> (..., n - 1, n - 1)``, coefficients of high
    powers first.

    By M. Fiedler, A note on companion matrices (2003).
    """
    v = _vector("fiedler_companion", as_inexact("fiedler_companion", a), 2)
    v = v[..., 1:] / v[..., :1]
    n = v.shape[-1]
    i, j = counted(n)[:, None], counted(n)
    even, zero = i % 2 == 0, v.dtype.type(0)
    own = where(even & (j == maximum(i - 1, 0)), -v[..., :, None], zero)
    following = where(even & (j == i + 1), -v[..., (i + 1) % n], zero)
    beside = where(even, i + 2, maximum(i - 2, 0))
    return own + following + cast(j == beside, v.dtype)


def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """The matrix whose product with a vector of n numbers is the convolution of `a`
    with it: ``(..., m) -> (..., k, n)``.

    Args:
      mode: as that of `treadle.numpy.convolve`.

    Raises:
      ValueError: for another mode.
    """
    v = _vector("convolution_matrix", a)
    m = v.shape[-1]
    if mode not in ("full", "same", "valid"):
        raise ValueError(
            f"convolution_matrix: mode is 'full', 'same' or 'valid', got {mode!r}"
            f"{at(user_source())}"
        )
    i, j = counted(m + n - 1)[:, None], counted(n)
    there = (i >= j) & (i - j < m)
    matrix = where(there, v[..., where(there, i - j, 0)], v.dtype.type(0))
    if mode == "full":
        return matrix
    short, long = min(m, n), max(m, n)
    start = short - 1 if mode == "valid" else (short - 1) // 2
    length = long - short + 1 if mode == "valid" else long
    return matrix[..., start : start + length, :]
