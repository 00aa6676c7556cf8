"""`treadle.scipy.linalg` against SciPy and JAX: what differs from NumPy's functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.scipy.linalg
import numpy as np
import pytest
import scipy.linalg

import treadle as td

linalg = td.scipy.linalg
RNG = np.random.default_rng(0)


def definite(dtype: type) -> np.ndarray:
    x = RNG.normal(size=(4, 4)) + 1j * RNG.normal(size=(4, 4))
    x = x.astype(dtype) if dtype is complex else x.real
    return x @ x.conj().T + 4 * np.eye(4)


def one_triangle(a: np.ndarray, lower: bool) -> np.ndarray:
    """The other triangle holds what must not be read."""
    return (np.tril if lower else np.triu)(a) + (np.triu if lower else np.tril)(
        np.full_like(a, 99), 1 if lower else -1
    )


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(dtype: type, lower: bool) -> None:
    a = one_triangle(definite(dtype), lower)
    found = linalg.cholesky(a, lower=lower, check_finite=False)
    np.testing.assert_allclose(found, scipy.linalg.cholesky(a, lower=lower), 1e-12)
    factors = linalg.cho_factor(definite(dtype), lower=lower, overwrite_a=True)
    assert factors[1] is lower


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", ["gen", "sym", "her", "pos"])
def test_solve(dtype: type, lower: bool, kind: str) -> None:
    a, b = definite(dtype), RNG.normal(size=(4, 2))
    if kind == "sym":
        a = a + a.T
    if kind != "gen":
        a = one_triangle(a, lower)
    found = linalg.solve(a, b, lower=lower, assume_a=kind)
    expected = scipy.linalg.solve(a, b, lower=lower, assume_a=kind)
    np.testing.assert_allclose(found, expected, 1e-9)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("type", [1, 2, 3])
def test_generalised_eigenvalues(dtype: type, lower: bool, type: int) -> None:
    a, b = definite(dtype), definite(dtype)
    given = one_triangle(a, lower), one_triangle(b, lower)
    values, v = (np.asarray(x) for x in linalg.eigh(*given, lower=lower, type=type))
    np.testing.assert_allclose(
        values, scipy.linalg.eigh(*given, lower=lower, type=type)[0], 1e-10
    )
    sides = {1: (a @ v, b @ v * values), 2: (a @ b @ v, v * values)}
    sides[3] = (b @ a @ v, v * values)
    np.testing.assert_allclose(*sides[type], 1e-8, 1e-8)
    some = linalg.eigh(*given, lower=lower, eigvals_only=True, subset_by_index=(1, 2))
    expected = scipy.linalg.eigh(
        *given, lower=lower, eigvals_only=True, subset_by_index=(1, 2)
    )
    np.testing.assert_allclose(some, expected, 1e-10)


def test_derivatives() -> None:
    """Those of eigenvalues with regard to both matrices, by differences; Cholesky's,
    of which one triangle counts, as JAX's."""
    a, b, da, db = definite(float), definite(float), definite(float), definite(float)

    def values(a: Any, b: Any) -> Any:
        return linalg.eigh(a, b, eigvals_only=True)

    _, found = td.jvp(values, (a, b), (da, db))
    sides = [
        scipy.linalg.eigh(a + h * da, b + h * db, eigvals_only=True)
        for h in (1e-6, -1e-6)
    ]
    np.testing.assert_allclose(found, (sides[0] - sides[1]) / 2e-6, 1e-6)
    with jax.enable_x64(True):
        expected = jax.grad(lambda a: jax.scipy.linalg.cholesky(a)[0].sum())(a)
    ours = td.grad(lambda a: linalg.cholesky(a)[0].sum())(a)
    np.testing.assert_allclose(ours, expected, 1e-9, 1e-12)


def test_compiled_and_batched() -> None:
    a = np.stack([definite(float) for _ in range(3)])
    b = np.stack([definite(float) for _ in range(3)])
    found = linalg.eigh(a, b)[0]
    for other in (td.jit(linalg.eigh)(a, b)[0], td.vmap(linalg.eigh)(a, b)[0]):
        np.testing.assert_allclose(other, found, 1e-12)
    y = RNG.normal(size=(3, 4, 1))
    x = td.jit(lambda a, y: linalg.solve(a, y, assume_a="pos"))(a, y)
    np.testing.assert_allclose(x, np.linalg.solve(a, y), 1e-9)


@pytest.mark.parametrize("mode", ["full", "economic", "r"])
def test_qr(mode: Any) -> None:
    a = RNG.normal(size=(5, 3))
    found, expected = linalg.qr(a, mode=mode), scipy.linalg.qr(a, mode=mode)
    assert [x.shape for x in found] == [x.shape for x in expected]
    np.testing.assert_allclose(np.abs(found[-1]), np.abs(expected[-1]), 1e-9, 1e-12)


@pytest.mark.parametrize("mode", ["full", "economic", "r"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (9, 9), (1, 3)], ids=str)
def test_qr_with_exchanged_columns(mode: Any, shape: tuple[int, int]) -> None:
    for a in (
        RNG.normal(size=shape),
        RNG.normal(size=shape) + 1j * RNG.normal(size=shape),
    ):
        found = linalg.qr(a, mode=mode, pivoting=True)
        expected = scipy.linalg.qr(a, mode=mode, pivoting=True)
        for f, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(f, e, 1e-9, 1e-12)


def test_qr_with_exchanged_columns_under_transforms() -> None:
    a = RNG.normal(size=(2, 5, 3))

    def factors(a: Any) -> Any:
        return linalg.qr(a, mode="economic", pivoting=True)

    for found in (td.jit(factors)(a), td.vmap(factors)(a)):
        for i in range(2):
            expected = scipy.linalg.qr(a[i], mode="economic", pivoting=True)
            for f, e in zip(found, expected, strict=True):
                np.testing.assert_allclose(f[i], e, 1e-9, 1e-12)
    td.check_grads(lambda a: factors(a)[:2], (a[0],))
    td.check_grads(lambda a: linalg.qr(a, mode="r", pivoting=True)[0], (a[0],))
    low = RNG.normal(size=(6, 2)) @ RNG.normal(size=(2, 5))
    diagonal = np.abs(np.diag(linalg.qr(low, pivoting=True)[1]))
    assert np.all(diagonal[2:] < 1e-12) and np.all(diagonal[:2] > 1e-2)


@pytest.mark.parametrize("name", ["inv", "det", "lu_factor", "lu", "svd"])
def test_options_without_effect(name: str) -> None:
    a = definite(float)
    found = getattr(linalg, name)(a, overwrite_a=True, check_finite=False)
    for f, e in (
        zip(found, getattr(td.numpy.linalg, name)(a), strict=True)
        if (isinstance(found, tuple))
        else [(found, getattr(td.numpy.linalg, name)(a))]
    ):
        np.testing.assert_array_equal(f, e)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda a: linalg.eigh(a, a, type=4), ValueError, "type is 1, 2 or 3"),
        (lambda a: linalg.solve(a, a, assume_a="odd"), ValueError, "got 'odd'"),
        (lambda a: linalg.qr(a, mode="raw"), ValueError, "got 'raw'"),
        (lambda a: linalg.cholesky(a[0]), ValueError, "cholesky"),
    ],
)
def test_errors(use: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        use(definite(float))
    assert "test_linalg.py" in str(caught.value)
