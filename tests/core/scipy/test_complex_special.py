"""Special functions of complex numbers beside SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import treadle as td
from treadle.scipy import special

NAMES = ("erf", "erfc", "erfcx", "digamma", "gamma", "loggamma", "expit")
RNG = np.random.default_rng(0)
Z = np.concatenate(
    [
        *[(RNG.normal(size=(60, 2)) * s).view(complex)[:, 0] for s in (0.5, 2.0, 6.0)],
        # On the axes, on both sides of the cut, beside a pole.
        [-2.5, complex(-2.5, -0.0), 3, 0.5, 2j, -3j, 1, 2, -3 + 1e-3j, 0.999 + 0.01j],
    ]
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_values(name: str, dtype: str) -> None:
    function, z = getattr(special, name), Z.astype(dtype)
    exact = z.astype(complex)
    if name == "expit":
        wanted = 1 / (1 + np.exp(-exact))
    else:
        wanted = getattr(scipy.special, name)(exact)
    keep = np.abs(wanted) < 1e30
    assert keep.mean() > 0.9
    rtol = 1e-4 if dtype == "complex64" else 1e-11
    for found in (function(z), td.jit(function)(z), td.vmap(function)(z)):
        assert found.dtype == dtype
        np.testing.assert_allclose(
            np.asarray(found)[keep], wanted[keep], rtol, atol=rtol * 0.1
        )


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name: str) -> None:
    function, step = getattr(special, name), 1e-6
    z = np.array([1.3 + 0.4j, -2.2 - 0.7j, -1.4 + 2j, 0.2 - 0.1j])
    wanted = (function(z + step) - function(z - step)) / (2 * step)
    for turn in (1 + 0j, 1j):
        found = td.jvp(function, (z,), (turn * np.ones(4),))[1]
        np.testing.assert_allclose(found, turn * np.asarray(wanted), rtol=1e-7)
    slope = td.jit(td.grad(lambda z: function(z).sum(), holomorphic=True))(z)
    np.testing.assert_allclose(slope, wanted, rtol=1e-7)


def test_the_logistic_does_not_overflow() -> None:
    z = np.array([1000 + 1j, -1000 + 1j])
    np.testing.assert_array_equal(special.expit(z), [1, 0])


@pytest.mark.parametrize("name", NAMES)
def test_real_numbers_stay_real(name: str) -> None:
    x = np.array([0.5, 1.5], np.float32)
    assert getattr(special, name)(x).dtype == np.float32
    assert getattr(special, name)(2).dtype == np.float32
