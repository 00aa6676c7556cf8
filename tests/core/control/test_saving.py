"""What `remat` remembers, and what it computes again of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from tests.core.passes.shown import lines
from treadle.arraytype import ArrayType
from treadle.control.saving import Saving, plan_saving, reads
from treadle.ir.check import check
from treadle.ir.graph import Graph
from treadle.run.eager import evaluate

X, ROWS = np.float32([0.5, 2, -1]), np.arange(12, dtype=np.float32).reshape(4, 3)


def by_name(*names: str) -> Any:
    """A policy: these operations, and these names of values."""

    def policy(op: Any, *types: ArrayType, **params: Any) -> bool:
        return op.name in names or params.get("name") in names

    return policy


def names(graph: Graph) -> list[str]:
    return [eq.op.name for eq in graph.equations]


def planned(function: Any, policy: Any, *args: Any) -> Saving:
    """What is saved for a function's results. The graphs that this gives mean the
    same."""
    graph = traced(function, *args)
    found = plan_saving(graph, graph.outputs, policy)
    kept = Graph(
        found.keeping.inputs,
        found.keeping.equations,
        [*found.keeping.outputs, *found.saved],
        "",
    )
    for g in (kept, found.again):
        check(g)
    outs = evaluate(kept, args)
    wanted, saved = outs[: len(graph.outputs)], outs[len(graph.outputs) :]
    for a, b in zip(wanted, evaluate(graph, args), strict=True):
        assert np.array_equal(a, b)
    used = [
        x for v, x in zip(graph.inputs, args, strict=True) if v in found.again.inputs
    ]
    for a, b in zip(evaluate(found.again, [*used, *saved]), wanted, strict=True):
        assert np.array_equal(a, b)
    return found


def made(found: Saving) -> list[str]:
    """What makes the values that are saved."""
    makers = {v: eq.op.name for eq in found.keeping.equations for v in eq.outputs}
    return [makers[v] for v in found.saved]


def chain(x: Any) -> Any:
    return tnp.tanh(tnp.exp(tnp.sin(x)))


@pytest.mark.parametrize(
    ("policy", "saved", "again"),
    [
        (None, [], ["sin", "exp", "tanh"]),
        (by_name(), [], ["sin", "exp", "tanh"]),
        (by_name("sin"), ["sin"], ["exp", "tanh"]),
        (by_name("exp"), ["exp"], ["tanh"]),
        # What is wanted itself is not computed; nor what comes before it.
        (by_name("sin", "tanh"), ["tanh"], []),
        (by_name("cos"), [], ["sin", "exp", "tanh"]),
    ],
)
def test_what_a_policy_asks_for(policy: Any, saved: Any, again: Any) -> None:
    found = planned(chain, policy, X)
    assert made(found) == saved
    assert names(found.again) == again
    # The input is there, where it is needed.
    assert (found.keeping.inputs[0] in found.again.inputs) == ("sin" in again)


def test_a_policy_is_told_types_and_params() -> None:
    asked = []

    def policy(op: Any, *types: Any, **params: Any) -> bool:
        asked.append((op.name, types, params))
        return False

    planned(lambda x: tnp.sum(x, 0) * 2.0, policy, ROWS)
    t = [ArrayType(s, np.dtype("float32")) for s in ((4, 3), (3,))]
    assert asked[0] == ("reduce_sum", (t[0],), {"axes": (0,)})
    assert [(name, types[0]) for name, types, _ in asked] == [
        ("reduce_sum", t[0]),
        ("mul", t[1]),
    ]


def test_values_go_by_their_names() -> None:
    def function(x: Any) -> Any:
        a = tnp.sin(x)
        return tnp.exp(td.checkpoint_name(a, "a")) * a

    found = planned(function, by_name("a"), X)
    assert made(found) == ["checkpoint_name"]
    # The one without the name is not computed for its other reader.
    assert names(found.again) == ["exp", "mul"]
    found = planned(function, by_name("b"), X)
    assert made(found) == []
    # All but what has that name: it has the same numbers before it gets it.
    policy = lambda op, *_, **params: params.get("name") != "a"  # noqa: E731
    found = planned(
        lambda x: tnp.exp(td.checkpoint_name(tnp.sin(x), "a")) + x, policy, X
    )
    assert made(found) == ["add"]
    graph = traced(lambda x: td.checkpoint_name(tnp.sin(x), "a"), X)
    found = plan_saving(graph, graph.outputs, policy)
    assert found.saved == []
    assert names(found.again) == ["sin", "checkpoint_name"]


def test_of_several_names_the_last_is_the_value() -> None:
    def function(x: Any) -> Any:
        a = tnp.sin(x)
        b = td.checkpoint_name(a, "one")
        c = td.checkpoint_name(b, "two")
        return a * 2.0, b * 3.0, c * 4.0

    found = planned(function, by_name("one", "two"), X)
    assert names(found.again) == ["mul", "mul", "mul"]
    assert len(found.saved) == 1
    # What is wanted may itself have got a name.
    graph = traced(lambda x: td.checkpoint_name(tnp.sin(x), "a"), X)
    (sine,) = graph.equations[0].outputs
    found = plan_saving(graph, [sine], by_name("a"))
    assert found.saved == list(graph.outputs)
    assert lines(found.again) == ["return a"]


def test_effects_happen_once() -> None:
    seen: list[Any] = []

    def function(x: Any) -> Any:
        td.debug.callback(lambda v: seen.append(0), x)
        y = td.io_callback(lambda v: v, td.ShapeDtype((3,), "float32"), x)
        return tnp.sin(y)

    graph = traced(function, X)
    found = plan_saving(graph, graph.outputs, None)
    assert made(found) == ["io_callback"]
    assert names(found.again) == ["sin"]
    # In what is computed again anyway there are none.
    inner = td.jit(lambda x: (td.debug.callback(lambda v: seen.append(0), x), x * 2)[1])
    graph = traced(lambda x: tnp.sin(inner(x)), X)
    found = plan_saving(graph, graph.outputs, None)
    evaluate(found.again, [X])
    assert seen == []
    assert names(found.again) == ["call", "sin"]


def scanned(body: Any, **params: Any) -> Any:
    return lambda x, rows: td.scan(body, x, rows, **params)


def test_loops_are_opened() -> None:
    """A stack of what the policy asks for in the body."""

    def body(c: Any, x: Any) -> Any:
        return tnp.sin(tnp.exp(c)) * x, tnp.cos(c)

    found = planned(scanned(body), by_name("exp"), X, ROWS)
    (saved,) = found.saved
    assert saved.type.shape == (4, 3)
    first, second = (
        next(e for e in g.equations if e.graphs) for g in (found.keeping, found.again)
    )
    assert saved is first.outputs[-1]
    assert len(first.outputs) == 3
    assert second.inputs[-1] is saved
    assert "exp" in names(first.params["graph"])
    assert "exp" not in names(second.params["graph"])
    assert names(second.params["graph"]).count("cos") == 1
    # Nothing that it asks for, or nothing that is needed.
    found = planned(scanned(body), by_name("tan"), X, ROWS)
    assert found.saved == []
    assert found.keeping.equations == found.again.equations


def test_what_is_stacked_anyway_is_saved_as_it_is() -> None:
    def body(c: Any, x: Any) -> Any:
        y = tnp.exp(c)
        return tnp.sin(y) * x, y

    found = planned(scanned(body), by_name("exp"), X, ROWS)
    (saved,) = found.saved
    (first,) = [e for e in found.keeping.equations if e.graphs]
    assert saved is first.outputs[1]
    assert len(first.outputs) == 2
    (second,) = [e for e in found.again.equations if e.graphs]
    assert second.inputs[-1] is saved
    assert "exp" not in names(second.params["graph"])


def test_results_of_a_loop_are_those_of_a_policy_too() -> None:
    """What it carries to the end, and rows that are its own inputs."""

    def body(c: Any, x: Any) -> Any:
        return tnp.sin(c) * x, (c, x, tnp.exp(c))

    def function(x: Any, rows: Any) -> Any:
        last, (a, b, e) = td.scan(body, x, rows)
        return tnp.cos(last) + a.sum(0) + b.sum(0) + e.sum(0)

    def saved(*kept: str) -> list[int]:
        found = planned(function, by_name(*kept), X, ROWS)
        (eq,) = [e for e in found.keeping.equations if e.graphs]
        return [eq.outputs.index(v) for v in found.saved]

    assert saved("scan") == [0, 1, 2]
    assert saved("exp") == [3]
    assert saved("scan", "exp") == [0, 1, 2, 3]
    assert saved() == []


def test_loops_in_loops_are_opened() -> None:
    def inner(c: Any, x: Any) -> Any:
        return tnp.sin(tnp.exp(c)) * x, None

    def body(c: Any, x: Any) -> Any:
        return td.scan(inner, c, tnp.stack([x, x]))[0], None

    found = planned(scanned(body), by_name("exp"), X, ROWS)
    (saved,) = found.saved
    assert saved.type.shape == (4, 2, 3)


def test_backward_loops_keep_their_order() -> None:
    body = lambda c, x: (tnp.sin(tnp.exp(c)) * x, c)  # noqa: E731
    found = planned(scanned(body, reverse=True), by_name("exp"), X, ROWS)
    assert [v.type.shape for v in found.saved] == [(4, 3)]


def test_what_a_graph_reads() -> None:
    graph = traced(lambda x, y: (tnp.sin(x), x), X, X)
    assert reads(graph) == {graph.inputs[0], graph.equations[0].outputs[0]}
    assert reads(traced(lambda x: 2.0, X)) == set()
