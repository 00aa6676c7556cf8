"""Convolutions of lines as products whose rows overlap, against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from tests.core.backends.cpu import contract_call as calls
from tests.core.backends.cpu.conv.test_kernel import close, forward, problem
from tests.core.dynamic import same_bytes
from treadle.backends.cpu.gemm.arguments import Kind, Word
from treadle.ops.conv import Window, conv_general


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(1, 40, 10, 5), (3, 70, 2, 1), (9, 5, 1, 3)])
def test_values(sizes, dtype):
    channels, features, taps, stride = sizes
    line = {"size": (1, 60), "filter_size": (1, taps)}
    image, weights, output, spec = problem(
        channels, features, ({}, {"stride": stride}), dtype=dtype, **line
    )
    results = []
    for num_threads in (1, 2, 5):
        results.append(np.full_like(output, np.nan))
        call = calls.convolution(
            spec, results[-1], image, weights, num_threads=num_threads
        )
        assert call.launches[0].words[Word.KIND] == Kind.PRODUCT
        call.serial()
    close(results[0], forward(image, weights, spec), spec.k)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_any_number_of_features():
    """Those of a small filter are columns of a product, others panels."""
    how = Window((5,), ((0, 0),), (1,), (1,), 1)._asdict()
    jitted = td.jit(lambda x, w: conv_general(x, w, **how))
    x = np.random.default_rng(0).standard_normal((2, 100, 1)).astype("float32")
    for features in (16, 100, 3000, 64):
        w = np.ones((10, 1, features), "float32")
        found = jitted(x, w)
        wanted = td.jit(lambda x, w: conv_general(x, w, **how))(x, w)
        assert not (why := same_bytes(found, wanted)), f"{features}: {why}"
