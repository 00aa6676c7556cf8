"""Calls are replaced by what they call."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from tests.core.fuse.lowering.alone import normal
from tests.core.passes.shown import equations, passed, untouched
from treadle.passes.inline import inline_calls

X = normal(3)
twice = td.jit(lambda x: x * 2)
both = td.jit(lambda x, y: (twice(x) - y, y))


def test_calls_in_calls_are_written_out() -> None:
    def function(x: Any) -> Any:
        a, b = both(tnp.exp(x), x)
        return both(b, a)

    assert passed(inline_calls, function, X) == [
        "b:f32[3] = exp a",
        "c:f32[3] = mul b 2.0",
        "d:f32[3] = sub c a",
        "e:f32[3] = mul a 2.0",
        "f:f32[3] = sub e d",
        "return f, d",
    ]


def test_calls_in_loops_and_branches() -> None:
    def function(x: Any) -> Any:
        x = td.scan(lambda c, _: (twice(c), None), x, None, length=2)[0]
        return td.cond(x[0] > 0, twice, tnp.sin, x)

    graph = traced(function, X)
    names = [eq.op.name for eq in equations(inline_calls(graph))]
    assert "call" in [eq.op.name for eq in equations(graph)]
    assert "call" not in names
    assert names.count("mul") == 2


def test_lines_are_those_of_what_is_called_with_the_names_around() -> None:
    def function(x: Any) -> Any:
        with td.named_scope("outer"):
            return twice(x)

    graph = traced(function, X)
    (call,), (eq,) = graph.equations, inline_calls(graph).equations
    assert eq.scope == "outer"
    assert eq.source != call.source


def test_a_graph_without_calls_is_the_same() -> None:
    assert untouched(inline_calls, lambda x: td.cond(x[0] > 0, abs, tnp.sin, x), X)
