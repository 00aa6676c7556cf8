"""Flags, and graphs with other inputs and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from tests.core.passes.shown import equations, lines
from treadle.arraytype import ArrayType
from treadle.control.graphs import (
    cut,
    either,
    nonzero,
    numbered,
    pick,
    prune,
    reached,
    rewire,
    sections,
    select_examples,
    silent,
)
from treadle.ir.check import check
from treadle.ir.walk import has_effects
from treadle.run.eager import evaluate
from treadle.trace.op import Zero

X = array(3)
T = ArrayType((3,), np.dtype("float32"))


def test_flags() -> None:
    assert nonzero([X, Zero(T), X]) == (True, False, True)
    assert pick("abc", [True, False, True]) == ["a", "c"]
    with pytest.raises(ValueError, match="argument"):
        pick("abc", [True])
    assert either([True, False, False], [False, False, True]) == (True, False, True)
    assert numbered([True, False, True, True]) == [0, None, 1, 2]
    assert numbered([False, True], 5) == [None, 5]
    assert sections("abcdef", 1, 2) == ("a", "bc", "def")
    assert sections("abc", 0, 0) == ("", "", "abc")


def test_marks_spread_until_no_more_do() -> None:
    """Each carry is made of the one before; the last one marks itself."""
    seen = []

    def step(marked: tuple[bool, ...]) -> tuple[int, tuple[bool, ...]]:
        seen.append(marked)
        return len(seen), (False, *marked[:-1])

    answer, marked = reached((True, False, False), step)
    # What is marked once stays so.
    assert marked == (True, True, True)
    assert seen == [(True, False, False), (True, True, False), (True, True, True)]
    assert answer == 3
    assert reached((False, False), lambda m: ("none", m)) == ("none", (False, False))


def test_each_example_by_its_condition() -> None:
    condition = np.array([True, False])
    x, y = np.ones((2, 3)), np.zeros((2, 3))
    assert np.array_equal(select_examples(condition, x, y), [[1] * 3, [0] * 3])
    assert np.array_equal(select_examples(condition, x[:, 0], y[:, 0]), [1, 0])


def test_inputs_and_outputs_in_another_order() -> None:
    graph = traced(lambda x, y: (x - y, x * y), X, X)
    scalar = ArrayType((), np.dtype("int32"))
    found = rewire(graph, [1, 0], [1, T, 0, scalar])
    check(found)
    x, y = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    products, zeros, differences, zero = evaluate(found, [y, x])
    assert np.array_equal(products, x * y)
    assert np.array_equal(differences, x - y)
    assert np.array_equal(zeros, np.zeros(3, "float32"))
    assert (np.asarray(zero).shape, np.asarray(zero).dtype) == ((), np.dtype("int32"))
    assert found.name == graph.name
    assert graph.equations == found.equations[:2]


def test_a_part_of_a_graph() -> None:
    def function(x: Any) -> Any:
        a = tnp.sin(x)
        b = tnp.exp(a)
        td.debug.callback(lambda v: None, b)
        return b * 2, tnp.cos(x)

    graph = traced(function, X)
    sine, exponential = graph.equations[0].outputs[0], graph.equations[1].outputs[0]
    assert lines(cut(graph, graph.inputs, [exponential])) == [
        "b:f32[3] = sin a",
        "c:f32[3] = exp b",
        "return c",
    ]
    found = cut(graph, [sine], [exponential, sine])
    assert found.inputs == (sine,)
    assert lines(found) == ["b:f32[3] = exp a", "return b, a"]


def test_what_is_not_used_goes_and_effects_stay() -> None:
    def function(x: Any) -> Any:
        tnp.sin(x)
        td.debug.callback(lambda v: None, tnp.exp(x))
        return x * 2

    names = [eq.op.name for eq in prune(traced(function, X)).equations]
    assert "sin" not in names
    assert names[0] == "exp"
    assert names[-1] == "mul"
    assert len(names) == 3


def test_a_second_run_is_silent() -> None:
    def noted(x: Any) -> Any:
        td.debug.callback(lambda v: None, x)
        return x * 2

    def function(x: Any) -> Any:
        noted(x)
        x = td.scan(lambda c, _: (noted(c), None), x, None, length=2)[0]
        return td.cond(x[0] > 0, noted, tnp.sin, x)

    graph = traced(function, X)
    assert has_effects(graph)
    found = silent(graph)
    check(found)
    assert not has_effects(found)
    assert not [eq for eq in equations(found) if eq.op.effect]
    assert silent(graph) is found
    assert silent(found) is found
    names = [eq.op.name for eq in equations(found)]
    assert {"scan", "cond", "sin"} <= set(names)
    for a, b in zip(evaluate(found, [X]), evaluate(graph, [X]), strict=True):
        assert np.array_equal(a, b)


def test_effects_whose_results_are_used_are_done_again() -> None:
    types = td.ShapeDtype((3,), "float32")
    graph = traced(lambda x: td.io_callback(lambda v: v, types, x) * 2, X)
    assert [eq.op for eq in silent(graph).equations] == [
        eq.op for eq in graph.equations
    ]
