"""Depthwise convolutions of small integers, and those of small groups, against JAX's of
32 bits."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
from tests.core.backends.cpu.integers.test_kernel import numbers
from treadle import lax
from treadle.backends.cpu.device import CPUTarget
from treadle.ops.conv import conv_general
from treadle.passes.pipeline import optimise

SHAPES = [  # images, filter, steps, groups
    ((2, 9, 8, 12), (3, 3, 1, 12), (1, 1), 12),
    ((2, 9, 8, 12), (3, 3, 1, 24), (2, 2), 12),
    ((1, 5, 6), (4, 1, 6), (1,), 6),
    ((1, 70, 3, 2), (35, 30, 1, 2), (1, 1), 2),  # more than float32 can hold
    ((2, 9, 8, 48), (3, 3, 2, 48), (1, 1), 24),
    ((2, 9, 8, 32), (3, 3, 8, 32), (2, 2), 4),
    ((1, 15, 32), (5, 4, 32), (1,), 8),
    ((1, 70, 3, 8), (13, 13, 4, 8), (1, 1), 2),  # more than float32 can hold
]


@pytest.mark.parametrize("dtypes", [("int8", "int8"), ("uint8", "int8")], ids=str)
@pytest.mark.parametrize("shape, kernel, steps, groups", SHAPES, ids=str)
def test_depthwise_convolutions_are_exact(shape, kernel, steps, groups, dtypes) -> None:
    """Also at the ends of what there is."""
    x, w = numbers(shape, dtypes[0]), numbers(kernel, dtypes[1])
    lowest = np.iinfo(dtypes[0]).min or np.iinfo(dtypes[0]).max
    x[0], w[..., 0] = lowest, -128
    spatial = "HW"[: len(steps)]
    names = f"N{spatial}C", f"{spatial}IO", f"N{spatial}C"
    options = {"feature_group_count": groups, "dimension_numbers": names}

    def convolve(library: Any, x: Any, w: Any) -> Any:
        dtype = np.dtype(np.int32)
        return library.conv_general_dilated(
            x, w, steps, "SAME", preferred_element_type=dtype, **options
        )

    wide = [a.astype(np.int32) for a in (x, w)]
    expected = np.asarray(convolve(jax.lax, *wide))
    for function in (
        td.jit(partial(convolve, lax)),
        td.jit(
            partial(convolve, lax), dynamic={"x": ("n", *[None] * (len(shape) - 1))}
        ),
    ):
        found = np.asarray(function(x, w))
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_depthwise_convolutions_of_bytes_are_those_of_floats(dtype: str) -> None:
    def convolve(x: Any, w: Any) -> Any:
        names = "NHWC", "HWIO", "NHWC"
        return lax.conv_general_dilated(
            x,
            w,
            (1, 1),
            "SAME",
            dimension_numbers=names,
            feature_group_count=8,
            preferred_element_type=np.int32,
        )

    x, w = numbers((2, 9, 8, 8), dtype), numbers((3, 3, 1, 8), "int8")
    graph = optimise(td.jit(convolve).graph(x, w), CPUTarget())
    assert "float32" in {
        v.type.dtype.name
        for eq in graph.equations
        if eq.op is conv_general
        for v in eq.inputs
    }
