"""Variables from outside of a function: what holds each, and its value then and now."""

from __future__ import annotations

import builtins
from array import array
from collections import deque
from collections.abc import Hashable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from types import CellType, MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from treadle.trace.paths import (
    BYTES,
    CONTEXT,
    EVERY,
    GLOBAL,
    LENGTH,
    Item,
    Path,
    label_of,
)

MOST_ITEMS = 64
"""Of a container all of whose items are read: of a larger one, only their number is
looked at."""

MOST_DEEP = 4
"""Containers within such containers."""

MOST_BYTES = 1 << 12
"""Of an array: of a larger one, numbers at equal distances are looked at."""

BUFFERS = (np.ndarray, bytearray, array, memoryview)


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Any = _Missing()
"""The value of a variable that has none."""


def container(kind: type) -> str:
    """How the objects of a class hold items: as a "dict", "row", "set", or a "proxy" of
    a dict; "" if they hold none, or in a way of the user's own."""
    known: Hashable = kind  # (to type checkers, a class may have a hash of its own)
    return _container(known)


@lru_cache(maxsize=4096)
def _container(kind: Any) -> str:
    if kind is MappingProxyType:
        return "proxy"
    for name, methods, bases in _CONTAINERS:
        for base in bases:
            if issubclass(kind, base):
                own = [getattr(kind, n) is getattr(base, n) for n in methods]
                return name if all(own) else ""
    return ""


_CONTAINERS = (
    ("dict", ("__getitem__",), (dict,)),
    ("row", ("__getitem__", "__iter__"), (list, tuple, deque)),
    ("set", ("__contains__", "__iter__"), (set, frozenset)),
)


class Variable(NamedTuple):
    """A variable from outside of a function, and its value when that was traced.

    holder: a cell, an object with the attribute `name`, or a container with that key or
      index; `LENGTH` stands for the number of its items, `EVERY` for those of a set,
      `BYTES` for the numbers of an array, `CONTEXT` for what a context variable is.
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
        label = f"`{label_of(self.path)}`"
        return f"the numbers of {label}" if self.name is BYTES else label

    @property
    def is_item(self) -> bool:
        """Whether it is found by a key."""
        kind: type = type(self.holder)
        return bool(container(kind))

    def now(self) -> Any:
        """The value at this moment; the same object as before if it is an equal number
        or set of items."""
        holder, name = self.holder, self.name
        if type(name) is not str and name in _COMPARED:
            now = _COMPARED[name](holder)
            return self.value if now == self.value else now
        kind: type = type(holder)
        if kind is CellType:
            return in_cell(holder)
        if name is CONTEXT:
            return in_context(holder)
        if not container(kind):
            return getattr(holder, name, MISSING)
        now = item(holder, name)
        if now is MISSING and self.path == (GLOBAL, name):
            return vars(builtins).get(name, MISSING)
        return now


def in_cell(cell: CellType) -> Any:
    """What a cell holds."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def in_context(variable: ContextVar[Any]) -> Any:
    """What a context variable is."""
    try:
        return variable.get()
    except LookupError:
        return MISSING


def item(holder: Any, key: Hashable) -> Any:
    """What a container has under a key or index. (None is made, as defaultdicts do.)"""
    if isinstance(holder, dict):
        return dict.get(holder, key, MISSING)
    try:
        return holder[key]
    except (TypeError, LookupError):
        return MISSING


def items(x: Any, path: Path, deep: int = 0) -> Iterator[tuple[Any, Any, Any, Path]]:
    """What all items of a container are, and of containers in it: each with holder,
    name, value and path."""
    of: type = type(x)
    kind = container(of)
    if not kind:
        return
    if kind == "set":
        if not isinstance(x, frozenset):
            few = len(x) <= MOST_ITEMS
            at, value = (EVERY, frozenset(x)) if few else (LENGTH, len(x))
            yield x, at, value, (*path, at)
        return
    fixed = isinstance(x, tuple)
    if not fixed:
        yield x, LENGTH, len(x), (*path, LENGTH)
    if len(x) > MOST_ITEMS:
        return
    for key, value in [*enumerate(x)] if kind == "row" else [*x.items()]:
        on = (*path, Item(key))
        if not fixed:
            yield x, key, value, on
        if deep < MOST_DEEP:
            yield from items(value, on, deep + 1)


def sample(x: Any) -> Any:
    """What is looked at of an array: all of it, or numbers at equal distances."""
    if not isinstance(x, np.ndarray) or x.nbytes <= MOST_BYTES:
        return x
    steps, left = [], -(-x.nbytes // MOST_BYTES)
    for n in x.shape:
        step = min(left, max(n, 1))
        left = -(-left // step)
        steps.append(slice(None, None, step))
    return x[tuple(steps)]


def numbers_of(x: Any) -> bytes:
    """The bytes of what is looked at of an array."""
    return bytes(x) if isinstance(x, bytearray) else sample(x).tobytes()


_COMPARED: dict[Any, Any] = {LENGTH: len, EVERY: frozenset, BYTES: numbers_of}
COMPARED = frozenset(_COMPARED)
"""Names of what is compared as equal or not, and not by identity."""
