"""The `transpose` rule of `scan`: the loop that runs backwards.

Cotangents of the scanned arrays are stacked; those of the constants are summed in
carries. (The compiler takes sums of products out of the loop: `passes.scans`.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from treadle import dtypes
from treadle.control.graphs import Flags, nonzero, pick, reached, sections
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.ops.arithmetic import add
from treadle.ops.movement import instantiate, zeros_like
from treadle.trace.op import Linear
from treadle.trace.stage import stage
from treadle.transforms.transpose import transpose_graph


def transpose_scan(
    cts: Sequence[Any],
    *args: Any,
    bind: Callable[..., Any],
    graph: Graph,
    n_consts: int,
    n_carry: int,
    length: int,
    reverse: bool,
) -> list[Any]:
    """The cotangents of a linear scan's arguments. `bind` carries out a scan."""
    _check_linear(graph, n_consts, n_carry)
    linear = tuple(isinstance(a, Linear) for a in args)
    back = _backward_body(graph, n_consts, n_carry, linear, nonzero(cts))
    consts, _, xs = (
        [a for a in part if not isinstance(a, Linear)]
        for part in sections(args, n_consts, n_carry)
    )
    sums = [zeros_like(t) for t in pick(graph.in_types[:n_consts], back.consts)]
    carries = [*sums, *map(instantiate, pick(cts[:n_carry], back.carries))]
    rows = [*xs, *pick(cts[n_carry:], nonzero(cts[n_carry:]))]
    found = iter(
        bind(
            *consts,
            *carries,
            *rows,
            graph=back.body,
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


def _check_linear(graph: Graph, n_consts: int, n_carry: int) -> None:
    for t in graph.in_types[n_consts : n_consts + n_carry]:
        if not dtypes.is_differentiable(t.dtype):
            raise TypeError(
                f"a scan that carries {t} can't be transposed: its carry is not linear "
                "in the arguments; use `td.linearize` or `td.vjp`"
            )


class _Backward(NamedTuple):
    """The body of the loop that runs back: ``(*known consts, *sums, *carry cotangents,
    *known xs, *y cotangents) -> (*sums, *carry cotangents, *x cotangents)``; and which
    consts, carries and xs have cotangents."""

    body: Graph
    consts: Flags
    carries: Flags
    xs: Flags


def _backward_body(
    graph: Graph, n_consts: int, n_carry: int, linear: Flags, given: Flags
) -> _Backward:
    key = ("scan_transpose", n_consts, n_carry, linear, given)
    if key in graph.cache:
        return graph.cache[key]
    lin_consts, _, lin_xs = sections(linear, n_consts, n_carry)
    every = (*lin_consts, *(True,) * n_carry, *lin_xs)
    carries, ys = given[:n_carry], given[n_carry:]

    def step(carries: Flags) -> tuple[tuple[Graph, tuple[Flags, ...]], Flags]:
        back, kept = transpose_graph(graph, every, (*carries, *ys))
        places = iter(kept)
        found = tuple(next(places) if lin else False for lin in every)
        parts = sections(found, n_consts, n_carry)
        return (back, parts), parts[1]

    (back, (consts, flowing, xs)), carries = reached(carries, step)
    n_fixed, n_rows = lin_consts.count(False), lin_xs.count(False)
    body = _summing(back, sum(consts), flowing, carries, n_fixed, n_rows)
    graph.cache[key] = _Backward(body, consts, carries, xs)
    return graph.cache[key]


def _summing(
    back: Graph, n_sums: int, flowing: Flags, carries: Flags, n_fixed: int, n_rows: int
) -> Graph:
    """The transposed body, with carries for the sums over iterations.

    Args:
      back: ``(*known consts, *known xs, *carry cotangents, *y cotangents) -> (*const
        cotangents, *carry cotangents, *x cotangents)``.
    """
    n_moving = sum(carries)
    types = list(back.in_types)
    fixed, rest = types[:n_fixed], types[n_fixed:]
    moving = rest[n_rows : n_rows + n_moving]
    rows = [*rest[:n_rows], *rest[n_rows + n_moving :]]
    sums = [t.strong() for t in back.out_types[:n_sums]]

    def function(*values: Any) -> list[Any]:
        n, m = n_fixed, n_fixed + n_sums
        before, cts, given = (
            values[n:m],
            values[m : m + n_moving],
            values[m + n_moving :],
        )
        outs = iter(
            call_graph(back, [*values[:n], *given[:n_rows], *cts, *given[n_rows:]])
        )
        after = [add(old, next(outs)) for old in before]
        found = [next(outs) if f else None for f in flowing]
        carried = [
            zeros_like(t) if ct is None else ct
            for ct, t in zip(pick(found, carries), moving, strict=True)
        ]
        return [*after, *carried, *outs]

    every = [*fixed, *sums, *moving, *rows]
    return stage(function, every, closed=True, name=back.name)[0]
