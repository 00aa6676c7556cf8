"""A recipe's options: the fields of a dataclass, with help and limits."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from treadle.recipes.errors import UsageError, option_text, unknown


def option(
    default: Any, help: str, *, least: float | None = None, below: float | None = None
) -> Any:
    """A field of an options dataclass.

    Args:
      help: what `treadle train NAME --help` says about it.
      least: the smallest value.
      below: what the value must be smaller than.
    """
    limits = {"least": least, "below": below}
    return dataclasses.field(default=default, metadata={"help": help} | limits)


MOST_STEPS = 2**31  # The step is an int32 in the compiled function.


@dataclass(frozen=True)
class Training:
    """The options that all recipes have."""

    steps: int = option(1000, "how many updates to make", least=1, below=MOST_STEPS)
    batch_size: int = option(128, "examples per update", least=1)
    learning_rate: float = option(
        1e-3, "the peak, after a warm-up; then it falls to a tenth", least=0
    )
    weight_decay: float = option(0.01, "how fast unused weights shrink", least=0)
    seed: int = option(0, "other numbers give other runs", least=0, below=2**64)
    log_every: int = option(10, "steps between rows of metrics.jsonl", least=1)
    checkpoint_every: int = option(
        250, "steps between checkpoints, each with a test", least=1
    )
    keep: int = option(3, "checkpoints to keep, besides the best", least=1)
    accumulate: int = option(
        1, "batches whose gradients are averaged for an update", least=1
    )
    patience: int | None = option(
        None, "stop after so many tests in a row that were no better", least=1
    )
    tensorboard: bool = option(False, "write logs for TensorBoard, too")
    profile: int | None = option(
        None, "measure so many steps: where their time goes", least=1
    )


@dataclass(frozen=True)
class Option:
    """One option as the command line knows it."""

    name: str
    kind: type
    default: Any
    help: str
    least: float | None
    below: float | None

    @property
    def flag(self) -> str:
        """``--batch-size``."""
        return "--" + self.name.replace("_", "-")

    def check(self, value: Any) -> None:
        """
        Raises:
          UsageError: if the value is of another type, or out of its limits.
        """
        if value is None and self.default is None:
            return
        wrong = self._wrong(value)
        if wrong:
            raise UsageError(f"{option_text(self.name, value)}: {wrong} ({self.help})")

    def _wrong(self, value: Any) -> str:
        whole_for_float = self.kind is float and type(value) is int
        if type(value) is not self.kind and not whole_for_float:
            return f"expected {_EXPECTED[self.kind]}"
        if self.kind is float and not math.isfinite(value):
            return "expected a finite number"
        if self.least is not None and value < self.least:
            return f"the least is {self.least}"
        if self.below is not None and value >= self.below:
            return f"it must be below {self.below}"
        return ""

    def parse(self, text: str) -> Any:
        """The value that a text on the command line stands for.

        Raises:
          UsageError: if it stands for none.
        """
        try:
            value = _PARSERS[self.kind](text)
        except (ValueError, KeyError):
            value = text
        self.check(value)
        return value


_EXPECTED = {
    int: "a whole number, such as 100",
    float: "a number, such as 0.001",
    bool: "true or false",
    str: "text",
}
_PARSERS: dict[type, Any] = {
    int: int,
    float: float,
    bool: lambda text: {"true": True, "false": False}[text.lower()],
    str: str,
}


def read_toml(path: Path) -> tuple[str | None, dict[str, Any]]:
    """The recipe that a file of options names, if it does, and the options.

    Raises:
      UsageError: if it can't be read.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(f"--config {path}: {said}") from None
    recipe = content.pop("recipe", None)
    if not isinstance(recipe, str | None):
        raise UsageError(
            f'--config {path}: recipe = {recipe!r}, expected a name, as "digits-mlp"'
        )
    return recipe, {name.replace("-", "_"): v for name, v in content.items()}


def options(kind: Any) -> dict[str, Option]:
    """The options of a dataclass by name.

    >>> options(Training)["batch_size"].flag
    '--batch-size'
    """
    hints = get_type_hints(kind)
    return {
        f.name: Option(f.name, _plain(hints[f.name]), f.default, **f.metadata)
        for f in dataclasses.fields(kind)
    }


def _plain(hint: Any) -> type:
    """The type of an option that may also be None."""
    if isinstance(hint, UnionType):
        return next(t for t in get_args(hint) if t is not type(None))
    return hint


def from_dict(kind: type, values: Mapping[str, Any], source: str) -> Any:
    """The options that were stored in a file.

    Args:
      source: the file, for messages.

    Raises:
      UsageError: for an unknown name or a wrong value.
    """
    known = options(kind)
    try:
        for name, value in values.items():
            if name not in known:
                raise unknown("option", name, known)
            known[name].check(value)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None
    # TOML and JSON write a whole number without a point.
    whole = {n for n, v in values.items() if known[n].kind is float and type(v) is int}
    return kind(**{n: float(v) if n in whole else v for n, v in values.items()})
