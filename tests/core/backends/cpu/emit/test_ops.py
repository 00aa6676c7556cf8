"""Elementwise instructions: every op on every dtype it is supported for."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.kernels.nests import Maker
from treadle.backends.cpu.emit.nest import supported

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
BINARY = ["add", "sub", "mul", "div", "rem", "maximum", "minimum", *COMPARISONS]
BITWISE = ["bitwise_and", "bitwise_or", "bitwise_xor"]
SHIFTS = ["shift_left", "shift_right_logical", "shift_right_arithmetic"]
UNARY = ["neg", "abs", "sign", "bitwise_not", "population_count", "clz"]
ROUNDING = ["floor", "ceil", "round", "trunc", "is_finite", "sqrt", "rsqrt"]
rng = np.random.default_rng(0)


def values(dtype: str, count: int) -> np.ndarray:
    """Random values, with zeros, extremes and specials among them."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if kind in "iu":
        info = np.iinfo(dtype)
        edges = [0, 1, info.max, info.min, info.max - 1, info.min + 1, 7, 31]
        full = rng.integers(info.min, info.max, count, dtype=dtype, endpoint=True)
        small = rng.integers(max(info.min, -9), 9, count, dtype=dtype)
        picked = rng.choice(np.array(edges, dtype), count)
        return np.choose(rng.integers(0, 3, count), [full, small, picked])
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 2.5, 1.5])
    usual = rng.standard_normal(count) * np.exp(rng.uniform(-5, 5, count))
    return np.where(rng.random(count) < 0.3, rng.choice(edges, count), usual).astype(
        dtype
    )


def run_op(name, arrays, dtype, attr=None):
    out = np.zeros(arrays[0].shape, dtype)
    m = Maker((), out.size)
    m.store(out, m.op(name, *[m.load(a) for a in arrays], dtype=dtype, attr=attr))
    expected = m.interpret()[len(arrays)]
    m.run()
    return out, expected


def check_op(name, arrays, dtype=None, attr=None) -> None:
    out, expected = run_op(name, arrays, dtype or arrays[-1].dtype, attr)
    rounded = expected.astype(out.dtype)
    if out.dtype.kind == "f":
        tolerance = 4 * np.finfo(out.dtype).eps
        same = np.isclose(out, rounded, rtol=tolerance, atol=0, equal_nan=True)
    else:
        same = out == rounded
    bad = np.flatnonzero(~same)[:5]
    assert same.all(), (name, [a[bad] for a in arrays], out[bad], rounded[bad])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, "bool"])
def test_every_operation(dtype: str) -> None:
    x, y = (values(dtype, 333) for _ in range(2))
    for name in (*BINARY, *BITWISE, *SHIFTS, "power_of_integers"):
        if supported(name, np.dtype(dtype)):
            if dtype == "bool" and name in ("add", "mul"):
                continue
            check_op(name, [x, y], bool if name in COMPARISONS else None)
    for name in (*UNARY, *ROUNDING):
        if supported(name, np.dtype(dtype)):
            check_op(name, [x], bool if name == "is_finite" else None)
    check_op("select", [values("bool", 333), x, y])
    if dtype != "bool":
        for n in (0, 1, 2, 3, 5, *((-1, -2) if dtype in FLOATS else ())):
            check_op("integer_pow", [x], attr=n)


ALL = [*INTEGERS, *FLOATS, "bool", "float16", "bfloat16"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("source", ALL)
def test_conversions(source: str) -> None:
    source_type = np.dtype(getattr(ml_dtypes, source, source))
    x = values(source, 200) if source in ALL[:11] else values("float32", 200)
    x = x.astype(source_type)
    for target in ALL:
        dtype = np.dtype(getattr(ml_dtypes, target, target))
        out, expected = run_op("convert", [x], dtype)
        rounded = expected.astype(dtype)
        same = (out == rounded) | ((out != out) & (rounded != rounded))
        assert same.all(), (source, target, x[~same], out[~same], rounded[~same])


def test_half_floats_round_to_even_like_numpy() -> None:
    bits = rng.integers(0, 2**32, 5000, dtype=np.uint32)
    bits[:1000] &= 0x807FFFFF  # subnormal numbers, whole vectors of them
    x = bits.view(np.float32)
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        out = np.zeros(x.size, dtype)
        m = Maker((), x.size)
        m.store(out, m.op("convert", m.load(x), dtype=dtype))
        m.run()
        with np.errstate(all="ignore"):
            expected = x.astype(dtype)
        nan = np.isnan(expected.astype(np.float32))
        assert (out.view(np.uint16) == expected.view(np.uint16))[~nan].all()
        assert np.isnan(out.astype(np.float32))[nan].all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_each_result_of_half_float_arithmetic_is_rounded(dtype: Any) -> None:
    x, y, z = (rng.standard_normal(77).astype(dtype) for _ in range(3))
    out, largest = np.zeros(77, dtype), np.zeros(77, np.bool_)
    m = Maker((), 77)
    product = m.op("mul", m.load(x), m.load(y))
    m.store(out, m.op("sub", product, m.load(z)))
    top = m.op("reduce_max", product)
    m.store(largest, m.op("eq", product, top, dtype=np.bool_))
    m.run()
    assert (out == x * y - z).all()
    assert (largest == (x * y == (x * y).max())).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_product_is_rounded_unless_it_is_part_of_a_multiply_add(dtype: str) -> None:
    x = rng.standard_normal(77).astype(dtype)
    exact, rounded = np.zeros(77, dtype), np.zeros(77, dtype)
    m = Maker((), 77)
    a = m.load(x)
    product = m.op("mul", a, a)
    m.store(rounded, m.op("sub", product, product))
    m.store(exact, m.op("sub", m.op("add", product, a), m.load(x * x + x)))
    m.run()
    assert not rounded.any() and not exact.any()


@pytest.mark.parametrize(
    "source, target",
    [
        ("float32", "uint32"),
        ("int32", "float32"),
        ("float64", "int64"),
        ("int8", "uint8"),
        ("float16", "uint16"),
        ("int16", "float16"),
        ("uint16", "bfloat16"),
        ("bfloat16", "int16"),
    ],
)
def test_bitcast(source: str, target: str) -> None:
    source_type = np.dtype(getattr(ml_dtypes, source, source))
    target_type = np.dtype(getattr(ml_dtypes, target, target))
    x = rng.integers(0, 99, 50).astype(source_type)
    out = np.zeros(50, target_type)
    m = Maker((), 50)
    m.store(out, m.op("bitcast", m.load(x), dtype=target_type))
    m.run()
    assert out.tobytes() == x.tobytes()


@pytest.mark.parametrize("seed", [0, 42, 2**40 + 17])
def test_threefry_gives_the_bits_of_jax(seed: int) -> None:
    count = 1000
    with jax.enable_x64(True):
        key = jax.random.key(seed)
        words = np.asarray(jax.random.key_data(key))
        expected = np.asarray(jax.random.bits(key, (count,), "uint32"))
    out = np.zeros(count, np.uint32)
    m = Maker((), count)
    k0, k1 = (m.load(np.broadcast_to(word, (count,))) for word in words)
    counter = m.load(m.iota(0, (1,), np.uint32))
    zero = m.const(0, np.uint32)
    m.store(out, m.op("threefry2x32", k0, k1, zero, counter, attr="xor"))
    m.run()
    assert (out == expected).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_nextafter(dtype: str) -> None:
    corners = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, 3e38, 0.5]
    x, y = (g.ravel().astype(dtype) for g in np.meshgrid(corners, corners))
    out = np.zeros_like(x)
    m = Maker((), x.size)
    m.store(out, m.op("nextafter", m.load(x), m.load(y)))
    m.run()
    with np.errstate(all="ignore"):
        expected = np.nextafter(x, y)
    same = (out == expected) & (np.signbit(out) == np.signbit(expected))
    assert (same | (np.isnan(out) & np.isnan(expected))).all()


@pytest.mark.parametrize(
    "dtype", [np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)], ids=str
)
def test_nextafter_of_halves(dtype: np.dtype) -> None:
    """Of all of them, towards some."""
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    for towards in (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1e-6):
        y = np.full_like(x, towards)
        out = np.zeros_like(x)
        m = Maker((), x.size)
        m.store(out, m.op("nextafter", m.load(x), m.load(y)))
        m.run()
        with np.errstate(all="ignore"):
            # NumPy gives the first of two zeros, C (and NumPy of floats) the second.
            expected = np.where(x == y, y, np.nextafter(x, y))
        bits, wanted = out.view(np.uint16), expected.view(np.uint16)
        both = np.isnan(out) & np.isnan(expected)
        assert ((bits == wanted) | both).all()


def test_threefry_words() -> None:
    first, second, both = (np.zeros(64, np.uint32) for _ in range(3))
    m = Maker((), 64)
    counter = m.load(m.iota(0, (1,), np.uint32))
    zero = m.const(0, np.uint32)
    for out, attr in ((first, "first"), (second, "second"), (both, "xor")):
        m.store(out, m.op("threefry2x32", zero, zero, counter, counter, attr=attr))
    m.run()
    assert first[0] == 0x6B200159 and second[0] == 0x99BA4EFE
    assert (both == first ^ second).all()


def random_load(data: st.DataObject, m: Maker, shape: tuple[int, ...]) -> int:
    """A load of an operand with one of several layouts."""
    layout = data.draw(st.sampled_from(["plain", "row", "column", "swapped"]))
    full = np.random.default_rng(len(m.views)).standard_normal(shape).astype("float32")
    if layout == "row":
        full = np.broadcast_to(full[(0,) * (len(shape) - 1)], shape)
    elif layout == "column":
        full = np.lib.stride_tricks.as_strided(full, shape, (*full.strides[:-1], 0))
    elif layout == "swapped":
        full = np.asfortranarray(full)
    return m.load(full)


def grow(data: st.DataObject, m: Maker, pool: list[int], names: list[str]) -> None:
    """Appends a random operation on values of the pool."""
    name = data.draw(st.sampled_from(names))
    arity = 1 if name == "tanh" or name.startswith("reduce") else 2
    args = [data.draw(st.sampled_from(pool)) for _ in range(arity)]
    pool.append(m.op(name, *args))


ARITHMETIC = ["add", "sub", "mul", "tanh", "maximum"]


@given(st.data())
def test_random_row_nests(data: st.DataObject) -> None:
    outer = tuple(data.draw(st.lists(st.integers(1, 4), max_size=3)))
    inner = data.draw(st.integers(2, 70))
    m = Maker(outer, inner)
    shape = (*outer, inner)
    pool = [random_load(data, m, shape) for _ in range(data.draw(st.integers(1, 3)))]
    reductions = data.draw(st.sampled_from([[], ["reduce_max", "reduce_sum"]]))
    for _ in range(data.draw(st.integers(1, 9))):
        grow(data, m, pool, ARITHMETIC + reductions)
    compare(data, m, np.zeros(shape, np.float32), pool[-1])


@given(st.data())
def test_random_column_nests(data: st.DataObject) -> None:
    outer = tuple(data.draw(st.lists(st.integers(2, 4), max_size=2)))
    mid = tuple(data.draw(st.lists(st.integers(2, 9), min_size=1, max_size=2)))
    inner = data.draw(st.integers(2, 90))
    m = Maker(outer, inner, mid, "mid")
    shape = (*outer, *mid, inner)
    pool = [random_load(data, m, shape) for _ in range(data.draw(st.integers(1, 3)))]
    for _ in range(data.draw(st.integers(1, 7))):
        grow(data, m, pool, [*ARITHMETIC, "reduce_max", "reduce_sum"])
    compare(data, m, np.zeros(shape, np.float32), pool[-1])


def compare(data: st.DataObject, m: Maker, out: np.ndarray, value: int) -> None:
    m.store(out, value)
    expected = m.interpret()[m.body[-1].attr]
    m.run(tasks=data.draw(st.integers(1, 3)))
    scale = np.abs(expected).max() + 1
    assert np.allclose(out, expected, rtol=1e-4, atol=1e-5 * scale)


def test_reference_table_is_complete() -> None:
    """Whatever is supported for floats is interpreted by the tests' reference."""
    from tests.core.kernels.nests import REFERENCE
    from treadle.backends.cpu.emit.ops import RULES

    # What a call means, its own code says: tests/core/extend.
    others = {"threefry2x32", "nextafter", "scalar_call"}
    assert set(RULES) - set(REFERENCE) == others
    assert not set(itertools.chain(BINARY, UNARY, ROUNDING)) - set(RULES)


@pytest.mark.parametrize("dtype", [d for d in INTEGERS if "64" not in d])
def test_division_by_one_number(dtype) -> None:
    info = np.iinfo(dtype)
    for number in (
        1,
        2,
        3,
        7,
        10,
        info.max // 3,
        info.max // 2 + 1,
        info.max,
        info.min,
        0,
    ):
        y = np.array(number, dtype)
        near = values(dtype, 40) // np.maximum(y, 1) * y
        x = np.concatenate([values(dtype, 40), near, near + y.dtype.type(1)])
        for name in ("div", "rem"):
            found, expected = run_op(name, [x, np.broadcast_to(y, x.shape)], dtype)
            np.testing.assert_array_equal(found, expected)
