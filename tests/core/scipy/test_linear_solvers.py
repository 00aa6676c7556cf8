"""Solvers that apply a matrix: against direct ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.errors import StructureError
from treadle.scipy.sparse import linalg

rng = np.random.default_rng(2)
N = 30
SOLVERS = ("cg", "bicgstab", "gmres")


def normal(kind: str, *shape: int) -> np.ndarray:
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if kind[0] == "c" else x).astype(kind)


def matrix(name: str, kind: str) -> np.ndarray:
    a = normal(kind, N, N)
    if name == "cg":
        a = a @ a.conj().T
    return (a + 3 * np.sqrt(N) * np.eye(N)).astype(kind)


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("kind", ["float32", "complex64", "complex128"])
@pytest.mark.parametrize("name", SOLVERS)
def test_values_and_gradients(name: str, kind: str, preconditioned: bool) -> None:
    solve = getattr(linalg, name)
    a, b, weights = matrix(name, kind), normal(kind, N), rng.normal(size=N)
    M = np.diag(1 / np.diag(a)) if preconditioned else None

    def loss(np: Any, solve: Any) -> Any:
        return lambda a, b: np.sum(np.abs(solve(a, b) * weights) ** 2)

    def ours(a: Any, b: Any) -> Any:
        return solve(a, b, tol=1e-6, M=M)[0]

    x, info = td.jit(lambda a, b: solve(a, b, tol=1e-6, M=M))(a, b)
    assert info == 0 and x.dtype == kind
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=2e-4, atol=1e-5)
    found = td.jit(td.grad(loss(tnp, ours), (0, 1)))(a, b)
    with jax.enable_x64(True):
        wanted = jax.jit(jax.grad(loss(jnp, jnp.linalg.solve), (0, 1)))(a, b)
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-3, atol=1e-4 * np.abs(w).max())


def test_as_many_steps_as_jax_takes() -> None:
    a, b = matrix("cg", "float32"), normal("float32", N)
    for steps in (1, 4):
        x, info = linalg.cg(a, b, maxiter=steps)
        wanted = jax.scipy.sparse.linalg.cg(a, b, maxiter=steps)[0]
        np.testing.assert_allclose(x, wanted, rtol=1e-3, atol=1e-5)
        assert info == steps
    x, info = linalg.gmres(a, b, restart=4, maxiter=2, tol=1e-9)
    wanted = jax.scipy.sparse.linalg.gmres(a, b, restart=4, maxiter=2, tol=1e-9)[0]
    np.testing.assert_allclose(x, wanted, rtol=1e-3, atol=1e-5)
    assert info == 2


@pytest.mark.parametrize("name", SOLVERS)
def test_pytrees_and_what_the_function_closes_over(name: str) -> None:
    solve = getattr(linalg, name)

    def solution(scale: Any, b: Any) -> Any:
        def apply(x: Any) -> Any:
            return {"u": scale * x["u"] + x["v"].sum(), "v": 3 * x["v"] + x["u"].sum()}

        return solve(apply, b, tol=1e-10)[0]["u"].sum()

    b = {"u": np.array([[1.0, 2.0]]), "v": np.array([3.0, 1.0])}
    a = np.block([[4 * np.eye(2), np.ones((2, 2))], [np.ones((2, 2)), 3 * np.eye(2)]])
    wanted = np.linalg.solve(a, [1, 2, 3, 1])[:2].sum()
    np.testing.assert_allclose(solution(4.0, b), wanted)
    td.check_grads(td.jit(solution), (np.array(4.0), b), order=2)


@pytest.mark.parametrize("name", SOLVERS)
def test_vmap(name: str) -> None:
    solve = getattr(linalg, name)
    a = matrix(name, "float32")
    b = np.stack([normal("float32", N), np.zeros(N, "float32")])
    x, info = td.jit(td.vmap(lambda b: solve(a, b, tol=1e-6)))(b)
    wanted = np.linalg.solve(a, b.T).T
    np.testing.assert_allclose(x, wanted, rtol=2e-4, atol=1e-5)
    np.testing.assert_array_equal(info, [0, 0])


@pytest.mark.parametrize("name", SOLVERS)
def test_a_start_that_is_the_solution(name: str) -> None:
    solve = getattr(linalg, name)
    a, x = matrix(name, "float64"), normal("float64", N)
    found, info = td.jit(lambda b, x: solve(a, b, x, maxiter=1))(a @ x, x)
    np.testing.assert_allclose(found, x)
    assert info == 0
    assert td.grad(lambda x0: solve(a, a @ x, x0)[0].sum())(x).sum() == 0


def test_what_is_not_solved_says_so() -> None:
    singular = np.diag([1.0, 0.0])
    for name in SOLVERS:
        _, info = td.jit(getattr(linalg, name))(singular, np.array([1.0, 1.0]))
        assert info > 0


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"square matrix, got f32\[2,3\]"):
        linalg.cg(tnp.ones((2, 3)), tnp.ones(2))
    with pytest.raises(StructureError, match="must give what b is"):
        linalg.gmres(lambda x: (x, x), tnp.ones(2))
    with pytest.raises(TypeError, match="must give what b is"):
        linalg.cg(tnp.eye(2), tnp.ones(2), M=lambda x: x[:1])
    with pytest.raises(TypeError, match="x0 must give what b is"):
        linalg.cg(tnp.eye(2), tnp.ones(2), tnp.ones(3))
    with pytest.raises(TypeError, match="floating or complex"):
        linalg.cg(tnp.eye(2), tnp.ones(2, int))
