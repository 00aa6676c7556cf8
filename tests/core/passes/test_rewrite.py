"""The walk that passes are made of: what it shares, and what it writes anew."""

from __future__ import annotations

from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, equation, traced
from tests.core.passes.shown import equations, lines
from treadle.arraytype import ArrayType
from treadle.ir.check import check
from treadle.ir.graph import Equation, Graph, Var
from treadle.ops.arithmetic import add, mul
from treadle.ops.reduce import reduce_prod, reduce_sum
from treadle.ops.unary import cos, sin
from treadle.passes.rewrite import (
    Rewriter,
    dtypes_of,
    mentions,
    ops_of,
    rewrite_params,
    same_type,
    shared,
)
from treadle.scopes import Source
from treadle.trace.lowering import Reduction

X = array(3)
TYPE = ArrayType((3,), np.dtype(np.float32))


class Cosines(Rewriter):
    """Writes cosines for sines."""

    def equation(self, eq: Equation) -> None:
        if eq.op is not sin:
            self.keep(eq)
            return
        inputs = [self.read(a) for a in eq.inputs]
        (self.values[eq.outputs[0]],) = self.emit(cos, inputs, {}, eq.source)


class Products(Rewriter):
    """Writes products for sums; asked about reductions alone."""

    concerns = Reduction

    def equation(self, eq: Equation) -> None:
        if eq.graphs:
            self.keep(eq)
            return
        assert eq.op is reduce_sum
        inputs = [self.read(a) for a in eq.inputs]
        out = self.emit(reduce_prod, inputs, eq.params, eq.source)
        (self.values[eq.outputs[0]],) = out


def loop(x: np.ndarray) -> object:
    return td.scan(lambda c, r: (tnp.sin(c) * r, None), x, tnp.ones(2))[0]


def test_a_graph_without_changes_is_the_same() -> None:
    for function in (
        lambda x: x * 2 + tnp.exp(x),
        lambda x: td.cond(x[0] > 0, abs, abs, x),
    ):
        graph = traced(function, X)
        assert Rewriter.apply(graph) is graph
        assert Cosines.apply(graph) is graph


def test_a_pass_is_asked_about_what_concerns_it_in_nested_graphs_too() -> None:
    def body(c: Any, r: Any) -> Any:
        return tnp.sin(c) + tnp.sum(c * r), None

    def function(x: Any) -> Any:
        total = tnp.sum(tnp.exp(x)) + 1
        return td.scan(body, x, tnp.ones(2))[0] * total, tnp.cos(x)

    graph = traced(function, X)
    found = Products.apply(graph)
    check(found)
    inner = equation(found, "scan").params["graph"]
    for one in (found, inner):
        names = [eq.op.name for eq in one.equations]
        assert "reduce_prod" in names and "reduce_sum" not in names
    assert equation(found, "add").inputs[0] is equation(found, "reduce_prod").outputs[0]
    for name in ("exp", "cos"):
        assert equation(found, name) is equation(graph, name)
    unchanged = traced(lambda x: td.scan(lambda c, r: (c * r, None), x, x)[0], X)
    assert Products.apply(unchanged) is unchanged


def test_readers_of_what_changed_are_written_anew() -> None:
    graph = traced(lambda x: (tnp.exp(x), tnp.sin(x) + 1, tnp.sin(x)), X)
    found = Cosines.apply(graph)
    check(found)
    assert lines(found) == [
        "b:f32[3] = exp a",
        "c:f32[3] = cos a",
        "d:f32[3] = add c 1.0",
        "e:f32[3] = cos a",
        "return b, d, e",
    ]
    # What reads nothing new is shared, and a new equation has the old results.
    assert found.equations[0] is graph.equations[0]
    old, new = equation(graph, "add"), equation(found, "add")
    assert (new.outputs, new.source) == (old.outputs, old.source)
    assert new.source
    assert found.inputs == graph.inputs
    assert found.name == graph.name


def test_graphs_inside_are_rewritten_by_the_same_class() -> None:
    graph = traced(lambda x: (loop(x), loop(x + 1)), X)
    found = Cosines.apply(graph)
    check(found)
    ops = [eq.op for eq in equations(found)]
    assert (ops.count(cos), ops.count(sin)) == (2, 0)
    branches = traced(lambda x: td.cond(x[0] > 0, tnp.sin, tnp.exp, x), X)
    check(Cosines.apply(branches))
    (eq,) = [eq for eq in branches.equations if eq.graphs]
    new = rewrite_params(eq, Cosines)
    # Branches are a tuple: the one that changed is another graph, the other is not.
    assert sorted(new) == sorted(eq.params)
    kept = [a is b for a, b in zip(new["branches"], eq.params["branches"], strict=True)]
    assert sorted(kept) == [False, True]
    assert rewrite_params(eq, Rewriter) is eq.params
    plain = equation(branches, "gt")
    assert rewrite_params(plain, Cosines) is plain.params


def test_what_is_spliced_gets_a_line_and_the_names_around() -> None:
    a, b, c = Var(TYPE), Var(TYPE), Var(TYPE)
    own = Equation(sin, [a], {}, [b], Source("own.py:1", "inner"))
    inner = Graph([a], [own, Equation(mul, [b, b], {}, [c])], [c, a])
    x = Var(TYPE)
    rewriter = Rewriter(Graph([x], [], [x]))
    y, given = rewriter.splice(inner, [x], Source("call.py:9", "outer"))
    assert given is x
    first, second = rewriter.equations
    assert [(eq.op, eq.scope) for eq in (first, second)] == [
        (sin, "outer.inner"),
        (mul, "outer"),
    ]
    assert (str(first.source), str(second.source)) == ("own.py:1", "call.py:9")
    assert first.inputs == (x,)
    assert second.inputs == (first.outputs[0],) * 2
    assert second.outputs == (y,)
    assert first.outputs[0] is not b


def test_emitted_results_are_new_or_given() -> None:
    x, out = Var(TYPE), Var(TYPE)
    rewriter = Rewriter(Graph([x], [], [x]))
    (made,) = rewriter.emit(add, [x, x], {}, "here.py:3")
    assert made.type == TYPE
    assert list(rewriter.emit(mul, [made, x], {}, "", [out])) == [out]
    assert [eq.source for eq in rewriter.equations] == ["here.py:3", ""]
    rewriter.values[x] = made
    assert rewriter.run().outputs == (made,)


def test_a_graph_with_other_results_or_equations_is_another() -> None:
    graph = traced(lambda x: (tnp.sin(x), tnp.exp(x)), X)
    same = [*graph.equations]
    assert shared(graph, same, list(graph.outputs)) is graph
    found = shared(graph, same, graph.outputs[:1])
    assert (found.equations, found.outputs) == (graph.equations, graph.outputs[:1])
    assert (found.inputs, found.name) == (graph.inputs, graph.name)
    assert shared(graph, same[:1], graph.outputs).equations == graph.equations[:1]


def test_ops_and_dtypes_are_found_in_graphs_inside_too() -> None:
    def function(x: np.ndarray) -> object:
        return loop(x.astype("float64")) > 0

    graph = traced(function, X)
    assert mentions(graph, {sin})
    assert not mentions(graph, {cos})
    assert not mentions(graph, set())
    assert ops_of(graph) == {eq.op for eq in equations(graph)}
    assert ops_of(graph) is ops_of(graph)
    every = {v.type.dtype for eq in equations(graph) for v in eq.outputs}
    assert dtypes_of(graph) == every
    assert {d.name for d in every} >= {"float64", "bool"}
    assert dtypes_of(graph) is dtypes_of(graph)
    inner = traced(
        lambda x: td.cond(x[0] > 0, lambda x: x.astype("int8") > 1, lambda x: x > 2, x),
        X,
    )
    assert np.dtype("int8") in dtypes_of(inner)


def test_types_are_the_same_if_shapes_and_dtypes_are() -> None:
    assert same_type(TYPE, ArrayType((3,), np.dtype("float32")))
    assert same_type(TYPE, ArrayType((3,), np.dtype("float32"), weak=True))
    assert not same_type(TYPE, ArrayType((4,), np.dtype("float32")))
    assert not same_type(TYPE, ArrayType((3,), np.dtype("float64")))
