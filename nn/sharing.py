"""What stands in two places of a module, and stays one.

The layout of the smallest module that holds both places has a *tie*: the paths of the
first place and of another one. Flattening such a module leaves the other place empty,
so a leaf is there once; unflattening puts what the first place holds into the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from treadle import tree
from treadle.reading import Skip

Tie = tuple[tree.Path, tree.Path]
MISSING = object()
"""In place of what is nowhere."""


class _Skipped:
    """In the other place of a tie, where a reader need not look."""


SKIPPED = _Skipped()
tree.register(
    _Skipped, lambda x: ((), None), lambda aux, c: SKIPPED, read=lambda x: Skip()
)


def cut(fields: dict[str, Any], ties: Iterable[Tie], filler: Any) -> dict[str, Any]:
    """A module's fields with a filler in the other place of each tie."""
    fields = dict(fields)
    for _, other in ties:
        _set(fields, other, filler)
    return fields


def tied(fields: dict[str, Any], ties: Iterable[Tie]) -> dict[str, Any]:
    """A module's fields with the same object in both places of each tie."""
    fields = dict(fields)
    for first, other in ties:
        found = at_place(fields, first)
        if found is not MISSING:
            _set(fields, other, found)
    return fields


def at_place(fields: dict[str, Any], path: tree.Path) -> Any:
    """What stands at a place among a module's fields, or `MISSING`."""
    return get(fields[path[0].name], path[1:])  # type: ignore[attr-defined]


def _set(fields: dict[str, Any], path: tree.Path, value: Any) -> None:
    # What a transformation made may lack the place.
    if at_place(fields, path) is not MISSING:
        name = path[0].name  # type: ignore[attr-defined]
        fields[name] = put(fields[name], path[1:], value)


def get(node: Any, path: Sequence[Any]) -> Any:
    """What stands at a place, or `MISSING`."""
    for key in path:
        try:
            if isinstance(key, tree.Attribute):
                node = getattr(node, key.name)
            else:
                node = node[key]
        except (AttributeError, LookupError, TypeError):
            return MISSING
    return node


def put(node: Any, path: Sequence[Any], value: Any) -> Any:
    """A copy with another value at a place, and the layouts that there were."""
    if not path:
        return value
    key, *rest = path
    if is_module(node):
        made = node._copied()
        made.__dict__[key.name] = put(made.__dict__[key.name], rest, value)
        return made
    if type(node) is dict:
        return node | {key: put(node[key], rest, value)}
    if type(node) in (list, tuple):
        return type(node)(
            [put(x, rest, value) if i == key else x for i, x in enumerate(node)]
        )
    parts, form = tree.flatten(node, is_leaf=lambda x: x is not node)
    keys = [path[0] for path in tree.paths(form)]
    return form.unflatten(
        [
            put(x, rest, value) if k == key else x
            for k, x in zip(keys, parts, strict=True)
        ]
    )


def is_module(node: Any) -> bool:
    """Whether it is a Module (of whose class this file knows nothing)."""
    return hasattr(type(node), "_may_be_lazy")
