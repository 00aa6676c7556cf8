"""The matrix kernel against NumPy in float64: layouts, sizes, batches, hooks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import treadle as td
from tests.core.backends.cpu import contract_call as calls
from tests.core.kernels.walls import walled
from treadle.backends.cpu.gemm import kernel as gemm
from treadle.backends.cpu.gemm.arguments import Kind, ProductWord, Tile, Word
from treadle.backends.cpu.gemm.schedule import schedule
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.run import native
from treadle.backends.cpu.target import host, llvm
from treadle.kernels.contract import Contraction, Strides

FLOATS = ("float32", "float64")
SIZES = [
    (1, 1, 1),
    (1, 300, 33),
    (2, 70, 5),
    (3, 129, 64),
    (5, 3, 2),
    (15, 33, 17),
    (28, 31, 9),
    (64, 64, 64),
    (127, 131, 129),
    (200, 10, 70),
    (13, 40, 2100),
    (300, 65, 80),
    (130, 40, 1030),
]


def rows(rng, shape, dtype):
    if np.issubdtype(dtype, np.integer):
        return rng.integers(-(2**31), 2**31, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def columns(rng, shape, dtype):
    *batch, height, width = shape
    return rows(rng, (*batch, width, height), dtype).swapaxes(-1, -2)


def sparse(rng, shape, dtype):
    *batch, height, width = shape
    return rows(rng, (*batch, 2 * height, 3 * width), dtype)[..., ::2, ::3]


def backwards(rng, shape, dtype):
    return rows(rng, shape, dtype)[..., ::-1, ::-1]


def shared(rng, shape, dtype):
    return np.broadcast_to(rows(rng, (1, 1, *shape[2:]), dtype), shape)


def padded(rng, shape, dtype):
    *batch, height, width = shape
    return rows(rng, (*batch, height, width + 5), dtype)[..., :width]


LAYOUTS = (rows, columns, sparse, backwards, shared, padded)


def check(c, a, b):
    """c is the product, within rounding; of integers it is, with what overflows."""
    if c.dtype.kind == "i":
        np.testing.assert_array_equal(c, a @ b)
        return
    a, b = a.astype(np.float64), b.astype(np.float64)
    scale = np.abs(a) @ np.abs(b) + 1
    epsilon = np.finfo(c.dtype).eps
    assert (np.abs(c - a @ b) / scale).max() < 16 * epsilon


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes_and_layouts(size, dtype):
    rng = np.random.default_rng(0)
    m, n, k = size
    for layout_a in LAYOUTS:
        for j, layout_b in enumerate(LAYOUTS):
            a = layout_a(rng, (1, 1, m, k), dtype)
            b = layout_b(rng, (1, 1, k, n), dtype)
            around = rows(rng, (1, 1, m + 1, n + 7), dtype)
            kept = around.copy()
            c = around[:, :, :m, :n]
            calls.product(c, a, b, num_threads=1 + j).serial()
            check(c, a, b)
            kept[:, :, :m, :n] = c
            np.testing.assert_array_equal(around, kept, "wrote outside of C")


@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
def test_batches(layout_a, layout_b):
    rng = np.random.default_rng(1)
    a = layout_a(rng, (2, 3, 20, 40), "float32")
    b = layout_b(rng, (2, 3, 40, 37), "float32")
    c = np.empty((2, 3, 20, 37), "float32")
    calls.product(c, a, b, num_threads=3).serial()
    check(c, a, b)


@pytest.mark.parametrize("layout_a", [rows, columns, sparse])
@pytest.mark.parametrize("size", [(5, 40, 300), (5, 130, 1024), (16, 700, 600)])
def test_few_rows_leave_a_transposed_b_where_it_lies(size, layout_a):
    m, n, k = size
    rng = np.random.default_rng(0)
    a = layout_a(rng, (2, 1, m, k), "float32")
    b = columns(rng, (2, 1, k, n), "float32")
    packed = np.empty((2, 1, m, n), "float32")
    calls.product(packed, a, np.ascontiguousarray(b)).serial()
    for num_threads in (1, 3, 8):
        c = np.full((2, 1, m, n), np.nan, np.float32)
        call = calls.product(c, a, b, num_threads=num_threads)
        assert call.words[0][Word.KIND] == Kind.FEW_ROWS
        call.serial()
        np.testing.assert_array_equal(c, packed)
    check(c, a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize(
    ("kind", "layout_a", "layout_b", "size"),
    [
        *((Kind.TURNED, rows, columns, (m, 45, 300)) for m in (1, 2, 3, 4)),
        (Kind.TURNED, rows, columns, (1, 17, 9000)),
        *((Kind.TURNED, columns, columns, (m, 50, 7)) for m in (1, 3)),
        *((Kind.TURNED, rows, columns, (m, 40, 1029)) for m in (1, 4)),
        *((Kind.STREAMED, rows, rows, (m, 2200, 33)) for m in (1, 2, 3, 4, 5, 16)),
        (Kind.STREAMED, columns, rows, (1, 4096, 40)),
        (Kind.STREAMED, columns, rows, (7, 5000, 17)),
        (Kind.STREAMED, rows, rows, (3, 2100, 700)),
    ],
)
def test_few_rows_read_b_once_in_the_order_of_memory(
    kind, layout_a, layout_b, size, dtype
):
    m, n, k = size
    rng = np.random.default_rng(0)
    a = layout_a(rng, (2, 2, m, k), dtype)
    b = layout_b(rng, (2, 2, k, n), dtype)
    results = []
    for num_threads in (1, 3, 8):
        around = np.full((2, 2, m + 1, n + 1), 77, dtype)
        call = calls.product(around[:, :, :m, :n], a, b, num_threads=num_threads)
        if m <= 4 or gemm.tile(np.dtype(dtype)).rows > 12:
            assert call.words[0][Word.KIND] == kind
        call.serial()
        assert (around[:, :, m:] == 77).all(), "wrote outside of C"
        assert (around[..., n:] == 77).all(), "wrote outside of C"
        check(around[:, :, :m, :n], a, b)
        results.append(around)
    for each in results[1:]:
        np.testing.assert_array_equal(each, results[0])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
def test_many_small_matrices_are_multiplied_as_a_whole(layout_a, layout_b, dtype):
    """Any number of tasks gives the bits of each of them alone."""
    rng = np.random.default_rng(0)
    for m, n, k in [(1, 8, 1), (5, 1, 16), (7, 3, 5), (9, 13, 9), (16, 12, 3)]:
        a, b = layout_a(rng, (3, 7, m, k), dtype), layout_b(rng, (3, 7, k, n), dtype)
        if layout_b is shared:
            b = np.broadcast_to(b[:, :1], b.shape)
        expected = np.empty((3, 7, m, n), dtype)
        for i, j in np.ndindex(3, 7):
            one = np.s_[i : i + 1, j : j + 1]
            alone = calls.product(expected[one], a[one], b[one])
            assert alone.words[0][Word.KIND] != Kind.SMALL
            alone.serial()
        check(expected, a, b)
        for num_threads in (1, 3):
            around = np.full((3, 7, m + 1, n + 1), 77, dtype)
            c = around[:, :, :m, :n]
            call = calls.product(c, a, b, num_threads=num_threads)
            assert call.words[0][Word.KIND] == Kind.SMALL
            call.serial()
            np.testing.assert_array_equal(c, expected)
            assert (around[:, :, m:] == 77).all(), "wrote outside of C"
            assert (around[..., n:] == 77).all(), "wrote outside of C"


@pytest.mark.parametrize("layout", [rows, columns])
@pytest.mark.parametrize("size", [(5, 5, 5), (3, 7, 8), (12, 1, 9)])
def test_nothing_beside_small_matrices_is_read(size, layout):
    m, n, k = size
    c = np.empty((1, 20, m, n), np.float32)
    kept = [walled(20 * count, np.float32) for count in (m * k, k * n)]
    a, b = kept[0][1].reshape(1, 20, m, k), kept[1][1]
    b = b.reshape(1, 20, k, n) if layout is rows else b.reshape(1, 20, n, k)
    b = b if layout is rows else b.swapaxes(2, 3)
    a[...], b[...] = np.random.default_rng(0).standard_normal((2, 1, 1, 1, 1))
    calls.product(c, a, b).serial()
    check(c, a, b)


def test_epilogue_sees_rows_of_small_matrices_once():
    rng = np.random.default_rng(4)
    a, b = rows(rng, (4, 5, 11, 6), "float32"), rows(rng, (4, 5, 6, 3), "float32")
    c, seen = np.empty((4, 5, 11, 3), "float32"), np.zeros((4, 5, 11, 3), int)

    def clip(given, b0, b1, r0, r1, c0, c1):
        block = (b0, b1, slice(r0, r1), slice(c0, c1))
        seen[block] += 1
        c[block] = np.maximum(c[block], 0)

    hook = calls.EPILOGUE(clip)
    address = calls.ctypes.cast(hook, calls.ctypes.c_void_p).value
    call = calls.product(c, a, b, num_threads=4, hooks={Word.EPILOGUE: address})
    assert call.words[0][Word.KIND] == Kind.SMALL
    call.serial()
    assert (seen == 1).all()
    expected = np.maximum(a.astype(np.float64) @ b, 0)
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("layout_b", [rows, columns])
@pytest.mark.parametrize("size", [(3, 2100, 700), (40, 2100, 70)])
def test_the_smallest_module_gives_the_bits_of_the_whole_one(size, layout_b):
    m, n, k = size
    rng = np.random.default_rng(0)
    a, b = rows(rng, (2, 2, m, k), "float32"), layout_b(rng, (2, 2, k, n), "float32")
    results = []
    kind = Kind.STREAMED if layout_b is rows else Kind.TURNED
    for part in (gemm.FEW_PARTS[kind] if m < 16 else gemm.Part.PLAIN, gemm.Part.ALL):
        source = gemm.source(np.dtype("float32"), part)
        alone = replace(source, key=f"test/{source.key}", within="")
        address = native.load([alone])[alone.key]
        c = np.full((2, 2, m, n), np.nan, np.float32)
        call = calls.product(c, a, b, num_threads=3, address=address)
        assert (call.words[0][Word.KIND] == kind) == (m < 16)
        call.serial()
        results.append(c)
    np.testing.assert_array_equal(*results)
    check(results[0], a, b)


def test_products_may_do_without_the_kinds_of_few_rows():
    few = contraction(m=3, n=4096, k=64, b=Strides(0, 0, 4096, 1))
    tile = gemm.tile(np.dtype("float32"))
    kinds = [schedule(few, tile, 1, few=f).words[Word.KIND] for f in (True, False)]
    assert kinds == [Kind.STREAMED, Kind.PRODUCT]


@pytest.mark.parametrize("layout_a", [rows, columns])
@pytest.mark.parametrize("size", [(64, 16, 300, 70), (3, 5, 40, 600), (40, 7, 530, 90)])
def test_batches_share_packed_panels(size, layout_a):
    batches, m, k, n = size
    rng = np.random.default_rng(0)
    # Not one product of all rows: they lie between those of other batch elements.
    a = layout_a(rng, (1, m, batches, k), "float32").swapaxes(1, 2)
    b = columns(rng, (1, 1, k, n), "float32")
    results = []
    for num_threads in (1, 3, 8):
        c = np.full((1, batches, m, n), np.nan, np.float32)
        call = calls.product(c, a, b, num_threads=num_threads)
        assert call.words[0][ProductWord.SHARES_B]
        call.serial()
        check(c, a, b)
        results.append(c)
    alone = np.empty((1, 1, m, n), np.float32)
    calls.product(alone, a[:, -1:], b).serial()
    for c in results:
        np.testing.assert_array_equal(c, results[0])
        np.testing.assert_array_equal(c[:, -1:], alone)


def test_heads_inside_rows():
    """Attention's operands: heads lie between positions and channels."""
    rng = np.random.default_rng(2)
    q, k = (
        rows(rng, (8, 64, 4, 32), "float32").transpose(0, 2, 1, 3) for _ in range(2)
    )
    c = np.empty((8, 4, 64, 64), "float32")
    call = calls.product(c, q, k.swapaxes(2, 3), num_threads=2)
    assert call.launches[0].tasks > 1
    call.parallel()()
    check(c, q, k.swapaxes(2, 3))


@pytest.mark.parametrize("size", [(300, 200, 1500), (1000, 40, 64), (3, 900, 700)])
def test_any_number_of_tasks_gives_the_same_bits(size):
    rng = np.random.default_rng(3)
    m, n, k = size
    a, b = rows(rng, (1, 1, m, k), "float32"), rows(rng, (1, 1, k, n), "float32")
    results, tasks = [], set()
    for num_threads in (1, 2, 3, 7):
        c = np.empty((1, 1, m, n), "float32")
        call = calls.product(c, a, b, num_threads=num_threads)
        tasks.add(call.launches[0].tasks)
        call.serial()
        results.append(c)
    assert len(tasks) > 1
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@pytest.mark.parametrize("size", [(100, 70, 30), (40, 33, 3000), (2, 200, 50)])
def test_epilogue_sees_finished_blocks_once(size):
    rng = np.random.default_rng(4)
    m, n, k = size
    a, b = rows(rng, (2, 3, m, k), "float32"), rows(rng, (2, 3, k, n), "float32")
    c = np.empty((2, 3, m, n), "float32")
    bias = rows(rng, (n,), "float32")
    seen = np.zeros(c.shape, int)

    def add_bias_and_clip(given, b0, b1, r0, r1, c0, c1):
        block = (b0, b1, slice(r0, r1), slice(c0, c1))
        seen[block] += 1
        c[block] = np.maximum(c[block] + bias[c0:c1], 0)

    hook = calls.EPILOGUE(add_bias_and_clip)
    address = calls.ctypes.cast(hook, calls.ctypes.c_void_p).value
    calls.product(c, a, b, num_threads=4, hooks={Word.EPILOGUE: address}).serial()
    assert (seen == 1).all()
    expected = np.maximum(a.astype(np.float64) @ b + bias, 0)
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-3)


def producer(array):
    """A producer of a 4-D array that exists after all."""

    def write(given, b0, b1, i0, i1, j0, j1, block, stride):
        size = (i1 - i0 - 1) * stride + j1 - j0
        kind = calls.ctypes.c_float * size
        flat = np.frombuffer(kind.from_address(block), np.float32)
        shape, steps = (i1 - i0, j1 - j0), (4 * stride, 4)
        target = np.lib.stride_tricks.as_strided(flat, shape, steps)
        target[...] = array[b0, b1, i0:i1, j0:j1]

    return calls.PRODUCER(write)


def test_producers_replace_operands():
    rng = np.random.default_rng(5)
    a, b = (
        rows(rng, (2, 1, 40, 1100), "float32"),
        rows(rng, (2, 1, 1100, 50), "float32"),
    )
    c = np.empty((2, 1, 40, 50), "float32")
    hooks = {}
    kept = [producer(a), producer(b)]
    for slot, hook in zip((Word.PACK_A, Word.PACK_B), kept, strict=True):
        hooks[slot] = calls.ctypes.cast(hook, calls.ctypes.c_void_p).value
    nothing = np.zeros((1, 1, 1, 1), "float32")
    call = calls.product(
        c,
        np.broadcast_to(nothing, a.shape),
        np.broadcast_to(nothing, b.shape),
        hooks=hooks,
        fused_a=True,
        fused_b=True,
    )
    call.serial()
    check(c, a, b)


def other_machines():
    yield Machine("float", Tile(4, 6), "")
    yield Machine("double", Tile(2, 14), "")
    yield Machine("i32", Tile(4, 6), "")
    if {"avx2", "fma"} <= host().flags:
        yield Machine("float", Tile(8, 6), "avx2")
        yield Machine("double", Tile(4, 6), "avx2")
        yield Machine("i32", Tile(8, 6), "avx2")


@pytest.mark.parametrize("machine", list(other_machines()), ids=str)
def test_kernels_of_other_machines(machine):
    llvm().initialize_native_asmparser()
    text = gemm.emit_module(machine, gemm.Part.ANY)
    source = native.Source(f"test/{machine}", "contract_any", lambda: text)
    address = native.load([source])[source.key]
    dtypes = {"float": "float32", "double": "float64", "i32": "int32"}
    dtype = dtypes[machine.scalar]
    rng = np.random.default_rng(6)
    sizes = [(1, 300, 20), (2, 40, 7), (3, 129, 33), (61, 67, 50), (25, 5, 9)]
    small = [(1, 1, 4), (3, 2, 5), (11, 3, 16), (8, 4, 1), (7, 7, 7)]
    for m, n, k in [*sizes, *small]:
        batches = (3, 6) if m <= 16 and n < 8 else (1, 1)
        for layout_a, layout_b in [(rows, rows), (columns, columns), (sparse, sparse)]:
            a = layout_a(rng, (*batches, m, k), dtype)
            b = layout_b(rng, (*batches, k, n), dtype)
            around = rows(rng, (*batches, m + 1, n + 3), dtype)
            kept = around.copy()
            c = around[:, :, :m, :n]
            options = {"address": address, "tile": machine.tile}
            calls.product(c, a, b, **options).serial()
            check(c, a, b)
            kept[:, :, :m, :n] = c
            np.testing.assert_array_equal(around, kept, "wrote outside of C")


def contraction(**options):
    given = {"m": 4, "n": 8, "k": 2, "a": Strides(0, 0, 2, 1), "b": Strides(0, 0, 8, 1)}
    given |= {"c": Strides(0, 0, 8, 1)} | options
    return Contraction(np.dtype("float32"), **given)


def test_small_products_are_one_task():
    launch = schedule(contraction(), gemm.tile(np.dtype("float32")), 8)
    assert launch.tasks == 1


def test_errors_name_the_value_and_the_fix():
    with pytest.raises(ValueError, match=r"column stride 1, not 4: swap A and B"):
        contraction(c=Strides(0, 0, 1, 4))
    with pytest.raises(ValueError, match=r"at least 1, not \(1, 1, 4, 8, 0\)"):
        contraction(k=0)
    with pytest.raises(NotImplementedError, match="float16: convert"):
        gemm.source(np.dtype("float16"))


@pytest.mark.parametrize("m", [1, 8, 40, 200])
@pytest.mark.parametrize("k", [1025, 2048, 3000])
def test_bits_do_not_depend_on_where_operands_lie(m: int, k: int) -> None:
    rng = np.random.default_rng(0)
    x, w = rows(rng, (m, k), np.float32), rows(rng, (k, 96), np.float32)
    wanted = np.asarray(td.jit(lambda x, w: x @ w)(x, w))
    turned = td.jit(lambda x, w: x.T @ w.T)(x.T.copy(), w.T.copy())
    np.testing.assert_array_equal(turned, wanted)


@pytest.mark.parametrize("shape", [(1, 40), (5, 3), (40, 10), (300, 77), (70, 2500)])
@pytest.mark.parametrize("turned", [False, True])
def test_one_column_has_the_bits_of_several(
    shape: tuple[int, int], turned: bool
) -> None:
    """It is computed as a row, so that vectors lie along it."""
    numbers = np.random.default_rng(0)
    x = numbers.standard_normal(shape).astype("f")
    c = numbers.standard_normal((shape[1], 1)).astype("f")
    multiply = td.jit(lambda x, c: (x.T if turned else x) @ c)
    given = x.T.copy() if turned else x
    found = np.asarray(multiply(given, c))
    several = np.asarray(multiply(given, np.repeat(c, 48, 1)))
    np.testing.assert_array_equal(found, several[:, :1])
    np.testing.assert_allclose(found, x.astype(float) @ c, 1e-4, 1e-4)
