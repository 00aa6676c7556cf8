"""Numbers of a program that are found anew for each size.

A plan of a program whose sizes are not fixed holds `Dim`s where a plan of fixed sizes
holds numbers: lengths, strides, bytes. What is *chosen* by size (into how many tasks a
kernel is cut, its blocks, where buffers lie) is written as a function here, and called
for each size. If no size is open, it is called at once.

A plan is data that another process reads, and so are these functions: of a module (or
a record that can be called), with all that they need among their arguments, sizes and
constants. Equal functions and arguments are one number, computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from treadle.dims import Dim, hint
from treadle.records import record

Value = Callable[[Any], int]
"""From a size to its number."""


def number(fn: Callable[..., int], args: Sequence[Any], low: int = 0) -> int:
    """``fn(*args)``, a number that is at least `low`, for all sizes."""
    scope = _scope(args)
    if scope is None:
        return fn(*args)
    return scope.derived(fn, args, fn(*map(hint, args)), low)


def numbers(fn: Callable[..., Sequence[int]], args: Sequence[Any]) -> Sequence[int]:
    """``fn(*args)``, as many numbers for every size, each at least 0."""
    scope = _scope(args)
    if scope is None:
        return fn(*args)
    return scope.vector(fn, args, lambda: fn(*map(hint, args)))


def _scope(args: Sequence[Any]) -> Any:
    for a in args:
        if type(a) is Dim:
            return a.scope
    return None


@record(frozen=True, eq=False)
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
        return getattr(self.size, "key", self.size), self.dtype

    def with_sizes(self, new: Value) -> SizeOf:
        """The same of other sizes."""
        return SizeOf(new(self.size), self.dtype)


@record(frozen=True, eq=False)
class Computed:
    """What an operation makes of sizes and other numbers.

    run: the operation, of the list of its operands.
    """

    run: Callable[[Sequence[Any]], Any]
    parts: tuple[Any, ...]
    dtype: np.dtype

    @cached_property
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
        return tuple([n.size for n in self.nodes if isinstance(n, SizeOf)])

    def at(self, value_of: Value) -> Any:
        """The number for given sizes."""
        known: dict[Any, Any] = {}
        for node in self.nodes:
            if isinstance(node, SizeOf):
                known[node] = node.at(value_of)
                continue
            made = node.run([known[p] if _is_open(p) else p for p in node.parts])
            if type(made) is not node.dtype.type:
                made = np.asarray(made).astype(node.dtype)[()]
            known[node] = made
        return known[self]

    @cached_property
    def _key(self) -> Hashable:
        places: dict[Any, int] = {}
        keys: dict[Hashable, int] = {}
        for node in self.nodes:
            if isinstance(node, SizeOf):
                key: Hashable = node.key()
            else:
                parts = [
                    places[p] if _is_open(p) else (p.dtype, p.tobytes())
                    for p in node.parts
                ]
                key = node.run, tuple(parts), node.dtype
            places[node] = keys.setdefault(key, len(keys))
        return tuple(keys)

    def key(self) -> Hashable:
        return self._key

    def with_sizes(self, new: Value) -> Computed:
        """The same of other sizes."""
        made: dict[Any, Any] = {}
        for node in self.nodes:
            if isinstance(node, SizeOf):
                made[node] = node.with_sizes(new)
            else:
                parts = tuple([made[p] if _is_open(p) else p for p in node.parts])
                made[node] = Computed(node.run, parts, node.dtype)
        return made[self]

    def __reduce__(self) -> Any:
        return Computed, (self.run, self.parts, self.dtype)


Number = SizeOf | Computed
"""What a literal is that depends on sizes."""


def _is_open(part: Any) -> bool:
    return isinstance(part, SizeOf | Computed)


def word(x: Number) -> int:
    """An integer literal that depends on sizes, as a number of a plan."""
    if isinstance(x, SizeOf):
        return x.size
    sizes = {size.key: size for size in x.sizes}
    places = {key: i for i, key in enumerate(sizes)}
    formula = _Word(x.with_sizes(lambda size: places[size.key]))
    return number(formula, tuple(sizes.values()), low=-(1 << 63))


@record(frozen=True, eq=False)
class _Word:
    """A function of sizes: a number made of their places among the arguments."""

    formula: Number

    def __call__(self, *sizes: int) -> int:
        return int(self.formula.at(sizes.__getitem__))

    def __eq__(self, other: object) -> bool:
        return type(other) is _Word and self.formula.key() == other.formula.key()

    def __hash__(self) -> int:
        return hash(self.formula.key())
