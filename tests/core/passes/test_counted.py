"""Scans whose number of iterations is known when they run become loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from tests.core.fuse.lowering.alone import normal
from tests.core.passes.shown import equations, passed, untouched
from treadle.arraytype import ArrayType
from treadle.ir.check import check
from treadle.ir.graph import Equation, Graph, Var
from treadle.passes.counted import loop_over_rows
from treadle.passes.rewrite import ops_of
from treadle.run.eager import evaluate
from treadle.trace.lowering import Counted
from treadle.trace.op import registry

X = normal(4)
COUNTED = {
    op.lowering.ends: op for op in registry.values() if isinstance(op.lowering, Counted)
}


def loop(x: Any) -> Any:
    step = lambda c: (c[0] + 1, tnp.sin(c[1]) * x)  # noqa: E731
    return td.while_loop(lambda c: c[0] < 5, step, (0, x))[1]


def test_gradients_of_loops_have_none_left() -> None:
    graph = traced(lambda x: td.vjp(loop, x)[1](x)[0], X)
    every = [op for op in ops_of(graph) if isinstance(op.lowering, Counted)]
    assert every
    found = loop_over_rows(graph)
    check(found)
    assert not [op for op in ops_of(found) if isinstance(op.lowering, Counted)]
    for a, b in zip(evaluate(found, [X]), evaluate(graph, [X]), strict=True):
        np.testing.assert_allclose(a, b, 1e-5)


def counted(reverse: bool) -> Graph:
    """A scan of at most 5 rows: c, x -> w c + x, with c and x c along the way."""
    body = traced(lambda w, c, x: (w * c + x, c, x * c), *[np.float32(1)] * 3)
    t = body.in_types[0]
    params = {
        "graph": body,
        "n_consts": 1,
        "n_carry": 1,
        "length": 5,
        "reverse": reverse,
    }
    row, count = ArrayType((5,), t.dtype), ArrayType((), np.dtype("int32"))
    n, w, c, xs = map(Var, (count, t, t, row))
    outs = [Var(t), Var(xs.type), Var(xs.type)]
    return Graph(
        [n, w, c, xs], [Equation(COUNTED["count"], [n, w, c, xs], params, outs)], outs
    )


@pytest.mark.parametrize("count", [0, 1, 3, 5])
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_are_read_and_written_as_far_as_the_count(
    count: int, reverse: bool
) -> None:
    found = loop_over_rows(counted(reverse))
    check(found)
    xs = np.arange(1, 6, dtype=np.float32)
    last, before, products = evaluate(
        found, [np.int32(count), np.float32(0.5), np.float32(2), xs]
    )
    c, wanted = 2.0, np.zeros((2, 5))
    for i in reversed(range(count)) if reverse else range(count):
        wanted[:, i] = c, xs[i] * c
        c = 0.5 * c + xs[i]
    np.testing.assert_allclose(last, c)
    np.testing.assert_allclose(before, wanted[0])
    np.testing.assert_allclose(products, wanted[1])


def test_the_ones_in_loops_too() -> None:
    def function(x: Any) -> Any:
        step = lambda c, _: (td.grad(lambda x: loop(x).sum())(c), None)  # noqa: E731
        return td.scan(step, x, None, length=2)[0]

    found = loop_over_rows(traced(function, X))
    assert not [eq for eq in equations(found) if isinstance(eq.op.lowering, Counted)]


def test_graphs_without_are_the_same() -> None:
    assert untouched(
        loop_over_rows,
        lambda x: td.scan(lambda c, _: (c * 2, None), x, None, length=3)[0],
        X,
    )
    assert passed(loop_over_rows, lambda x: x + 1, X)[0] == "b:f32[4] = add a 1.0"
