"""The op `remat`: a call whose backward pass computes again instead of remembering.

Params:
  graph: what it computes.
  policy: None, or ``(op, *types, **params) -> bool``: whether the results of an
    operation are worth remembering.

Compiled, it is its graph. What the backward pass computes again stands behind an
`optimization_barrier`, or it would be recognised as known and remembered after all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from treadle.control.call import spread_tangents, without_calls
from treadle.control.graphs import Flags, nonzero, pick, prune
from treadle.control.saving import Policy, plan_saving
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.ops.identity import optimization_barrier
from treadle.ops.movement import move_axis
from treadle.run.eager import evaluate
from treadle.trace.axes import MappedAxis
from treadle.trace.lowering import Inline
from treadle.trace.op import Linear, Op
from treadle.trace.stage import stage
from treadle.transforms.batch import batch_graph
from treadle.transforms.guard import guard_graph
from treadle.transforms.jvp import jvp_graph
from treadle.transforms.linearize import LinearizedGraph, linearize_graph
from treadle.transforms.transpose import transpose_graph


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    graph: Graph,
    policy: Policy | None,
) -> Any:
    flags = nonzero(tangents)
    both, nonzero_out = jvp_graph(graph, flags)
    results = remat(*primals, *pick(tangents, flags), graph=both, policy=policy)
    outs = results[: len(graph.outputs)]
    return outs, spread_tangents(outs, results[len(outs) :], nonzero_out)


def _linearize(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    graph: Graph,
    policy: Policy | None,
) -> Any:
    flags = nonzero(tangents)
    split = _split(without_calls(graph), flags, policy)
    results = remat(*primals, graph=split.known, policy=policy)
    n_out = len(split.nonzero_out)
    outs, saved = results[:n_out], results[n_out:]
    used = [*pick(primals, split.used), *saved, *pick(tangents, flags)]
    given = remat(*used, graph=split.linear, policy=policy)
    return outs, spread_tangents(outs, given, split.nonzero_out)


class _Split(NamedTuple):
    """A graph in two.

    known: gives what the policy saves after its results.
    linear: ``(*inputs in use, *saved, *tangents) -> tangents``.
    used: which inputs the linear part computes from.
    """

    known: Graph
    linear: Graph
    used: Flags
    nonzero_out: Flags


def _split(graph: Graph, flags: Flags, policy: Policy | None) -> _Split:
    key = ("split", flags, policy)
    if key not in graph.cache:
        split = linearize_graph(graph, flags)
        n_out = len(split.nonzero_out)
        known = split.known
        wanted = split.gather(known.inputs, known.outputs[n_out:])
        plan = plan_saving(known, wanted, policy)
        given = set(plan.again.inputs)
        used = tuple(v in given for v in known.inputs)
        outs = [*known.outputs[:n_out], *plan.saved]
        keeping = prune(Graph(known.inputs, plan.keeping.equations, outs, known.name))
        linear = _linear_part(split, plan.again)
        graph.cache[key] = _Split(keeping, linear, used, split.nonzero_out)
    return graph.cache[key]


def _linear_part(split: LinearizedGraph, again: Graph) -> Graph:
    tangents = split.linear.in_types[len(split.residuals) :]
    n = len(again.inputs)

    def function(*values: Any) -> list[Any]:
        residuals = call_graph(again, values[:n])
        return call_graph(split.linear, [*residuals, *values[n:]])

    types = [*again.in_types, *tangents]
    return stage(function, types, closed=True, name=split.linear.name)[0]


def _transpose(
    cts: Sequence[Any], *args: Any, graph: Graph, policy: Policy | None
) -> list[Any]:
    linear = tuple(isinstance(a, Linear) for a in args)
    back, kept = transpose_graph(graph, linear, nonzero(cts))
    known = [a for a in args if not isinstance(a, Linear)]
    # With the cotangents behind the barrier too, nothing is computed again before the
    # backward pass has come here.
    behind = optimization_barrier(*known, *pick(cts, nonzero(cts)))
    results = iter(remat(*behind, graph=back, policy=policy))
    found = iter([next(results) if k else None for k in kept])
    return [next(found) if lin else None for lin in linear]


def _batch(
    axis: MappedAxis,
    args: Sequence[Any],
    axes: Sequence[int | None],
    *,
    graph: Graph,
    policy: Policy | None,
) -> Any:
    wide, kept = batch_graph(graph, axis, tuple(a is not None for a in axes))
    moved = [
        x if a is None else move_axis(x, a, 0) for x, a in zip(args, axes, strict=True)
    ]
    outs = remat(*moved, graph=wide, policy=policy)
    return outs, [0 if k else None for k in kept]


def _guard(
    active: Any, args: Sequence[Any], *, graph: Graph, policy: Policy | None
) -> Any:
    return remat(active, *args, graph=guard_graph(graph), policy=policy)


remat = Op(
    "remat",
    lambda *types, graph, policy: graph.out_types,
    lambda *arrays, graph, policy: evaluate(graph, arrays),
    jvp=_jvp,
    linearize=_linearize,
    transpose=_transpose,
    batch=_batch,
    guard=_guard,
    lowering=Inline(),
    multiple=True,
    names_axis=True,
)
