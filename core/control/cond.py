"""The op `cond`: runs one of several graphs.

Params:
  branches: graphs that take the same operands and give results of the same types.

Arguments: an int32 scalar that says which branch (out of range, the nearest one), then
the operands. A compiler lowers this to a branch command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.control.call import spread_tangents, without_calls
from treadle.control.graphs import (
    Flags,
    either,
    nonzero,
    numbered,
    pick,
    rewire,
    select_examples,
)
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.ops.compare import eq, ge, le
from treadle.ops.movement import move_axis, zeros_like
from treadle.run.eager import evaluate
from treadle.trace.axes import MappedAxis
from treadle.trace.lowering import Branch
from treadle.trace.op import Linear, Op
from treadle.trace.stage import stage
from treadle.transforms.batch import batch_graph
from treadle.transforms.guard import call_where, guard_graph
from treadle.transforms.jvp import jvp_graph
from treadle.transforms.linearize import LinearizedGraph, linearize_graph
from treadle.transforms.transpose import transpose_graph

Graphs = tuple[Graph, ...]


def _type(index: ArrayType, *types: ArrayType, branches: Graphs) -> Sequence[ArrayType]:
    if index.shape or index.dtype != dtypes.int32:
        raise TypeError(f"cond: the index must be an int32 scalar, got {index}")
    first = [t.strong() for t in branches[0].out_types]
    for n, branch in enumerate(branches):
        outs = [t.strong() for t in branch.out_types]
        if outs != first:
            raise TypeError(f"cond: branch 0 gives {first}, branch {n} gives {outs}")
        wanted = [(t.shape, t.dtype) for t in branch.in_types]
        if wanted != [(t.shape, t.dtype) for t in types]:
            raise TypeError(f"cond: branch {n} takes {branch.in_types}, got {types}")
    # What is a number of Python's whichever branch is taken still acts as one.
    columns = zip(*(branch.out_types for branch in branches), strict=True)
    weak = [all(t.weak for t in column) for column in columns]
    pairs = zip(first, weak, strict=True)
    return [ArrayType(t.shape, t.dtype, w) for t, w in pairs]


def _run(index: Any, *operands: Any, branches: Graphs) -> Sequence[Any]:
    chosen = min(max(int(index), 0), len(branches) - 1)
    return evaluate(branches[chosen], operands)


def _union(kept: Sequence[Flags]) -> Flags:
    result = kept[0]
    for flags in kept[1:]:
        result = either(result, flags)
    return result


# jvp ----------------------------------------------------------------------------------


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, branches: Graphs) -> Any:
    flags = nonzero(tangents[1:])
    results = [jvp_graph(branch, flags) for branch in branches]
    union = _union([kept for _, kept in results])
    n_out = len(union)
    types = pick(branches[0].out_types, union)
    both = tuple(
        rewire(
            graph,
            range(len(graph.inputs)),
            [
                *range(n_out),
                *_fill(pick(numbered(kept, n_out), union), types),
            ],
        )
        for graph, kept in results
    )
    outs = cond(*primals, *pick(tangents[1:], flags), branches=both)
    return outs[:n_out], spread_tangents(outs[:n_out], outs[n_out:], union)


def _fill(places: Sequence[int | None], types: Sequence[ArrayType]) -> list[Any]:
    """Zeros where a branch has nothing to give."""
    return [
        t.strong() if place is None else place
        for place, t in zip(places, types, strict=True)
    ]


# linearize ----------------------------------------------------------------------------


class _Split(NamedTuple):
    """Branches in two.

    known: gives the results, then the residuals: one list of slots for all branches,
      in which branches share slots of one type.
    linear: ``(*operands in use, *slots, *tangents) -> tangents``.
    operands: which operands the linear branches need.
    """

    known: Graphs
    linear: Graphs
    operands: list[int]
    nonzero_out: Flags


def _linearize(
    primals: Sequence[Any], tangents: Sequence[Any], *, branches: Graphs
) -> Any:
    flags = nonzero(tangents[1:])
    split = _split_branches(branches, flags)
    results = cond(*primals, branches=split.known)
    n_out = len(branches[0].outputs)
    outs, slots = results[:n_out], results[n_out:]
    given: Sequence[Any] = []
    if any(split.nonzero_out):
        given = cond(
            primals[0],
            *(primals[1 + i] for i in split.operands),
            *slots,
            *pick(tangents[1:], flags),
            branches=split.linear,
        )
    return outs, spread_tangents(outs, given, split.nonzero_out)


def _split_branches(branches: Graphs, flags: Flags) -> _Split:
    cache = branches[0].cache
    key = ("cond_split", tuple(map(id, branches)), flags)
    if key not in cache:
        # The branches are kept with the result: the key has their identities.
        cache[key] = branches, _split(branches, flags)
    return cache[key][1]


def _split(branches: Graphs, flags: Flags) -> _Split:
    splits = [linearize_graph(without_calls(b), flags) for b in branches]
    union = _union([s.nonzero_out for s in splits])
    operands = sorted({i for s in splits for i in s.residuals if i is not None})
    n_out = len(union)
    slots: list[ArrayType] = []
    places = [
        _take_slots([t.strong() for t in s.known.out_types[n_out:]], slots)
        for s in splits
    ]
    known, linear = [], []
    for s, taken in zip(splits, places, strict=True):
        own = {slot: n_out + k for k, slot in enumerate(taken)}
        filled = [own.get(n, t) for n, t in enumerate(slots)]
        known.append(
            rewire(s.known, range(len(s.known.inputs)), [*range(n_out), *filled])
        )
        linear.append(_linear_branch(s, operands, slots, taken, union))
    return _Split(tuple(known), tuple(linear), operands, union)


def _take_slots(types: Sequence[ArrayType], slots: list[ArrayType]) -> list[int]:
    """A slot of its type for each residual of a branch; adds what is missing."""
    free = list(range(len(slots)))
    taken = []
    for t in types:
        fitting = next((n for n in free if slots[n] == t), None)
        if fitting is None:
            fitting = len(slots)
            slots.append(t)
        else:
            free.remove(fitting)
        taken.append(fitting)
    return taken


def _linear_branch(
    split: LinearizedGraph,
    operands: Sequence[int],
    slots: Sequence[ArrayType],
    taken: Sequence[int],
    union: Flags,
) -> Graph:
    """A linear branch with the inputs and outputs that all branches share."""
    in_types = split.known.in_types
    tangents = split.linear.in_types[len(split.residuals) :]
    out_types = split.known.out_types[: len(union)]

    def function(*values: Any) -> list[Any]:
        n, m = len(operands), len(operands) + len(slots)
        inputs = dict(zip(operands, values[:n], strict=True))
        computed = iter([values[n + slot] for slot in taken])
        residuals = [
            next(computed) if i is None else inputs[i] for i in split.residuals
        ]
        given = iter(call_graph(split.linear, [*residuals, *values[m:]]))
        return [
            next(given) if nz else zeros_like(t)
            for nz, t, wanted in zip(split.nonzero_out, out_types, union, strict=True)
            if wanted
        ]

    types = [*(in_types[i] for i in operands), *slots, *tangents]
    return stage(function, types, closed=True, name=split.linear.name)[0]


# transpose ----------------------------------------------------------------------------


def _transpose(
    cts: Sequence[Any], index: Any, *args: Any, branches: Graphs
) -> list[Any]:
    linear = tuple(isinstance(a, Linear) for a in args)
    given = nonzero(cts)
    results = [transpose_graph(branch, linear, given) for branch in branches]
    union = _union([kept for _, kept in results])
    types = pick(pick(branches[0].in_types, linear), union)
    back = tuple(
        rewire(
            graph,
            range(len(graph.inputs)),
            _fill(pick(numbered(kept), union), types),
        )
        for graph, kept in results
    )
    known = [a for a in args if not isinstance(a, Linear)]
    found = iter(cond(index, *known, *pick(cts, given), branches=back))
    every = iter([next(found) if k else None for k in union])
    return [None, *(next(every) if lin else None for lin in linear)]


# batch --------------------------------------------------------------------------------


def _batch(
    axis: MappedAxis,
    args: Sequence[Any],
    axes: Sequence[int | None],
    *,
    branches: Graphs,
) -> Any:
    index, *operands = args
    moved = [
        x if a is None else move_axis(x, a, 0)
        for x, a in zip(operands, axes[1:], strict=True)
    ]
    flags = tuple(a is not None for a in axes[1:])
    if axes[0] is None:
        kept = _union([batch_graph(b, axis, flags)[1] for b in branches])
        wide = tuple(batch_graph(b, axis, flags, kept)[0] for b in branches)
        outs = cond(index, *moved, branches=wide)
        return outs, [0 if k else None for k in kept]
    # Examples go different ways: all ways are gone, and each example takes its own.
    ways = [_is_branch(index, n, len(branches)) for n in range(len(branches))]
    chosen, *others = [
        call_where(way, branch, axis, flags, moved)
        for way, branch in zip(ways, branches, strict=True)
    ]
    for way, found in zip(ways[1:], others, strict=True):
        chosen = [
            select_examples(way, x, y) for x, y in zip(found, chosen, strict=True)
        ]
    return chosen, [0] * len(chosen)


def _is_branch(index: Any, n: int, count: int) -> Any:
    """Where branch n is taken: out of range, the nearest one is."""
    if n == 0:
        return le(index, np.int32(0))
    return eq(index, np.int32(n)) if n < count - 1 else ge(index, np.int32(n))


# guard --------------------------------------------------------------------------------


def _guard(active: Any, args: Sequence[Any], *, branches: Graphs) -> Any:
    index, *operands = args
    guarded = tuple(guard_graph(b) for b in branches)
    return cond(index, active, *operands, branches=guarded)


cond = Op(
    "cond",
    _type,
    _run,
    jvp=_jvp,
    linearize=_linearize,
    transpose=_transpose,
    batch=_batch,
    guard=_guard,
    lowering=Branch(),
    multiple=True,
    names_axis=True,
)
