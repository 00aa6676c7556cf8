"""Modules with names that are functions in other libraries: what is said of a call."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from treadle.errors import at, user_source

_MEANT = {
    "treadle.checkpoint": (
        "it saves and restores",
        "To compute values again in the backward pass, use `treadle.remat`.",
    ),
    "treadle.nn.field": (
        "what a layer's fields are",
        "Fields need no declaration: those that hold no arrays are static. `nn.Buffer` "
        "holds arrays\nthat are not trained, `nn.Param` those that are; give defaults "
        "and convert in `__init__`.",
    ),
    "treadle.nn.state": (
        "what a layer keeps between calls",
        "A module is the pytree of its arrays: `td.tree.leaves(module)`; "
        "`nn.partition(module, where)`\ntakes some of them out, `nn.stateful(module)` "
        "calls it and gives it back with its new state.",
    ),
}
"""What each module is for, and what takes the place of the function."""


class _Uncalled(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        purpose, remedy = _MEANT[self.__name__]
        raise TypeError(
            f"{self.__name__} is a module: {purpose}{at(user_source())}\n{remedy}"
        )


def mark(package: str) -> None:
    """From now on a call of a package, or of a module in it, says what to use."""
    for name in _MEANT:
        inside = package in (name, name.rpartition(".")[0])
        if inside and (module := sys.modules.get(name)):
            module.__class__ = _Uncalled
