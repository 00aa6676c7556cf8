"""The op `linear_solve`: x with ``matvec(x) = b``, found by a solver of the user's.

Its derivative is that of the equation, whatever the solver does: ``dx`` solves
``matvec(dx) = db - dmatvec(x)``, and the transposed solver finds cotangents.

Params:
  graph: the solver, ``(*consts, *b) -> (*x, *aux)``; compiled, the op is this.
  matvec: ``(*consts, *x) -> b``.
  turned: the same two of the transposed equation; none if it has no solver.
  n_consts: how many arguments come before b.
  name: of `matvec`, for messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.arraytype import ArrayType
from treadle.control.graphs import nonzero
from treadle.errors import at
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.ops.arithmetic import sub
from treadle.ops.movement import instantiate
from treadle.run.eager import evaluate
from treadle.trace.axes import MappedAxis
from treadle.trace.interpreter import current_source
from treadle.trace.lowering import Inline
from treadle.trace.op import Linear, Op, Zero
from treadle.transforms.batch import batch_graph, to_axis
from treadle.transforms.guard import guard_graph
from treadle.transforms.jvp import jvp_flat, zero_of

_NOT_TURNED = (
    "reverse-mode differentiation of custom_linear_solve of {name}, which has no "
    "solver of the transposed equation{at}\n"
    "Give it `transpose_solve=`, or say `symmetric=True` if it is its own transpose."
)


def _type(*types: ArrayType, graph: Graph, **params: Any) -> Sequence[ArrayType]:
    return graph.out_types


def _run(*arrays: Any, graph: Graph, **params: Any) -> Sequence[Any]:
    return evaluate(graph, arrays)


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    graph: Graph,
    matvec: Graph,
    n_consts: int,
    **params: Any,
) -> Any:
    def solved(*right: Any) -> list[Any]:
        consts = primals[:n_consts]
        args = [*consts, *right]
        return linear_solve(
            *args, graph=graph, matvec=matvec, n_consts=n_consts, **params
        )

    outs = solved(*primals[n_consts:])
    n = len(primals) - n_consts
    right = list(tangents[n_consts:])
    if any(nonzero(tangents[:n_consts])):
        _, moved = jvp_flat(
            lambda *consts: call_graph(matvec, [*consts, *outs[:n]]),
            primals[:n_consts],
            tangents[:n_consts],
        )
        right = [_minus(a, b) for a, b in zip(right, moved, strict=True)]
    if not any(nonzero(right)):
        return outs, [zero_of(x) for x in outs]
    found = solved(*map(instantiate, right))[:n]
    return outs, [*found, *(zero_of(x) for x in outs[n:])]


def _minus(a: Any, b: Any) -> Any:
    return a if isinstance(b, Zero) else sub(instantiate(a), b)


def _transpose(
    cts: Sequence[Any],
    *args: Any,
    graph: Graph,
    matvec: Graph,
    turned: tuple[Graph, ...],
    n_consts: int,
    name: str,
) -> list[Any]:
    if not turned:
        raise TypeError(_NOT_TURNED.format(name=name, at=at(current_source())))
    if any(isinstance(a, Linear) for a in args[:n_consts]):
        raise TypeError("linear_solve is linear in b alone")
    n = len(args) - n_consts
    found = linear_solve(
        *args[:n_consts],
        *map(instantiate, cts[:n]),
        graph=turned[0],
        matvec=turned[1],
        turned=(graph, matvec),
        n_consts=n_consts,
        name=name,
    )[:n]
    pairs = zip(found, args[n_consts:], strict=True)
    return [
        *[None] * n_consts,
        *(ct if isinstance(a, Linear) else None for ct, a in pairs),
    ]


def _batch(
    axis: MappedAxis,
    args: Sequence[Any],
    axes: Sequence[int | None],
    *,
    graph: Graph,
    matvec: Graph,
    turned: tuple[Graph, ...],
    n_consts: int,
    name: str,
) -> Any:
    # Each example has its own x, even if only the equation or only b differs.
    flags = (*(a is not None for a in axes[:n_consts]), *[True] * len(args[n_consts:]))
    wide = [batch_graph(g, axis, flags, True)[0] for g in (graph, matvec, *turned)]
    moved = [
        to_axis(x, a, 0, axis.size) if b else x
        for x, a, b in zip(args, axes, flags, strict=True)
    ]
    outs = linear_solve(
        *moved,
        graph=wide[0],
        matvec=wide[1],
        turned=tuple(wide[2:]),
        n_consts=n_consts,
        name=name,
    )
    return outs, [0] * len(outs)


def _guard(active: Any, args: Sequence[Any], **params: Any) -> Any:
    for part in ("graph", "matvec"):
        params[part] = guard_graph(params[part])
    params["turned"] = tuple([guard_graph(g) for g in params["turned"]])
    params["n_consts"] += 1
    return linear_solve(active, *args, **params)


linear_solve = Op(
    "linear_solve",
    _type,
    _run,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    guard=_guard,
    lowering=Inline(),
    multiple=True,
    names_axis=True,
)
