"""Nests of running reductions on their own, against what their ops mean in NumPy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.fuse.lowering.alone import agrees, needs_copies, normal, op_names
from treadle.fuse.lowering.running import running_launch
from treadle.ops import cumulative
from treadle.ops.movement import reshape, transpose

NAMES = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_along_every_axis(name: str, reverse: bool) -> None:
    for axis in range(3):
        for shape in ((2, 3, 4), (1, 3, 1), (3, 1, 1)):
            agrees(
                lambda x, a=axis: getattr(cumulative, name)(x, axis=a, reverse=reverse),
                running_launch,
                normal(*shape),
            )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_recurrence(axis: int, reverse: bool) -> None:
    agrees(
        lambda a, b: cumulative.linear_recurrence(a, b, axis=axis, reverse=reverse),
        running_launch,
        normal(4, 3, seed=1),
        normal(4, 3),
    )


def test_operands_are_seen_through_views() -> None:
    def turned(x: Any) -> Any:
        return cumulative.cumsum(transpose(x, permutation=(1, 0)), axis=0, reverse=True)

    agrees(turned, running_launch, normal(3, 4))

    def broken(x: Any) -> Any:
        x = reshape(transpose(x, permutation=(1, 0)), shape=(12,))
        return cumulative.cumsum(x, axis=0, reverse=False)

    assert needs_copies(broken, running_launch, normal(3, 4))


@pytest.mark.parametrize(
    ("shape", "axis", "form", "loops"),
    [
        ((2, 3, 4), 2, "inner", ((6,), (), 4)),
        ((2, 3, 4), 1, "mid", ((2,), (3,), 4)),
        ((2, 3, 4), 0, "mid", ((), (2,), 12)),
        ((5, 3, 1), 1, "inner", ((5, 1), (), 3)),  # what comes after has one element
    ],
)
def test_rows_and_columns(shape: Any, axis: int, form: str, loops: Any) -> None:
    launch = agrees(
        lambda x: cumulative.cumsum(x, axis=axis, reverse=False),
        running_launch,
        normal(*shape),
    )
    assert launch.nest.axis == form
    assert (launch.outer, launch.mid, launch.inner) == loops
    assert "running_sum" in op_names(launch)


def test_along_an_axis_that_is_always_of_length_1_it_is_a_copy() -> None:
    def summed(x: Any) -> Any:
        return cumulative.cumsum(reshape(x, shape=(3, 1)), axis=1, reverse=False)

    assert op_names(agrees(summed, running_launch, normal(3))) == ["load", "store"]
