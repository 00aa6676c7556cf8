"""Factorizations with an orthogonal and a triangular factor."""

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
from treadle.ops import panels, reflected
from treadle.ops.arithmetic import add, sub
from treadle.ops.matrix import (
    adjoint,
    below,
    check,
    diagonal_of,
    in_front,
    matrix_by_matrix,
    product,
    real_part,
    upper,
)
from treadle.ops.shape import slice_axis
from treadle.ops.triangular import LOWER, triangular_solve
from treadle.trace.interpreter import current_source
from treadle.trace.lowering import Routine
from treadle.trace.op import Op
from treadle.trace.routine import (
    STATUS,
    At,
    RoutineCall,
    Script,
    Small,
    Step,
    copied,
    if_needed,
    lead_of,
    least,
    most,
    named,
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
    length = most(length, number(_large_length, (m, n, columns)))
    work = copy * itemsize, sizes.k * itemsize, length * itemsize
    is_large = number(_is_large, (m, n))
    is_tall, is_wide = (number(_is_small, (m, n, tall)) for tall in (1, 0))
    steps: list[Step] = []
    steps += [s._replace(needed=is_tall) for s in _tall_steps(a.dtype, sizes, length)]
    steps += [s._replace(needed=is_wide) for s in _wide_steps(a.dtype, sizes, length)]
    steps += if_needed(is_large, _large_steps(a.dtype, sizes))
    small = Small("qr" if vectors else "triangle", a.dtype, (m, n, columns))
    return Script(lead, work, tuple(steps), small)


_LARGE = 128
"""From this order on, matrices are factored panel by panel."""


def _is_large(m: int, n: int) -> int:
    return int(min(m, n) >= _LARGE)


def _is_small(m: int, n: int, tall: int) -> int:
    return int(not _is_large(m, n) and (m >= n) == bool(tall))


def _large_length(m: int, n: int, columns: int) -> int:
    if not _is_large(m, n):
        return 0
    return reflected.length(m, min(m, n), max(n, columns))


def _large_steps(dtype: np.dtype, sizes: _Sizes) -> list[Step]:
    m, n, k, columns, vectors = sizes
    q, r, copy, _, work = sizes.blocks
    letter, itemsize = partial(named, dtype), dtype.itemsize
    zero, one, apart = dtype.type(0), dtype.type(1), stride_of(m, dtype)
    places, below = reflected.places(dtype, m, k, work), r.plus(n * itemsize)
    steps: list[Step] = [
        RoutineCall("turned", (copy, At(0), n, m, apart, n, itemsize)),
        *panels.steps(dtype, (m, n, k), (copy, apart), places),
        RoutineCall("turned", (r, copy, columns, n, n, apart, itemsize)),
        RoutineCall(letter("laset"), ("U", n, columns - 1, zero, zero, below, n)),
    ]
    if not vectors:
        return steps
    return [
        *steps,
        RoutineCall(letter("laset"), ("A", m, columns, zero, one, copy, apart)),
        reflected.multiplied(dtype, (m, k, columns), places, (copy, apart), True),
        RoutineCall("turned", (q, copy, m, columns, columns, apart, itemsize)),
    ]


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
