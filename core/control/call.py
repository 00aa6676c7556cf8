"""The op that holds a jitted function: compiled as a unit, inlined under a jit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle.ir.graph import Equation, Graph
from treadle.ir.walk import bind, follow, surroundings
from treadle.scopes import within
from treadle.trace.axes import MappedAxis
from treadle.trace.interpreter import at_source
from treadle.trace.lowering import Inline
from treadle.trace.op import Linear, Op, Zero
from treadle.trace.stage import stage
from treadle.transforms.batch import batch_graph, move_axis
from treadle.transforms.guard import guard_graph
from treadle.transforms.jvp import jvp_graph, zero_of
from treadle.transforms.linearize import linearize_graph
from treadle.transforms.transpose import transpose_graph

Runner = Callable[[Graph, Sequence[Any]], Sequence[Any]]
runners: list[Runner] = []
"""Holds what runs a graph eagerly: the compiler, which is above this module."""


def _run(*arrays: Any, graph: Graph) -> Sequence[Any]:
    return runners[-1](graph, arrays)


def _nonzero(tangents: Sequence[Any]) -> tuple[bool, ...]:
    return tuple(not isinstance(t, Zero) for t in tangents)


def spread_tangents(
    outs: Sequence[Any], given: Sequence[Any], nonzero: Sequence[bool]
) -> list[Any]:
    """One tangent per result, from the nonzero ones."""
    rest = iter(given)
    return [
        next(rest) if nz else zero_of(o) for o, nz in zip(outs, nonzero, strict=True)
    ]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, graph: Graph) -> Any:
    moving = [t for t in tangents if not isinstance(t, Zero)]
    both, nonzero_out = jvp_graph(graph, _nonzero(tangents))
    results = call(*primals, *moving, graph=both)
    outs = results[: len(graph.outputs)]
    return outs, spread_tangents(outs, results[len(outs) :], nonzero_out)


def _linearize(primals: Sequence[Any], tangents: Sequence[Any], *, graph: Graph) -> Any:
    moving = [t for t in tangents if not isinstance(t, Zero)]
    split = linearize_graph(graph, _nonzero(tangents))
    results = call(*primals, graph=split.known)
    outs = results[: len(graph.outputs)]
    residuals = split.gather(primals, results[len(outs) :])
    given = (
        call(*residuals, *moving, graph=split.linear) if split.linear.outputs else []
    )
    return outs, spread_tangents(outs, given, split.nonzero_out)


def _transpose(cts: Sequence[Any], *args: Any, graph: Graph) -> list[Any]:
    linear = tuple(isinstance(a, Linear) for a in args)
    back, kept = transpose_graph(graph, linear, _nonzero(cts))
    known = [a for a in args if not isinstance(a, Linear)]
    given = [ct for ct in cts if not isinstance(ct, Zero)]
    results = iter(call(*known, *given, graph=back))
    found = iter([next(results) if k else None for k in kept])
    return [next(found) if lin else None for lin in linear]


def _batch(
    axis: MappedAxis, args: Sequence[Any], axes: Sequence[Any], *, graph: Graph
) -> Any:
    batched = tuple(a is not None for a in axes)
    wide, kept = batch_graph(graph, axis, batched)
    moved = [
        x if a is None else move_axis(x, a, 0) for x, a in zip(args, axes, strict=True)
    ]
    return call(*moved, graph=wide), [0 if k else None for k in kept]


def _guard(active: Any, args: Sequence[Any], *, graph: Graph) -> Any:
    return call(active, *args, graph=guard_graph(graph))


call = Op(
    "call",
    lambda *types, graph: graph.out_types,
    _run,
    jvp=_jvp,
    linearize=_linearize,
    transpose=_transpose,
    batch=_batch,
    guard=_guard,
    lowering=Inline(),
    multiple=True,
    names_axis=True,
)


def without_calls(graph: Graph) -> Graph:
    """The graph with jitted functions written out where they are called."""
    if not any(eq.op is call for eq in graph.equations):
        return graph
    if "without_calls" not in graph.cache:
        graph.cache["without_calls"] = stage(
            lambda *xs: _call_through(graph, xs),
            graph.in_types,
            closed=True,
            name=graph.name,
        )[0]
    return graph.cache["without_calls"]


def _call_through(graph: Graph, args: Sequence[Any]) -> list[Any]:
    around = surroundings()

    def through(eq: Equation, inputs: Sequence[Any]) -> Sequence[Any]:
        source = eq.source if around is None else within(eq.source, around)
        with at_source(source):
            if eq.op is call:
                return _call_through(eq.params["graph"], inputs)
            return bind(eq, inputs, around)

    return follow(graph, args, through)
