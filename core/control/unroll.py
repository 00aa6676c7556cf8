"""Scans that do several iterations at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.arraytype import ArrayType
from treadle.control.scan import scan
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.ops.movement import reshape, spread
from treadle.ops.shape import concatenate, slice_axis
from treadle.trace.stage import stage
from treadle.trace.value import typeof


def unrolled_scan(
    graph: Graph,
    consts: Sequence[Any],
    init: Sequence[Any],
    xs: Sequence[Any],
    length: int,
    reverse: bool,
    unroll: int,
) -> list[Any]:
    """A scan whose body is `unroll` iterations; what is left over is done after."""
    params = {"n_consts": len(consts), "n_carry": len(init), "reverse": reverse}
    if unroll <= 1 or length <= 1:
        return scan(*consts, *init, *xs, graph=graph, length=length, **params)
    n_consts, n_carry = len(consts), len(init)
    unroll = min(unroll, length)
    blocks = length // unroll
    rest = length - blocks * unroll
    # Backwards, the rows that are left over are the first ones.
    main = (rest, length) if reverse else (0, length - rest)
    after = (0, rest) if reverse else (length - rest, length)
    block = _block(graph, n_consts, n_carry, unroll, reverse)
    cut = [_fold(slice_axis(x, 0, *main), blocks, unroll) for x in xs]
    if blocks == 1:
        outs = call_graph(
            block,
            [*consts, *init, *(reshape(x, shape=typeof(x).shape[1:]) for x in cut)],
        )
        ys = outs[n_carry:]
    else:
        outs = scan(*consts, *init, *cut, graph=block, length=blocks, **params)
        ys = [_unfold(y, blocks, unroll) for y in outs[n_carry:]]
    carry = outs[:n_carry]
    if not rest:
        return [*carry, *ys]
    left = [slice_axis(x, 0, *after) for x in xs]
    last = scan(*consts, *carry, *left, graph=graph, length=rest, **params)
    pairs = [
        (tail, y) if reverse else (y, tail)
        for y, tail in zip(ys, last[n_carry:], strict=True)
    ]
    return [*last[:n_carry], *(concatenate(*pair, axis=0) for pair in pairs)]


def _fold(x: Any, blocks: int, unroll: int) -> Any:
    return reshape(x, shape=(blocks, unroll, *typeof(x).shape[1:]))


def _unfold(y: Any, blocks: int, unroll: int) -> Any:
    return reshape(y, shape=(blocks * unroll, *typeof(y).shape[2:]))


def _block(
    graph: Graph, n_consts: int, n_carry: int, unroll: int, reverse: bool
) -> Graph:
    """The body of several iterations: it takes and gives several rows."""
    key = ("unroll", n_consts, n_carry, unroll, reverse)
    if key in graph.cache:
        return graph.cache[key]
    n = n_consts + n_carry

    def function(*values: Any) -> list[Any]:
        consts, carry = values[:n_consts], list(values[n_consts:n])
        ys: list[Any] = [None] * unroll
        for k in reversed(range(unroll)) if reverse else range(unroll):
            rows = [
                reshape(slice_axis(x, 0, k, k + 1), shape=typeof(x).shape[1:])
                for x in values[n:]
            ]
            outs = call_graph(graph, [*consts, *carry, *rows])
            carry, ys[k] = outs[:n_carry], outs[n_carry:]
        columns = zip(*ys, strict=True)
        stacked = [
            concatenate(*(spread(y, 0, 1) for y in column), axis=0)
            for column in columns
        ]
        return [*carry, *stacked]

    types = graph.in_types
    rows = [ArrayType((unroll, *t.shape), t.dtype) for t in types[n:]]
    block, _ = stage(function, [*types[:n], *rows], closed=True, name=graph.name)
    graph.cache[key] = block
    return block
