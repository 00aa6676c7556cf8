"""Small matrices in lanes: right, and equal bits whatever is beside them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import treadle as td
import treadle.numpy as tnp
from treadle.ops import lu, orthogonal, triangular

DTYPES = "float32", "float64", "complex64", "complex128"
COUNTS = 1, 2, 5, 19


def close(found: Any, wanted: Any, dtype: str) -> None:
    tolerance = 2e-4 if dtype in ("float32", "complex64") else 1e-11
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, tolerance, tolerance * scale)


def random(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    x = rng.normal(size=shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


def definite(dtype: str, count: int, n: int) -> np.ndarray:
    x = random(dtype, count, n, n)
    return x @ np.conj(np.swapaxes(x, 1, 2)) + n * np.eye(n, dtype=dtype)


def dominant(dtype: str, count: int, n: int) -> np.ndarray:
    return random(dtype, count, n, n) / n + np.eye(n, dtype=dtype)


def results(f: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """What a function gives for a batch: the bits that it gives for each alone."""
    many = [np.asarray(x) for x in td.jit(f)(*arrays)]
    for i in range(len(arrays[0])):
        for x, one in zip(many, f(*[tnp.asarray(a[i]) for a in arrays]), strict=True):
            assert x[i].tobytes() == np.asarray(one).tobytes(), f"matrix {i}"
    return many


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 4, 7, 8, 16, 17, 33, 45, 64, 65])
def test_cholesky(n: int, dtype: str) -> None:
    for count in COUNTS:
        a = definite(dtype, count, n)
        # Only one triangle is read.
        half = np.where(np.tri(n, dtype=bool), a, np.asarray(np.nan, dtype))
        (found,) = results(lambda a: [triangular.cholesky(a)], half)
        close(found, np.linalg.cholesky(a), dtype)
        assert not np.triu(found, 1).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 20, 50])
def test_what_is_not_definite_is_not_a_number_alone(n: int, dtype: str) -> None:
    for count in COUNTS:
        a = definite(dtype, count, n)
        a[count // 2, n // 2, n // 2] = 0
        (found,) = results(lambda a: [triangular.cholesky(a)], a)
        rest = np.arange(count) != count // 2
        assert np.isnan(found[count // 2][np.tril_indices(n)]).all()
        assert not np.triu(found, 1).any()
        if rest.any():
            close(found[rest], np.linalg.cholesky(a[rest]), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 5, 8, 16])
def test_triangular_systems(n: int, dtype: str) -> None:
    names = "left", "lower", "transposed", "unit_diagonal"
    for values, columns in itertools.product(
        itertools.product((False, True), repeat=4), (1, 6)
    ):
        how = dict(zip(names, values, strict=True))
        shape = (n, columns) if how["left"] else (columns, n)
        a, b = dominant(dtype, 19, n), random(dtype, 19, *shape)
        (found,) = results(
            lambda a, b, how=how: [triangular.triangular_solve(a, b, **how)], a, b
        )
        t = np.tril(a) if how["lower"] else np.triu(a)
        if how["unit_diagonal"]:
            t[:, range(n), range(n)] = 1
        t = np.swapaxes(t, 1, 2) if how["transposed"] else t
        close(t @ found if how["left"] else found @ t, b, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 3, 16, 40])
def test_triangular_systems_of_many_right_sides(n: int, dtype: str) -> None:
    names = "left", "lower", "transposed", "unit_diagonal"
    ways = itertools.product((False, True), repeat=4)
    how = [dict(zip(names, values, strict=True)) for values in ways]

    def solve(a: Any, b: Any) -> list[Any]:
        sides = b, tnp.swapaxes(b, -1, -2)
        return [
            triangular.triangular_solve(a, sides[not way["left"]], **way) for way in how
        ]

    a, b = dominant(dtype, 2, n), random(dtype, 2, n, 199)
    for way, found in zip(how, results(solve, a, b), strict=True):
        t = np.tril(a) if way["lower"] else np.triu(a)
        if way["unit_diagonal"]:
            t[:, range(n), range(n)] = 1
        t = np.swapaxes(t, 1, 2) if way["transposed"] else t
        product = t @ found if way["left"] else np.swapaxes(found @ t, 1, 2)
        close(product, b, dtype)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("n", [7, 30])
def test_a_right_side_s_bits_do_not_depend_on_others(n: int, left: bool) -> None:
    how = triangular.LOWER | {"left": left}

    def solve(a: Any, b: Any) -> Any:
        return triangular.triangular_solve(a, b if left else b.T, **how)

    sized = td.jit(solve, dynamic={"b": (None, "sides")})
    a, b = dominant("float32", 1, n)[0], random("float32", n, 333)
    whole = np.asarray(td.jit(solve)(a, b))
    for first, last in (0, 65), (7, 150), (100, 333):
        some = np.asarray(sized(a, b[:, first:last]))
        wanted = whole[:, first:last] if left else whole[first:last]
        assert some.tobytes() == wanted.tobytes(), (first, last)


@pytest.mark.filterwarnings("ignore:Diagonal number")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (16, 16), (3, 9), (15, 6)])
def test_lu(shape: tuple[int, int], dtype: str) -> None:
    for count in COUNTS:
        a = random(dtype, count, *shape)
        a[0, 0] = 0  # a column that needs no exchange, and no division
        packed, pivots, order = results(lu.lu, a)
        for i in range(count):
            wanted, rows = scipy.linalg.lu_factor(a[i].T)
            close(packed[i].T, wanted, dtype)
            np.testing.assert_array_equal(pivots[i], rows)
            left = np.tril(packed[i].T, -1)[:, : len(rows)]
            left += np.eye(*left.shape, dtype=dtype)
            right = np.triu(packed[i].T)[: len(rows)]
            close(left @ right, a[i].T[order[i]], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (5, 3), (3, 5), (16, 9), (40, 33)])
def test_qr(shape: tuple[int, int], dtype: str) -> None:
    for count, full in ((1, False), (5, True), (19, False)):
        a = random(dtype, count, *shape)
        a[0, 1:, 0] = 0  # a column that needs no reflection
        q, r = results(
            lambda a, full=full: orthogonal.qr(a, full=full, vectors=True), a
        )
        wanted, upper = np.linalg.qr(a, "complete" if full else "reduced")
        close(r, upper, dtype)
        close(q[..., : min(shape)], wanted[..., : min(shape)], dtype)
        close(q @ r, a, dtype)
        one = np.eye(q.shape[-1], dtype=dtype)
        close(
            np.conj(np.swapaxes(q, 1, 2)) @ q,
            np.broadcast_to(one, (count, *one.shape)),
            dtype,
        )
        assert not np.tril(r, -1).any()


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("float32", 1e25),
        ("complex64", 1e-25),
        ("float64", 1e200),
        ("complex128", 1e-200),
    ],
)
def test_qr_of_numbers_whose_squares_have_no_place(dtype: str, size: float) -> None:
    a = random(dtype, 5, 4, 4) * np.asarray(size, dtype)
    q, r = results(lambda a: orthogonal.qr(a, full=False, vectors=True), a)
    wanted, upper = np.linalg.qr(a)
    close(q, wanted, dtype)
    close(r / size, upper / size, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 8, 16])
def test_systems_and_their_gradients(n: int, dtype: str) -> None:
    for columns, count in itertools.product((1, 3), COUNTS):
        a, b = random(dtype, count, n, n), random(dtype, count, n, columns)
        if n > 1:
            a[:, 0, 0] = 0  # rows must change places
        (x,) = results(lambda a, b: [tnp.linalg.solve(a, b)], a, b)
        np.testing.assert_allclose(
            a @ x, b, rtol=0, atol=1e-3 * max(1, np.abs(x).max())
        )
        packed, _, order = (np.asarray(v) for v in lu.lu(np.swapaxes(a, 1, 2)))
        (y,) = results(
            lambda *args: [lu.lu_solve(*args, transposed=True)], a, packed, order, b
        )
        bound = 1e-3 * max(1, np.abs(y).max())
        np.testing.assert_allclose(np.swapaxes(a, 1, 2) @ y, b, rtol=0, atol=bound)


@pytest.mark.parametrize("n", [2, 4, 9, 16, 30])
def test_gradients_of_a_system(n: int) -> None:
    def total(a: Any, b: Any) -> Any:
        return tnp.sum(tnp.sin(tnp.linalg.solve(a, b)))

    a, b = random("float64", 7, n, n) + 2 * np.eye(n), random("float64", 7, n, 2)
    found = np.linalg.solve(a, b)
    by_a, by_b = td.jit(td.grad(total, argnums=(0, 1)))(a, b)
    back = np.linalg.solve(np.swapaxes(a, 1, 2), np.cos(found))
    np.testing.assert_allclose(by_b, back, 1e-7, 1e-9)
    np.testing.assert_allclose(by_a, -back @ np.swapaxes(found, 1, 2), 1e-7, 1e-8)


def everything(a: Any) -> list[Any]:
    root = triangular.cholesky(a)
    solved = triangular.triangular_solve(root, a, **triangular.LOWER)
    return [root, solved, *lu.lu(a), tnp.linalg.inv(a)]


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_open_sizes_have_the_same_bits(dtype: str) -> None:
    sized = td.jit(everything, dynamic={"a": ("count", "n", "n")})
    for count, n in ((20, 4), (3, 9), (7, 16), (2, 17), (5, 64), (2, 70), (1, 2)):
        a = definite(dtype, count, n)
        for x, y in zip(sized(a), td.jit(everything)(a), strict=True):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), (count, n)
