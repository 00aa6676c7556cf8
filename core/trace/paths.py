"""Paths: where a variable is, and the way on from it, through attributes and items."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

Path = tuple[Any, ...]
"""Where a variable is (`GLOBAL`, `CELL`, `LOCAL`, or the imported `MODULE`), its name,
then steps: names of attributes, `Item`, `At`, `EVERY` or `LENGTH` of containers, and
`RESULT` of what is called."""

GLOBAL, CELL, LOCAL, MODULE = "global", "cell", "local", "module"
NAMESPACE = "globals()"
"""The name under which a module has its dict of global variables."""


class Item(NamedTuple):
    """An item with a key or index that stands in the code, there or not."""

    key: Hashable


class At(NamedTuple):
    """An item whose key is a variable; or the attribute that has its name."""

    path: Path
    attribute: bool = False


class _Whole(NamedTuple):
    name: str


EVERY, LENGTH = _Whole("every item"), _Whole("the number of items")
RESULT = _Whole("what a call without arguments that matter gives")
BYTES = _Whole("the numbers of an array")
CONTEXT = _Whole("the value of a context variable")


def label_of(path: Path) -> str:
    """A path as it is written."""
    text = path[1]
    for step in path[2:]:
        if type(step) is Item:
            text += f"[{step.key!r}]"
        elif type(step) is At:
            inner = label_of(step.path)
            text = f"getattr({text}, {inner})" if step.attribute else f"{text}[{inner}]"
        elif step is LENGTH:
            text = f"len({text})"
        elif step is RESULT:
            text += "()"
        elif step is CONTEXT:
            text += ".get()"
        elif step is not EVERY and step is not BYTES:
            text += f".{step}"
    return text
