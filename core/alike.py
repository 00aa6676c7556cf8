"""Functions that are made anew and do the same.

One of them stands for all in a model: built again with ``activation=lambda x: ...`` it
has the structure that it had, and what was compiled for it serves again. And a jitted
function that reads a variable is not traced again where that is bound to another one.

Functions do the same that have equal code and refer to the same. What they refer to
counts by identity, but for numbers, strings, tuples of them, and functions in turn.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from types import FunctionType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

_known: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
NUMBERS = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)
_EMPTY = object()


def alike(a: Any, b: Any) -> bool:
    """Whether a function that is traced again would find the same in one object as in
    the other. (What can change in place is only like itself.)"""
    return a is b or (type(a) is type(b) and _part(a, ()) == _part(b, ()))


def representative(value: Any) -> Any:
    """The first of the functions (or `functools.partial` of such) that do what this one
    does; other values are their own. It is looked at when the module is made."""
    if type(value) is FunctionType:
        # A function of a module is made once.
        if value.__globals__.get(value.__name__) is value:
            return value
    elif type(value) is not partial:
        return value
    key = _key(value, ())
    if key is None:
        return value
    found = _known.get(key)
    # Keys hold identities, which may have been given to others since.
    if found is None or _key(found, ()) != key:
        _known[key] = found = value
    return found


def _key(value: Any, around: tuple[int, ...]) -> Hashable | None:
    """Equal for functions that do the same, while both are alive; None for what is no
    such function. around: the functions that refer to it."""
    if id(value) in around:
        return around.index(id(value))
    around = (*around, id(value))
    if type(value) is partial and not vars(value):
        function, *args = _parts((value.func, *value.args), around)
        return partial, function, *args, *_named(value.keywords, around)
    if type(value) is not FunctionType:
        return None
    cells = tuple([_content(cell) for cell in value.__closure__ or ()])
    return (
        value.__code__,
        id(value.__globals__),
        value.__qualname__,
        _parts(value.__defaults__ or (), around),
        _named(value.__kwdefaults__ or {}, around),
        _parts(cells, around),
        _named(vars(value), around) if vars(value) else (),
    )


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _named(values: dict[str, Any], around: tuple[int, ...]) -> tuple[Hashable, ...]:
    return tuple(values), _parts(tuple(values.values()), around)


def _parts(values: tuple, around: tuple[int, ...]) -> tuple[Hashable, ...]:
    return tuple([_part(value, around) for value in values])


def _part(value: Any, around: tuple[int, ...]) -> Hashable:
    kind = type(value)
    if isinstance(value, NUMBERS):
        # 1.0 and 1 are equal, and so are 0.0 and -0.0; NaN is not.
        return kind, repr(value)
    if kind is tuple:
        return kind, _parts(value, around)
    if kind in (FunctionType, partial):
        found = _key(value, around)
        return id(value) if found is None else (kind, found)
    return id(value)
