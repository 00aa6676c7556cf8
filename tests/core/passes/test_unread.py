"""Results of scans that nobody reads are not made; the others are what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.plan.steps import Loop, walk

LENGTH, WIDTH = 6, 8
Chosen = Callable[..., Any]
READ: dict[str, tuple[Chosen, int]] = {
    "all": (lambda last, rows: (last, rows), 6),
    "a carry": (lambda last, rows: last[0], 2),
    "a carry of another": (lambda last, rows: last[1], 3),
    "one that leads to itself": (lambda last, rows: last[2], 2),
    "rows": (lambda last, rows: rows[0], 2),
    "rows of a carry": (lambda last, rows: rows[1], 4),
    "nothing": (lambda last, rows: 1.0, 0),
}
"""What is read, and how many results the loop then has at most, of six."""


def scanned(m: Any, scan: Any, chosen: Chosen) -> Callable[..., Any]:
    def function(x: Any, w: Any) -> Any:
        def step(c: Any, r: Any) -> Any:
            a, b, d = c
            new = m.sin(a + r), b * 0.5 + a, m.cos(d @ w)
            return new, (m.exp(r) @ w, b * 3, d - r)

        last, rows = scan(step, (x[0], x[1], x[2]), x)
        return chosen(last, rows)

    return function


def given() -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(0)
    x, w = r.normal(size=(LENGTH, WIDTH)), r.normal(size=(WIDTH, WIDTH))
    return x.astype(np.float32), w.astype(np.float32) * 0.3


def results(function: Callable[..., Any], *args: Any) -> list[int]:
    """How many values each loop writes at last, stacks included."""
    plan = td.jit(function).lower(*args).plan
    loops = [s for _, s in walk(plan.steps) if isinstance(s, Loop)]
    return [len({p.buffer for p in loop.writes}) for loop in loops]


@pytest.mark.parametrize("name", READ)
def test_values_are_those_of_jax(name: str) -> None:
    chosen, most = READ[name]
    ours = scanned(tnp, td.scan, chosen)
    theirs = scanned(jnp, jax.lax.scan, chosen)
    found, wanted = td.jit(ours)(*given()), theirs(*given())
    for a, b in zip(td.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    # A carry has two buffers.
    assert sum(results(ours, *given())) <= 2 * most


def test_less_is_kept_if_less_is_read() -> None:
    every, some, none = [
        sum(results(scanned(tnp, td.scan, READ[name][0]), *given()))
        for name in ("all", "a carry", "nothing")
    ]
    assert every > some > none == 0


def test_gradients_and_loops_in_loops() -> None:
    def twice(m: Any, scan: Any, grad: Any) -> Callable[..., Any]:
        inner = scanned(m, scan, READ["all"][0])

        def function(x: Any, w: Any) -> Any:
            def step(c: Any, r: Any) -> Any:
                last, rows = inner(x * c, w)
                return m.mean(last[1]) * 0.1, (rows[1].sum() + r.sum(), rows[2])

            return scan(step, x[0, 0], x)[1][0].sum()

        return grad(function, (0, 1))

    ours, theirs = twice(tnp, td.scan, td.grad), twice(jnp, jax.lax.scan, jax.grad)
    for a, b in zip(td.jit(ours)(*given()), theirs(*given()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_what_a_loop_does_besides_is_done() -> None:
    seen: list[float] = []

    def note(x: Any) -> None:
        seen.append(float(x))

    @td.jit
    def function(x: Any) -> Any:
        def step(c: Any, r: Any) -> Any:
            td.debug.callback(note, c)
            return c + r, c * 2

        td.scan(step, x[0], x)
        return x[0]

    function(tnp.arange(4.0)).block_until_ready()
    assert sorted(seen) == [0.0, 0.0, 1.0, 3.0]
