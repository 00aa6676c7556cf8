"""polyfit and roots, against NumPy and JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

RNG = np.random.default_rng(0)
X = np.linspace(-2, 3, 12)
Y = 0.5 * X**3 - X + RNG.normal(size=12) * 0.1
MANY = np.stack([Y, X**2, np.sin(X)], 1)
W = RNG.uniform(0.5, 2, 12)


@pytest.mark.parametrize("y", [Y, MANY])
@pytest.mark.parametrize("w", [None, W])
@pytest.mark.parametrize(
    "options", [{}, {"cov": True}, {"cov": "unscaled"}, {"full": True}]
)
def test_polyfit_is_numpy_s(y: np.ndarray, w: Any, options: dict) -> None:
    expected = np.polyfit(X, y, 3, w=w, **options)
    run: Any = lambda x, y: tnp.polyfit(x, y, 3, w=w, **options)  # noqa: E731
    for found in (run(X, y), td.jit(run)(X, y)):
        if not options:
            np.testing.assert_allclose(found, expected, atol=1e-9)
            continue
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def test_derivatives_of_polyfit() -> None:
    with jax.enable_x64(True):
        for i in (0, 1):
            ours = td.jacobian(lambda x, y: tnp.polyfit(x, y, 2, w=W), i)(X, Y)
            theirs = jax.jacobian(lambda x, y: jnp.polyfit(x, y, 2, w=W), i)(X, Y)
            np.testing.assert_allclose(ours, theirs, atol=1e-7)


@pytest.mark.parametrize(
    "p",
    [
        [1.0, -3, 2],
        [1.0, 0, 1],
        [2.0, -4, 3, 1, 0.5],
        [0.0, 0, 1, -3, 2, 0, 0],
        [3.0],
        [0.0, 0],
        [0.0, 2, 0],
    ],
)
def test_roots_are_numpy_s(p: list[float]) -> None:
    found, expected = tnp.roots(np.array(p)), np.roots(p)
    assert found.dtype == np.complex128
    np.testing.assert_allclose(np.sort(found), np.sort(expected), atol=1e-9)


def test_roots_of_traced_coefficients() -> None:
    p = np.array([2.0, -4, 3, 1, 0.5])
    found = td.jit(lambda p: tnp.roots(p, strip_zeros=False))(p)
    np.testing.assert_allclose(np.sort(found), np.sort(np.roots(p)), atol=1e-9)
    with pytest.raises(td.errors.TracerError, match="strip_zeros"):
        td.jit(tnp.roots)(p)

    def largest(module: Any) -> Any:
        return lambda p: module.abs(module.roots(p, strip_zeros=False)).max()

    with jax.enable_x64(True):
        np.testing.assert_allclose(
            td.grad(largest(tnp))(p), jax.grad(largest(jnp))(p), atol=1e-9
        )


def test_wrong_points() -> None:
    with pytest.raises(ValueError, match=r"got \(12,\) and \(3,\)"):
        tnp.polyfit(X, np.ones(3), 2)
    with pytest.raises(ValueError, match="degree -1 is negative"):
        tnp.polyfit(X, Y, -1)
    with pytest.raises(ValueError, match=r"weights of shape \(3,\) for 12 points"):
        tnp.polyfit(X, Y, 2, w=np.ones(3))
    with pytest.raises(ValueError, match="3 points are too few"):
        tnp.polyfit(X[:3], Y[:3], 2, cov=True)
    with pytest.raises(ValueError, match="coefficients are a vector"):
        tnp.roots(MANY)
