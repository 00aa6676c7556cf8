"""Arithmetic of pairs of real numbers is NumPy's of complex ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.core.passes.parts import INF, NAN, equal, grid, joined, pair
from treadle.ops import complex as of_parts
from treadle.ops.arithmetic import add, div, mul
from treadle.ops.binary import maximum, minimum
from treadle.ops.cast import convert
from treadle.ops.compare import eq, ge, gt, le, lt, ne, select
from treadle.ops.movement import broadcast_in_dim
from treadle.ops.reduce import argmax, argmin, reduce_max, reduce_min
from treadle.ops.shape import iota
from treadle.passes.pairs import COMPONENTWISE, RULES, Pair, divide, each, multiply

FEW = [0.0, -0.0, 1.5, -2.0, INF, NAN]
X, Y = (a.ravel() for a in np.meshgrid(grid(FEW), grid(FEW)))
BINARY: dict[Any, Callable[..., Any]] = {
    mul: np.multiply, div: np.divide, maximum: np.maximum, minimum: np.minimum,
    eq: np.equal, ne: np.not_equal, lt: np.less, le: np.less_equal,
    gt: np.greater, ge: np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_two_operands(op: Any) -> None:
    with np.errstate(all="ignore"):
        wanted = BINARY[op](X, Y)
    equal(RULES[op](pair(X), pair(Y)), wanted)


def test_the_size_of_a_divisor_does_not_matter() -> None:
    x = np.array([1 + 2j, -3 + 0.5j, 2j, -1 - 1j])
    for size in (1e160, 1e-160, 1e300, 1e-300):
        for y in (3 + 4j, 4 - 3j, 1 + 1e-20j, -1j, 2 + 2j):
            divisor = pair(np.full(4, y * size))
            equal(divide(pair(x * size), divisor), x / y, 4e-16)


def test_products_have_the_roundings_of_their_formula() -> None:
    r = np.random.default_rng(0)
    a, b, c, d = (r.normal(size=99) for _ in range(4))
    re, im = multiply(Pair(a, b), Pair(c, d))
    assert np.array_equal(re, a * c - b * d)
    assert np.array_equal(im, a * d + b * c)


def test_parts_and_conversions() -> None:
    z = grid()
    re, im = pair(z)
    rules = RULES
    assert rules[of_parts.complex_](re, im) == Pair(re, im)
    assert rules[of_parts.real](Pair(re, im)) is re
    assert rules[of_parts.imag](Pair(re, im)) is im
    found = joined(rules[of_parts.conj](pair(z)))
    assert np.array_equal(found, z.conj(), equal_nan=True)
    assert np.array_equal(np.signbit(found.imag), np.signbit(z.conj().imag))
    single = np.dtype("complex64")
    with np.errstate(all="ignore"):
        equal(rules[convert](pair(z), dtype=single), z.astype(single))
        equal(rules[convert](re, dtype=single), re.astype(single))
    found = rules[iota](shape=(2, 3), axis=1, dtype=np.dtype("complex128"))
    equal(found, np.broadcast_to(np.arange(3) + 0j, (2, 3)))
    chosen = rules[select](z.real > 0, pair(z), pair(-z))
    equal(chosen, np.where(z.real > 0, z, -z))


def rows() -> np.ndarray:
    """Ties of real parts, of both, and what is no number in either part."""
    plain = [1 + 2j, 1 + 3j, -1 + 9j, 1 + 3j, -1 - 9j]
    infinite = [-INF + 1j, INF - INF * 1j, complex(INF, -INF), complex(INF, 2), 0]
    nans = [1 + 2j, complex(NAN, 1), 5, complex(2, NAN), 7j]
    low = [complex(-INF, -INF), complex(-INF, 3), -2 + 1j, complex(-INF, -INF), 0]
    return np.array([plain, infinite, nans, low])


@pytest.mark.parametrize(
    "op", [reduce_max, reduce_min, argmax, argmin], ids=lambda op: op.name
)
@pytest.mark.parametrize("axis", [0, 1])
def test_extremes_along_an_axis(op: Any, axis: int) -> None:
    z = rows()
    name = op.name.removeprefix("reduce_")
    wanted = getattr(np, name)(z, axis)
    if name.startswith("arg"):
        found = np.asarray(RULES[op](pair(z), axis=axis))
        assert np.array_equal(found, wanted)
        return
    found = joined(RULES[op](pair(z), axes=(axis,)))
    lost = np.isnan(z).any(axis)
    assert np.array_equal(np.isnan(found), lost)
    assert np.array_equal(found[~lost], wanted[~lost])


def test_extremes_of_several_axes() -> None:
    z = rows()[:1].reshape(1, 5, 1)
    assert joined(RULES[reduce_max](pair(z), axes=(0, 1, 2))) == 1 + 3j
    assert joined(RULES[reduce_min](pair(z), axes=(0, 1)))[0] == -1 - 9j


def test_both_parts_and_what_is_beside_them() -> None:
    x = Pair(np.array([1.0]), np.array([2.0]))
    assert each(lambda a, n: float(a[0]) * n, x, 3.0) == Pair(3.0, 6.0)
    assert {add, broadcast_in_dim} <= COMPONENTWISE
    assert not COMPONENTWISE & set(RULES)
