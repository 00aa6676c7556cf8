"""The op `custom_vmap`: a call of a function that brings its own vectorised form.

Params:
  graph: ``(*consts, *args) -> outs``: what it computes.
  rule: ``(size, batched, args) -> (outs, batched)``: the outs for all examples, from
    args of which those marked `batched` have an axis of examples, at 0; so have the
    outs that are marked. None: one example after the other.
  n_consts: how many values the function closes over; the rule knows nothing of these.
  name: the function's, for messages.

Compiled, it is its graph. Its forward derivative is vectorised by the derivative of the
rule; its linear part is that of the graph, vectorised like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.control.call import call, spread_tangents
from treadle.control.graphs import Flags, either, nonzero, pick, rewire
from treadle.control.scan import scan
from treadle.errors import TracerError, at
from treadle.ir.graph import Graph
from treadle.ir.walk import axes_named
from treadle.ops.movement import instantiate, move_axis
from treadle.ops.reduce import reduce_or
from treadle.run.eager import evaluate
from treadle.trace.axes import MappedAxis
from treadle.trace.interpreter import current_source, using
from treadle.trace.lowering import Inline
from treadle.trace.op import Op
from treadle.transforms.batch import to_axis
from treadle.transforms.guard import GuardInterpreter, guard_graph
from treadle.transforms.jvp import jvp_flat, jvp_graph, zero_of

_CLOSES_OVER = (
    "{name} has a vmap rule of its own, and closes over an array that is being "
    "vectorised{at}\n"
    "Its rule knows nothing of that array. Make it an argument of the function."
)


def _batch(
    axis: MappedAxis,
    args: Sequence[Any],
    axes: Sequence[int | None],
    *,
    graph: Graph,
    rule: Any,
    n_consts: int,
    name: str,
) -> Any:
    if axis.name in (axes_named({"graph": graph}) or ()):
        # What examples have together is there when all are computed at once.
        return call.batch(axis, args, axes, graph=graph)  # type: ignore[misc]
    batched = tuple(a is not None for a in axes)
    if not any(batched):
        params = {"graph": graph, "rule": rule, "n_consts": n_consts, "name": name}
        return custom_vmap(*args, **params), [None] * len(graph.outputs)
    moved = [
        x if a is None else move_axis(x, a, 0) for x, a in zip(args, axes, strict=True)
    ]
    if rule is None:
        outs = _one_by_one(axis.size, batched, moved, graph)
        return outs, [0] * len(outs)
    if any(batched[:n_consts]):
        raise TracerError(_CLOSES_OVER.format(name=name, at=at(current_source())))
    outs, found = rule(axis.size, batched[n_consts:], moved[n_consts:])
    return outs, [0 if b else None for b in found]


def _one_by_one(size: int, batched: Flags, args: Sequence[Any], graph: Graph) -> Any:
    same = [i for i, b in enumerate(batched) if not b]
    order = [*same, *(i for i, b in enumerate(batched) if b)]
    body = rewire(graph, order, range(len(graph.outputs)))
    params = {"n_consts": len(same), "n_carry": 0, "length": size, "reverse": False}
    return scan(*(args[i] for i in order), graph=body, **params)


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    graph: Graph,
    rule: Any,
    n_consts: int,
    name: str,
) -> Any:
    flags = nonzero(tangents)
    both, nonzero_out = jvp_graph(graph, flags)
    n_out = len(nonzero_out)
    own = flags[n_consts:]
    moving = pick(tangents, flags)
    if rule is not None and any(flags[:n_consts]):
        # The rule can't say how the results change with what the function closes over.
        results = call(*primals, *moving, graph=both)
    else:
        results = custom_vmap(
            *primals,
            *moving,
            graph=both,
            rule=rule and _rule_with_tangents(rule, own, nonzero_out),
            n_consts=n_consts,
            name=name,
        )
    return results[:n_out], spread_tangents(
        results[:n_out], results[n_out:], nonzero_out
    )


def _rule_with_tangents(rule: Any, moving: Flags, nonzero_out: Flags) -> Any:
    """The rule of the function with tangents: the derivative of its rule."""

    def wide(size: int, batched: Flags, args: Sequence[Any]) -> Any:
        n = len(moving)
        given = iter(zip(args[n:], batched[n:], strict=True))
        pairs = [next(given) if m else (None, False) for m in moving]
        # A value has the axis of examples if its tangent has, and the other way round.
        every = either(batched[:n], [b for _, b in pairs])
        values = [
            _with_axis(x, b, e, size)
            for x, b, e in zip(args[:n], batched[:n], every, strict=True)
        ]
        tangents = [
            zero_of(x) if d is None else _with_axis(d, b, e, size)
            for x, (d, b), e in zip(values, pairs, every, strict=True)
        ]
        found: Flags = ()

        def function(*xs: Any) -> Sequence[Any]:
            nonlocal found
            outs, found = rule(size, every, xs)
            return outs

        outs, moved = jvp_flat(function, values, tangents)
        moved = [instantiate(t) for t in pick(moved, nonzero_out)]
        return [*outs, *moved], (*found, *pick(found, nonzero_out))

    return wide


def _with_axis(x: Any, has: bool, wanted: bool, size: int) -> Any:
    return to_axis(x, 0 if has else None, 0, size) if wanted else x


def _linearize(
    primals: Sequence[Any], tangents: Sequence[Any], *, graph: Graph, **params: Any
) -> Any:
    return call.linearize(primals, tangents, graph=graph)  # type: ignore[misc]


def _guard(
    active: Any,
    args: Sequence[Any],
    *,
    graph: Graph,
    rule: Any,
    n_consts: int,
    name: str,
) -> Any:
    guarded = guard_graph(graph)
    n = len(guarded.inputs)
    places = [*range(1, n_consts + 1), 0, *range(n_consts + 1, n)]

    def guarded_rule(size: int, batched: Flags, args: Sequence[Any]) -> Any:
        # A rule is for all examples: it acts if one of them comes by.
        some = reduce_or(args[0], axes=(0,)) if batched[0] else args[0]
        with using(GuardInterpreter(some)):
            return rule(size, batched[1:], args[1:])

    return custom_vmap(
        *args[:n_consts],
        active,
        *args[n_consts:],
        graph=rewire(guarded, places, range(len(guarded.outputs))),
        rule=rule and guarded_rule,
        n_consts=n_consts,
        name=name,
    )


custom_vmap = Op(
    "custom_vmap",
    lambda *types, graph, **params: graph.out_types,
    lambda *arrays, graph, **params: evaluate(graph, arrays),
    jvp=_jvp,
    linearize=_linearize,
    batch=_batch,
    guard=_guard,
    lowering=Inline(),
    multiple=True,
    names_axis=True,
)
