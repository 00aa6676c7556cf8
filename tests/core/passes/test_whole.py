"""Convolutions of images as large as the filter, and of one pixel, become products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
from tests.core.fuse.graphs import array, traced
from tests.core.passes.shown import equations, opened
from treadle.backends.cpu.device import CPUTarget
from treadle.ir.graph import Graph
from treadle.ops.conv import conv_filter_grad, conv_general
from treadle.ops.dot import dot_general
from treadle.passes.pipeline import optimise
from treadle.run.eager import evaluate

PLAIN: dict[str, Any] = {
    "strides": (1, 1),
    "padding": ((0, 0), (0, 0)),
    "lhs_dilation": (1, 1),
    "rhs_dilation": (1, 1),
    "feature_groups": 1,
}
FILTER = array(3, 4, 2, 5)


def kinds(graph: Graph) -> set[str]:
    """Whether there are products, and convolutions."""
    found = {eq.op for eq in equations(graph)}
    return {
        name
        for name, ops in (("product", {dot_general}), ("images", CONVOLUTIONS))
        if ops & found
    }


CONVOLUTIONS = {conv_general, conv_filter_grad}


def compiled(function: Any, *args: np.ndarray) -> set[str]:
    """The kinds of what a function becomes, which has the values that it had."""
    graph = traced(function, *args)
    found = optimise(graph, CPUTarget())
    for a, b in zip(evaluate(found, args), evaluate(graph, args), strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-4)
    return kinds(found)


def convolve(x: Any, w: Any, **options: Any) -> Any:
    return conv_general(x, w, **PLAIN | options)


def gradients(x: Any, w: Any, ct: Any, **options: Any) -> Any:
    return td.vjp(lambda x, w: convolve(x, w, **options), x, w)[1](ct)


@pytest.mark.parametrize("images", [1, 3])
def test_images_as_large_as_the_filter_are_rows(images: int) -> None:
    x, ct = array(images, 3, 4, 2), array(images, 1, 1, 5)
    assert compiled(convolve, x, FILTER) == {"product"}
    assert compiled(gradients, x, FILTER, ct) == {"product"}


def test_one_pixel_leads_to_results_of_its_own() -> None:
    def spread(x: Any, w: Any) -> Any:
        return convolve(x, w, padding=((2, 2), (3, 3)))

    def back(x: Any, w: Any, ct: Any) -> Any:
        return gradients(x, w, ct, padding=((2, 2), (3, 3)))

    x, ct = array(3, 1, 1, 2), array(3, 3, 4, 5)
    assert compiled(spread, x, FILTER) == {"product"}
    assert compiled(back, x, FILTER, ct) == {"product"}


@pytest.mark.parametrize(
    "options",
    [
        {"padding": ((0, 0), (1, 0))},
        {"padding": ((1, 1), (1, 1))},
        {"rhs_dilation": (1, 2), "padding": ((0, 0), (1, 2))},
        {"lhs_dilation": (2, 1), "padding": ((0, -2), (0, 0))},
    ],
)
def test_what_meets_more_or_less_is_a_convolution(options: dict[str, Any]) -> None:
    def run(x: Any, w: Any) -> Any:
        return convolve(x, w, **options)

    assert "images" in compiled(run, array(3, 3, 4, 2), FILTER)


def test_groups_stay_convolutions() -> None:
    def run(x: Any, w: Any) -> Any:
        return convolve(x, w, feature_groups=2)

    assert "images" in compiled(run, array(3, 3, 4, 2), array(3, 4, 1, 6))


def test_open_images_are_asked_once() -> None:
    names = ("n", "h", "w", 2), (3, 4, 2, 5)
    for h, fits in ((3, True), (4, False)):
        graph, scope = opened(convolve, *names, n=2, h=h, w=4)
        found = kinds(optimise(graph, CPUTarget()))
        assert found == ({"product"} if fits else {"images"})
        asked = [guard for guard in scope.guards.values() if guard.reason == "is one"]
        assert len(asked) == 1


def test_open_lengths_of_one_pixel_stay_lengths_of_results() -> None:
    def spread(x: Any, w: Any) -> Any:
        return convolve(x, w, padding=((2, 2), (3, 3)))

    pixels, filters = ("n", "h", "w", 2), (3, 4, 2, 5)
    for function, shapes, sizes in (
        (spread, (pixels, filters), {"h": 1, "w": 1}),
        (convolve, (pixels, filters), {"h": 3, "w": 4}),
    ):
        graph, _ = opened(function, *shapes, n=3, **sizes)
        found = optimise(graph, CPUTarget())
        assert kinds(found) == {"product"}
        assert found.out_types == graph.out_types
