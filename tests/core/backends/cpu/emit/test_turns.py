"""Elementwise sweeps of bfloat16, of even and odd elements, against ml_dtypes and
against the same sweep of few elements at a time."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.dtypes import bfloat16

FUNCTIONS = {
    "rounded": (lambda x, y: x + y, lambda x, y: x + y),
    "moved": (lambda x, y: (y, x), lambda x, y: (y, x)),
    "chosen": (lambda x, y: tnp.where(x > y, x, y), lambda x, y: np.where(x > y, x, y)),
    "by a number": (lambda x, y: x * y[0], lambda x, y: x * y[0]),
    "two results": (lambda x, y: (x * y, -x), lambda x, y: (x * y, -x)),
    "of float32": (
        lambda x, y: (x.astype("float32") / 3 - y.astype("float32")).astype(bfloat16),
        lambda x, y: (x.astype("float32") / 3 - y.astype("float32")).astype(bfloat16),
    ),
    "with float32 beside": (
        lambda x, y: (x + y, (x * y).astype("float32")),
        lambda x, y: (x + y, (x * y).astype("float32")),
    ),
    "long": (lambda x, y: tnp.tanh(x) * y, None),
}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-39, -3e-39, 9.2e-41, 3.4e38, 1e-38]


def operands(size: int) -> list[np.ndarray]:
    """Special values among usual ones, each beside each."""
    rng = np.random.default_rng(size)
    x, y = rng.standard_normal((2, size)).astype(bfloat16)
    n = len(SPECIAL)
    for k in range(0, size, 3):
        x[k], y[k] = SPECIAL[k // 3 % n], SPECIAL[k // 3 // n % n]
    return [x, y]


def bits(of: object) -> list[np.ndarray]:
    """NaNs are one."""
    arrays = [np.asarray(a) for a in (of if isinstance(of, tuple) else (of,))]
    kinds = {2: np.uint16, 4: np.uint32}
    return [np.where(a != a, 1, a.view(kinds[a.dtype.itemsize])) for a in arrays]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_of_any_length(name: str) -> None:
    ours, theirs = FUNCTIONS[name]
    f = td.jit(ours)
    for size in (32, 63, 64, 330):
        x, y = operands(size)
        y[0] = 1.5
        found = bits(f(x, y))
        with np.errstate(all="ignore"):
            given = theirs or (lambda x, y: f_by_few(f, x, y))
            expected = bits(given(x, y))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def f_by_few(f, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    parts = [f(x[k : k + 5], y[k : k + 5]) for k in range(0, len(x), 5)]
    return np.concatenate([np.asarray(part) for part in parts])
