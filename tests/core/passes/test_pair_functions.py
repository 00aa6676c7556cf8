"""Functions of pairs of real numbers are NumPy's of complex ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.core.passes.parts import SPECIAL, equal, grid, joined, pair
from treadle.ops import unary
from treadle.ops.binary import pow_
from treadle.passes.pair_functions import FUNCTIONS

NAMES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}
OTHERS = {"rsqrt", "integer_pow", "pow", "sign"}
ONES = [op for op in FUNCTIONS if op.name not in OTHERS]
# Where C libraries differ among each other, as NumPy's arctanh does of tiny numbers.
NEAR = 4e-14


def numpy_of(op: Any) -> Callable[..., Any]:
    return getattr(np, NAMES.get(op.name, op.name))


def plain() -> np.ndarray:
    """Numbers in all quadrants, near one and far from it."""
    r = np.random.default_rng(0)
    sizes, angles = np.geomspace(1e-6, 20, 60), r.uniform(-np.pi, np.pi, 60)
    near = 1 + 1e-8 * np.exp(1j * angles[:9])
    return np.concatenate([sizes * np.exp(1j * angles), near, -near, 1j * near])


@pytest.mark.parametrize("op", ONES, ids=lambda op: op.name)
def test_numbers(op: Any) -> None:
    z = plain()
    found, wanted = joined(FUNCTIONS[op](pair(z))), numpy_of(op)(z)
    assert (abs(found - wanted) <= NEAR * abs(wanted) + 1e-16).all()


@pytest.mark.parametrize("op", ONES, ids=lambda op: op.name)
def test_special_values(op: Any) -> None:
    z = grid([a for a in SPECIAL if abs(a) in (0, 1, np.inf) or a != a])
    if op in (unary.exp2, unary.expm1):
        z = z[np.isfinite(z)]  # NumPy has none of its own
    with np.errstate(all="ignore"):
        found, wanted = joined(FUNCTIONS[op](pair(z))), numpy_of(op)(z)
    parts = ("real", "imag") if np.iscomplexobj(wanted) else ("real",)
    for part in parts:
        a, b = getattr(found, part), getattr(wanted, part)
        np.testing.assert_allclose(a, b, 1e-13, 1e-16)


def test_large_and_small_numbers_do_not_overflow() -> None:
    z = np.array([3e300 + 4e300j, 3e-300 - 4e-300j, 1e308 + 1e308j, 5e-324 + 0j])
    with np.errstate(all="ignore"):
        for op in (unary.abs_, unary.log, unary.sqrt, unary.asinh, unary.acos):
            equal(FUNCTIONS[op](pair(z)), numpy_of(op)(z), 1e-14)


def test_powers() -> None:
    z = plain()
    for n in (-3, -1, 0, 1, 2, 5):
        wanted = z ** float(n)
        found = joined(FUNCTIONS[unary.integer_pow](pair(z), n=n))
        assert (abs(found - wanted) <= 1e-13 * abs(wanted)).all()
    for y in (0.5, -1.5 + 2j, 2.0):
        found, wanted = joined(FUNCTIONS[pow_](pair(z), pair(np.full_like(z, y)))), z**y
        assert (abs(found - wanted) <= 1e-13 * abs(wanted)).all()
    zero = np.zeros(3, complex)
    equal(FUNCTIONS[pow_](pair(zero), pair(np.array([0, 2, 1.5 + 0j]))), [1, 0, 0j])
    equal(FUNCTIONS[unary.rsqrt](pair(z)), 1 / np.sqrt(z), 1e-14)


def test_the_sign_is_the_direction() -> None:
    z = plain()
    equal(FUNCTIONS[unary.sign](pair(z)), np.sign(z), 1e-14)
    inf = np.inf
    given = np.array([0, complex(inf, 3), complex(2, -inf), complex(-inf, -0.0)])
    equal(FUNCTIONS[unary.sign](pair(given)), [0, 1, -1j, -1])
    both = joined(FUNCTIONS[unary.sign](pair(np.array([complex(inf, inf)]))))
    assert np.isnan(both).all()
