"""Hessenberg and tridiagonal forms as LAPACK leaves them: with the vectors of the
reflections that lead there in the place of the zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.errors import at
from treadle.ops.matrix import check, in_front, matrix_by_matrix
from treadle.trace.interpreter import current_source
from treadle.trace.lowering import Routine
from treadle.trace.op import Op
from treadle.trace.routine import (
    STATUS,
    At,
    RoutineCall,
    Script,
    lead_of,
    named,
    nbytes_behind,
)
from treadle.trace.value import typeof

_BLOCK = 32
"""Columns that LAPACK works on together, if it has the memory."""


def _no_derivative(name: str, primals: Sequence[Any]) -> Any:
    raise NotImplementedError(
        f"lax.linalg.{name} of {typeof(primals[0])} has no derivative"
        f"{at(current_source())}\nHold the factors constant: `td.stop_gradient(a)`. "
        "Eigenvalues, and functions of matrices, have one."
    )


def _reflection(x: Any) -> tuple[Any, Any, Any]:
    """The vector and the factor of a reflection whose adjoint makes all elements but
    the first zero, and what that one becomes: LAPACK's ?LARFG."""
    v, first, rest = np.array(x), x[0], np.linalg.norm(x[1:])
    v[0] = 1
    if rest == 0 and np.imag(first) == 0:
        return v, v.dtype.type(0), first
    size = -np.copysign(np.hypot(abs(first), rest), np.real(first))
    v[1:] = x[1:] / (first - size)
    return v, v.dtype.type((size - first) / size), v.dtype.type(size)


# hessenberg ---------------------------------------------------------------------------


def _hessenberg_type(a: ArrayType) -> Sequence[ArrayType]:
    check("hessenberg_vectors", a, square=1)
    *lead, n, _ = a.shape
    return [a, ArrayType((*lead, n - 1), a.dtype)]


def _hessenberg_run(a: Any) -> Sequence[Any]:
    def form(x: Any) -> Sequence[Any]:
        x, n = np.array(x.T), len(x)
        factors = np.zeros(n - 1, x.dtype)
        for i in range(n - 1):
            v, factors[i], size = _reflection(x[i + 1 :, i])
            x[:, i + 1 :] -= factors[i] * np.outer(x[:, i + 1 :] @ v, v.conj())
            rest = x[i + 1 :, i + 1 :]
            rest -= factors[i].conj() * np.outer(v, v.conj() @ rest)
            x[i + 1, i], x[i + 2 :, i] = size, v[1:]
        return x.T, factors

    t = typeof(np.asarray(a))
    return matrix_by_matrix(form, _hessenberg_type(t), lead_of(t), np.asarray(a))


def _hessenberg_script(types: Any, outs: Any, params: Any) -> Script:
    (a,) = types
    lead, n = lead_of(a), a.shape[-1]
    length = _BLOCK * n + 65 * 64
    last = At(2), At(3), length, STATUS
    steps = (
        RoutineCall("bytes", (At(1), At(0), nbytes_behind(a, lead))),
        RoutineCall(named(a.dtype, "gehrd"), (n, 1, n, At(1), n, *last)),
    )
    return Script(lead, (length * a.dtype.itemsize,), steps)


hessenberg_vectors = Op(
    "hessenberg_vectors",
    _hessenberg_type,
    _hessenberg_run,
    lowering=Routine(_hessenberg_script),
    jvp=lambda primals, tangents: _no_derivative("hessenberg", primals),
    batch=lambda size, args, axes: (
        hessenberg_vectors(*in_front(args, axes, size)),
        [0, 0],
    ),
    multiple=True,
)
"""Of the *transpose* of a matrix, the transpose of its Hessenberg form with the
reflections' vectors below it, and their factors."""

# tridiagonal --------------------------------------------------------------------------


def _tridiagonal_type(a: ArrayType, *, lower: bool) -> Sequence[ArrayType]:
    check("tridiagonal", a, square=1)
    *lead, n, _ = a.shape
    real = dtypes.to_real(a.dtype)
    diagonals = ArrayType((*lead, n), real), ArrayType((*lead, n - 1), real)
    return [a, *diagonals, ArrayType((*lead, n - 1), a.dtype)]


def _tridiagonal_run(a: Any, *, lower: bool) -> Sequence[Any]:
    def form(x: Any) -> Sequence[Any]:
        given, n = np.array(x.T), len(x)
        # The upper triangle's, from the last row on, is the lower one's of the matrix
        # whose rows and columns are counted from behind.
        x = given if lower else given[::-1, ::-1]
        whole = np.tril(x) + np.tril(x, -1).T.conj()
        np.fill_diagonal(whole, np.real(np.diagonal(x)))
        beside, factors = np.zeros(n - 1, dtypes.to_real(x.dtype)), []
        for i in range(n - 1):
            v, factor, size = _reflection(whole[i + 1 :, i])
            turn = np.eye(n - 1 - i) - factor * np.outer(v, v.conj())
            rest = whole[i + 1 :, i + 1 :]
            rest[...] = turn.T.conj() @ rest @ turn
            beside[i] = np.real(size)
            factors.append(factor)
            x[i + 1, i], x[i + 2 :, i] = size, v[1:]
        np.fill_diagonal(x, np.real(np.diagonal(whole)))
        order = slice(None) if lower else slice(None, None, -1)
        diagonal = np.real(np.diagonal(whole))
        taus = np.array(factors, x.dtype)
        return given.T, diagonal[order], beside[order], taus[order]

    t = typeof(np.asarray(a))
    types = _tridiagonal_type(t, lower=lower)
    return matrix_by_matrix(form, types, lead_of(t), np.asarray(a))


def _tridiagonal_script(types: Any, outs: Any, params: Any) -> Script:
    (a,) = types
    lead, n = lead_of(a), a.shape[-1]
    name = "hetrd" if dtypes.is_complex(a.dtype) else "sytrd"
    uplo, length = "L" if params["lower"] else "U", _BLOCK * n
    forms = At(1), n, At(2), At(3), At(4)
    steps = (
        RoutineCall("bytes", (At(1), At(0), nbytes_behind(a, lead))),
        RoutineCall(named(a.dtype, name), (uplo, n, *forms, At(5), length, STATUS)),
    )
    return Script(lead, (length * a.dtype.itemsize,), steps)


tridiagonal = Op(
    "tridiagonal",
    _tridiagonal_type,
    _tridiagonal_run,
    lowering=Routine(_tridiagonal_script),
    jvp=lambda primals, tangents, lower: _no_derivative("tridiagonal", primals),
    batch=lambda size, args, axes, *, lower: (
        tridiagonal(*in_front(args, axes, size), lower=lower),
        [0] * 4,
    ),
    multiple=True,
)
"""Of the *transpose* of a Hermitian matrix, of which one triangle is read: the
transpose of what LAPACK leaves in it, the diagonal and what is beside it of the
tridiagonal form, and the factors of the reflections, whose vectors are on the other
side of it."""
