"""Singular values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import same_shape
from treadle.errors import at
from treadle.late import number
from treadle.ops import divided
from treadle.ops.arithmetic import add, div, mul, sub
from treadle.ops.cast import convert
from treadle.ops.compare import eq, select
from treadle.ops.matrix import (
    adjoint,
    as_columns,
    as_rows,
    check,
    check_finite,
    diagonal_of,
    in_front,
    main_diagonal,
    matrix_by_matrix,
    product,
    real,
    real_part,
)
from treadle.ops.movement import full
from treadle.trace.interpreter import current_source
from treadle.trace.lowering import Routine
from treadle.trace.op import Op
from treadle.trace.routine import (
    STATUS,
    Argument,
    At,
    RoutineCall,
    Script,
    Step,
    copied,
    exceeds,
    if_finite,
    lead_of,
    least,
    most,
    named,
    nan_if_failed,
    stride_of,
)
from treadle.trace.value import typeof

_BLOCK = 32
"""Columns that LAPACK works on together, if it has the memory."""


def _svd_type(a: ArrayType, *, full: bool, vectors: bool) -> Sequence[ArrayType]:
    check("svd", a)
    *lead, m, n = a.shape
    k = least(m, n)
    s = ArrayType((*lead, k), dtypes.to_real(a.dtype))
    if not vectors:
        return [s]
    u = ArrayType((*lead, m, m if full else k), a.dtype)
    return [u, s, ArrayType((*lead, n if full else k, n), a.dtype)]


def _svd_run(a: Any, *, full: bool, vectors: bool) -> Sequence[Any]:
    t = typeof(np.asarray(a))

    def factors(x: Any) -> Sequence[Any]:
        check_finite(x)
        if vectors:
            return np.linalg.svd(x, full)
        return (np.linalg.svd(x, compute_uv=False),)

    types = _svd_type(t, full=full, vectors=vectors)
    return matrix_by_matrix(factors, types, lead_of(t), np.asarray(a))


def _svd_script(types: Any, outs: Any, params: Any) -> Script:
    """LAPACK sees the transpose, whose factors are ours in the other order; of a tall
    matrix it gets the transpose of this, so that reflections go down columns."""
    (a,), vectors = types, params["vectors"]
    lead, dtype = lead_of(a), a.dtype
    m, n = a.shape[-2:]
    narrow, wide = least(m, n), most(m, n)
    first = 1 + len(outs)
    copy, work, integers, second, third, numbers = (At(first + i) for i in range(6))
    sizes = int(vectors), narrow, wide
    length = number(_svd_work, sizes)
    last: tuple[Argument, ...] = (work, length, integers, STATUS)
    by_m, by_n = stride_of(m, dtype), stride_of(n, dtype)
    is_tall, is_wide = exceeds(m, n), exceeds(n + 1, m)
    routine, of_copy = partial(RoutineCall, named(dtype, "gesdd")), (copy, by_n)
    turned = partial(RoutineCall, "turned", needed=is_tall)
    moved = partial(copied, dtype, needed=is_wide)
    none: tuple[Argument, ...] = (STATUS, 1, STATUS, 1)
    if dtypes.is_complex(dtype):
        last = (work, length, numbers, integers, STATUS)
    tall: list[Step]
    other: list[Step]
    if not vectors:
        tall = [routine(("N", m, n, copy, by_m, At(1), *none, *last), needed=is_tall)]
        other = [routine(("N", n, m, *of_copy, At(1), *none, *last), needed=is_wide)]
        more = [0, 0]
    else:
        kind = "A" if params["full"] else "S"
        columns, rows = outs[0].shape[-1], outs[2].shape[-2]
        of_rows, of_columns = stride_of(rows, dtype), stride_of(columns, dtype)
        more = [
            most(columns * by_m, m * of_columns),
            most(n * of_rows, rows * by_n),
        ]
        tall = _factors(
            (kind, m, n, copy, by_m, At(2), second, by_m, third, of_rows, *last),
            (dtype, columns, is_tall),
            numbers,
        )
        tall += [
            turned((At(1), second, m, columns, columns, by_m, dtype.itemsize)),
            turned((At(3), third, rows, n, n, of_rows, dtype.itemsize)),
        ]
        other = _factors(
            (kind, n, m, *of_copy, At(2), third, by_n, second, of_columns, *last),
            (dtype, rows, is_wide),
            numbers,
        )
        other += [
            moved((At(1), columns), (second, of_columns), m, columns),
            moved((At(3), n), (third, by_n), rows, n),
        ]
    steps = (
        turned((copy, At(0), n, m, by_m, n, dtype.itemsize)),
        *tall,
        moved(of_copy, (At(0), n), m, n),
        *other,
        *[nan_if_failed(i, t, lead) for i, t in enumerate(outs, 1)],
    )
    counts = most(n * by_m, m * by_n), length, *more
    blocks = [count * dtype.itemsize for count in counts]
    blocks.insert(integers.block - first, 8 * number(_svd_integers, sizes))
    if dtypes.is_complex(dtype):
        blocks.append(number(_svd_reals, sizes) * dtype.itemsize // 2)
    else:
        blocks.append(number(_svd_numbers, sizes) * dtype.itemsize)
    return Script(lead, tuple(blocks), if_finite(a, lead, steps))


def _factors(
    args: tuple[Any, ...], what: tuple[np.dtype, int, int], numbers: At
) -> list[Step]:
    """The call of ?GESDD with these arguments, or what large real matrices have.

    what: the dtype, how many left vectors, and 0 if it never happens.
    """
    dtype, count, needed = what
    _, rows, columns, *_ = args
    routine = partial(RoutineCall, named(dtype, "gesdd"), args)
    if dtypes.is_complex(dtype):
        return [routine(needed=needed)]
    sizes = needed, rows, columns
    _, _, _, copy, apart, values, left, by_left, right, by_right, work, _, own, _ = args
    form = divided.Form(
        *(dtype, rows, columns, apart, copy, (left, by_left, count)),
        *((right, by_right), values, work, numbers, own, number(_is_large, sizes)),
    )
    return [routine(needed=number(_is_small, sizes)), *divided.steps(form)]


def _is_large(needed: int, rows: int, columns: int) -> int:
    """Where ?GESDD does not make R of a tall matrix first."""
    return int(needed and columns >= divided.LARGE and 6 * rows < 11 * columns)


def _is_small(needed: int, rows: int, columns: int) -> int:
    return int(needed and not _is_large(needed, rows, columns))


def _svd_integers(vectors: int, narrow: int, wide: int) -> int:
    large = vectors and _is_large(1, wide, narrow)
    return max(8 * narrow, divided.integers_length(narrow) if large else 0)


def _svd_numbers(vectors: int, narrow: int, wide: int) -> int:
    large = vectors and _is_large(1, wide, narrow)
    return divided.numbers_length(narrow) if large else 0


def _svd_work(vectors: int, narrow: int, wide: int) -> int:
    """Numbers of work memory that ?GESDD wants, at least."""
    square = 4 * narrow * narrow if vectors else 0
    found = square + 10 * narrow + wide + _BLOCK * (narrow + wide)
    if not (vectors and _is_large(1, wide, narrow)):
        return found
    return max(found, divided.work_length(narrow, wide))


def _svd_reals(vectors: int, narrow: int, wide: int) -> int:
    if not vectors:
        return 7 * narrow
    product = 2 * narrow * (wide + narrow) + narrow
    return max(5 * narrow * narrow + 5 * narrow, product)


def _svd_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, full: bool, vectors: bool
) -> Any:
    """Giles 2008, section 3.2; Townsend 2016 for matrices that are not square."""
    (a,), (da,) = primals, tangents
    t = typeof(a)
    m, n = t.shape[-2:]
    if full and vectors and not same_shape((m,), (n,)):
        raise NotImplementedError(
            f"the derivative of all singular vectors of {t}: the last ones are not "
            f"determined{at(current_source())}\nTake `full_matrices=False`."
        )
    u, s, vh = svd(a, full=False, vectors=True)
    change = product(product(adjoint(u), da), adjoint(vh))
    ds = real(main_diagonal(change))
    if not vectors:
        return [s], [ds]
    du, dv = _vector_tangents(s, change)
    du, dv = product(u, du), product(adjoint(vh), dv)
    # What leaves the space of the singular vectors.
    columns = as_rows(_in(s, t.dtype), typeof(u).shape)
    rest = product(da, adjoint(vh))
    rest = sub(rest, product(u, product(adjoint(u), rest)))
    if not same_shape((m,), (typeof(s).shape[-1],)):
        du = add(du, div(rest, columns))
    if not same_shape((n,), (typeof(s).shape[-1],)):
        rest = product(adjoint(da), u)
        rest = sub(rest, product(adjoint(vh), product(vh, rest)))
        dv = add(dv, div(rest, as_rows(_in(s, t.dtype), typeof(rest).shape)))
    return [u, s, vh], [du, ds, adjoint(dv)]


def _vector_tangents(s: Any, change: Any) -> tuple[Any, Any]:
    """Uᴴ dU and Vᴴ dV for the change Uᴴ dA V of singular values S."""
    t = typeof(change)
    column = as_columns(s, t.shape)
    row = as_rows(s, t.shape)
    one = full(t.shape, 1, typeof(s).dtype)
    gaps = diagonal_of(one, mul(add(row, column), sub(row, column)))
    row, column, gaps = (_in(x, t.dtype) for x in (row, column, gaps))
    right, left = mul(row, change), mul(column, change)
    zero = full(t.shape, 0, t.dtype)
    du = diagonal_of(zero, div(add(right, adjoint(right)), gaps))
    dv = diagonal_of(zero, div(add(left, adjoint(left)), gaps))
    if not dtypes.is_complex(t.dtype):
        return du, dv
    # The phases of pairs of vectors: only their difference is determined.
    nothing = eq(row, t.dtype.type(0))
    safe = select(nothing, full(t.shape, 1, t.dtype), row)
    turn = div(sub(change, real_part(change)), safe)
    return add(du, diagonal_of(turn)), dv


def _in(x: Any, dtype: np.dtype) -> Any:
    return x if typeof(x).dtype == dtype else convert(x, dtype=dtype)


svd = Op(
    "svd",
    _svd_type,
    _svd_run,
    lowering=Routine(_svd_script, alone=(1, {"full": False, "vectors": False})),
    jvp=_svd_jvp,
    batch=lambda size, args, axes, *, full, vectors: (
        svd(*in_front(args, axes, size), full=full, vectors=vectors),
        [0] * (3 if vectors else 1),
    ),
    multiple=True,
)
"""``(U, s, Vᴴ)`` with A = U diag(s) Vᴴ, or s alone without `vectors`: orthonormal
columns in U and V, s in descending order. U and V are square if `full`."""
