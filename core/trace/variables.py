"""Variables from outside of a function: what holds each, and its value then and now."""

from __future__ import annotations

import builtins
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterator
from types import CellType
from typing import Any, NamedTuple

from treadle.trace.paths import EVERY, GLOBAL, LENGTH, Item, Path, label_of

MOST_ITEMS = 64
"""Of a container all of whose items are read: of a larger one, only their number is
looked at."""

MOST_DEEP = 4
"""Containers within such containers."""

DICTS = frozenset((dict, OrderedDict, defaultdict, Counter))
ROWS = frozenset((list, tuple, deque))
SETS = frozenset((set, frozenset))
CONTAINERS = DICTS | ROWS | SETS


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Any = _Missing()
"""The value of a variable that has none."""


class Variable(NamedTuple):
    """A variable from outside of a function, and its value when that was traced.

    holder: a cell, an object with the attribute `name`, or a container with that key or
      index; `LENGTH` stands for the number of its items, `EVERY` for those of a set.
    path: as it is called where it is read, at `source`.
    readers: identities of the code objects that read it.
    """

    holder: Any
    name: Any
    value: Any
    path: Path
    source: str
    readers: frozenset[int]

    @property
    def key(self) -> tuple[int, Any]:
        return id(self.holder), self.name

    @property
    def label(self) -> str:
        return f"`{label_of(self.path)}`"

    @property
    def is_item(self) -> bool:
        """Whether it is found by a key, under which there may be nothing."""
        return type(self.path[-1]) is not str

    def now(self) -> Any:
        """The value at this moment; the same object as before if it is an equal number
        or set of items."""
        holder, kind = self.holder, type(self.holder)
        if kind is CellType:
            return in_cell(holder)
        if kind not in CONTAINERS:
            return getattr(holder, self.name, MISSING)
        if self.name is LENGTH or self.name is EVERY:
            now = len(holder) if self.name is LENGTH else frozenset(holder)
            return self.value if now == self.value else now
        now = item(holder, self.name)
        if now is MISSING and self.path == (GLOBAL, self.name):
            return vars(builtins).get(self.name, MISSING)
        return now


def in_cell(cell: CellType) -> Any:
    """What a cell holds."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def item(holder: Any, key: Hashable) -> Any:
    """What a container has under a key or index. (None is made, as defaultdicts do.)"""
    if type(holder) in DICTS:
        return dict.get(holder, key, MISSING)
    try:
        return holder[key]
    except (TypeError, IndexError):
        return MISSING


def items(x: Any, path: Path, deep: int = 0) -> Iterator[tuple[Any, Any, Any, Path]]:
    """What all items of a container are, and of containers in it: each with holder,
    name, value and path."""
    kind = type(x)
    if kind not in CONTAINERS:
        return
    if kind is set and len(x) <= MOST_ITEMS:
        yield x, EVERY, frozenset(x), path
    elif kind is set:
        yield x, LENGTH, len(x), (*path, LENGTH)
    if kind in SETS:
        return
    if kind is not tuple:
        yield x, LENGTH, len(x), (*path, LENGTH)
    if len(x) > MOST_ITEMS:
        return
    for key, value in [*x.items()] if kind in DICTS else [*enumerate(x)]:
        on = (*path, Item(key))
        if kind is not tuple:
            yield x, key, value, on
        if deep < MOST_DEEP:
            yield from items(value, on, deep + 1)
