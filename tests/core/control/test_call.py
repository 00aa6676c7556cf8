"""The op that holds a jitted function, and graphs without it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from tests.core.fuse.lowering.alone import normal
from tests.core.passes.shown import equations, lines
from treadle.control.call import call, spread_tangents, without_calls
from treadle.ir.check import check
from treadle.run.eager import evaluate
from treadle.trace.op import Zero

X, Y = normal(3, 4), normal(4, seed=1)


def body(np_: Any, x: Any, y: Any) -> Any:
    return np_.sin(x) * y, x.sum(0), y * 2


inner = td.jit(lambda x, y: body(tnp, x, y))


def ops(function: Any, *args: Any) -> list[str]:
    return [eq.op.name for eq in traced(function, *args).equations]


def test_each_transform_of_a_call_is_calls() -> None:
    assert ops(inner, X, Y) == ["call"]
    loss = lambda x, y: inner(x, y)[0].sum() + inner(x, y)[1].sum()  # noqa: E731
    names = ops(td.grad(loss, (0, 1)), X, Y)
    assert "sin" not in names
    assert "call" in names
    assert "sin" not in ops(td.vmap(inner), X, X[:, :4])
    assert "sin" not in ops(lambda x, y: td.jvp(inner, (x, y), (x, y)), X, Y)


def total(function: Any) -> Any:
    return lambda x, y: sum((a * a).sum() for a in function(x, y))


def test_values_and_derivatives_are_those_of_jax() -> None:
    theirs = lambda x, y: body(jnp, x, y)  # noqa: E731
    for ours, other in (
        (inner, theirs),
        (td.vmap(inner, (None, 0), 1), jax.vmap(theirs, (None, 0), 1)),
    ):
        y = Y if ours is inner else np.stack([Y, -Y])
        for a, b in zip(ours(X, y), other(X, y), strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-6)
        found = td.grad(total(ours), (0, 1))(X, y)
        wanted = jax.grad(total(other), (0, 1))(X, y)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, 1e-4, 1e-5)
    # By one argument: the other has no tangent.
    found = td.grad(lambda x: inner(x, Y)[0].sum())(X)
    np.testing.assert_allclose(found, np.cos(X) * Y, 1e-5)
    found = td.grad(lambda y: inner(X, y)[0].sum())(Y)
    np.testing.assert_allclose(found, np.sin(X).sum(0), 1e-5, 1e-6)
    outs, tangents = td.jvp(lambda y: inner(X, y), (Y,), (Y,))
    assert len(outs) == 3
    assert not np.asarray(tangents[1]).any()
    np.testing.assert_allclose(tangents[0], np.sin(X) * Y, 1e-5)


def test_tangents_stand_beside_their_results() -> None:
    outs = [X, Y, X]
    first, second, third = spread_tangents(outs, ["t", "u"], [True, False, True])
    assert (first, third) == ("t", "u")
    assert isinstance(second, Zero)
    assert second.type.shape == Y.shape


def test_calls_are_written_out_with_the_names_around() -> None:
    @td.jit
    def outer(x: Any, y: Any) -> Any:
        with td.named_scope("inside"):
            return inner(x, y)[0] + 1

    def function(x: Any, y: Any) -> Any:
        with td.named_scope("around"):
            return outer(x, y) * 2

    graph = traced(function, X, Y)
    found = without_calls(graph)
    check(found)
    names = [eq.op.name for eq in found.equations]
    assert call.name not in names
    assert names[0] == "sin"
    assert names[-1] == "mul"
    scopes = {eq.op.name: eq.scope for eq in found.equations}
    assert scopes["sin"] == "around.inside"
    assert scopes["add"] == "around.inside"
    for a, b in zip(evaluate(found, [X, Y]), evaluate(graph, [X, Y]), strict=True):
        np.testing.assert_allclose(a, b, 1e-6)
    # Once; and a graph without any is the same.
    assert without_calls(graph) is found
    assert without_calls(found) is found
    assert lines(without_calls(found)) == lines(found)


def test_calls_in_loops_stay() -> None:
    """They are no calls of the graph itself."""
    loop = lambda x, y: td.scan(lambda c, r: (c * inner(x, c)[2], None), y, x)[0]  # noqa: E731
    graph = traced(loop, X, Y)
    assert without_calls(graph) is graph
    assert "call" in [eq.op.name for eq in equations(graph)]
