"""Tridiagonal equations, and updates of Cholesky's factors: one row after another, for
all matrices of a batch at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.api.implicit import custom_linear_solve
from treadle.api.jacobian import stop_gradient
from treadle.api.loops import scan
from treadle.dims import same_shape
from treadle.errors import at, user_source
from treadle.np.binary import maximum
from treadle.np.complex_parts import conj, imag, real
from treadle.np.elementwise import abs, sqrt, square
from treadle.np.index import counted
from treadle.np.join import concatenate
from treadle.np.linalg.operands import (
    check_matrices,
    empty,
    floats,
    matrices,
    narrowed,
    zeros,
)
from treadle.np.matrices import triu
from treadle.np.operands import ArrayLike, broadcast_to_shape, cast
from treadle.np.places import where
from treadle.np.reductions import max as max_of
from treadle.np.shapes import broadcast_shapes, expand_dims, moveaxis
from treadle.run.array import Array
from treadle.trace.value import typeof


def tridiagonal_solve(
    dl: ArrayLike,
    d: ArrayLike,
    du: ArrayLike,
    b: ArrayLike,
    *,
    perturb_singular: bool = False,
) -> Array:
    """The X of ``A X = B`` for tridiagonal A, by elimination with exchanges of rows.

    Shapes: ``(..., m), (..., m), (..., m), (..., m, k) -> (..., m, k)``; leading axes
    are broadcast. It is differentiable by all four.

    Args:
      dl: what is left of the diagonal: ``dl[i]`` is ``A[i, i - 1]``; ``dl[0]`` is not
        read.
      d: the diagonal.
      du: what is right of it: ``du[i]`` is ``A[i, i + 1]``; ``du[m - 1]`` is not read.
      perturb_singular: pivots that are small beside the largest are moved away from
        zero, so that singular matrices give finite results, too.

    Raises:
      ValueError: for shapes that don't fit.

    >>> import treadle as td, treadle.numpy as tnp
    >>> dl, d, du = tnp.array([[0.0, 1.0], [2.0, 3.0], [1.0, 0.0]])
    >>> td.lax.linalg.tridiagonal_solve(dl, d, du, tnp.array([[5.0], [10.0]])).ravel()
    Array([1., 3.], dtype=float32)
    """
    name = "tridiagonal_solve"
    (dl, d, du, b), dtype = floats(name, dl, d, du, b)
    check_matrices(name, typeof(b).shape)
    shapes = [typeof(x).shape for x in (dl, d, du)]
    m = typeof(b).shape[-2]
    if not all([len(s) > 0 and same_shape(s[-1:], (m,)) for s in shapes]):
        raise ValueError(
            f"{name}: diagonals of shapes {', '.join(map(str, shapes))} for b of shape "
            f"{typeof(b).shape}: each has {m} numbers, as b has rows"
            f"{at(user_source())}"
        )
    lead = broadcast_shapes(*[s[:-1] for s in shapes], typeof(b).shape[:-2])
    b = broadcast_to_shape(b, (*lead, *typeof(b).shape[-2:]))
    if empty(typeof(b).shape):
        return narrowed(b, dtype)
    # Nothing is outside of the matrix.
    places = counted(m)
    none = typeof(d).dtype.type(0)
    dl, du = where(places == 0, none, dl), where(places == m - 1, none, du)
    fixed = [stop_gradient(broadcast_to_shape(x, (*lead, m))) for x in (dl, d, du)]
    turned = [_shifted(fixed[2], 1), fixed[1], _shifted(fixed[0], -1)]
    x = custom_linear_solve(
        lambda x: _product(dl, d, du, x),
        b,
        lambda _, right: _eliminated(fixed, right, perturb_singular),
        lambda _, right: _eliminated(turned, right, perturb_singular),
    )
    return narrowed(x, dtype)


def _shifted(x: Any, by: int, axis: int = -1) -> Any:
    """Moved by one place, with a zero behind it."""
    x = moveaxis(x, axis, -1)
    none = zeros((*typeof(x).shape[:-1], 1), typeof(x).dtype)
    parts = (none, x[..., :-1]) if by == 1 else (x[..., 1:], none)
    return moveaxis(concatenate(parts, -1), -1, axis)


def _product(dl: Any, d: Any, du: Any, x: Any) -> Any:
    before, behind = _shifted(x, 1, -2), _shifted(x, -1, -2)
    left, middle, right = (expand_dims(v, -1) for v in (dl, d, du))
    return left * before + middle * x + right * behind


def _eliminated(diagonals: Any, b: Any, perturb: bool) -> Any:
    """Of each row and the next one, that with the larger element is the pivot's, as
    LAPACK's ?GTSV has it."""
    rows = moveaxis(b, -2, 0)
    none = zeros(typeof(rows).shape[1:], typeof(b).dtype)
    dl, d, du = (expand_dims(moveaxis(x, -1, 0), -1) for x in diagonals)
    no = zeros(typeof(d).shape[1:], typeof(b).dtype)

    def down(above: Any, row: Any) -> Any:
        (pivot, beside, right), (left, middle, next_right, rest) = above, row
        keep = _size(pivot) >= _size(left)
        divisor, other = where(keep, pivot, left), where(keep, left, pivot)
        factor = other / where(divisor == 0, none.dtype.type(1), divisor)
        first = where(keep, beside, middle)
        second = where(keep, no, next_right)
        chosen = where(keep, right, rest)
        new = (
            where(keep, middle, beside) - factor * first,
            where(keep, next_right, no) - factor * second,
            where(keep, rest, right) - factor * chosen,
        )
        return new, (divisor, first, second, chosen)

    start = d[0], du[0], rows[0]
    last, found = scan(down, start, (dl[1:], d[1:], du[1:], rows[1:]))
    ends = last[0], no, no, last[2]
    pivots, first, second, right = (
        concatenate((x, expand_dims(end, 0)), 0)
        for x, end in zip(found, ends, strict=True)
    )
    moved = _moved(pivots, first, second) if perturb else None

    def up(known: Any, row: Any) -> Any:
        one, two = known
        pivot, first, second, right = row
        rest = right - first * one - second * two
        if moved is not None:
            pivot = where(_overflows(rest, pivot), pivot + moved(pivot), pivot)
        x = rest / pivot
        return (x, one), x

    _, x = scan(up, (none, none), (pivots, first, second, right), reverse=True)
    return moveaxis(x, 0, -2)


def _size(x: Any) -> Any:
    """LAPACK's size of a number."""
    return abs(real(x)) + abs(imag(x)) if dtypes.is_complex(typeof(x).dtype) else abs(x)


def _moved(*parts: Any) -> Callable[[Any], Any]:
    """What is added to pivots of zero: a rounding error of the largest element."""
    largest = max_of(abs(parts[0]), 0)
    for x in parts[1:]:
        largest = maximum(largest, max_of(abs(x), 0))
    dtype = typeof(largest).dtype
    by = where(largest > 0, largest, 1) * dtype.type(np.finfo(dtype).eps)
    return lambda pivot: cast(where(real(pivot) < 0, -by, by), typeof(pivot).dtype)


def _overflows(x: Any, pivot: Any) -> Any:
    """Whether a quotient is too large, as LAPACK's ?LAGTS asks."""
    size = abs(pivot)
    most = typeof(size).dtype.type(1 / np.finfo(typeof(size).dtype).tiny)
    return (size == 0) | ((size < 1) & (abs(x) > size * most))


def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """The upper triangular S with ``Sᴴ S = Rᴴ R + w wᴴ``: Cholesky's factor of a matrix
    to which a product of two vectors is added, in n² steps, by rotations of rows.

    Shapes: ``(..., n, n), (..., n) -> (..., n, n)``; leading axes are broadcast.

    Raises:
      ValueError: for shapes that don't fit.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.lax.linalg.cholesky_update(tnp.eye(2) * 3, tnp.array([4.0, 0.0]))
    Array([[5., 0.],
           [0., 3.]], dtype=float32)
    """
    (r, w), dtype = floats("cholesky_update", r_matrix, w_vector)
    matrices("cholesky_update", r, square=True)
    shape, n = typeof(r).shape, typeof(r).shape[-1]
    if not same_shape(typeof(w).shape[-1:], (n,)):
        raise ValueError(
            f"cholesky_update: shapes {shape} and {typeof(w).shape}: the vector has "
            f"{n} numbers, as the matrix has rows{at(user_source())}"
        )
    lead = broadcast_shapes(shape[:-2], typeof(w).shape[:-1])
    r = triu(broadcast_to_shape(r, (*lead, n, n)))
    if empty(typeof(r).shape):
        return narrowed(r, dtype)
    places = counted(n)
    one = typeof(r).dtype.type(1)

    def rotated(w: Any, x: Any) -> Any:
        i, row = x
        mine, its = row[..., i][..., None], w[..., i][..., None]
        turns = its != 0
        length = cast(_length(mine, where(turns, its, one)), typeof(r).dtype)
        cos, sin = where(turns, mine / length, one), its / length
        new = conj(cos) * row + conj(sin) * w
        rest = cos * w - sin * row
        return where(places > i, rest, typeof(r).dtype.type(0)), new

    start = conj(broadcast_to_shape(w, (*lead, n)))
    _, rows = scan(rotated, start, (places, moveaxis(r, -2, 0)))
    return narrowed(triu(moveaxis(rows, 0, -2)), dtype)


def _length(x: Any, y: Any) -> Any:
    """``sqrt(|x|² + |y|²)``, of numbers whose squares are none, too; y is not 0."""
    largest = stop_gradient(maximum(abs(x), abs(y)))
    return largest * sqrt(square(abs(x) / largest) + square(abs(y) / largest))
