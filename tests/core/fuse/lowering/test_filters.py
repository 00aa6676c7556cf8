"""The nest of grouped filter gradients on its own, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
from tests.core.fuse.evaluate import meant
from tests.core.fuse.graphs import traced
from tests.core.fuse.lowering.alone import agrees, needs_copies, normal, op_names
from treadle.fuse.lowering.filters import filter_launch
from treadle.ops.conv import Window, conv_filter_grad, conv_general
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


def gradient(options: dict[str, Any], groups: int, features: int) -> tuple[Any, ...]:
    """The function, x and a cotangent."""
    how = {**DEFAULT, **options, "feature_groups": groups}
    x, w = normal(2, 5, 6, 2 * groups), normal(2, 3, 2, features * groups)
    conv = traced(lambda x, w: conv_general(x, w, **how), x, w)
    (out,) = meant(conv, [x, w])
    kernel = w.shape[:2]
    return lambda x, ct: conv_filter_grad(x, ct, kernel=kernel, **how), x, np.cos(out)


@pytest.mark.parametrize(("groups", "features"), [(2, 3), (3, 2), (4, 1)])
@pytest.mark.parametrize("name", OPTIONS)
def test_values(name: str, groups: int, features: int) -> None:
    function, x, ct = gradient(OPTIONS[name], groups, features)
    launch = agrees(function, filter_launch, x, ct, rtol=1e-4)
    # The longer of groups and features is along the lanes.
    assert launch.inner == max(groups, features)
    assert launch.nest.axis == "mid"
    assert launch.mid == ct.shape[:-1]


def test_only_dilated_inputs_are_divided_by_steps() -> None:
    for name in OPTIONS:
        function, x, ct = gradient(OPTIONS[name], 2, 3)
        names = op_names(agrees(function, filter_launch, x, ct, rtol=1e-4))
        assert ("div" in names) == (name == "input dilated")


def test_operands_are_seen_through_views() -> None:
    function, x, ct = gradient({}, 2, 3)

    def turned(x: Any, ct: Any) -> Any:
        return function(transpose(x, permutation=(0, 2, 1, 3)), ct)

    agrees(turned, filter_launch, x.transpose(0, 2, 1, 3).copy(), ct, rtol=1e-4)

    def broken(x: Any, ct: Any) -> Any:
        x = transpose(x, permutation=(3, 0, 1, 2))
        return function(reshape(x, shape=(2, 5, 6, 4)), ct)

    assert needs_copies(broken, filter_launch, x, ct)


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (1, 0, 2, 3), (3, 2, 0, 1)])
def test_a_gradient_that_is_read_transposed(order: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 5, 6, 3)).astype("float32")
    ct = rng.normal(size=(2, 5, 6, 4)).astype("float32")
    how = Window((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)._asdict()

    def turned(x: Any, ct: Any) -> Any:
        grad = conv_filter_grad(x, ct, kernel=(3, 3), **how)
        return transpose(grad, permutation=order)

    np.testing.assert_allclose(
        td.jit(turned)(x, ct), turned(x, ct), rtol=1e-4, atol=1e-4
    )
