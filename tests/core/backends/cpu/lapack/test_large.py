"""Matrices whose rows would fall into few sets of a cache lie apart for LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.ops import schur as schur_ops
from treadle.trace.routine import stride_of

DTYPES = [
    *("float32", "complex128"),
    *[pytest.param(name, marks=pytest.mark.slow) for name in ("float64", "complex64")],
]


def random(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if dtype[0] == "c" else x).astype(dtype)


def near(found: Any, wanted: Any, dtype: str) -> None:
    """Equal to within the rounding of products of about a hundred numbers."""
    size = np.abs(wanted).max()
    atol = 400 * np.finfo(dtype).eps * size
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)


def wide(*xs: Any) -> list[Any]:
    return [np.asarray(x).astype(np.complex128) for x in xs]


def unitary(q: Any, dtype: str) -> None:
    near(np.conj(q.T) @ q, np.eye(q.shape[1]), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(128, 128), (128, 72), (72, 128)])
def test_factors_of_a_matrix_multiply_to_it(shape: Any, dtype: str) -> None:
    assert max(stride_of(k, np.dtype(dtype)) - k for k in shape) > 0
    a = random(dtype, *shape)
    for mode in ("reduced", "complete"):
        q, r = wide(*tnp.linalg.qr(a, mode))
        near(q @ r, a, dtype)
        unitary(q, dtype)
        assert not np.tril(r, -1).any()
    near(tnp.linalg.qr(a, "r"), wide(tnp.linalg.qr(a).R)[0], dtype)
    for full in (False, True):
        u, s, vh = wide(*tnp.linalg.svd(a, full))
        near(u[:, : len(s)] * s @ vh[: len(s)], a, dtype)
        unitary(u, dtype)
        unitary(np.conj(vh.T), dtype)
    near(tnp.linalg.svdvals(a), np.linalg.svd(a, compute_uv=False), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_forms_of_a_square_matrix_give_it_back(dtype: str) -> None:
    a = random(dtype, 128, 128)
    w, v = wide(*tnp.linalg.eig(a))
    near(wide(a)[0] @ v, v * w, dtype)
    near(np.linalg.norm(v, axis=0), np.ones(128), dtype)
    values = wide(tnp.linalg.eigvals(a))[0]
    distance = np.abs(values[:, None] - w).min(0)
    assert distance.max() < 1e5 * np.finfo(dtype).eps
    for form in (schur_ops.schur, schur_ops.hessenberg):
        inner, outer = (x.T for x in wide(*form(a)))
        below = -1 if form is schur_ops.schur and dtype[0] == "c" else -2
        inner = np.triu(inner, below + 1)
        near(outer @ inner @ np.conj(outer.T), a.T, dtype)
        unitary(outer, dtype)
    definite = (a @ np.conj(a.T) / 128 + np.eye(128)).astype(dtype)
    root = wide(tnp.linalg.cholesky(definite))[0]
    near(root @ np.conj(root.T), definite, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [128, 130])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigenvectors_of_one_triangle(uplo: str, n: int, dtype: str) -> None:
    half = random(dtype, n, n)
    whole = half + np.conj(half.T)
    keep = np.tri(n, dtype=bool) if uplo == "L" else np.tri(n, dtype=bool).T
    largest = np.finfo(dtype).max / 10
    for scale in (1, 0, largest, 1 / largest):
        a = (whole * (scale / np.abs(whole).max())).astype(dtype)
        given = np.where(keep, a, np.nan).astype(dtype)
        w, v = tnp.linalg.eigh(given, uplo, symmetrize_input=False)
        w, v, a = wide(w, v, a)
        scale = scale or 1
        a, w = a / scale, w / scale
        atol = 400 * np.finfo(dtype).eps * max(np.abs(w).max(), 1e-3)
        np.testing.assert_allclose(a @ v, v * w, rtol=0, atol=atol)
        unitary(v, dtype)
        assert (np.diff(w.real) >= 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_has_no_eigenvectors(dtype: str) -> None:
    good = random(dtype, 128, 128)
    for bad in (np.nan, np.inf, -np.inf):
        a = np.stack([good, good])
        a[0, 70, 3] = bad
        w, v = td.jit(tnp.linalg.eigh)(a)
        assert np.isnan(w[0]).all()
        assert np.isnan(v[0]).all()
        assert np.isfinite(w[1]).all()
        assert np.isfinite(v[1]).all()


OPEN: dict[str, Callable[..., Any]] = {
    "qr": lambda a: tnp.linalg.qr(a),
    "svd": lambda a: tnp.linalg.svd(a, False),
    "eigh": lambda a: tnp.linalg.eigh(a @ a.T),
    "eig": lambda a: tnp.linalg.eig(a @ a.T),
    "cholesky": lambda a: tnp.linalg.cholesky(a @ a.T + tnp.eye(a.shape[0])),
}


@pytest.mark.parametrize("name", OPEN)
def test_sizes_may_be_open(name: str) -> None:
    f = OPEN[name]
    compiled = td.jit(f, dynamic={"a": ("m", "n")})
    for m, n in ((5, 6), (127, 128), (128, 100), (128, 128), (129, 7)):
        a = random("float32", m, n)
        for x, y in zip(compiled(a), td.jit(f)(a), strict=True):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), (m, n)
    assert len(compiled.report().programs) == 1
