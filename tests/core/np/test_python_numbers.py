"""Python's numbers beside arrays of 64 bits keep all their digits; tables of NumPy's
serve traced arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

X = np.array([0.25, 1.7, -3.1])
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda np, x: np.append(x, 1.7),
    "block": lambda np, x: np.block([[x, 1.7], [0.1, x]]),
    "concatenate, flat": lambda np, x: np.concatenate([x, 1.7], axis=None),
    "hstack": lambda np, x: np.hstack([x, 1.7]),
    "interp": lambda np, x: np.interp(0.1, np.sort(x), x),
    "intersect1d": lambda np, x: np.intersect1d(x, 1.7),
    "isin": lambda np, x: np.isin(x, 1.7),
    "kron": lambda np, x: np.kron(x, 1.7),
    "outer": lambda np, x: np.outer(x, 1.7),
    "polyadd": lambda np, x: np.polyadd(x, 1.7),
    "polydiv": lambda np, x: np.polydiv(x, 1.7),
    "polymul": lambda np, x: np.polymul(x, 1.7),
    "polysub": lambda np, x: np.polysub(1.7, x),
    "select": lambda np, x: np.select([x > 1, x < 0], [x, 1.7], 0.1),
    "setdiff1d": lambda np, x: np.setdiff1d(x, 1.7),
    "setxor1d": lambda np, x: np.setxor1d(x, 1.7),
    "stack": lambda np, x: np.stack([x[0], 1.7]),
    "union1d": lambda np, x: np.union1d(x, 1.7),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_keep_their_digits(name: str) -> None:
    function = FUNCTIONS[name]
    found, expected = function(tnp, tnp.asarray(X)), function(np, X)
    if not isinstance(found, tuple):
        found, expected = [found], [expected]
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == e.dtype
        np.testing.assert_allclose(f, e, rtol=1e-14)


@pytest.mark.parametrize("period", [None, 3.0])
def test_tables_of_numpy(period: float | None) -> None:
    places, values = np.array([0.0, 0.5, 1.0]), np.array([0.0, 5.0, 2.0])

    def look_up(x: Any) -> Any:
        return tnp.interp(x, places, values, period=period)

    x = tnp.linspace(0, 1, 7, dtype=td.float64)
    expected = np.interp(np.asarray(x), places, values, period=period)
    for found in (td.jit(look_up)(x), td.vmap(look_up)(x), look_up(x)):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(
        td.grad(look_up)(tnp.array(0.75, td.float64)), -6.0, rtol=1e-12
    )
