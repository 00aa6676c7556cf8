"""Sums down the columns of matrices with long rows, read in wide pieces."""

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

WIDTHS = 960, 1023, 1024, 1087, 1250, 2049


@pytest.mark.parametrize("width", WIDTHS)
def test_sums_and_products_with_vectors_are_numpys(width):
    rng = np.random.default_rng(width)
    w = rng.standard_normal((70, width)).astype(np.float32)
    x = rng.standard_normal(70).astype(np.float32)
    total, product = td.jit(lambda x, w: (w.sum(0), x @ w))(x, w)
    wide = w.astype(np.float64)
    np.testing.assert_allclose(total, wide.sum(0), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(product, x @ wide, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_places_of_equal_ones_infinities_and_nans_down_columns(name: str) -> None:
    rng = np.random.default_rng(3)
    f = td.jit(lambda x: getattr(tnp, name)(x, -2))
    for shape in ((3, 7, 20), (2, 16, 3), (2, 19, 20), (3, 300, 35), (70, 17)):
        for values in ((0, 1), (-np.inf, np.inf), (0, 1, np.nan), (-np.inf,)):
            x = rng.choice(np.array(values, np.float32), shape)
            np.testing.assert_array_equal(f(x), getattr(np, name)(x, -2))
        x = rng.integers(-128, 128, shape).astype(np.int8)
        np.testing.assert_array_equal(f(x), getattr(np, name)(x, -2))
