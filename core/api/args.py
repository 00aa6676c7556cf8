"""What the transforms share: arguments by number or name, checked leaves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from treadle import tree
from treadle.errors import at, user_source
from treadle.trace.value import is_array, typeof

Which = int | str | Sequence[int | str]


def name_of(function: Callable[..., Any]) -> str:
    """A function's name for messages and graphs."""
    return getattr(function, "__name__", None) or type(function).__name__


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None


def positions(function: Callable[..., Any], which: Which, what: str) -> tuple[set, set]:
    """The positions and names that `which` selects: each as both, where it has both.

    Raises:
      ValueError: if the function has no such argument.
      TypeError: if `which` holds something other than int and str.
    """
    items = (which,) if isinstance(which, int | str) else tuple(which)
    signature = signature_of(function)
    names = list(signature.parameters) if signature else []
    numbers: set[int] = set()
    chosen: set[str] = set()
    for item in items:
        if isinstance(item, str):
            if signature and item not in names and not _takes_any_name(signature):
                raise ValueError(
                    f"{what}={item!r}: {name_of(function)} has no argument of that "
                    f"name; its arguments are {', '.join(names) or '(none)'}"
                )
            chosen.add(item)
            if item in names:
                numbers.add(names.index(item))
        elif isinstance(item, int):
            numbers.add(item)
            if 0 <= item < len(names):
                chosen.add(names[item])
        else:
            raise TypeError(f"{what} takes positions and names, got {item!r}")
    return numbers, chosen


def _takes_any_name(signature: inspect.Signature) -> bool:
    kinds = [p.kind for p in signature.parameters.values()]
    return inspect.Parameter.VAR_KEYWORD in kinds


def check_leaf(leaf: Any, where: str) -> Any:
    """The leaf itself, if it can be traced.

    Raises:
      TypeError: naming the leaf's place and what to do.
    """
    if is_array(leaf) or isinstance(leaf, bool | int | float | complex):
        typeof(leaf)
        return leaf
    raise TypeError(
        f"{where} is a {type(leaf).__name__} ({leaf!r:.60}), not an array or a number"
        f"{at(user_source())}\n"
        "Pass values that are not arrays as static arguments: "
        "`td.jit(function, static=...)`."
    )


def check_leaves(function: Callable[..., Any], args: Any) -> None:
    """Checks every leaf of a function's arguments; errors name argument and path."""
    for path, leaf in tree.flatten_with_path(args)[0]:
        check_leaf(leaf, f"argument {tree.key_name(path)} of {name_of(function)}")
