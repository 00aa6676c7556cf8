"""Integers of a byte beside floats: products have the bits of those that read them
converted, from models of what multiplies them and from what this machine has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends.cpu import bfloat_call as calls
from tests.core.backends.cpu.bfloat.test_kernel import inside
from tests.core.backends.cpu.gemm.test_kernel import columns, rows, sparse
from treadle.backends.cpu.bfloat import kernel, tiles, vectors
from treadle.backends.cpu.bfloat.singles import FloatUnit, SingleModel, SingleUnit
from treadle.backends.cpu.bfloat.tile_block import TileUnit
from treadle.backends.cpu.bfloat.unit import BYTES, Unit
from treadle.backends.cpu.bfloat.vectors import VectorUnit
from treadle.backends.cpu.device import CPUTarget
from treadle.backends.cpu.gemm.arguments import FEW_KINDS, Word
from treadle.backends.cpu.target import bfloat_unit, multiplies_singles
from treadle.check import check
from treadle.compile import build, stages
from treadle.dtypes import bfloat16, float16, float32
from treadle.plan.steps import NestStep, ProductStep, walk
from treadle.run.eager import evaluate

UNITS = [
    (VectorUnit(vectors.Model()), bfloat16),
    (TileUnit(tiles.Model()), bfloat16),
    (SingleUnit(SingleModel()), float16),
    (FloatUnit(SingleModel()), float32),
]
UNITS += [(kernel.unit(), bfloat16)] if bfloat_unit() else []
if multiplies_singles():
    UNITS += [(kernel.unit(dtype), dtype) for dtype in (float16, float32)]
EACH = pytest.mark.parametrize(
    ("unit", "dtype"), UNITS, ids=[f"{unit.name}-{dtype}" for unit, dtype in UNITS]
)
HAS = CPUTarget().multiplied.beside_bytes


def numbers(rng: np.random.Generator, size: tuple[int, int], dtype: Any) -> np.ndarray:
    """All values of a dtype, the least and the largest among them."""
    found = rng.integers(0, 256, size).astype(np.uint8)
    return found.view(dtype)


def laid_out(layout: Any, values: np.ndarray) -> np.ndarray:
    array = layout(np.random.default_rng(0), (1, 1, *values.shape), values.dtype)
    array[...] = values
    return array


# Of the other ones, models that take long to compile are the same.
CASES = [(unit, dtype, BYTES[0]) for unit, dtype in UNITS]
CASES += [(*UNITS[i], small) for i in {2, 3, len(UNITS) - 1} for small in BYTES[1:]]


@pytest.mark.parametrize(
    ("unit", "dtype", "small"), CASES, ids=[f"{u.name}-{d}-{s}" for u, d, s in CASES]
)
def test_products_have_the_bits_of_those_of_floats(
    unit: Unit, dtype: np.dtype, small: np.dtype
) -> None:
    rng = np.random.default_rng(0)
    few = 0
    for i, (m, n, k) in enumerate(
        [(1, 32, 32), (1, 45, 100), (3, 70, 129), (8, 33, 64), (20, 40, 300), (1, 1, 1)]
    ):
        for layout in (rows, columns, sparse)[: 3 if i < 3 else 2]:
            b = numbers(rng, (k, n), small)
            a = rows(rng, (1, 1, m, k), dtype)
            around, c = inside(m, n, dtype)
            kept, wanted = around.copy(), np.zeros((1, 1, m, n), dtype)
            call = calls.product(c, a, laid_out(layout, b), unit=unit)
            few += call.launches[0].words[Word.KIND] in FEW_KINDS
            call.serial()
            if dtype == float32:
                exact = a[0, 0].astype(float) @ b.astype(float)
                scale = np.abs(a[0, 0]).astype(float) @ np.abs(b.astype(float))
                assert (np.abs(c[0, 0] - exact) <= 2e-6 * scale).all()
            else:
                floats = laid_out(layout, b.astype(dtype))
                calls.product(wanted, a, floats, unit=unit).serial()
                np.testing.assert_array_equal(c, wanted)
            kept[:, :, :m, :n] = c
            np.testing.assert_array_equal(around, kept, "wrote outside of C")
    assert few or not unit.speed.turned_rows


@EACH
def test_bytes_may_be_the_first_operand(unit: Unit, dtype: np.dtype) -> None:
    rng = np.random.default_rng(1)
    a, b = numbers(rng, (20, 70), np.int8), rows(rng, (1, 1, 70, 40), dtype)
    if dtype == float32:
        unit = FloatUnit(unit.vectors, few=False)  # type: ignore[attr-defined]
    c = np.zeros((1, 1, 20, 40), float32)
    calls.product(c, laid_out(rows, a), b, unit=unit).serial()
    wide = a.astype(float), b[0, 0].astype(float)
    scale = np.abs(wide[0]) @ np.abs(wide[1])
    assert (np.abs(c[0, 0] - wide[0] @ wide[1]) <= 2e-6 * scale).all()


def test_floats_have_the_bits_of_sums_in_the_order_of_k() -> None:
    """Whether few rows read B where it lies, or it is packed."""
    rng = np.random.default_rng(2)
    a, b = rows(rng, (1, 1, 40, 300), float32), numbers(rng, (300, 70), np.int8)
    for layout in (rows, columns):
        for unit in [unit for unit, dtype in UNITS if dtype == float32]:
            c = np.zeros((1, 1, 40, 70), float32)
            calls.product(c, a, laid_out(layout, b), unit=unit).serial()
            for m in (1, 4, 20):
                some = np.zeros((1, 1, m, 70), float32)
                given = a[:, :, :m]
                calls.product(some, given, laid_out(layout, b), unit=unit).serial()
                np.testing.assert_array_equal(some, c[:, :, :m])


def run(function: Any, *args: np.ndarray) -> tuple[list[tuple[str, ...]], Any, Any]:
    """The dtypes of products of a program, its nests, and its result, which is about
    what NumPy gives."""
    graph = td.jit(function).graph(*args)
    check(stages(graph, CPUTarget()))
    program = build(graph, CPUTarget())
    (found,) = [np.asarray(a) for a in program(args)]
    (wanted,) = evaluate(graph, args)
    tolerance = 2e-5 if found.dtype == float32 else 2e-2
    largest = np.abs(wanted.astype(float)).max()
    assert (
        np.abs(found.astype(float) - wanted.astype(float)).max() < tolerance * largest
    )
    steps = [step for _, step in walk(program.plan.steps)]
    products = [s.product for s in steps if isinstance(s, ProductStep)]
    dtypes = [tuple(d.name for d in p.contraction.dtypes) for p in products]
    return dtypes, [s for s in steps if isinstance(s, NestStep)], found


EVERY = pytest.mark.parametrize("dtype", [bfloat16, float16, float32], ids=str)
SPELLED = {
    "x @ w.astype": lambda x, w, s: (x @ w.T.astype(x.dtype)) * s,
    "transposed afterwards": lambda x, w, s: (x @ w.astype(x.dtype).T) * s,
    "w @ x": lambda x, w, s: (w.astype(x.dtype) @ x.T).T * s,
    "einsum": lambda x, w, s: tnp.einsum("mk,nk->mn", x, w.astype(x.dtype)) * s,
    "in two steps": lambda x, w, s: (x @ w.astype("int32").astype(x.dtype).T) * s,
    "vmap": td.vmap(lambda x, w, s: (w.astype(x.dtype) @ x) * s, (0, None, None)),
}


@EVERY
@pytest.mark.parametrize("spelled", SPELLED)
def test_stored_weights_are_read_as_bytes(spelled: str, dtype: np.dtype) -> None:
    if dtype not in HAS:
        pytest.skip("a CPU that has no such products")
    rng = np.random.default_rng(3)
    x, w = rows(rng, (1, 1, 4, 70), dtype)[0, 0], numbers(rng, (50, 70), np.int8)
    scale = np.linspace(0.1, 2, 50).astype(dtype)
    products, nests, _ = run(SPELLED[spelled], x, w, scale)
    (found,) = products
    assert "int8" in found and not nests


SCALED = {
    "each row": lambda x, w, s: x @ (w.astype(x.dtype) * s).T,
    "in float32": lambda x, w, s: (
        x @ (w.astype(float32) * s.astype(float32)).astype(x.dtype).T
    ),
    "each column": lambda x, w, s: x @ (s.T * w.T.astype(x.dtype)),
    "one axis": lambda x, w, s: tnp.einsum(
        "mk,nk->nm", x, w.astype(x.dtype) * s[:, 0][:, None]
    ),
    "a number": lambda x, w, s: x @ (w.astype(x.dtype) * s[7, 0]).T,
    "a constant": lambda x, w, s: x @ (w.astype(x.dtype) * 0.25).T,
    "first": lambda x, w, s: (w.astype(x.dtype) * s) @ x.T,
    "vmap": td.vmap(lambda x, w, s: (w.astype(x.dtype) * s) @ x, (0, None, None)),
}


@EVERY
@pytest.mark.parametrize("spelled", SCALED)
def test_scales_of_weights_are_an_epilogue(spelled: str, dtype: np.dtype) -> None:
    if dtype not in HAS:
        pytest.skip("a CPU that has no such products")
    rng = np.random.default_rng(7)
    x, w = rows(rng, (1, 1, 4, 70), dtype)[0, 0], numbers(rng, (50, 70), np.int8)
    products, *_ = run(SCALED[spelled], x, w, rng.uniform(1, 2, (50, 1)).astype(dtype))
    (found,) = products
    assert "int8" in found and found[2] == "float32"


@pytest.mark.skipif(float32 not in HAS, reason="a CPU that has no such products")
def test_scales_of_experts_and_of_both_operands() -> None:
    rng = np.random.default_rng(8)
    x = numbers(rng, (12, 70), np.int8).reshape(3, 4, 70)
    w = numbers(rng, (150, 70), np.int8).reshape(3, 50, 70)
    of_x, of_w = (rng.uniform(1, 2, (3, n, 1)).astype(np.float32) for n in (1, 50))

    def product(*args: Any) -> Any:
        x, w, of_x, of_w = args
        pair = x.astype("float32") * of_x, of_w * w.astype("float32")
        return tnp.einsum("emk,enk->nem", *pair)

    products, *_ = run(product, x, w, of_x, of_w)
    assert products == [("int8", "int8", "float32")]


@pytest.mark.skipif(float32 not in HAS, reason="a CPU that has no such products")
def test_masks_that_are_computed_are_floats() -> None:
    rng = np.random.default_rng(10)
    x, y = (rng.standard_normal((40, 40), np.float32) for _ in range(2))
    products, *_ = run(lambda x, y: (x > 0).astype("float32") @ y, x, y)
    assert products == [("float32", "float32", "float32")]


@pytest.mark.skipif(float32 not in HAS, reason="a CPU that has no such products")
def test_scales_along_sums_stay() -> None:
    rng = np.random.default_rng(9)
    x, w = rows(rng, (1, 1, 4, 70), float32)[0, 0], numbers(rng, (50, 70), np.int8)
    for shape in ((70,), (1, 70), (50, 70)):
        scale = rng.uniform(1, 2, shape).astype(np.float32)
        products, *_ = run(lambda x, w, s: x @ (w.astype("float32") * s).T, x, w, scale)
        assert products == [("float32", "float32", "float32")]


@pytest.mark.skipif(float32 not in HAS, reason="a CPU that has no such products")
def test_conversions_that_lose_something_are_computed() -> None:
    rng = np.random.default_rng(4)
    x = rows(rng, (1, 1, 4, 70), float32)[0, 0]
    w = numbers(rng, (50, 70), np.int8)
    for kinds in (("uint8", "float32"), ("uint32", "float32"), ("bool", "float32")):

        def product(x: Any, w: Any, kinds: Any = kinds) -> Any:
            for kind in kinds:
                w = w.astype(kind)
            return x @ w.T

        (found,), *_ = run(product, x, w)
        assert "int8" not in found


@pytest.mark.skipif(float32 not in HAS, reason="a CPU that has no such products")
def test_loops_and_open_sizes_read_bytes() -> None:
    rng = np.random.default_rng(5)
    w = numbers(rng, (40, 40), np.int8)

    def steps(x: Any, w: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            return tnp.tanh((x @ w.astype("float32").T) * 0.01), None

        return td.scan(step, x, None, length=3)[0]

    x = rows(rng, (1, 1, 4, 40), float32)[0, 0]
    products, *_ = run(steps, x, w)
    assert products == [("float32", "int8", "float32")]


@pytest.mark.skipif(float32 not in HAS, reason="a CPU that has no such products")
def test_open_sizes_have_the_bits_of_fixed_ones() -> None:
    rng = np.random.default_rng(5)
    w = numbers(rng, (70, 40), np.int8)

    def product(x: Any, w: Any) -> Any:
        return x @ w.astype(x.dtype).T

    once = td.jit(product, dynamic={"x": ("rows", None)})
    for m in (1, 3, 9, 40):
        x = rng.standard_normal((m, 40), np.float32)
        wanted = np.asarray(td.jit(product)(x, w))
        np.testing.assert_array_equal(np.asarray(once(x, w)), wanted)


@pytest.mark.skipif(float32 not in HAS, reason="a CPU that has no such products")
@pytest.mark.parametrize("scaled", [(50, 1), (1, None), ()], ids=str)
def test_open_sums_have_the_bits_of_fixed_ones(scaled: tuple[int | None, ...]) -> None:
    """Of one element, where a scale of a row and one along the sum look the same."""
    rng = np.random.default_rng(6)

    def product(x: Any, w: Any, scale: Any) -> Any:
        return x @ (w.astype("float32") * scale).T

    axes: dict[str, Any] = {"x": (None, "k"), "w": (None, "k")}
    if None in scaled:
        axes["scale"] = (None, "k")
    once = td.jit(product, dynamic=axes)
    for k in (40, 1, 2):
        shape = tuple([k if n is None else n for n in scaled])
        x, scale = (rng.standard_normal(s, np.float32) for s in ((4, k), shape))
        w = numbers(rng, (50, k), np.int8)
        given = x, w, np.asarray(scale, np.float32)
        wanted = np.asarray(td.jit(product)(*given))
        np.testing.assert_array_equal(np.asarray(once(*given)), wanted)


@pytest.mark.skipif(float32 not in HAS, reason="a CPU that has no such products")
def test_gradients_through_stored_weights() -> None:
    rng = np.random.default_rng(6)
    x, w = rows(rng, (1, 1, 4, 70), float32)[0, 0], numbers(rng, (50, 70), np.int8)

    def loss(x: Any, w: Any) -> Any:
        return ((x @ w.astype("float32").T) ** 2).sum()

    found = td.jit(td.grad(loss))(x, w)
    wide = x.astype(float), w.astype(float)
    wanted = 2 * (wide[0] @ wide[1].T) @ wide[1]
    np.testing.assert_allclose(
        found, wanted, rtol=1e-4, atol=1e-3 * np.abs(wanted).max()
    )
