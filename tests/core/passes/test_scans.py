"""What scans keep: values and gradients as in JAX, and products without transposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.plan.steps import ProductStep, walk

LENGTH = 9
Body = Callable[..., Any]
# How one iteration makes the next h (2, 4, 4) from h, x of the iteration, and weights.
BODIES: dict[str, Body] = {
    "turned": lambda m, h, x, v, w: m.tanh(h @ v.T + x),
    "as it is": lambda m, h, x, v, w: m.tanh(h @ v + x),
    "both": lambda m, h, x, v, w: m.tanh(m.tanh(h @ v.T + x) @ v + h @ w),
    "a part": lambda m, h, x, v, w: m.tanh(h @ w[0].T + x),
    "batched": lambda m, h, x, v, w: m.tanh(m.einsum("nbi,noi->nbo", h, w) + x),
    "two axes": lambda m, h, x, v, w: m.tanh(m.einsum("nbi,noi->bo", h, w)[None] + x),
    "left": lambda m, h, x, v, w: m.tanh(v.T @ h + x),
    "a vector": lambda m, h, x, v, w: m.tanh((h @ v[0])[..., None] * x),
}


def scanned(scan: Any, m: Any, body: Body, reverse: bool = False) -> Callable[..., Any]:
    def function(h: Any, xs: Any, v: Any, w: Any) -> Any:
        last, seen = scan(
            lambda h, x: (body(m, h, x, v, w), m.sum(h)), h, xs, reverse=reverse
        )
        return m.sum(last * last) + m.sum(m.sin(seen))

    return function


def arguments(n: int = 4) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = (2, n, n), (LENGTH, 2, n, n), (n, n), (2, n, n)
    return [random.normal(size=s).astype(np.float32) * 0.4 for s in shapes]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_values_and_gradients_are_those_of_jax(name: str, reverse: bool) -> None:
    ours = scanned(td.scan, tnp, BODIES[name], reverse)
    theirs = scanned(jax.lax.scan, jnp, BODIES[name], reverse)
    wanted = jax.jit(jax.value_and_grad(theirs, (0, 1, 2, 3)))(*arguments())
    found = td.jit(td.value_and_grad(ours, (0, 1, 2, 3)))(*arguments())
    for a, b in zip(td.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_scan_in_a_scan() -> None:
    def twice(scan: Any, m: Any) -> Any:
        def outer(h: Any, xs: Any, v: Any, w: Any) -> Any:
            inner = scanned(scan, m, BODIES["turned"])

            def step(c: Any, x: Any) -> Any:
                return m.tanh(c @ w[0].T + 0.01 * inner(c, xs, v, w)), x

            return m.sum(scan(step, h, xs)[0])

        return outer

    wanted = jax.jit(jax.grad(twice(jax.lax.scan, jnp), (0, 2, 3)))(*arguments())
    found = td.jit(td.grad(twice(td.scan, tnp), (0, 2, 3)))(*arguments())
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["turned", "both", "batched"])
def test_no_iteration_reads_the_columns_of_a_weight(name: str) -> None:
    function = scanned(td.scan, tnp, BODIES[name])
    for f in (function, td.grad(function, (0, 2, 3))):
        # Products of smaller matrices call no kernel.
        plan = td.jit(f).lower(*arguments(6)).plan
        inside = [
            step.product.contraction.b.column
            for depth, step in walk(plan.steps)
            if depth and isinstance(step, ProductStep)
        ]
        assert inside and set(inside) == {1}


def test_open_lengths_give_what_known_ones_do() -> None:
    """Products over more than one piece of k, inside of the loop and turned."""
    random = np.random.default_rng(0)
    w = random.standard_normal((320, 1280)).astype(np.float32) / 20

    def loss(w: Any, x: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            z = tnp.tanh(h @ w + row)
            return z[:, :320] * z[:, 320:640] + z[:, 640:960] * z[:, 960:], h.sum()

        h, seen = td.scan(step, tnp.zeros((x.shape[1], 320)), x)
        return (h * h).sum() + seen.sum()

    f = td.jit(td.grad(loss, (0, 1)), dynamic={"x": ("length", "batch", None)})
    for shape in ((5, 3), (9, 3), (1, 3), (9, 1), (20, 7)):
        x = random.standard_normal((*shape, 1280)).astype(np.float32)
        known = td.jit(td.grad(loss, (0, 1)), dynamic=False)
        for a, b in zip(f(w, x), known(w, x), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), shape
    assert f.report().traces <= 3


def written(scan: Any, m: Any) -> Callable[..., Any]:
    """Attention over rows that are written one by one, as in decoding."""

    def step(carry: Any, x: Any) -> Any:
        rows, i = carry
        rows = rows.at[i].set(x)
        return (rows, i + 1), rows @ x

    return lambda xs, v: scan(step, (m.zeros_like(xs), 0), xs)[1] @ v[0, 0]


def rematerialised(scan: Any, m: Any, remat: Any) -> Callable[..., Any]:
    """The gradient of a stack of layers that keep only their inputs."""

    def layer(x: Any, w: Any) -> Any:
        return x + m.tanh(m.tanh(x @ w) @ w) @ w, None

    return lambda x, ws: m.sum(scan(remat(layer), x, ws)[0] ** 2)


def summed(scan: Any, m: Any) -> Callable[..., Any]:
    """The sum of something large in each iteration."""
    return lambda x, ts: scan(lambda c, t: (c + m.tanh(t * x).sum(), None), 0.0, ts)[0]


FRUGAL: dict[str, Any] = {
    "written rows": (
        (written(td.scan, tnp), written(jax.lax.scan, jnp)),
        ((256, 32), (1, 1, 256)),
        8 * 256 * 256 * 4,  # the results; all iterations' rows would be 32 times it
    ),
    "remat": (
        (
            td.grad(rematerialised(td.scan, tnp, td.remat), 1),
            jax.grad(rematerialised(jax.lax.scan, jnp, jax.checkpoint), 1),
        ),
        ((512, 32), (24, 32, 32)),
        2 * 24 * 512 * 32 * 4,  # the inputs of the layers, and as much again
    ),
    "a sum": (
        (summed(td.scan, tnp), summed(jax.lax.scan, jnp)),
        ((128, 128), (64,)),
        8 * 128 * 128 * 4,
    ),
}


@pytest.mark.parametrize("name", FRUGAL)
def test_what_stays_in_the_loop_takes_no_memory_for_all_iterations(name: str) -> None:
    (ours, theirs), shapes, most = FRUGAL[name]
    random = np.random.default_rng(0)
    given = [random.normal(size=s).astype(np.float32) * 0.2 for s in shapes]
    compiled = td.jit(ours)
    assert compiled.lower(*given).plan.arena < most
    found, wanted = compiled(*given), jax.jit(theirs)(*given)
    # Sums of thousands of terms that cancel: as near as their size lets them be.
    near = 1e-5 * float(np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=near)


PRODUCTS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "without a sum": ("hi,hj->hij", lambda m, k: k[:, 0]),
    "of short sums": ("hci,hcj->hij", lambda m, k: k),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("heads", [1, 4])
def test_what_is_larger_than_its_operands_is_not_stored_for_all_iterations(
    name: str, heads: int
) -> None:
    length, size = 20, 24
    spec, part = PRODUCTS[name]

    def f(library: Any, m: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            k = part(m, row)
            state = 0.9 * state + m.einsum(spec, k, m.tanh(k))
            return state, m.einsum("hij,hj->hi", state, row[:, 0])

        state = m.zeros((heads, size, size), "float32")
        return lambda rows: library.scan(step, state, rows)[1]

    random = np.random.default_rng(0)
    rows = random.normal(size=(length, heads, 3, size)).astype(np.float32)
    program = td.jit(f(td, tnp)).lower(rows).compile()
    product = 4 * heads * size * size
    assert program.memory_analysis().temporaries < length / 2 * product
    wanted = jax.jit(f(jax.lax, jnp))(rows)
    np.testing.assert_allclose(program(rows), wanted, rtol=2e-5, atol=1e-5)
    opened = td.jit(f(td, tnp), dynamic={"rows": ("length", None, None, None)})
    assert np.asarray(opened(rows)).tobytes() == np.asarray(program(rows)).tobytes()
