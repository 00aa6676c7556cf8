"""Integers programs that multiply small integers, against NumPy's of 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends.cpu.integers.test_kernel import numbers
from treadle import lax
from treadle.backends.cpu.device import CPUTarget
from treadle.backends.cpu.target import integer_unit
from treadle.check import check
from treadle.compile import build, stages
from treadle.plan.steps import NestStep, ProductStep
from treadle.run.eager import evaluate

needs_a_kernel = pytest.mark.skipif(
    not integer_unit(), reason="a CPU that multiplies no small integers"
)


def run(function: Any, *args: np.ndarray) -> tuple[Any, list[Any]]:
    """The plan of a function, and its results, which are as NumPy evaluates it."""
    graph = td.jit(function).graph(*args)
    check(stages(graph, CPUTarget()))
    program = build(graph, CPUTarget())
    found = [np.asarray(a) for a in program(args)]
    for x, y in zip(found, evaluate(graph, args), strict=True):
        np.testing.assert_array_equal(x, y)
    return program.plan, found


def products(plan: Any) -> list[tuple[str, ...]]:
    """The dtypes of A, B and C of each product."""
    steps = [s for s in plan.steps if isinstance(s, ProductStep)]
    found = [tuple(d.name for d in s.product.contraction.dtypes) for s in steps]
    return list(dict.fromkeys(found))


def exact(formula: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum(formula, a.astype(np.int64), b.astype(np.int64)).astype(np.int32)


SPELLED = {
    "matmul": lambda a, b: tnp.matmul(a, b, preferred_element_type="int32"),
    "einsum": lambda a, b: tnp.einsum("mk,kn", a, b, preferred_element_type="int32"),
    "dot_general": lambda a, b: lax.dot_general(
        a, b, (((1,), (0,)), ((), ())), preferred_element_type="int32"
    ),
    "astype": lambda a, b: a.astype("int32") @ b.astype("int32"),
    "seen otherwise": lambda a, b: a.astype("int32") @ b.T.astype("int32").T,
    "vmap": td.vmap(lambda row, b: row.astype("int32") @ b.astype("int32"), (0, None)),
}


@needs_a_kernel
@pytest.mark.parametrize("spelled", SPELLED)
def test_conversions_are_part_of_products(spelled: str) -> None:
    a, b = numbers((40, 70), "int8"), numbers((70, 33), "int8")
    plan, (c,) = run(SPELLED[spelled], a, b)
    assert products(plan) == [("int8", "int8", "int32")]
    assert not any(isinstance(s, NestStep) for s in plan.steps)
    np.testing.assert_array_equal(c, exact("mk,kn->mn", a, b))


@needs_a_kernel
@pytest.mark.parametrize(
    ("shapes", "formula"),
    [
        (((40, 70), (33, 70)), "mk,nk->mn"),
        (((3, 20, 40), (3, 40, 50)), "bmk,bkn->bmn"),
        (((5, 20, 40), (40, 50)), "bmk,kn->bmn"),
        (((2, 9, 3, 40), (2, 11, 3, 40)), "nqhd,nkhd->nhqk"),
        (((70, 40), (70, 33)), "km,kn->nm"),
    ],
)
def test_unsigned_times_signed(shapes: Any, formula: str) -> None:
    a, b = numbers(shapes[0], "uint8"), numbers(shapes[1], "int8")

    def product(a: Any, b: Any) -> Any:
        return tnp.einsum(formula, a.astype("int32"), b.astype("int32"))

    plan, (c,) = run(product, a, b)
    assert {d for found in products(plan) for d in found} == {"uint8", "int8", "int32"}
    np.testing.assert_array_equal(c, exact(formula, a, b))


@needs_a_kernel
def test_short_sums_stay_in_32_bits() -> None:
    least = CPUTarget().integers[np.dtype("int8")]
    for k, n in ((least - 1, 33), (2 * least - 1, 31)):
        a, b = numbers((40, k), "int8"), numbers((k, n), "int8")
        plan, (c,) = run(SPELLED["astype"], a, b)
        assert products(plan) == [("int32", "int32", "int32")]
        np.testing.assert_array_equal(c, exact("mk,kn->mn", a, b))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_short_results_wrap_as_numpys_do(dtype: str) -> None:
    a, b = numbers((20, 40), dtype), numbers((40, 35), dtype)
    _, (c,) = run(lambda a, b: a @ b, a, b)
    assert c.dtype == dtype
    np.testing.assert_array_equal(c, a @ b)


def test_products_of_booleans() -> None:
    a, b = numbers((20, 40), "bool"), numbers((40, 35), "bool")
    _, (counts, some) = run(
        lambda a, b: (a.astype("int32") @ b.astype("int32"), a @ b), a, b
    )
    np.testing.assert_array_equal(counts, exact("mk,kn->mn", a, b))
    np.testing.assert_array_equal(some, a @ b)


@pytest.mark.parametrize("second", ["bool", "int8", "uint8"])
@pytest.mark.parametrize("first", ["bool", "int8", "uint8"])
@pytest.mark.parametrize("rows", [3, 40])
def test_masks_are_bytes_of_either_sign(first: str, second: str, rows: int) -> None:
    a, b = numbers((rows, 70), first), numbers((70, 33), second)
    _, (c,) = run(SPELLED["astype"], a, b)
    np.testing.assert_array_equal(c, exact("mk,kn->mn", a, b))


@needs_a_kernel
def test_scales_are_an_epilogue() -> None:
    """A quantised layer: one kernel, from bytes to floats."""
    x, w = numbers((40, 70), "uint8"), numbers((70, 50), "int8")
    scale = np.linspace(0.1, 2, 50, dtype=np.float32)
    bias = np.linspace(-9, 9, 50, dtype=np.float32)

    def layer(x: Any, w: Any, scale: Any, bias: Any) -> Any:
        total = x.astype("int32") @ w.astype("int32")
        return tnp.maximum(total.astype("float32") * scale + bias, 0)

    graph = td.jit(layer).graph(x, w, scale, bias)
    program = build(graph, CPUTarget())
    (y,) = program([x, w, scale, bias])
    assert [type(s) for s in program.plan.steps] == [ProductStep]
    total = exact("mk,kn->mn", x, w).astype(np.float64)
    wanted = np.maximum(total * scale + bias, 0)
    np.testing.assert_allclose(np.asarray(y), wanted, rtol=1e-6, atol=1e-3)


@needs_a_kernel
def test_bytes_are_multiplied_in_loops_and_at_open_sizes() -> None:
    w, x = numbers((40, 40), "int8"), numbers((9, 40), "int8")

    def steps(x: Any, w: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            return (x.astype("int32") @ w.astype("int32")).astype("int8"), None

        return td.scan(step, x, None, length=3)[0]

    _, (found,) = run(steps, x, w)
    np.testing.assert_array_equal(found, x @ w @ w @ w)
    once = td.jit(steps, dynamic={"x": ("rows", None)})
    for rows in (3, 40, 130):
        x = numbers((rows, 40), "int8")
        np.testing.assert_array_equal(np.asarray(once(x, w)), x @ w @ w @ w)
