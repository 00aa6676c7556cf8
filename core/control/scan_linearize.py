"""The `linearize` rule of `scan`: what the loop has to remember for its linear part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from treadle.control.call import spread_tangents, without_calls
from treadle.control.graphs import (
    Flags,
    cut,
    nonzero,
    pick,
    prune,
    reached,
    sections,
)
from treadle.control.residuals import Residuals, plan_residuals
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.ops.movement import instantiate, zeros_like
from treadle.trace.stage import stage
from treadle.transforms.linearize import LinearizedGraph, linearize_graph


class _Split(NamedTuple):
    """A body in two: one that remembers, and a linear one for tangents.

    known: the body; its y's are followed by the stored residuals.
    hoisted: from the loop constants to residuals that no iteration changes.
    linear: ``(*const residuals, *hoisted, *const tangents, *carry tangents, *each
      residual, *x tangents) -> (*carry tangents, *y tangents)``.
    sources: where the residuals of each kind come from.
    """

    known: Graph
    hoisted: Graph
    linear: Graph
    sources: Residuals
    moving: Flags
    nonzero_ys: Flags


Bind = Callable[..., Any]
"""Carries out a scan, with its arguments and params."""


def linearize_scan(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    bind: Bind,
    bind_linear: Callable[[Sequence[Any]], Bind] | None = None,
    graph: Graph,
    n_consts: int,
    n_carry: int,
    **params: Any,
) -> Any:
    """The `linearize` rule of scans.

    bind_linear: what carries out the linear part, from the results; as `bind` if None.
    """
    graph = without_calls(graph)
    split = _split_body(graph, n_consts, n_carry, nonzero(tangents))
    results = bind(
        *primals, graph=split.known, n_consts=n_consts, n_carry=n_carry, **params
    )
    n_out = len(graph.outputs)
    outs, stored = results[:n_out], results[n_out:]
    if not split.linear.outputs:
        return outs, spread_tangents(outs, [], (False,) * n_out)

    values = dict(zip(split.known.inputs, primals, strict=True))
    # One variable may be a carry and a y: only the y is there for each iteration.
    ys = dict(zip(graph_outputs(split.known, n_carry), results[n_carry:], strict=True))
    dconsts, dinit, dxs = (
        pick(part, flags)
        for part, flags in zip(
            sections(tangents, n_consts, n_carry),
            sections(_moving(tangents, n_consts, n_carry, split), n_consts, n_carry),
            strict=True,
        )
    )
    sources = split.sources
    consts = [values[v] for v in sources.consts]
    consts += [*call_graph(split.hoisted, primals[:n_consts]), *dconsts]
    each = [values[v] for v in sources.xs] + [ys[v] for v in sources.ys]
    run_linear = bind if bind_linear is None else bind_linear(outs)
    given = run_linear(
        *consts,
        *map(instantiate, dinit),
        *each,
        *stored,
        *dxs,
        graph=split.linear,
        n_consts=len(consts),
        n_carry=len(dinit),
        **params,
    )
    return outs, spread_tangents(outs, given, (*split.moving, *split.nonzero_ys))


def graph_outputs(graph: Graph, n_carry: int) -> list[Any]:
    """The body's values that the loop stacks."""
    return list(graph.outputs[n_carry:])


def _moving(tangents: Sequence[Any], n_consts: int, n_carry: int, split: _Split) -> Any:
    flags = nonzero(tangents)
    return (*flags[:n_consts], *split.moving, *flags[n_consts + n_carry :])


def _split_body(graph: Graph, n_consts: int, n_carry: int, given: Flags) -> _Split:
    key = ("scan_split", n_consts, n_carry, given)
    if key not in graph.cache:
        consts, moving, xs = sections(given, n_consts, n_carry)

        def step(moving: Flags) -> tuple[LinearizedGraph, Flags]:
            split = linearize_graph(graph, (*consts, *moving, *xs))
            return split, split.nonzero_out[:n_carry]

        split, moving = reached(moving, step)
        flags = (*consts, *moving, *xs)
        graph.cache[key] = _lean(split, n_consts, n_carry, flags)
    return graph.cache[key]


def _lean(split: LinearizedGraph, n_consts: int, n_carry: int, flags: Flags) -> _Split:
    """Splits a linearized body so that as little as possible is stored."""
    known, n_out = split.known, len(split.nonzero_out)
    wanted = split.gather(known.inputs, known.outputs[n_out:])
    found = plan_residuals(known, n_consts, n_carry, n_out, wanted)
    keeping = Graph(
        known.inputs,
        known.equations,
        [*known.outputs[:n_out], *found.stored],
        known.name,
    )
    moving = flags[n_consts : n_consts + n_carry]
    return _Split(
        prune(keeping),
        cut(known, known.inputs[:n_consts], found.hoisted),
        _linear_body(split, found, n_consts, n_carry, flags),
        found,
        moving,
        split.nonzero_out[n_carry:],
    )


def _linear_body(
    split: LinearizedGraph, found: Residuals, n_consts: int, n_carry: int, flags: Flags
) -> Graph:
    fixed = [v.type for v in [*found.consts, *found.hoisted]]
    each = [v.type for v in [*found.xs, *found.ys, *found.stored]]
    types = [t.strong() for t in split.known.in_types]
    dconsts, dcarry, dxs = (
        pick(part, chosen)
        for part, chosen in zip(
            sections(types, n_consts, n_carry),
            sections(flags, n_consts, n_carry),
            strict=True,
        )
    )
    moving = flags[n_consts : n_consts + n_carry]

    def function(*values: Any) -> list[Any]:
        rest = iter(values)

        def take(group: Sequence[Any]) -> list[Any]:
            return [next(rest) for _ in group]

        known, moved = take(fixed), take([*dconsts, *dcarry])
        known += take(each)
        residuals = call_graph(found.recompute, known)
        given = iter(call_graph(split.linear, [*residuals, *moved, *rest]))
        outs = [next(given) if nz else None for nz in split.nonzero_out]
        carries = [
            zeros_like(t) if o is None else o
            for o, t in zip(
                pick(outs[:n_carry], moving),
                pick(types[n_consts : n_consts + n_carry], moving),
                strict=True,
            )
        ]
        return [*carries, *(o for o in outs[n_carry:] if o is not None)]

    every = [*fixed, *dconsts, *dcarry, *each, *dxs]
    return stage(function, every, closed=True, name=split.known.name)[0]
