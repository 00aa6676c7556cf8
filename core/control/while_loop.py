"""The op `while_loop`: a loop whose length is known only when it has run.

Params:
  test: the graph ``(*test consts, *carry) -> bool scalar`` that decides, before each
    iteration, whether there is one.
  body: the graph ``(*body consts, *carry) -> (*carry)``.
  n_test_consts, n_body_consts: how many constants each of them takes.
  memory: what a backward pass may remember of it.

Arguments: the constants of the test, those of the body, the initial carries. Results:
the final carries. The rule for reverse mode is in `control.while_linearize`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.control.call import spread_tangents
from treadle.control.graphs import (
    Flags,
    nonzero,
    numbered,
    pick,
    reached,
    rewire,
    select_examples,
)
from treadle.control.running import running_only
from treadle.control.while_linearize import Memory, linearize_while
from treadle.ir.graph import Graph
from treadle.ir.walk import axes_named, call_graph
from treadle.ops.compare import bitwise_and
from treadle.ops.movement import instantiate
from treadle.ops.reduce import reduce_or
from treadle.run.eager import evaluate
from treadle.trace.axes import MappedAxis
from treadle.trace.lowering import While
from treadle.trace.op import Op
from treadle.trace.stage import stage
from treadle.trace.value import typeof
from treadle.transforms.batch import batch_graph, to_axis
from treadle.transforms.guard import call_where, guard_graph
from treadle.transforms.jvp import jvp_graph


def _sections(items: Sequence[Any], n_test: int, n_body: int) -> tuple[Any, Any, Any]:
    return items[:n_test], items[n_test : n_test + n_body], items[n_test + n_body :]


def _type(
    *types: ArrayType,
    test: Graph,
    body: Graph,
    n_test_consts: int,
    n_body_consts: int,
    memory: Memory,
) -> Sequence[ArrayType]:
    if [(t.shape, t.dtype) for t in test.out_types] != [((), dtypes.bool_)]:
        raise TypeError(
            f"while_loop: the condition must be a bool scalar, got {test.out_types}"
        )
    _, _, init = _sections(types, n_test_consts, n_body_consts)
    outs = [t.strong() for t in body.out_types]
    for given, out in zip(init, outs, strict=True):
        if (given.shape, given.dtype) != (out.shape, out.dtype):
            raise TypeError(
                f"while_loop: a carry goes in as {given} and comes out as {out}"
            )
    return outs


def _run(
    *arrays: Any,
    test: Graph,
    body: Graph,
    n_test_consts: int,
    n_body_consts: int,
    memory: Memory,
) -> Sequence[Any]:
    of_test, of_body, carry = _sections(arrays, n_test_consts, n_body_consts)
    while evaluate(test, [*of_test, *carry])[0]:
        carry = evaluate(body, [*of_body, *carry])
    return carry


def resume(
    going: Any,
    args: Sequence[Any],
    test: Graph,
    body: Graph,
    n_test_consts: int,
    n_body_consts: int,
    memory: Memory,
) -> Sequence[Any]:
    """A loop whose first test has been done and gave `going`."""

    def step(*values: Any) -> list[Any]:
        tests, consts, (_, *carry) = _sections(values, n_test_consts, n_body_consts)
        new = call_graph(body, [*consts, *carry])
        return [*call_graph(test, [*tests, *new]), *new]

    of_test, of_body, init = _sections(args, n_test_consts, n_body_consts)
    types = [
        [typeof(x).strong() for x in part]
        for part in (of_test, of_body, [going, *init])
    ]
    new_body = stage(step, [*types[0], *types[1], *types[2]], closed=True)[0]
    still = stage(lambda going, *carry: [going], types[2], closed=True)[0]
    results = while_loop(
        *of_test,
        *of_body,
        going,
        *init,
        test=still,
        body=new_body,
        n_test_consts=0,
        n_body_consts=n_test_consts + n_body_consts,
        memory=memory,
    )
    return results[1:]


# jvp ----------------------------------------------------------------------------------


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    test: Graph,
    body: Graph,
    n_test_consts: int,
    n_body_consts: int,
    memory: Memory,
) -> Any:
    of_test, of_body, init = _sections(primals, n_test_consts, n_body_consts)
    _, dbody, dinit = _sections(tangents, n_test_consts, n_body_consts)
    given = nonzero(dbody)
    both, moving = _jvp_body(body, n_body_consts, (*given, *nonzero(dinit)))
    consts = [*of_body, *pick(dbody, given)]
    carries = [*init, *map(instantiate, pick(dinit, moving))]
    wide_test = stage(
        lambda *xs: call_graph(test, xs[: len(test.inputs)]),
        [*test.in_types, *pick(body.in_types[n_body_consts:], moving)],
        closed=True,
        name=test.name,
    )[0]
    results = while_loop(
        *of_test,
        *consts,
        *carries,
        test=wide_test,
        body=both,
        n_test_consts=n_test_consts,
        n_body_consts=len(consts),
        memory=memory,
    )
    outs = results[: len(init)]
    return outs, spread_tangents(outs, results[len(init) :], moving)


def _jvp_body(body: Graph, n_consts: int, given: Flags) -> tuple[Graph, Flags]:
    """The body with tangents, and which carries have them."""
    consts, moving = given[:n_consts], given[n_consts:]

    def step(moving: Flags) -> tuple[tuple[Graph, Flags], Flags]:
        both, kept = jvp_graph(body, (*consts, *moving))
        return (both, kept), kept

    (both, kept), moving = reached(moving, step)
    n_in, n_out = len(body.inputs), len(body.outputs)
    tangents = numbered((*consts, *moving), n_in)
    inputs = [
        *range(n_consts),
        *(i for i in tangents[:n_consts] if i is not None),
        *range(n_consts, n_in),
        *(i for i in tangents[n_consts:] if i is not None),
    ]
    outputs = [
        t.strong() if place is None else place
        for t, place in pick(
            zip(body.out_types, numbered(kept, n_out), strict=True), moving
        )
    ]
    return rewire(both, inputs, [*range(n_out), *outputs]), moving


# batch --------------------------------------------------------------------------------


def _batch(
    axis: MappedAxis,
    args: Sequence[Any],
    axes: Sequence[int | None],
    *,
    test: Graph,
    body: Graph,
    n_test_consts: int,
    n_body_consts: int,
    memory: Memory,
) -> Any:
    flags = tuple(a is not None for a in axes)
    in_test, in_body, carried = _sections(flags, n_test_consts, n_body_consts)

    def step(carried: Flags) -> tuple[tuple[Graph, Graph, bool], Flags]:
        wide, kept = batch_graph(body, axis, (*in_body, *carried), carried)
        wide_test, (diverging,) = batch_graph(test, axis, (*in_test, *carried))
        # Where examples stop at different times, every carry is an example's own.
        grown = (True,) * len(carried) if diverging else kept
        return (wide, wide_test, diverging), grown

    (wide, wide_test, diverging), carried = reached(carried, step)
    wanted = (*in_test, *in_body, *carried)
    moved = [
        to_axis(x, a, 0, axis.size) if w else x
        for x, a, w in zip(args, axes, wanted, strict=True)
    ]
    if not diverging:
        outs = while_loop(
            *moved,
            test=wide_test,
            body=wide,
            n_test_consts=n_test_consts,
            n_body_consts=n_body_consts,
            memory=memory,
        )
        return outs, [0 if c else None for c in carried]
    tests, _, init = _sections(moved, n_test_consts, n_body_consts)
    (going,) = call_graph(wide_test, [*tests, *init])
    batched = (*in_body, *carried)
    # What examples have together is made of the values of those that have stopped, too.
    alone = axis.name not in (axes_named({"graph": body}) or ())

    def of_running(going: Any, args: Sequence[Any]) -> list[Any]:
        if alone:
            args = running_only(going, args, batched)
        return call_where(going, body, axis, batched, args)

    outs = _run_diverging(
        going,
        moved,
        partial(call_where, graph=test, axis=axis, batched=(*in_test, *carried)),
        of_running,
        n_test_consts,
        n_body_consts,
        memory,
    )
    return outs, [0] * len(outs)


def _run_diverging(
    going: Any,
    args: Sequence[Any],
    test: Callable[..., list[Any]],
    body: Callable[..., list[Any]],
    n_test: int,
    n_body: int,
    memory: Memory,
) -> list[Any]:
    """Runs until every example has stopped; those that have are left as they are.

    The answers of the test are carried along, so that it runs once per iteration.

    Args:
      going: which examples have a first iteration.
      test, body: from which examples are running, and ``args=``, to the results of all.
    """
    of_test, of_body, init = _sections(args, n_test, n_body)
    types = [[typeof(x).strong() for x in part] for part in (of_test, of_body, init)]

    def step(*values: Any) -> list[Any]:
        tests, consts, (going, *carry) = _sections(values, n_test, n_body)
        new = [
            select_examples(going, after, before)
            for after, before in zip(
                body(going, args=[*consts, *carry]), carry, strict=True
            )
        ]
        (still,) = test(going, args=[*tests, *new])
        return [bitwise_and(going, still), *new]

    carries = [typeof(going), *types[2]]
    new_body = stage(step, [*types[0], *types[1], *carries], closed=True)[0]
    any_going = stage(
        lambda going, *carry: [reduce_or(going, axes=(0,))], carries, closed=True
    )[0]
    results = while_loop(
        *of_test,
        *of_body,
        going,
        *init,
        test=any_going,
        body=new_body,
        n_test_consts=0,
        n_body_consts=n_test + n_body,
        memory=memory,
    )
    return results[1:]


# guard --------------------------------------------------------------------------------


def _guard(
    active: Any, args: Sequence[Any], *, test: Graph, n_test_consts: int, **params: Any
) -> Any:
    """Where it is not active the loop doesn't begin, so its body needs no guard."""

    def guarded(active: Any, *values: Any) -> list[Any]:
        (going,) = call_graph(guard_graph(test), [active, *values])
        return [bitwise_and(active, going)]

    types = guard_graph(test).in_types
    new_test = stage(guarded, types, closed=True, name=test.name)[0]
    return while_loop(
        active, *args, test=new_test, n_test_consts=n_test_consts + 1, **params
    )


while_loop = Op(
    "while_loop",
    _type,
    _run,
    jvp=_jvp,
    linearize=linearize_while,
    batch=_batch,
    guard=_guard,
    lowering=While(),
    multiple=True,
    names_axis=True,
)
