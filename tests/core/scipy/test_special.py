"""`treadle.scipy.special` against SciPy, JAX and finite differences."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
import ml_dtypes
import numpy as np
import pytest
import scipy.special

import treadle as td
import treadle.numpy as tnp
from tests.core.scipy.special_cases import CASES, Case
from treadle.backends.cpu.device import CPUTarget
from treadle.compile import stages
from treadle.plan.steps import HostStep
from treadle.run.explain import walk

special = td.scipy.special
SMALLEST = 1e-3


def each(chosen: Any, slow: Any = lambda case: False) -> Any:
    """A test for each of some cases; those that say so are slow."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(c, id=f"{c.name}{c.label}", marks=[pytest.mark.slow] * slow(c))
            for c in CASES
            if chosen(c)
        ],
    )


def result(case: Case, *args: Any) -> Any:
    out = case.function(*args)
    return out[int(case.label)] if isinstance(out, tuple) else out


def assert_close(found: Any, wanted: Any, tolerance: float) -> None:
    """Equal but for a relative error, of small numbers an absolute one."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, tolerance, tolerance * SMALLEST)


@each(lambda c: c.points)
@pytest.mark.parametrize(
    "dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)]
)
def test_values_are_scipys(case: Case, dtype: str) -> None:
    args = [np.asarray(p, dtype) for p in case.points]
    with np.errstate(all="ignore"):
        wanted = case.wanted(*[a.astype("float64") for a in args]).astype(dtype)
    tolerance = case.tolerance if dtype == "float64" else case.single
    if not case.slow or dtype == "float32":
        compiled = td.jit(lambda *args: result(case, *args))
        assert_close(compiled(*args), wanted, tolerance)
    if dtype == "float64":
        assert_close(result(case, *args), wanted, tolerance)


def _differences(f: Any, args: list[np.ndarray], i: int) -> np.ndarray:
    """The derivative by argument i, by differences of fourth order."""
    step = 2e-4 * np.maximum(np.abs(args[i]), 0.05)

    def at(times: float) -> np.ndarray:
        moved = [a + times * step if j == i else a for j, a in enumerate(args)]
        return np.asarray(f(*moved))

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)


EXTREMES = {
    "beta": [[0.5, -2.5, -0.5, 2.5], [-2.5, -0.5, -0.5, -0.3]],
    "betainc": [
        [1e4, 1e6, 1e8, 1e10, 1e20, 2e6, 1e8, 3e3, 1e5, 1e4, 1e5, 2.5],
        [1e4, 1e6, 1e8, 1e10, 1e20, 1e6, 1.0, 5e3, 2e7, 1e4, 1e7, 3.5],
        [0.5, 0.501, 0.49999, 0.5, 0.5, 0.6667, 1 - 1e-8, 0.35, 0.00496, 0.6, 0.1, 0.5],
    ],
    "boxcox": [[0.9, 1.5, 2.0, 0.0, 2.0], [5e-324, 1e-300, -1e-40, 1e-40, 1e-12]],
    "boxcox1p": [[1e-100, -1e-100, 0.5], [1e-300, 5e-324, -1e-40]],
    "digamma": [[-1.000000000001, -0.99999, -10.25, -0.5, 1.2, 1.5, 2.0, 10.0, 1e10]],
    "erfinv": [
        [
            *[1e-300, -1e-15, 1e-10, 1e-6, 0.1, 0.49, 0.51],
            *[0.99, -0.9999, 1 - 1e-8, 1 - 1e-12, 1e-15 - 1, 1 - 2**-53],
        ]
    ],
    "expn": [[0, 1, 2, 5, 2], [np.nan, np.nan, np.nan, 1.0, np.inf]],
    "comb": [[np.inf, np.inf, 5, 5], [0, 1, np.inf, 2]],
    "poch": [
        [1e15, 1e300, 1e15, 1e6, 2e5, np.inf, *[0, 0, -2, -2, -5, 2, -3, -3, 0.5]],
        [1, 1, -1, 1.5, -0.5, 2, *[-1, -2, 1, 2, 2, -4, np.inf, 5, np.inf]],
    ],
    "rel_entr": [
        [1e15, 1e300, 1e-300, 1e-300, 2.0, np.inf],
        [1e-300, 1e-300, 1e300, 1e-300, 3.0, 1.0],
    ],
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_arguments(name: str) -> None:
    args = [np.array(a, float) for a in EXTREMES[name]]
    function = getattr(special, name)
    wanted = getattr(scipy.special, name)(*args)
    for found in (function(*args), td.jit(function)(*args)):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=0)


def test_the_cosine_integral_goes_on() -> None:
    x = np.array([3.0, 1e14, 1e16, 1e20, 1e200, np.inf])
    wanted = scipy.special.sici(x)
    for found in (special.sici(x), td.jit(special.sici)(x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-320)


@pytest.mark.parametrize("n", [2, 3, 8, 20])
def test_polygamma_of_negative_numbers(n: int) -> None:
    """By the sum of powers that it is: SciPy's has no digits there."""
    x = np.array([-0.25, -0.5, -1.5, -2.5, -3.75, -7.4])
    terms = [(v + np.arange(2000.0)) ** -(n + 1.0) for v in x]
    wanted = [
        math.fsum(t) + (v + 1999.5) ** -n / n for t, v in zip(terms, x, strict=True)
    ]
    wanted = (-1.0) ** (n + 1) * math.factorial(n) * np.array(wanted)
    for found in (special.polygamma(n, x), td.jit(special.polygamma, static="n")(n, x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-8)


def test_zeros_of_quantiles_have_no_sign() -> None:
    assert not np.signbit(special.ndtri(np.array([0.5])))


def test_derivatives_at_extreme_arguments() -> None:
    def entropies(x: Any, y: Any) -> Any:
        return special.rel_entr(x, y).sum()

    x, y = np.array([2.5, 1e-300, 1e300]), np.array([1e3, 1e300, 1e-300])
    np.testing.assert_allclose(td.grad(entropies)(x, y), np.log(x) - np.log(y) + 1)

    def symbols(z: Any) -> Any:
        return special.poch(z, 2.0).sum()

    def parts(a: Any, b: Any) -> Any:
        return special.betainc(a, b, np.array([0.49, 0.5001])).sum()

    a, step = np.array([1e4, 1e6]), 1e-3
    moved = scipy.special.betainc([a + step, a - step], a, [0.49, 0.5001])
    wanted = (moved[0] - moved[1]) / (2 * step)
    np.testing.assert_allclose(td.jit(td.grad(parts))(a, a), wanted, rtol=1e-5)

    large = np.array([12.0, 1e4, 1e6, 1e10, 1e19, 1e30], np.float32)
    for b in (0.5, 1.0, 2.5, 30.0):
        found = td.grad(lambda a, b=b: special.betaln(a, b).sum())(large)
        t, w = np.polynomial.legendre.leggauss(40)
        slopes = scipy.special.polygamma(1, large[:, None] + b * (t + 1) / 2)
        np.testing.assert_allclose(found, -b * (slopes * w / 2).sum(1), rtol=1e-6)
    small, much = np.float32(1e-8), np.float32(1e30)
    slope = td.grad(special.rel_entr, 1)(much, small)
    np.testing.assert_allclose(slope, -1e38, rtol=1e-6)

    # SciPy's function is of 1 - x here: Spence's integral of log(t) / (1 - t).
    x = np.array([0, 1e-300, 1e-8, 0.3, 0.5, 2.0])
    for t in (np.float32, np.float64):
        near = x.astype(t)
        found = td.jit(td.grad(lambda x: special.spence(x).sum()))(near)
        with np.errstate(divide="ignore"):
            wanted = np.log(near.astype(float)) / (1 - near.astype(float))
        np.testing.assert_allclose(found, wanted, rtol=1e-5)

    found = td.grad(lambda m: special.poch(np.array([2.5, 0.5, 1e9]), m).sum())
    wanted = scipy.special.digamma([2.5, 0.5, 1e9]).sum()
    np.testing.assert_allclose(found(0.0), wanted, rtol=1e-6)

    z = np.array([2.5, 1e15])
    np.testing.assert_allclose(td.grad(symbols)(z), 2 * z + 1)


@each(lambda c: c.smooth, lambda c: c.slow)
def test_derivatives_are_those_of_scipys_values(case: Case) -> None:
    """Forward, and reverse under jit and vmap; and once more of the derivative."""
    args = [np.asarray(a, "float64") for a in case.smooth]

    def function(*args: Any) -> Any:
        return result(case, *args)

    for i in case.moving:
        wanted = _differences(case.wanted, args, i)
        if case.name in ("xlogy", "xlog1py"):
            wanted = _differences(function, args, i)
        tangents = [np.full_like(a, float(j == i)) for j, a in enumerate(args)]
        forward = td.jvp(function, tuple(args), tuple(tangents))[1]
        np.testing.assert_allclose(forward, wanted, rtol=2e-6, atol=1e-8)
        gradient = td.grad(function, argnums=i)
        reverse = td.jit(td.vmap(gradient))(*args)
        np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-12)
    if len(args) == 1:
        slope = td.vmap(gradient)
        wanted = _differences(slope, args, 0)
        found = td.jit(td.vmap(td.grad(gradient)))(*args)
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-7)


NATIVE = ("erfcx", "ndtri", "log_ndtr", "i0e", "expi", "spence", "betaln", "gammainc")


@pytest.mark.parametrize("name", NATIVE)
def test_it_runs_natively(name: str) -> None:
    case = next(c for c in CASES if c.name == name and c.smooth)
    args = [np.asarray(a, "float32") for a in case.smooth]

    def slopes(*args: Any) -> Any:
        total = lambda *args: tnp.sum(result(case, *args))  # noqa: E731
        return td.grad(total, argnums=case.moving)(*args)

    plan = stages(td.trace(slopes)(*args), CPUTarget()).plan
    assert not [s for _, s in walk(plan.steps) if isinstance(s, HostStep)]


def test_polygamma_takes_orders_in_arrays() -> None:
    n, x = np.array([0.0, 1.0, 2.0, 5.0]), np.array([0.5, 1.5, 3.0, 20.0])
    wanted = scipy.special.polygamma(n.astype(int), x)
    np.testing.assert_allclose(special.polygamma(n, x), wanted, rtol=1e-12)
    found = td.vmap(td.grad(special.polygamma, argnums=1))(n, x)
    wanted = scipy.special.polygamma(n.astype(int) + 1, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    with pytest.raises(ValueError, match="order n is between 0 and 100"):
        special.polygamma(-1, x)


def test_multigammaln_and_bernoulli() -> None:
    a = np.array([2.5, 7.0, 30.0])
    for d in (1, 2, 5):
        wanted = scipy.special.multigammaln(a, d)
        np.testing.assert_allclose(special.multigammaln(a, d), wanted, rtol=1e-13)
    np.testing.assert_allclose(
        special.bernoulli(20), scipy.special.bernoulli(20), rtol=1e-6
    )
    with pytest.raises(ValueError, match="dimension d is at least 1, got 0"):
        special.multigammaln(a, 0)
    with pytest.raises(TypeError, match="dimension d is a Python int"):
        special.multigammaln(a, 1.0)


def test_comb_with_repetition_and_exact() -> None:
    n, k = np.array([5.0, 3.0, 0.0]), np.array([2.0, 4.0, 1.0])
    wanted = scipy.special.comb(n, k, repetition=True)
    np.testing.assert_allclose(special.comb(n, k, repetition=True), wanted, rtol=1e-12)
    with pytest.raises(ValueError, match=r"math\.comb"):
        special.comb(5, 2, exact=True)
    with pytest.raises(ValueError, match=r"math\.factorial"):
        special.factorial(5, exact=True)


def test_bessel_functions_of_all_orders() -> None:
    z = np.array([0.0, 0.1, 1.0, -3.0, 10.0, 25.0])
    found = td.jit(lambda z: special.bessel_jn(z, v=6, n_iter=60))(z)
    wanted = scipy.special.jv(np.arange(7)[:, None], z)
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)
    slopes = td.vmap(td.jacfwd(lambda z: special.bessel_jn(z, v=2)))(z[1:5])
    wanted = scipy.special.jvp(np.arange(3), z[1:5, None])
    np.testing.assert_allclose(slopes, wanted, rtol=1e-10, atol=1e-12)


def test_spherical_harmonics() -> None:
    degrees = np.array([0, 1, 1, 1, 2, 3, 5, 8, 8])
    orders = np.array([0, -1, 0, 1, 2, -2, 4, -8, 3])
    theta, phi = np.linspace(0, np.pi, 9), np.linspace(-3, 6, 9)
    wanted = scipy.special.sph_harm_y(degrees, orders, theta, phi)
    for f in (special.sph_harm_y, td.jit(lambda *a: special.sph_harm_y(*a, n_max=8))):
        np.testing.assert_allclose(
            f(degrees, orders, theta, phi), wanted, rtol=1e-12, atol=1e-14
        )
    with pytest.raises(ValueError, match="Say which is the largest: `n_max=`"):
        td.jit(special.sph_harm_y)(degrees, orders, theta, phi)


def test_faddeevas_function() -> None:
    x, y = np.meshgrid([-9.0, -3.0, -0.5, 0.0, 1.0, 6.0], [-2.0, -0.1, 0.0, 0.3, 5.0])
    z = x + 1j * y
    wanted = scipy.special.wofz(z)
    for f in (special.wofz, td.jit(special.wofz)):
        np.testing.assert_allclose(f(z), wanted, rtol=1e-11, atol=1e-14)
    slope = td.jvp(special.wofz, (z,), (np.ones_like(z),))[1]
    step = 1e-5
    moved = (scipy.special.wofz(z + step) - scipy.special.wofz(z - step)) / (2 * step)
    np.testing.assert_allclose(slope, moved, rtol=1e-6, atol=1e-8)


X = np.array([[0.5, -1.0, 2.0], [-np.inf, 700.0, 1e4], [-np.inf] * 3])
B = np.array([[1.0, -2.0, 0.0], [1.0, 2.0, 1.0], [1.0, 1.0, 1.0]])


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"axis": 1},
        pytest.param({"axis": 0, "keepdims": True}, marks=pytest.mark.slow),
        pytest.param({"axis": 1, "b": B}, marks=pytest.mark.slow),
        pytest.param({"axis": (0, 1), "b": np.abs(B)}, marks=pytest.mark.slow),
    ],
    ids=lambda how: " ".join(how),
)
def test_logsumexp_is_jaxs(how: dict[str, Any]) -> None:
    with jax.enable_x64(True):
        wanted = jsp.logsumexp(X, **how)
        signed = jsp.logsumexp(X, **how, return_sign=True)
        some = jsp.logsumexp(X, **how, where=X > 0)
        slope = jax.grad(lambda x: jnp.sum(jsp.logsumexp(x, **how)))(X[:1])
    for found, want in (
        (special.logsumexp(X, **how), wanted),
        (special.logsumexp(X, **how, where=X > 0), some),
        *zip(special.logsumexp(X, **how, return_sign=True), signed, strict=True),
    ):
        np.testing.assert_allclose(found, want, rtol=1e-13)
    if "b" not in how:
        ours = td.grad(lambda x: tnp.sum(special.logsumexp(x, **how)))
        np.testing.assert_allclose(td.jit(ours)(X[:1]), slope, rtol=1e-12)


def test_logsumexp_of_complex_numbers() -> None:
    z = X[:1] + 1j * X[:1, ::-1] * 3
    wanted = scipy.special.logsumexp(z, axis=1, b=B[:1], return_sign=True)
    found = special.logsumexp(z, axis=1, b=B[:1], return_sign=True)
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-12)
    found = td.jit(lambda z: special.logsumexp(z, axis=1))(z)
    np.testing.assert_allclose(found, scipy.special.logsumexp(z, axis=1), rtol=1e-12)
    with jax.enable_x64(True):
        slope = jax.grad(lambda z: jsp.logsumexp(z).real)(z)
    ours = td.grad(lambda z: special.logsumexp(z).real)(z)
    np.testing.assert_allclose(ours, slope, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_is_scipys(name: str) -> None:
    for axis in (None, 0, (0, 1), -1):
        wanted = getattr(scipy.special, name)(X[:1] * 100, axis=axis)
        found = td.jit(lambda x, a=axis: getattr(special, name)(x, axis=a))(X[:1] * 100)
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-300)


def test_dtypes() -> None:
    for dtype, wanted in (("float16", "float16"), ("int32", "float32")):
        x = tnp.ones(2, dtype)
        for f in (special.erfcx, special.ndtr, special.gamma, special.i0):
            assert f(x).dtype == wanted
        for f in (special.gammainc, special.xlogy, special.betaln, special.hyp1f1):
            args = (x, x, x) if f is special.hyp1f1 else (x, x)
            assert f(*args).dtype == td.eval_shape(f, *args).dtype == wanted
    with pytest.raises(TypeError, match="gammainc is defined for real numbers"):
        special.gammainc(1j, 1.0)


def test_every_function_of_jax_is_there() -> None:
    theirs = {name for name in dir(jsp) if not name.startswith("_")}
    assert theirs <= set(dir(special))


@pytest.mark.slow
def test_derivatives_at_whole_parameters() -> None:
    """There a continued fraction ends: its value is exact, and says nothing of its
    derivatives."""
    a, x = (np.array(v) for v in ([1.0, 2, 3, 4, 30], [4.0, 5, 4.5, 30, 32]))
    step = 1e-4

    def moved(theirs: Any, *args: Any) -> Any:
        first, *rest = args
        return (
            8 * (theirs(first + step, *rest) - theirs(first - step, *rest))
            - (theirs(first + 2 * step, *rest) - theirs(first - 2 * step, *rest))
        ) / (12 * step)

    slope = td.jit(td.vmap(td.grad(special.gammaincc)))(a, x)
    np.testing.assert_allclose(slope, moved(scipy.special.gammaincc, a, x), rtol=1e-7)
    b, y = np.array([1.0, 3, 3, 5, 1]), np.array([0.3, 0.4, 0.7, 0.1, 0.9])
    a = np.array([1.0, 2, 2, 1, 5])
    slope = td.jit(td.vmap(td.grad(special.betainc)))(a, b, y)
    np.testing.assert_allclose(slope, moved(scipy.special.betainc, a, b, y), rtol=1e-8)
    slope = td.jit(td.vmap(td.grad(special.betainc, argnums=1)))(a, b, y)
    wanted = moved(lambda b, a, y: scipy.special.betainc(a, b, y), b, a, y)
    np.testing.assert_allclose(slope, wanted, rtol=1e-8)


def test_incomplete_gammas_of_huge_parameters() -> None:
    """By SciPy's, which are exact near the parameter."""
    for size in (1.1e4, 1e6, 1e9, 1e14):
        a = np.full(7, size)
        x = a + np.sqrt(size) * np.array([-3.0, -1, -0.1, 0, 0.3, 2, 5])
        for name in ("gammainc", "gammaincc"):
            found = td.jit(getattr(special, name))(a, x)
            wanted = getattr(scipy.special, name)(a, x)
            np.testing.assert_allclose(found, wanted, rtol=1e-11)
        slope = td.vmap(td.grad(special.gammainc))(a, x) * np.sqrt(size)
        # The distribution is a normal one of mean and variance a, nearly.
        normal = -np.exp(-(((x - a) ** 2) / (2 * size))) / np.sqrt(2 * np.pi)
        np.testing.assert_allclose(slope[1:6], normal[1:6], rtol=5 / np.sqrt(size))
    far = td.jit(special.gammainc)(np.full(2, 2e5), np.array([1.3e5, 2.7e5]))
    assert 0 <= far[0] < 1e-300
    assert far[1] == 1
    small = special.gammainc(np.float32([1e5, 1e8]), np.float32([1e5 - 400, 1e8 - 1e4]))
    wanted = scipy.special.gammainc([1e5, 1e8], [1e5 - 400, 1e8 - 1e4])
    np.testing.assert_allclose(small, wanted, rtol=2e-5)


@pytest.mark.parametrize("name", ["gammaln", "gamma", "factorial", "loggamma"])
def test_beyond_the_largest_number(name: str) -> None:
    x = np.array([1e305, 1e308, np.inf])
    wanted = getattr(scipy.special, name)(x)
    np.testing.assert_allclose(getattr(special, name)(x), wanted, rtol=1e-12)
    np.testing.assert_allclose(td.jit(getattr(special, name))(x), wanted, rtol=1e-12)


HALVES = ("dawsn", "erfcx", "expi", "i0", "ndtr", "gamma")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_floats_are_rounded_once(dtype: str) -> None:
    x = np.linspace(0.05, 4.9, 200).astype(dtype)
    wide = x.astype("float64")

    def functions(x: Any) -> list[Any]:
        values = [getattr(special, name)(x) for name in HALVES]
        # Where its logarithm is 0 that of the beta function has few digits.
        return [*values, special.poch(x, 2.5), special.betaln(x + 8, x + 8)]

    wanted = functions(wide)
    for found in (functions(x), td.jit(functions)(x)):
        for name, f, w in zip([*HALVES, "poch", "betaln"], found, wanted, strict=True):
            assert f.dtype == dtype
            eps = float(ml_dtypes.finfo(dtype).eps)
            close = {"rtol": 1.1 * eps, "atol": 0.1 * eps, "err_msg": name}
            with np.errstate(over="ignore"):
                rounded = np.asarray(w).astype(dtype).astype("float64")
            np.testing.assert_allclose(np.asarray(f, "float64"), rounded, **close)
