"""How trees correspond: what stands at the leaves of another, and where two differ."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from treadle.errors import StructureError, at, user_source
from treadle.structure import (
    LEAF,
    Path,
    Structure,
    key_name,
    name_of_kind,
    node_of,
    top_level,
)

_DEEP = 200
"""Levels from which on a tree, and not what calls us, uses up Python's frames."""


def flatten_up_to(form: Structure, tree: Any, none: bool = False) -> list[Any]:
    """The subtrees of `tree` that stand at the leaves of `form`.

    Args:
      none: whether a None in `tree` may stand for all leaves of a subtree of `form`.
    """
    out: list[Any] = []
    _match(form, tree, (), out, none)
    return out


def difference(first: Structure, second: Structure, path: Path = ()) -> str:
    """Where two structures first differ, and how; an empty string if they are equal.

    >>> from treadle.tree import structure
    >>> difference(structure({"a": (1, 2)}), structure({"a": 1}))
    "at ['a']: tuple against a leaf"
    """
    place = f"at {key_name(path)}: "
    if first.kind is not second.kind:
        kinds = ["a leaf" if s is LEAF else s.name for s in (first, second)]
        return place + " against ".join(kinds)
    if first.aux != second.aux:
        return place + f"static {first.aux!r} against {second.aux!r}"
    if len(first.children) != len(second.children):
        return place + f"{len(first.children)} entries against {len(second.children)}"
    if first is LEAF or first.is_none:
        return ""
    for key, a, b in zip(first.keys(), first.children, second.children, strict=True):
        found = difference(a, b, (*path, key))
        if found:
            return found
    return ""


def _match(form: Structure, tree: Any, path: Path, out: list[Any], none: bool) -> None:
    if form is LEAF or (none and tree is None):
        out += [tree] * form.count
        return
    if form.is_none:
        if tree is not None:
            raise StructureError(f"at {key_name(path)}: expected None, found {tree!r}")
        return
    if type(tree) is not form.kind:
        error = StructureError(
            f"at {key_name(path)}: expected {form.name}, "
            f"found {name_of_kind(type(tree))}"
        )
        if tree is not None and node_of(type(tree)) is None:
            error.container = form.kind
        raise error
    children, aux = top_level(tree)
    if aux != form.aux or len(children) != len(form.children):
        raise StructureError(
            f"at {key_name(path)}: two {form.name} differ: {_unlike(form, tree)}"
        )
    for key, sub, child in zip(form.keys(), form.children, children, strict=True):
        _match(sub, child, (*path, key), out, none)


def _unlike(form: Structure, tree: Any) -> str:
    """How the top of a tree differs from a structure of its class."""
    children, aux = top_level(tree)
    if isinstance(tree, dict):
        known = form.keys()
        lacks = [repr(k) for k in known if k not in tree]
        more = [repr(k) for k in tree if k not in known]
        words = [f"{', '.join(lacks)} is missing"] * bool(lacks)
        words += [f"{', '.join(more)} is too much"] * bool(more)
        return "; ".join(words) or "their keys have another order, or default"
    if len(children) != len(form.children):
        return f"expected {len(form.children)} entries, found {len(children)}"
    return f"static {form.aux!r} against {aux!r}"


def endless(tree: Any) -> StructureError | None:
    """What is wrong with a tree that takes more frames than Python has; None if nothing
    is, and others have used them up."""
    above: list[Any] = []
    waiting: list[Iterator[Any]] = [iter([tree])]
    while waiting:
        for child in waiting[-1]:
            if child is not None and node_of(type(child)) is not None:
                break
        else:
            waiting.pop()
            del above[-1:]
            continue
        kind = name_of_kind(type(child))
        if any([child is one for one in above]):
            return StructureError(
                f"a {kind} holds itself{at(user_source())}\nPytrees are finite: each "
                "container is flattened with all that is inside of it."
            )
        above.append(child)
        waiting.append(iter(top_level(child)[0]))
        if len(above) > _DEEP:
            return StructureError(
                f"a pytree has too many levels: {kind} in {kind}, hundreds of them. "
                f"Python has {sys.getrecursionlimit()} frames, and each level takes "
                f"one{at(user_source())}\nKeep what is alike side by side in one list, "
                "or stack it in one array: `tnp.stack`."
            )
    return None
