"""Eigenvalues and eigenvectors, of Hermitian matrices and of others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.late import number
from treadle.ops import complex as parts
from treadle.ops import reflected
from treadle.ops.arithmetic import add, div, mul, neg, sub
from treadle.ops.cast import convert
from treadle.ops.gather import take_along_axis
from treadle.ops.lu import lu, lu_solve
from treadle.ops.matrix import (
    adjoint,
    as_columns,
    as_rows,
    check,
    conj,
    diagonal_of,
    flip,
    in_front,
    main_diagonal,
    matrix_by_matrix,
    mirrored,
    product,
    real,
)
from treadle.ops.movement import full, spread
from treadle.ops.reduce import argmax, reduce_sum
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
    if_needed,
    lead_of,
    most,
    named,
    nan_if_failed,
    nbytes_behind,
    stride_of,
)
from treadle.trace.value import typeof


def _quotients(change: Any, values: Any) -> Any:
    """The elements of a matrix over the differences of eigenvalues, ``w[j] - w[i]``;
    zeros on the diagonal."""
    t = typeof(change)
    gaps = sub(as_rows(values, t.shape), as_columns(values, t.shape))
    gaps = diagonal_of(full(t.shape, 1, typeof(values).dtype), gaps)
    if typeof(gaps).dtype != t.dtype:
        gaps = convert(gaps, dtype=t.dtype)
    return diagonal_of(full(t.shape, 0, t.dtype), div(change, gaps))


# eigh ---------------------------------------------------------------------------------


def _eigh_type(a: ArrayType, *, lower: bool, vectors: bool) -> Sequence[ArrayType]:
    check("eigh", a, square=1)
    w = ArrayType(a.shape[:-1], dtypes.to_real(a.dtype))
    return [w, ArrayType(a.shape, a.dtype)] if vectors else [w]


def _eigh_run(a: Any, *, lower: bool, vectors: bool) -> Sequence[Any]:
    t = typeof(np.asarray(a))
    uplo: Literal["L", "U"] = "L" if lower else "U"

    def pairs(x: Any) -> Sequence[Any]:
        if not vectors:
            return (np.linalg.eigvalsh(x, uplo),)
        w, v = np.linalg.eigh(x, uplo)
        return w, v.T.conj()

    types = _eigh_type(t, lower=lower, vectors=vectors)
    return matrix_by_matrix(pairs, types, lead_of(t), np.asarray(a))


_LARGE = 128
"""From this order on, matrices of eigenvectors are laid out for caches."""


_AT_ONCE = 192
"""Up to this order, eigenvectors are multiplied with their base by one call."""


def _is_large(n: int) -> int:
    return int(n >= _LARGE)


def _is_small(n: int) -> int:
    return int(n < _LARGE)


class _Work(NamedTuple):
    """Work memory of ?SYEVD and ?HEEVD: numbers, reals and integers."""

    numbers: At
    reals: At
    integers: At
    lengths: tuple[int, int, int]

    def args(self, dtype: np.dtype) -> tuple[Argument, ...]:
        """As these take them."""
        (numbers, *_), reals = self.lengths, (self.reals, self.lengths[1])
        more = reals if dtypes.is_complex(dtype) else ()
        return self.numbers, numbers, *more, self.integers, self.lengths[2], STATUS


def _eigh_script(types: Any, outs: Any, params: Any) -> Script:
    """LAPACK sees the conjugate, and leaves the eigenvectors of that as rows: Vᴴ."""
    (a,), vectors = types, params["vectors"]
    lead, size, n = lead_of(a), a.dtype.itemsize, a.shape[-1]
    first = 1 + len(outs)
    places = [At(first + i) for i in range(7)]
    matrix = At(2) if vectors else places[3]
    lengths = 2 * n * n + 40 * n + 1, 2 * n * n + 5 * n + 1, 5 * n + 3
    work = _Work(places[0], places[2], places[1], lengths)
    real_size = size // 2 if dtypes.is_complex(a.dtype) else size
    of_reals = lengths[1] * real_size if dtypes.is_complex(a.dtype) else 0
    blocks = [lengths[0] * size, 8 * lengths[2], of_reals]
    uplo = "U" if params["lower"] else "L"
    name = named(a.dtype, "heevd" if dtypes.is_complex(a.dtype) else "syevd")
    args = "V" if vectors else "N", uplo, n, matrix, n, At(1), *work.args(a.dtype)
    steps: list[Step] = [
        RoutineCall("bytes", (matrix, At(0), nbytes_behind(a, lead))),
        RoutineCall(name, args),
    ]
    if vectors:
        is_small, is_large = number(_is_small, (n,)), number(_is_large, (n,))
        steps = [step._replace(needed=is_small) for step in steps]
        apart = stride_of(n, a.dtype)
        square, line = (n * apart * size * is_large, 2 * n * size * is_large)
        blocks += [square, square, line, 64]
        large = _large_steps(a.dtype, n, uplo, work, places[3:])
        steps += if_needed(is_large, large)
        blocks[0] = most(blocks[0], number(_large_length, (n,)) * size)
    else:
        blocks.append(nbytes_behind(a, lead))
    failed = [nan_if_failed(i, t, lead) for i, t in enumerate(outs, 1)]
    return Script(lead, tuple(blocks), (*steps, *failed))


def _large_length(n: int) -> int:
    return reflected.length(n, n, n) if _is_large(n) else 0


def _large_steps(
    dtype: np.dtype, n: int, uplo: str, work: _Work, places: Sequence[At]
) -> list[Step]:
    """What ?SYEVD does, with matrices of rows that do not fall into few sets of a
    cache, and a product that threads share."""
    matrix, found, lines, scale = places
    letter, of_reals = partial(named, dtype), partial(named, dtypes.to_real(dtype))
    apart, size, zero = stride_of(n, dtype), dtype.itemsize, dtype.type(0)
    parts, kind = (2, "he") if dtypes.is_complex(dtype) else (1, "sy")
    below, factors, rest = lines, lines.plus(n * size), work.args(dtype)
    numbers, real_size = n * apart * parts, size // parts
    steps: list[Step] = [
        RoutineCall(letter("laset"), ("A", apart, n, zero, zero, matrix, apart)),
        RoutineCall(letter("lacpy"), (uplo, n, n, At(0), n, matrix, apart)),
        RoutineCall("exponent", (scale, matrix, numbers, real_size)),
        RoutineCall(of_reals("scal"), (numbers, scale, matrix, 1)),
        RoutineCall(
            letter(kind + "trd"),
            (uplo, n, matrix, apart, At(1), below, factors, *rest[:2], STATUS),
        ),
        RoutineCall(letter("stedc"), ("I", n, At(1), below, found, apart, *rest)),
        *_multiplied(dtype, n, uplo, (matrix, factors, found), work),
        RoutineCall(of_reals("scal"), (n, scale.plus(real_size), At(1), 1)),
        copied(dtype, (At(2), n), (found, apart), n, n),
    ]
    return [step._replace(sound=True) for step in steps]


def _multiplied(
    dtype: np.dtype, n: int, uplo: str, places: tuple[At, At, At], work: _Work
) -> list[Step]:
    """Eigenvectors of the tridiagonal form multiplied with the base that leads to it.

    places: of the reflections, of their factors, and of the vectors.
    """
    (matrix, factors, found), apart = places, stride_of(n, dtype)
    matrices = matrix, apart, factors, found, apart
    args = "L", uplo, "N", n, n, *matrices, *work.args(dtype)[:2], STATUS
    if dtypes.is_complex(dtype):
        return [RoutineCall(named(dtype, "unmtr"), args)]
    at_once = RoutineCall(named(dtype, "ormtr"), args)
    size, backward = dtype.itemsize, uplo == "U"
    vectors = matrix.plus(apart * size if backward else size), apart
    base = reflected.Reflections(dtype, n - 1, n - 1, vectors, False, factors, backward)
    target = found if backward else found.plus(size)
    parts = reflected.steps(base, n, (target, apart), work.numbers)
    has_parts = exceeds(n, _AT_ONCE)
    return [
        at_once._replace(needed=exceeds(_AT_ONCE + 1, n)),
        *if_needed(has_parts, parts),
    ]


def _eigh_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, lower: bool, vectors: bool
) -> Any:
    """Giles 2008, section 3.1: with G = Vᴴ dA V, dw = diag(G) and dV = V (F ∘ G), where
    F is 1 / (w[j] - w[i])."""
    w, vh = eigh(*primals, lower=lower, vectors=True)
    change = mirrored(tangents[0], lower)
    change = product(product(vh, change), adjoint(vh))
    dw = real(main_diagonal(change))
    if not vectors:
        return [w], [dw]
    return [w, vh], [dw, neg(product(_quotients(change, w), vh))]


eigh = Op(
    "eigh",
    _eigh_type,
    _eigh_run,
    lowering=Routine(_eigh_script, alone=(0, {"vectors": False})),
    jvp=_eigh_jvp,
    batch=lambda size, args, axes, *, lower, vectors: (
        eigh(*in_front(args, axes, size), lower=lower, vectors=vectors),
        [0, 0] if vectors else [0],
    ),
    multiple=True,
)
"""``(w, Vᴴ)`` with A = V diag(w) Vᴴ, for a Hermitian matrix of which one triangle alone
is read; w in ascending order. Without `vectors`, w alone."""

# eig ----------------------------------------------------------------------------------


def _count(vectors: bool, left: bool) -> int:
    return 1 + vectors + left


def _eig_type(a: ArrayType, *, vectors: bool, left: bool) -> Sequence[ArrayType]:
    check("eig", a, square=1)
    dtype = np.result_type(a.dtype, np.complex64)
    w = ArrayType(a.shape[:-1], dtype)
    return [w] + [ArrayType(a.shape, dtype)] * (vectors + left)


def _eig_run(a: Any, *, vectors: bool, left: bool) -> Sequence[Any]:
    t = typeof(np.asarray(a))

    def pairs(x: Any) -> Sequence[Any]:
        if not vectors and not left:
            return (np.linalg.eigvals(x.T),)
        w, v = np.linalg.eig(x.T)
        if not left:
            return w, v.T
        # uᴴ A = w uᴴ: rows of the inverse, with the lengths and phases of LAPACK's.
        u = np.linalg.inv(v).conj()
        u = u / np.linalg.norm(u, axis=-1, keepdims=True)
        largest = np.take_along_axis(u, np.argmax(abs(u), -1)[:, None], -1)
        u = u * (largest.conj() / abs(largest))
        return (w, v.T, u) if vectors else (w, u)

    types = _eig_type(t, vectors=vectors, left=left)
    return matrix_by_matrix(pairs, types, lead_of(t), np.asarray(a))


def _eig_script(types: Any, outs: Any, params: Any) -> Script:
    (a,), wanted = types, (params["left"], params["vectors"])
    lead, size, n = lead_of(a), a.dtype.itemsize, a.shape[-1]
    first, apart = 1 + len(outs), stride_of(a.shape[-1], a.dtype)
    copy, work, found, left, right, imaginary = (At(first + i) for i in range(6))
    length = 136 * n + 4224
    how = *("V" if made else "N" for made in wanted), n, copy, apart
    failed = [nan_if_failed(i, t, lead) for i, t in enumerate(outs, 1)]
    begin = copied(a.dtype, (copy, apart), (At(0), n), n, n)
    square = n * apart * size
    blocks = [square, length * size, n * size, *(square * made for made in wanted)]
    routine = partial(RoutineCall, named(a.dtype, "geev"))
    to: list[Argument] = []
    for rows, made in zip((left, right), wanted, strict=True):
        to += [rows, apart] if made else [STATUS, 1]
    # The right vectors are the first result, if there are any.
    results = [(At(2), right)] if wanted[1] else []
    results += [(At(len(outs)), left)] if wanted[0] else []
    if dtypes.is_complex(a.dtype):
        steps = [begin, routine((*how, At(1), *to, work, length, found, STATUS))]
        for result, rows in results:
            steps.append(copied(a.dtype, (result, n), (rows, apart), n, n))
        return Script(lead, tuple(blocks), (*steps, *failed))
    copy_of = partial(RoutineCall, named(a.dtype, "copy"))
    steps = [
        begin,
        routine((*how, found, imaginary, *to, work, length, STATUS)),
        copy_of((n, found, 1, At(1), 2)),
        copy_of((n, imaginary, 1, At(1, size), 2)),
    ]
    for result, rows in results:
        steps.append(RoutineCall("pairs", (result, imaginary, rows, n, apart, size)))
    return Script(lead, (*blocks, n * size), (*steps, *failed))


def _eig_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, vectors: bool, left: bool
) -> Any:
    """Giles 2008, section 3.1: with G = V⁻¹ dA V, dw = diag(G), and dV = V (F ∘ G) but
    for the vectors' lengths and phases, which stay as LAPACK makes them. The left ones
    are right ones of Aᴴ, with conjugate eigenvalues."""
    w, *found = eig(*primals, vectors=True, left=left)
    da = flip(tangents[0])
    if typeof(da).dtype != typeof(w).dtype:
        da = convert(da, dtype=typeof(w).dtype)
    dw, change = _of_vectors(w, found[0], da)
    changes = [change] if vectors else []
    if left:
        changes.append(_of_vectors(conj(w), found[1], adjoint(da))[1])
    return [w, *found[0 if vectors else 1 :]], [dw, *changes]


def _of_vectors(w: Any, rows: Any, da: Any) -> tuple[Any, Any]:
    """The changes of eigenvalues and, as rows, of eigenvectors."""
    v = flip(rows)
    factors, _, order = lu(rows)
    change = lu_solve(v, factors, order, product(da, v), transposed=False)
    dv = flip(product(v, _quotients(change, w)))
    return main_diagonal(change), _kept_in_norm(rows, dv)


def _kept_in_norm(rows: Any, change: Any) -> Any:
    """The changes of vectors without what changes their length, or turns their largest
    element away from the real numbers."""
    t = typeof(rows)
    last = t.ndim - 1
    along = reduce_sum(real(mul(conj(rows), change)), axes=(last,))
    size = add(mul(real(rows), real(rows)), mul(parts.imag(rows), parts.imag(rows)))
    place = spread(argmax(size, axis=last), last, 1)
    largest = real(take_along_axis(rows, place, last))
    turned = parts.imag(take_along_axis(change, place, last))
    turn = reduce_sum(div(turned, largest), axes=(last,))
    wrong = as_columns(parts.complex_(along, turn), t.shape)
    return sub(change, mul(wrong, rows))


eig = Op(
    "eig",
    _eig_type,
    _eig_run,
    lowering=Routine(_eig_script, alone=(0, {"vectors": False, "left": False})),
    jvp=_eig_jvp,
    batch=lambda size, args, axes, *, vectors, left: (
        eig(*in_front(args, axes, size), vectors=vectors, left=left),
        [0] * _count(vectors, left),
    ),
    multiple=True,
)
"""Eigenvalues of the *transpose* of a matrix and, as rows, its eigenvectors: complex,
of length 1, and their largest element real. Behind them the `left` ones, u with
``uᴴ A = w uᴴ``."""
