"""Examples that have left a loop: what they are computed with, and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from treadle.control.running import running_only, while_running
from treadle.ir.graph import Graph

GOING = np.array([False, True, False, True])
X = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
Y = np.float32([10, 20, 30, 40])


def only(going: Any, *values: Any) -> list[Any]:
    return running_only(going, values, (True,) * len(values))


def test_forwards_it_is_nothing() -> None:
    shared = np.float32([5, 6])
    a, b, c = running_only(GOING, [X, shared, Y], [True, False, True])
    assert np.array_equal(a, X) and np.array_equal(c, Y)
    assert b is shared
    assert running_only(GOING, [shared], [False]) == [shared]
    graph = traced(
        lambda g, x, s, y: running_only(g, [x, s, y], (1, 0, 1)), *(GOING, X), shared, Y
    )
    (eq,) = graph.equations
    assert eq.inputs == (graph.inputs[0], graph.inputs[1], graph.inputs[3])
    assert graph.outputs == (eq.outputs[0], graph.inputs[2], eq.outputs[1])


def test_linearized_those_that_have_stopped_are_as_one_that_runs() -> None:
    (a, b), _ = td.linearize(lambda x, y: only(GOING, x, y), X, Y)
    assert np.array_equal(a, X[[1, 1, 1, 3]])
    assert np.array_equal(b, Y[[1, 1, 1, 3]])


def test_no_tangent_goes_through_those_that_have_stopped() -> None:
    _, linear = td.linearize(lambda x, y: only(GOING, x, y), X, Y)
    for found, t in zip(linear(X, Y), (X, Y), strict=True):
        assert np.array_equal(
            found, np.where(GOING.reshape(4, *[1] * (t.ndim - 1)), t, 0)
        )
    # What has no tangent gets none.
    _, linear = td.linearize(lambda y: only(GOING, X, y), Y)
    assert np.array_equal(linear(Y)[0], 0 * X)
    assert np.array_equal(linear(Y)[1], np.where(GOING, Y, 0))


def test_singular_bodies_have_derivatives_where_they_run() -> None:
    """The root of 0, where an example has stopped, times a cotangent of 0."""
    x = np.float32([0, 4, 0, 9])

    def function(x: Any) -> Any:
        return tnp.where(GOING, tnp.sqrt(*only(GOING, x)), 0).sum()

    np.testing.assert_allclose(td.grad(function)(x), [0, 1 / 4, 0, 1 / 6])


def test_forward_mode_hands_tangents_on() -> None:
    outs, found = td.jvp(lambda x, y: only(GOING, x, y), (X, Y), (2 * X, 3 * Y))
    assert all(map(np.array_equal, outs, (X, Y)))
    assert all(map(np.array_equal, found, (2 * X, 3 * Y)))
    _, found = td.jvp(lambda y: only(GOING, X, y), (Y,), (3 * Y,))
    assert all(map(np.array_equal, found, (0 * X, 3 * Y)))
    # They belong to the same examples: linearized afterwards, they stop with them.
    both = lambda x, t: td.jvp(lambda x: only(GOING, x)[0], (x,), (t,))[1]  # noqa: E731
    _, linear = td.linearize(both, Y, Y)
    assert np.array_equal(linear(Y, Y), np.where(GOING, Y, 0))


@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None), (1, 1)])
def test_examples_of_examples_are_examples(axes: Any) -> None:
    """Two rows of two: each with its own condition."""
    going = GOING.reshape(2, 2) if axes[0] is not None else GOING[:2]
    x = X.reshape(2, 2, 2) if axes[1] is not None else X[:2]
    graph = traced(td.vmap(lambda g, x: only(g, x)[0], axes), going, x)
    (eq,) = [eq for eq in graph.equations if eq.op is while_running]
    assert [a.type.shape for a in eq.inputs] == [(4,), (4, 2)]
    mapped = td.vmap(lambda g, x: only(g, x)[0], axes)
    out, linear = td.linearize(lambda x: mapped(going, x), x)
    wide = lambda a, axis: (  # noqa: E731
        np.broadcast_to(a, (2, *a.shape)) if axis is None else np.moveaxis(a, axis, 0)
    )
    flags, rows = wide(going, axes[0]), wide(x, axes[1])
    assert np.array_equal(np.asarray(linear(x)), np.where(flags[..., None], rows, 0))
    # Of those that run, the first one stands for all that don't.
    flat, values = flags.reshape(4), rows.reshape(4, 2)
    wanted = np.where(flat[:, None], values, values[flat.argmax()])
    assert np.array_equal(np.asarray(out).reshape(4, 2), wanted)


def test_several_values_of_examples_of_examples() -> None:
    """Three rows of two."""
    going, x = np.concatenate([GOING, [True] * 2]).reshape(3, 2), np.ones((3, 2, 4, 5))
    y = np.arange(6.0).reshape(3, 2)
    a, b = td.vmap(only)(going, x, y)
    assert np.array_equal(a, x) and np.array_equal(b, y)


def test_it_has_no_effects_to_guard() -> None:
    graph = traced(lambda g, x: only(g, x), GOING, X).equations[0].params["graph"]
    (found,) = while_running.guard(np.bool_(False), [GOING, X], graph=graph)
    assert np.array_equal(found, X)


def test_its_graph_gives_its_results() -> None:
    graph = traced(lambda g, x: only(g, x), GOING, X)
    inner = graph.equations[0].params["graph"]
    assert isinstance(inner, Graph)
    assert inner.outputs == inner.inputs[1:]
    # What is weak in one place is what it is in another.
    graph = traced(lambda x: only(GOING, tnp.full((4,), 1.0) * x), np.float32(2))
    assert not any(t.weak for t in graph.equations[-1].params["graph"].in_types)
