"""Loops over few numbers, which are one function: the bits of the kernels by
themselves, and JAX's values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu import loops as commands
from treadle.backends.cpu.run import whole

Function = Callable[..., Any]
SIZES = (1, 2, 3, 4, 5, 8, 17, 33)

# From the module, a vector, a table (6, n), and two places: a vector.
VECTORS: tuple[Function, ...] = (
    lambda m, v, t, i, j: m.tanh(v) + t[i],
    lambda m, v, t, i, j: 0.5 * (v - t[j]) / (1 + m.abs(v)),
    lambda m, v, t, i, j: m.where(v > t[i], v * 0.75, m.exp(-v * v)),
    lambda m, v, t, i, j: v - m.sum(v) / (1 + m.sum(v * v)),
    lambda m, v, t, i, j: m.maximum(v[::-1], t[j]) * 0.9,
    lambda m, v, t, i, j: m.cumsum(v) / (1 + m.max(m.abs(v))),
    lambda m, v, t, i, j: m.concatenate([v[1:], v[:1] * 0.5]),
    lambda m, v, t, i, j: m.tanh(m.sum(t, axis=0)) - v * m.argmax(v) * 0.1,
    lambda m, v, t, i, j: m.sin(v + i) * m.mean(t[:, 0]),
)
# The same to a table.
TABLES: tuple[Function, ...] = (
    lambda m, v, t, i, j: t.at[i].set(v),
    lambda m, v, t, i, j: t.at[i, m.argmax(v)].add(m.min(v) * 0.1),
    lambda m, v, t, i, j: t.at[j].set(m.tanh(t[i] + v)),
    lambda m, v, t, i, j: t.at[m.stack([i, j])].add(0.01 * v),
    lambda m, v, t, i, j: m.where(t > 2, t * 0.5, t),
    lambda m, v, t, i, j: t.at[i].set(v).at[j].multiply(0.5),
)


def body_of(seed: int) -> Function:
    """A random body: from a vector, a table and a number to the same."""
    r = random.Random(seed)
    vectors = [r.choice(VECTORS) for _ in range(r.randint(1, 3))]
    tables = [r.choice(TABLES) for _ in range(r.randint(0, 2))]

    def body(m: Any, v: Any, t: Any, k: Any) -> Any:
        old, i = t, k % 6
        j = (3 * k + 1) % 6
        for f in vectors:
            v = f(m, v, t, i, j)
        for g in tables:
            t = g(m, v, t, i, j)
        return v, t, k + 1, m.sum(old[j]) + v[0]

    return body


def looped(m: Any, lib: Any, body: Function, kind: int) -> Function:
    def scanned(v: Any, t: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            *c, y = body(m, c[0] + x, *c[1:])
            return tuple(c), y

        return lib.scan(step, (v, t, m.int32(0)), xs)

    def while_so(v: Any, t: Any, xs: Any) -> Any:
        def going(c: Any) -> Any:
            return (c[2] < 9) & (m.sum(c[0]) < 1e3)

        return lib.while_loop(
            going, lambda c: body(m, *c)[:3], (v + xs[0], t, m.int32(0))
        )

    return while_so if kind else scanned


@pytest.mark.parametrize("seed", range(16))
def test_bits_are_those_of_the_kernels(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "_TIMES", 1)
    r, n = np.random.default_rng(seed), SIZES[seed % len(SIZES)]
    dtype = np.float64 if seed % 5 == 4 else np.float32
    args = [r.normal(size=s).astype(dtype) for s in ((n,), (6, n), (9, n))]
    body, found = body_of(seed), []
    count = []

    def is_small(loops: Any, small: bool) -> bool:
        count.append(small and whole.is_small(loops))
        return count[-1]

    f = looped(tnp, td, body, seed % 2)
    for small in (True, False):
        monkeypatch.setattr(commands, "is_small", lambda x, s=small: is_small(x, s))
        outs = [td.jit(lambda *a: f(*a))(*args)]
        if not seed % 2:
            total = lambda *a: sum(x.sum() for x in td.tree.leaves(f(*a)[1]))  # noqa: E731
            outs.append(td.jit(td.grad(total))(*args))
        found.append([np.asarray(x) for x in td.tree.leaves(outs)])
    assert any(count)
    for a, b in zip(*found, strict=True):
        assert a.tobytes() == b.tobytes()
    with jax.enable_x64(dtype == np.float64):
        theirs = looped(jnp, jax.lax, body, seed % 2)(*map(jnp.asarray, args))
        wanted = [np.asarray(x) for x in jax.tree.leaves(theirs)]
    for a, b in zip(found[0], wanted, strict=False):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_long_or_open_iterations_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def is_small(loops: Any) -> bool:
        asked.append(whole.is_small(loops))
        return asked[-1]

    monkeypatch.setattr(commands, "is_small", is_small)

    def loop(n: int, times: int) -> None:
        f = td.jit(lambda v: td.fori_loop(0, times, lambda i, v: tnp.tanh(v) + i, v))
        f(np.ones(n, np.float32))

    for n, times, small in ((3, 2000, True), (5000, 2000, False), (3, 9, False)):
        loop(n, times)
        assert asked.pop() == small
