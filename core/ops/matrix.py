"""Matrices in the last two axes: what the rules of factorizations are written in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops import complex as parts
from treadle.ops.arithmetic import add, mul
from treadle.ops.compare import eq, ge, gt, select
from treadle.ops.dot import dot_general
from treadle.ops.movement import broadcast_in_dim, full, move_axis, spread, transpose
from treadle.ops.reduce import reduce_sum
from treadle.ops.shape import iota
from treadle.trace.value import typeof

NATIVE = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


def check(name: str, *types: ArrayType, square: int = 0) -> None:
    """Raises TypeError or ValueError unless all are matrices of one dtype that LAPACK
    has, with the same leading axes; the first `square` must be square."""
    first = types[0]
    for t in types:
        if t.dtype not in NATIVE or t.dtype != first.dtype:
            raise TypeError(
                f"{name} of {', '.join(map(str, types))}: float32, float64, complex64 "
                "or complex128 expected, and one of them"
            )
        if t.ndim < 2 or t.shape[:-2] != first.shape[:-2]:
            raise ValueError(
                f"{name} of {', '.join(map(str, types))}: matrices with the same "
                "leading axes expected"
            )
    for t in types[:square]:
        if t.shape[-1] != t.shape[-2]:
            raise ValueError(f"{name} of {t}: a square matrix expected")


def product(a: Any, b: Any) -> Any:
    """Matrix products, for equal leading axes."""
    n = typeof(a).ndim
    lead = tuple(range(n - 2))
    return dot_general(a, b, contract=((n - 1,), (n - 2,)), batch=(lead, lead))


def flip(a: Any) -> Any:
    """Transposed matrices."""
    n = typeof(a).ndim
    return transpose(a, permutation=(*range(n - 2), n - 1, n - 2))


def conj(a: Any) -> Any:
    return parts.conj(a) if dtypes.is_complex(typeof(a).dtype) else a


def real(a: Any) -> Any:
    return parts.real(a) if dtypes.is_complex(typeof(a).dtype) else a


def real_part(a: Any) -> Any:
    """The matrix without the imaginary parts of its elements; the dtype stays."""
    if not dtypes.is_complex(typeof(a).dtype):
        return a
    half = typeof(a).dtype.type(0.5)
    return mul(add(a, parts.conj(a)), half)


def adjoint(a: Any) -> Any:
    """Conjugate transposed matrices."""
    return conj(flip(a))


def _places(shape: tuple[int, ...]) -> tuple[Any, Any]:
    rows, columns = shape[-2:]
    index = dtypes.of_index(rows + columns)
    row, column = (iota(shape=(rows, columns), axis=i, dtype=index) for i in (0, 1))
    return row, column


def _where(mask: Any, x: Any, y: Any) -> Any:
    """Elements of x where a matrix of conditions holds, of y (or zero) elsewhere."""
    t = typeof(x)
    if t.ndim > 2:
        mask = broadcast_in_dim(mask, shape=t.shape, dims=(t.ndim - 2, t.ndim - 1))
    return select(mask, x, t.dtype.type(0) if y is None else y)


def lower(x: Any, y: Any = None) -> Any:
    """The elements on and below the diagonal; above it those of y, or zeros."""
    return _where(ge(*_places(typeof(x).shape)), x, y)


def below(x: Any, y: Any = None) -> Any:
    """The elements below the diagonal; on and above it those of y, or zeros."""
    return _where(gt(*_places(typeof(x).shape)), x, y)


def diagonal_of(x: Any, y: Any = None) -> Any:
    """The elements on the diagonal, where they are; elsewhere those of y, or zeros."""
    return _where(eq(*_places(typeof(x).shape)), x, y)


def upper(x: Any, y: Any = None) -> Any:
    """The elements on and above the diagonal; below it those of y, or zeros."""
    row, column = _places(typeof(x).shape)
    return _where(ge(column, row), x, y)


def eye_like(t: ArrayType) -> Any:
    """Identity matrices of a type."""
    return diagonal_of(full(t.shape, 1, t.dtype))


def main_diagonal(x: Any) -> Any:
    """The diagonal of square matrices as vectors."""
    return reduce_sum(diagonal_of(x), axes=(typeof(x).ndim - 2,))


def as_rows(v: Any, shape: tuple[int, ...]) -> Any:
    """Matrices of which each row is a vector."""
    n = len(shape)
    return broadcast_in_dim(v, shape=shape, dims=(*range(n - 2), n - 1))


def as_columns(v: Any, shape: tuple[int, ...]) -> Any:
    """Matrices of which each column is a vector."""
    return broadcast_in_dim(v, shape=shape, dims=tuple(range(len(shape) - 1)))


def mirrored(x: Any, from_lower: bool = True) -> Any:
    """The Hermitian matrix of which one triangle is given."""
    other = adjoint(x)
    halves = below(x, other) if from_lower else below(other, x)
    return diagonal_of(real_part(x), halves)


def in_front(args: Sequence[Any], axes: Sequence[int | None], size: int) -> list[Any]:
    """The arguments of a batching rule, all with the batch as their first axis."""
    return [
        spread(x, 0, size) if d is None else move_axis(x, d, 0)
        for x, d in zip(args, axes, strict=True)
    ]


def check_finite(x: np.ndarray) -> None:
    """Raises LinAlgError for numbers that LAPACK may not come back from."""
    if not np.isfinite(x).all():
        raise np.linalg.LinAlgError("numbers that are not finite")


def matrix_by_matrix(
    function: Callable[..., Any], results: Sequence[ArrayType], lead: int, *args: Any
) -> list[np.ndarray]:
    """A function of NumPy's for each matrix; what fails is not-a-number."""
    outs = [np.zeros(t.shape, t.dtype) for t in results]
    for at in np.ndindex(*np.shape(args[0])[:lead]):
        try:
            found = function(*[a[at] for a in args])
        except np.linalg.LinAlgError:
            found = [np.full(o[at].shape, np.nan) for o in outs]
        for out, x in zip(outs, found, strict=True):
            out[at] = x
    return outs
