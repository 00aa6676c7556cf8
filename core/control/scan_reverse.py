"""Reverse mode through `scan`: what the loop remembers, and the loop that runs back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from treadle import dtypes
from treadle.control.call import spread_tangents
from treadle.control.graphs import (
    Flags,
    cut,
    either,
    nonzero,
    pick,
    prune,
    without_calls,
)
from treadle.control.residuals import Residuals, plan_residuals
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.ops.arithmetic import add
from treadle.ops.movement import instantiate, zeros_like
from treadle.trace.op import Linear, registry
from treadle.trace.stage import stage
from treadle.transforms.linearize import LinearizedGraph, linearize_graph
from treadle.transforms.transpose import transpose_graph


def sections(items: Sequence[Any], n_consts: int, n_carry: int) -> tuple[Any, Any, Any]:
    """Splits what belongs to a body's inputs into constants, carries and the rest."""
    n = n_consts + n_carry
    return items[:n_consts], items[n_consts:n], items[n:]


# linearize ----------------------------------------------------------------------------


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


def linearize_scan(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    graph: Graph,
    n_consts: int,
    n_carry: int,
    **params: Any,
) -> Any:
    """The `linearize` rule of `scan`."""
    scan = registry["scan"]
    graph = without_calls(graph)
    split = _split_body(graph, n_consts, n_carry, nonzero(tangents))
    results = scan(
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
    given = scan(
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
        while True:
            split = linearize_graph(graph, (*consts, *moving, *xs))
            grown = either(moving, split.nonzero_out[:n_carry])
            if grown == moving:
                break
            moving = grown
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


# transpose ----------------------------------------------------------------------------


def transpose_scan(
    cts: Sequence[Any],
    *args: Any,
    graph: Graph,
    n_consts: int,
    n_carry: int,
    length: int,
    reverse: bool,
) -> list[Any]:
    """The `transpose` rule of `scan`: the loop backwards.

    Cotangents of the constants are summed in carries; those of the scanned arrays are
    stacked.
    """
    for t in graph.in_types[n_consts : n_consts + n_carry]:
        if not dtypes.is_differentiable(t.dtype):
            raise TypeError(
                f"a scan that carries {t} can't be transposed: its carry is not linear "
                "in the arguments; use `td.linearize` or `td.vjp`"
            )
    linear = tuple(isinstance(a, Linear) for a in args)
    back = _backward_body(graph, n_consts, n_carry, linear, nonzero(cts))
    consts, _, xs = (
        [a for a in part if not isinstance(a, Linear)]
        for part in sections(args, n_consts, n_carry)
    )
    sums = [zeros_like(t) for t in pick(graph.in_types[:n_consts], back.consts)]
    carries = [*sums, *map(instantiate, pick(cts[:n_carry], back.carries))]
    given = pick(cts[n_carry:], nonzero(cts[n_carry:]))
    found = iter(
        registry["scan"](
            *consts,
            *carries,
            *xs,
            *given,
            graph=back.graph,
            n_consts=len(consts),
            n_carry=len(carries),
            length=length,
            reverse=not reverse,
        )
    )
    every = [
        next(found) if k else None for k in (*back.consts, *back.carries, *back.xs)
    ]
    return [ct if lin else None for ct, lin in zip(every, linear, strict=True)]


class _Backward(NamedTuple):
    """The body of the loop that runs back: ``(*known consts, *sums, *carry cotangents,
    *known xs, *y cotangents) -> (*sums, *carry cotangents, *x cotangents)``; and which
    consts, carries and xs have cotangents."""

    graph: Graph
    consts: Flags
    carries: Flags
    xs: Flags


def _backward_body(
    graph: Graph, n_consts: int, n_carry: int, linear: Flags, given: Flags
) -> _Backward:
    key = ("scan_transpose", n_consts, n_carry, linear, given)
    if key not in graph.cache:
        lin_consts, _, lin_xs = sections(linear, n_consts, n_carry)
        every = (*lin_consts, *(True,) * n_carry, *lin_xs)
        carries, ys = given[:n_carry], given[n_carry:]
        while True:
            back, kept = transpose_graph(graph, every, (*carries, *ys))
            places = iter(kept)
            found = tuple(next(places) if lin else False for lin in every)
            grown = either(carries, found[n_consts : n_consts + n_carry])
            if grown == carries:
                break
            carries = grown
        graph.cache[key] = _summing(
            graph, back, every, found, carries, ys, n_consts, n_carry
        )
    return graph.cache[key]


def _summing(
    graph: Graph,
    back: Graph,
    linear: Flags,
    found: Flags,
    carries: Flags,
    ys: Flags,
    n_consts: int,
    n_carry: int,
) -> _Backward:
    """The transposed body with carries for the sums over iterations."""
    types = graph.in_types
    of_consts, _, of_xs = sections(found, n_consts, n_carry)
    not_linear = [not lin for lin in linear]
    groups = [
        pick(types[:n_consts], not_linear[:n_consts]),
        pick(types[:n_consts], of_consts),
        pick(types[n_consts : n_consts + n_carry], carries),
        pick(types[n_consts + n_carry :], not_linear[n_consts + n_carry :]),
        pick(graph.out_types[n_carry:], ys),
    ]

    def function(*values: Any) -> list[Any]:
        rest = iter(values)
        consts, sums, moving, xs, given = [[next(rest) for _ in g] for g in groups]
        outs = iter(call_graph(back, [*consts, *xs, *moving, *given]))
        cts = [next(outs) if f else None for f in found]
        new = [ct for ct in cts[:n_consts] if ct is not None]
        flowing = [
            zeros_like(t) if ct is None else ct
            for ct, t in zip(
                pick(cts[n_consts : n_consts + n_carry], carries),
                groups[2],
                strict=True,
            )
        ]
        stacked = [ct for ct in cts[n_consts + n_carry :] if ct is not None]
        return [*map(add, sums, new), *flowing, *stacked]

    every = [t for group in groups for t in group]
    body = stage(function, every, closed=True, name=graph.name)[0]
    return _Backward(body, of_consts, carries, of_xs)
