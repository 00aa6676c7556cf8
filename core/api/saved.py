"""print_saved_residuals: what a backward pass remembers of the forward pass."""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable
from typing import Any

from treadle import tree
from treadle.api.args import argument, check_function, name_of
from treadle.api.boundary import boundary
from treadle.api.linear import vjp
from treadle.api.remat import is_traced
from treadle.control.call import without_calls
from treadle.control.ways import explore
from treadle.ir.graph import Equation, Graph, Var
from treadle.ops.identity import checkpoint_name
from treadle.trace.value import typeof


@boundary
def print_saved_residuals(
    function: Callable[..., Any], *args: Any, **kwargs: Any
) -> None:
    """Prints which arrays the backward pass of a function keeps from the forward pass:
    type, bytes, and the argument that it is, or the line that made it.

    Arguments are kept anyway, by whoever called. The compiler may compute some of the
    rest again where that is cheaper than to read it.

    Args:
      args, kwargs: as of `function`; arguments by position are differentiated.

    >>> import treadle as td, treadle.numpy as tnp
    >>> def loss(w, x):
    ...     return tnp.sum(tnp.tanh(x @ w))
    >>> td.print_saved_residuals(loss, tnp.ones((3, 2)), tnp.ones((4, 3)))
    loss saves 3 arrays, 104 bytes
      f32[3,2]     24  argument `w` of loss
      f32[4,3]     48  argument `x` of loss
      f32[4,2]     32  sub ...
    """
    check_function("print_saved_residuals", function)
    leaves, form = tree.flatten((args, kwargs))
    traced = [i for i, x in enumerate(leaves) if is_traced(x)]

    def flat(*values: Any) -> list[Any]:
        full = list(leaves)
        for i, x in zip(traced, values, strict=True):
            full[i] = x
        given, named = form.unflatten(full)
        _, pullback = vjp(_with(function, named), *given)
        return tree.leaves(pullback)

    types = [typeof(leaves[i]) for i in traced]
    graph, captured = explore(flat, types, lambda: tree.LEAF)
    paths = tree.paths(form)
    places = ["closed over"] * len(captured)
    places += [argument(function, paths[i][1:]) for i in traced]
    print(_table(name_of(function), without_calls(graph), places))


def _with(function: Callable[..., Any], named: dict[str, Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return function(*args, **named)

    call.__name__ = name_of(function)
    return call


def _table(name: str, graph: Graph, places: list[str]) -> str:
    known = dict(zip(graph.inputs, places, strict=True))
    same = {
        eq.outputs[0]: eq.inputs[0]
        for eq in graph.equations
        if eq.op is checkpoint_name
    }
    kept: dict[Var, None] = {}
    for a in graph.outputs:
        while a in same:
            a = same[a]  # type: ignore[index]
        if isinstance(a, Var):
            kept[a] = None
    rows = [(repr(v.type), v.type.nbytes, _origin(graph, v, known)) for v in kept]
    total = sum([nbytes for _, nbytes, _ in rows])
    arrays = "1 array" if len(rows) == 1 else f"{len(rows)} arrays"
    widths = [max([len(str(row[i])) for row in rows], default=0) for i in (0, 1)]
    return "\n".join(
        [
            f"{name} saves {arrays}, {total:,} bytes",
            *(
                f"  {t:<{widths[0]}}  {nbytes:>{max(widths[1], 5)}}  {origin}"
                for t, nbytes, origin in rows
            ),
        ]
    )


def _origin(graph: Graph, v: Var, known: dict[Var, str]) -> str:
    """Where a value comes from, in words."""
    if v in known:
        return known[v]
    eq = _source(graph, v)
    name = next((e for e in graph.equations if _names(e, v)), eq)
    what = eq.op.name
    if name.op is checkpoint_name:
        what = f"named {name.params['name']!r}"
    file, _, line = name.source.rpartition(":")
    if not line.isdigit():
        return what
    text = linecache.getline(file, int(line)).strip()
    return f"{what}  {os.path.basename(file)}:{line}  {text}".rstrip()


def _names(eq: Equation, v: Var) -> bool:
    return eq.op is checkpoint_name and v in (eq.inputs[0], eq.outputs[0])


def _source(graph: Graph, v: Var) -> Equation:
    """The equation that made a value, inside of what holds it."""
    eq = next(eq for eq in graph.equations if v in eq.outputs)
    place = eq.outputs.index(v)
    for inner in eq.graphs:
        made = inner.outputs[place] if place < len(inner.outputs) else None
        if any(made in e.outputs for e in inner.equations):
            return _source(inner, made)  # type: ignore[arg-type]
    return eq
