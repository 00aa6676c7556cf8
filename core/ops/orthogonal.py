"""Factorizations with orthogonal factors: QR, and singular values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import same_shape
from treadle.errors import at
from treadle.late import number
from treadle.ops.arithmetic import add, div, mul, sub
from treadle.ops.cast import convert
from treadle.ops.compare import eq, select
from treadle.ops.matrix import (
    adjoint,
    as_columns,
    as_rows,
    below,
    check,
    check_finite,
    diagonal_of,
    in_front,
    main_diagonal,
    matrix_by_matrix,
    product,
    real,
    real_part,
    upper,
)
from treadle.ops.movement import full
from treadle.ops.shape import slice_axis
from treadle.ops.triangular import LOWER, triangular_solve
from treadle.trace.interpreter import current_source
from treadle.trace.lowering import Routine
from treadle.trace.op import Op
from treadle.trace.routine import (
    STATUS,
    Argument,
    At,
    RoutineCall,
    Script,
    Small,
    copied,
    if_finite,
    lead_of,
    least,
    most,
    named,
    nan_if_failed,
    stride_of,
)
from treadle.trace.value import typeof

_RIGHT_UPPER = LOWER | {"left": False, "lower": False}
_BLOCK = 32
"""Columns that LAPACK works on together, if it has the memory."""

# qr -----------------------------------------------------------------------------------


def _qr_type(a: ArrayType, *, full: bool, vectors: bool) -> Sequence[ArrayType]:
    check("qr", a)
    *lead, m, n = a.shape
    k = m if full else least(m, n)
    r = ArrayType((*lead, k, n), a.dtype)
    return [ArrayType((*lead, m, k), a.dtype), r] if vectors else [r]


def _qr_run(a: Any, *, full: bool, vectors: bool) -> Sequence[Any]:
    found = np.linalg.qr(a, "complete" if full else "reduced")
    return found if vectors else found[1:]


class _Sizes(NamedTuple):
    """Of a matrix, m x n with the smaller size k; of Q's columns, which are R's rows;
    and whether Q is made."""

    m: int
    n: int
    k: int
    columns: int
    vectors: bool

    @property
    def blocks(self) -> tuple[At, At, At, At, At]:
        """Q (if it is made), R, and the work memory: a copy, factors, and the rest."""
        first = 2 if self.vectors else 1
        return At(1), At(first), At(first + 1), At(first + 2), At(first + 3)


def _qr_script(types: Any, outs: Any, params: Any) -> Script:
    """LAPACK sees the transpose. It factors that of a wide matrix, as LQ; of a tall one
    it gets the transpose of this, so that reflections go down columns."""
    (a,), vectors = types, params["vectors"]
    lead, itemsize = lead_of(a), a.dtype.itemsize
    m, n = a.shape[-2:]
    columns = outs[-1].shape[-2]
    sizes = _Sizes(m, n, least(m, n), columns, vectors)
    longest = most(n, columns)
    length = _BLOCK * longest
    copy = most(stride_of(m, a.dtype) * longest, m * stride_of(n, a.dtype))
    work = copy * itemsize, sizes.k * itemsize, length * itemsize
    is_tall, is_wide = number(_exceeds, (m + 1, n)), number(_exceeds, (n, m))
    steps = [s._replace(needed=is_tall) for s in _tall_steps(a.dtype, sizes, length)]
    steps += [s._replace(needed=is_wide) for s in _wide_steps(a.dtype, sizes, length)]
    small = Small("qr" if vectors else "triangle", a.dtype, (m, n, columns))
    return Script(lead, work, tuple(steps), small)


def _exceeds(x: int, y: int) -> int:
    return int(x > y)


def _tall_steps(dtype: np.dtype, sizes: _Sizes, length: int) -> list[RoutineCall]:
    m, n, k, columns, vectors = sizes
    q, r, copy, tau, work = sizes.blocks
    letter, itemsize, zero = partial(named, dtype), dtype.itemsize, dtype.type(0)
    make = "ungqr" if dtypes.is_complex(dtype) else "orgqr"
    last = tau, work, length, STATUS
    below, apart = r.plus(n * itemsize), stride_of(m, dtype)
    steps = [
        RoutineCall("turned", (copy, At(0), n, m, apart, n, itemsize)),
        RoutineCall(letter("geqrf"), (m, n, copy, apart, *last)),
        RoutineCall("turned", (r, copy, columns, n, n, apart, itemsize)),
        RoutineCall(letter("laset"), ("U", n, columns - 1, zero, zero, below, n)),
    ]
    if vectors:
        steps += [
            RoutineCall(letter(make), (m, columns, k, copy, apart, *last)),
            RoutineCall("turned", (q, copy, m, columns, columns, apart, itemsize)),
        ]
    return steps


def _wide_steps(dtype: np.dtype, sizes: _Sizes, length: int) -> list[RoutineCall]:
    m, n, k, columns, vectors = sizes
    q, r, copy, tau, work = sizes.blocks
    letter, zero = partial(named, dtype), dtype.type(0)
    make = "unglq" if dtypes.is_complex(dtype) else "orglq"
    last, apart = (tau, work, length, STATUS), stride_of(n, dtype)
    steps = [
        copied(dtype, (copy, apart), (At(0), n), m, n),
        RoutineCall(letter("gelqf"), (n, m, copy, apart, *last)),
        RoutineCall(letter("laset"), ("A", n, columns, zero, zero, r, n)),
        RoutineCall(letter("lacpy"), ("L", n, k, copy, apart, r, n)),
    ]
    if vectors:
        steps += [
            RoutineCall(letter(make), (columns, m, k, copy, apart, *last)),
            copied(dtype, (q, columns), (copy, apart), m, columns),
        ]
    return steps


def _qr_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, full: bool, vectors: bool
) -> Any:
    """Walter & Lehmann 2010: with W = Qᴴ dA R⁻¹, the part of W that is skew-Hermitian
    as its lower half says is Ω = Qᴴ dQ; what is left belongs to R. (For wide matrices R
    stands for its first square.)"""
    (a,), (da,) = primals, tangents
    q, r = qr(a, full=full, vectors=True)
    m, n = typeof(a).shape[-2:]
    last = typeof(a).ndim - 1
    k = typeof(q).shape[-1]
    if full and not same_shape((k,), (least(m, n),)):
        raise NotImplementedError(
            f"the derivative of a complete QR factorization of {typeof(a)}: its last "
            f"columns are not determined{at(current_source())}\nTake mode 'reduced'."
        )
    wide = slice_axis(r, last, 0, k), slice_axis(da, last, 0, k)
    square, change = (r, da) if same_shape((k,), (n,)) else wide
    change = triangular_solve(square, change, **_RIGHT_UPPER)
    w = product(adjoint(q), change)
    omega = sub(below(w), adjoint(below(w)))
    if dtypes.is_complex(typeof(w).dtype):
        omega = add(omega, diagonal_of(sub(w, real_part(w))))
    dq = add(product(q, sub(omega, w)), change)
    dr = upper(sub(product(adjoint(q), da), product(omega, r)))
    return ([q, r], [dq, dr]) if vectors else ([r], [dr])


qr = Op(
    "qr",
    _qr_type,
    _qr_run,
    lowering=Routine(_qr_script, alone=(1, {"vectors": False})),
    jvp=_qr_jvp,
    batch=lambda size, args, axes, *, full, vectors: (
        qr(*in_front(args, axes, size), full=full, vectors=vectors),
        [0] * (2 if vectors else 1),
    ),
    multiple=True,
)
"""``A = Q R`` with orthonormal columns in Q, and R upper triangular. Q is square if
`full`; else it has as many columns as the shorter side of A. Without `vectors`, R
alone."""

# qr_vectors ---------------------------------------------------------------------------


def _vectors_type(a: ArrayType) -> Sequence[ArrayType]:
    check("qr_vectors", a)
    *lead, m, n = a.shape
    return [
        ArrayType((*lead, n, m), a.dtype),
        ArrayType((*lead, least(m, n)), a.dtype),
    ]


def _vectors_run(a: Any) -> Sequence[Any]:
    t = typeof(np.asarray(a))

    def pair(x: Any) -> Sequence[Any]:
        return np.linalg.qr(x, "raw")

    return matrix_by_matrix(pair, _vectors_type(t), lead_of(t), np.asarray(a))


def _vectors_script(types: Any, outs: Any, params: Any) -> Script:
    (a,) = types
    m, n = a.shape[-2:]
    length, itemsize = _BLOCK * n, a.dtype.itemsize
    steps = (
        RoutineCall("turned", (At(1), At(0), n, m, m, n, itemsize)),
        RoutineCall(
            named(a.dtype, "geqrf"), (m, n, At(1), m, At(2), At(3), length, STATUS)
        ),
    )
    return Script(lead_of(a), (length * itemsize,), steps)


def _no_derivative(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    raise NotImplementedError(
        f"the derivative of qr(mode='raw') of {typeof(primals[0])}"
        f"{at(current_source())}\nTake mode 'reduced', whose Q and R have one."
    )


qr_vectors = Op(
    "qr_vectors",
    _vectors_type,
    _vectors_run,
    lowering=Routine(_vectors_script),
    jvp=_no_derivative,
    batch=lambda size, args, axes: (qr_vectors(*in_front(args, axes, size)), [0, 0]),
    multiple=True,
)
"""``(h, tau)`` of ``A = Q R`` as LAPACK leaves it: in the *transpose* of h the upper
triangle is R, and below it, with ones on the diagonal, are the vectors v of the
reflections ``I - tau v vᴴ`` whose product is Q."""

# svd ----------------------------------------------------------------------------------


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
    copy, work, integers, second, third, reals = (At(first + i) for i in range(6))
    sizes = int(vectors), narrow, wide
    length = number(_svd_work, sizes)
    last: tuple[Argument, ...] = (work, length, integers, STATUS)
    by_m, by_n = stride_of(m, dtype), stride_of(n, dtype)
    is_tall, is_wide = number(_exceeds, (m, n)), number(_exceeds, (n + 1, m))
    routine, of_copy = partial(RoutineCall, named(dtype, "gesdd")), (copy, by_n)
    turned = partial(RoutineCall, "turned", needed=is_tall)
    moved = partial(copied, dtype, needed=is_wide)
    none: tuple[Argument, ...] = (STATUS, 1, STATUS, 1)
    if dtypes.is_complex(dtype):
        last = (work, length, reals, integers, STATUS)
    if not vectors:
        tall = [routine(("N", m, n, copy, by_m, At(1), *none, *last), needed=is_tall)]
        wide_call = [
            routine(("N", n, m, *of_copy, At(1), *none, *last), needed=is_wide)
        ]
        more = [0, 0]
    else:
        kind = "A" if params["full"] else "S"
        columns, rows = outs[0].shape[-1], outs[2].shape[-2]
        of_rows, of_columns = stride_of(rows, dtype), stride_of(columns, dtype)
        more = [
            most(columns * by_m, m * of_columns),
            most(n * of_rows, rows * by_n),
        ]
        args = kind, m, n, copy, by_m, At(2), second, by_m, third, of_rows, *last
        tall = [
            routine(args, needed=is_tall),
            turned((At(1), second, m, columns, columns, by_m, dtype.itemsize)),
            turned((At(3), third, rows, n, n, of_rows, dtype.itemsize)),
        ]
        args = kind, n, m, *of_copy, At(2), third, by_n, second, of_columns, *last
        wide_call = [
            routine(args, needed=is_wide),
            moved((At(1), columns), (second, of_columns), m, columns),
            moved((At(3), n), (third, by_n), rows, n),
        ]
    steps = (
        turned((copy, At(0), n, m, by_m, n, dtype.itemsize)),
        *tall,
        moved(of_copy, (At(0), n), m, n),
        *wide_call,
        *[nan_if_failed(i, t, lead) for i, t in enumerate(outs, 1)],
    )
    numbers = most(n * by_m, m * by_n), length, *more
    blocks = [count * dtype.itemsize for count in numbers]
    blocks.insert(integers.block - first, 64 * narrow)
    if dtypes.is_complex(dtype):
        blocks.append(number(_svd_reals, sizes) * dtype.itemsize // 2)
    return Script(lead, tuple(blocks), if_finite(a, lead, steps))


def _svd_work(vectors: int, narrow: int, wide: int) -> int:
    """Numbers of work memory that ?GESDD wants, at least."""
    square = 4 * narrow * narrow if vectors else 0
    return square + 10 * narrow + wide + _BLOCK * (narrow + wide)


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
