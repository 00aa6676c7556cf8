"""Functions that change their arguments: an error, because they only get a copy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from treadle import tree
from treadle.api.args import argument, name_of
from treadle.errors import MutationError, at, is_ours

_MUTATED = (
    "{name} changed its {place}: a function that is transformed gets a copy, so the "
    "caller's {kind} would stay as it was{at}\n"
    "Make a new one and return it: `{{**d, 'key': value}}` for a dict, `[*items, "
    "value]` for a list."
)

Arrange = Callable[[Any], tuple[Sequence[Any], dict[str, Any]]]


def call_pure(
    function: Callable[..., Any],
    form: tree.Structure,
    leaves: Sequence[Any],
    arrange: Arrange = lambda given: given,
    skip: int = 1,
) -> Any:
    """Calls a function with the pytrees that leaves stand for.

    Args:
      arrange: from the pytree to the function's arguments, (args, kwargs).
      skip: how many path entries come before the argument: 1 in (args, kwargs), 0 in a
        tuple of arguments.

    Raises:
      MutationError: if a list, dict or other container among the arguments has changed;
        it names the line.
    """
    given = form.unflatten(leaves)
    args, kwargs = arrange(given)
    try:
        out = function(*args, **kwargs)
    except (TypeError, AttributeError) as error:
        for note in _lists(function, form.children[0] if skip else form):
            error.add_note(note)
        raise
    changed = _changed(given, form, leaves)
    if changed is None:
        return out
    place = argument(function, changed[skip:]).removesuffix(f" of {name_of(function)}")
    raise MutationError(
        _MUTATED.format(
            name=name_of(function),
            place=place,
            kind=type(_inside(given, changed[: skip + 1])).__name__,
            at=at(_line_of_change(function, form, leaves, arrange)),
        )
    )


def _lists(function: Callable[..., Any], positional: tree.Structure) -> list[str]:
    """What to say about arguments that are lists of numbers."""
    return [
        f"{argument(function, (i,))} is a list of {part.count} values: to transforms, "
        "a pytree of as many arrays. Make one array of it: `tnp.array(...)`."
        for i, part in enumerate(positional.children)
        if part.kind in (list, tuple) and all(c is tree.LEAF for c in part.children)
    ]


def _changed(
    given: Any, form: tree.Structure, leaves: Sequence[Any]
) -> tree.Path | None:
    """The path of what is no longer what it was, None if all is."""
    found, now = tree.flatten(given)
    if now == form:
        for i, (a, b) in enumerate(zip(found, leaves, strict=True)):
            if a is not b:
                return tree.paths(form)[i]
        return None
    before, after = set(tree.paths(form)), set(tree.paths(now))
    return min(before ^ after or before, key=str, default=(0, 0))


def _inside(given: Any, path: tree.Path) -> Any:
    for key in path:
        given = given[key]
    return given


def _line_of_change(
    function: Callable[..., Any],
    form: tree.Structure,
    leaves: Sequence[Any],
    arrange: Arrange,
) -> str:
    """The user's line after which the arguments are different, by running the function
    once more under a line trace."""
    given = form.unflatten(leaves)
    args, kwargs = arrange(given)
    line = found = ""

    def watch(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal line, found
        if is_ours(frame.f_code.co_filename):
            return None
        if not found and _changed(given, form, leaves) is not None:
            found = line
        line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return watch

    previous = sys.gettrace()
    sys.settrace(watch)
    try:
        with suppress(Exception):
            function(*args, **kwargs)
    finally:
        sys.settrace(previous)
    return found
