"""The folders of steps: their names, and which there are."""

from __future__ import annotations

import operator
import os
import re
from typing import Any

from treadle.checkpoint import orbax_format, places

_LENGTH = "step_format_fixed_length"


class Steps:
    """The steps in a folder. Names are those of Orbax's options: "ckpt" and 4 name
    step 7 ``ckpt_0007``."""

    def __init__(self, directory: str, prefix: str | None, length: int | None) -> None:
        self.directory = directory
        self._digits = 1 if length is None else whole(_LENGTH, length, least=1)
        self._prefix = "" if prefix is None else f"{prefix}_"
        if prefix == "" or os.path.basename(self._prefix) != self._prefix:
            raise ValueError(f"step_prefix is part of a name, not {prefix!r}")

    def path(self, step: int) -> str:
        """The folder of a step."""
        name = self.folders().get(step, self._name(step))
        return os.path.join(self.directory, name)

    def _name(self, step: int) -> str:
        return f"{self._prefix}{step:0{self._digits}}"

    def folders(self) -> dict[int, str]:
        """The names of the folders that are steps."""
        found: dict[int, str] = {}
        for name in names_in(self.directory):
            if not re.fullmatch(f"{re.escape(self._prefix)}[0-9]+", name):
                continue
            step = int(name.removeprefix(self._prefix))
            # Of two folders for one step, the one that a save would write counts.
            if (step not in found or name == self._name(step)) and (
                orbax_format.is_checkpoint(os.path.join(self.directory, name))
            ):
                found[step] = name
        return found

    def hint(self) -> str:
        """What to do if there are steps, but under names with a prefix."""
        for name in names_in(self.directory):
            named = re.fullmatch(r"(.+)_[0-9]+", name)
            path = os.path.join(self.directory, name)
            if named and not self._prefix and orbax_format.is_checkpoint(path):
                return f"; for {name!r} use Manager(…, step_prefix={named[1]!r})"
        return ""


def names_in(directory: str) -> list[str]:
    """What is in a folder; nothing if it isn't there."""
    try:
        return places.names(directory)
    except FileNotFoundError:
        return []


def whole(name: str, value: Any, least: int) -> int:
    """A number of steps or checkpoints, of any type that counts.

    Raises:
      ValueError: if it is none.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise ValueError(
            f"{name} is a whole number and at least {least}, not {value!r}"
        ) from None
    return number
