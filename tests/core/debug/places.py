"""Places where a careless program keeps values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

kept: list[Any] = []


class Keeper:
    last: Any = None

    def __init__(self) -> None:
        self.value: Any = None


class Slotted:
    __slots__ = ("value",)


keeper, slotted = Keeper(), Slotted()


def closing() -> Callable[[Any], None]:
    found: Any = None

    def store(x: Any) -> None:
        nonlocal found
        found = {"a": x}

    return store


store = closing()
