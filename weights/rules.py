"""Name maps: what the arrays of a file are called here, and how they lie.

A `Rule` says so for all arrays whose names fit a template. Rules are read in both
directions: files into modules, and modules into files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from treadle.errors import at, user_source

_VARIABLE = re.compile(r"\{(\*?)(\w+)\}")


class Layout(NamedTuple):
    """How the axes of an array lie in a file, as two functions of arrays."""

    to_ours: Callable[[np.ndarray], np.ndarray]
    to_theirs: Callable[[np.ndarray], np.ndarray]


def _same(x: np.ndarray) -> np.ndarray:
    return x


def _inputs_before_outputs(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, (0, 1), (-1, -2)) if x.ndim > 1 else x


def _outputs_first(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, (-1, -2), (0, 1)) if x.ndim > 1 else x


AS_IS = Layout(_same, _same)
"""The same axes in the same order."""
TORCH = Layout(_inputs_before_outputs, _outputs_first)
"""The weights of PyTorch's linear and convolution layers: (out, in, *window) there,
(*window, in, out) here. Vectors stay."""


class Merge(NamedTuple):
    """Several arrays as one or several others: two functions of lists of arrays, each
    of which already lies as it does on the side that it goes to (on our side for
    `to_ours`, and before it leaves for `to_theirs`)."""

    to_ours: Callable[[list[np.ndarray]], Sequence[np.ndarray]]
    to_theirs: Callable[[list[np.ndarray]], Sequence[np.ndarray]]


@dataclass(frozen=True)
class Rule:
    """What arrays of a file are called in a module.

    Names are templates: ``{i}`` stands for one part of a name between dots, ``{*rest}``
    for any number of parts; what they stand for is the same on both sides.

    Args:
      theirs: the name in the file. Several are joined along the last axis (as it is in
        the module) to one array.
      ours: the path in the module. Several: the array is split evenly along that axis.
        None: it is not taken.
      layout: how the axes lie there: `AS_IS`, or `TORCH` for weights of its layers.
      merge: what becomes of several, where they are neither joined nor split evenly.
      same_as: of an array that is not taken, the name of the one in the file that it
        has to equal (a tied weight, which need not be there).

    >>> from treadle import weights
    >>> rule = weights.Rule("encoder.{i}.dense.{leaf}", "layers.{i}.up.{leaf}")
    """

    theirs: str | tuple[str, ...]
    ours: str | tuple[str, ...] | None
    layout: Layout = AS_IS
    same_as: str | None = None
    merge: Merge | None = None

    def __post_init__(self) -> None:
        theirs, ours = names_of(self.theirs), names_of(self.ours)
        if len(theirs) > 1 and len(ours) > 1 and not self.merge:
            raise ValueError(f"{self}: either joins or splits, or has a `merge`")
        if self.same_as and ours:
            raise ValueError(
                f"{self}: what is the same as another is not taken itself"
                f"{at(user_source())}"
            )
        variables = {frozenset(_variables(t)) for t in (*theirs, *ours)}
        if len(variables) > 1:
            raise ValueError(
                f"{self}: all names must have the same {{variables}}{at(user_source())}"
            )


Names = Mapping[str, str | None] | Iterable[Rule] | None


def as_rules(names: Names) -> list[Rule]:
    """The rules of what a user gave as `names`.

    Raises:
      TypeError: if it is neither rules nor a dict of names.
    """
    if names is None:
        return [Rule("{*path}", "{*path}")]
    if isinstance(names, Mapping):
        return [Rule(theirs, ours) for theirs, ours in names.items()]
    rules = list(names)
    for rule in rules:
        if not isinstance(rule, Rule):
            raise TypeError(
                "names= takes a dict (their name: ours) or weights.Rule objects, got "
                f"{rule!r:.80}"
            )
    return rules


def names_of(names: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names or ()


def _variables(template: str) -> list[str]:
    return [name for _, name in _VARIABLE.findall(template)]


def pattern(template: str) -> re.Pattern[str]:
    """The expression that names of a template match."""
    parts, end, seen = [], 0, set()
    for found in _VARIABLE.finditer(template):
        parts.append(re.escape(template[end : found.start()]))
        many, name = found.groups()
        inside = r".+" if many else r"[^.]+"
        parts.append(f"(?P={name})" if name in seen else f"(?P<{name}>{inside})")
        seen.add(name)
        end = found.end()
    return re.compile("".join(parts) + re.escape(template[end:]))


def filled(template: str, values: Mapping[str, Any]) -> str:
    """A template's name for values of its variables."""
    return _VARIABLE.sub(lambda found: values[found.group(2)], template)


class Group(NamedTuple):
    """The arrays of one application of a rule, by their places in it."""

    rule: Rule
    values: Mapping[str, str]
    members: dict[int, str]


class Grouped(NamedTuple):
    """Names sorted by rules: those of no rule are left."""

    groups: list[Group]
    left: list[str]


def group(names: Iterable[str], rules: list[Rule], *, theirs: bool) -> Grouped:
    """Which rule each name falls under: the first that it fits.

    theirs: whether they are names in a file, or paths in a module.
    """
    templates = [
        (pattern(template), place, rule)
        for rule in rules
        for place, template in enumerate(names_of(rule.theirs if theirs else rule.ours))
    ]
    groups: dict[Any, Group] = {}
    left = []
    for name in names:
        for expression, place, rule in templates:
            found = expression.fullmatch(name)
            if found:
                values = found.groupdict()
                key = id(rule), tuple(values.items())
                members = groups.setdefault(key, Group(rule, values, {})).members
                members[place] = name
                break
        else:
            left.append(name)
    return Grouped(list(groups.values()), left)
