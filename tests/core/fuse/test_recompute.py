"""Which values are computed again by their readers instead of being stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import treadle.numpy as tnp
from tests.core.fuse.graphs import array, grouped
from treadle.fuse.grouping.recompute import choose

X, W = array(8, 8), array(8, 8)


def recomputed(function: Callable[..., Any], *args: Any) -> list[str]:
    """The names of the ops whose results nobody stores."""
    part = grouped(function, *args)
    choose(part)
    return sorted(part.flow.maker[v].op.name for v in part.flow.recomputed)


def apart(value: Callable[[Any], Any]) -> Callable[..., Any]:
    """A value that one cluster makes, for itself and for another that comes after a
    product (a function that can't be an epilogue)."""

    def function(x: Any, w: Any) -> Any:
        y = value(x)
        rows = tnp.sum(y + 1.0, 1)
        z = (rows[:, None] * x) @ w
        return tnp.sum(tnp.exp(z) * y, 1)

    return function


def test_what_its_readers_can_make_is_not_stored() -> None:
    assert "mul" in recomputed(apart(lambda x: x * 2.0), X, W)


@pytest.mark.parametrize(
    "value",
    [
        # Dear: several logarithms and powers.
        lambda x: tnp.log1p(tnp.exp(tnp.sin(tnp.exp(tnp.sin(tnp.exp(x)))))),
        # Not elementwise.
        lambda x: tnp.cumsum(x, 1),
    ],
)
def test_what_is_dear_or_no_element_s_work_is_stored(value: Any) -> None:
    before = grouped(apart(value), X, W)
    choose(before)
    made = before.flow.graph.equations
    last = [eq for eq in made if eq.op.name in ("log1p", "cumsum")][-1]
    assert last.outputs[0] not in before.flow.recomputed


def test_results_are_stored() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x * 2.0
        return y, tnp.sum((y @ w) * y, 1)

    assert recomputed(function, X, W) == []


def test_results_are_stored_even_if_every_reader_could_make_them() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x - 2.0
        rows = tnp.sum(y + 1.0, 1)
        z = (rows[:, None] * x) @ w
        return y, tnp.sum(tnp.exp(z) * y, 1)

    def inside(x: Any, w: Any) -> Any:
        return function(x, w)[1]

    assert "sub" in recomputed(inside, X, W)
    assert "sub" not in recomputed(function, X, W)


def test_what_a_product_reads_is_stored() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x * 2.0
        return tnp.exp(y @ w) * y

    assert recomputed(function, X, W) == []


def test_many_leaves_are_not_loaded_in_place_of_one_value() -> None:
    def function(x: Any, w: Any, a: Any, b: Any, c: Any) -> Any:
        return apart(lambda x: x * a + b * c)(x, w)

    assert recomputed(function, X, W, X, X, X) == []


def test_a_value_of_one_cluster_is_never_stored_at_all() -> None:
    assert recomputed(lambda x: tnp.tanh(x) * 2.0 + 1.0, X) == []
