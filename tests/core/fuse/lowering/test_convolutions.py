"""Convolutions and their filter gradients on their own, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse import evaluate
from tests.core.fuse.evaluate import meant
from tests.core.fuse.graphs import equation, program_of, traced
from tests.core.fuse.lowering.alone import agrees, needs_copies, normal
from treadle.fuse.cluster import Cluster
from treadle.fuse.lowering.products import product
from treadle.ops.conv import conv_filter_grad, conv_general
from treadle.ops.movement import reshape, transpose

DEFAULT = {
    "strides": (1, 1),
    "padding": ((0, 0), (0, 0)),
    "lhs_dilation": (1, 1),
    "rhs_dilation": (1, 1),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strides": {"strides": (2, 3)},
    "padding": {"padding": ((1, 2), (0, 1))},
    "cut": {"padding": ((-1, 0), (0, -1))},
    "input dilated": {"lhs_dilation": (2, 3), "padding": ((1, 1), (2, 0))},
    "filter dilated": {"rhs_dilation": (2, 1), "padding": ((1, 0), (0, 0))},
}
X, W = normal(2, 5, 6, 4), normal(3, 2, 4, 6)


def conv(**options: Any) -> Any:
    how = {**DEFAULT, "feature_groups": 1, **options}
    return lambda x, w: conv_general(x, w, **how)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", OPTIONS)
def test_values(name: str, groups: int) -> None:
    w = W[:, :, : 4 // groups]
    found = agrees(
        conv(**OPTIONS[name], feature_groups=groups), product, X, w, rtol=1e-4
    )
    spec = found.contraction
    assert (spec.groups, spec.channels, spec.features) == (groups, 4, 6)
    assert not found.filter_gradient


def gradient(how: dict[str, Any], x: np.ndarray, w: np.ndarray) -> tuple[Any, Any]:
    """The gradient of a filter, and a cotangent."""
    (out,) = meant(traced(conv(**how), x, w), [x, w])
    kernel = w.shape[:2]
    return lambda x, ct: conv_filter_grad(x, ct, kernel=kernel, **how), np.sin(out)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", OPTIONS)
def test_gradients_of_filters(name: str, groups: int) -> None:
    how = {**DEFAULT, **OPTIONS[name], "feature_groups": groups}
    function, ct = gradient(how, X, W[:, :, : 4 // groups])
    found = agrees(function, product, X, ct, rtol=1e-4)
    assert found.filter_gradient
    assert not found.contraction.depthwise


@pytest.mark.parametrize("name", OPTIONS)
def test_groups_of_one_channel(name: str) -> None:
    """They have a kernel of their own if each gives one feature."""
    how, w = {**OPTIONS[name], "feature_groups": 4}, W[:, :, :1, :4]
    found = agrees(conv(**how), product, X, w, rtol=1e-4)
    assert found.contraction.depthwise
    function, ct = gradient({**DEFAULT, **how}, X, w)
    found = agrees(function, product, X, ct, rtol=1e-4)
    assert found.contraction.depthwise
    assert found.filter_gradient
    two = normal(3, 2, 1, 8)
    found = agrees(conv(**how), product, X, two, rtol=1e-4)
    assert not found.contraction.depthwise


def test_channels_that_are_not_side_by_side_are_copied() -> None:
    def turned(x: Any, w: Any) -> Any:
        x = transpose(x, permutation=(0, 2, 3, 1))
        return conv(feature_groups=4)(x, w)

    x, w = X.transpose(0, 3, 1, 2).copy(), W[:, :, :1, :4]
    assert needs_copies(turned, product, x, w)
    evaluate.agrees(turned, x, w)


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (1, 0, 2, 3), (3, 2, 0, 1)])
def test_a_gradient_that_is_read_transposed(order: tuple[int, ...]) -> None:
    def turned(x: Any, ct: Any) -> Any:
        grad = conv_filter_grad(x, ct, kernel=(3, 2), **DEFAULT, feature_groups=1)
        return transpose(grad, permutation=order)

    (ct,) = meant(traced(conv(), X, W), [X, W])
    np.testing.assert_allclose(
        td.jit(turned)(X, ct), turned(X, ct), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("size", [(1, 6), (5, 1), (1, 1)])
def test_lines_and_points(size: tuple[int, int]) -> None:
    x = normal(2, *size, 4)
    agrees(conv(), product, x, normal(1, 1, 4, 6), rtol=1e-4)
    agrees(conv(), product, x, normal(*size, 4, 1), rtol=1e-4)


def test_views_of_operands_are_strides() -> None:
    def seen(x: Any, w: Any) -> Any:
        return conv()(transpose(x, permutation=(0, 2, 1, 3)), w[::-1, ::-1])

    spec = agrees(seen, product, X, W, rtol=1e-4).contraction
    assert (spec.input.b1, spec.input.row) == (4, 24)
    assert (spec.filter.b0, spec.filter.b1) == (-48, -24)


def test_operands_without_steps_must_be_copied() -> None:
    def broken(x: Any, w: Any) -> Any:
        x = reshape(transpose(x, permutation=(3, 0, 1, 2)), shape=X.shape)
        return conv()(x, w)

    assert needs_copies(broken, product, X, W)


@pytest.mark.parametrize(
    ("order", "fits"),
    [((0, 2, 1, 3), True), ((0, 3, 1, 2), False), ((1, 0, 2, 3), True)],
)
def test_features_that_are_not_side_by_side_have_no_kernel(
    order: Any, fits: bool
) -> None:
    """The result is stored as its reader sees it: pixels, or features, elsewhere."""

    def turned(x: Any, w: Any) -> Any:
        return transpose(conv()(x, w), permutation=order) * 1.0

    graph = traced(turned, X, W)
    found = product(equation(graph, "conv_general"), program_of(graph))
    assert (found is not None) == fits
    np.testing.assert_allclose(td.jit(turned)(X, W), turned(X, W), 1e-4, 1e-4)


def test_pixels_of_depthwise_ones_are_one_loop() -> None:
    def turned(x: Any, w: Any) -> Any:
        x = conv(feature_groups=4)(x, w)
        return transpose(x, permutation=(0, 2, 1, 3)) * 1.0

    w = W[:, :, :1, :4].copy()
    graph = traced(turned, X, w)
    assert product(equation(graph, "conv_general"), program_of(graph)) is None
    np.testing.assert_allclose(td.jit(turned)(X, w), turned(X, w), 1e-4, 1e-4)


def test_one_feature_may_lie_anywhere() -> None:
    def turned(x: Any, w: Any) -> Any:
        return transpose(conv()(x, w), permutation=(0, 3, 1, 2)) * 1.0

    graph = traced(turned, X, W[..., :1])
    found = product(equation(graph, "conv_general"), program_of(graph))
    assert found is not None
    assert found.contraction.output.row == 1


@pytest.mark.parametrize(
    ("axis", "window"), [(1, (3, 2)), (2, (3, 6)), (2, (5, 2)), (2, (3, 2))]
)
def test_results_that_are_pieces(axis: int, window: Any) -> None:
    """They are made in their places."""
    w = normal(*window, 4, 6)
    (out,) = meant(traced(conv(), X, w), [X, w])

    def joined(x: Any, w: Any, z: Any) -> Any:
        return tnp.concatenate([conv()(x, w), z], axis)

    groups = evaluate.agrees(joined, X, w, out + 1)
    assert groups.flow.parts


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("shape", [(6,), (3, 5, 6), (3, 1, 1)])
def test_epilogues(images: int, shape: tuple[int, ...]) -> None:
    x = X[:images]
    groups = evaluate.agrees(lambda x, w, b: conv()(x, w) + b, x, W, normal(*shape))
    found = [n.product for n in groups.nodes if isinstance(n, Cluster)]
    if shape == (3, 1, 1):
        # Each line has a number of its own: pixels are two loops.
        assert found == [None]
        return
    (fused,) = found
    assert fused is not None
    assert fused.epilogue is not None
    assert fused.epilogue.outer == (images, 1, 15)
    assert fused.epilogue.inner == 6


def test_gradients_of_filters_have_no_epilogue() -> None:
    def step(x: Any, w: Any, ct: Any) -> Any:
        return w - conv_filter_grad(x, ct, kernel=(3, 2), **DEFAULT, feature_groups=1)

    (out,) = meant(traced(conv(), X, W), [X, W])
    groups = evaluate.agrees(step, X, W, np.sin(out))
    assert len(groups.nodes) == 2
