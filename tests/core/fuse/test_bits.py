"""A value has one set of bits in a compiled program, wherever it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.compare import hard_conditions
from tests.core.fuse.random_rules import generate
from treadle import nn

F = np.float32
HALVES = ("float16", "bfloat16")
rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(F)


def disagreements(v: Any, order: Any) -> dict[str, Any]:
    """How many elements of a value look different to different readers. `order` is
    0, 1, 2, ..., which the compiler doesn't know: what it picks comes from memory."""
    flat = tnp.reshape(v, (-1,))
    stored = flat[order]
    rows = tnp.reshape(v, (-1, v.shape[-1] if v.ndim else 1))
    top, bottom = tnp.max(rows, 1, keepdims=True), tnp.min(rows, 0)
    found = {
        "memory": flat != stored,
        "floor": tnp.floor(flat * 8) != tnp.floor(stored * 8),
        "integer": (flat * 8).astype("int32") != (stored * 8).astype("int32"),
        "difference": flat - stored != 0,
        "largest": ~tnp.any(rows == top, 1),
        "smallest": ~tnp.any(rows == bottom, 0),
        "beyond": (rows - top > 0) | (rows - bottom < 0),
        "sorted": stored[tnp.argsort(flat)] != tnp.sort(stored),
        "first": rows[tnp.arange(len(rows)), tnp.argmax(rows, 1)] != top[:, 0],
    }
    if str(v.dtype) in HALVES:
        found["half"] = v != v.astype(F).astype(v.dtype)
    return {name: tnp.sum(x) for name, x in found.items()}


def has_one_set_of_bits(function: Callable[..., Any], *args: Any) -> None:
    """Asserts it of all results of a function."""
    with td.disable_jit():
        sizes = [x.size for x in td.tree.flatten(function(*args))[0]]
    orders = [np.arange(n, dtype=np.int32) for n in sizes]

    def check(orders: Any, args: Any) -> Any:
        outs, _ = td.tree.flatten(function(*args))
        return [disagreements(v, o) for v, o in zip(outs, orders, strict=True)]

    with hard_conditions():
        for found in td.jit(check)(orders, args):
            assert not any(map(int, found.values())), found


@pytest.mark.parametrize("seed", range(90))
def test_random_programs(seed: int) -> None:
    program = generate(seed, ("float32", *HALVES), 8).watched(2)
    print(program.source())
    has_one_set_of_bits(program.function(), *program.arguments())


CHAINS: dict[str, Callable[..., Any]] = {
    "exp2": lambda x, y: tnp.exp2(x),
    "square": lambda x, y: tnp.square(x),
    "times": lambda x, y: x * 3.3,
    "power": lambda x, y: (x * 1e3) ** 3,
    "multiply_add": lambda x, y: x * y + x,
    "two products": lambda x, y: x * y - y * 1.7,
    "polynomial": lambda x, y: ((x * 0.3 + y) * x - 0.7) * x + 0.1,
    "functions": lambda x, y: tnp.tanh(x * y) * tnp.log1p(tnp.exp(y)) + tnp.sin(x),
    "row": lambda x, y: (x - tnp.mean(x, 1, keepdims=True)) * y + y[0],
    "product": lambda x, y: tnp.tanh(x @ y.T),
    "epilogue": lambda x, y: (x @ y.T) * 0.3 + y[0, 0],
    "running": lambda x, y: tnp.cumsum(x * y, 1) * 0.3 + 0.1,
}


@pytest.mark.parametrize("dtype", ["float32", "float64", *HALVES])
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("shape", [(5, 33), (40, 3)])
def test_chains(name: str, dtype: str, shape: tuple[int, int]) -> None:
    x, y = (tnp.asarray(normal(*shape)).astype(getattr(td, dtype)) for _ in range(2))
    if name == "power" and dtype == "float16":
        x = x * 1e-3
    has_one_set_of_bits(CHAINS[name], x, y)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_adds_products_as_they_are_in_memory(dtype: str, axis: int) -> None:
    """Which kernel makes a product depends on sizes; the bits of its sum must not."""
    x, y = (normal(7, 33).astype(dtype) for _ in range(2))
    alone = td.jit(lambda x, y: tnp.sum(x * y, axis))(x, y)
    beside, _ = td.jit(lambda x, y: (tnp.sum(x * y, axis), x * y))(x, y)
    stored = td.jit(lambda p: tnp.sum(p, axis))(x * y)
    np.testing.assert_array_equal(alone, beside)
    np.testing.assert_array_equal(alone, stored)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("extreme", [tnp.max, tnp.min])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2)])
def test_gradients_of_extremes_of_halves(dtype: str, extreme: Any, axis: Any) -> None:
    def loss(x: Any, function: Callable[..., Any]) -> Any:
        return extreme(function(x.astype(getattr(td, dtype))), axis=axis).sum()

    # Not what came before decides which elements tie.
    x = np.random.default_rng(0).normal(size=(5, 3, 5)).astype(F)
    for function in (tnp.square, tnp.exp, lambda x: x * 3.3, lambda x: x * x + x):
        gradient = td.grad(lambda x, f=function: loss(x, f))
        found, wanted = np.asarray(td.jit(gradient)(x)), np.asarray(gradient(x))
        # Where halves tie, elements share; a fused multiply-add may break a tie.
        assert np.isfinite(found).all()
        ties = (found != 0) != (wanted != 0)
        assert ties.sum() <= 2
        np.testing.assert_allclose(found[~ties], wanted[~ties], 0.1, 0.05)


@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_of_extremes_of_a_product_of_halves(dtype: str) -> None:
    """Elements that are the largest share one derivative: that of a sum over rows."""

    def loss(bias: Any, x: Any, w: Any) -> Any:
        y = tnp.tanh(x @ w) * 3.3
        return tnp.max(y + bias, axis=1).astype(F).sum()

    x, w = (tnp.asarray(normal(8, 8)).astype(getattr(td, dtype)) for _ in range(2))
    bias = tnp.zeros((8, 8), x.dtype)
    found = np.asarray(td.jit(td.grad(loss))(bias, x, w)).astype(F)
    np.testing.assert_allclose(found.sum(1), np.ones(8), 0.02)


@pytest.mark.parametrize("power", [1, 3])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("function", [nn.softmax, nn.log_softmax, nn.logsumexp])
def test_normalisers_of_huge_numbers(function: Any, axis: int, power: int) -> None:
    x = normal(64, 50)

    def ours(x: Any) -> Any:
        return function((x * (3e10 if power == 1 else 1e3)) ** power, axis=axis)

    found, wanted = np.asarray(td.jit(ours)(x)), np.asarray(ours(x))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, wanted, 1e-6, 1e-6 * np.abs(wanted).max())


def test_extremes_in_the_backward_pass_of_a_scan() -> None:
    """Cheap values are computed again there, in a program of its own, but the places
    of the maximum are remembered."""

    def loss(w: Any, xs: Any, numpy: Any, scan: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            y = c * x - x * w
            return c * 0.5 + numpy.max(y, axis=-1, keepdims=True) * 0.1 + w, None

        return scan(step, numpy.ones((4, 7), numpy.float32), xs)[0].sum()

    w, xs = normal(4, 7), normal(6, 4, 7)
    found = td.jit(td.grad(lambda w, xs: loss(w, xs, tnp, td.scan), (0, 1)))(w, xs)
    wanted = jax.grad(lambda w, xs: loss(w, xs, jnp, jax.lax.scan), (0, 1))(w, xs)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, 1e-4, 1e-5)


def test_a_conversion_that_the_program_asks_for_is_made() -> None:
    def f(x: Any) -> Any:
        return (x * 1.1).astype(td.bfloat16).astype(F)

    x = normal(300)
    wanted = (x * F(1.1)).astype(jnp.bfloat16).astype(F)
    np.testing.assert_array_equal(np.asarray(td.jit(f)(x)), wanted)
