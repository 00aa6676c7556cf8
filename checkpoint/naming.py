"""Pytrees as nested dicts and lists of numbered leaves: the form that goes to disk.

A *skeleton* is plain JSON: an object for a dict, namedtuple or module, a list for a
list or tuple, null for None, and the number of a leaf. The path to a leaf names it:
``("layers", "0", "weight")``, shown as ``layers.0.weight``.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from treadle import tree
from treadle.tree import LEAF, Attribute, Structure

Skeleton = dict[str, Any] | list[Any] | int | None


# Python's own containers.
PLAIN = (tuple, list, dict, OrderedDict, defaultdict)


class Step(NamedTuple):
    """One entry of a path: its text, and whether it is a position in a list."""

    text: str
    is_index: bool


Path = tuple[Step, ...]

# Orbax joins the entries of a path with dots and does not notice when two paths join to
# the same name; an empty entry would be no entry at all.
_ESCAPES = {"%": "%25", ".": "%2E", "/": "%2F"}


def escape(text: str) -> str:
    """A path entry without the characters that separate entries.

    >>> escape("layers.0"), escape("")
    ('layers%2E0', '%00')
    """
    return "".join(_ESCAPES.get(c, c) for c in text) or "%00"


def store_name(path: Path) -> str:
    """The name under which a leaf lies in the store; different for every path."""
    return ".".join(escape(step.text) for step in path)


def shown(path: Path) -> str:
    """The path as messages show it; an entry that would mislead stands in quotes.

    >>> shown((Step("a.b", False), Step("0", True)))
    "'a.b'.0"
    """
    return ".".join(_legible(step.text) for step in path) or "<root>"


def _legible(text: str) -> str:
    return text if text.isprintable() and text and "." not in text else repr(text)


def encode(value: Any) -> tuple[Skeleton, list[Any]]:
    """The skeleton of a pytree, and its leaves.

    Raises:
      TypeError: if a dict has keys that are neither strings nor integers.

    >>> encode({"b": 1.5, "a": (2, None)})
    ({'a': [0, None], 'b': 1}, [2, 1.5])
    """
    leaves, form = tree.flatten(value)
    return _skeleton(form, iter(range(len(leaves))), ()), leaves


def _skeleton(form: Structure, numbers: Iterator[int], path: tree.Path) -> Skeleton:
    if form is LEAF:
        return next(numbers)
    if form.kind is type(None):
        return None
    count = len(form.children)
    level = Structure(form.kind, form.aux, (LEAF,) * count)
    keys = [key for (key,) in tree.paths(level)]
    children = [
        _skeleton(child, numbers, (*path, key))
        for key, child in zip(keys, form.children, strict=True)
    ]
    if form.kind in (list, tuple) or (
        form.kind is not dict and keys and keys == list(range(count))
    ):
        return children
    # A field that is None is no part of what was saved, unlike a None in a dict.
    keep = form.kind in PLAIN or is_namedtuple(form.kind)
    return {
        _text(key, path): child
        for key, child in zip(keys, children, strict=True)
        if keep or child is not None
    }


def is_namedtuple(kind: Any) -> bool:
    """Whether a class is one of named tuples, whose fields are not registered."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _text(key: Any, path: tree.Path) -> str:
    if isinstance(key, Attribute):
        return key.name
    if isinstance(key, str):
        return str(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise TypeError(
        f"cannot save the dict at {tree.key_name(path)}: its key {key!r} is a "
        f"{type(key).__name__}; use strings or integers as keys"
    )


def decode(skeleton: Skeleton, leaves: Sequence[Any] | Mapping[int, Any]) -> Any:
    """Nested dicts and lists with the leaves in their places.

    Where names stand in another order than that of a dict's leaves (a module's fields,
    integers), it is an OrderedDict: its leaves come in the order of what was saved.

    >>> decode({"a": [0, None], "b": 1}, [2, 1.5])
    {'a': [2, None], 'b': 1.5}
    """
    if isinstance(skeleton, dict):
        made = {key: decode(child, leaves) for key, child in skeleton.items()}
        return made if list(made) == sorted(made) else OrderedDict(made)
    if isinstance(skeleton, list):
        return [decode(child, leaves) for child in skeleton]
    return None if skeleton is None else leaves[skeleton]


def part(skeleton: Skeleton, numbers: Set[int]) -> Skeleton:
    """The skeleton with some of its leaves, and without what is empty then.

    >>> part({"a": [0, 1, 2], "b": 3}, {0, 2})
    {'a': {'0': 0, '2': 2}}
    """
    if isinstance(skeleton, list):
        kept = {str(i): part(child, numbers) for i, child in enumerate(skeleton)}
        found = {key: child for key, child in kept.items() if child is not None}
        return list(found.values()) if len(found) == len(kept) else found or None
    if isinstance(skeleton, dict):
        named = {key: part(child, numbers) for key, child in skeleton.items()}
        return {k: child for k, child in named.items() if child is not None} or None
    return skeleton if skeleton in numbers else None


def endings(skeleton: Skeleton, path: Path = ()) -> Iterator[tuple[Path, Skeleton]]:
    """Where the skeleton ends: at leaves (in their order), None and empty containers.

    >>> [(shown(p), end) for p, end in endings({"a": [0, None], "b": {}})]
    [('a.0', 0), ('a.1', None), ('b', {})]
    """
    if isinstance(skeleton, dict) and skeleton:
        for key, child in skeleton.items():
            yield from endings(child, (*path, Step(key, False)))
    elif isinstance(skeleton, list) and skeleton:
        for index, child in enumerate(skeleton):
            yield from endings(child, (*path, Step(str(index), True)))
    else:
        yield path, skeleton


def leaf_paths(skeleton: Skeleton) -> list[Path]:
    """The path of each leaf, by number."""
    return [path for path, end in endings(skeleton) if isinstance(end, int)]
