"""A target that computes with half floats as they are: nothing is widened for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.compare import same, tolerance_of, values
from tests.core.fuse.random_rules import generate
from treadle.backends.reference.program import ReferenceTarget
from treadle.compile import build
from treadle.ir.graph import Equation, Graph
from treadle.passes.pipeline import optimise
from treadle.plan.steps import ProductStep
from treadle.plan.target import Target
from treadle.run.eager import evaluate
from treadle.trace.lowering import Lowering, Product

HALVES = (td.float16, td.bfloat16)
WITH_HALVES = [
    seed
    for seed in range(3000, 3100)
    if any(a.dtype in HALVES for a in generate(seed).arguments())
]


class Halves(ReferenceTarget):
    """NumPy's arithmetic of half floats, and products of them."""

    name = "halves"
    widens_halves = False

    def lowering(self, eq: Equation) -> Lowering:
        how = eq.op.lowering
        return how if isinstance(how, Product) else super().lowering(eq)


def arrays(dtype: Any, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 2, shape).astype(dtype) for shape in shapes]


def dtypes_in(graph: Graph, target: Target) -> set[Any]:
    graph = optimise(graph, target)
    return {v.type.dtype for eq in graph.equations for v in eq.outputs}


def chain(x: Any, y: Any, z: Any) -> Any:
    return (x * y + z) * x - y / z


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_result_is_rounded(dtype: Any) -> None:
    args = arrays(dtype, (40, 50), (40, 50), (40, 50))
    graph = td.jit(chain).graph(*args)
    assert dtypes_in(graph, Halves()) == {dtype}
    (found,) = build(graph, Halves())(args)
    wanted = chain(*args)
    assert wanted.dtype == dtype
    np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_target_that_widens_rounds_once(dtype: Any) -> None:
    args = arrays(dtype, (40, 50), (40, 50), (40, 50))
    graph = td.jit(chain).graph(*args)
    assert td.float32 in dtypes_in(graph, ReferenceTarget())
    (found,) = build(graph, ReferenceTarget())(args)
    wanted = chain(*(a.astype(np.float32) for a in args)).astype(dtype)
    assert (np.asarray(found) == wanted).mean() > 0.99
    assert (chain(*args) == wanted).mean() < 0.9


def _conv(x: Any, w: Any) -> Any:
    layouts = ("NHWC", "HWIO", "NHWC")
    return td.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layouts)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    "function, shapes",
    [(lambda x, y: x @ y, ((7, 5), (5, 6))), (_conv, ((2, 6, 6, 3), (3, 3, 3, 4)))],
    ids=["matmul", "convolution"],
)
def test_products_and_their_gradients(dtype: Any, function: Any, shapes: Any) -> None:
    def step(x: Any, y: Any, ct: Any) -> Any:
        out, pull = td.vjp(function, x, y)
        return out, *pull(ct)

    args = arrays(dtype, *shapes)
    args += arrays(dtype, function(*map(tnp.asarray, args)).shape)
    graph = td.jit(step).graph(*args)
    assert dtypes_in(graph, Halves()) == {dtype}
    program = build(graph, Halves())
    products = [s for s in program.plan.steps if isinstance(s, ProductStep)]
    assert len(products) == 3
    assert {s.product.contraction.dtype for s in products} == {np.dtype(dtype)}
    wanted = td.jit(step)(*(a.astype(np.float32) for a in args))
    epsilon = float(tnp.finfo(dtype).eps)
    for a, b in zip(program(args), wanted, strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(np.asarray(a, np.float32), b, epsilon, epsilon)


@pytest.mark.parametrize("seed", WITH_HALVES)
def test_random_programs(seed: int) -> None:
    program = generate(seed)
    args = program.arguments()
    inputs = values(args)
    graph = td.jit(program.function()).graph(*args)
    wanted = evaluate(graph, inputs)
    found = [np.asarray(a) for a in build(graph, Halves())(inputs)]
    same(found, wanted, tolerance_of([*inputs, *wanted]))
