"""Carries that a loop only writes into are written where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

pytestmark = pytest.mark.usefixtures("checked_by_reference")

XS = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
Function = Callable[[Any], Any]
Step = Callable[[Any, Any, Any, Any], tuple[Any, Any]]
# An iteration from an array (9, 4), a number, and a row: the next array, and a result.
STEPS: dict[str, Step] = {
    "set": lambda m, a, i, x: (a.at[i].set(x), x),
    "add": lambda m, a, i, x: (a.at[i % 3].add(x), x),
    "multiply": lambda m, a, i, x: (a.at[i].multiply(x), x),
    "same row": lambda m, a, i, x: (a.at[2].add(x), x),
    "best": lambda m, a, i, x: (a.at[i, a[i].argmax()].set(a[i - 1].max()), x),
    "both ways": lambda m, a, i, x: (a.at[i].set(x).at[i + 1].set(a[i]), x),
    "dropped": lambda m, a, i, x: (a.at[i + 4].set(x), x),
    "gathered": lambda m, a, i, x: (a.at[m.array([0, 2, 0]) + i].add(x), x),
    "new read": lambda m, a, i, x: (lambda b: (b, b @ x))(a.at[i].set(x)),
    "old read": lambda m, a, i, x: (a.at[i].set(x), a @ x),
    "old row read": lambda m, a, i, x: (a.at[i].set(x), a[i]),
    "another row": lambda m, a, i, x: (a.at[i].set(a[i - 1] + x), x),
    "turned row": lambda m, a, i, x: (a.at[i].set(a[i, ::-1] + x), x),
    "row's sum": lambda m, a, i, x: (a.at[i].set(x * a[i].sum()), x),
    "returned": lambda m, a, i, x: (lambda b: (b, b))(a.at[i].set(x)),
    "twice": lambda m, a, i, x: (a.at[i].set(x).at[0].add(x), x),
    "maybe": lambda m, a, i, x: (m.where(i % 2 == 0, a.at[i].set(x), a), x),
}
IN_PLACE = [name for name in STEPS if name not in ("maybe", "both ways")]


def scanned(m: Any, scan: Any, step: Step, rows: int = 9) -> Function:
    def body(carry: Any, x: Any) -> Any:
        a, b, i = carry
        a, y = step(m, a, i, x)
        return (a, b.at[i].set(x), i + 1), y

    return lambda xs: scan(body, (m.ones((rows, 4)) + xs[0], xs, 0), xs)


def looped(m: Any, loop: Any, step: Step) -> Function:
    def body(carry: Any) -> Any:
        a, i, x = carry
        return step(m, a, i, x)[0], i + 1, 0.9 * x

    return lambda xs: loop(
        lambda c: (c[1] < 9) & (c[0].sum() < 90), body, (xs, 0, xs[0])
    )


def floats(leaves: list[Any]) -> list[np.ndarray]:
    return [np.asarray(a) for a in leaves if a.dtype == np.float32]


@pytest.mark.parametrize("name", STEPS)
def test_values_and_gradients_are_those_of_jax(name: str) -> None:
    ours = scanned(tnp, td.scan, STEPS[name])
    theirs = scanned(jnp, jax.lax.scan, STEPS[name])

    def total(leaves: Any, f: Function) -> Function:
        return lambda xs: sum(
            (a * a).sum() for a in leaves(f(xs)) if a.dtype == np.float32
        )

    def loop(m: Any, run: Any) -> Function:
        return looped(m, run, STEPS[name])

    both = np.stack([XS, XS[::-1]])
    gradient = td.grad(total(td.tree.leaves, ours))
    cases = (
        (ours, theirs, XS),
        (td.vmap(ours), jax.vmap(theirs), both),
        (gradient, jax.grad(total(jax.tree.leaves, theirs)), XS),
        (loop(tnp, td.while_loop), loop(jnp, jax.lax.while_loop), XS),
    )

    # One program for all: most of what JAX takes is for each.
    @jax.jit
    def all_of_jax() -> Any:
        return [g(xs) for _, g, xs in cases]

    expected = all_of_jax()
    for (f, _, xs), results in zip(cases, expected, strict=True):
        found = floats(td.tree.leaves(td.jit(f)(xs)))
        wanted = floats(jax.tree.leaves(results))
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            near = 1e-5 * float(np.abs(b).max())
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=near)


@pytest.mark.parametrize("name", IN_PLACE)
def test_there_is_one_copy(name: str) -> None:
    rows = 1000
    function = scanned(tnp, td.scan, STEPS[name], rows)
    # The array with which the loop starts, and the one that it carries.
    assert td.jit(function).lower(XS).plan.arena <= 2 * rows * 4 * 4
