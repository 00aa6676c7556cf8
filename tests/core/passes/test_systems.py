"""Batches of small systems are solved by arithmetic, to what NumPy finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.device import CPUTarget
from treadle.check import check
from treadle.compile import stages


def systems(count: int, n: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    a = rng.normal(size=(count, n, n))
    if n > 1:
        a[:, 0, 0] = 0  # rows must change places
    return a, rng.normal(size=(count, n, columns))


def names(function: Any, *args: Any) -> list[str]:
    made = stages(td.trace(function)(*args), CPUTarget())
    check(made)
    return [eq.op.name for eq in made.graph.equations]


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_solutions_and_gradients(n: int, columns: int) -> None:
    def total(a: Any, b: Any) -> Any:
        return tnp.sum(tnp.sin(tnp.linalg.solve(a, b)))

    a, b = systems(7, n, columns)
    assert ("lu_solve" in names(total, a, b)) == (n > 4)
    expected = np.linalg.solve(a, b)
    np.testing.assert_allclose(td.jit(tnp.linalg.solve)(a, b), expected, 1e-8)
    by_a, by_b = td.jit(td.grad(total, argnums=(0, 1)))(a, b)
    back = np.linalg.solve(np.swapaxes(a, 1, 2), np.cos(expected))
    np.testing.assert_allclose(by_b, back, 1e-7, 1e-9)
    outer = -back @ np.swapaxes(expected, 1, 2)
    np.testing.assert_allclose(by_a, outer, 1e-7, 1e-8)


def test_one_system_and_complex_ones_are_for_lapack() -> None:
    a, b = systems(3, 3, 2)
    assert "lu_solve" in names(tnp.linalg.solve, a[0], b[0])
    z = td.jit(tnp.linalg.solve)(a + 1j, b)
    np.testing.assert_allclose(z, np.linalg.solve(a + 1j, b), 1e-8)


def test_a_batch_of_open_size_has_the_same_bits() -> None:
    sized = td.jit(tnp.linalg.inv, dynamic={"a": ("n", None, None)})
    for count in (20, 7, 1):
        a, _ = systems(count, 3, 1)
        assert np.array_equal(sized(a), td.jit(tnp.linalg.inv)(a))
        np.testing.assert_allclose(sized(a), np.linalg.inv(a), 1e-8)


def test_open_numbers_of_unknowns_have_the_same_bits() -> None:
    sized = td.jit(tnp.linalg.inv, dynamic={"a": ("n", "k", "k")})
    for n in (3, 6, 2, 7, 3):
        a, _ = systems(4, n, 1)
        assert np.array_equal(sized(a), td.jit(tnp.linalg.inv)(a))
        np.testing.assert_allclose(sized(a), np.linalg.inv(a), 1e-8)
