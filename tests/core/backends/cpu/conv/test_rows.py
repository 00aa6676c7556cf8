"""Gradients by filters that read images as they are padded, without planes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.backends.cpu import contract_call as calls
from tests.core.backends.cpu.conv.test_kernel import (
    channels_first,
    channels_last,
    close,
    filter_gradient,
    problem,
    sparse,
)
from treadle.backends.cpu.conv import filter_schedule
from treadle.backends.cpu.conv.arguments import FilterWord
from treadle.backends.cpu.gemm import kernel as gemm

BY_TWO = {"stride": 2, "padding": 2}
CASES = {
    "one panel, as it lies": {"features": 32, "size": (30, 17)},
    "parts of panels": {"features": 45, "size": (31, 20)},
    "more images at once": {"features": 45, "size": (9, 9), "images": 21},
    "more pixels than one chunk": {"features": 40, "size": (70, 33), "images": 1},
    "many panels": {"features": 530, "size": (1, 90), "filter_size": (1, 5)},
}


def words(spec):
    return filter_schedule.schedule(spec, gemm.tile(spec.dtype), 1)[0].words


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("channels", [1, 3, 20])
@pytest.mark.parametrize("layout", [channels_last, channels_first, sparse])
@pytest.mark.parametrize("case", CASES)
def test_values(case, layout, channels, dtype):
    options = {"filter_size": (5, 5), "layout": layout} | CASES[case]
    features = options.pop("features")
    axes = BY_TWO, BY_TWO | ({"stride": 5} if case == "many panels" else {})
    image, weights, gradient, spec = problem(
        channels, features, axes, dtype=dtype, **options
    )
    rows = spec.input.column == 1 or (channels == spec.input.row == 1)
    low = gemm.tile(spec.dtype).rows * spec.dtype.itemsize < 32 and channels > 16
    assert words(spec)[FilterWord.PLANAR] == (rows and not low)
    expected = filter_gradient(image, gradient, spec)
    results = []
    for num_threads in (1, 3):
        result = np.full_like(weights, np.nan)
        given = calls.filter_gradient(
            spec, result, image, gradient, num_threads=num_threads
        )
        given.serial()
        close(result, expected, gradient[..., 0].size)
        results.append(result)
    np.testing.assert_array_equal(*results)
