"""Linear algebra and Fourier transforms: wrong shapes, and numbers near the largest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp

X = np.ones((3, 3), "float32")


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: tnp.vecdot(X[0], X[0, :2]), ValueError, r"vecdot: shapes \(3,\)"),
        (lambda: tnp.matvec(X, X[0, :2]), ValueError, r"matvec: shapes \(3, 3\)"),
        (lambda: tnp.matvec(X[0], X[0]), ValueError, "matvec: axis -2"),
        (lambda: tnp.vecmat(X[0, :2], X), ValueError, r"vecmat: shapes \(2,\)"),
        (
            lambda: tnp.linalg.lu_solve((X, np.zeros(2, "int32")), X[0]),
            ValueError,
            "one pivot for each row",
        ),
        (
            lambda: tnp.linalg.cho_solve((X, True), X[0, :2]),
            ValueError,
            "cho_solve: shapes",
        ),
        (lambda: tnp.fft.fftn(X, s=(2, 2, 2)), ValueError, "fftn: axis -3"),
        (lambda: tnp.fft.fft(X, n=2.5), TypeError, "must be an integer, got 2.5"),
    ],
)
def test_errors_name_the_function_that_was_called(
    call: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        call()


def test_hermitian_matrices_whose_doubles_are_infinite_have_eigenvalues() -> None:
    a = 1.2e308 * np.array([[1.0, 0.25], [0.25, -0.5]])
    wanted = np.linalg.eigvalsh(a / 2) * 2
    np.testing.assert_allclose(tnp.linalg.eigvalsh(a), wanted, rtol=1e-14)
    factor = tnp.linalg.cholesky(np.diag([1.2e308, 4.0]))
    np.testing.assert_allclose(np.diagonal(factor), np.sqrt([1.2e308, 4.0]))
