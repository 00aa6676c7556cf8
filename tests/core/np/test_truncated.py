"""Derivatives of least squares that leave out singular values which are not zero, by
finite differences of NumPy's in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

NUMBERS = np.random.default_rng(0)
SHAPES = [(5, 3), (3, 5), (4, 4), (2, 5, 3)]
STEP = 1e-6


def drawn(shape: tuple[int, ...], kind: str) -> np.ndarray:
    found = NUMBERS.normal(size=shape)
    return found + 1j * NUMBERS.normal(size=shape) if kind == "complex" else found


def slope(function: Callable[[Any], Any], x: np.ndarray, d: np.ndarray) -> np.ndarray:
    return (function(x + STEP * d) - function(x - STEP * d)) / (2 * STEP)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pinv_and_lstsq(shape: tuple[int, ...], kind: str) -> None:
    a, d = drawn(shape, kind), drawn(shape, kind)
    b = drawn((*shape[:-1], 2), "real")
    sizes = np.linalg.svd(a, compute_uv=False)
    rtol = float(np.mean(sizes[..., -2:]) / np.max(sizes))
    assert np.any(sizes < rtol * sizes[..., :1])
    tangent = td.jit(td.jvp, static=0)(lambda a: tnp.linalg.pinv(a, rtol), (a,), (d,))[
        1
    ]
    wanted = slope(lambda a: np.linalg.pinv(a, rtol), a, d)
    np.testing.assert_allclose(tangent, wanted, rtol=1e-6, atol=1e-7)
    _, tangent = td.jvp(lambda a: tnp.linalg.lstsq(a, b, rtol).x, (a,), (d,))
    wanted = slope(lambda a: np.linalg.pinv(a, rtol) @ b, a, d)
    np.testing.assert_allclose(tangent, wanted, rtol=1e-6, atol=1e-7)


def test_gradients_and_batches() -> None:
    a, d = drawn((3, 4, 2), "real"), drawn((3, 4, 2), "real")

    def loss(a: Any) -> Any:
        return (tnp.linalg.pinv(a, 0.9) ** 2).sum()

    found = td.jit(td.vmap(td.grad(loss)))(a)
    wanted = slope(
        lambda a: np.array([(np.linalg.pinv(m, 0.9) ** 2).sum() for m in a]), a, d
    )
    np.testing.assert_allclose((found * d).sum((1, 2)), wanted, rtol=1e-5)


def test_equal_singular_values_have_second_derivatives() -> None:
    found = td.hessian(lambda a: tnp.linalg.pinv(a).sum())(tnp.eye(2))
    wanted = td.hessian(lambda a: tnp.linalg.inv(a).sum())(tnp.eye(2))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_second_derivatives_at_nearly_equal_singular_values(
    shape: tuple[int, int],
) -> None:
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.normal(size=(5, 3)))[0] * [2, 2, 1.0]
    a = q if shape[0] == 5 else np.ascontiguousarray(q.T)
    d, b = rng.normal(size=shape), rng.normal(size=shape[0])

    def length(np: Any, t: Any) -> Any:
        return (np.linalg.lstsq(a + t * d, b)[0] ** 2).sum()

    found = td.grad(td.grad(lambda t: length(tnp, t)))(tnp.float64(0))
    step = 1e-4
    before, here, behind = (length(np, t) for t in (-step, 0, step))
    wanted = (before - 2 * here + behind) / step**2
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
