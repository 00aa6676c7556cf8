"""Mathematical functions: error in units in the last place, and special values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.special as special

import treadle as td
from tests.core.kernels.nests import Maker
from treadle.backends.cpu.emit.nest import supported
from treadle.backends.cpu.math import library
from treadle.backends.cpu.target import host

LONG = np.longdouble
INF, NAN = np.inf, np.nan
SPECIAL = np.array([0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 1e-40, -1e-40, INF, -INF, NAN])


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


# name: (reference, range of arguments, units in the last place for float, for double).
# erf_inv in float rounds x * x as JAX does, for equal random numbers: that costs digits
# where |x| is near 1.
FUNCTIONS = {
    "exp": (np.exp, (-87, 88), 1.2, 1.2),
    "exp2": (np.exp2, (-125, 127), 1.2, 1.2),
    "expm1": (np.expm1, (-30, 88), 2, 2),
    "log": (np.log, (0, 1e30), 1.1, 1),
    "log2": (np.log2, (0, 1e30), 1.2, 1.2),
    "log1p": (np.log1p, (-1, 10), 2.4, 2),
    "logistic": (logistic, (-80, 80), 2.5, 2.5),
    "softplus": (lambda x: np.logaddexp(x, 0), (-80, 80), 2.5, 2.5),
    "tanh": (np.tanh, (-10, 10), 4.5, 3),
    "sinh": (np.sinh, (-88, 88), 3, 3),
    "cosh": (np.cosh, (-88, 88), 3, 3),
    "sin": (np.sin, (-1e4, 1e4), 2, 2),
    "cos": (np.cos, (-1e4, 1e4), 2, 2),
    "tan": (np.tan, (-1e4, 1e4), 3.5, 3.5),
    "asin": (np.arcsin, (-1, 1), 3, 3),
    "acos": (np.arccos, (-1, 1), 2, 2),
    "atan": (np.arctan, (-30, 30), 2.5, 2.5),
    "asinh": (np.arcsinh, (-1e3, 1e3), 2.8, 2.5),
    "acosh": (np.arccosh, (1, 1e3), 3, 3),
    "atanh": (np.arctanh, (-1, 1), 3.2, 2.5),
    "cbrt": (np.cbrt, (-1e30, 1e30), 1, 1),
    "erf": (np.vectorize(math.erf), (-5, 5), 5, 3),
    "erfc": (np.vectorize(math.erfc), (-4, 9), 5, 6),
    "erf_inv": (special.erfinv, (-1, 1), 70, 8),
}
# Of a function: argument and result, besides what NumPy gives for SPECIAL.
LARGE = [("sin", 1e7), ("cos", -3e8), ("tan", 1e30), ("sin", 2e22), ("sinh", 89.2)]


def run(name: str, *arguments: np.ndarray, lanes: int = 0) -> np.ndarray:
    out = np.empty_like(arguments[0])
    m = Maker((), out.size)
    m.store(out, m.op(name, *[m.load(x) for x in arguments]))
    m.run(lanes=lanes)
    return out


def exact(function: Any, *arguments: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        try:
            return function(*[x.astype(LONG) for x in arguments])
        except TypeError:  # SciPy has double only
            return function(*[x.astype(np.float64) for x in arguments]).astype(LONG)


def ulps(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        rounded = expected.astype(got.dtype)
        spacing = np.maximum(np.spacing(np.abs(rounded)), np.finfo(got.dtype).tiny)
        error = np.abs(got - expected) / spacing
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return np.where(same, 0, np.where(np.isfinite(error), error, INF))


def arguments_of(name: str, dtype: type, count: int = 20000) -> np.ndarray:
    rng = np.random.default_rng(0)
    low, high = FUNCTIONS[name][1]
    spread = rng.uniform(low, high, count)
    small = rng.standard_normal(count) * np.exp(rng.uniform(-12, 1, count))
    near_one = 1 + rng.standard_normal(count) * np.exp(rng.uniform(-14, -1, count))
    x = np.concatenate([spread, small, near_one]).astype(dtype)
    return x[(x >= low) & (x <= high)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error(name: str, dtype: type) -> None:
    function, _, float_limit, double_limit = FUNCTIONS[name]
    limit = float_limit if dtype == np.float32 else double_limit
    if name == "erf" and host().arch == "x86_64" and "fma" not in host().flags:
        limit *= 1.2  # its polynomials are rounded twice as often
    x = arguments_of(name, dtype)
    error = ulps(run(name, x), exact(function, x))
    worst = error.argmax()
    assert error[worst] <= limit, (x[worst], error[worst])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str, dtype: type) -> None:
    x = SPECIAL.astype(dtype)
    got, expected = run(name, x), exact(FUNCTIONS[name][0], x)
    assert (ulps(got, expected) <= 5).all(), (x, got, expected)
    zero = (expected == 0) & (name != "erf_inv")  # SciPy loses the sign
    assert (np.signbit(got) == np.signbit(expected))[zero].all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name, x", LARGE)
def test_large_arguments(name: str, x: float, dtype: type) -> None:
    argument = np.array([x, 0.5], dtype)
    expected = exact(FUNCTIONS[name][0], argument)
    assert (ulps(run(name, argument), expected) <= 4).all()


def test_exponential_underflows_gradually() -> None:
    x = np.linspace(-103.5, -87.5, 200, dtype=np.float32)
    got, expected = run("exp", x), exact(np.exp, x)
    assert (np.abs(got - expected) <= 1.5e-45).all()
    assert (run("exp", np.array([-105, 89], np.float32)) == [0, INF]).all()


BINARY = {"pow": (np.power, 1.5), "atan2": (np.arctan2, 3), "rem": (np.fmod, 0.5)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
def test_two_arguments(name: str, dtype: type) -> None:
    rng = np.random.default_rng(1)
    function, limit = BINARY[name]
    corners = np.array([*SPECIAL, 3, -3, 2.5, -2.5, 1e30, 101, -101])
    x, y = (g.ravel() for g in np.meshgrid(corners, corners))
    many = np.exp(rng.uniform(-20, 20, 20000)), rng.uniform(-40, 40, 20000)
    near = rng.uniform(0.5, 2, 20000), rng.uniform(-500, 500, 20000)
    x = np.concatenate([x, many[0], near[0]]).astype(dtype)
    y = np.concatenate([y, many[1], near[1]]).astype(dtype)
    error = ulps(run(name, x, y), exact(function, x, y))
    worst = error.argmax()
    assert error[worst] <= limit, (x[worst], y[worst], error[worst])


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gamma_functions(dtype: type, name: str) -> None:
    x = np.concatenate([np.linspace(-6.3, 30, 997), [1e-3, 1e5, 1e10]]).astype(dtype)
    function = special.gammaln if name == "lgamma" else special.digamma
    tolerance = 1e-6 if dtype == np.float32 else 1e-13
    expected = function(x.astype(np.float64))
    assert np.allclose(run(name, x), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_polygamma(dtype: type, n: int) -> None:
    """SciPy's sum runs over all of the negative axis, JAX's is wrong far out there."""
    x = np.concatenate([np.linspace(-6.3, 30, 997), [-20.3, 1e-3, 1e5, 1e10, NAN]])
    x = np.concatenate([x, [0, -0.0, -3, INF]]).astype(dtype)
    with np.errstate(over="ignore"):
        expected = special.polygamma(n, x.astype(np.float64)).astype(dtype)
    tolerance = 1e-6 if dtype == np.float32 else 1e-12
    for wrap in (lambda f: f, td.jit):
        found = wrap(lambda x: td.scipy.special.polygamma(n, x))(x)
        np.testing.assert_allclose(found, expected, rtol=tolerance)


@pytest.mark.parametrize("lanes", [4, 8])
def test_vector_widths_agree(lanes: int) -> None:
    for name in library.FUNCTIONS:
        if name in FUNCTIONS:
            x = arguments_of(name, np.float32, 50)
            assert run(name, x).tobytes() == run(name, x, lanes=lanes).tobytes()


def test_scalars_agree_with_vectors() -> None:
    for name in FUNCTIONS:
        x = arguments_of(name, np.float32, 20)
        out = np.empty_like(x)
        m = Maker((x.size,), 1)
        places = np.lib.stride_tricks.as_strided(out, (x.size, 1), (4, 0))
        values = np.lib.stride_tricks.as_strided(x, (x.size, 1), (4, 0))
        m.store(places, m.op(name, m.load(values)))
        m.run()
        assert out.tobytes() == run(name, x).tobytes(), name


def test_supported() -> None:
    assert supported("exp", np.dtype(np.float32))
    assert supported("exp", np.dtype(np.float16))
    assert supported("rem", np.dtype(np.int8))
    assert supported("clz", np.dtype(np.uint64))
    assert not supported("exp", np.dtype(np.int32))
    assert not supported("add", np.dtype(np.complex64))
    assert not supported("bessel_i0e", np.dtype(np.float32))
