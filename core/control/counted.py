"""Scans whose number of iterations is known only when they run.

Both take and give what `scan` does, with its params; `length` is how many rows their
scanned and stacked arrays have. Rows that no iteration comes to are zeros.

  counted_scan: its first argument is the count, an int32 scalar, at most `length`.
    Backwards, it begins at the last row that counts. It is what linear parts of loops
    are, and can be transposed.
  going_scan: goes on while its first carry, a bool scalar, is True. Its second carry
    counts iterations, from 0: the body adds 1. From `length` on, rows are not kept. It
    has no scanned arrays.

`checked_count` is the count of a loop that must remember every iteration, where it is
used: it is an error there if there were too many to remember.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.control.graphs import Flags, reached, sections, select_examples
from treadle.control.running import running_only
from treadle.control.scan import batch_scan, jvp_scan, run_scan, type_of_scan
from treadle.control.scan_linearize import linearize_scan
from treadle.control.scan_transpose import transpose_scan
from treadle.errors import at
from treadle.ir.graph import Graph
from treadle.ir.walk import axes_named, call_graph
from treadle.ops.arithmetic import add
from treadle.ops.compare import bitwise_and, lt, select
from treadle.ops.movement import zeros_like
from treadle.ops.reduce import reduce_max, reduce_or
from treadle.ops.shape import iota
from treadle.run.eager import evaluate
from treadle.trace.axes import MappedAxis
from treadle.trace.interpreter import current_source
from treadle.trace.lowering import Counted, Host
from treadle.trace.op import Op
from treadle.trace.stage import stage
from treadle.trace.value import typeof
from treadle.transforms.batch import batch_graph, to_axis
from treadle.transforms.guard import call_where, guard_graph, may_act

I32 = ArrayType((), dtypes.int32)
BOOL = ArrayType((), dtypes.bool_)


def _keep(active: Any, new: Sequence[Any], old: Sequence[Any]) -> list[Any]:
    return [select(active, a, b) for a, b in zip(new, old, strict=True)]


def _zeros_unless(active: Any, ys: Sequence[Any]) -> list[Any]:
    return [select(active, y, zeros_like(typeof(y))) for y in ys]


# counted_scan -------------------------------------------------------------------------


def _counted_type(count: ArrayType, *types: ArrayType, **params: Any) -> Any:
    if count.shape or count.dtype != dtypes.int32:
        raise TypeError(f"counted_scan: the count must be an int32 scalar, got {count}")
    return type_of_scan(*types, **params)


def _counted_run(count: Any, *arrays: Any, length: int, **params: Any) -> Sequence[Any]:
    return run_scan(min(int(count), length), *arrays, length=length, **params)


def _with(count: Any) -> Callable[..., Any]:
    """What carries out a scan of that many iterations."""
    return partial(counted_scan, count)


def _counted_batch(
    axis: MappedAxis, args: Sequence[Any], axes: Sequence[Any], **params: Any
) -> Any:
    count, *rest = args
    if axes[0] is None:
        return batch_scan(axis, rest, axes[1:], bind=_with(count), **params)
    # Examples have counts of their own: each stays as it is outside of its rows.
    n_consts, n_carry = params["n_consts"], params["n_carry"]
    consts, init, xs = sections(rest, n_consts, n_carry)
    of_consts, of_init, of_xs = sections(axes[1:], n_consts, n_carry)
    numbers = iota(shape=(params["length"],), axis=0, dtype=dtypes.int32)
    return batch_scan(
        axis,
        [count, *consts, *init, numbers, *xs],
        [axes[0], *of_consts, *of_init, None, *of_xs],
        bind=_with(reduce_max(count, axes=(0,))),
        **params
        | {
            "graph": _only_rows_below(params["graph"], n_consts, n_carry),
            "n_consts": n_consts + 1,
        },
    )


def _only_rows_below(graph: Graph, n_consts: int, n_carry: int) -> Graph:
    """The body ``(count, *consts, *carry, row, *xs)`` that changes nothing, and does
    nothing, from row `count` on."""
    key = ("rows_below", n_consts, n_carry)
    if key not in graph.cache:
        consts, init, xs = sections(graph.in_types, n_consts, n_carry)

        def function(count: Any, *values: Any) -> list[Any]:
            consts, carry, (row, *xs) = sections(values, n_consts, n_carry)
            active, given = lt(row, count), [*consts, *carry, *xs]
            if may_act(graph):
                outs = call_graph(guard_graph(graph), [active, *given])
            else:
                outs = call_graph(graph, given)
            kept = _keep(active, outs[:n_carry], carry)
            return [*kept, *_zeros_unless(active, outs[n_carry:])]

        types = [I32, *consts, *init, I32, *xs]
        graph.cache[key] = stage(function, types, closed=True, name=graph.name)[0]
    return graph.cache[key]


counted_scan = Op(
    "counted_scan",
    _counted_type,
    _counted_run,
    jvp=lambda primals, tangents, **params: jvp_scan(
        primals[1:], tangents[1:], bind=_with(primals[0]), **params
    ),
    linearize=lambda primals, tangents, **params: linearize_scan(
        primals[1:], tangents[1:], bind=_with(primals[0]), **params
    ),
    transpose=lambda cts, count, *args, **params: [
        None,
        *transpose_scan(cts, *args, bind=_with(count), **params),
    ],
    batch=_counted_batch,
    guard=lambda active, args, **params: counted_scan(
        select(active, args[0], np.int32(0)), *args[1:], **params
    ),
    lowering=Counted("count"),
    multiple=True,
    names_axis=True,
)


# going_scan ---------------------------------------------------------------------------


def _going_run(
    *arrays: Any,
    graph: Graph,
    n_consts: int,
    n_carry: int,
    length: int,
    reverse: bool,
) -> Sequence[Any]:
    consts, carry, _ = sections(arrays, n_consts, n_carry)
    ys = [np.zeros((length, *t.shape), t.dtype) for t in graph.out_types[n_carry:]]
    while carry[0]:
        i = int(carry[1])
        outs = evaluate(graph, [*consts, *carry])
        carry = outs[:n_carry]
        for y, row in zip(ys, outs[n_carry:], strict=True):
            if i < length:
                y[i] = row
    return [*carry, *ys]


def _going_batch(
    axis: MappedAxis, args: Sequence[Any], axes: Sequence[Any], **params: Any
) -> Any:
    graph, n_consts, n_carry = params["graph"], params["n_consts"], params["n_carry"]
    consts, init, _ = sections(tuple(a is not None for a in axes), n_consts, n_carry)
    rest = (False,) * (len(graph.outputs) - n_carry)

    def step(carried: Flags) -> tuple[bool, Flags]:
        kept = batch_graph(graph, axis, (*consts, *carried), (*carried, *rest))[1]
        return kept[0], kept[:n_carry]

    if not reached(init, step)[0]:
        return batch_scan(axis, args, axes, bind=_going, **params)
    # Examples end at different times.
    batched = (*consts, *(True,) * n_carry)
    moved = [
        to_axis(x, a, 0, axis.size) if b else x
        for x, a, b in zip(args, axes, batched, strict=True)
    ]
    going = moved[n_consts]
    wide = _until_all_end(graph, axis, batched, n_carry)
    given = [*moved[:n_consts], reduce_or(going, axes=(0,)), np.int32(0)]
    outs = going_scan(
        *given, *moved[n_consts:], **params | {"graph": wide, "n_carry": n_carry + 2}
    )[2:]
    return outs, [0] * n_carry + [1] * len(rest)


def _until_all_end(
    graph: Graph, axis: MappedAxis, batched: Flags, n_carry: int
) -> Graph:
    """The body for all examples, which goes on until the last one has ended; one that
    has is left as it is, and has no effects."""
    n_consts = len(batched) - n_carry
    wide = batch_graph(graph, axis, batched, True)[0]
    # What examples have together is made of the values of those that have ended, too.
    alone = axis.name not in (axes_named({"graph": graph}) or ())

    def every(*values: Any) -> list[Any]:
        consts, (_, i, *carry) = values[:n_consts], values[n_consts:]
        going, given = carry[0], [*consts, *carry]
        if alone:
            given = running_only(going, given, batched)
        outs = call_where(going, graph, axis, batched, given)
        kept = [
            select_examples(going, new, old)
            for new, old in zip(outs, carry, strict=False)
        ]
        ys = [select_examples(going, y, zeros_like(typeof(y))) for y in outs[n_carry:]]
        return [reduce_or(kept[0], axes=(0,)), add(i, 1), *kept, *ys]

    consts, init = wide.in_types[:n_consts], wide.in_types[n_consts:]
    types = [*consts, BOOL, I32, *init]
    return stage(every, types, closed=True, name=graph.name)[0]


def _going_guard(active: Any, args: Sequence[Any], **params: Any) -> Any:
    n = params["n_consts"]
    return going_scan(*args[:n], bitwise_and(active, args[n]), *args[n + 1 :], **params)


def _going(*args: Any, **params: Any) -> Any:
    return going_scan(*args, **params)


def linearize_going(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    checked: bool = False,
    **params: Any,
) -> Any:
    """The `linearize` rule: the linear part has as many iterations as there were.

    checked: whether it is an error if these are more than rows.
    """

    def counted(outs: Sequence[Any]) -> Callable[..., Any]:
        if not checked:
            return _with(outs[1])
        source = current_source()
        return _with(checked_count(outs[1], limit=params["length"], source=source))

    return linearize_scan(primals, tangents, bind=_going, bind_linear=counted, **params)


going_scan = Op(
    "going_scan",
    type_of_scan,
    _going_run,
    jvp=partial(jvp_scan, bind=_going),
    linearize=linearize_going,
    batch=_going_batch,
    guard=_going_guard,
    lowering=Counted("carry"),
    multiple=True,
    names_axis=True,
)


# checked_count ------------------------------------------------------------------------

_TOO_MANY = (
    "reverse-mode differentiation of a while_loop with more iterations than it is "
    "prepared for{at}\n"
    "Say how many there may be, with `max_steps=`. What is remembered grows with its "
    'square root; with\n`remember="steps"`, in proportion.'
)


def _checked_run(count: Any, *, limit: int, source: str) -> Any:
    if np.max(count, initial=0) > limit:
        raise RuntimeError(_TOO_MANY.format(at=at(source)))
    return count


def _checked_batch(size: Any, args: Any, axes: Any, **params: Any) -> Any:
    return checked_count(*args, **params), axes[0]


checked_count = Op(
    "checked_count",
    lambda count, **params: count,
    _checked_run,
    batch=_checked_batch,
    lowering=Host("it may raise an error"),
    differentiable=False,
)
