"""`return` within loops that traced values end, against the plain function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

ROW = np.float32([0.5, 1, -2, 3, 0.25, 4])


def first(xs: Any, limit: Any, n: Any) -> Any:
    for i in range(n):
        if xs[i] > limit:
            return xs[i] * 2
    return xs[0] * 0 - 1.0


def of_two(xs: Any, limit: Any, n: Any) -> Any:
    s = 0.0
    for i in range(n):
        s = s + xs[i]
        t = s * s
        if t > limit:
            return t, i
    return s, n


def nested(xs: Any, limit: Any, n: Any) -> Any:
    s = 0.0
    for i in range(n):
        for j in range(i):
            s = s + xs[j]
            if s > limit:
                return s + i * 100 + j
        if s > limit - 1:
            break
    return s


def twice(xs: Any, limit: Any, n: Any) -> Any:
    for i in range(0, n, 2):
        if xs[i] > limit:
            return {"x": xs, "at": (xs[i], 1)}
        if xs[i] < -limit:
            return {"x": -xs, "at": (0.0, i)}
    return {"x": xs * 0, "at": (0.0, 0)}


def in_try(xs: Any, limit: Any, n: Any) -> Any:
    for i in range(n):
        try:
            if xs[i] > limit:
                return xs[i] + 5
        finally:
            i = i + 1
    return xs[0]


def in_while(xs: Any, limit: Any, n: Any) -> Any:
    x, k = xs[1], 0
    while x < limit * 4:
        k = k + 1
        x = x * 1.5
        if k > n:
            return x * 100
        if x > 7.0:
            return x
    return -x


def endless(xs: Any, limit: Any, n: Any) -> Any:
    x = xs[1]
    while True:
        x = x * 1.5
        if x > limit * 10:
            return x + n


def long(xs: Any, limit: Any, n: Any) -> Any:
    for i in range(200):
        if xs[i % 6] * i > limit * n * 5:
            return i
    return -1


class Search:
    def first(self, xs: Any, limit: Any, n: Any) -> Any:
        for i in range(1, n, 2):
            if xs[i] > limit:
                return xs[i] - 1
            elif xs[i] < 1.5:
                continue
        return tnp.sum(xs)


FUNCTIONS = [
    *(first, of_two, nested, twice, in_try, in_while, endless, long, Search().first)
]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_values(f: Callable[..., Any]) -> None:
    jitted = td.jit(f)
    for limit in np.float32([0.75, 2.5, 10]):
        wanted = f(tnp.asarray(ROW), limit, 6)
        found = jitted(ROW, limit, np.int32(6))
        assert td.tree.structure(found) == td.tree.structure(wanted)
        for a, b in zip(td.tree.leaves(found), td.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    assert jitted.report().traces == 1


@pytest.mark.parametrize("f", [first, nested, in_while], ids=lambda f: f.__name__)
def test_derivatives_batches_and_loops(f: Callable[..., Any]) -> None:
    limits = np.float32([0.75, 2.5, 10])
    plain = [f(tnp.asarray(ROW), limit, 6) for limit in limits]
    n = np.int32(6)
    for limit in limits:
        wanted = td.grad(lambda xs: f(xs, limit, 6))(tnp.asarray(ROW))  # noqa: B023
        np.testing.assert_allclose(td.jit(td.grad(f))(ROW, limit, n), wanted, 1e-5)
    batched = td.jit(td.vmap(f, (None, 0, None)))(ROW, limits, n)
    np.testing.assert_allclose(batched, np.stack(plain), 1e-5)

    def body(c: Any, limit: Any) -> Any:
        return c, f(tnp.asarray(ROW), limit, tnp.asarray(n)) * 1.0

    scanned = td.jit(lambda ls: td.scan(body, 0.0, ls)[1])(limits)
    np.testing.assert_allclose(scanned, np.stack(plain), 1e-5)


def test_results_of_two_types_are_an_error() -> None:
    def f(xs: Any, n: Any) -> Any:
        for i in range(n):
            if xs[i] > 1:
                return xs[i]
            if xs[i] < -1:
                return i
        return 0

    with pytest.raises(TypeError, match=r"returns f32\[\] and i32\[\]"):
        td.jit(f)(ROW, np.int32(6))
