"""Prints a Graph, one equation a line, with the user's lines at the right and the
names around them."""

from __future__ import annotations

import os
from typing import Any

from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.scopes import source_of

_COLUMN = 72


def show(graph: Graph, sources: bool = True) -> str:
    """The graph as text.

    Nested graphs are printed indented under the equation that holds them.
    """
    return "\n".join(_lines(graph, sources))


def _lines(graph: Graph, sources: bool) -> list[str]:
    names: dict[Var, str] = {}

    def define(v: Var) -> str:
        names[v] = letters(len(names))
        return f"{names[v]}:{v.type}"

    def use(a: Atom) -> str:
        if isinstance(a, Lit):
            return f"{a.value.item()}" if a.type.ndim == 0 else f"const:{a.type}"
        return names.get(a, "?")

    title = f"graph {graph.name}".rstrip()
    out = [f"{title}({', '.join(define(v) for v in graph.inputs)}):"]
    for eq in graph.equations:
        nested = {k: v for k, v in eq.params.items() if isinstance(v, Graph)}
        flat = {k: v for k, v in eq.params.items() if k not in nested}
        params = f"[{_params(flat)}]" if flat else ""
        inputs = " ".join(use(a) for a in eq.inputs)
        line = f"  {' '.join(map(define, eq.outputs))} = {eq.op.name}{params} {inputs}"
        if sources and eq.source:
            line = f"{line:<{_COLUMN}}  # {_place(eq)}"
        out.append(line)
        for key, inner in nested.items():
            body = _lines(inner, sources)
            out += [f"    {key}: {body[0]}", *("    " + row for row in body[1:])]
    out.append(f"  return {', '.join(use(a) for a in graph.outputs)}")
    return out


def _place(eq: Equation) -> str:
    place = source_of(eq.source).place
    line = os.path.basename(eq.source)
    return f"{line}, {place}" if place else line


def _params(params: dict[str, Any]) -> str:
    def text(v: Any) -> str:
        if isinstance(v, tuple) and any(isinstance(x, Graph) for x in v):
            return f"({len(v)} graphs)"
        return getattr(v, "__name__", None) or str(v).replace(" ", "")

    return " ".join(f"{k}={text(v)}" for k, v in params.items())


def letters(n: int) -> str:
    """The name of a graph's value number n, inputs first."""
    text = ""
    while True:
        n, digit = divmod(n, 26)
        text = chr(ord("a") + digit) + text
        if n == 0:
            return text
        n -= 1


# Printing needs the whole of `graph`, and `graph` should not need printing.
Graph.__repr__ = show  # type: ignore[method-assign,assignment]
