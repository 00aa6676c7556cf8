"""Whole programs whose products are of bfloat16, by models of what multiplies that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends.test_halves import WITH_HALVES
from tests.core.fuse.compare import same, tolerance_of, values
from tests.core.fuse.random_rules import generate
from treadle.backends.cpu import device
from treadle.backends.cpu.bfloat import kernel
from treadle.backends.cpu.device import CPUTarget
from treadle.backends.cpu.sources import for_other_sizes
from treadle.backends.cpu.target import AMX_MODEL, AVX512_BF16_MODEL
from treadle.compile import build
from treadle.dtypes import bfloat16, float32
from treadle.plan.steps import NestStep, ProductStep
from treadle.run.eager import evaluate


@pytest.fixture(autouse=True, params=[AMX_MODEL, AVX512_BF16_MODEL])
def _unit(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    for module in (device, kernel):
        monkeypatch.setattr(module, "bfloat_unit", lambda: request.param)
    kernel.source.cache_clear()
    yield
    kernel.source.cache_clear()


def normal(*shape: int, dtype: Any = bfloat16) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def run(function: Any, *args: np.ndarray) -> tuple[Any, list[Any]]:
    """The plan of a function, and its results."""
    program = build(td.jit(function).graph(*args), CPUTarget())
    return program.plan, [np.asarray(a) for a in program(args)]


def products(plan: Any) -> list[tuple[str, ...]]:
    """The dtypes of A, B and C of each product."""
    steps = [s for s in plan.steps if isinstance(s, ProductStep)]
    return [tuple(d.name for d in s.product.contraction.dtypes) for s in steps]


def wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a.astype(bfloat16).astype(np.float64) for a in arrays]


def close(found: np.ndarray, wanted: np.ndarray, scale: float = 1.0) -> None:
    assert found.dtype == bfloat16
    bound = 2.0**-7 * np.abs(wanted) + scale * 2.0**-9
    assert (np.abs(found.astype(np.float64) - wanted) <= bound).all()


@pytest.mark.parametrize(
    ("shapes", "formula"),
    [
        (((40, 70), (70, 33)), "mk,kn->mn"),
        (((40, 70), (33, 70)), "mk,nk->mn"),
        (((3, 20, 40), (3, 40, 50)), "bmk,bkn->bmn"),
        (((2, 9, 3, 16), (2, 11, 3, 16)), "nqhd,nkhd->nhqk"),
        (((5, 20, 40), (40, 50)), "bmk,kn->bmn"),
    ],
)
def test_products_are_of_bfloat16(shapes: Any, formula: str) -> None:
    a, b = (normal(*shape) for shape in shapes)
    plan, (c,) = run(lambda a, b: tnp.einsum(formula, a, b), a, b)
    assert products(plan) == [("bfloat16",) * 3]
    close(c, np.einsum(formula, *wide(a, b)))


def test_operands_are_rounded_while_they_are_packed() -> None:
    x, w = normal(40, 70, dtype=float32), normal(70, 50, dtype=float32)
    plan, (c,) = run(lambda x, w: x.astype(bfloat16) @ w.astype(bfloat16), x, w)
    assert products(plan) == [("float32", "float32", "bfloat16")]
    assert len(plan.steps) == 1
    (x, w) = wide(x, w)
    close(c, x @ w)


def test_what_others_read_is_rounded_once() -> None:
    x, w = normal(40, 70), normal(70, 50, dtype=float32)

    def both(x: Any, w: Any) -> Any:
        half = w.astype(bfloat16)
        return x @ half, half

    plan, (c, half) = run(both, x, w)
    assert products(plan) == [("bfloat16",) * 3]
    np.testing.assert_array_equal(half.view(np.int16), w.astype(bfloat16).view("i2"))
    x, w = wide(x, w)
    close(c, x @ w)


def test_epilogues_work_on_blocks_of_half_floats() -> None:
    x, w, b = normal(70, 90), normal(90, 50), normal(50)
    plan, (y,) = run(lambda x, w, b: tnp.maximum(x @ w + b, 0), x, w, b)
    assert not any(isinstance(s, NestStep) for s in plan.steps)
    x, w, b = wide(x, w, b)
    close(y, np.maximum(x @ w + b, 0), scale=8)


def test_gradients_and_loops() -> None:
    x, w = normal(24, 40), normal(40, 40, dtype=float32) / 8

    def loss(w: Any, x: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            return tnp.tanh(h @ w.astype(bfloat16)), None

        return td.scan(step, x, None, length=3)[0].astype(float32).sum()

    graph = td.jit(td.grad(loss)).graph(w, x)
    (found,) = build(graph, CPUTarget())([w, x])
    (wanted,) = evaluate(graph, [w, x])
    error = np.abs(np.asarray(found) - wanted).max()
    assert error < 0.03 * np.abs(wanted).max()


def test_open_sizes_have_the_bits_of_fixed_ones() -> None:
    def dense(x: Any, w: Any) -> Any:
        return x @ w

    w = normal(300, 50)
    once = td.jit(dense, dynamic={"x": ("rows", None)})
    for rows in (3, 40, 130):
        x = normal(rows, 300)
        (wanted,) = run(dense, x, w)[1]
        np.testing.assert_array_equal(
            np.asarray(once(x, w)).view(np.int16), wanted.view(np.int16)
        )


def test_a_program_expects_products_of_few_rows_if_there_are_kernels_of_them() -> None:
    plan, _ = run(lambda x, w: x @ w, normal(40, 64), normal(64, 48))
    found = {source.key for source in for_other_sizes(plan.steps)}
    unit, names = kernel.unit(), "bfloat16 bfloat16 bfloat16"
    few = {f"contract_all/{unit.name}/{names}"}
    assert found == (few if unit.speed.turned_rows else set())


def test_products_with_vectors_are_nests() -> None:
    x, w = normal(70), normal(70, 50)
    plan, (c,) = run(lambda x, w: x @ w, x, w)
    assert products(plan) == []
    x, w = wide(x, w)
    close(c, x @ w)


@pytest.mark.parametrize("seed", WITH_HALVES[::3])
def test_random_programs(seed: int) -> None:
    program = generate(seed)
    inputs = values(program.arguments())
    graph = td.jit(program.function()).graph(*program.arguments())
    wanted = evaluate(graph, inputs)
    found = [np.asarray(a) for a in build(graph, CPUTarget())(inputs)]
    same(found, wanted, tolerance_of([*inputs, *wanted]))
