"""Where a layer stands: what a Module computes has the name of its place in the Module
that calls it, ``encoder.layers[2].attention``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from treadle import tree
from treadle.nn.check import floats_as
from treadle.nn.field import Part, parts_of
from treadle.scopes import current, joined


def _name_of(part: Any, module: Any) -> str:
    """The place of a module in another one, or that of the only part like it: what
    `vmap` or `scan` make of stacked layers are other objects. Else its class."""
    # Most layers are fields, or in a list that is one: each call asks.
    for name, value in module.__dict__.items():
        if value is part:
            return name
        if type(value) is list or type(value) is tuple:
            for i, item in enumerate(value):
                if item is part:
                    return f"{name}[{i}]"
    path = _deeper(module, part) or _only_like(module, part)
    return type(part).__name__ if path is None else tree.key_name(path).lstrip(".")


def _only_like(module: Any, wanted: Any) -> tree.Path | None:
    """The place of the part that has the class and static fields of a module."""
    like = [
        path
        for path, part in _parts(module)
        if type(part) is type(wanted) and part._layout is wanted._layout
    ]
    return like[0] if len(like) == 1 else None


def _parts(module: Any) -> list[Part]:
    """The modules that a module holds itself, with their paths."""
    layout = module._layout
    if layout is None or module._held is not None:
        return []
    return list(parts_of(module.__dict__, layout.children))


def _deeper(module: Any, wanted: Any) -> tree.Path | None:
    """The place of a module anywhere inside of another one."""
    waiting: list[Part] = [((), module)]
    while waiting:
        path, found = waiting.pop()
        if found is wanted:
            return path
        if hasattr(type(found), "_may_be_lazy"):
            waiting += [((*path, *place), part) for place, part in _parts(found)]
    return None


def in_place(call: Callable[..., Any]) -> Callable[..., Any]:
    """The `__call__` of a Module, which names what it computes by its place, and gives
    it in the module's `output_dtype` if it has one."""

    @wraps(call)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        place = current.place
        around, path = place.layer, place.path
        if around is self:  # `super().__call__`
            return call(self, *args, **kwargs)
        if around is not None:
            place.path = joined(path, _name_of(self, around))
        place.layer = self
        try:
            output = call(self, *args, **kwargs)
            dtype = self.__dict__.get("output_dtype")
            if dtype is not None:
                output = floats_as(output, dtype)
            if place.watch is None:
                return output
            return place.watch(self, args, kwargs, output)
        finally:
            place.layer, place.path = around, path

    return __call__
