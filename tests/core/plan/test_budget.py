"""What is in memory when, and which values are given up so that less is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from tests.core.plan.build import TARGET
from treadle.fuse.grouping.group import group
from treadle.fuse.lowering.lower import lower
from treadle.ir.graph import Graph
from treadle.passes.pipeline import optimise
from treadle.plan.budget import ORDERS, Budget, Repeat, _cost

X, W = array(16, 8), array(8, 32)
ONE = 16 * 32 * 4
"""Bytes of each value."""


def budget(function: Any, *args: Any) -> tuple[Graph, Budget]:
    graph = optimise(traced(function, *args), TARGET)
    groups = group(graph, TARGET.lowering)
    return graph, Budget(graph, groups, lower(groups))


def late(make: Any) -> Any:
    """A value that is read at once, and again after three others."""

    def function(x: Any, w: Any) -> Any:
        a = make(x, w)
        b = tnp.cumsum(a, 0)
        c = tnp.cumsum(b * b, 1)
        d = tnp.cumsum(c * c, 0)
        return tnp.cumsum(d * a, 1)

    return function


def product(x: Any, w: Any) -> Any:
    return tnp.sin(x @ w)


def given_up(found: Budget) -> list[tuple[str, int, int]]:
    return [(found.maker[v].op.name, found.cut[v], found.next[v]) for v in found.cut]


def test_values_are_alive_from_their_node_to_the_last_reader() -> None:
    _, found = budget(late(product), X, W)
    lives = [(found.maker[v].op.name, life.times) for v, life in found.lives.items()]
    assert lives == [
        ("sin", [0, 1, 6]),
        ("cumsum", [1, 2]),
        ("mul", [2, 3]),
        ("cumsum", [3, 4]),
        ("mul", [4, 5]),
        ("cumsum", [5, 6]),
        ("mul", [6, 7]),
    ]
    assert {life.nbytes for life in found.lives.values()} == {ONE}
    assert list(found.alive / ONE) == [1, 2, 3, 3, 3, 3, 3, 1, 0]


def test_arguments_results_and_stored_values_are_there() -> None:
    graph, found = budget(late(product), X, W)
    (sine,) = [v for v, eq in found.maker.items() if eq.op.name == "sin"]
    assert all(found.there(v, 99) for v in (*graph.inputs, *graph.outputs))
    assert found.there(sine, 6)
    assert not found.there(sine, 7)
    # What lies in no memory of its own never is.
    (matrix,) = [v for v, eq in found.maker.items() if eq.op.name == "dot_general"]
    assert not found.there(matrix, 0)
    assert found.operands(sine) == (matrix,)


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_cheap_for_its_bytes_is_given_up(order: Any) -> None:
    _, found = budget(late(product), X, W)
    found.choose(2 * ONE, order)
    assert given_up(found) == [("sin", 1, 6)]
    assert list(found.alive / ONE) == [1, 2, 2, 2, 2, 2, 3, 1, 0]
    (sine,) = found.cut
    assert [found.there(sine, t) for t in (1, 2, 6)] == [True, False, False]


def test_nothing_is_given_up_without_need_or_use() -> None:
    _, found = budget(late(product), X, W)
    found.choose(3 * ONE)
    assert not found.cut
    # Running sums can't be computed again.
    _, found = budget(late(lambda x, w: tnp.cumsum(x @ w, 0)), X, W)
    before = found.alive.copy()
    found.choose(ONE)
    assert not found.cut
    assert np.array_equal(found.alive, before)
    # Nor what is as large as what it is made of, which nobody else needs.
    _, found = budget(late(lambda x, w: tnp.sin(tnp.cumsum(x @ w, 0))), X, W)
    found.choose(2 * ONE)
    assert "sin" not in [name for name, *_ in given_up(found)]


def test_the_cheaper_one_goes_first() -> None:
    def function(x: Any, w: Any) -> Any:
        y = tnp.cumsum(x, 1)
        dear, cheap = tnp.sin(x @ w), tnp.sin(y[:, :1] * w[0])
        b = tnp.cumsum(dear, 0) * tnp.cumsum(cheap, 0)
        c = tnp.cumsum(b * b, 1)
        d = tnp.cumsum(c * c, 0)
        return tnp.cumsum(d * dear, 1) + tnp.cumsum(d * cheap * y[:, :1], 0)

    _, found = budget(function, X, W)
    most = float(found.alive.max())
    found.choose(int(most) - ONE // 2)
    assert given_up(found)
    first = next(iter(found.cut))
    maker = found.maker[first]
    assert maker.op.name == "sin"
    product_of = {
        eq.op.name for eq in found.maker.values() if eq.outputs[0] in maker.inputs
    }
    assert product_of == {"mul"}


def test_values_that_a_loop_reads_stay() -> None:
    def function(x: Any, w: Any) -> Any:
        a = tnp.sin(x @ w)
        b = tnp.cumsum(a, 0)
        return td.scan(lambda c, r: (tnp.sin(c + r), None), b[0], b)[0] + a

    _, found = budget(function, X, W)
    names = [found.maker[v].op.name for v in found.lives]
    assert "sin" in names


def test_orders_say_who_is_first() -> None:
    cheap = Repeat(0, 9, 10, 100, [], [], [])
    dear = Repeat(0, 9, 50, 100, [], [], [])
    long = Repeat(0, 90, 40, 100, [], [], [])
    assert (cheap.price, dear.price) == (0.1, 0.5)
    first, alone, longest = ORDERS
    for order in (first, alone):
        assert sorted([dear, long, cheap], key=order) == [cheap, long, dear]
    assert sorted([dear, cheap, long], key=longest) == [long, cheap, dear]
    v: Any = object()
    needs = cheap._replace(stays=[v])
    over = cheap._replace(between=[v])
    later = cheap._replace(time=10)
    assert sorted([needs, over, cheap, later], key=alone) == [later, cheap, over, needs]
    assert first(needs) == first(over) == first(later)


def cost(function: Any, *args: Any) -> int | None:
    """Of what makes the result."""
    graph = traced(function, *args)
    (eq,) = [eq for eq in graph.equations if graph.outputs[0] in eq.outputs]
    return _cost(eq)


def test_what_equations_are_worth() -> None:
    assert cost(lambda x, w: x @ w, X, W) == 16 * 8 * 32
    batch = array(5, 16, 8), array(5, 8, 32)
    assert cost(lambda x, w: x @ w, *batch) == 5 * 16 * 8 * 32
    image, taps = array(2, 9, 9, 3), array(3, 3, 3, 8)
    names = ("NHWC", "HWIO", "NHWC")

    def conv(x: Any, w: Any) -> Any:
        return td.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=names
        )

    assert cost(conv, image, taps) == 2 * 9 * 9 * 8 * 27
    assert cost(tnp.exp, X) == 4 * 16 * 8
    assert cost(lambda x: tnp.sum(x, 0), X) == 30 * 16 * 8
    assert cost(lambda x: x.T, X) == 0
    assert cost(lambda x: tnp.cumsum(x, 0), X) is None
    assert cost(lambda x: td.scan(lambda c, r: (c + r, None), x[0], x)[0], X) is None
