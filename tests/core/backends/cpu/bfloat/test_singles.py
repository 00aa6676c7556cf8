"""Products of float16 against NumPy in float64, by a model of what multiplies them and
by what this machine has."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.backends.cpu import bfloat_call as calls
from tests.core.backends.cpu.bfloat.test_kernel import SIZES, check, inside
from tests.core.backends.cpu.gemm.test_kernel import LAYOUTS, columns, rows
from treadle.backends.cpu.bfloat import kernel
from treadle.backends.cpu.bfloat.singles import SingleModel, SingleUnit
from treadle.backends.cpu.bfloat.unit import Dtypes
from treadle.backends.cpu.target import multiplies_singles
from treadle.dtypes import float16, float32

MODEL = SingleUnit(SingleModel())
UNITS = [MODEL, *([kernel.unit(float16)] if multiplies_singles() else [])]
EACH = pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
DTYPES = [
    Dtypes(float16, float16, float16),
    Dtypes(float16, float16, float32),
    Dtypes(float32, float16, float16),
    Dtypes(float16, float32, float32),
]


@EACH
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_sizes_and_layouts(dtypes, unit):
    rng = np.random.default_rng(0)
    for i, (m, n, k) in enumerate(SIZES):
        a = LAYOUTS[i % len(LAYOUTS)](rng, (1, 1, m, k), dtypes.a)
        b = LAYOUTS[(i + 1 + i // 2) % len(LAYOUTS)](rng, (1, 1, k, n), dtypes.b)
        around, c = inside(m, n, dtypes.c)
        kept = around.copy()
        calls.product(c, a, b, num_threads=3, unit=unit).serial()
        check(c, a, b, float16)
        kept[:, :, :m, :n] = c
        np.testing.assert_array_equal(around, kept, "wrote outside of C")


@EACH
@pytest.mark.parametrize("size", [(3, 5, 32), (40, 33, 77), (33, 70, 600)])
def test_sums_are_in_the_order_of_k_and_rounded_once_for_each(size, unit):
    rng = np.random.default_rng(1)
    m, n, k = size
    a, b = rows(rng, (1, 1, m, k), float16), columns(rng, (1, 1, k, n), float16)
    c, total = np.empty((1, 1, m, n), np.float32), np.zeros((m, n), np.float32)
    calls.product(c, a, b, unit=unit).serial()
    wide = a[0, 0].astype(np.float64), b[0, 0].astype(np.float64)
    for x, y in zip(wide[0].T, wide[1], strict=True):
        total = (total + np.outer(x, y)).astype(np.float32)
    np.testing.assert_array_equal(c[0, 0], total)


@EACH
def test_any_number_of_tasks_and_long_sums_give_the_same_bits(unit):
    rng = np.random.default_rng(2)
    for m, n, k in ((300, 200, 700), (70, 40, 4200)):
        a, b = columns(rng, (1, 1, m, k), float16), rows(rng, (1, 1, k, n), float16)
        results = []
        for num_threads in (1, 2, 7):
            c = np.empty((1, 1, m, n), np.float32)
            calls.product(c, a, b, num_threads=num_threads, unit=unit).serial()
            results.append(c)
        some = np.empty((1, 1, 20, n), np.float32)
        calls.product(some, a[:, :, :20], b, unit=unit).serial()
        for other in results[1:]:
            np.testing.assert_array_equal(results[0], other)
        np.testing.assert_array_equal(results[0][:, :, :20], some)


@EACH
def test_subnormal_and_special_numbers_are_what_they_are(unit):
    a = np.array([[2.0**-24, 1, np.inf, -np.inf, np.nan]], float16).reshape(1, 1, 1, 5)
    b = np.zeros((1, 1, 5, 3), float16)
    b[0, 0, 0] = [2.0**-24, 1, 1]
    b[0, 0, 2, 1] = 1
    b[0, 0, 3, 2] = 1
    c = np.empty((1, 1, 1, 3), np.float32)
    calls.product(c, a[..., :2], b[:, :, :2], unit=unit).serial()
    np.testing.assert_array_equal(c[0, 0, 0], [2.0**-48, 2.0**-24, 2.0**-24])
    calls.product(c, a, b, unit=unit).serial()
    assert np.isnan(c).all()
    calls.product(c, a[..., 2:3], b[:, :, 2:3] + 1, unit=unit).serial()
    np.testing.assert_array_equal(c[0, 0, 0], [np.inf, np.inf, np.inf])


@pytest.mark.skipif(len(UNITS) < 2, reason="a CPU without AVX-512")
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_instructions_give_the_bits_of_the_model(dtypes):
    rng = np.random.default_rng(3)
    for m, n, k in SIZES:
        a, b = rows(rng, (1, 1, m, k), dtypes.a), columns(rng, (1, 1, k, n), dtypes.b)
        real, model = (np.zeros((1, 1, m, n), dtypes.c) for _ in range(2))
        calls.product(real, a, b, unit=UNITS[1]).serial()
        calls.product(model, a, b, unit=MODEL).serial()
        assert real.tobytes() == model.tobytes()
