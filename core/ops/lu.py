"""The LU factorization, and systems of equations that it solves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import same_shape
from treadle.ops.arithmetic import add, neg, sub
from treadle.ops.gather import take_along_axis
from treadle.ops.matrix import (
    below,
    check,
    diagonal_of,
    eye_like,
    flip,
    in_front,
    product,
    upper,
)
from treadle.ops.movement import broadcast_in_dim, move_axis, reshape
from treadle.ops.shape import pad, slice_axis
from treadle.ops.triangular import LOWER, SIDES, triangular_solve
from treadle.trace.lowering import Routine
from treadle.trace.op import Linear, Op, Zero
from treadle.trace.routine import (
    STATUS,
    At,
    Rounds,
    RoutineCall,
    Script,
    Small,
    Varied,
    blocks_of,
    lead_of,
    least,
    named,
    nbytes_behind,
)
from treadle.trace.value import typeof

UPPER = LOWER | {"lower": False}
UNIT = LOWER | {"unit_diagonal": True}
RIGHT = {"left": False}

# lu -----------------------------------------------------------------------------------


def _lu_type(a: ArrayType) -> Sequence[ArrayType]:
    check("lu", a)
    *lead, n, m = a.shape
    return [
        ArrayType(a.shape, a.dtype),
        ArrayType((*lead, least(m, n)), dtypes.int32),
        ArrayType((*lead, m), dtypes.int32),
    ]


def _lu_run(a: Any) -> Sequence[Any]:
    out = np.array(a)
    _, pivots, order = (np.zeros(t.shape, t.dtype) for t in _lu_type(typeof(out)))
    for at in np.ndindex(*out.shape[:-2]):
        x = out[at].T
        order[at] = np.arange(len(x))
        for i in range(min(x.shape)):
            column = x[i:, i]
            # LAPACK's size of a complex number.
            j = i + int(np.argmax(np.abs(column.real) + np.abs(column.imag)))
            pivots[at][i] = j
            x[[i, j]], order[at][[i, j]] = x[[j, i]], order[at][[j, i]]
            if x[i, i]:
                x[i + 1 :, i] /= x[i, i]
            x[i + 1 :, i + 1 :] -= np.outer(x[i + 1 :, i], x[i, i + 1 :])
    return [out, pivots, order]


def _lu_script(types: Any, outs: Any, params: Any) -> Script:
    (a,) = types
    lead = lead_of(a)
    n, m = a.shape[-2:]
    k = outs[1].shape[-1]
    swaps = At(4)
    steps = (
        RoutineCall("bytes", (At(1), At(0), nbytes_behind(a, lead))),
        RoutineCall(named(a.dtype, "getrf"), (m, n, At(1), m, swaps, STATUS)),
        RoutineCall("swaps", (swaps, At(2), At(3), m, k)),
    )
    return Script(lead, (8 * k,), steps, Small("lu", a.dtype, (m, n, k)))


def _padded(x: Any, n: int) -> Any:
    """The square matrices of n rows with x in their first corner, and ones on the rest
    of the diagonal."""
    t = typeof(x)
    rows, columns = t.shape[-2:]
    around = ((0, 0, 0),) * (t.ndim - 2)
    zero = t.dtype.type(0)
    return pad(x, zero, padding=(*around, (0, n - rows, 0), (0, n - columns, 0)))


def _lu_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """With P A = L U and X = L⁻¹ P dA U⁻¹: dL = L below(X), dU = upper(X) U."""
    by_columns, pivots, order = lu(*primals)
    factors, change = flip(by_columns), flip(tangents[0])
    t = typeof(factors)
    m, n = t.shape[-2:]
    k = typeof(pivots).shape[-1]
    places = broadcast_in_dim(order, shape=t.shape, dims=tuple(range(t.ndim - 1)))
    change = take_along_axis(change, places, t.ndim - 2)
    left = _padded(slice_axis(below(factors), t.ndim - 1, 0, k), m)
    left = diagonal_of(eye_like(typeof(left)), left)
    right = _padded(slice_axis(upper(factors), t.ndim - 2, 0, k), n)
    if not same_shape((n,), (k,)):
        right = add(right, _last_ones(typeof(right), k))
    change = triangular_solve(left, change, **UNIT)
    change = triangular_solve(right, change, **UPPER | RIGHT)
    change = add(product(left, below(change)), product(upper(change), right))
    outs = [by_columns, pivots, order]
    return outs, [flip(change), Zero(typeof(pivots)), Zero(typeof(order))]


def _last_ones(t: ArrayType, k: int) -> Any:
    """Ones on the diagonal behind its first k places."""
    n = t.shape[-1]
    first = eye_like(ArrayType((*t.shape[:-2], k, k), t.dtype))
    around = ((0, 0, 0),) * (t.ndim - 2)
    zero = t.dtype.type(0)
    rest = pad(first, zero, padding=(*around, (0, n - k, 0), (0, n - k, 0)))
    return sub(eye_like(t), rest)


lu = Op(
    "lu",
    _lu_type,
    _lu_run,
    lowering=Routine(_lu_script),
    jvp=_lu_jvp,
    batch=lambda size, args, axes: (lu(*in_front(args, axes, size)), [0, 0, 0]),
    multiple=True,
)
"""The factors of ``P A = L U`` for the *transpose* of A: ``(transpose of L and U in one
matrix, pivots, order)``. Row i was exchanged with row ``pivots[i]``, for one i after
the other: in all, ``A[order] = L U``. The ones on L's diagonal are not stored."""

# lu_solve -----------------------------------------------------------------------------


def _solve_type(
    a: ArrayType,
    factors: ArrayType,
    order: ArrayType,
    b: ArrayType,
    *,
    transposed: bool,
) -> ArrayType:
    check("lu_solve", a, factors, b, square=2)
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"lu_solve of {a} and {b}: the second has not as many rows as the first"
        )
    return ArrayType(b.shape, b.dtype)


def _solve_run(a: Any, factors: Any, order: Any, b: Any, *, transposed: bool) -> Any:
    run = triangular_solve.run
    by_rows, places = np.swapaxes(factors, -1, -2), np.asarray(order)[..., None]
    if not transposed:
        moved = np.take_along_axis(np.asarray(b), places, -2)
        return run(by_rows, run(by_rows, moved, **UNIT), **UPPER)
    turned = {"transposed": True}
    x = run(by_rows, run(by_rows, b, **UPPER | turned), **UNIT | turned)
    return np.take_along_axis(x, np.argsort(places, -2), -2)


def _solve_script(types: Any, outs: Any, params: Any) -> Script:
    a, _, _, b = types
    lead, turned = lead_of(a), params["transposed"]
    rows, columns = b.shape[-2:]
    one, nbytes = a.dtype.type(1), columns * a.dtype.itemsize
    target = At(5) if turned else At(4)
    some = Varied(columns, by_part=-SIDES, most=SIDES)
    sides = Varied(target, by_part=SIDES * a.dtype.itemsize)

    def solve(uplo: str, diagonal: str) -> RoutineCall:
        how = "R", uplo, "N" if turned else "T", diagonal
        args = (*how, some, rows, one, At(1), rows, sides, columns)
        return RoutineCall(named(a.dtype, "trsm"), args)

    both = [solve("L", "U"), solve("U", "N")]
    parts = blocks_of(columns, SIDES), 0
    small = Small("lu_solve", a.dtype, (rows, columns, 4 * turned))
    if not turned:
        move = RoutineCall("rows", (At(4), At(3), At(2), rows, nbytes, 0))
        return Script(lead, (), (move, Rounds(1, parts, tuple(both))), small)
    steps = (
        RoutineCall("bytes", (target, At(3), rows * nbytes)),
        Rounds(1, parts, tuple(both[::-1])),
        RoutineCall("rows", (At(4), target, At(2), rows, nbytes, 1)),
    )
    return Script(lead, (rows * nbytes,), steps, small)


def _solve_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, transposed: bool
) -> Any:
    """A dX = dB - dA X."""
    (a, factors, order, _), (da, _, _, db) = primals, tangents
    x = lu_solve(*primals, transposed=transposed)
    right = None if isinstance(db, Zero) else db
    if not isinstance(da, Zero):
        change = product(flip(da) if transposed else da, x)
        right = sub(right, change) if right is not None else neg(change)
    if right is None:
        return x, Zero(typeof(x))
    return x, lu_solve(a, factors, order, right, transposed=transposed)


def _solve_transpose(
    ct: Any, a: Any, factors: Any, order: Any, b: Any, *, transposed: bool
) -> list[Any]:
    assert not isinstance(a, Linear)
    back = lu_solve(a, factors, order, ct, transposed=not transposed)
    return [None, None, None, back]


def _solve_batch(
    size: int, args: Any, axes: Any, *, transposed: bool
) -> tuple[Any, int]:
    *matrices, b = args
    *of_matrices, of_b = axes
    alone = all([axis is None for axis in of_matrices])
    if not alone or typeof(args[0]).ndim > 2:
        moved = in_front(args, axes, size)
        return lu_solve(*moved, transposed=transposed), 0
    # One matrix for all: more columns.
    rows, columns = (n for i, n in enumerate(typeof(b).shape) if i != of_b)
    joined = reshape(move_axis(b, of_b, 1), shape=(rows, size * columns))
    out = lu_solve(*matrices, joined, transposed=transposed)
    return reshape(out, shape=(rows, size, columns)), 1


lu_solve = Op(
    "lu_solve",
    _solve_type,
    _solve_run,
    lowering=Routine(_solve_script),
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    batch=_solve_batch,
)
"""The X with A X = B, or Aᵀ X = B if `transposed`, from the factors and the order that
`lu` gives for the transpose of A. Its derivative is in A and B alone: the factors are
taken for A's, whatever made them."""
