"""Large matrices are factored in parts: as well as by SciPy, and with the same bits
however many threads take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.run import threads

rng = np.random.default_rng(0)


def base(n: int, k: int) -> np.ndarray:
    """Orthonormal columns."""
    return np.linalg.qr(rng.normal(size=(n, k)))[0]


def matrices(m: int, n: int) -> Iterator[tuple[str, np.ndarray]]:
    """Matrices that are hard for some algorithm, by name."""
    k = min(m, n)
    u, v = base(m, k), base(n, k).T
    yield "random", rng.normal(size=(m, n))
    yield "graded", (u * 10.0 ** -np.linspace(0, 12, k)) @ v
    yield "singular", (u * (np.arange(k) < k // 2)) @ v
    yield "two values", (u * np.where(np.arange(k) < k // 3, 2.0, 1.0)) @ v
    yield "of rank 1", np.outer(u[:, 0], v[0])
    yield "zero", np.zeros((m, n))
    yield "diagonal", np.eye(m, n) * np.arange(n)
    yield "bidiagonal", np.eye(m, n) + np.eye(m, n, 1)
    yield "huge", rng.normal(size=(m, n)) * 1e30
    yield "tiny", rng.normal(size=(m, n)) * 1e-33


def errors(a: np.ndarray, q: Any, rest: Any, other: Any = None) -> np.ndarray:
    """How far factors are from the matrix, and bases from orthonormal ones, in units of
    rounding."""
    size = np.abs(a).max() or 1
    eps = np.finfo(a.dtype).eps
    q, rest = np.asarray(q, np.float64), np.asarray(rest, np.float64) / size
    rest = rest[: q.shape[1]]
    whole = np.asarray(a, np.float64) / size
    found = [np.linalg.norm(q[:, : len(rest)] @ rest - whole)]
    found[0] /= np.linalg.norm(whole) or 1
    for x in (q, q if other is None else np.asarray(other, np.float64).T):
        found.append(np.linalg.norm(x.T @ x - np.eye(x.shape[1])) / x.shape[1] ** 0.5)
    return np.array(found) / eps


SHAPES = [(140, 131), (131, 230)]
SVD = td.jit(lambda a: tnp.linalg.svd(a, full_matrices=False))
ALL = td.jit(lambda a: tnp.linalg.svd(a, full_matrices=True))
QR = td.jit(lambda a: tnp.linalg.qr(a))
COMPLETE = td.jit(lambda a: tnp.linalg.qr(a, "complete"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_are_as_good_as_scipys(shape: Any, dtype: str) -> None:
    for name, a in matrices(*shape):
        a, k = a.astype(dtype), min(shape)
        wanted = np.linalg.svd(a.astype(np.float64), compute_uv=False)
        for f, full in ((SVD, False), (ALL, True)):
            u, s, v = map(np.asarray, f(a))
            assert u.shape[1] == (shape[0] if full else k), name
            assert v.shape[0] == (shape[1] if full else k), name
            found = errors(a, u, s[:, None] * v[:k], v)
            u0, s0, v0 = scipy.linalg.svd(a, full_matrices=full)
            bound = 3 * errors(a, u0, s0[:, None] * v0[:k], v0) + 6
            assert (found <= bound).all(), (name, full, found, bound)
            assert (np.diff(s) <= 0).all() and (s >= 0).all(), name
            far = np.abs(s - wanted).max() / (wanted.max() or 1)
            assert far <= 60 * np.finfo(dtype).eps, (name, far)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("shape", [*SHAPES, (500, 128), (192, 192)])
def test_qr_is_as_good_as_scipys(shape: Any, dtype: str) -> None:
    a = rng.normal(size=shape).astype(dtype)
    if dtype[0] == "c":
        a = a + 1j * rng.normal(size=shape)
    for f, mode in ((QR, "economic"), (COMPLETE, "full")):
        q, r = map(np.asarray, f(a))
        _, r0 = scipy.linalg.qr(a, mode=mode)
        assert not np.tril(r, -1).any()
        scale = np.abs(r0).max() * np.finfo(dtype).eps
        assert np.abs(r - r0).max() < 100 * scale
        assert np.abs(q @ r - a).max() < 60 * scale
        unit = np.conj(q.T) @ q - np.eye(q.shape[1])
        assert np.abs(unit).max() < 60 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigenvectors_are_as_good_as_scipys(uplo: str, dtype: str) -> None:
    """One triangle is read: the other one may hold anything."""
    n = 200
    other = np.triu(np.full((n, n), np.nan), 1)
    other = other if uplo == "L" else other.T
    f = td.jit(lambda a: tnp.linalg.eigh(a, uplo, symmetrize_input=False))
    for name, a in matrices(n, n):
        a = ((a + a.T) / 2).astype(dtype)
        w, v = map(np.asarray, f(np.where(np.isnan(other), other, a).astype(dtype)))
        w0, v0 = scipy.linalg.eigh(a)
        found, bound = (errors(a, v, w[:, None] * v.T) for w, v in ((w, v), (w0, v0)))
        assert (found <= 3 * bound + 10).all(), (name, found, bound)
        assert (np.diff(w) >= 0).all(), name


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_has_no_singular_values(value: float) -> None:
    a = rng.normal(size=(140, 131)).astype("float32")
    a[3, 4] = value
    for x in SVD(a):
        assert np.isnan(np.asarray(x)).all()


def total(a: Any) -> Any:
    return tnp.real(tnp.linalg.cholesky(a)).sum()


def systems(a: Any, square: Any) -> list[Any]:
    """Solutions for more right sides than a part has."""
    left = {"lower": True}
    found = [
        tnp.linalg.solve(square, a),
        tnp.linalg.solve_triangular(square, a, **left),
        td.lax.linalg.triangular_solve(square, a.T, **left),
        tnp.linalg.lu_solve(tnp.linalg.lu_factor(square), a, trans=1),
    ]
    return found


def factors(a: Any, square: Any) -> list[Any]:
    both = tnp.linalg.eigh(square)
    return [*tnp.linalg.svd(a), *tnp.linalg.qr(a), *both, *systems(a, square)]


def definite(a: np.ndarray) -> np.ndarray:
    return (a @ np.conj(a.T) + 200 * np.eye(len(a))).astype(a.dtype)


def eager(*arrays: np.ndarray) -> list[Any]:
    return factors(*map(tnp.asarray, arrays))


@pytest.fixture
def threads_come_back() -> Iterator[None]:
    before = threads.num_threads()
    yield
    threads.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_bits_do_not_depend_on_threads(dtype: str, threads_come_back: Any) -> None:
    """Nor on whether a program is compiled, nor on the rest of a batch."""
    a = rng.normal(size=(200, 270)).astype(dtype)
    square, f, many = definite(a), td.jit(factors), td.jit(td.vmap(factors))
    batch = np.stack([a + 1, a]), np.stack([square + 1, square])
    wanted = None
    for count in (1, 2, 3):
        threads.set_num_threads(count)
        ways: list[Callable[[], Any]] = [lambda: f(a, square), lambda: eager(a, square)]
        if count == 2:
            ways.append(lambda: [x[1] for x in many(*batch)])
        for run in ways:
            found = [np.asarray(x).tobytes() for x in run()]
            wanted = wanted or found
            for i, (x, y) in enumerate(zip(found, wanted, strict=True)):
                assert x == y, (count, i)


def test_solutions_solve() -> None:
    a = rng.normal(size=(150, 270))
    square = definite(a)
    lower = np.tril(square)
    given = tnp.asarray(a), tnp.asarray(square)
    x, below, right, turned = map(np.asarray, systems(*given))
    np.testing.assert_allclose(square @ x, a, atol=1e-10)
    np.testing.assert_allclose(lower @ below, a, atol=1e-10)
    np.testing.assert_allclose(right @ lower, a.T, atol=1e-10)
    np.testing.assert_allclose(square.T @ turned, a, atol=1e-10)


def test_gradient_of_a_large_cholesky_factor() -> None:
    square = definite(rng.normal(size=(150, 270)))
    gradient = np.asarray(td.jit(td.grad(total))(square))
    change, h = rng.normal(size=square.shape), 1e-4
    change = change + change.T
    near = [np.linalg.cholesky(square + x * change).sum() for x in (h, -h)]
    slope = (near[0] - near[1]) / (2 * h)
    np.testing.assert_allclose((gradient * change).sum(), slope, rtol=1e-6)


def test_large_sizes_may_be_open() -> None:
    def everything(a: Any) -> list[Any]:
        return [*tnp.linalg.svd(a, full_matrices=False), *tnp.linalg.qr(a)]

    sized = td.jit(everything, dynamic={"a": ("m", "n")})
    for shape in ((140, 131), (131, 230), (20, 9), (300, 128), (128, 128)):
        a = rng.normal(size=shape).astype("float32")
        for x, y in zip(sized(a), td.jit(everything)(a), strict=True):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), shape
    assert sized.report().traces == 1
