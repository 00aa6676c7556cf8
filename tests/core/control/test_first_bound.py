"""Variables that a loop's first iteration gives a value, against the plain function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td

X = np.float32([0.1, 1, 1.3, 3, 10])


def double(x: Any) -> Any:
    return x * 2


def in_test(x: Any) -> Any:
    while (y := double(x)) < 8:
        x = y
    return y


def in_body(x: Any) -> Any:
    while True:
        y = double(x)
        if y >= 8:
            break
        x = y + 1
    return y


def pytree(x: Any) -> Any:
    while (p := {"a": double(x), "n": 3})["a"] < 8 and x < 100:
        x = p["a"]
        if x > 6:
            continue
        x = x + 1
    return p


def returning(x: Any) -> Any:
    while (y := double(x)) < 8:
        if y > 5:
            return y * 100
        z = y + 1
        x = z
    return y


def with_else(x: Any) -> Any:
    while (y := double(x)) < 8:
        x = y
    else:
        y = y + 1000
    return y


def long_for(x: Any) -> Any:
    for _ in range(1000):
        y = double(x)
        if y >= 8:
            break
        x = y
    return y


@pytest.mark.parametrize(
    "f", [in_test, in_body, pytree, returning, with_else, long_for]
)
def test_as_in_python(f: Callable[[Any], Any]) -> None:
    found = td.vmap(f)(X)
    compiled = td.jit(f)
    for n, x in enumerate(X):
        expected, given = f(x), compiled(x)
        if f is pytree:
            assert given["n"] == expected["n"]
            expected, given = expected["a"], given["a"]
        np.testing.assert_array_equal(given, expected)
        one = (found["a"] if f is pytree else found)[n]
        np.testing.assert_array_equal(one, expected)
    slope = td.jvp(f, (np.float32(1.3),), (np.float32(1),))[1]
    low, high = f(np.float64(1.3 - 1e-3)), f(np.float64(1.3 + 1e-3))
    if f is pytree:
        slope, low, high = slope["a"], low["a"], high["a"]
    np.testing.assert_allclose(slope, (high - low) / 2e-3, rtol=1e-4)


def test_what_one_way_leaves_unbound_is_an_error() -> None:
    @td.jit
    def f(x: Any) -> Any:
        while True:
            if x > 3:
                y = x
            x = x + 1
            if x > 5:
                break
        return y

    with pytest.raises(UnboundLocalError):
        f(1.0)
