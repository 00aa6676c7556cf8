"""Numbers for sizes: a graph, or whatever holds sizes, for given ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from treadle.arraytype import ArrayType
from treadle.dims import Dim, hint
from treadle.ir.graph import Equation, Graph, Lit, Var
from treadle.late import Value
from treadle.structure import Structure


def filled(x: Any, value_of: Value) -> Any:
    """A copy of graphs, plans, records, and collections of them, with a number for each
    size in it. What was one object is one in the copy, too."""
    return _Copy(value_of).of(x)


def filled_with(x: Any, sizes: Sequence[Any], values: Sequence[int]) -> Any:
    """The same, with these values of all sizes that are in it."""
    given = {size.key: n for size, n in zip(sizes, values, strict=True)}
    return filled(x, lambda size: given[size.key])


def sizes_in(x: Any) -> list[Any]:
    """The sizes in graphs, plans, records, and collections of them, once each."""
    found: dict[Any, Any] = {}

    def see(size: Any) -> int:
        found.setdefault(size.key, size)
        return hint(size)

    filled(x, see)
    return list(found.values())


class _Copy:
    def __init__(self, value_of: Value) -> None:
        self._value_of = value_of
        self._made: dict[int, Any] = {}
        self._kept: list[Any] = []

    def of(self, x: Any) -> Any:
        kind = type(x)
        if kind is Dim:
            return self._value_of(x)
        if id(x) in self._made:
            return self._made[id(x)]
        if kind is ArrayType:
            shape = tuple(map(self.of, x.shape))
            made: Any = ArrayType(shape, x.dtype, x.weak)
        elif isinstance(x, tuple):
            made = self._tuple(x)
        elif kind in (list, set, frozenset):
            made = kind(map(self.of, x))
        elif kind is dict:
            made = {self.of(k): self.of(v) for k, v in x.items()}
        elif kind is Lit:
            made = self._literal(x)
        elif kind in (Var, Equation):
            return self._record(x, [n for n in x.__slots__ if hasattr(x, n)])
        elif is_dataclass(x) and kind.__module__.startswith("treadle."):
            return self._record(x, [f.name for f in fields(x)])
        elif kind is Graph:
            inputs, equations, outputs = map(
                self.of, (x.inputs, x.equations, x.outputs)
            )
            made = Graph(inputs, equations, outputs, x.name)
        elif kind is Structure:
            made = self._structure(x)
        else:
            return x
        return self._keep(x, made)

    def _keep(self, x: Any, made: Any) -> Any:
        # Kept alive: `_made` is keyed by identity.
        self._kept.append(x)
        self._made[id(x)] = made
        return made

    def _literal(self, x: Lit) -> Lit:
        value = x.size.at(self._value_of) if x.size else x.value
        return Lit(value, self.of(x.type), x.varies)

    def _structure(self, x: Structure) -> Structure:
        aux, children = self.of(x.aux), self.of(x.children)
        if aux is x.aux and children is x.children:
            return x
        return Structure(x.kind, aux, children)

    def _tuple(self, x: tuple) -> tuple:
        values = [self.of(y) for y in x]
        if all([a is b for a, b in zip(x, values, strict=True)]):
            return x
        return type(x)(*values) if hasattr(x, "_fields") else tuple(values)

    def _record(self, x: Any, names: Sequence[str]) -> Any:
        # Before its fields: a step may be among what it holds.
        made = self._keep(x, object.__new__(type(x)))
        changed = False
        for name in names:
            old = getattr(x, name)
            new = self.of(old)
            changed = changed or new is not old
            object.__setattr__(made, name, new)
        if changed or not _is_frozen(x):
            return made
        return self._keep(x, x)


def _is_frozen(x: Any) -> bool:
    params = getattr(x, "__dataclass_params__", None)
    return params is not None and params.frozen
