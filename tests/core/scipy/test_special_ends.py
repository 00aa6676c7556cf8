"""Special functions and their derivatives at the ends of their domains."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.special

import treadle as td
from treadle.scipy import special


@pytest.mark.parametrize("x", [0.0, -0.0, 1.0, 0.3, 2.0, np.inf, -np.inf, np.nan])
def test_logit_is_infinitely_steep_at_its_ends(x: float) -> None:
    wanted = jax.grad(jax.scipy.special.logit)(x)
    for gradient in (td.grad(special.logit), td.jit(td.grad(special.logit))):
        np.testing.assert_allclose(gradient(x), wanted, rtol=1e-6)
    batched = td.vmap(td.grad(special.logit))(np.float32([x, 0.5]))
    np.testing.assert_allclose(batched, [wanted, 4.0], rtol=1e-6)


def test_gammainc_of_small_numbers_beside_large_parameters() -> None:
    """`μ - log(1 + μ)` takes 1 + μ as it is given, where μ is next to -1."""
    a, x = np.array([17.08, 12.2, 40.0]), np.array([1e-10, 1e-10, 1e-5])
    wanted = scipy.special.gammainc(a, x)
    np.testing.assert_allclose(special.gammainc(a, x), wanted, rtol=1e-12)
    single = special.gammainc(np.float32([10.5, 15.4]), np.float32(0.1))
    wanted = scipy.special.gammainc(np.float32([10.5, 15.4]), np.float32(0.1))
    np.testing.assert_allclose(single, wanted, rtol=2e-5)


def test_betainc_in_single_precision_where_the_mean_is_next_to_one() -> None:
    """Of numbers next to 1, what is left to 1 counts; in rows: with the integral near
    the mean, with the fraction, and where both sides of it meet."""
    rows = [(1e10, 2604.0, 0.9999997), (1e10, 1e5, 0.99999), (1e12, 1e8, 0.9999)]
    rows += [(8e7, 50.0, 0.9999994), (1e8, 28.4, 0.9999997), (1e10, 500.0, 1 - 2**-24)]
    rows += [(1.0, 1e8, 2e-8), (2.0, 1e8, 3e-8), (3.0, 0.5, 0.8)]
    a, b, x = np.float32(rows).T
    wanted = scipy.special.betainc(*(v.astype(float) for v in (a, b, x)))
    for betainc in (special.betainc, td.jit(special.betainc)):
        np.testing.assert_allclose(betainc(a, b, x), wanted, rtol=2e-3)


def test_betainc_of_parameters_without_end() -> None:
    a, b = np.array([1e12, 1.0, 1e12, 1e20]), np.array([0.1, 1e20, 3e3, 1e12])
    x = np.array([1 - 2**-38, 2e-20, 1 - 3e-9, 1 - 1e-8])
    wanted = scipy.special.betainc(a, b, x)
    np.testing.assert_allclose(special.betainc(a, b, x), wanted, rtol=1e-9)


@pytest.mark.parametrize(("a", "x"), [(1.0, 0.5), (0.1, 0.5), (2.0, 0.5), (3.0, 0.4)])
def test_derivatives_of_betainc_where_its_fraction_is_turned(
    a: float, x: float
) -> None:
    """Which way it goes is decided by ``(a + 1)(1 - x) < (b + 1) x``: equal here."""
    b = (a + 1) * (1 - x) / x - 1
    by_a, by_b = td.grad(special.betainc, argnums=(0, 1))(*map(np.array, (a, b, x)))
    h, f = 1e-5, scipy.special.betainc
    np.testing.assert_allclose(
        [by_a, by_b],
        [f(a + h, b, x) - f(a - h, b, x), f(a, b + h, x) - f(a, b - h, x)]
        / np.array(2 * h),
        rtol=1e-7,
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_floats_are_computed_in_single_precision(dtype: str) -> None:
    x = np.array([0.0, 0.25, 0.49, 0.9, 4.0], td.dtypes.canonical(dtype))
    for name in ("boxcox", "boxcox1p", "kl_div"):
        for other in (0.0, 0.5, 3.0):
            y = np.full_like(x, other)
            wanted = getattr(scipy.special, name)(x.astype(float), y.astype(float))
            got = np.asarray(getattr(special, name)(x, y)).astype(float)
            np.testing.assert_allclose(got, wanted, rtol=5e-3)
    wanted = scipy.special.logit(x[:4].astype(float))
    got = np.asarray(special.logit(x[:4])).astype(float)
    np.testing.assert_allclose(got, wanted, rtol=5e-3)


def test_what_is_infinite_has_its_limit() -> None:
    assert float(special.zeta(3.0, np.inf)) == scipy.special.zeta(3.0, np.inf) == 0
    assert float(special.kl_div(np.inf, 0.0)) == scipy.special.kl_div(np.inf, 0.0)


@pytest.mark.parametrize("name", ["beta", "betaln"])
def test_beta_functions_of_whole_numbers_up_to_0(name: str) -> None:
    ends = np.array([-4.0, -3, -2.5, -2, -1, -0.0, 0, 0.5, 1, 1.5, 2, 3, 5, -np.inf])
    a, b = (x.ravel() for x in np.meshgrid(ends, ends))
    wanted = getattr(scipy.special, name)(a, b)
    f = getattr(special, name)
    for found in (f(a, b), td.jit(f)(a, b)):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    single = f(a.astype("float32"), b.astype("float32"))
    np.testing.assert_allclose(single, wanted, rtol=1e-5)


def test_beta_at_a_whole_number_has_a_slope() -> None:
    h = 1e-6
    near = scipy.special.beta([-3 + h, -3 - h], 2)
    slope = td.grad(lambda a: special.beta(a, 2.0))(np.float64(-3))
    np.testing.assert_allclose(slope, (near[0] - near[1]) / (2 * h), rtol=1e-7)
