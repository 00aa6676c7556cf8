"""Cholesky's factorization, and systems of equations with triangular matrices.

LAPACK's matrices lie by columns: to it, ours are transposed. So its upper triangle is
our lower one, and what multiplies from the left here does it from the right there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.ops.arithmetic import add, mul, neg
from treadle.ops.matrix import (
    below,
    check,
    conj,
    diagonal_of,
    flip,
    in_front,
    lower,
    matrix_by_matrix,
    mirrored,
    product,
    upper,
)
from treadle.ops.movement import move_axis, reshape
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
    named,
    nan_if_failed,
    stride_of,
)
from treadle.trace.value import typeof

# cholesky -----------------------------------------------------------------------------


def _cholesky_type(a: ArrayType) -> ArrayType:
    check("cholesky", a, square=1)
    return ArrayType(a.shape, a.dtype)


def _cholesky_run(a: Any) -> Any:
    t = typeof(a)
    return matrix_by_matrix(
        lambda x: (np.linalg.cholesky(x),), [t], lead_of(t), np.asarray(a)
    )[0]


def _cholesky_script(types: Any, outs: Any, params: Any) -> Script:
    """OpenBLAS makes a lower triangle in three quarters of the time of an upper one,
    which the copy of the transpose is less than."""
    (a,) = types
    n, lead, zero = a.shape[-1], lead_of(a), a.dtype.type(0)
    itemsize, copy, apart = a.dtype.itemsize, At(2), stride_of(n, a.dtype)
    above = At(1).plus(itemsize)
    steps = (
        RoutineCall("turned", (copy, At(0), n, n, apart, n, itemsize)),
        RoutineCall(named(a.dtype, "potrf"), ("L", n, copy, apart, STATUS)),
        RoutineCall("turned", (At(1), copy, n, n, n, apart, itemsize)),
        nan_if_failed(1, a, lead),
        RoutineCall(named(a.dtype, "laset"), ("L", n - 1, n - 1, zero, zero, above, n)),
    )
    work = (n * apart * itemsize,)
    return Script(lead, work, steps, Small("cholesky", a.dtype, (n,)))


def _cholesky_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Smith 1995: dL = L Φ(L⁻¹ dA L⁻ᴴ), where Φ is the lower half, of the diagonal,
    too."""
    factor = cholesky(*primals)
    change = triangular_solve(factor, mirrored(tangents[0]), **LOWER)
    change = triangular_solve(
        conj(factor), change, **LOWER | {"left": False, "transposed": True}
    )
    half = typeof(factor).dtype.type(0.5)
    change = lower(diagonal_of(mul(change, half), change))
    return factor, product(factor, change)


LOWER = {"left": True, "lower": True, "transposed": False, "unit_diagonal": False}
"""Of `triangular_solve`: a lower triangle, on the left."""

cholesky = Op(
    "cholesky",
    _cholesky_type,
    _cholesky_run,
    lowering=Routine(_cholesky_script),
    jvp=_cholesky_jvp,
    batch=lambda size, args, axes: (cholesky(*in_front(args, axes, size)), 0),
)
"""The lower triangular L with L Lᴴ = A, a Hermitian matrix whose lower triangle alone
is read. Not-a-number where A is not positive definite."""

SIDES = 128
"""Right sides that a thread solves for at once."""

# triangular_solve ---------------------------------------------------------------------


def _solve_type(
    a: ArrayType,
    b: ArrayType,
    *,
    left: bool,
    lower: bool,
    transposed: bool,
    unit_diagonal: bool,
) -> ArrayType:
    check("triangular_solve", a, b, square=1)
    if a.shape[-1] != b.shape[-2 if left else -1]:
        raise ValueError(
            f"triangular_solve of {a} and {b}: the {'rows' if left else 'columns'} of "
            f"the second are not as many as those of the first"
        )
    return ArrayType(b.shape, b.dtype)


def _solve_run(a: Any, b: Any, *, left: bool, **params: Any) -> Any:
    """One row of unknowns after the other, for all matrices at once."""
    a, x = np.asarray(a), np.array(b)
    if not left:
        # X op(A) = B is op(A)ᵀ Xᵀ = Bᵀ.
        params["transposed"] = not params["transposed"]
        b = np.swapaxes(x, -1, -2)
        return np.swapaxes(_solve_run(a, b, left=True, **params), -1, -2)
    if params["transposed"]:
        a = np.swapaxes(a, -1, -2)
    n = a.shape[-1]
    forward = params["lower"] != params["transposed"]
    for i in range(n) if forward else reversed(range(n)):
        known = slice(0, i) if forward else slice(i + 1, n)
        row = a[..., None, i, known]
        x[..., i, :] -= (row @ x[..., known, :])[..., 0, :]
        if not params["unit_diagonal"]:
            x[..., i, :] /= a[..., i, i, None]
    return x


def _triangle(a: Any, params: dict[str, Any]) -> Any:
    """What of a matrix counts."""
    if not params["unit_diagonal"]:
        return lower(a) if params["lower"] else upper(a)
    return below(a) if params["lower"] else flip(below(flip(a)))


def _solve_script(types: Any, outs: Any, params: Any) -> Script:
    a, b = types
    lead, n = lead_of(a), a.shape[-1]
    rows, columns = b.shape[-2:]
    one = a.dtype.type(1)
    how = (
        "R" if params["left"] else "L",
        "U" if params["lower"] else "L",
        "T" if params["transposed"] else "N",
        "U" if params["unit_diagonal"] else "N",
    )
    # Right sides lie one beside the other, or are rows.
    sides, others = (columns, rows) if params["left"] else (rows, columns)
    apart = a.dtype.itemsize * (1 if params["left"] else columns)
    count = Varied(sides, by_part=-SIDES, most=SIDES)
    sizes = (count, others) if params["left"] else (others, count)
    source, to = (Varied(At(i), by_part=SIDES * apart) for i in (1, 2))
    move = "A", *sizes, source, columns, to, columns
    solve = *how, *sizes, one, At(0), n, to, columns
    calls = (
        RoutineCall(named(a.dtype, "lacpy"), move),
        RoutineCall(named(a.dtype, "trsm"), solve),
    )
    steps = (Rounds(1, (blocks_of(sides, SIDES), 0), calls),)
    names = "left", "lower", "transposed", "unit_diagonal"
    flags = sum([params[name] << i for i, name in enumerate(names)])
    small = Small("triangular_solve", a.dtype, (n, sides, flags))
    return Script(lead, (), steps, small)


def _solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    """op(A) dX = dB - op(dA) X, where only the triangle of dA counts."""
    (a, b), (da, db) = primals, tangents
    x = triangular_solve(a, b, **params)
    right = None if isinstance(db, Zero) else db
    if not isinstance(da, Zero):
        da = _triangle(da, params)
        if params["transposed"]:
            da = flip(da)
        term = neg(product(da, x) if params["left"] else product(x, da))
        right = term if right is None else add(right, term)
    if right is None:
        return x, Zero(typeof(x))
    return x, triangular_solve(a, right, **params)


def _solve_transpose(ct: Any, a: Any, b: Any, **params: Any) -> list[Any]:
    assert not isinstance(a, Linear)
    turned = params | {"transposed": not params["transposed"]}
    return [None, triangular_solve(a, ct, **turned)]


def _solve_batch(size: int, args: Any, axes: Any, **params: Any) -> tuple[Any, int]:
    (a, b), (of_a, of_b) = args, axes
    if of_a is not None or typeof(a).ndim > 2:
        return triangular_solve(*in_front(args, axes, size), **params), 0
    # One matrix for all: more columns, or more rows.
    rows, columns = (n for i, n in enumerate(typeof(b).shape) if i != of_b)
    if params["left"]:
        joined = reshape(move_axis(b, of_b, 1), shape=(rows, size * columns))
        out = triangular_solve(a, joined, **params)
        return reshape(out, shape=(rows, size, columns)), 1
    joined = reshape(move_axis(b, of_b, 0), shape=(size * rows, columns))
    out = triangular_solve(a, joined, **params)
    return reshape(out, shape=(size, rows, columns)), 0


triangular_solve = Op(
    "triangular_solve",
    _solve_type,
    _solve_run,
    lowering=Routine(_solve_script),
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    batch=_solve_batch,
)
"""The X with op(A) X = B (or X op(A) = B, if not `left`), where op(A) is one triangle
of A, or its transpose if `transposed`. With `unit_diagonal` its diagonal counts as
ones."""
