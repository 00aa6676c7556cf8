"""Elementwise functions agree with JAX's: values, dtypes, derivatives, compiled."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import (
    Case,
    bools,
    check,
    check_batched,
    check_gradient,
    floats,
    ints,
    positive,
)

X, Y = floats(3, 4), floats(3, 4, seed=7)
UNIT = floats(3, 4, low=-0.9, high=0.9)
N, M = ints(3, 4), ints(3, 4, seed=8)
B, C = bools(3, 4), bools(3, 4, seed=9)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5], np.float32)
ROW, COLUMN = floats(4), floats(3, 1)


def apply(name: str) -> Any:
    return lambda np, *xs: getattr(np, name)(*xs)


def unary(names: str, arg: Any, **options: Any) -> list[Case]:
    return [Case(n, apply(n), (arg,), **options) for n in names.split()]


def binary(names: str, *args: Any, label: str = "", **options: Any) -> list[Case]:
    return [Case(n + label, apply(n), args, **options) for n in names.split()]


CASES = [
    *unary("exp exp2 expm1 sin cos tan tanh sinh cosh arctan arcsinh cbrt", X),
    *unary("log log2 log10 log1p sqrt reciprocal", positive(3, 4)),
    *unary("arcsin arccos arctanh", UNIT, close=16),
    Case("arccosh", lambda np, x: np.arccosh(x + 1), (positive(3, 4),), close=16),
    *unary("floor ceil rint trunc sign abs negative positive square", X * 3),
    *unary("deg2rad rad2deg signbit isnan isfinite isinf logical_not", X),
    *unary("sqrt exp sin reciprocal", positive(3, 4).astype(np.int32) + 1),
    *unary("floor ceil abs sign negative positive square isnan isfinite", N),
    *unary("bitwise_not invert", N),
    *unary("bitwise_not logical_not abs isnan", B),
    *unary("isnan isinf isfinite isposinf isneginf signbit nan_to_num", SPECIAL),
    *unary("logical_not", SPECIAL, smooth=False),
    Case(
        "nan_to_num-given",
        lambda np, x: np.nan_to_num(x, nan=3.0, posinf=4.0, neginf=5.0),
        (SPECIAL,),
    ),
    Case("round", lambda np, x: np.round(x, 2), (X,), smooth=False),
    *(
        Case(f"{name}-by-zero", lambda np, x, y, f=f: f(np, x, y), (N, N % 3))
        for name, f in (
            ("mod", lambda np, x, y: np.remainder(x, y)),
            ("mod-0", lambda np, x, y: x % 0 + y),
            ("fmod", lambda np, x, y: np.fmod(x, y)),
            ("divmod", lambda np, x, y: np.divmod(x, y)[1]),
            ("unsigned", lambda np, x, y: x.astype("uint8") % y.astype("uint8")),
        )
    ),
    Case("round-all", lambda np, x: np.round(x, 50), (X,), smooth=False),
    Case("round-inf", lambda np, x: np.round(x, 3), (SPECIAL,), smooth=False),
    Case("angle-deg", lambda np, x: np.angle(x, deg=True), (X,), smooth=False),
    Case("round-whole", lambda np, x: np.round(x), (X,)),
    Case("round-int", lambda np, x: np.round(x), (N,)),
    *binary("add subtract multiply divide maximum minimum", X, Y),
    *binary("arctan2 hypot logaddexp copysign fmin fmax power", positive(3, 4), X),
    *binary("add subtract multiply maximum minimum", N, M, label="-int"),
    *binary("add multiply maximum minimum", B, C, label="-bool"),
    *binary("divide", N, np.abs(M) + 1, label="-int"),
    *binary("floor_divide remainder mod fmod divmod", N, np.abs(M) + 1, label="-int"),
    *binary("floor_divide remainder divmod", N, -np.abs(M) - 1, label="-negative"),
    *binary("floor_divide remainder fmod", X, positive(3, 4), smooth=False),
    *binary("remainder fmod", X, -positive(3, 4), label="-negative", close=16),
    *binary("equal not_equal less less_equal greater greater_equal", N, M),
    *binary("equal less", X, N, label="-mixed"),
    *binary("bitwise_and bitwise_or bitwise_xor", N, M),
    *binary("bitwise_and bitwise_or bitwise_xor", B, C, label="-bool"),
    *binary("left_shift right_shift", N, np.abs(M), label="-int"),
    *binary("right_shift", N.astype(np.uint32), np.abs(M).astype(np.uint32)),
    *binary("logical_and logical_or logical_xor", X * (X > 0), N),
    *binary("add multiply maximum power", positive(3, 4), ROW, label="-row"),
    *binary("add subtract divide", ROW, COLUMN, label="-outer"),
    *binary("add", ROW, np.float32(2.0), label="-scalar"),
    Case("heaviside", lambda np, x: np.heaviside(np.floor(x), 0.5), (X,)),
    Case("power-2", lambda np, x: np.power(x, 2), (X,)),
    Case("power-negative", lambda np, x: x**-3, (positive(3, 4),), close=16),
    Case("power-float", lambda np, x: x**2.0, (X,)),
    Case("power-half", lambda np, x: x**0.5, (positive(3, 4),)),
    Case("power-halves", lambda np, x: (x**1.5, x**-2.5, x**-0.5), (positive(3, 4),)),
    Case("power-base", lambda np, x: 0.9**x, (X,)),
    Case("power-int", lambda np, x, n: x**n, (ints(6), np.abs(ints(6)) % 5)),
    Case("power-int-3", lambda np, x: x**3, (N,)),
    Case("power-mixed", lambda np, x, n: x**n, (positive(4), ints(4) % 4), close=16),
    Case("where", lambda np, c, x, y: np.where(c, x, y), (B, X, Y)),
    Case("where-scalar", lambda np, c, x: np.where(c, x, 0.0), (B, X)),
    Case("where-wide", lambda np, c, x, y: np.where(c, x, y), (B, ROW, COLUMN)),
    Case("sinc", lambda np, x: np.sinc(x), (np.append(X.ravel(), np.float32(0)),)),
    Case("logaddexp2", lambda np, x, y: np.logaddexp2(x, y), (X, Y)),
    *unary("degrees radians asinh", X),
    *unary("rint", N),
    *unary("isfinite isinf nan_to_num logical_not", SPECIAL * (1 + 1j), smooth=False),
    *unary("angle", SPECIAL, smooth=False),
    Case("heaviside", lambda np, x: np.heaviside(x, 2.0), (SPECIAL,), smooth=False),
    Case("where-two-scalars", lambda np, c: np.where(c, 1.5, 2), (B,)),
    Case(
        "where-weak",
        lambda np, c, x: np.where(c, 1.0, 0.0) * x,
        (B, X.astype(ml_dtypes.bfloat16)),
        smooth=False,
    ),
    Case("where-int", lambda np, c, x: np.where(c, x, 1.5), (B, N)),
    Case("clip", lambda np, x: np.clip(x, -1, 1), (X,)),
    Case("clip-low", lambda np, x: np.clip(x, 0.5), (X,)),
    Case("clip-high", lambda np, x: np.clip(x, None, 0.5), (X,)),
    Case("clip-arrays", lambda np, x, r: np.clip(x, r - 1, r + 1), (X, ROW)),
    Case("clip-int", lambda np, x: np.clip(x, -2, 3), (N,)),
    *unary("iscomplex isreal signbit", B),
    *[
        Case(f"{n}-half", apply(n), (N.astype(np.int8), np.float16([[2]])), close=8)
        for n in ("hypot", "logaddexp", "logaddexp2", "heaviside", "arctan2")
    ],
    Case("logaddexp-inf", lambda np, x: np.logaddexp(x, x), (SPECIAL[1:],)),
]
SMOOTH = [
    c
    for c in CASES
    if c.smooth and c.args[0].dtype == np.float32 and np.isfinite(c.args[0]).all()
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_batched(case: Case) -> None:
    check_batched(case)


@pytest.mark.parametrize("case", SMOOTH, ids=lambda c: c.name)
def test_gradient(case: Case) -> None:
    check_gradient(case)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_log2_of_powers_of_two_is_exact(dtype: str) -> None:
    powers = np.arange(-20, 20)
    x = np.ldexp(np.ones(40, dtype), powers)
    np.testing.assert_array_equal(np.asarray(tnp.log2(x)), powers)
    np.testing.assert_array_equal(np.asarray(td.jit(tnp.log2)(x)), powers)


@pytest.mark.parametrize("name", ["copysign", "heaviside"])
def test_complex_numbers_have_no_sign(name: str) -> None:
    with pytest.raises(
        TypeError, match=f"{name} is defined for real numbers"
    ) as caught:
        getattr(tnp, name)(np.array([1j]), 1.0)
    assert f"at {__file__}:" in str(caught.value)
    with pytest.raises(TypeError):
        getattr(np, name)(np.array([1j]), 1.0)


SMALL = np.uint8([0, 1, 200, 255])


@pytest.mark.parametrize("number", [-2, 255, 300, 2**70, -(2**70)])
def test_integers_beyond_a_dtype_compare_as_in_numpy(number: int) -> None:
    names = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
    for name in names:
        f = getattr(tnp, name)
        expected = getattr(np, name)(SMALL, number)
        np.testing.assert_array_equal(f(SMALL, number), expected)
        compiled = td.jit(lambda x, f=f: f(number, x))
        flipped = getattr(np, name)(number, SMALL)
        np.testing.assert_array_equal(compiled(SMALL), flipped)
    x = tnp.asarray(SMALL)
    for low, high in [(-2, 3), (1, 300), (-5, 300), (None, 999), (-9, None)]:
        expected = np.clip(SMALL, low, high)
        np.testing.assert_array_equal(tnp.clip(x, low, high), expected)


BEYOND = {
    "digits is out of range for uint8": lambda x: x + 10**400,
    "digits is out of range for float32": lambda x: x.astype("float32") * 10**400,
    "digits is out of range for float64": lambda x: x / 10**400,
    "digits is out of range for bfloat16": lambda x: x.astype("bfloat16") + 10**400,
    "300 is out of range for uint8, which": lambda x: tnp.diff(x, prepend=300),
    "301 is out of range for uint8": lambda x: tnp.ediff1d(x, to_end=301),
    "302 is out of range for uint8": lambda x: tnp.put(x, 0, 302, inplace=False),
    "303 is out of range for uint8": lambda x: tnp.fill_diagonal(
        tnp.outer(x, x), 303, inplace=False
    ),
    r"300 out of bounds for uint8[\s\S]*wrap around": lambda x: tnp.asarray(
        300, x.dtype
    ),
    "-2 is out of range for uint8, which holds 0 to 255": lambda x: x + -2,
    "300 is out of range for uint8": lambda x: tnp.where(x < 2, x, 300),
    "-1 is out of range for uint8": lambda x: x.at[0].set(-1),
    "-2 is out of range for uint32": lambda x: tnp.sum(x, initial=-2),
    "1j is complex, and can't be one of uint8": lambda x: tnp.full_like(x, 1j),
}


@pytest.mark.parametrize("message", BEYOND)
def test_numbers_that_a_dtype_cannot_hold(message: str) -> None:
    for f in (BEYOND[message], td.jit(BEYOND[message])):
        with pytest.raises((OverflowError, TypeError), match=message) as caught:
            f(tnp.asarray(SMALL))
        assert f"at {__file__}:" in str(caught.value)


def test_numbers_beyond_all_dtypes_compare() -> None:
    x = tnp.asarray(SMALL)
    for f in (lambda x: x < 10**400, lambda x: x != -(10**400)):
        assert np.asarray(f(x)).all()
        assert np.asarray(td.jit(f)(x)).all()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "uint64", "int64"])
@pytest.mark.parametrize("n", [63, 64, 72, 73, 200, 300, 2**40 + 1, 10**30])
def test_powers_beyond_the_reach_of_a_dtype(dtype: str, n: int) -> None:
    """As those of Python's integers, whose last bits are kept."""
    x = np.array([0, 1, 2, 3, 5, 6, 7, 100], dtype)
    modulus = 1 << 8 * x.itemsize
    wanted = np.array([pow(int(v), n, modulus) for v in x], np.uint64).astype(dtype)
    for f in (lambda x: x**n, td.jit(lambda x: x**n)):
        np.testing.assert_array_equal(f(tnp.asarray(x)), wanted)


def test_bfloat16_takes_integers_beyond_64_bits() -> None:
    x = tnp.ones(2, dtype="bfloat16")
    for found in (x * 10**38, td.jit(lambda x: x * 10**38)(x)):
        np.testing.assert_array_equal(
            np.asarray(found, float), float(x.dtype.type(1e38))
        )
    assert float(tnp.asarray(2**70, dtype="bfloat16")) == 2.0**70


LARGEST = {
    "eager": lambda v: tnp.asarray(v) + 0,
    "argument": td.jit(lambda v: v + 0),
    "within": lambda v: td.jit(lambda x: x + v)(0),
    "leaf": lambda v: td.jit(lambda d: d["v"] * 1)({"v": v}),
}


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_integers(name: str) -> None:
    """Python's integers stay integers, or say that they can't."""
    for value in (2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)):
        found = LARGEST[name](value)
        assert found.dtype.kind in "iu" and int(found) == value
    for value in (2**64, 10**30, -(2**63) - 1):
        with pytest.raises(OverflowError, match=f"{value} is out.*[\\s\\S]*float\\("):
            LARGEST[name](value)
    far = td.jit(lambda x: (x < 10**30, x > -(10**30), x.astype(float) + 10**30))
    assert [*map(float, far(1))] == [1, 1, np.float32(1e30)]


@pytest.mark.parametrize("name", ["divide", "arctan2", "float_power", "isclose"])
def test_integers_beyond_a_dtype_where_results_are_floats(name: str) -> None:
    for f in (getattr(tnp, name), td.jit(lambda x, y: getattr(tnp, name)(x, -2))):
        found = f(tnp.asarray(SMALL[1:]), -2)
        wanted = getattr(np, name)(SMALL[1:].astype(np.float32), -2)
        np.testing.assert_allclose(found, wanted, 1e-6)
    wanted = np.linspace(SMALL, -5, 3, dtype=np.float32)
    np.testing.assert_allclose(tnp.linspace(SMALL, -5, 3), wanted)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_complex_numbers_are_not_rounded(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} is not defined for complex numbers"):
        getattr(tnp, name)(1j)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "mod", "divmod", "fmod"])
@pytest.mark.parametrize("other", [2, 1.5j, X])
def test_complex_quotients_are_not_rounded(name: str, other: Any) -> None:
    z = X.astype(np.complex64)
    with pytest.raises(TypeError):
        getattr(np, name)(z, other)
    for f in (getattr(tnp, name), td.jit(getattr(tnp, name))):
        with pytest.raises(TypeError, match=r"complex numbers are not ordered") as e:
            f(z, other)
        assert f"\n  at {__file__}" in str(e.value)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_divisors_of_the_least_integers(dtype: Any) -> None:
    least = np.iinfo(dtype).min
    x = np.array([least, least, least, least, 127, 6, -12, 0], dtype)
    y = np.array([127, 0, least, 3, least, least, 8, least], dtype)
    for name in ("gcd", "lcm"):
        found, wanted = getattr(tnp, name), getattr(np, name)(x, y)
        np.testing.assert_array_equal(found(x, y), wanted)
        np.testing.assert_array_equal(td.jit(found)(x, y), wanted)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int64, np.uint64])
def test_numbers_times_large_powers_of_two(dtype: Any) -> None:
    powers = np.array([0, 3, 200, np.iinfo(dtype).max], dtype)
    x = np.float32([1.5, -1e-45, 1e-45, 1e-45])
    with np.errstate(over="ignore"):
        wanted = np.ldexp(x, np.minimum(powers, 10_000).astype(np.int64))
    np.testing.assert_array_equal(tnp.ldexp(x, powers), wanted)
    np.testing.assert_array_equal(td.jit(tnp.ldexp)(x, powers), wanted)


@pytest.mark.parametrize(
    "number", [np.uint32(2**32 - 1), np.uint64(2**63 + 1), np.int64(-(2**63))]
)
def test_places_beyond_all_lengths(number: Any) -> None:
    x, places = np.arange(10, 15, dtype=np.float32), number[None]
    for mode in ("clip", "wrap"):
        wanted = x[int(number) % 5 if mode == "wrap" else 4 if number > 0 else 0]
        found = td.jit(lambda x, i, mode=mode: tnp.take(x, i, mode=mode))(x, places)
        assert found == tnp.take(x, places, mode=mode) == wanted
    wanted = np.roll(x, int(number) % 5)
    np.testing.assert_array_equal(tnp.roll(x, number), wanted)
    np.testing.assert_array_equal(td.jit(tnp.roll)(x, number), wanted)
    assert not td.jit(tnp.roll)(x[:0], number).size


@pytest.mark.parametrize("n", [-3.5, -2.5, -1.5, -0.5, 1.5, 2.5, 3.5])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_powers_of_halves_of_odd_numbers(dtype: str, n: float) -> None:
    ends = [0, -0.0, np.inf, -np.inf, np.nan, -2, 1e-7, -1e-7, 6e4, -6e4, 1]
    x = np.array([*ends, *np.geomspace(1e-3, 1e3, 90)], dtype)
    if dtype != "float16":
        x = np.append(x, np.array([1e-38, -1e-38, 1e38, 1e-45, 2e25], dtype))
    found = np.asarray(td.jit(lambda x: x**n)(x))
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.float64), n)
        near = {"float16": 1e-3, "float32": 3e-7, "float64": 1e-15}[dtype]
        np.testing.assert_allclose(
            found, wanted.astype(dtype), near, 6e-8 if dtype == "float16" else 2e-45
        )
        some = ~np.isnan(wanted)
        signs = np.signbit(found[some]), np.signbit(wanted[some])
        np.testing.assert_array_equal(*signs)
        zero = td.grad(lambda x: (x**n).sum())(np.zeros(1, np.float32))
        np.testing.assert_array_equal(zero, n * np.power(np.zeros(1), n - 1))


def test_powers_whose_exponents_are_made_of_sizes_have_the_bits_of_known_ones() -> None:
    def f(x):
        return x ** (x.shape[0] / 2), td.grad(lambda v: (v ** (-x.shape[0] / 2)).sum())(
            x
        )

    opened = td.jit(f, dynamic={"x": ("n",)})
    for n in (2, 3, 5, 7, 8, 9, 1):
        x = np.linspace(0.1, 3, n).astype(np.float32)
        for a, b in zip(opened(x), td.jit(f, dynamic=False)(x), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
