"""Products of half floats of few rows, which read B where it lies, against NumPy in
float64, and bit by bit against products of more rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.backends.cpu import bfloat_call as calls
from tests.core.backends.cpu import contract_call
from tests.core.backends.cpu.bfloat.test_kernel import DTYPES, check, inside
from tests.core.backends.cpu.gemm.test_kernel import columns, rows
from treadle.backends.cpu.bfloat import kernel, schedule, tiles, vectors
from treadle.backends.cpu.bfloat.few_rows import FEW_ROWS
from treadle.backends.cpu.bfloat.singles import SingleModel, SingleUnit
from treadle.backends.cpu.bfloat.tile_block import TileUnit
from treadle.backends.cpu.bfloat.unit import Dtypes, Unit
from treadle.backends.cpu.bfloat.vectors import VectorUnit
from treadle.backends.cpu.gemm.arguments import FEW_KINDS, Kind, Word
from treadle.backends.cpu.target import (
    AMX,
    AVX512_BF16,
    bfloat_unit,
    multiplies_singles,
)
from treadle.dims import Scope
from treadle.dtypes import bfloat16, float16
from treadle.kernels.contract import Contraction, Strides

MODEL = VectorUnit(vectors.Model())
SINGLES = SingleUnit(SingleModel())
TILES = TileUnit(tiles.Model())
UNITS = [MODEL, SINGLES, TILES]
UNITS += [kernel.unit()] if bfloat_unit() in (AVX512_BF16, AMX) else []
UNITS += [kernel.unit(float16)] if multiplies_singles() else []
EACH = pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
SIDES = pytest.mark.parametrize("layout", [rows, columns])
SIZES = [  # columns, k
    (32, 32),
    (33, 33),
    (63, 47),
    (70, 600),
    (300, 100),
]


def half_of(unit: Unit) -> np.dtype:
    return float16 if isinstance(unit, SingleUnit) else bfloat16


def kind_of(call: contract_call.Call) -> Kind:
    (launch,) = call.launches
    return Kind(launch.words[Word.KIND])


@EACH
@SIDES
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_they_have_the_bits_of_more_rows(dtypes, layout, unit):
    rng, half = np.random.default_rng(0), half_of(unit)
    dtypes = Dtypes(*(half if dtype == bfloat16 else dtype for dtype in dtypes))
    most = unit.speed.turned_rows
    more_rows = [] if layout is rows else [FEW_ROWS + 3, most - 1, most]
    for m in [*range(1, FEW_ROWS + 1), *more_rows]:
        n, k = SIZES[m % len(SIZES)]
        a = rows(rng, (1, 1, 40, k), dtypes.a)
        b = layout(rng, (1, 1, k, n), dtypes.b)
        around, c = inside(m, n, dtypes.c)
        kept, more = around.copy(), np.empty((1, 1, 40, n), dtypes.c)
        call = calls.product(c, a[:, :, :m], b, num_threads=3, unit=unit)
        assert kind_of(call) == (Kind.STREAMED if layout is rows else Kind.TURNED)
        call.serial()
        check(c, a[:, :, :m], b, half)
        kept[:, :, :m, :n] = c
        np.testing.assert_array_equal(around, kept, "wrote outside of C")
        call = calls.product(more, a, b, unit=unit)
        assert kind_of(call) not in FEW_KINDS
        call.serial()
        assert c.tobytes() == np.ascontiguousarray(more[:, :, :m]).tobytes()


@EACH
@SIDES
@pytest.mark.parametrize("skipped", [1, 2, 8, 30])
def test_lines_that_begin_within_those_of_memory(skipped, layout, unit):
    """Whatever lies before them, and behind."""
    rng, half = np.random.default_rng(1), half_of(unit)
    for n, k, between in ((40, 96, 32), (33, 40, 24), (64, 600, 8), (200, 64, 56)):
        lines, length = (k, n) if layout is rows else (n, k)
        step = length + between
        memory = np.full(lines * step + 128, np.nan, half)
        start = -memory.ctypes.data % 64 // 2 + skipped
        b = memory[start : start + lines * step].reshape(lines, step)[:, :length]
        b[...] = rows(rng, (1, 1, lines, length), half)[0, 0]
        b = b if layout is rows else b.T
        for m in (1, 3, 8):
            a, c = rows(rng, (1, 1, m, k), half), np.empty((1, 1, m, n), half)
            call = calls.product(c, a, b[None, None], num_threads=2, unit=unit)
            assert kind_of(call) in FEW_KINDS
            call.serial()
            check(c, a, b[None, None], half)


@EACH
@SIDES
def test_batches_and_epilogues(layout, unit):
    rng, half = np.random.default_rng(2), half_of(unit)
    m, n, k = 3, 90, 70
    a, b = rows(rng, (2, 3, m, k), half), layout(rng, (2, 3, k, n), half)
    c, bias = np.empty((2, 3, m, n), np.float32), rows(rng, (n,), np.float32)
    seen = np.zeros(c.shape, int)

    def add_bias(given, b0, b1, r0, r1, c0, c1):
        block = (b0, b1, slice(r0, r1), slice(c0, c1))
        seen[block] += 1
        c[block] += bias[c0:c1]

    hook = contract_call.EPILOGUE(add_bias)
    address = contract_call.ctypes.cast(hook, contract_call.ctypes.c_void_p).value
    hooks = {Word.EPILOGUE: address}
    calls.product(c, a, b, num_threads=4, hooks=hooks, unit=unit).serial()
    assert (seen == 1).all()
    check(c - bias, a, b + 0, half)


@EACH
@SIDES
def test_any_number_of_tasks_gives_the_same_bits(layout, unit):
    rng, half = np.random.default_rng(3), half_of(unit)
    m, n, k = 3, 900, 700
    a, b = rows(rng, (1, 1, m, k), half), layout(rng, (1, 1, k, n), half)
    results, tasks = [], set()
    for num_threads in (1, 2, 3, 7):
        c = np.empty((1, 1, m, n), np.float32)
        call = calls.product(c, a, b, num_threads=num_threads, unit=unit)
        tasks.add(call.launches[0].tasks)
        call.serial()
        results.append(c)
    assert len(tasks) > 1
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@EACH
@SIDES
def test_what_is_no_number_stays_in_its_row_and_column(layout, unit):
    half = half_of(unit)
    a = np.zeros((1, 1, 4, 45), half)
    b = layout(np.random.default_rng(4), (1, 1, 45, 37), half)
    b[...] = 1
    a[0, 0, 1, 7], a[0, 0, 2, 44], a[0, 0, 3, 0] = np.nan, np.inf, -np.inf
    b[0, 0, 44, 36] = np.inf
    c = np.empty((1, 1, 4, 37), half)
    calls.product(c, a, b, unit=unit).serial()
    wanted = np.zeros((4, 37))
    wanted[1:], wanted[:, 36] = [[np.nan], [np.inf], [-np.inf]], np.nan
    wanted[2, 36] = np.inf
    np.testing.assert_array_equal(c[0, 0].astype(float), wanted)


@SIDES
@pytest.mark.parametrize("unit", UNITS[3:], ids=[unit.name for unit in UNITS[3:]])
def test_instructions_give_the_bits_of_the_model(unit, layout):
    rng, half = np.random.default_rng(5), half_of(unit)
    like = SINGLES if isinstance(unit, SingleUnit) else MODEL
    like = TILES if isinstance(unit, TileUnit) else like
    for m, (n, k) in zip((1, 4, 8, 2, 6), SIZES, strict=True):
        a = rows(rng, (1, 1, m, k), half)
        b = layout(rng, (1, 1, k, n), half)
        a[..., ::3, :] *= 2.0**-126 if half == bfloat16 else 2.0**-14
        real, model = (np.zeros((1, 1, m, n), np.float32) for _ in range(2))
        calls.product(real, a, b, unit=unit).serial()
        calls.product(model, a, b, unit=like).serial()
        assert real.tobytes() == model.tobytes()


@pytest.mark.parametrize("unit", [MODEL, SINGLES], ids=["pairs", "singles"])
def test_kinds_of_a_module(unit):
    text = kernel.emit_module(Dtypes(*[half_of(unit)] * 3), unit, calls.Part.FEW)
    assert "@contract_few" in text and "@product" not in text


@pytest.mark.parametrize(
    "unit", [MODEL, SINGLES, TileUnit(tiles.Model())], ids=lambda unit: unit.name
)
def test_products_of_open_rows_need_them_only_of_units_that_have_them(unit):
    m, dtype = Scope().symbol("n", 6), half_of(unit)
    a, b, c = Strides(0, 0, 64, 1), Strides(0, 0, 96, 1), Strides(0, 0, 96, 1)
    product = Contraction(dtype, m, 96, 64, a, b, c)
    few = None if unit.speed.turned_rows else False
    assert schedule.needs_few(product, unit.speed) is few
