"""Sums down the columns of matrices with long rows, read in wide pieces."""

import numpy as np
import pytest

import treadle as td

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
