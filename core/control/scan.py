"""The op `scan`: a loop of known length that carries values and stacks results.

Params:
  graph: the body ``(*consts, *carry, *x) -> (*carry, *y)``. A carry that comes out has
    the shape and dtype of the one that goes in.
  n_consts, n_carry: how many of the body's inputs are the same in every iteration, and
    how many are carried. The rest are slices of scanned arrays.
  length: the number of iterations (0 is allowed).
  reverse: whether iteration k takes and gives row length - 1 - k rather than k.

Arguments: the constants, the initial carries, the scanned arrays (each with a leading
axis of that length). Results: the final carries, then the y's stacked along a new
leading axis. A compiler lowers this to a loop command whose body reads rows of the
scanned arrays and writes rows of the stacked ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.control.call import spread_tangents
from treadle.control.graphs import (
    Flags,
    nonzero,
    numbered,
    pick,
    reached,
    rewire,
    sections,
)
from treadle.control.scan_linearize import Bind, linearize_scan
from treadle.control.scan_transpose import transpose_scan
from treadle.ir.graph import Graph
from treadle.ops.movement import instantiate, move_axis
from treadle.run.eager import evaluate
from treadle.trace.axes import MappedAxis
from treadle.trace.lowering import Scan
from treadle.trace.op import Op
from treadle.transforms.batch import batch_graph, to_axis
from treadle.transforms.guard import guard_graph
from treadle.transforms.jvp import jvp_graph


def type_of_scan(
    *types: ArrayType,
    graph: Graph,
    n_consts: int,
    n_carry: int,
    length: int,
    reverse: bool,
) -> Sequence[ArrayType]:
    """The type rule of scans."""
    outs = [t.strong() for t in graph.out_types]
    _, init, xs = sections(types, n_consts, n_carry)
    for given, out in zip(init, outs[:n_carry], strict=True):
        if (given.shape, given.dtype) != (out.shape, out.dtype):
            raise TypeError(f"scan: a carry goes in as {given} and comes out as {out}")
    for x, row in zip(xs, graph.in_types[n_consts + n_carry :], strict=True):
        if x.shape != (length, *row.shape) or x.dtype != row.dtype:
            raise TypeError(f"scan of length {length}: {x} does not consist of {row}")
    stacked = [ArrayType((length, *t.shape), t.dtype) for t in outs[n_carry:]]
    return [*outs[:n_carry], *stacked]


def _run(*arrays: Any, length: int, **params: Any) -> Sequence[Any]:
    return run_scan(length, *arrays, length=length, **params)


def run_scan(
    count: int,
    *arrays: Any,
    graph: Graph,
    n_consts: int,
    n_carry: int,
    length: int,
    reverse: bool,
) -> Sequence[Any]:
    """What the first `count` iterations give; rows of the others are zeros."""
    consts, carry, xs = sections(arrays, n_consts, n_carry)
    ys = [np.zeros((length, *t.shape), t.dtype) for t in graph.out_types[n_carry:]]
    for i in reversed(range(count)) if reverse else range(count):
        outs = evaluate(graph, [*consts, *carry, *(x[i] for x in xs)])
        carry = outs[:n_carry]
        for y, row in zip(ys, outs[n_carry:], strict=True):
            y[i] = row
    return [*carry, *ys]


# jvp ----------------------------------------------------------------------------------


def jvp_scan(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    bind: Bind,
    graph: Graph,
    n_consts: int,
    n_carry: int,
    **params: Any,
) -> Any:
    """The `jvp` rule of scans.

    bind: what carries out a scan: one of known length, of a count, or until it ends.
    """
    body, moving, nonzero_ys = _jvp_body(graph, n_consts, n_carry, nonzero(tangents))
    consts, init, xs = sections(primals, n_consts, n_carry)
    dconsts, dinit, dxs = sections(tangents, n_consts, n_carry)
    in_consts, _, in_xs = sections(nonzero(tangents), n_consts, n_carry)
    args = [*consts, *pick(dconsts, in_consts)]
    carries = [*init, *map(instantiate, pick(dinit, moving))]
    each = [*xs, *pick(dxs, in_xs)]
    results = bind(
        *args,
        *carries,
        *each,
        graph=body,
        n_consts=len(args),
        n_carry=len(carries),
        **params,
    )
    final, stacked = results[: len(carries)], results[len(carries) :]
    n_ys = len(nonzero_ys)
    outs = [*final[:n_carry], *stacked[:n_ys]]
    given = [*final[n_carry:], *stacked[n_ys:]]
    return outs, spread_tangents(outs, given, (*moving, *nonzero_ys))


def _jvp_body(
    graph: Graph, n_consts: int, n_carry: int, given: Flags
) -> tuple[Graph, Flags, Flags]:
    """The body with tangents; which carries, and which y's, have them."""
    consts, moving, xs = sections(given, n_consts, n_carry)

    def step(moving: Flags) -> tuple[tuple[Graph, Flags], Flags]:
        both, kept = jvp_graph(graph, (*consts, *moving, *xs))
        return (both, kept), kept[:n_carry]

    (both, kept), moving = reached(moving, step)
    n_in, n_out = len(graph.inputs), len(graph.outputs)
    tangents = numbered((*consts, *moving, *xs), n_in)
    inputs: list[int] = []
    for part in zip(
        sections(range(n_in), n_consts, n_carry),
        sections(tangents, n_consts, n_carry),
        strict=True,
    ):
        inputs += [*part[0], *(i for i in part[1] if i is not None)]
    places = numbered(kept, n_out)
    carries = [
        graph.out_types[i].strong() if places[i] is None else places[i]
        for i in range(n_carry)
        if moving[i]
    ]
    ys = [p for p in places[n_carry:] if p is not None]
    outputs = [*range(n_carry), *carries, *range(n_carry, n_out), *ys]
    return rewire(both, inputs, outputs), tuple(moving), kept[n_carry:]


# batch --------------------------------------------------------------------------------


def batch_scan(
    axis: MappedAxis,
    args: Sequence[Any],
    axes: Sequence[int | None],
    *,
    bind: Bind,
    graph: Graph,
    n_consts: int,
    n_carry: int,
    **params: Any,
) -> Any:
    """The `batch` rule of scans."""
    flags = tuple(a is not None for a in axes)
    consts, carried, xs = sections(flags, n_consts, n_carry)
    rest = (False,) * (len(graph.outputs) - n_carry)

    def step(carried: Flags) -> tuple[tuple[Graph, Flags], Flags]:
        body, kept = batch_graph(
            graph, axis, (*consts, *carried, *xs), (*carried, *rest)
        )
        return (body, kept), kept[:n_carry]

    (body, kept), carried = reached(carried, step)
    moved = []
    for i, (x, a) in enumerate(zip(args, axes, strict=True)):
        if n_consts <= i < n_consts + n_carry:
            moved.append(to_axis(x, a, 0, axis.size) if carried[i - n_consts] else x)
        elif a is None:
            moved.append(x)
        else:
            # Scanned arrays are cut along their first axis.
            moved.append(move_axis(x, a, 0 if i < n_consts else 1))
    outs = bind(*moved, graph=body, n_consts=n_consts, n_carry=n_carry, **params)
    carry_axes = [0 if c else None for c in carried]
    return outs, [*carry_axes, *(1 if k else None for k in kept[n_carry:])]


def _guard(
    active: Any, args: Sequence[Any], *, graph: Graph, n_consts: int, **params: Any
) -> Any:
    guarded = guard_graph(graph)
    return scan(active, *args, graph=guarded, n_consts=n_consts + 1, **params)


def _scan(*args: Any, **params: Any) -> Any:
    return scan(*args, **params)


scan = Op(
    "scan",
    type_of_scan,
    _run,
    jvp=partial(jvp_scan, bind=_scan),
    linearize=partial(linearize_scan, bind=_scan),
    transpose=partial(transpose_scan, bind=_scan),
    batch=partial(batch_scan, bind=_scan),
    guard=_guard,
    lowering=Scan(),
    multiple=True,
    names_axis=True,
)
