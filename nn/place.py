"""Where a layer stands: what a Module computes has the name of its place in the Module
that calls it, ``encoder.layers[2].attention``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from treadle import tree
from treadle.nn.field import Part, parts_of
from treadle.scopes import current, joined


class _Running:
    """A module whose call runs now."""

    __slots__ = ("module", "places")

    def __init__(self, module: Any) -> None:
        self.module = module
        self.places: dict[int, tree.Path] | None = None

    def name_of(self, part: Any) -> str:
        """The place of a module in this one; its class, if it is not part of it: what
        `vmap` or `scan` make of stacked layers are other objects."""
        places = self.places
        if places is None:
            places = self.places = {id(x): path for path, x in _parts(self.module)}
        path = places.get(id(part))
        if path is None:
            path = _deeper(self.module, part)
            if path is None:
                return type(part).__name__
            places[id(part)] = path
        return tree.key_name(path).lstrip(".")


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
    """The `__call__` of a Module, which names what it computes by its place."""

    @wraps(call)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        around, path = current.layer, current.path
        if around is not None:
            if around.module is self:  # `super().__call__`
                return call(self, *args, **kwargs)
            current.path = joined(path, around.name_of(self))
        current.layer = _Running(self)
        try:
            return call(self, *args, **kwargs)
        finally:
            current.layer, current.path = around, path

    return __call__
