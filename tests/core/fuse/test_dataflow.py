"""Who makes and who reads each value, through views; what is inline, what in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, equation, program_of, traced
from treadle.fuse.dataflow import Dataflow
from treadle.ir.graph import Equation, Graph, Var
from treadle.ops.movement import transpose

X = array(4, 5)


def flow_of(function: Callable[..., Any], *args: Any) -> tuple[Graph, Dataflow]:
    graph = traced(function, *args)
    return graph, program_of(graph)


def made(graph: Graph, name: str) -> Var:
    return equation(graph, name).outputs[0]


def names(equations: list[Equation]) -> list[str]:
    return sorted(eq.op.name for eq in equations)


def inline(function: Callable[..., Any], *args: Any) -> list[str]:
    _, flow = flow_of(function, *args)
    return sorted(flow.maker[v].op.name for v in flow.inline)


def test_makers_and_readers() -> None:
    graph, flow = flow_of(lambda x: tnp.tanh(x) * tnp.sin(x), X)
    (x,) = graph.inputs
    assert names(flow.readers[x]) == ["sin", "tanh"]
    assert flow.maker[made(graph, "mul")] is equation(graph, "mul")
    assert x not in flow.maker
    assert flow.readers[made(graph, "mul")] == []
    # A value that is read twice by one equation is there twice.
    graph, flow = flow_of(lambda x: x * x, X)
    assert names(flow.readers[graph.inputs[0]]) == ["mul", "mul"]


def test_views_are_resolved_outermost_first() -> None:
    graph, flow = flow_of(lambda x: tnp.tanh(x).T[::-1], X)
    (out,) = graph.outputs
    source, chain = flow.resolve(out)
    assert source is made(graph, "tanh")
    assert chain[0].outputs[0] is out
    assert len(chain) == 2
    assert flow.is_view(out)
    assert not flow.is_view(source)  # type: ignore[arg-type]
    assert flow.resolve(source) == (source, ())


def test_cheap_scalars_and_indices_are_inline() -> None:
    n = np.float32(2.0)
    assert inline(lambda n: n + 1.0, n) == ["add"]
    assert inline(lambda n: tnp.sqrt(n + 1.0) * 3.0, n) == ["add", "mul", "sqrt"]
    assert inline(lambda x: tnp.arange(5) * 2 + 1, X) == ["add", "iota", "mul"]
    # Arrays of data, and what a reduction gave, are not.
    assert inline(lambda x: x + 1.0, X) == []
    assert inline(lambda x: tnp.sum(x), X) == []
    assert inline(lambda x: tnp.sum(x) + 1.0, X) == ["add"]
    # Arrays of indices and data are data.
    assert inline(lambda x: tnp.arange(5) + tnp.asarray(x, "int32"), X) == ["iota"]


def test_dear_scalars_are_stored() -> None:
    def chain(length: int) -> Any:
        def function(n: Any) -> Any:
            for _ in range(length):
                n = n + n * n
            return n

        return function

    n = np.float32(2.0)
    short, long = inline(chain(2), n), inline(chain(8), n)
    assert short == ["add", "add", "mul", "mul"]
    assert 0 < len(long) < 16
    # What follows one that is stored begins anew: it is loaded.
    graph, flow = flow_of(chain(8), n)
    dear = [eq for eq in graph.equations if eq.outputs[0] not in flow.inline]
    assert dear[0] is not graph.equations[-1] or len(dear) > 1


def test_a_function_of_many_instructions_is_not_repeated_in_several_readers() -> None:
    def corrected(*readers: Any) -> Any:
        def function(n: Any, x: Any) -> Any:
            power = 1.0 - tnp.power(n, 3.7)
            spread = tnp.broadcast_to(power, x.shape)
            return [reader(x[::-1], spread) for reader in readers]

        return function

    n = np.float32(2.0)
    once, twice = corrected(tnp.multiply), corrected(tnp.multiply, tnp.divide)
    assert inline(once, n, X) == ["pow", "sub"]
    # What several share is in memory.
    assert inline(twice, n, X) == ["pow"]


def test_what_runs_on_the_host_is_not_inline() -> None:
    assert inline(lambda n: td.pure_callback(np.sin, n, n), np.float32(1.0)) == []


def test_memory_is_seen_through_reshapes_and_aliases() -> None:
    graph, flow = flow_of(lambda x: tnp.tanh(x).reshape(20).reshape(2, 10), X)
    source, (out,) = made(graph, "tanh"), graph.outputs
    assert flow.memory(out) is source
    assert flow.memory(source) is source
    graph, flow = flow_of(lambda x: tnp.tanh(x).T.reshape(20), X)
    assert flow.memory(graph.outputs[0]) is None
    turned = made(graph, "transpose")
    copy = Var(turned.type)
    flow.add(
        Equation(transpose, [made(graph, "tanh")], {"permutation": (1, 0)}, [copy]),
        True,
    )
    assert not flow.is_view(copy)
    assert flow.memory(copy) is copy
    flow.aliases[copy] = graph.inputs[0]
    assert flow.memory(copy) is graph.inputs[0]


def test_sources_of_inline_values_are_what_they_are_made_of() -> None:
    graph, flow = flow_of(lambda x, n: (tnp.sum(x) + n) * 2.0, X, np.float32(1))
    out = made(graph, "mul")
    assert flow.sources(out) == {made(graph, "reduce_sum"), graph.inputs[1]}
    assert flow.sources(graph.inputs[0]) == {graph.inputs[0]}
    assert flow.sources(equation(graph, "mul").inputs[1]) == set()
    graph, flow = flow_of(lambda x: tnp.tanh(x).T, X)
    assert flow.sources(graph.outputs[0]) == {made(graph, "tanh")}


def test_sources_are_those_of_the_equation_that_makes_a_value_now() -> None:
    graph, flow = flow_of(lambda n, m: (n + m) * 2.0, np.float32(1), np.float32(2))
    n, m = graph.inputs
    assert flow.sources(graph.outputs[0]) == {n, m}
    old = equation(graph, "add")
    flow.replace(old, Equation(old.op, (n, n), old.params, old.outputs))
    assert flow.sources(graph.outputs[0]) == {n}


def test_numbers_of_arguments_alone_are_given() -> None:
    def function(n: Any, x: Any) -> Any:
        power = 1.0 - n * n
        return power, tnp.sum(x) + power, x[0] + n, tnp.arange(3) * 2

    graph, flow = flow_of(function, np.float32(3), X)
    makers = [flow.maker.get(v) for v in flow.given]
    assert sorted([eq.op.name for eq in makers if eq]) == ["mul", "sub"]
    assert set(graph.inputs) <= flow.given


def test_final_readers_look_through_views_and_inline_values() -> None:
    def function(x: Any) -> Any:
        y = tnp.tanh(x)
        n = tnp.sum(y) + 1.0
        return y.T + 1.5, tnp.exp(y), y * n

    graph, flow = flow_of(function, X)
    assert names(flow.final_readers(made(graph, "tanh"))) == [
        "add",
        "exp",
        "mul",
        "reduce_sum",
    ]
    total = made(graph, "reduce_sum")
    assert names(flow.final_readers(total)) == ["mul"]
    (scalar,) = flow.inline
    flow.kept.add(scalar)
    assert names(flow.final_readers(total)) == ["add", "mul"]
    # What is computed again by others is still computed where it was.
    flow.recomputed.add(made(graph, "exp"))
    assert "exp" in names(flow.final_readers(made(graph, "tanh")))


def test_readers_of_recomputed_values_read_what_they_are_made_of() -> None:
    graph, flow = flow_of(lambda x: tnp.exp(tnp.tanh(x)) * 2.0, X)
    flow.recomputed.add(made(graph, "exp"))
    assert names(flow.final_readers(made(graph, "tanh"))) == ["exp", "mul"]


def test_what_is_returned() -> None:
    def function(x: Any) -> Any:
        y, z = tnp.tanh(x), tnp.exp(x)
        return y.T, z, tnp.sum(tnp.sin(x))

    graph, flow = flow_of(function, X)
    assert flow.is_returned(made(graph, "tanh"))
    assert flow.is_returned(made(graph, "exp"))
    assert flow.is_returned(made(graph, "transpose"))
    assert not flow.is_returned(made(graph, "sin"))
    assert not flow.is_returned(graph.inputs[0])
    assert flow.results == dict(enumerate(graph.outputs))


def test_values_within_a_chain_of_views_are_returned_too() -> None:
    graph, flow = flow_of(lambda x: tnp.tanh(x).T[::-1], X)
    assert flow.is_returned(made(graph, "tanh"))
    assert flow.is_returned(made(graph, "transpose"))


def test_an_equation_in_the_place_of_another() -> None:
    graph, flow = flow_of(lambda x, y: (tnp.tanh(x), tnp.sin(x) + y), X, X)
    old, (x, y) = equation(graph, "add"), graph.inputs
    new = Equation(old.op, (x, x), old.params, old.outputs, old.source)
    flow.replace(old, new)
    assert flow.maker[old.outputs[0]] is new
    assert flow.readers[made(graph, "sin")] == []
    assert flow.readers[y] == []
    assert names(flow.readers[x]) == ["add", "add", "sin", "tanh"]


def test_a_view_made_here() -> None:
    graph, flow = flow_of(tnp.tanh, X)
    out = made(graph, "tanh")
    turned = flow.ordered(out, (1, 0))
    assert turned.type.shape == (5, 4)
    assert flow.resolve(turned) == (out, (flow.maker[turned],))
    assert flow.readers[out] == [flow.maker[turned]]


def test_nothing_changes_once_it_is_settled() -> None:
    graph, flow = flow_of(lambda x: tnp.tanh(x).T, X)
    flow.settle()
    with pytest.raises(AttributeError):
        flow.inline.add(graph.inputs[0])
    for table in (flow.maker, flow.readers, flow.aliases, flow.parts, flow.orders):
        with pytest.raises(TypeError):
            table[graph.inputs[0]] = None  # type: ignore[assignment]
    assert flow.maker[made(graph, "tanh")] is equation(graph, "tanh")


def test_the_target_is_asked_once_for_each_equation() -> None:
    graph, asked = traced(lambda x: tnp.tanh(x) + 1.0, X), []

    def lowering(eq: Equation) -> Any:
        asked.append(eq)
        return eq.op.lowering

    flow = Dataflow(graph, lowering)
    for eq in graph.equations * 2:
        flow.lowering(eq)
    assert asked == list(graph.equations)
