"""A Graph as a text that is equal in every process for equal graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.ir.graph import Atom, Graph, Lit, Var
from treadle.trace.lowering import Inline
from treadle.trace.op import Op


class Unnamed(Exception):
    """Something has no name that another process would know it by: a user's function,
    or an object of a user's class."""


def digest(graph: Graph) -> str | None:
    """A hash of a graph by its structure: of what it computes, not of where it was
    written. None if it holds something that only this process knows."""
    try:
        text = "\n".join(_Text().graph(graph))
    except Unnamed:
        return None
    return blake2b(text.encode(), digest_size=20).hexdigest()


_PLAIN = (bool, int, float, complex, str, bytes)


class _Text:
    def __init__(self) -> None:
        self._types: dict[ArrayType, str] = {}

    def graph(self, graph: Graph) -> Iterator[str]:
        numbers: dict[Var, str] = {v: f"v{i}" for i, v in enumerate(graph.inputs)}

        def atom(a: Atom) -> str:
            return self.literal(a) if isinstance(a, Lit) else numbers[a]

        yield " ".join([self.type(v.type) for v in graph.inputs])
        for eq in graph.equations:
            inputs = " ".join(map(atom, eq.inputs))
            for v in eq.outputs:
                numbers[v] = f"v{len(numbers)}"
            params = eq.params
            if isinstance(eq.op.lowering, Inline):
                # The rest are rules of transforms, which have been applied.
                params = {"graph": params["graph"]}
            types = " ".join([self.type(v.type) for v in eq.outputs])
            yield f"{eq.op.name} {inputs} {self.of(params)} {types}"
        yield " ".join(map(atom, graph.outputs))

    def literal(self, a: Lit) -> str:
        if a.size is not None:
            raise Unnamed("a number that depends on sizes")
        return f"{self.type(a.type)}{a.varies:d}:{a.value.tobytes().hex()}"

    def type(self, t: ArrayType) -> str:
        found = self._types.get(t)
        if found is None:
            if t.is_sized:
                raise Unnamed("an array whose sizes are open")
            found = self._types[t] = f"{t!r}{'~' * t.weak}"
        return found

    def of(self, x: Any) -> str:
        """The text of a parameter."""
        kind = type(x)
        if x is None or kind in _PLAIN:
            return repr(x)
        if kind is ArrayType:
            return self.type(x)
        if kind is Op:
            return f"op {x.name}"
        if kind is Graph:
            return "{" + "\n".join(self.graph(x)) + "}"
        if kind in (tuple, list):
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
        if is_dataclass(x) and kind.__module__.startswith("treadle."):
            values = [getattr(x, f.name) for f in fields(x)]
            return f"{kind.__qualname__}{self.of(values)}"
        if isinstance(x, tuple) and kind.__module__.startswith("treadle."):
            return f"{kind.__qualname__}{self.of(tuple(x))}"
        raise Unnamed(repr(kind))
