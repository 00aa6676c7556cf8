"""Factors beside which nothing else is read, and matrices too large for lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.ir.walk import live
from treadle.passes.dce import drop_dead
from treadle.trace.lowering import Routine

DTYPES = ["float32", "float64", "complex64", "complex128"]


def random(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if dtype[0] == "c" else x).astype(dtype)


def close(found: Any, wanted: Any) -> None:
    exact = np.asarray(wanted).dtype.itemsize // (1 + (wanted.dtype.kind == "c")) == 8
    tolerance = 1e-11 if exact else 2e-4
    size = np.abs(wanted).max(initial=1)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * size)


ALONE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "R": (lambda a: tnp.linalg.qr(a).R, lambda a: np.linalg.qr(a).R),
    "complete R": (
        lambda a: tnp.linalg.qr(a, "complete").R,
        lambda a: np.linalg.qr(a, "complete").R,
    ),
    "S": (lambda a: tnp.linalg.svd(a, False).S, lambda a: np.linalg.svd(a).S),
    "eigh": (
        lambda a: tnp.linalg.eigh(a @ tnp.conj(a).swapaxes(-1, -2)).eigenvalues,
        lambda a: np.linalg.eigh(a @ np.conj(a).swapaxes(-1, -2)).eigenvalues,
    ),
}
"""Ours, and NumPy's."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (70, 40), (40, 70), (50, 50)])
@pytest.mark.parametrize("name", ALONE)
def test_one_factor_alone(name: str, shape: tuple[int, int], dtype: str) -> None:
    ours, theirs = ALONE[name]
    a = random(dtype, 2, *shape)
    close(np.asarray(td.jit(ours)(a)), theirs(a))
    close(np.asarray(ours(a)), theirs(a))


@pytest.mark.parametrize("name", ALONE)
def test_the_others_are_not_made(name: str) -> None:
    """The equation of a program whose result is one factor has no other one."""
    graph = drop_dead(td.jit(ALONE[name][0]).graph(tnp.ones((3, 40, 40))))
    (found,) = [
        eq
        for eq in live(graph.equations, graph.outputs)[0]
        if isinstance(eq.op.lowering, Routine)
    ]
    assert len(found.outputs) == 1
    assert found.outputs[0] in graph.outputs


def test_the_bits_of_r_are_those_beside_q() -> None:
    for shape in ((5, 3), (3, 5), (300, 20), (20, 300), (64, 64)):
        a = random("float32", *shape)
        both = td.jit(lambda a: tuple(tnp.linalg.qr(a)))(a)
        alone = td.jit(lambda a: tnp.linalg.qr(a).R)(a)
        eager = tnp.linalg.qr(tnp.asarray(a), "r")
        for found in (alone, eager):
            assert np.asarray(found).tobytes() == np.asarray(both[1]).tobytes()


def test_derivatives_of_a_factor_alone() -> None:
    a, t = random("float64", 6, 4), random("float64", 6, 4)
    for name in ("R", "S"):
        f = td.jit(ALONE[name][0])
        _, found = td.jvp(f, (a,), (t,))
        h = 1e-6
        wanted = (np.asarray(f(a + h * t)) - np.asarray(f(a - h * t))) / (2 * h)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(100, 7), (90, 90), (65, 64), (20, 130)])
def test_singular_values_of_large_matrices(shape: tuple[int, int], dtype: str) -> None:
    for full in (True, False):
        a = random(dtype, 2, *shape)
        u, s, vh = (
            np.asarray(x)
            for x in td.jit(lambda a, full=full: tuple(tnp.linalg.svd(a, full)))(a)
        )
        k = min(shape)
        assert u.shape[-1] == (shape[0] if full else k)
        assert vh.shape[-2] == (shape[1] if full else k)
        close(s, np.linalg.svd(a, compute_uv=False))
        close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a)
        for x in (u.conj().swapaxes(-1, -2) @ u, vh @ vh.conj().swapaxes(-1, -2)):
            close(x, np.broadcast_to(np.eye(x.shape[-1], dtype=dtype), x.shape))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [65, 90, 200])
def test_cholesky_of_large_matrices(n: int, dtype: str) -> None:
    """Only the lower triangle is read, if that is asked for."""
    x = random(dtype, 2, n, n)
    a = (x @ x.conj().swapaxes(-1, -2) / n + np.eye(n)).astype(dtype)
    junk = a + np.triu(np.ones((n, n)), 1).astype(dtype)
    lower = td.jit(lambda a: tnp.linalg.cholesky(a, symmetrize_input=False))
    for found in (td.jit(tnp.linalg.cholesky)(a), lower(junk)):
        close(np.asarray(found), np.linalg.cholesky(a))
        assert not np.triu(np.asarray(found), 1).any()


def test_large_sizes_may_be_open() -> None:
    def everything(a: Any) -> list[Any]:
        u, s, vh = tnp.linalg.svd(a, full_matrices=False)
        q, r = tnp.linalg.qr(a)
        return [u, s, vh, q, r, tnp.linalg.qr(a, "r"), tnp.linalg.svdvals(a)]

    sized = td.jit(everything, dynamic={"a": ("m", "n")})
    for shape in ((7, 3), (90, 20), (20, 90), (50, 50), (2, 60)):
        a = random("float32", *shape)
        for x, y in zip(sized(a), td.jit(everything)(a), strict=True):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), shape
    assert sized.report().traces == 1
