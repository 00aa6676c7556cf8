"""LAPACK called from compiled programs: equal bits however it is called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends.by_reference import checked
from treadle.backends.cpu.lapack import library as lapack
from treadle.backends.cpu.lapack.library import library
from treadle.ops import eigen, lu, orthogonal, schur, singular, triangular


def definite(*shape: int, dtype: str = "float32") -> np.ndarray:
    x = np.random.default_rng(0).normal(size=shape)
    return (x @ np.swapaxes(x, -1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def factors(a: Any) -> list[Any]:
    """Everything that LAPACK is called for."""
    root = triangular.cholesky(a)
    packed, pivots, order = lu.lu(a)
    return [
        root,
        triangular.triangular_solve(root, a, **triangular.LOWER),
        *(packed, pivots, order),
        lu.lu_solve(a, packed, order, a, transposed=True),
        *orthogonal.qr(a, full=False, vectors=True),
        *singular.svd(a, full=False, vectors=True),
        *eigen.eigh(a, lower=True, vectors=True),
        *eigen.eig(a, vectors=True, left=True),
    ]


def assert_equal(found: Any, wanted: Any) -> None:
    for i, (x, y) in enumerate(zip(found, wanted, strict=True)):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), f"result {i}"


@pytest.fixture
def openblas() -> Iterator[tuple[Callable[[], int], Callable[[int], None]]]:
    """How many threads OpenBLAS has, and what sets it."""
    found = library()
    assert found is not None
    _, get_at, put_at = found.threads
    get = ctypes.CFUNCTYPE(ctypes.c_int)(get_at)
    put = ctypes.CFUNCTYPE(None, ctypes.c_int)(put_at)
    before = get()
    yield get, put
    put(before)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_compiled_is_eager_bit_for_bit(dtype: str) -> None:
    a = tnp.asarray(definite(3, 40, 40, dtype=dtype))
    f = td.jit(factors)
    assert_equal(f(a), factors(a))
    assert "host" not in f.explain(a)


def test_results_do_not_depend_on_openblas_threads(openblas: Any) -> None:
    get, put = openblas
    a = tnp.asarray(definite(2, 160, 160))
    f = td.jit(lambda a: [triangular.cholesky(a), *lu.lu(a)])
    found = []
    for count in (1, 2):
        put(count)
        found.append((f(a), [triangular.cholesky(a), *lu.lu(a)]))
        assert get() == count, "they come back"
    assert_equal(found[0][0], found[1][0])
    assert_equal(found[0][0], found[1][1])


def test_threads_come_back_after_calls_from_several_threads(openblas: Any) -> None:
    get, put = openblas
    put(2)
    a = tnp.asarray(definite(8, 30, 30))
    f = td.jit(lambda a: triangular.cholesky(a))
    wanted, found = f(a), []

    def work() -> None:
        for _ in range(20):
            found.append(np.array_equal(f(a), wanted))
            found.append(np.array_equal(triangular.cholesky(a), wanted))

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 120
    assert all(found)
    assert get() == 2


def test_the_reference_target_agrees() -> None:
    a = definite(2, 5, 5, dtype="float64")

    def unique(a: Any) -> list[Any]:
        """What does not depend on signs."""
        root, x, packed, pivots, order, y, q, r, u, s, vh, w, rows, *_ = factors(a)
        return [
            *(root, x, packed, pivots, order, y, tnp.matmul(q, r), s, w),
            tnp.matmul(u * s[..., None, :], vh),
            tnp.matmul(tnp.matrix_transpose(rows) * w[..., None, :], rows),
        ]

    with checked() as plans:
        td.jit(unique)(a)
    assert plans


def test_a_batch_is_its_matrices() -> None:
    a = definite(7, 12, 12)
    many = td.jit(factors)(a)
    for i, one in enumerate(a):
        assert_equal([x[i] for x in many], factors(one))
    assert_equal(td.jit(td.vmap(factors))(a), many)


def test_inside_a_loop() -> None:
    a = definite(6, 9, 9)

    def step(total: Any, x: Any) -> Any:
        root = triangular.cholesky(x + total)
        return tnp.matmul(root, tnp.matrix_transpose(root)), root

    compiled = td.jit(lambda a: td.scan(step, tnp.zeros((9, 9)), a))
    last, rows = compiled(a)
    total = np.zeros((9, 9), np.float32)
    for i, x in enumerate(a):
        total, root = step(total, x)
        np.testing.assert_allclose(rows[i], root, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(last, total, rtol=1e-5)
    assert "host" not in compiled.explain(a)


def test_what_lapack_refuses_is_not_a_number() -> None:
    a = definite(3, 4, 4)
    a[1, 0, 0] = -1
    for f in (triangular.cholesky, td.jit(lambda a: triangular.cholesky(a))):
        found = np.asarray(f(a))
        assert np.isnan(np.tril(found[1])[np.tril_indices(4)]).all()
        np.testing.assert_allclose(found[::2], np.linalg.cholesky(a[::2]), rtol=1e-5)
    a[1] = np.nan
    for f in (factors, td.jit(factors)):
        s = np.asarray(f(a)[9])
        assert np.isnan(s[1]).all()
        assert np.isfinite(s[::2]).all()


def test_without_a_known_lapack_the_host_does_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lapack, "_NAMINGS", ())
    library.cache_clear()
    try:
        a = definite(2, 6, 6)
        f = td.jit(lambda a: [triangular.cholesky(a), *lu.lu(a)])
        assert_equal(f(a), [triangular.cholesky(a), *lu.lu(a)])
        assert "the LAPACK of this NumPy was not found" in f.explain(a)
        root = np.asarray(f(a)[0])
        np.testing.assert_allclose(root, np.linalg.cholesky(a), rtol=1e-6)
    finally:
        library.cache_clear()


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_matrices_of_what_is_not_finite_fail_and_the_others_do_not(
    value: float, dtype: str
) -> None:
    """LAPACK does not come back from some of them."""
    a = np.random.default_rng(3).normal(size=(3, 3, 5)).astype(dtype)
    many, square = a.copy(), a[..., :3].copy()
    many[1, 0, 1] = square[1, 0, 1] = value
    found = [
        *singular.svd(many, full=False, vectors=True),
        *singular.svd(many, full=False, vectors=False),
        *schur.schur(square),
    ]
    wanted = [
        *singular.svd(a, full=False, vectors=True),
        *singular.svd(a, full=False, vectors=False),
        *schur.schur(a[..., :3]),
    ]
    for x, y in zip(found, wanted, strict=True):
        assert np.isnan(x[1]).all()
        np.testing.assert_array_equal(x[::2], y[::2])
