"""Schur and Hessenberg forms: what functions of matrices are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.errors import at
from treadle.ops.matrix import check, check_finite, in_front, matrix_by_matrix
from treadle.optional import needed_for
from treadle.trace.interpreter import current_source
from treadle.trace.lowering import Routine
from treadle.trace.op import Op
from treadle.trace.routine import (
    STATUS,
    At,
    RoutineCall,
    Script,
    copied,
    if_finite,
    lead_of,
    most,
    named,
    nan_if_failed,
    stride_of,
)
from treadle.trace.value import typeof

_BLOCK = 32
"""Columns that LAPACK works on together, if it has the memory."""


def _pair_type(name: str, a: ArrayType) -> Sequence[ArrayType]:
    check(name, a, square=1)
    return [a, a]


def _by_scipy(name: str, a: Any, **options: Any) -> Sequence[Any]:
    """The factors where the LAPACK of this NumPy was not found: NumPy has no function
    for them."""
    with needed_for(f"{name} with a NumPy whose LAPACK Treadle does not know"):
        import scipy.linalg
    t = typeof(np.asarray(a))
    function = getattr(scipy.linalg, name)

    def pair(x: Any) -> Sequence[Any]:
        check_finite(x)
        return [part.T for part in function(x.T, **options)]

    return matrix_by_matrix(pair, [t, t], lead_of(t), np.asarray(a))


def _not_unique(name: str, primals: Sequence[Any]) -> Any:
    raise NotImplementedError(
        f"{name} of {typeof(primals[0])} has no derivative: its factors are not unique"
        f"{at(current_source())}\nFunctions of matrices have one: `sqrtm`, `expm`, "
        "`solve_sylvester`. Hold the factors constant otherwise: "
        "`td.stop_gradient(a)`."
    )


# schur --------------------------------------------------------------------------------


def _schur_script(types: Any, outs: Any, params: Any) -> Script:
    (a,) = types
    lead, size, n = lead_of(a), a.dtype.itemsize, a.shape[-1]
    count, values, more, work, *squares = (At(i) for i in range(3, 9))
    length, apart = 136 * n + 4224, stride_of(n, a.dtype)
    form, vectors = [(square, apart) for square in squares]
    # Nothing is chosen or sorted: those arguments are not read.
    head = "V", "N", STATUS, n, *form, count
    last: tuple[Any, ...] = (values, more, *vectors, work, length, STATUS, STATUS)
    if dtypes.is_complex(a.dtype):
        last = (values, *vectors, work, length, more, STATUS, STATUS)
    steps = (
        copied(a.dtype, form, (At(0), n), n, n),
        RoutineCall(named(a.dtype, "gees"), (*head, *last)),
        copied(a.dtype, (At(1), n), form, n, n),
        copied(a.dtype, (At(2), n), vectors, n, n),
        *[nan_if_failed(i, t, lead) for i, t in enumerate(outs, 1)],
    )
    square = n * apart * size
    blocks = 8, n * size, n * size, length * size, square, square
    return Script(lead, blocks, if_finite(a, lead, steps))


schur = Op(
    "schur",
    partial(_pair_type, "schur"),
    partial(_by_scipy, "schur"),
    lowering=Routine(_schur_script),
    jvp=lambda primals, tangents: _not_unique("schur", primals),
    batch=lambda size, args, axes: (schur(*in_front(args, axes, size)), [0, 0]),
    multiple=True,
)
"""The *transposes* of T and Z with A = Z T Zᴴ, of the transpose of A: Z is unitary, and
T upper triangular but for blocks of two rows, which pairs of complex eigenvalues of
real matrices have."""

# hessenberg ---------------------------------------------------------------------------


def _hessenberg_script(types: Any, outs: Any, params: Any) -> Script:
    (a,) = types
    lead, size, n = lead_of(a), a.dtype.itemsize, a.shape[-1]
    tau, work, copy, name = At(3), At(4), At(5), partial(named, a.dtype)
    length, apart = _BLOCK * n + 65 * 64, stride_of(n, a.dtype)
    make = "unghr" if dtypes.is_complex(a.dtype) else "orghr"
    last = tau, work, length, STATUS
    matrix = copy, apart
    steps = (
        copied(a.dtype, matrix, (At(0), n), n, n),
        RoutineCall(name("gehrd"), (n, 1, n, *matrix, *last)),
        copied(a.dtype, (At(1), n), matrix, n, n),
        RoutineCall(name(make), (n, 1, n, *matrix, *last)),
        copied(a.dtype, (At(2), n), matrix, n, n),
    )
    blocks = most(n, 1) * size, length * size, n * apart * size
    return Script(lead, blocks, steps)


hessenberg = Op(
    "hessenberg",
    partial(_pair_type, "hessenberg"),
    partial(_by_scipy, "hessenberg", calc_q=True),
    lowering=Routine(_hessenberg_script),
    jvp=lambda primals, tangents: _not_unique("hessenberg", primals),
    batch=lambda size, args, axes: (hessenberg(*in_front(args, axes, size)), [0, 0]),
    multiple=True,
)
"""The *transposes* of H and Q with A = Q H Qᴴ, of the transpose of A: Q is unitary, and
H zero below its first subdiagonal. (What LAPACK leaves there is its own.)"""
