"""How pytrees like a given one are read: which types to find, where the leaves are.

A jitted function is called with the same structure again and again. `reading` writes
down once how to get at the leaves of such a tree, as plain data that a backend turns
into native code: what is compared are addresses of types and of static values, so that
a tree that reads alike has the structure of the first. A tree that does not may have
it all the same (equal static values that are two objects, say).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from treadle.structure import BUILT_IN, Structure, node_of


class Leaf(NamedTuple):
    """A leaf of any kind."""


class Same(NamedTuple):
    """This very object."""

    value: Any


class Static(NamedTuple):
    """This very object, with the hash that it had: a static argument, which may have
    been changed in place."""

    value: Hashable
    hash: int


class Items(NamedTuple):
    """A list or tuple of exactly this class and length, and what to read of it by
    position."""

    kind: type
    size: int
    children: tuple[tuple[Any, Reading], ...]


class Entries(NamedTuple):
    """A dict with as many entries, and what to read of it by key."""

    size: int
    children: tuple[tuple[Hashable, Reading], ...]


class Fields(NamedTuple):
    """An instance whose slots hold these very objects, and what to read in its
    ``__dict__``."""

    kind: type
    slots: tuple[tuple[str, Any], ...]
    children: tuple[tuple[Hashable, Reading], ...]


class Held(NamedTuple):
    """An instance that was not opened: a slot holds the list of its leaves and their
    structure."""

    kind: type
    slot: str
    form: Structure


class Parts(NamedTuple):
    """An instance of a registered class, read by what it was registered with: a static
    part, which is equal, and children."""

    kind: type
    flatten: Callable[[Any], Any]
    aux: Static
    children: Items


class Skip(NamedTuple):
    """In place of a reading: a child that is not looked at, as the rest says what it
    is."""


Reading = Leaf | Same | Static | Items | Entries | Fields | Held | Parts
LEAF = Leaf()


class Unreadable(Exception):
    """There is no such description."""


def reading(tree: Any) -> Reading:
    """How to read trees like this one; leaves come in `treadle.tree.flatten`'s order.

    Raises:
      Unreadable: for a Module that is being made, and for classes registered with
        children that are no list or tuple.

    >>> reading((1.0, None))
    Items(kind=<class 'tuple'>, size=2, children=((0, Leaf()), (1, Same(value=None))))
    """
    if tree is None:
        return Same(None)
    kind = type(tree)
    node = node_of(kind)
    if node is None:
        return LEAF
    if node is BUILT_IN.get(kind):
        if kind is dict:
            return Entries(len(tree), all_of((k, tree[k]) for k in sorted(tree)))
        return Items(kind, len(tree), all_of(enumerate(tree)))
    if node.read is not None:
        return node.read(tree)
    children, aux = node.flatten(tree)
    if not isinstance(children, list | tuple):
        raise Unreadable
    items = Items(type(children), len(children), all_of(enumerate(children)))
    return Parts(kind, node.flatten, Static(aux, hash(aux)), items)


def all_of(children: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Reading], ...]:
    """The readings of those children that are looked at, each with its key."""
    readings: list[tuple[Any, Any]] = [(key, reading(child)) for key, child in children]
    return tuple([(key, how) for key, how in readings if type(how) is not Skip])


Reader = Callable[[Any, list[Any]], bool]
"""Appends the leaves of a tree to a list; whether the tree reads as it should."""


def reader(how: Reading) -> Reader:
    """A reading as a function of Python's, for where no native code reads.

    >>> found = []
    >>> reader(reading((1.0, None)))((2.0, None), found), found
    (True, [2.0])
    """
    match how:
        case Leaf():
            return _leaf
        case Same(value):
            return lambda tree, out: tree is value
        case Static(value, known):
            return lambda tree, out: tree is value and hash(tree) == known
        case Items(kind, size, children):
            return _items(kind, size, children)
        case Entries(size, children):
            values = _values(children)
            return lambda tree, out: (
                type(tree) is dict and len(tree) == size and values(tree, out)
            )
        case Fields(kind, slots, children):
            return _fields(kind, slots, _values(children))
        case Held(kind, slot, form):
            return _held(kind, slot, form)
    return _parts(how)


def _leaf(tree: Any, out: list[Any]) -> bool:
    out.append(tree)
    return True


def _items(kind: Any, size: int, children: tuple[tuple[Any, Reading], ...]) -> Reader:
    if children == tuple([(i, LEAF) for i in range(size)]):

        def read(tree: Any, out: list[Any]) -> bool:
            if type(tree) is not kind or len(tree) != size:
                return False
            out += tree
            return True

        return read
    values = _values(children)
    return lambda tree, out: (
        type(tree) is kind and len(tree) == size and values(tree, out)
    )


def _values(children: tuple[tuple[Any, Reading], ...]) -> Reader:
    parts = [(key, reader(child)) for key, child in children]

    def read(tree: Any, out: list[Any]) -> bool:
        for key, part in parts:
            try:
                child = tree[key]
            except LookupError:
                return False
            if not part(child, out):
                return False
        return True

    return read


def _fields(kind: type, slots: tuple[tuple[str, Any], ...], values: Reader) -> Reader:
    def read(tree: Any, out: list[Any]) -> bool:
        if type(tree) is not kind:
            return False
        for name, value in slots:
            if getattr(tree, name) is not value:
                return False
        return values(tree.__dict__, out)

    return read


def _held(kind: type, slot: str, form: Structure) -> Reader:
    def read(tree: Any, out: list[Any]) -> bool:
        pair = getattr(tree, slot) if type(tree) is kind else None
        if pair is None or pair[1] != form:
            return False
        out += pair[0]
        return True

    return read


def _parts(how: Parts) -> Reader:
    children = reader(how.children)

    def read(tree: Any, out: list[Any]) -> bool:
        if type(tree) is not how.kind:
            return False
        found, aux = how.flatten(tree)
        same = hash(aux) == how.aux.hash and aux == how.aux.value
        return same and children(found, out)

    return read
