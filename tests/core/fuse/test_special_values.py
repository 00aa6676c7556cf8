"""Compiled programs agree with NumPy on zeros' signs, infinities and rounding."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.ops.shape import pad

F = np.float32
ZEROS = F([0.0, -0.0, 1.0, -1.0])


def same_bits(found: Any, wanted: Any) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize("number", [0.0, -0.0])
def test_adding_and_subtracting_zero(number: float) -> None:
    same_bits(td.jit(lambda x: x + number)(ZEROS), ZEROS + F(number))
    same_bits(td.jit(lambda x: number + x)(ZEROS), F(number) + ZEROS)
    same_bits(td.jit(lambda x: x - number)(ZEROS), ZEROS - F(number))


def test_the_sign_of_zeros() -> None:
    x = F([*ZEROS, np.nan])
    same_bits(td.jit(tnp.sign)(x), np.sign(x))


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, -1.0])
def test_kernels_for_equal_constants_of_other_signs(number: float) -> None:
    mask = ZEROS > 0
    chosen = td.jit(lambda m, x: tnp.where(m, x, F(number)))(mask, ZEROS)
    same_bits(chosen, np.where(mask, ZEROS, F(number)))


def test_a_complex_infinity_times_one_is_what_numpy_says() -> None:
    x = np.complex64([complex(np.inf, 0), complex(1, -np.inf), 1 + 2j])
    with np.errstate(invalid="ignore"):
        for number in (1, -1):
            found = td.jit(lambda x, n=number: x * n)(x)
            np.testing.assert_array_equal(np.asarray(found), x * np.complex64(number))


@pytest.mark.parametrize("fill", [0.0, -0.0, 2.5, np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
def test_padding_with_any_number(dtype: str, fill: float) -> None:
    x = np.arange(6, dtype=dtype).reshape(2, 3)
    padding = ((1, -1, 0), (2, 1, 2))
    number = np.dtype(dtype).type(fill)
    found = np.asarray(td.jit(lambda x: pad(x, number, padding=padding))(x))
    wanted = np.asarray(jax.lax.pad(x, number, padding))
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found.real), np.signbit(wanted.real))


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_reductions_of_halves_over_several_axes_are_rounded_once(name: str) -> None:
    """One row alone is beyond the largest half float."""
    x = np.float16([[3e4, 3e4, 3e4], [-3e4, -3e4, -3e4 if name == "sum" else 0]])
    wanted = getattr(np, name)(x.astype(F)).astype(np.float16)
    found = td.jit(lambda x: getattr(tnp, name)(x))(x)
    np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((-1,), 0), ((16, -1), 1), ((-1, 16), 0), ((4, -1, 8), (0, 1)), ((-1, 1), 0)],
)
def test_sums_of_millions_are_as_accurate_as_those_of_hundreds(
    shape: tuple[int, ...], axis: Any
) -> None:
    """Equal terms are the worst case: rounding errors all have the same sign."""
    x = np.full(2**21, 0.1, F).reshape(shape)
    found = np.asarray(td.jit(lambda x: tnp.sum(x, axis))(x))
    wanted = np.sum(x, axis, dtype=np.float64)
    np.testing.assert_allclose(found, wanted, rtol=2e-5)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_long_sums_with_an_infinity(number: float) -> None:
    x = np.ones((20_000, 20), F)
    x[7_000, 3] = number
    for axis in (None, 0, 1):
        found = np.asarray(td.jit(lambda x, a=axis: tnp.sum(x, a))(x))
        np.testing.assert_array_equal(found, x.sum(axis))
