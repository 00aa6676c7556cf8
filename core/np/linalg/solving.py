"""Systems of linear equations, inverses and determinants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.api.custom import custom_jvp
from treadle.api.jacobian import stop_gradient
from treadle.errors import at, user_source
from treadle.np.complex_parts import conj, imag, real
from treadle.np.elementwise import abs, log
from treadle.np.index import counted
from treadle.np.linalg.factors import lu_parts
from treadle.np.linalg.operands import (
    check_matrices,
    empty,
    floats,
    identity_of,
    matrices,
    narrowed,
    zeros,
)
from treadle.np.operands import (
    ArrayLike,
    broadcast_to_shape,
    cast,
    common_shape,
    one_axis,
)
from treadle.np.places import where
from treadle.np.reductions import any, prod
from treadle.np.reductions import sum as sum_of
from treadle.np.running import cumprod
from treadle.np.shapes import expand_dims, matrix_transpose, moveaxis, reshape
from treadle.ops import lu as lu_ops
from treadle.ops.complex import complex_
from treadle.ops.gather import take_along_axis
from treadle.ops.matrix import main_diagonal
from treadle.ops.movement import full
from treadle.ops.triangular import LOWER, triangular_solve
from treadle.run.array import Array
from treadle.trace.value import typeof

UPPER = LOWER | {"lower": False}
UNIT = LOWER | {"unit_diagonal": True}


def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """The x with ``a @ x = b``.

    Shapes: ``(..., n, n), (n,) -> (..., n)``, or ``(..., n, n), (..., n, k) ->
    (..., n, k)``; leading axes are broadcast. Singular matrices give infinities or
    not-a-number.

    Raises:
      ValueError: if a is not square, or b has another number of rows.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.solve(tnp.array([[2.0, 0.0], [0.0, 4.0]]), tnp.array([2.0, 8.0]))
    Array([1., 2.], dtype=float32)
    """
    (a, b), dtype = floats("solve", a, b)
    check_matrices("solve", typeof(a).shape, square=True)
    vector = typeof(b).ndim == 1
    b = expand_dims(b, -1) if vector else b
    check_rows("solve", a, b)
    a, b, restore = together(a, b)
    if empty(typeof(b).shape):
        x = b
    else:
        known = stop_gradient(a)
        factors, _, order = lu_ops.lu(matrix_transpose(known))
        x = lu_ops.lu_solve(a, factors, order, b, transposed=False)
    x = narrowed(restore(x), dtype)
    return x[..., 0] if vector else x


def check_rows(name: str, a: Any, b: Any) -> None:
    """Raises ValueError unless b has as many rows as a."""
    first, second = typeof(a).shape, typeof(b).shape
    if len(second) < 2 or second[-2] != first[-2]:
        raise ValueError(
            f"{name}: shapes {first} and {second}: the second needs {first[-2]} rows"
            f"{at(user_source())}\nOnly an array with one axis is a vector."
        )


def together(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Matrices and right sides with equal leading axes, and what gives results like b
    the shape that broadcasting would give them. One matrix for many right sides stays
    one: these are columns side by side."""
    first, second = typeof(a).shape, typeof(b).shape
    if len(first) == 2 and len(second) > 2:
        *others, rows, columns = second
        beside = reshape(moveaxis(b, -2, 0), (rows, math.prod(others) * columns))

        def restore(x: Any) -> Any:
            return moveaxis(reshape(x, (rows, *others, columns)), 0, -2)

        return a, beside, restore
    lead = common_shape("solve", (first[:-2], second[:-2]))
    a = broadcast_to_shape(a, (*lead, *first[-2:]))
    b = broadcast_to_shape(b, (*lead, *second[-2:]))
    return a, b, lambda x: x


def inv(a: ArrayLike) -> Array:
    """The inverses of square matrices. Singular ones give infinities or not-a-number.

    Raises:
      ValueError: if the matrices are not square.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.inv(tnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    a, dtype = matrices("inv", a, square=True)
    return narrowed(solve(a, identity_of(typeof(a).shape, typeof(a).dtype)), dtype)


# Determinants -------------------------------------------------------------------------


class SlogdetResult(NamedTuple):
    """A determinant as ``sign * exp(logabsdet)``."""

    sign: Array
    logabsdet: Array


def det(a: ArrayLike) -> Array:
    """The determinants of square matrices: ``(..., n, n) -> (...)``. The derivative is
    finite for singular matrices, too.

    Raises:
      ValueError: if the matrices are not square.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.det(tnp.array([[0.0, 2.0], [3.0, 4.0]]))
    Array(-6., dtype=float32)
    """
    a, dtype = matrices("det", a, square=True)
    t = typeof(a)
    if empty(t.shape[-1:]):
        return full(t.shape[:-2], 1, dtype)
    return narrowed(_by_columns(a) if t.shape[-1] in (2, 3) else _det(a), dtype)


def slogdet(a: ArrayLike) -> SlogdetResult:
    """The signs of determinants and the logarithms of their absolute values:
    ``(..., n, n) -> (...), (...)``. A singular matrix has 0 and -inf.

    Raises:
      ValueError: if the matrices are not square.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.slogdet(tnp.array([[0.0, 1.0], [1.0, 0.0]])).sign
    Array(-1., dtype=float32)
    """
    a, dtype = matrices("slogdet", a, square=True)
    t = typeof(a)
    if empty(t.shape[-1:]):
        real_dtype = dtypes.to_real(dtype)
        return SlogdetResult(
            full(t.shape[:-2], 1, dtype), zeros(t.shape[:-2], real_dtype)
        )
    sign, size = _slogdet(a)
    return SlogdetResult(narrowed(sign, dtype), narrowed(size, dtype))


def _by_columns(a: Any) -> Any:
    """The determinants of matrices of order 2 or 3, by the elements of the last column
    and what is in the other rows and columns."""
    n = typeof(a).shape[-1]
    x = [[a[..., i, j] for j in range(n)] for i in range(n)]
    if n == 2:
        return x[0][0] * x[1][1] - x[0][1] * x[1][0]
    minors = [
        x[i][0] * x[j][1] - x[i][1] * x[j][0] for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return minors[0] * x[0][2] + minors[1] * x[1][2] + minors[2] * x[2][2]


def _signs(pivots: Any, dtype: np.dtype) -> Any:
    """-1 for each exchange of rows, and 1 for the others."""
    moved = pivots != counted(typeof(pivots).shape[-1])
    return where(moved, dtype.type(-1), dtype.type(1))


@custom_jvp
def _det(a: Any) -> Any:
    # Of the transpose, which is the one that LAPACK sees.
    packed, pivots, _ = lu_ops.lu(a)
    return prod(main_diagonal(packed) * _signs(pivots, typeof(a).dtype), -1)


def _det_jvp(primals: Any, tangents: Any) -> Any:
    (a,), (da,) = primals, tangents
    value, change = _cofactor_solve(a, da)
    return value, sum_of(main_diagonal(change), -1)


_det.defjvp(_det_jvp)


def _cofactor_solve(a: Any, b: Any) -> tuple[Any, Any]:
    """``det(a)`` and ``det(a) * inv(a) @ b``, also for matrices with one singular value
    of zero: the determinant is divided by the last element of U before the equations
    are, not after (Seeger et al. 2017, section 5)."""
    t = typeof(a)
    n = t.shape[-1]
    packed, pivots, order = lu_parts(a)
    if n == 1:
        return a[..., 0, 0], b
    partial = cumprod(main_diagonal(packed) * _signs(pivots, t.dtype), -1)
    # What the product of all elements but the last one is divided by below.
    last = counted(n) == n - 1
    corner = last & expand_dims(last, -1)
    packed = where(corner, 1 / partial[..., -2, None, None], packed)
    # With more than one singular value of zero all cofactors are zero.
    ones = full((*t.shape[:-1], 1), 1, t.dtype)
    size = abs(triangular_solve(packed, ones, **UPPER))
    sound = ~any(~(size < math.inf), (-2, -1), True)
    none = t.dtype.type(0)
    places = broadcast_to_shape(expand_dims(order, -1), t.shape)
    x = take_along_axis(where(sound, b, none), places, t.ndim - 2)
    x = triangular_solve(packed, x, **UNIT)
    x = where(expand_dims(last, -1), x, x * partial[..., -1, None, None])
    x = triangular_solve(packed, x, **UPPER)
    return partial[..., -1], where(sound, x, none)


class _Eliminated(NamedTuple):
    """Matrices of order 2 after elimination, as elements of many: the rows of ``u``,
    what the first row was multiplied with, and where rows were exchanged."""

    upper: tuple[Any, Any, Any]
    factor: Any
    moved: Any

    def ordered(self, first: Any, second: Any) -> tuple[Any, Any]:
        return where(self.moved, second, first), where(self.moved, first, second)


def _eliminated(a: Any) -> _Eliminated:
    (p, q), (r, s) = ([a[..., i, j] for j in (0, 1)] for i in (0, 1))
    found = _Eliminated((p, q, s), None, abs(r) > abs(p))
    (pivot, other), (above, below) = found.ordered(p, r), found.ordered(q, s)
    factor = other / where(pivot == 0, typeof(a).dtype.type(1), pivot)
    return found._replace(upper=(pivot, above, below - factor * above), factor=factor)


def _slogdet_of_two(a: Any) -> tuple[Any, Any]:
    (pivot, _, last), _, moved = _eliminated(a)
    dtype = typeof(a).dtype
    sign, sizes = where(moved, dtype.type(-1), dtype.type(1)), []
    for x in (pivot, last):
        size = abs(x)
        safe = cast(where(size == 0, 1, size), dtype)
        sign = where(size == 0, dtype.type(0), sign * (x / safe))
        sizes.append(log(size))
    return sign, sizes[0] + sizes[1]


def _trace_of_solution(a: Any, b: Any) -> Any:
    """The traces of ``inv(a) @ b``."""
    if typeof(a).shape[-1] != 2:
        return sum_of(main_diagonal(solve(a, b)), -1)
    found = _eliminated(a)
    (pivot, above, last), total = found.upper, None
    for j in (0, 1):
        first, second = found.ordered(b[..., 0, j], b[..., 1, j])
        x = (second - found.factor * first) / last
        x = x if j else (first - above * x) / pivot
        total = x if total is None else total + x
    return total


@custom_jvp
def _slogdet(a: Any) -> tuple[Any, Any]:
    if typeof(a).shape[-1] == 2:
        return _slogdet_of_two(a)
    packed, pivots, _ = lu_ops.lu(a)
    diagonal = main_diagonal(packed)
    size = abs(diagonal)
    dtype = typeof(a).dtype
    none = any(size == 0, -1)
    phases = diagonal / cast(where(size == 0, 1, size), dtype)
    sign = prod(phases * _signs(pivots, dtype), -1)
    sign = where(none, dtype.type(0), sign)
    return sign, sum_of(log(size), -1)


def _slogdet_jvp(primals: Any, tangents: Any) -> Any:
    (a,), (da,) = primals, tangents
    sign, size = _slogdet(a)
    change = _trace_of_solution(a, da)
    if not dtypes.is_complex(typeof(a).dtype):
        return (sign, size), (zeros(typeof(sign).shape, typeof(sign).dtype), change)
    turn = complex_(zeros(typeof(size).shape, typeof(size).dtype), imag(change))
    return (sign, size), (sign * turn, real(change))


_slogdet.defjvp(_slogdet_jvp)


# Tensors ------------------------------------------------------------------------------


def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """The inverse of the linear map that ``tensordot(a, x, ind)`` is: the first `ind`
    axes of a are those of its results.

    Raises:
      ValueError: if both groups of axes have different numbers of elements.
    """
    (a,), dtype = floats("tensorinv", a)
    shape = typeof(a).shape
    if ind <= 0:
        raise ValueError(f"tensorinv: ind is positive, got {ind}{at(user_source())}")
    first, rest = shape[:ind], shape[ind:]
    if math.prod(first) != math.prod(rest):
        raise ValueError(
            f"tensorinv: axes {first} and {rest} of shape {shape} have different "
            f"numbers of elements{at(user_source())}"
        )
    n = math.prod(first)
    return narrowed(reshape(inv(reshape(a, (n, n))), (*rest, *first)), dtype)


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """The x with ``tensordot(a, x, x.ndim) = b``.

    Args:
      axes: of a, which are moved to its end first.

    Raises:
      ValueError: if the axes of a that are not b's have another number of elements.
    """
    (a, b), dtype = floats("tensorsolve", a, b)
    ndim = typeof(a).ndim
    if axes is not None:
        moved = [one_axis("tensorsolve", i, ndim) for i in axes]
        a = moveaxis(a, moved, range(ndim - len(moved), ndim))
    shape, have = typeof(a).shape, typeof(b).shape
    rest = shape[len(have) :]
    if math.prod(rest) != math.prod(have) or shape[: len(have)] != have:
        raise ValueError(
            f"tensorsolve: shapes {shape} and {have}: the axes behind the first "
            f"{len(have)} need {math.prod(have)} elements{at(user_source())}"
        )
    n = math.prod(have)
    x = solve(reshape(a, (n, n)), reshape(b, (n,)))
    return narrowed(reshape(x, rest), dtype)


# From factors -------------------------------------------------------------------------


def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """The x with ``a @ x = b``, where one triangle of a counts (SciPy's function, with
    leading axes, which are broadcast).

    Args:
      trans: 0 or "N"; 1 or "T" for ``a.T @ x = b``; 2 or "C" for its conjugate.
      lower: the lower triangle counts; else the upper one.
      unit_diagonal: the diagonal counts as ones.

    Raises:
      ValueError: if a is not square, or b has another number of rows.

    >>> import treadle.numpy as tnp
    >>> a, b = tnp.array([[2.0, 9.0], [1.0, 1.0]]), tnp.array([2.0, 3.0])
    >>> tnp.linalg.solve_triangular(a, b, lower=True)
    Array([1., 2.], dtype=float32)
    """
    (a, b), dtype = floats("solve_triangular", a, b)
    check_matrices("solve_triangular", typeof(a).shape, square=True)
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(
            f"solve_triangular: trans is 0, 1, 2, 'N', 'T' or 'C', got {trans!r}"
            f"{at(user_source())}"
        )
    a = conj(a) if trans in (2, "C") else a
    vector = typeof(b).ndim == 1
    b = expand_dims(b, -1) if vector else b
    check_rows("solve_triangular", a, b)
    a, b, restore = together(a, b)
    if not empty(typeof(b).shape):
        b = triangular_solve(
            a,
            b,
            left=True,
            lower=lower,
            transposed=trans not in (0, "N"),
            unit_diagonal=unit_diagonal,
        )
    x = narrowed(restore(b), dtype)
    return x[..., 0] if vector else x
