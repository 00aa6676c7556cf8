"""Convolutions of integers, as products of patches, against JAX's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
from tests.core.backends.cpu.integers.test_kernel import numbers
from tests.core.backends.cpu.integers.test_programs import needs_a_kernel, products
from treadle import lax
from treadle.backends.cpu.device import CPUTarget
from treadle.compile import build
from treadle.ops.dot import dot_general
from treadle.passes.pipeline import optimise
from treadle.plan.steps import HostStep

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "images": ((2, 5, 6, 7), (2, 3, 7, 9), {"padding": "SAME"}),
    "steps": (
        (2, 7, 6, 3),
        (2, 2, 3, 4),
        {
            "window_strides": (2, 3),
            "rhs_dilation": (2, 1),
            "padding": ((1, 0), (-1, 2)),
        },
    ),
    "points": ((2, 5, 6, 7), (1, 1, 7, 9), {}),
    "gaps": (
        (2, 5, 4, 3),
        (2, 2, 3, 4),
        {"lhs_dilation": (2, 2), "padding": ((1, 1), (0, 1))},
    ),
    "groups": ((2, 5, 4, 6), (2, 2, 3, 8), {"feature_group_count": 2}),
    "narrow groups": ((2, 5, 4, 12), (2, 2, 2, 24), {"feature_group_count": 6}),
    "many narrow groups": (
        (2, 5, 14, 28),
        (3, 2, 2, 42),
        {"feature_group_count": 14, "window_strides": (1, 2), "padding": "SAME"},
    ),
    "lines in groups": ((2, 9, 10), (3, 2, 15), {"feature_group_count": 5}),
    "single channels": ((2, 5, 4, 6), (2, 2, 1, 6), {"feature_group_count": 6}),
    "a line": ((2, 9, 5), (3, 5, 7), {"padding": "SAME"}),
    "a volume": ((1, 3, 4, 5, 2), (1, 2, 2, 2, 3), {}),
}
LAYOUTS = {
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NDHWC", "DHWIO", "NDHWC"),
}


@pytest.mark.parametrize("case", CASES)
def test_convolutions_of_integers(case: str) -> None:
    shape, of_filter, options = CASES[case]
    steps = (1,) * (len(shape) - 2)
    options = {"window_strides": steps, "padding": "VALID", **options}
    options["dimension_numbers"] = LAYOUTS[len(shape)]
    x, w = numbers(shape, "uint8"), numbers(of_filter, "int8")

    def convolution(x: Any, w: Any) -> Any:
        x, w = x.astype("int32"), w.astype("int32")
        return lax.conv_general_dilated(x, w, **options)

    program = build(td.jit(convolution).graph(x, w), CPUTarget())
    assert not any(isinstance(s, HostStep) for s in program.plan.steps)
    found = np.asarray(program([x, w])[0])
    x, w = jnp.asarray(x, "int32"), jnp.asarray(w, "int32")
    wanted = jax.lax.conv_general_dilated(x, w, **options)
    np.testing.assert_array_equal(found, np.asarray(wanted))


@needs_a_kernel
@pytest.mark.parametrize("layout", [LAYOUTS[4], ("NCHW", "OIHW", "NCHW")], ids="-".join)
@pytest.mark.parametrize("images", ["int8", "uint8"])
def test_patches_of_bytes_are_bytes(layout: tuple[str, str, str], images: str) -> None:
    x, w = numbers((2, 5, 6, 9), images), numbers((2, 2, 9, 7), "int8")
    if layout[0] == "NCHW":
        x, w = x.transpose(0, 3, 1, 2).copy(), w.transpose(3, 2, 0, 1).copy()

    def convolution(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            *(x, w, (1, 1), "SAME"),
            dimension_numbers=layout,
            preferred_element_type="int32",
        )

    program = build(td.jit(convolution).graph(x, w), CPUTarget())
    assert products(program.plan) == [(images, "int8", "int32")]
    wanted = jax.lax.conv_general_dilated(
        *(jnp.asarray(a, "int32") for a in (x, w)),
        *((1, 1), "SAME"),
        dimension_numbers=layout,
    )
    np.testing.assert_array_equal(np.asarray(program([x, w])[0]), np.asarray(wanted))


@needs_a_kernel
def test_narrow_groups_share_products_of_bytes() -> None:
    """Of twelve groups of three channels, three products of four."""
    x, w = numbers((2, 5, 6, 36), "uint8"), numbers((2, 2, 3, 36), "int8")

    def convolution(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            *(x, w, (1, 1), "SAME"),
            dimension_numbers=LAYOUTS[4],
            feature_group_count=12,
            preferred_element_type="int32",
        )

    graph = optimise(td.jit(convolution).graph(x, w), CPUTarget())
    (product,) = [eq for eq in graph.equations if eq.op is dot_general]
    assert product.outputs[0].type.shape[0] == 3
    assert [a.type.dtype.name for a in product.inputs] == ["uint8", "int8"]


def test_open_numbers_of_images_and_short_results() -> None:
    w = numbers((2, 2, 3, 4), "int8")

    def convolution(x: Any, w: Any) -> Any:
        layout = LAYOUTS[4]
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)

    once = td.jit(convolution, dynamic={"x": ("images", None, None, None)})
    for images in (1, 3):
        x = numbers((images, 4, 4, 3), "int8")
        found = np.asarray(once(x, w))
        wanted = jax.lax.conv_general_dilated(
            *(jnp.asarray(a, "int32") for a in (x, w)),
            *((1, 1), "SAME"),
            dimension_numbers=LAYOUTS[4],
        )
        assert found.dtype == np.int8
        np.testing.assert_array_equal(found, np.asarray(wanted).astype(np.int8))
