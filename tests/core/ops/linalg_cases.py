"""Cases of the factorizations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jax import lax

import treadle as td
import treadle.numpy as tnp
from tests.core.ops.cases import Case, Draw, complexes, normal
from treadle.ops import condensed, eigen, lu, orthogonal, schur, singular, triangular
from treadle.trace.op import Op

Finish = Callable[[Any, Any], Any]
"""From a NumPy and the results to what does not depend on signs and phases."""


@dataclass(frozen=True)
class Finished(Case):
    """A case of which not all results are unique: `finish` makes others of them."""

    finish: Finish = lambda np, outs: outs

    def function(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(self.finish(tnp, self.op(*arrays, **self.params)))

    def expected(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(self.finish(jnp, self.oracle(*arrays)))


@dataclass(frozen=True)
class Solved(Case):
    """`lu_solve` with the factors of its matrix."""

    def function(self, *arrays: Any) -> tuple[Any, ...]:
        a, b = arrays
        a = tnp.asarray(a)
        factors, _, order = lu.lu(tnp.matrix_transpose(td.stop_gradient(a)))
        return (lu.lu_solve(a, factors, order, b, **self.params),)


def definite(*shape: int, imaginary: float = 0) -> Draw:
    """Positive definite matrices."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        x = rng.normal(size=shape)
        if imaginary:
            x = x + 1j * rng.normal(size=shape)
        return x @ np.swapaxes(x, -1, -2).conj() + 2 * np.eye(shape[-1])

    return draw


def apart(*shape: int, imaginary: float = 0) -> Draw:
    """Matrices whose singular values and eigenvalues are not close to each other, nor
    to zero."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        x = 0.2 * rng.normal(size=shape)
        if imaginary:
            x = x + 0.2j * rng.normal(size=shape)
        return x + np.eye(*shape[-2:]) * (1.0 + np.arange(shape[-1]))

    return draw


def _mirrored(x: Any) -> Any:
    below = jnp.tril(x, -1)
    diagonal = jnp.eye(x.shape[-1]) * jnp.real(x)
    return below + diagonal + jnp.swapaxes(below, -1, -2).conj()


def _turned(np: Any, x: Any) -> Any:
    """Columns whose first elements are positive."""
    first = x[..., :1, :]
    return x * np.conj(first / np.abs(first))


def _columns(np: Any, outs: Any) -> Any:
    return [outs[0], _turned(np, np.conj(np.matrix_transpose(outs[1])))]


def _singular(np: Any, outs: Any) -> Any:
    u, s, vh = outs
    turned = np.conj(u[..., :1, :] / np.abs(u[..., :1, :]))
    return [u * turned, s, np.conj(np.matrix_transpose(turned)) * vh]


def _solve(label: str, a: Draw, b: Draw, **changes: bool) -> Case:
    how = triangular.LOWER | changes
    return Case(
        triangular.triangular_solve,
        lambda a, b: lax.linalg.triangular_solve(
            a,
            b,
            left_side=how["left"],
            lower=how["lower"],
            transpose_a=how["transposed"],
            unit_diagonal=how["unit_diagonal"],
        ),
        (a, b),
        how,
        label=label,
    )


def _lu(label: str, a: Draw) -> Case:
    def oracle(a: Any) -> Any:
        factors, pivots, order = lax.linalg.lu(jnp.matrix_transpose(a))
        return jnp.matrix_transpose(factors), pivots, order

    return Case(lu.lu, oracle, (a,), label=label)


def _qr(label: str, a: Draw, full: bool = False) -> Case:
    return Finished(
        orthogonal.qr,
        lambda a: jnp.linalg.qr(a, "complete" if full else "reduced"),
        (a,),
        {"full": full, "vectors": True},
        label=label,
    )


def _svd(label: str, a: Draw, full: bool = False) -> Case:
    return Finished(
        singular.svd,
        lambda a: jnp.linalg.svd(a, full_matrices=full),
        (a,),
        {"full": full, "vectors": True},
        label=label,
        finish=_singular,
    )


def _eigh(label: str, a: Draw, lower: bool) -> Case:
    def oracle(a: Any) -> Any:
        if not lower:
            a = jnp.matrix_transpose(a).conj()
        w, v = jnp.linalg.eigh(_mirrored(a))
        return w, jnp.matrix_transpose(v).conj()

    params = {"lower": lower, "vectors": True}
    return Finished(
        eigen.eigh, oracle, (a,), params, label=label, finish=_columns, tolerance=1e-8
    )


def _form(op: Op, label: str, a: Draw, oracle: Any) -> Case:
    def product(np: Any, outs: Any) -> Any:
        middle, outer = (np.matrix_transpose(x) for x in outs)
        # What is below the subdiagonal is LAPACK's own.
        middle, back = np.triu(middle, -1), np.conj(np.matrix_transpose(outer))
        return [outer @ middle @ back, outer @ back]

    def factors(a: Any) -> Any:
        return [jnp.matrix_transpose(x) for x in oracle(jnp.matrix_transpose(a))]

    return Finished(op, factors, (a,), label=label, smooth=False, finish=product)


def _condensed(op: Op, label: str, a: Draw, oracle: Any, **params: Any) -> Case:
    """Forms as LAPACK leaves them, of transposes."""

    def factors(a: Any) -> Any:
        form, *rest = oracle(jnp.matrix_transpose(a), **params)
        return [jnp.matrix_transpose(form), *rest]

    return Case(op, factors, (a,), params, label=label, smooth=False)


_hessenberg = partial(jax.scipy.linalg.hessenberg, calc_q=True)


def _left_vectors(a: Any) -> Any:
    w, left, right = lax.linalg.eig(jnp.matrix_transpose(a))
    return [w, jnp.matrix_transpose(right), jnp.matrix_transpose(left)]


SQUARE = apart(2, 3, 3)
COMPLEX = apart(3, 3, imaginary=1)

ALL = [
    Case(
        triangular.cholesky,
        lambda a: lax.linalg.cholesky(_mirrored(a), symmetrize_input=False),
        (definite(2, 3, 3),),
    ),
    Case(
        triangular.cholesky,
        lambda a: lax.linalg.cholesky(_mirrored(a), symmetrize_input=False),
        (definite(3, 3, imaginary=1),),
        label="complex",
    ),
    _solve("", SQUARE, normal(2, 3, 2)),
    _solve("upper", SQUARE, normal(2, 3, 2), lower=False),
    _solve("unit", SQUARE, normal(2, 3, 2), unit_diagonal=True),
    _solve("unit-upper", apart(3, 3), normal(3, 2), unit_diagonal=True, lower=False),
    _solve("transposed", apart(3, 3), normal(3, 2), transposed=True),
    _solve("right", apart(3, 3), normal(2, 3), left=False),
    _solve("right-transposed", SQUARE, normal(2, 2, 3), left=False, transposed=True),
    _solve("complex", COMPLEX, complexes(3, 2), transposed=True),
    _lu("", normal(2, 3, 3)),
    _lu("tall", normal(2, 4)),
    _lu("wide", normal(4, 2)),
    _lu("complex", complexes(3, 3)),
    Solved(
        lu.lu_solve,
        jnp.linalg.solve,
        (SQUARE, normal(2, 3, 2)),
        {"transposed": False},
    ),
    Solved(
        lu.lu_solve,
        lambda a, b: jnp.linalg.solve(jnp.matrix_transpose(a), b),
        (apart(3, 3), normal(3, 2)),
        {"transposed": True},
        label="transposed",
    ),
    Solved(
        lu.lu_solve,
        jnp.linalg.solve,
        (COMPLEX, complexes(3, 2)),
        {"transposed": False},
        label="complex",
    ),
    _qr("", normal(2, 3, 3)),
    _qr("tall", normal(4, 2)),
    _qr("complex", complexes(3, 2)),
    _qr("full", normal(3, 3), full=True),
    Case(
        orthogonal.qr,
        lambda a: [jnp.linalg.qr(a, "r")],
        (normal(2, 4, 3),),
        {"full": False, "vectors": False},
        label="triangle",
    ),
    Case(
        orthogonal.qr_vectors,
        lambda a: list(jnp.linalg.qr(a, mode="raw")),
        (apart(2, 4, 3),),
        smooth=False,
    ),
    Case(
        orthogonal.qr_vectors,
        lambda a: list(jnp.linalg.qr(a, mode="raw")),
        (apart(2, 3, imaginary=1),),
        label="wide",
        smooth=False,
    ),
    _svd("", SQUARE),
    _svd("tall", apart(4, 2)),
    _svd("wide", apart(2, 4)),
    _svd("complex", apart(3, 2, imaginary=1)),
    _svd("full", apart(3, 3), full=True),
    Case(
        singular.svd,
        lambda a: [jnp.linalg.svd(a, compute_uv=False)],
        (apart(2, 2, 3),),
        {"full": False, "vectors": False},
        label="values",
    ),
    _eigh("", definite(2, 3, 3), lower=True),
    _eigh("upper", apart(3, 3), lower=False),
    _eigh("complex", definite(3, 3, imaginary=1), lower=True),
    Case(
        eigen.eigh,
        lambda a: [jnp.linalg.eigvalsh(_mirrored(a))],
        (apart(2, 3, 3),),
        {"lower": True, "vectors": False},
        label="values",
    ),
    Case(
        eigen.eig,
        lambda a: [jnp.linalg.eigvals(jnp.matrix_transpose(a))],
        (apart(2, 3, 3),),
        {"vectors": False, "left": False},
        label="values",
    ),
    Case(
        eigen.eig,
        lambda a: [jnp.linalg.eigvals(jnp.matrix_transpose(a))],
        (COMPLEX,),
        {"vectors": False, "left": False},
        label="complex",
    ),
    _form(schur.schur, "", SQUARE, jax.scipy.linalg.schur),
    _form(schur.schur, "blocks", normal(4, 4), jax.scipy.linalg.schur),
    _form(
        schur.schur,
        "complex",
        COMPLEX,
        partial(jax.scipy.linalg.schur, output="complex"),
    ),
    _form(schur.hessenberg, "", normal(4, 4), _hessenberg),
    _form(schur.hessenberg, "complex", complexes(3, 3), _hessenberg),
    Case(
        eigen.eig,
        _left_vectors,
        (SQUARE,),
        {"vectors": True, "left": True},
        label="left",
        smooth=False,
    ),
    _condensed(
        condensed.hessenberg_vectors, "", normal(2, 4, 4), lax.linalg.hessenberg
    ),
    _condensed(condensed.hessenberg_vectors, "complex", COMPLEX, lax.linalg.hessenberg),
    _condensed(condensed.tridiagonal, "", SQUARE, lax.linalg.tridiagonal, lower=True),
    _condensed(
        condensed.tridiagonal, "upper", COMPLEX, lax.linalg.tridiagonal, lower=False
    ),
]

QUICK = {
    "cholesky",
    "triangular_solve",
    "lu",
    "lu_solve",
    "qr-tall",
    "qr_vectors",
    "svd-tall",
    "eigh-complex",
    "eig-values",
    "hessenberg_vectors",
    "tridiagonal-upper",
    "schur",
    "hessenberg",
}
CASES = [replace(case, slow=case.name not in QUICK) for case in ALL]
