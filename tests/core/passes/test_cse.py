"""Equal equations are one, if nobody can tell them apart."""

from __future__ import annotations

from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from tests.core.passes.shown import equations, passed, untouched
from treadle.arraytype import ArrayType
from treadle.ir.graph import Equation, Graph, Lit, Var
from treadle.ops.arithmetic import add
from treadle.passes.cse import merge_equal

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def test_equal_chains_are_one() -> None:
    def function(x: Any) -> Any:
        return tnp.exp(x * 2).sum(0), tnp.exp(x * 2).sum(0) + tnp.exp(x * 2).sum(1)[0]

    assert passed(merge_equal, function, X) == [
        "b:f32[2,3] = mul a 2.0",
        "c:f32[2,3] = exp b",
        "d:f32[3] = reduce_sum[axes=(0,)] c",
        "e:f32[2] = reduce_sum[axes=(1,)] c",
        "f:f32[1] = slice[starts=(0,) limits=(1,) steps=(1,)] e",
        "g:f32[] = reshape[shape=()] f",
        "h:f32[3] = add d g",
        "return d, h",
    ]


def test_other_operands_params_or_numbers_are_others() -> None:
    for function in (
        lambda x: x - x[0] + (x[0] - x),
        lambda x: x.sum(0)[:2] + x.sum(1),
        lambda x: x * 2 + x * 3,
        lambda x: tnp.sin(x) + tnp.cos(x),
        lambda x: (x.astype("int8"), x.astype("int16")),
    ):
        graph = traced(function, X)
        found = merge_equal(graph)
        left = {(eq.op.name, str(eq.params), len(eq.inputs)) for eq in graph.equations}
        assert len(found.equations) >= len(left)
    assert untouched(merge_equal, lambda x: x * 2 + x * 3, X)
    assert untouched(merge_equal, lambda x: x * 0.0 + x * -0.0, X)


def test_numbers_that_vary_with_sizes_are_others() -> None:
    t = ArrayType((3,), np.dtype("float32"))
    x, two = Var(t), (np.float32(2), ArrayType((), t.dtype))
    fixed, same, open_ = Lit(*two), Lit(*two), Lit(*two, varies=True)
    made = [Equation(add, [x, a], {}, [Var(t)]) for a in (fixed, same, open_)]
    found = merge_equal(Graph([x], made, [v for eq in made for v in eq.outputs]))
    assert found.equations == (made[0], made[2])
    first, other = made[0].outputs[0], made[2].outputs[0]
    assert found.outputs == (first, first, other)


def test_effects_are_done_as_often_as_they_are_asked_for() -> None:
    def note(x: Any) -> None:
        """The same function each time."""

    def function(x: Any) -> Any:
        td.debug.callback(note, x)
        td.debug.callback(note, x)
        return x

    assert untouched(merge_equal, function, X)

    def looped(x: Any) -> Any:
        one = td.scan(lambda c, _: (function(c), None), x, None, length=2)[0]
        return one + td.scan(lambda c, _: (function(c), None), x, None, length=2)[0]

    assert len(merge_equal(traced(looped, X)).equations) == 3


def test_what_is_computed_again_behind_a_barrier_is_wanted() -> None:
    @td.remat
    def inner(x: Any) -> Any:
        return tnp.sin(tnp.sin(x))

    graph = traced(td.grad(lambda x: inner(x).sum()), X)
    before, after = (
        [eq.op.name for eq in equations(g)].count("optimization_barrier")
        for g in (graph, merge_equal(graph))
    )
    assert before == after > 0


def test_equal_loops_are_one_and_bodies_are_merged() -> None:
    def loop(x: Any) -> Any:
        step = lambda c, _: (tnp.sin(c) * tnp.sin(c), None)  # noqa: E731
        return td.scan(step, x, None, length=3)[0]

    found = merge_equal(traced(lambda x: loop(x) + loop(x), X))
    names = [eq.op.name for eq in equations(found)]
    assert names == ["scan", "sin", "mul", "add"]
    assert untouched(merge_equal, lambda x: loop(x) + loop(x + 1), array(2)) is False
