"""A Graph as a text that is equal in every process for equal graphs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import Dim, Scope
from treadle.ir.graph import Atom, Equation, Graph, Var
from treadle.ir.walk import effectful
from treadle.late import Computed
from treadle.trace.lowering import Elementwise, Inline, spelled
from treadle.trace.op import Op


class Unnamed(Exception):
    """Something has no name that another process would know it by: a user's function,
    or an object of a user's class."""


def digest(graph: Graph, scope: Scope | None = None) -> str | None:
    """A hash of a graph by its structure: of what it computes, not of where it was
    written. None if it holds something that only this process knows.

    scope: that of its sizes, if some are open. Its numbers are known by their places in
    it, whatever they are called, and all of it counts: what each is made of, its bounds
    and its hint, and what was taken for granted.
    """
    text = _Text(scope)
    try:
        lines = [*text.graph(graph), *text.sizes()]
    except Unnamed:
        return None
    return blake2b("\n".join(lines).encode(), digest_size=20).hexdigest()


_PLAIN = {bool, int, float, complex, str, bytes}
_INTEGERS = {int}


def _place(eq: Equation) -> str:
    """The line and the names of what may raise an error, which shows them."""
    return f" at {eq.source} in {eq.scope}" if effectful(eq) else ""


class _Text:
    def __init__(self, scope: Scope | None) -> None:
        self._scope = scope
        self._types: dict[ArrayType, str] = {}

    def graph(self, graph: Graph) -> Iterator[str]:
        numbers: dict[Var, str] = {v: f"v{i}" for i, v in enumerate(graph.inputs)}
        # (Where nothing of the user's is in it, an operation's name says all.)
        known: dict[Op, str] = {}

        def atom(a: Atom) -> str:
            return numbers[a] if type(a) is Var else self.literal(a)

        yield " ".join([self.type(v.type) for v in graph.inputs])
        for eq in graph.equations:
            op, params = eq.op, eq.params
            inputs = " ".join([atom(a) for a in eq.inputs])
            for v in eq.outputs:
                numbers[v] = f"v{len(numbers)}"
            if eq.graphs and isinstance(op.lowering, Inline):
                # The rest are rules of transforms, which have been applied.
                params = {"graph": params["graph"]}
            text = self.of(params) if params else ""
            types = " ".join([self.type(v.type) for v in eq.outputs])
            how = known.get(op)
            if how is None:
                how = self.expression(eq)
                if not how:
                    known[op] = how
            if eq.graphs or op.effect:
                how += _place(eq)
            yield f"{op.name} {inputs} {text} {types}{how}"
        yield " ".join(map(atom, graph.outputs))

    def expression(self, eq: Equation) -> str:
        """How an operation of the user's is computed: its name alone does not say."""
        how = eq.op.lowering
        if not isinstance(how, Elementwise):
            return ""
        if isinstance(how.expression, str):
            # Names of Treadle's own operations have no dot.
            return f" by {how.expression}" if "." in eq.op.name else ""
        own = how.expression.__module__ or ""
        return "" if own.startswith("treadle.") else f" by {spelled(eq)}"

    def sizes(self) -> Iterator[str]:
        if self._scope is not None:
            for a in self._scope.atoms:
                yield f"size {self.of((a.fn, a.args, a.hint, a.low, a.high))}"
            yield f"assumed {self.of(self._scope.assumed())}"

    def literal(self, a: Any) -> str:
        size = "" if a.size is None else self.of(a.size)
        return f"{self.type(a.type)}{a.varies:d}:{a.value.tobytes().hex()}{size}"

    def type(self, t: ArrayType) -> str:
        found = self._types.get(t)
        if found is None:
            shape = ",".join(map(self.of, t.shape))
            found = self._types[t] = f"{t.dtype.name}[{shape}]{'~' * t.weak}"
        return found

    def computed(self, x: Computed) -> str:
        """A number that is computed of sizes: each of its parts once, by its place."""
        places: dict[int, str] = {}
        rows: list[str] = []
        for node in x.nodes:
            if isinstance(node, Computed):
                shown = [node.run, *[places.get(id(p), p) for p in node.parts]]
            else:
                shown = [node.size]
            places[id(node)] = f"#{len(places)}"
            rows.append(self.of([*shown, node.dtype]))
        return ";".join(rows)

    def of(self, x: Any) -> str:
        """The text of a parameter."""
        kind = type(x)
        if x is None or kind in _PLAIN:
            return repr(x)
        if kind is Dim and x.scope is self._scope:
            return f"n{x.key}"
        if kind is ArrayType:
            return self.type(x)
        if kind is Op:
            return f"op {x.name}"
        if kind is Graph:
            return "{" + "\n".join(self.graph(x)) + "}"
        if kind is tuple and set(map(type, x)) == _INTEGERS:
            return repr(x)
        if kind is tuple or kind is list:
            return "(" + ",".join(map(self.of, x)) + ")"
        if kind is dict:
            return (
                "{"
                + ",".join([f"{self.of(k)}={self.of(v)}" for k, v in x.items()])
                + "}"
            )
        if isinstance(x, np.dtype):
            return x.name
        if isinstance(x, np.ndarray | np.generic):
            return f"{x.dtype.name}{np.shape(x)}:{x.tobytes().hex()}"
        if kind in (FunctionType, BuiltinFunctionType, type):
            return _named(x, x.__module__)
        if kind is np.ufunc:
            return _named(x, "numpy")
        if kind is Computed:
            return self.computed(x)
        if is_dataclass(x) and kind.__module__.startswith("treadle."):
            values = [getattr(x, f.name) for f in fields(x)]
            return f"{kind.__qualname__}{self.of(values)}"
        if isinstance(x, tuple) and kind.__module__.startswith("treadle."):
            return f"{kind.__qualname__}{self.of(tuple(x))}"
        raise Unnamed(repr(kind))


_LIBRARIES = ("treadle", "numpy", "builtins", "math", "_operator")


def _named(x: Any, module: str) -> str:
    """The text of a function that its module knows by its name."""
    name = x.__name__
    known = getattr(sys.modules.get(module), name, None) is x
    if not known or module.partition(".")[0] not in _LIBRARIES:
        raise Unnamed(repr(x))
    return f"{module}:{name}"
