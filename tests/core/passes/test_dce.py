"""What nobody uses is not computed."""

from __future__ import annotations

from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import equation, traced
from tests.core.fuse.lowering.alone import normal
from tests.core.passes.shown import equations, passed, untouched
from treadle.passes.dce import drop_dead

X = normal(3, 3)


def test_unused_chains_go() -> None:
    def function(x: Any) -> Any:
        y = tnp.exp(x)
        tnp.sin(y).sum()
        return y * 2

    assert passed(drop_dead, function, X) == [
        "b:f32[3,3] = exp a",
        "c:f32[3,3] = mul b 2.0",
        "return c",
    ]
    assert untouched(drop_dead, lambda x: tnp.exp(x) * 2, X)


def test_unused_work_inside_goes() -> None:
    def function(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            tnp.cos(c)
            return tnp.sin(c), None

        return td.scan(step, x, None, length=2)[0]

    graph = traced(function, X)
    found = drop_dead(graph)
    assert [eq.op.name for eq in equations(found)] == ["scan", "sin"]
    old, new = graph.equations[0], found.equations[0]
    assert (new.inputs, new.outputs, new.source) == (
        old.inputs,
        old.outputs,
        old.source,
    )


def test_effects_keep_what_they_read() -> None:
    def function(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            td.debug.callback(lambda v: None, tnp.cos(c))
            return c, None

        td.scan(step, tnp.exp(x), None, length=2)
        return x

    assert untouched(drop_dead, function, X)


def test_a_factor_alone_where_only_that_is_read() -> None:
    def parts(*which: int) -> Any:
        def function(x: Any) -> Any:
            found = tnp.linalg.qr(x)
            return tuple(found[i] for i in which)

        return function

    ops = {}
    for which in ((1,), (0,), (0, 1)):
        graph = traced(parts(*which), X)
        before, after = (len(eq.outputs) for eq in both(graph))
        ops[which] = before, after
    assert ops == {(1,): (2, 1), (0,): (2, 2), (0, 1): (2, 2)}
    graph = traced(lambda x: tnp.linalg.svd(x)[1], X)
    old, new = both(graph)
    assert new.outputs == (old.outputs[1],)
    assert new.params == {**old.params, **old.op.lowering.alone[1]}  # type: ignore[attr-defined]
    assert new.params != old.params
    assert (new.inputs, new.source) == (old.inputs, old.source)
    found = td.jit(lambda x: tnp.linalg.svd(x)[1])(X)
    np.testing.assert_allclose(found, np.linalg.svd(X)[1], 1e-4, 1e-5)


def both(graph: Any) -> Any:
    """The equation with factors, as it was and as it is."""
    (old,) = [eq for eq in graph.equations if len(eq.outputs) > 1]
    return old, equation(drop_dead(graph), old.op.name)
