"""Products of bfloat16 against NumPy in float64, by models of what multiplies them and
by what this machine has."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.core.backends.cpu import bfloat_call as calls
from tests.core.backends.cpu import contract_call
from tests.core.backends.cpu.gemm.test_kernel import LAYOUTS, columns, rows, sparse
from treadle.backends.cpu.bfloat import kernel, tiles, vectors
from treadle.backends.cpu.bfloat.schedule import schedule
from treadle.backends.cpu.bfloat.tile_block import TileUnit
from treadle.backends.cpu.bfloat.unit import Dtypes, Unit
from treadle.backends.cpu.bfloat.vectors import VectorUnit
from treadle.backends.cpu.gemm.arguments import TileWord, Word
from treadle.backends.cpu.target import bfloat_unit
from treadle.dtypes import bfloat16, float16, float32
from treadle.kernels.contract import Contraction, Strides

SIZES = [
    (1, 1, 1),
    (1, 300, 33),
    (5, 3, 2),
    (15, 33, 17),
    (32, 32, 32),
    (33, 65, 31),
    (64, 40, 256),
    (70, 99, 129),
    (13, 40, 700),
    (34, 70, 513),
]
DTYPES = [
    Dtypes(),
    Dtypes(c=float32),
    Dtypes(a=float32),
    Dtypes(b=float32, c=float32),
    Dtypes(float32, float32, bfloat16),
]
MODELS = [TileUnit(tiles.Model()), VectorUnit(vectors.Model())]
UNITS = [*MODELS, *([kernel.unit()] if bfloat_unit() else [])]
EACH = pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])


def check(
    c: np.ndarray, a: np.ndarray, b: np.ndarray, half: np.dtype = bfloat16
) -> None:
    """c is the product of what is left of a and b as half floats, within rounding."""
    a, b = (x.astype(half).astype(np.float64) for x in (a, b))
    scale = np.abs(a) @ np.abs(b) + 1e-30
    error = np.abs(c.astype(np.float64) - a @ b) - 2e-6 * scale
    if c.dtype == half:
        error -= np.abs(a @ b) * float(ml_dtypes.finfo(half).eps)
    assert error.max() <= 0


def inside(m: int, n: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """An array, and a part of it that is to be written."""
    around = rows(np.random.default_rng(9), (1, 1, m + 1, n + 7), dtype)
    return around, around[:, :, :m, :n]


@EACH
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes_and_layouts(
    size: tuple[int, int, int], dtypes: Dtypes, unit: Unit
) -> None:
    rng = np.random.default_rng(0)
    m, n, k = size
    # Each size has other pairs, so that all of them occur.
    turn = SIZES.index(size) + DTYPES.index(dtypes)
    for i, layout_a in enumerate(LAYOUTS[turn % 2 :: 2]):
        a = layout_a(rng, (1, 1, m, k), dtypes.a)
        b = LAYOUTS[(i + turn // 2) % len(LAYOUTS)](rng, (1, 1, k, n), dtypes.b)
        around, c = inside(m, n, dtypes.c)
        kept = around.copy()
        calls.product(c, a, b, num_threads=3, unit=unit).serial()
        check(c, a, b)
        kept[:, :, :m, :n] = c
        np.testing.assert_array_equal(around, kept, "wrote outside of C")


@EACH
@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
def test_batches(layout_a, layout_b, unit):
    rng = np.random.default_rng(1)
    a = layout_a(rng, (2, 3, 20, 40), bfloat16)
    b = layout_b(rng, (2, 3, 40, 37), bfloat16)
    c = np.empty((2, 3, 20, 37), bfloat16)
    calls.product(c, a, b, num_threads=3, unit=unit).serial()
    check(c, a, b)


@EACH
@pytest.mark.parametrize("size", [(300, 200, 1500), (1000, 40, 64), (3, 900, 700)])
def test_any_number_of_tasks_gives_the_same_bits(size, unit):
    rng = np.random.default_rng(3)
    m, n, k = size
    a, b = rows(rng, (1, 1, m, k), bfloat16), columns(rng, (1, 1, k, n), bfloat16)
    results, tasks = [], set()
    for num_threads in (1, 2, 3, 7):
        c = np.empty((1, 1, m, n), np.float32)
        call = calls.product(c, a, b, num_threads=num_threads, unit=unit)
        tasks.add(tuple(launch.tasks for launch in call.launches))
        call.serial()
        results.append(c)
    assert len(tasks) > 1
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@EACH
def test_threads_share_packed_panels(unit):
    rng = np.random.default_rng(4)
    a = rows(rng, (1, 1, 700, 600), bfloat16)
    b = rows(rng, (1, 1, 600, 500), bfloat16)
    c, serial = (np.empty((1, 1, 700, 500), bfloat16) for _ in range(2))
    call = calls.product(c, a, b, num_threads=2, unit=unit)
    packing, product = call.launches
    assert packing.tasks > 1 and product.tasks > 1
    call.parallel()()
    check(c, a, b)
    calls.product(serial, a, b, unit=unit).serial()
    np.testing.assert_array_equal(c.view(np.int16), serial.view(np.int16))


@EACH
def test_rows_are_packed_in_groups(unit):
    """More rows of A than the cache holds, in one task: B is packed once for them."""
    rng = np.random.default_rng(5)
    m = 33 + unit.speed.a_bytes // (2 * 4096)
    a, b = rows(rng, (1, 1, m, 4090), float32), rows(rng, (1, 1, 4090, 20), bfloat16)
    c = np.empty((1, 1, m, 20), np.float32)
    call = calls.product(c, a, b, unit=unit)
    assert [launch.tasks for launch in call.launches] == [1, 1]
    call.serial()
    check(c, a, b)


@EACH
def test_long_sums_are_made_in_blocks(unit):
    """With the bits of a product of fewer rows, which has all of k in one."""
    rng = np.random.default_rng(6)
    m, n, k = 70, 40, 4200
    a, b = columns(rng, (1, 1, m, k), bfloat16), rows(rng, (1, 1, k, n), bfloat16)
    c, few = np.empty((1, 1, m, n), bfloat16), np.empty((1, 1, 20, n), bfloat16)
    word = TileWord.K_BLOCK
    call = calls.product(c, a, b, num_threads=2, unit=unit)
    assert call.launches[0].words[word] < k
    call.serial()
    check(c, a, b)
    for start in (0, 50):
        some = calls.product(few, a[:, :, start : start + 20], b, unit=unit)
        assert some.launches[0].words[word] >= k
        some.serial()
        np.testing.assert_array_equal(few, c[:, :, start : start + 20])


@pytest.mark.parametrize("size", [(100, 70, 30), (40, 33, 600), (2, 200, 50)])
@EACH
def test_epilogue_sees_finished_blocks_once(size, unit):
    rng = np.random.default_rng(4)
    m, n, k = size
    a, b = rows(rng, (2, 3, m, k), bfloat16), rows(rng, (2, 3, k, n), bfloat16)
    c = np.empty((2, 3, m, n), np.float32)
    bias = rows(rng, (n,), np.float32)
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
    wanted = a.astype(np.float64) @ b.astype(np.float64) + bias
    np.testing.assert_allclose(c, wanted, rtol=1e-4, atol=1e-3)


def by_tiles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A product as the manual says of TDPBF16PS, each step in double precision and
    rounded once."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for start in range(0, a.shape[1], 32):
        halves = []
        for k0 in (start, start + 1):
            half = np.zeros_like(total)
            for k in range(k0, min(start + 32, a.shape[1]), 2):
                exact = np.outer(a[:, k].astype(np.float64), b[k].astype(np.float64))
                half = (half + exact).astype(np.float32)
            halves.append(half)
        total += halves[0] + halves[1]
    return total


def by_vectors(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same of VDPBF16PS."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for start in range(0, a.shape[1], 2):
        for k in reversed(range(start, min(start + 2, a.shape[1]))):
            exact = np.outer(a[:, k].astype(np.float64), b[k].astype(np.float64))
            total = (total + exact).astype(np.float32)
    return total


@EACH
@pytest.mark.parametrize("size", [(3, 5, 32), (40, 33, 77), (33, 70, 600)])
def test_sums_are_in_the_order_of_the_manual(size, unit):
    rng = np.random.default_rng(6)
    m, n, k = size
    a, b = rows(rng, (1, 1, m, k), bfloat16), rows(rng, (1, 1, k, n), bfloat16)
    c = np.empty((1, 1, m, n), np.float32)
    calls.product(c, a, b, unit=unit).serial()
    wanted = by_tiles if isinstance(unit, TileUnit) else by_vectors
    np.testing.assert_array_equal(c[0, 0], wanted(a[0, 0], b[0, 0]))


@EACH
@pytest.mark.parametrize("dtypes", [Dtypes(c=float32), Dtypes(a=float32)], ids=str)
def test_subnormal_numbers_are_zeros(dtypes: Dtypes, unit: Unit) -> None:
    small, smallest = 2.0**-130, 2.0**-126
    a = np.array([[small, 1, smallest, -smallest]], dtypes.a).reshape(1, 1, 1, 4)
    b = np.zeros((1, 1, 4, 3), bfloat16)
    b[0, 0, :, 0] = [2.0**100, 0, 0, 0]  # a subnormal factor
    b[0, 0, :, 1] = [0, 0, 0.5, 0]  # a subnormal sum
    b[0, 0, :, 2] = [0, smallest, 1, 0]
    c = np.empty((1, 1, 1, 3), dtypes.c)
    calls.product(c, a, b, unit=unit).serial()
    np.testing.assert_array_equal(c[0, 0, 0].astype(float), [0, 0, 2 * smallest])


@EACH
def test_special_numbers_stay_where_they_are(unit: Unit) -> None:
    a, b = np.zeros((1, 1, 40, 45), np.float32), np.ones((1, 1, 45, 37), bfloat16)
    a[0, 0, 3, 7], a[0, 0, 8, 44], a[0, 0, 9, 0] = np.nan, np.inf, -np.inf
    c = np.empty((1, 1, 40, 37), bfloat16)
    calls.product(c, a, b, unit=unit).serial()
    wanted = np.zeros((40, 1))
    wanted[[3, 8, 9], 0] = np.nan, np.inf, -np.inf
    np.testing.assert_array_equal(c[0, 0].astype(float), np.tile(wanted, (1, 37)))


@pytest.mark.skipif(not bfloat_unit(), reason="a CPU that multiplies no bfloat16")
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_instructions_give_the_bits_of_the_model(dtypes: Dtypes) -> None:
    rng, native = np.random.default_rng(7), kernel.unit()
    like = next(unit for unit in MODELS if isinstance(unit, type(native)))
    for m, n, k in [*SIZES, (300, 200, 1500)]:
        for layout_a, layout_b in [(rows, rows), (columns, columns), (sparse, sparse)]:
            a = layout_a(rng, (1, 1, m, k), dtypes.a)
            b = layout_b(rng, (1, 1, k, n), dtypes.b)
            a[..., ::3, :] *= 2.0**-126
            real, model = (np.zeros((1, 1, m, n), dtypes.c) for _ in range(2))
            calls.product(real, a, b, unit=native).serial()
            calls.product(model, a, b, unit=like).serial()
            assert real.tobytes() == model.tobytes()


def test_errors_name_the_dtypes():
    with pytest.raises(NotImplementedError, match="no product for float16"):
        kernel.source(Dtypes(a=float16))


def test_operands_are_in_memory():
    steps = Strides(0, 0, 4, 1)
    product = Contraction(bfloat16, 4, 4, 4, steps, steps, steps, fused_a=True)
    with pytest.raises(NotImplementedError, match="both operands from memory"):
        schedule(product, MODELS[0].speed, 1)
