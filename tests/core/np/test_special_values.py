"""Elementwise functions where they are special: zeros of both signs, infinities,
not-a-number, the largest and the smallest numbers; eager and compiled.

The oracle is NumPy, for half floats in float32, and the array API standard where that
asks for something else.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

MINUS = np.full((2, 3), -0.0, np.float32)
ZEROS: dict[str, Any] = {
    "a sum of one": (lambda np, x: np.sum(x[:1], 0), False),
    "a sum of one, and zero": (lambda np, x: np.sum(x[:1], 0) + 0.0, False),
    "a mean of one": (lambda np, x: np.mean(x[:1], 0), False),
    "a sum": (lambda np, x: np.sum(x, 0), False),
    "a product of one": (lambda np, x: (1 + x[:, :1]) @ x[:1], False),
    "a sum of one, multiplied": (lambda np, x: x[None].sum(0) @ (1 + x.T), False),
    "a product, and a sum of one": (lambda np, x: (x @ (1 + x.T))[None].sum(0), False),
    "a negated sum of one": (lambda np, x: -(x[None].sum(0)), True),
    "a product that is negated": (lambda np, x: (-(x @ x.T))[None].sum(0), False),
    "two sums of one": (lambda np, x: x[None, None].sum(0).T[..., None].sum(-1), False),
    "a sum of one beside": (
        lambda np, x: np.concatenate([x[None].sum(0), x[None].sum(0) @ x.T], 1),
        False,
    ),
    "a diagonal by formula": (lambda np, x: np.einsum("ii->i", x[:, :2]), True),
    "a trace by formula": (lambda np, x: np.einsum("ii->", x[:, :2]), False),
}
PRODUCTS: dict[str, Any] = {
    "outer": lambda np, x: np.einsum("ij,k->ijk", x, 1 + x[0]),
    "along batches": lambda np, x: np.einsum("ij,j->ij", x, 1 + x[0]),
    "of three": lambda np, x: np.einsum("i,j,k->ijk", x[0], 1 + x[0], 1 + x[1]),
    "tensordot": lambda np, x: np.tensordot(x, 1 + x, axes=0),
    "of two numbers": lambda np, x: np.einsum(",->", x[0, 0], 1 + x[0, 1]),
    "tensordot of numbers": lambda np, x: np.tensordot(x[0, 0], 1 + x[0, 1], axes=0),
}
ONE = """exp exp2 expm1 log log1p log2 log10 sqrt cbrt sin cos tan arcsin arccos arctan
sinh cosh tanh arcsinh arccosh arctanh deg2rad rad2deg floor ceil rint trunc round
negative positive abs sign square reciprocal logical_not isnan isinf isfinite isposinf
isneginf signbit real imag conj angle"""
TWO = """add subtract multiply divide maximum minimum fmax fmin remainder fmod power
arctan2 nextafter hypot logaddexp logaddexp2 copysign heaviside equal not_equal less
less_equal greater greater_equal logical_and logical_or logical_xor"""
COMPLEX_ONE = """exp log log2 log10 sqrt sin cos tan arcsin arccos arctan sinh cosh
arcsinh arccosh arctanh rint round negative abs sign square isnan isinf isfinite
real imag conj angle"""
COMPLEX_TWO = """add subtract multiply divide maximum minimum fmax fmin equal not_equal
less greater"""
DTYPES = ["float32", "float64", "float16", "bfloat16"]
EPS = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6, "float64": 1e-13}
EXTREMES = {"maximum", "minimum", "fmax", "fmin"}


def points(dtype: str) -> np.ndarray:
    limits = ml_dtypes.finfo(dtype)
    sizes = [0, 0.5, 1, 1.5, 2, 2.5, 3, 7.25, 100, 1e-3, np.inf, limits.max]
    sizes = [float(x) for x in (*sizes, limits.tiny, limits.smallest_subnormal)]
    return np.array([np.nan, *sizes, *(-x for x in sizes)], np.dtype(dtype))


def pairs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(x, len(x)), np.tile(x, len(x))


def complexes(dtype: str) -> np.ndarray:
    part = np.float64([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 100.0])
    x = np.empty(len(part) ** 2, dtype)
    x.real, x.imag = pairs(part)
    return x


def wanted_of(name: str, *args: np.ndarray) -> Any:
    half = args[0].dtype.itemsize == 2 and name != "nextafter"
    with np.errstate(all="ignore"):
        wide = [x.astype(np.float32) if half else x for x in args]
        out = getattr(np, name)(*wide)
        if name == "nextafter":  # of two zeros, NumPy takes the other for float16
            return np.where(args[0] == args[1], args[1], out)
        return out.astype(args[0].dtype) if half and out.dtype != bool else out


def same(found: Any, wanted: Any, eps: float, message: str, signs: bool = True) -> None:
    """Equal kinds (not-a-number, infinity, zero with its sign), nearly equal values."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind == "c":
        same(found.real, wanted.real, eps, message, signs)
        same(found.imag, wanted.imag, eps, message, signs)
        return
    if wanted.dtype != bool:
        found, wanted = found.astype(float), wanted.astype(float)
    np.testing.assert_allclose(found, wanted, rtol=eps, atol=0, err_msg=message)
    zero = wanted == 0 if signs else np.zeros(wanted.shape, bool)
    np.testing.assert_array_equal(
        np.signbit(found[zero] * 1.0), np.signbit(wanted[zero] * 1.0), message
    )


def check(name: str, *args: np.ndarray, eps: float, signs: bool = True) -> None:
    wanted = wanted_of(name, *args)
    function = getattr(tnp, name)
    eager, compiled = function(*args), td.jit(function)(*args)
    same(eager, wanted, eps, f"eager {name}", signs)
    same(compiled, wanted, eps, f"compiled {name}", signs)
    # Where NumPy's sign depends on the processor, ours don't.
    same(compiled, eager, eps, f"compiled, not eager, {name}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ONE.split())
def test_of_one(name: str, dtype: str) -> None:
    check(name, points(dtype), eps=EPS[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TWO.split())
def test_of_two(name: str, dtype: str) -> None:
    x, y = pairs(points(dtype))
    if name.startswith("logaddexp"):
        # Where the result is next to 0, its digits cancel.
        with np.errstate(all="ignore"):
            near = np.abs(wanted_of(name, x, y).astype(float)) < 0.5
        x, y = x[~near], y[~near]
    check(name, x, y, eps=EPS[dtype], signs=name not in EXTREMES)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", COMPLEX_ONE.split())
def test_of_a_complex_number(name: str, dtype: str) -> None:
    check(name, complexes(dtype), eps=2e-5)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", COMPLEX_TWO.split())
def test_of_two_complex_numbers(name: str, dtype: str) -> None:
    check(name, *pairs(complexes(dtype)), eps=2e-5)


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_of_numbers_and_zeros(name: str, number: float) -> None:
    x, function = points("float32"), getattr(tnp, name)
    for f in (lambda x: function(x, number), lambda x: function(number, x)):
        same(td.jit(f)(x), f(x), 0, name)
    clipped = td.jit(lambda x: tnp.clip(x, number, 2.0))
    same(clipped(x), tnp.clip(x, number, 2.0), 0, "clip")


@pytest.mark.parametrize("dtype", DTYPES)
def test_floored_quotients(dtype: str) -> None:
    """Python's; of infinities ``floor(x / y)``, as in the array API standard."""
    x, y = pairs(points(dtype))
    wanted = wanted_of("floor_divide", x, y)
    with np.errstate(all="ignore"):
        plain = np.floor(x.astype(float) / y.astype(float)).astype(x.dtype)
    wanted = np.where(np.isinf(x) | np.isinf(y), plain, wanted)
    rest = wanted_of("remainder", x, y)
    for how in (lambda f: f, td.jit):
        same(how(tnp.floor_divide)(x, y), wanted, EPS[dtype], "floor_divide")
        quotient, remainder = how(tnp.divmod)(x, y)
        same(quotient, wanted, EPS[dtype], "divmod")
        same(remainder, rest, EPS[dtype], "divmod")


NAN, INF = float("nan"), float("inf")
STANDARD = [
    ("expm1", complex(0, 0), complex(0, 0)),
    ("expm1", complex(1, INF), complex(NAN, NAN)),
    ("expm1", complex(1, NAN), complex(NAN, NAN)),
    ("expm1", complex(INF, 0), complex(INF, 0)),
    ("expm1", complex(-INF, 2), complex(-1, 0)),
    ("expm1", complex(-INF, -2), complex(-1, -0.0)),
    ("expm1", complex(INF, 2), complex(-INF, INF)),
    ("expm1", complex(-INF, INF), complex(-1, 0)),
    ("expm1", complex(INF, INF), complex(INF, NAN)),
    ("expm1", complex(-INF, NAN), complex(-1, 0)),
    ("expm1", complex(INF, NAN), complex(INF, NAN)),
    ("expm1", complex(NAN, 0), complex(NAN, 0)),
    ("expm1", complex(NAN, 1), complex(NAN, NAN)),
    ("expm1", complex(NAN, NAN), complex(NAN, NAN)),
    ("tanh", complex(0, 0), complex(0, 0)),
    ("tanh", complex(1, INF), complex(NAN, NAN)),
    ("tanh", complex(0, INF), complex(0, NAN)),
    ("tanh", complex(-0.0, INF), complex(-0.0, NAN)),
    ("tanh", complex(0, NAN), complex(0, NAN)),
    ("tanh", complex(INF, 1), complex(1, 0)),
    ("tanh", complex(INF, 2), complex(1, 0)),
    ("tanh", complex(-INF, -2), complex(-1, -0.0)),
    ("tanh", complex(INF, INF), complex(1, 0)),
    ("tanh", complex(INF, NAN), complex(1, 0)),
    ("tanh", complex(NAN, 0), complex(NAN, 0)),
    ("tanh", complex(NAN, 1), complex(NAN, NAN)),
]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(("name", "at", "wanted"), STANDARD)
def test_values_of_the_standard(
    name: str, at: complex, wanted: complex, dtype: str
) -> None:
    # The sign of a zero is not specified at an imaginary part that is not finite.
    signs = bool(np.isfinite(at.imag))
    function = getattr(tnp, name)
    for f in (function, td.jit(function)):
        found = f(np.array([at], dtype))
        same(found, np.array([wanted], dtype), 2e-6, f"{name}({at})", signs)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_expm1_of_small_complex_numbers(dtype: str) -> None:
    x = np.array([1e-9 + 1e-9j, -1e-5 + 0.3j, 0.7 - 3j, -0.99 + 1e-7j], dtype)
    a, b = x.real.astype(np.longdouble), x.imag.astype(np.longdouble)
    wanted = np.expm1(a) * np.cos(b) - 2 * np.sin(b / 2) ** 2
    eps = 16 * np.finfo(dtype).eps
    found = np.asarray(tnp.expm1(x))
    np.testing.assert_allclose(found.real, wanted.astype(found.real.dtype), rtol=eps)
    np.testing.assert_allclose(
        found.imag, (np.exp(a) * np.sin(b)).astype(found.real.dtype), rtol=eps
    )


TIES = [
    (lambda np, x: np.clip(x, -1.0, 1.0), [-1.0, 1.0, 0.0, 2.0]),
    (lambda np, x: np.clip(x, 1.0), [1.0, 2.0]),
    (lambda np, x: np.clip(x, -x, x), [0.0, 1.0]),
    (lambda np, x: np.clip(1.0, -x, x), [1.0, 2.0, 0.5]),
    (lambda np, x: np.maximum(x, 1.0), [0.0, 1.0]),
    (lambda np, x: np.minimum(x * 2, x + 1.0), [0.0, 1.0]),
    (lambda np, x: np.remainder(x, 2.0), [0.0, 2.0, -2.0, 1.0]),
    (lambda np, x: np.remainder(x, -2.0), [0.0, 2.0, 1.0]),
    (lambda np, x: np.modf(x)[0], [0.0, -0.0, 1.0, -2.0, 1.5, -0.25]),
    (lambda np, x: np.modf(x)[1] * x, [0.0, 1.0, -2.0, 1.5]),
]


@pytest.mark.parametrize(("function", "places"), TIES)
def test_derivatives_where_operands_are_equal(function: Any, places: list) -> None:
    """They share the derivative, as in JAX."""
    wanted = [jax.grad(lambda x: function(jnp, x))(x) for x in places]
    ours = td.grad(lambda x: function(tnp, x))
    for gradient in (ours, td.jit(ours)):
        np.testing.assert_array_equal([gradient(x) for x in places], wanted)


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2", "hypot", "power"])
def test_what_is_no_number_has_no_derivative(name: str) -> None:
    """Training must not go on as if nothing had happened."""
    function = getattr(tnp, name)
    for place in ((np.nan, 2.0), (2.0, np.nan), (np.nan, np.nan)):
        for gradient in (td.grad(function, (0, 1)), td.jit(td.grad(function, (0, 1)))):
            found = gradient(*map(np.float32, place))
            assert np.isnan(found).all(), place


SMOOTH = [
    (lambda np, v: np.logaddexp(v[0], v[1]), [(0, 0), (2, 2), (-1, 1)]),
    (lambda np, v: np.logaddexp2(v[0], v[1]), [(0, 0), (2, 2), (-1, 1)]),
    (lambda np, v: np.sinc(v[0]) * np.sinc(v[1]), [(0, 0), (0, 1), (0.1, 0.5)]),
]


@pytest.mark.parametrize(("function", "places"), SMOOTH)
def test_second_derivatives_where_the_formula_branches(
    function: Any, places: list
) -> None:
    for x in np.array(places, "float32"):
        wanted = jax.hessian(lambda x: function(jnp, x))(x)
        ours = td.hessian(lambda x: function(tnp, x))
        for hessian in (ours, td.jit(ours)):
            np.testing.assert_allclose(hessian(x), wanted, rtol=1e-4, atol=1e-6)


def test_second_derivatives_of_lengths() -> None:
    for x in np.float32([(0, 1), (-2, 0), (1, 1), (-1, 1), (3, 2)]):
        wanted = jax.hessian(lambda v: jnp.sqrt(v[0] * v[0] + v[1] * v[1]))(x)
        ours = td.hessian(lambda v: tnp.hypot(v[0], v[1]))
        for hessian in (ours, td.jit(ours)):
            np.testing.assert_allclose(hessian(x), wanted, rtol=1e-5, atol=1e-6)


def test_derivatives_of_sinc_near_zero() -> None:
    """Where the quotient has lost its digits: -π²/3 and π⁴/5 x."""
    x = np.float32([0.0, 1e-4, 1e-3])
    second = td.vmap(td.grad(td.grad(tnp.sinc)))
    third = td.vmap(td.grad(td.grad(td.grad(tnp.sinc))))
    np.testing.assert_allclose(second(x), np.full(3, -(np.pi**2) / 3), rtol=1e-4)
    np.testing.assert_allclose(third(x), np.pi**4 / 5 * x, rtol=1e-4)


def test_lengths_have_derivative_zero_at_zero() -> None:
    """The smallest subgradient."""
    zero = np.zeros(2, "float32")
    for function in (
        tnp.abs,
        lambda x: tnp.hypot(x, x),
        lambda x: tnp.hypot(x, np.zeros(2, "float32")),
    ):
        ours = td.grad(lambda x, f=function: f(x).sum())
        np.testing.assert_array_equal(ours(zero), zero)
        np.testing.assert_array_equal(td.jit(ours)(zero), zero)


def test_extremes_of_complex_arrays() -> None:
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 3, (4, 5)) + 1j * rng.integers(0, 3, (4, 5))).astype("c8")
    y = x[::-1].copy()
    weights = rng.normal(size=(4, 5)).astype("f")
    for name in ("max", "min"):
        function = getattr(tnp, name)
        for f in (function, td.jit(function)):
            np.testing.assert_array_equal(f(x), getattr(np, name)(x))
        for axis in (0, 1):
            found = td.jit(lambda x, a=axis, f=function: f(x, a))(x)
            np.testing.assert_array_equal(found, getattr(np, name)(x, axis))
    for name in ("maximum", "minimum"):

        def score(np: Any, x: Any, name: str = name) -> Any:
            return (getattr(np, name)(x, y).real * weights).sum()

        found = td.grad(lambda x, f=score: f(tnp, x))(x)
        wanted = jax.grad(lambda x, f=score: f(jnp, x))(x)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ZEROS)
def test_signs_of_zeros_that_are_summed(name: str) -> None:
    """NumPy's, however many terms there are."""
    function, negative = ZEROS[name]
    assert np.signbit(function(np, MINUS)).all() == negative
    batched = td.vmap(lambda x: function(tnp, x))(MINUS[None])
    compiled = td.jit(lambda x: function(tnp, x))
    for found in (function(tnp, tnp.asarray(MINUS)), compiled(MINUS), batched):
        assert (np.signbit(found) == negative).all()


def test_a_sum_of_one_that_only_sums_read_is_no_copy() -> None:
    def arena(f: Any) -> int:
        return td.jit(f).lower(np.ones((64, 64), np.float32)).plan.arena

    assert arena(lambda x: x[None].sum(0) @ x) == arena(lambda x: x @ x)
    more = lambda x: (x @ x)[None].sum(0)[:, None].sum(1) @ x  # noqa: E731
    assert arena(more) == arena(lambda x: x @ x @ x)


@pytest.mark.parametrize("name", PRODUCTS)
def test_signs_of_zeros_that_nothing_is_added_to(name: str) -> None:
    """JAX's: NumPy adds each product to a zero."""
    function = PRODUCTS[name]
    assert np.signbit(function(jnp, MINUS)).all()
    compiled = td.jit(lambda x: function(tnp, x))
    for found in (function(tnp, tnp.asarray(MINUS)), compiled(MINUS)):
        assert np.signbit(found).all()


def test_the_derivative_of_sinc_far_out() -> None:
    x = np.array([0.0, 0.1, 1e10, 1e19, 1e38, -1e30], np.float32)
    found = td.jit(td.grad(lambda x: tnp.sinc(x).sum()))(x)
    wanted = jax.grad(lambda x: jnp.sinc(x).sum())(x)
    np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=1e-6)
