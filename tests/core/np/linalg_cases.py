"""The table of the functions of linear algebra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

import treadle.numpy as tnp
from tests.core.ops.linalg_cases import apart, definite
from treadle import tree

Draw = Callable[[np.random.Generator], np.ndarray]


def matrix(*shape: int) -> Draw:
    return lambda rng: rng.normal(size=shape)


def turned(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same with an imaginary part."""
    return x + 0.1j * rng.normal(size=x.shape)


@dataclass(frozen=True)
class Case:
    """A function of `tnp.linalg` (as `la`) of some arguments.

    theirs: the same of NumPy's arrays; by default the same expression of `np.linalg`.
    smooth: whether it has derivatives.
    """

    name: str
    ours: Callable[..., Any]
    args: tuple[Draw, ...]
    theirs: Callable[..., Any] | None = None
    smooth: bool = True

    def draw(self, dtype: str = "float64", seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        drawn = [draw(rng) for draw in self.args]
        if dtype.startswith("c"):
            drawn = [turned(x, rng) for x in drawn]
        return [x.astype(dtype) for x in drawn]

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        return tuple(tree.leaves(self.ours(tnp.linalg, *args)))

    def wanted(self, *args: Any) -> tuple[Any, ...]:
        if self.theirs is None:
            return tuple(tree.leaves(self.ours(np.linalg, *args)))
        found = self.theirs(*args)
        return tuple(found) if isinstance(found, list | tuple) else (found,)


def hermitian(x: Any) -> Any:
    return (x + x.swapaxes(-1, -2).conj()) / 2


def product_of_svd(la: Any, a: Any, **options: Any) -> Any:
    u, s, vh = la.svd(a, full_matrices=False, **options)
    return (u * s[..., None, :]) @ vh, s


def product_of_qr(la: Any, a: Any) -> Any:
    q, r = la.qr(a)
    return q @ r, q @ q.swapaxes(-1, -2).conj()


def product_of_eigh(la: Any, a: Any) -> Any:
    w, v = la.eigh(hermitian(a))
    return (v * abs(w)[..., None, :]) @ v.swapaxes(-1, -2).conj(), w


def square_of_eig(la: Any, a: Any) -> Any:
    """What does not depend on the order or the lengths of eigenvectors."""
    w, v = la.eig(a)
    inverse = la.inv(v)
    return (v * (w * w)[..., None, :]) @ inverse


def lu_of(la: Any, a: Any) -> Any:
    return la.lu(a)


def in_complex(a: np.ndarray) -> np.ndarray:
    return a.astype(np.result_type(a.dtype, np.complex64))


def form_of(middle: Any, outer: Any) -> tuple[Any, ...]:
    """What the signs and phases of vectors don't change."""
    back = outer.conj().T
    return outer @ middle @ back, outer @ back


PATTERNS = (
    "circulant",
    "companion",
    "fiedler",
    "fiedler_companion",
    "toeplitz",
)
SQUARE, DEFINITE, TALL = apart(2, 3, 3), definite(3, 3), matrix(4, 2)
CASES = [
    Case("cholesky", lambda la, a: la.cholesky(hermitian(a)), (definite(2, 3, 3),)),
    Case(
        "cholesky-upper",
        lambda la, a: la.cholesky(hermitian(a), upper=True),
        (DEFINITE,),
    ),
    Case("qr", product_of_qr, (TALL,)),
    Case("qr-wide", product_of_qr, (apart(2, 4),)),
    Case("qr-r", lambda la, a: la.qr(a, mode="r"), (matrix(2, 3, 3),)),
    Case("qr-raw", lambda la, a: la.qr(a, mode="raw"), (TALL,), smooth=False),
    Case("qr-complete", lambda la, a: la.qr(a, "complete"), (TALL,), smooth=False),
    Case("svd", product_of_svd, (apart(4, 2),)),
    Case(
        "svd-hermitian",
        lambda la, a: product_of_svd(la, hermitian(a), hermitian=True),
        (apart(3, 3),),
    ),
    Case("svdvals", lambda la, a: la.svdvals(a), (SQUARE,)),
    Case("eigh", product_of_eigh, (SQUARE,)),
    Case("eigvalsh", lambda la, a: la.eigvalsh(hermitian(a)), (SQUARE,)),
    Case(
        "eigvalsh-U",
        lambda la, a: la.eigvalsh(a, "U"),
        (apart(3, 3),),
        theirs=lambda a: np.linalg.eigvalsh(hermitian(a)),
    ),
    Case(
        "eig",
        square_of_eig,
        (SQUARE,),
        theirs=lambda a: (a @ a).astype(np.result_type(a.dtype, np.complex64)),
    ),
    Case("solve", lambda la, a, b: la.solve(a, b), (SQUARE, matrix(2, 3, 2))),
    Case("solve-vector", lambda la, a, b: la.solve(a, b), (SQUARE, matrix(3))),
    Case("solve-one", lambda la, a, b: la.solve(a, b), (apart(3, 3), matrix(2, 3, 2))),
    Case("inv", lambda la, a: la.inv(a), (SQUARE,)),
    Case("det", lambda la, a: la.det(a), (SQUARE,)),
    Case("slogdet", lambda la, a: tuple(la.slogdet(a)), (SQUARE,)),
    Case("pinv", lambda la, a: la.pinv(a), (matrix(2, 4, 2),)),
    Case("pinv-wide", lambda la, a: la.pinv(a), (apart(2, 3),)),
    Case(
        "pinv-hermitian",
        lambda la, a: la.pinv(hermitian(a), hermitian=True),
        (apart(3, 3),),
    ),
    Case(
        "lstsq",
        lambda la, a, b: (la.lstsq(a, b)[0], la.lstsq(a, b)[1], la.lstsq(a, b)[3]),
        (apart(4, 2), matrix(4, 3)),
    ),
    Case(
        "lstsq-wide",
        lambda la, a, b: (la.lstsq(a, b)[0], la.lstsq(a, b)[3]),
        (apart(2, 4), matrix(2)),
    ),
    Case(
        "rank",
        lambda la, a: la.matrix_rank(a),
        (lambda rng: np.stack([np.eye(3), np.ones((3, 3))]),),
        smooth=False,
    ),
    *[
        Case(f"power{n}", lambda la, a, n=n: la.matrix_power(a, n), (SQUARE,))
        for n in (0, 1, 5, -2)
    ],
    Case(
        "multi_dot",
        lambda la, *xs: la.multi_dot(xs),
        (matrix(3), matrix(3, 5), matrix(5, 2), matrix(2, 4)),
    ),
    *[
        Case(f"cond-{p}", lambda la, a, p=p: la.cond(a, p), (SQUARE,))
        for p in (None, -2, 1, "fro")
    ],
    *[
        Case(
            f"norm-{p}",
            lambda la, a, p=p: la.norm(a, p, axis=(0, 2)),
            (apart(3, 2, 4),),
        )
        for p in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
    ],
    Case(
        "matrix_norm",
        lambda la, a: la.matrix_norm(a, ord="nuc", keepdims=True),
        (apart(2, 3, 3),),
    ),
    Case("vector_norm", lambda la, a: la.vector_norm(a, ord=3), (matrix(3, 2),)),
    Case("tensorinv", lambda la, a: la.tensorinv(a, 1), (matrix(6, 2, 3),)),
    Case(
        "tensorsolve",
        lambda la, a, b: la.tensorsolve(a, b, axes=(0, 2)),
        (matrix(2, 6, 3), matrix(6)),
    ),
    Case("diagonal", lambda la, a: la.diagonal(a, offset=1), (matrix(2, 3, 4),)),
    Case("trace", lambda la, a: la.trace(a, offset=-1), (matrix(2, 3, 4),)),
    Case(
        "solve_triangular",
        lambda la, a, b: la.solve_triangular(a, b, trans="C", lower=True),
        (apart(3, 3), matrix(3)),
        theirs=lambda a, b: scipy.linalg.solve_triangular(a, b, trans="C", lower=True),
    ),
    Case(
        "lu",
        lambda la, a: la.lu(a),
        (matrix(4, 3),),
        theirs=lambda a: scipy.linalg.lu(a),
    ),
    Case(
        "lu-permuted",
        lambda la, a: la.lu(a, permute_l=True),
        (matrix(3, 4),),
        theirs=lambda a: scipy.linalg.lu(a, permute_l=True),
    ),
    *[
        Case(
            f"lu_solve-{trans}",
            lambda la, a, b, trans=trans: la.lu_solve(la.lu_factor(a), b, trans),
            (matrix(3, 3), matrix(3, 2)),
            theirs=lambda a, b, trans=trans: scipy.linalg.lu_solve(
                scipy.linalg.lu_factor(a), b, trans
            ),
        )
        for trans in (0, 1, 2)
    ],
    *[
        Case(
            f"cho_solve-{lower}",
            lambda la, a, b, lower=lower: la.cho_solve(
                la.cho_factor(hermitian(a), lower), b
            ),
            (DEFINITE, matrix(3)),
            theirs=lambda a, b: np.linalg.solve(hermitian(a), b),
        )
        for lower in (False, True)
    ],
    Case(
        "expm",
        lambda la, a: la.expm(a),
        (lambda rng: rng.normal(size=(2, 3, 3)) * np.array([0.1, 9])[:, None, None],),
        theirs=lambda a: scipy.linalg.expm(a),
    ),
    Case(
        "polar",
        lambda la, a: tuple(la.polar(a)),
        (TALL,),
        theirs=scipy.linalg.polar,
    ),
    Case(
        "polar-left",
        lambda la, a: tuple(la.polar(a, side="left")),
        (apart(2, 3),),
        theirs=lambda a: scipy.linalg.polar(a, side="left"),
    ),
    Case(
        "polar-equal",
        lambda la, a: tuple(la.polar(a)),
        (lambda rng: np.eye(3)[[1, 0, 2]],),
        theirs=scipy.linalg.polar,
    ),
    *[
        Case(
            f"qr_multiply-{mode}",
            lambda la, a, c, mode=mode: (la.qr_multiply(a, c, mode)[0] ** 2, a),
            (TALL, matrix(2, 4) if mode == "right" else matrix(2, 3)),
            theirs=lambda a, c, mode=mode: (
                scipy.linalg.qr_multiply(a, c, mode)[0] ** 2,
                a,
            ),
        )
        for mode in ("right", "left")
    ],
    Case(
        "eigh_tridiagonal",
        lambda la, d, e: la.eigh_tridiagonal(
            d.real, e.real, eigvals_only=True, select="i", select_range=(1, 2)
        ),
        (matrix(4), matrix(3)),
        theirs=lambda d, e: scipy.linalg.eigh_tridiagonal(
            d.real, e.real, eigvals_only=True, select="i", select_range=(1, 2)
        ),
    ),
    Case(
        "expm_frechet",
        lambda la, a, e: tuple(la.expm_frechet(a, e)),
        (apart(3, 3), matrix(3, 3)),
        theirs=lambda a, e: [
            x.astype(a.dtype) for x in scipy.linalg.expm_frechet(a, e)
        ],
    ),
    Case(
        "solve_sylvester",
        lambda la, a, b, q: la.solve_sylvester(a, b, q),
        (apart(3, 3), apart(2, 2), matrix(3, 2)),
        theirs=scipy.linalg.solve_sylvester,
    ),
    Case(
        "sqrtm",
        lambda la, a: la.sqrtm(a),
        (SQUARE,),
        theirs=lambda a: np.stack([in_complex(scipy.linalg.sqrtm(x)) for x in a]),
    ),
    Case(
        "funm",
        lambda la, a: la.funm(a, lambda x: x * x * x),
        (SQUARE,),
        theirs=lambda a: in_complex(a @ a @ a),
        smooth=False,
    ),
    Case(
        "schur",
        lambda la, a: form_of(*la.schur(a)),
        (matrix(4, 4),),
        theirs=lambda a: form_of(*scipy.linalg.schur(a)),
        smooth=False,
    ),
    Case(
        "schur-complex",
        lambda la, a: form_of(*la.rsf2csf(*la.schur(a))),
        (matrix(4, 4),),
        theirs=lambda a: form_of(*scipy.linalg.schur(a, output="complex")),
        smooth=False,
    ),
    Case(
        "hessenberg",
        lambda la, a: form_of(*la.hessenberg(a, calc_q=True)),
        (matrix(4, 4),),
        theirs=lambda a: form_of(*scipy.linalg.hessenberg(a, calc_q=True)),
        smooth=False,
    ),
    Case(
        "toeplitz",
        lambda la, c, r: la.toeplitz(c, r),
        (matrix(3), matrix(4)),
        theirs=scipy.linalg.toeplitz,
    ),
    Case(
        "patterns",
        lambda la, a, b: (
            *[getattr(la, f)(a) for f in PATTERNS],
            la.leslie(a, b),
            la.block_diag(a, b),
            la.hankel(a, b),
        ),
        (lambda rng: 1 + rng.normal(size=5) ** 2, matrix(4)),
        theirs=lambda a, b: [
            *[getattr(scipy.linalg, f)(a) for f in PATTERNS],
            scipy.linalg.leslie(a, b),
            scipy.linalg.block_diag(a, b),
            scipy.linalg.hankel(a, b),
        ],
    ),
    *[
        Case(
            f"convolution_matrix-{mode}-{n}",
            lambda la, a, n=n, mode=mode: la.convolution_matrix(a, n, mode),
            (matrix(4),),
            theirs=lambda a, n=n, mode=mode: scipy.linalg.convolution_matrix(
                a, n, mode
            ),
        )
        for mode, n in (("full", 3), ("same", 6), ("same", 1), ("valid", 5))
    ],
]
