"""Products of small integers against NumPy's, by a model of what multiplies
them and by all that this machine has."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.backends.cpu import bfloat_call as calls
from tests.core.backends.cpu import contract_call
from treadle.backends.cpu.gemm.arguments import Kind, Word
from treadle.backends.cpu.integers.unit import IntegerUnit, Vectors
from treadle.backends.cpu.integers.vectors import Instructions, Model
from treadle.backends.cpu.target import AVX2, AVX512, AVX512_VNNI, host

NEEDED = {AVX512_VNNI: "avx512vnni", AVX512: "avx512bw", AVX2: "avx2"}
VECTORS = [
    Model(),
    *(Instructions(name) for name, flag in NEEDED.items() if flag in host().flags),
]
EACH = pytest.mark.parametrize("vectors", VECTORS, ids=[v.name for v in VECTORS])
PAIRS = [
    *(("int8", "int8"), ("int8", "uint8"), ("uint8", "int8"), ("uint8", "uint8")),
    ("bool", "int16"),
]


def pairs(*dtypes: tuple[str, str]) -> pytest.MarkDecorator:
    """Cases of each pair of dtypes. Where words hold no bytes, signs only tell apart
    how operands are packed: one pair of bytes says as much as four."""
    cases = []
    for vectors in VECTORS:
        for pair in dtypes:
            quick = vectors.name == AVX512_VNNI or pair in (PAIRS[0], PAIRS[-1])
            marks = () if quick else (pytest.mark.slow,)
            name = "-".join((*pair, vectors.name))
            cases.append(pytest.param(vectors, pair, id=name, marks=marks))
    return pytest.mark.parametrize(("vectors", "dtypes"), cases)


SIZES = [
    (1, 1, 1),
    (5, 3, 2),
    (32, 32, 64),
    (33, 65, 31),
    (70, 99, 129),
    (29, 50, 1100),
]


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Extremes, which overflow first, are frequent."""
    rng = np.random.default_rng(sum(shape))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return np.where(rng.random(shape) < 0.3, info.min, values).astype(dtype)


def laid_out(kind: int, rows: int, columns: int, dtype: str) -> np.ndarray:
    if kind == 0:
        return numbers((1, 1, rows, columns), dtype)
    if kind == 1:
        return numbers((1, 1, columns, rows), dtype).swapaxes(2, 3)
    if kind == 2:
        return numbers((1, 1, 2 * rows, 3 * columns), dtype)[:, :, ::2, ::3]
    return numbers((1, 1, rows, columns), dtype)[:, :, ::-1, ::-1]


def wanted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NumPy's product of doubles has all bits of these sums, and takes less time."""
    total = a.astype(np.float64) @ b.astype(np.float64)
    return total.astype(np.int64).astype(np.int32)


def unit(vectors: Vectors, a: np.ndarray, b: np.ndarray) -> IntegerUnit:
    return IntegerUnit(vectors, a.dtype, b.dtype)


@pairs(*PAIRS)
def test_sizes_and_layouts(vectors: Vectors, dtypes: tuple[str, str]) -> None:
    turn = PAIRS.index(dtypes)
    for number, (m, n, k) in enumerate(SIZES):
        for kind in (turn % 2, 2 + turn % 2, 1 - turn % 2):
            a = laid_out(kind, m, k, dtypes[0])
            b = laid_out((kind + number) % 4, k, n, dtypes[1])
            around = np.full((1, 1, m + 1, n + 7), 77, np.int32)
            c = around[:, :, :m, :n]
            kept = around.copy()
            by = unit(vectors, a, b)
            calls.product(c, a, b, num_threads=3, unit=by).serial()
            kept[:, :, :m, :n] = wanted(a, b)
            np.testing.assert_array_equal(around, kept)


@pairs(*PAIRS[:4])
def test_few_rows_times_a_transposed_matrix(
    vectors: Vectors, dtypes: tuple[str, str]
) -> None:
    for m, n, k in [(1, 300, 70), (3, 9, 128), (16, 21, 600)]:
        a = numbers((2, 1, m, k), dtypes[0])
        b = numbers((2, 1, n, k), dtypes[1]).swapaxes(2, 3)
        around = np.full((2, 1, m + 1, n + 7), 77, np.int32)
        kept, c = around.copy(), around[:, :, :m, :n]
        by = unit(vectors, a, b)
        call = calls.product(c, a, b, num_threads=3, unit=by)
        few = by.speed.few_rows > 0
        assert [w[Word.KIND] == Kind.FEW_ROWS for w in call.words] == [few]
        call.serial()
        kept[:, :, :m, :n] = wanted(a, b)
        np.testing.assert_array_equal(around, kept)


@pairs(PAIRS[0], PAIRS[3], ("int16", "int16"))
def test_sums_wrap_around(vectors: Vectors, dtypes: tuple[str, str]) -> None:
    """Sums of 32 bits overflow for the first two once there are 2**17 terms."""
    (dtype,) = set(dtypes)
    k = {"int8": 1 << 17, "uint8": 1 << 16, "int16": 40}[dtype]
    lowest = np.iinfo(dtype).min or np.iinfo(dtype).max
    a = np.full((1, 1, 2, k), lowest, dtype)
    b = np.full((1, 1, k, 3), lowest, dtype)
    c = np.empty((1, 1, 2, 3), np.int32)
    calls.product(c, a, b, unit=unit(vectors, a, b)).serial()
    total = (k * int(lowest) ** 2 + 2**31) % 2**32 - 2**31
    assert total != k * int(lowest) ** 2
    np.testing.assert_array_equal(c, np.full_like(c, total))


@EACH
def test_batches_share_an_operand(vectors: Vectors) -> None:
    a = numbers((2, 3, 20, 40), "int8")
    for b in (numbers((1, 1, 40, 37), "int8"), numbers((2, 3, 37, 40), "int8")):
        b = b if b.shape[2] == 40 else b.swapaxes(2, 3)
        c = np.empty((2, 3, 20, 37), np.int32)
        calls.product(c, a, b, num_threads=3, unit=unit(vectors, a, b)).serial()
        np.testing.assert_array_equal(c, wanted(a, b))


@EACH
def test_tasks_share_panels_and_groups_of_rows(vectors: Vectors) -> None:
    a, b = numbers((1, 1, 700, 600), "int8"), numbers((1, 1, 600, 500), "int8")
    if vectors.name == "model":
        a, b = a[:, :, :70, :64], b[:, :, :64]
    c = np.empty((1, 1, a.shape[2], 500), np.int32)
    call = calls.product(c, a, b, num_threads=2, unit=unit(vectors, a, b))
    if vectors.name != "model":
        assert [launch.tasks > 1 for launch in call.launches] == [True, True]
    call.parallel()()
    np.testing.assert_array_equal(c, wanted(a, b))


@EACH
def test_a_long_sum_is_packed_in_groups(vectors: Vectors) -> None:
    a, b = numbers((1, 1, 66, 30000), "int8"), numbers((1, 1, 30000, 5), "int8")
    c = np.empty((1, 1, 66, 5), np.int32)
    call = calls.product(c, a, b, unit=unit(vectors, a, b))
    assert [launch.tasks for launch in call.launches] == [1, 1]
    call.serial()
    np.testing.assert_array_equal(c, wanted(a, b))


@EACH
def test_epilogue_sees_finished_blocks_once(vectors: Vectors) -> None:
    a, b = numbers((2, 1, 40, 600), "int8"), numbers((2, 1, 600, 45), "int8")
    c, seen = np.empty((2, 1, 40, 45), np.int32), np.zeros((2, 1, 40, 45), int)

    def negate(given, b0, b1, r0, r1, c0, c1):
        block = (b0, b1, slice(r0, r1), slice(c0, c1))
        seen[block] += 1
        c[block] = ~c[block]

    hook = contract_call.EPILOGUE(negate)
    address = contract_call.ctypes.cast(hook, contract_call.ctypes.c_void_p).value
    hooks = {Word.EPILOGUE: address}
    by = unit(vectors, a, b)
    calls.product(c, a, b, num_threads=4, hooks=hooks, unit=by).serial()
    assert (seen == 1).all()
    np.testing.assert_array_equal(c, ~wanted(a, b))
