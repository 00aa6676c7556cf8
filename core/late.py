"""Numbers of a program that are found anew for each size.

A plan of a program whose sizes are not fixed holds `Dim`s where a plan of fixed sizes
holds numbers: lengths, strides, bytes. What is *chosen* by size (into how many tasks a
kernel is cut, its blocks, where buffers lie) is written as a function here, and called
for each size. If no size is open, it is called at once.

A name stands for a function and whatever it closes over: equal names and arguments are
one number, computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from treadle.dims import Dim, hint, settled

Value = Callable[[Any], int]
"""From a size to its number."""


def number(
    name: Hashable, fn: Callable[..., int], args: Sequence[Any], low: int = 0
) -> int:
    """``fn(*args)``, a number that is at least `low`, for all sizes."""
    scope = _scope(args)
    if scope is None:
        return fn(*args)
    return scope.derived(name, fn, tuple(args), fn(*map(hint, args)), low)


def numbers(
    name: Hashable, fn: Callable[..., Sequence[int]], args: Sequence[Any]
) -> Sequence[int]:
    """``fn(*args)``, as many numbers for every size, each at least 0."""
    scope = _scope(args)
    if scope is None:
        return fn(*args)
    key = (name, *args)
    found = scope.known.get(key)
    if found is None:
        hints = fn(*map(hint, args))
        found = scope.known[key] = scope.vector(name, fn, tuple(args), hints)
    return found


def is_one(length: int) -> bool:
    """Whether a length is 1, where sums are added up in another order if it is."""
    return bool(settled("is one", _is_one, (length,)))


def _is_one(length: int) -> int:
    return int(length == 1)


def _scope(args: Sequence[Any]) -> Any:
    for a in args:
        if type(a) is Dim:
            return a.scope
    return None


@dataclass(frozen=True, eq=False)
class SizeOf:
    """A size as a number of a dtype."""

    size: Any
    dtype: np.dtype

    @property
    def sizes(self) -> tuple[Any, ...]:
        return (self.size,)

    def at(self, value_of: Value) -> Any:
        """The number for given sizes."""
        return self.dtype.type(value_of(self.size))

    def key(self) -> Hashable:
        return self.size.key, self.dtype


@dataclass(frozen=True, eq=False)
class Computed:
    """What an operation makes of sizes and other numbers.

    run: the operation, of the list of its operands. name: of the operation and its
      parameters.
    """

    run: Callable[[Sequence[Any]], Any]
    name: Hashable
    parts: tuple[Any, ...]
    dtype: np.dtype

    def nodes(self) -> list[Number]:
        """What it is computed of, and itself: each once, though it may be used often,
        and after what it is made of."""
        found: dict[Number, None] = {}
        waiting: list[Number] = [self]
        while waiting:
            node = waiting[-1]
            parts = node.parts if isinstance(node, Computed) else ()
            missing = [p for p in parts if _is_open(p) and p not in found]
            if missing:
                waiting += missing
            else:
                found[waiting.pop()] = None
        return list(found)

    @property
    def sizes(self) -> tuple[Any, ...]:
        return tuple([n.size for n in self.nodes() if isinstance(n, SizeOf)])

    def at(self, value_of: Value) -> Any:
        """The number for given sizes."""
        known: dict[Any, Any] = {}
        for node in self.nodes():
            if isinstance(node, SizeOf):
                known[node] = node.at(value_of)
            else:
                operands = [known[p] if _is_open(p) else p for p in node.parts]
                made = np.asarray(node.run(operands)).astype(node.dtype)
                known[node] = made[()]
        return known[self]

    @cached_property
    def _key(self) -> Hashable:
        places: dict[Any, int] = {}
        keys: dict[Hashable, int] = {}
        for node in self.nodes():
            if isinstance(node, SizeOf):
                key: Hashable = node.key()
            else:
                parts = [
                    places[p] if _is_open(p) else (p.dtype, p.tobytes())
                    for p in node.parts
                ]
                key = node.name, tuple(parts), node.dtype
            places[node] = keys.setdefault(key, len(keys))
        return tuple(keys)

    def key(self) -> Hashable:
        return self._key


Number = SizeOf | Computed
"""What a literal is that depends on sizes."""


def _is_open(part: Any) -> bool:
    return isinstance(part, SizeOf | Computed)


def word(x: Number) -> int:
    """An integer literal that depends on sizes, as a number of a plan."""
    if isinstance(x, SizeOf):
        return x.size

    def value(*sizes: int) -> int:
        given = dict(zip(keys, sizes, strict=True))
        return int(x.at(lambda size: given[size.key]))

    sizes = tuple({size.key: size for size in x.sizes}.values())
    keys = [size.key for size in sizes]
    return number(("literal", x.key()), value, sizes, low=-(1 << 63))
