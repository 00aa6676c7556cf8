"""Named axes: which of them are mapped around the code that runs now."""

from __future__ import annotations

from typing import Any, NamedTuple

from treadle.trace.interpreter import state


class MappedAxis(NamedTuple):
    """An axis along which a function of one member becomes one of many.

    name: by which operations speak of the other members; None if they can't.
    """

    name: str | None
    size: int


def axes_in_scope() -> dict[str, MappedAxis]:
    """The axes with names that are mapped here, the innermost first."""
    found: dict[str, MappedAxis] = {}
    interpreter: Any = state.interpreter
    while interpreter is not None:
        axis = getattr(interpreter, "axis", None)
        if axis is not None and axis.name is not None:
            found.setdefault(axis.name, axis)
        interpreter = getattr(interpreter, "parent", None)
    return found
