"""What no iteration changes is computed before a loop: values, gradients as in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.plan.steps import NestStep, ProductStep, walk

LENGTH = 5
Body = Callable[..., Any]
# How an iteration makes the next h (48, 32) of h, and constants w (32, 32), v (48, 32).
MOVED: dict[str, tuple[Body, str]] = {
    "a sum": (lambda m, h, w, v: h + (v * v).sum(-1)[:, None], "reduce_sum"),
    "a function": (lambda m, h, w, v: h * m.exp(-m.exp(v)), "exp"),
    "a norm": (lambda m, h, w, v: m.tanh(h @ (w / m.linalg.norm(w))), "sqrt"),
    "what a product reads": (lambda m, h, w, v: m.tanh(h @ (0.5 * w).T), "mul"),
    "a product": (lambda m, h, w, v: h * 0.5 + v @ w, "product"),
    "all": (lambda m, h, w, v: h + m.exp(v @ (0.1 * w)).sum(-1)[:, None], "exp"),
}
STAYS: dict[str, tuple[Body, str]] = {
    "what is cheap": (lambda m, h, w, v: h + m.abs(v), "abs"),
    "what is large": (
        lambda m, h, w, v: h + m.exp(v[:, None, :] - w[None]).sum(1),
        "exp",
    ),
    "a product without a sum": (
        lambda m, h, w, v: h + m.exp(m.einsum("i,j->ij", v.sum(1), w.sum(0))),
        "exp",
    ),
    "what changes": (lambda m, h, w, v: m.exp(-h * h) @ w, "exp"),
}


def loop(kind: str, library: Any, m: Any, body: Body) -> Callable[..., Any]:
    def function(h: Any, w: Any, v: Any) -> Any:
        if kind == "scan":
            return library.scan(
                lambda h, _: (body(m, h, w, v), None), h, None, length=LENGTH
            )[0]
        return library.while_loop(
            lambda c: (c[0] < LENGTH) & (m.exp(v).sum() > 0),
            lambda c: (c[0] + 1, body(m, c[1], w, v)),
            (0, h),
        )[1]

    return function


def arguments() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = (48, 32), (32, 32), (48, 32)
    return [0.3 * random.normal(size=s).astype(np.float32) for s in shapes]


def looped(f: Callable[..., Any], *args: Any) -> set[str]:
    """The operations that a program's loops run in each iteration."""
    found = set()
    for depth, step in walk(td.jit(f).lower(*args).plan.steps):
        if depth and isinstance(step, NestStep):
            found |= {instr.name for instr in step.launch.nest.body}
        elif depth and isinstance(step, ProductStep):
            found.add("product")
    return found


@pytest.mark.parametrize("kind", ["scan", "while"])
@pytest.mark.parametrize("name", MOVED)
def test_what_no_iteration_changes_is_computed_before(name: str, kind: str) -> None:
    body, op = MOVED[name]
    f, args = loop(kind, td, tnp, body), arguments()
    assert op not in looped(f, *args)
    wanted = jax.jit(loop(kind, jax.lax, jnp, body))(*args)
    np.testing.assert_allclose(td.jit(f)(*args), wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["scan", "while"])
@pytest.mark.parametrize("name", STAYS)
def test_what_is_cheap_or_large_stays(name: str, kind: str) -> None:
    body, op = STAYS[name]
    f, args = loop(kind, td, tnp, body), arguments()
    assert op in looped(f, *args)
    wanted = jax.jit(loop(kind, jax.lax, jnp, body))(*args)
    np.testing.assert_allclose(td.jit(f)(*args), wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*MOVED, *STAYS])
def test_gradients_are_those_of_jax(name: str) -> None:
    def gradients(library: Any, m: Any) -> Callable[..., Any]:
        f = loop("scan", library, m, (MOVED | STAYS)[name][0])
        transform = td.grad if library is td else jax.grad
        return transform(lambda *args: (f(*args) ** 2).mean(), (0, 1, 2))

    found = td.jit(gradients(td, tnp))(*arguments())
    wanted = jax.jit(gradients(jax.lax, jnp))(*arguments())
    for a, b in zip(found, wanted, strict=True):
        near = 1e-5 * float(np.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=near)


def test_out_of_loops_in_loops() -> None:
    def f(h: Any, w: Any, v: Any) -> Any:
        def outer(h: Any, _: Any) -> Any:
            inner = loop("while", td, tnp, MOVED["all"][0])
            return inner(h, w, v) * tnp.exp(-(h * h).sum()), None

        return td.scan(outer, h, None, length=3)[0]

    args = arguments()
    plan = td.jit(f).lower(*args).plan
    nests = [(d, s) for d, s in walk(plan.steps) if isinstance(s, NestStep)]
    deepest = {i.name for d, s in nests if d > 1 for i in s.launch.nest.body}
    assert deepest.isdisjoint({"exp", "reduce_sum"})
    h = args[0].astype(np.float64)
    moved = np.exp(args[2] @ (0.1 * args[1])).sum(-1)[:, None]
    for _ in range(3):
        h = (h + LENGTH * moved) * np.exp(-(h * h).sum())
    np.testing.assert_allclose(td.jit(f)(*args), h, rtol=1e-4, atol=1e-6)


def test_loops_of_no_iteration_and_open_sizes() -> None:
    def f(h: Any, w: Any, v: Any, count: Any) -> Any:
        body = MOVED["all"][0]
        return td.scan(lambda h, _: (body(tnp, h, w, v), None), h, count)[0]

    names = {"h": ("n", None), "v": ("n", None), "count": ("length",)}
    opened = td.jit(f, dynamic=names)
    h, w, v = arguments()
    for rows, length in ((48, 5), (48, 1), (7, 0), (1, 3)):
        args = h[:rows], w, v[:rows], np.zeros(length, np.float32)
        known = td.jit(f, dynamic=False)(*args)
        assert np.asarray(opened(*args)).tobytes() == np.asarray(known).tobytes()


def test_weights_of_half_the_size_are_not_widened_before() -> None:
    def f(h: Any, w: Any) -> Any:
        wide = lambda h, _: (tnp.tanh(h @ w.astype(td.float32)), None)  # noqa: E731
        return td.scan(wide, h, None, length=3)[0]

    h, w, _ = arguments()
    half = tnp.asarray(w).astype(td.bfloat16)
    steps = walk(td.jit(f).lower(h, half).plan.steps)
    names = [
        i.name
        for depth, s in steps
        if not depth and isinstance(s, NestStep)
        for i in s.launch.nest.body
    ]
    assert "convert" not in names
