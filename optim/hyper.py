"""Hyperparameters are numbers in an optimizer's state: changing one compiles nothing.

A transform keeps them in a `Hyperparameters` node of its state, with the count of
updates, at which its schedules are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source
from treadle.optim.base import Record
from treadle.optim.limits import check_one
from treadle.optim.schedule import Schedule, show

State = TypeVar("State")
Hyperparameter = tnp.ArrayLike | Callable[[Any], Any]
"""A number, an array of one number, or a schedule: a function of the step count."""


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class Hyperparameters(Record):
    """The numbers of one transform: the whole state of one without moments.

    count: how many updates were made, int32.
    values: by name, float32 scalars or schedules.
    """

    count: td.Array
    values: dict[str, Any]

    def step(self) -> tuple[SimpleNamespace, Hyperparameters]:
        """The numbers of this update, as attributes, and the state after it."""
        return SimpleNamespace(**self.current()), replace(self, count=self.count + 1)

    def current(self) -> dict[str, Any]:
        """The numbers by name; schedules are read at the present count."""
        return {
            name: _read(value, self.count) if isinstance(value, Schedule) else value
            for name, value in self.values.items()
        }

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}={show(v)}" for n, v in self.values.items())
        return f"Hyperparameters(count={show(self.count)}, {inside})"


def _read(schedule: Schedule, count: Any) -> Any:
    value = schedule(count)
    found = td.typeof(value)
    if found.shape:
        raise ValueError(
            f"{schedule} gave an array of type {found}, not a scalar{at(user_source())}"
        )
    return tnp.asarray(value, td.float32)


def hyper(**values: Hyperparameter) -> Hyperparameters:
    """The hyperparameters of a new state."""
    settled = {name: _settle(value) for name, value in values.items()}
    return Hyperparameters(tnp.zeros((), td.int32), settled)


def _settle(value: Any) -> Any:
    """A value as it stands in a state: float32, or a schedule with arrays in it."""
    if isinstance(value, Schedule):
        return tree.map(_own, value)
    return Schedule(value, {}) if callable(value) else _own(value, td.float32)


def _own(value: Any, dtype: np.dtype | None = None) -> Any:
    """A value as an array that no one else has: states get donated."""
    if isinstance(value, td.Array) and not td.is_traced(value):
        value = np.asarray(value)
    return tnp.array(value, dtype)


def hyperparameters(state: Any) -> dict[str, Any]:
    """The hyperparameters in an optimizer's state, by name.

    Schedules are read: what is given is the number that the next update will use. Names
    that several parts of a chain or partition share are preceded by the part's place.

    >>> from treadle import optim
    >>> state = optim.sgd(0.1, momentum=0.9).init({"w": tnp.ones(3)})
    >>> hyperparameters(state)["learning_rate"]
    Array(0.1, dtype=float32)
    """
    found = _nodes(state)
    return {
        name: found[path].current()[key] for name, (path, key) in _names(found).items()
    }


def set_hyperparameters(state: State, **values: Hyperparameter) -> State:
    """The state with other hyperparameters; moments and counts stay.

    A number in place of a number, or a schedule in place of one of the same kind,
    compiles nothing: programs take them as inputs.

    Raises:
      ValueError: for a name that the state does not have; it lists those it has. For a
        number that is NaN, or that its name excludes, such as a negative rate.
      TypeError: for a value that is neither a number nor a schedule.

    >>> from treadle import optim
    >>> state = optim.adamw(1e-3).init({"w": tnp.ones(3)})
    >>> state = set_hyperparameters(state, learning_rate=0.5)
    >>> hyperparameters(state)["learning_rate"]
    Array(0.5, dtype=float32)
    """
    found = _nodes(state)
    names = _names(found)
    for name, value in values.items():
        if name not in names:
            raise ValueError(_unknown(name, names))
        path, key = names[name]
        node = found[path]
        old = node.values[key]
        shape = () if isinstance(old, Schedule) else td.typeof(old).shape
        check_one("set_hyperparameters", name, value, shape)
        new = _settle(value)
        found[path] = replace(node, values=node.values | {key: new})
    parts, form = tree.flatten_with_path(state, is_leaf=_is_node)
    return form.unflatten([found.get(path, leaf) for path, leaf in parts])


def _unknown(name: str, names: Mapping[str, Any]) -> str:
    shared = [n for n in names if n.rpartition(".")[2] == name]
    if shared:
        return (
            f"several parts of this state have a hyperparameter {name!r}"
            f"{at(user_source())}\n"
            f"Choose one: set_hyperparameters(state, **{{{shared[0]!r}: ...}}); they "
            f"are {', '.join(shared)}."
        )
    return (
        f"this state has no hyperparameter {name!r}{at(user_source())}\n"
        f"It has {', '.join(names) or 'none'}."
    )


def _is_node(value: Any) -> bool:
    return isinstance(value, Hyperparameters)


def _nodes(state: Any) -> dict[tree.Path, Hyperparameters]:
    parts = tree.flatten_with_path(state, is_leaf=_is_node)[0]
    return {path: part for path, part in parts if _is_node(part)}


def _names(nodes: dict[tree.Path, Hyperparameters]) -> dict[str, tuple]:
    """Where each hyperparameter is: by its name alone, if no other has that name."""
    keys = [(path, key) for path, node in nodes.items() for key in node.values]
    alone = [key for _, key in keys]
    return {
        key if alone.count(key) == 1 else f"{_place(path)}.{key}": (path, key)
        for path, key in keys
    }


def _place(path: tree.Path) -> str:
    parts = [p.name if isinstance(p, tree.Attribute) else str(p) for p in path]
    return ".".join(parts[:-1] if path[-1] == tree.Attribute("hyper") else parts)
