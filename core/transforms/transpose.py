"""Runs a linear Graph backwards: cotangents of its outputs to those of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.errors import at
from treadle.ir.graph import Atom, Graph, Lit, Var
from treadle.ir.walk import number_of, surroundings
from treadle.ops.arithmetic import add
from treadle.scopes import in_backward, within
from treadle.trace.interpreter import state
from treadle.trace.op import Linear, Zero
from treadle.trace.stage import stage


def backward(graph: Graph, args: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    """The cotangents of the arguments that are `Linear`; None for the others.

    Args:
      graph: linear in those arguments.
      args: a value, or `Linear`, per input.
      cts: a value, or `Zero`, per output.
    """
    linear = {
        v for v, a in zip(graph.inputs, args, strict=True) if isinstance(a, Linear)
    }
    values: dict[Var, Any] = dict(zip(graph.inputs, args, strict=True))
    around = surroundings()
    pending = _forward(graph, linear, values)
    sums: dict[Var, Any] = {}

    def give(a: Atom, ct: Any) -> None:
        if a in linear and ct is not None and not isinstance(ct, Zero):
            sums[a] = add(sums[a], ct) if a in sums else ct

    for a, ct in zip(graph.outputs, cts, strict=True):
        give(a, ct)
    for eq in reversed(pending):
        found = [sums.pop(v, None) for v in eq.outputs]
        if all(ct is None for ct in found):
            continue
        full = [
            Zero(v.type) if ct is None else ct
            for v, ct in zip(eq.outputs, found, strict=True)
        ]
        inputs = [
            Linear(a.type)
            if a in linear
            else number_of(a)
            if isinstance(a, Lit)
            else values[a]
            for a in eq.inputs
        ]
        source = eq.source if around is None else within(eq.source, around)
        if eq.op.transpose is None:
            # An op of a user's, whose names have dots.
            rule = "\nIf it is, give it `transpose=`." if "." in eq.op.name else ""
            raise TypeError(
                f"`{eq.op.name}` can't be transposed: it is not linear"
                f"{at(source)}{rule}"
            )
        previous, state.source = state.source, in_backward(source)
        try:
            results = eq.op.transpose(
                full if eq.op.multiple else full[0], *inputs, **eq.params
            )
            for a, ct in zip(eq.inputs, results, strict=True):
                give(a, ct)
        finally:
            state.source = previous
    return [sums.get(v, Zero(v.type)) if v in linear else None for v in graph.inputs]


def _forward(graph: Graph, linear: set[Var], values: dict[Var, Any]) -> list:
    """Computes what is not linear; marks and returns what is."""
    pending = []
    previous, around = state.source, surroundings()
    try:
        for eq in graph.equations:
            if not linear.isdisjoint(eq.inputs):
                linear.update(eq.outputs)
                pending.append(eq)
                continue
            source = eq.source if around is None else within(eq.source, around)
            state.source = source
            args = [
                number_of(a) if isinstance(a, Lit) else values[a] for a in eq.inputs
            ]
            out = eq.op(*args, **eq.params)
            outs = out if eq.op.multiple else [out]
            values.update(zip(eq.outputs, outs, strict=True))
    finally:
        state.source = previous
    return pending


def transpose_graph(
    graph: Graph, linear: tuple[bool, ...], nonzero: tuple[bool, ...]
) -> tuple[Graph, tuple[bool, ...]]:
    """The transposed graph. Cached on the graph.

    Its inputs are the inputs not marked `linear`, then the cotangents of the outputs
    marked `nonzero`; its outputs the nonzero cotangents of the linear inputs. Also
    returns which of the linear inputs those are.
    """
    key = ("transpose", linear, nonzero)
    if key not in graph.cache:
        graph.cache[key] = _transpose_graph(graph, linear, nonzero)
    return graph.cache[key]


def _transpose_graph(
    graph: Graph, linear: tuple[bool, ...], nonzero: tuple[bool, ...]
) -> tuple[Graph, tuple[bool, ...]]:
    known = [t for t, lin in zip(graph.in_types, linear, strict=True) if not lin]
    given = [t for t, nz in zip(graph.out_types, nonzero, strict=True) if nz]
    kept: tuple[bool, ...] = ()

    def function(*values: Any) -> list[Any]:
        nonlocal kept
        knowns, cts = iter(values[: len(known)]), iter(values[len(known) :])
        args = [
            Linear(t) if lin else next(knowns)
            for t, lin in zip(graph.in_types, linear, strict=True)
        ]
        full = [
            next(cts) if nz else Zero(t)
            for t, nz in zip(graph.out_types, nonzero, strict=True)
        ]
        found = [ct for ct in backward(graph, args, full) if ct is not None]
        kept = tuple(not isinstance(ct, Zero) for ct in found)
        return [ct for ct in found if not isinstance(ct, Zero)]

    result, _ = stage(function, [*known, *given], closed=True, name=graph.name)
    return result, kept
