"""The op `error_if`: stops a program that comes by while a condition holds.

Params:
  message: of the error. names: of the values, which the error shows. line: the user's.
  levels: for the condition and each value, which of the `vmap`s around have given it an
    axis, the outermost first.

Arguments: the condition, an array of bools of which none should be True; the values. It
has no results. A pass makes a branch of it, so that nothing of Python's runs unless it
fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType, of_numpy
from treadle.errors import CheckError, at
from treadle.ops.compare import bitwise_and
from treadle.ops.movement import broadcast_in_dim, move_axis
from treadle.scopes import Source, current
from treadle.trace.lowering import Expanded
from treadle.trace.op import Op
from treadle.trace.value import typeof

Levels = tuple[tuple[bool, ...], ...]

_SHOWN = 12


@dataclass(frozen=True)
class Failure:
    """Raises the error, for the arrays that the program has."""

    message: str
    names: tuple[str, ...]
    line: str
    scope: str
    levels: Levels

    @property
    def __name__(self) -> str:
        return error_if.name

    def __call__(self, condition: np.ndarray, *values: np.ndarray) -> Any:
        raise CheckError(self.text(condition, values))

    def text(self, condition: np.ndarray, values: Sequence[np.ndarray]) -> str:
        """The message: where it fails, in which example, and the values there."""
        lines = [f"{self.message}{at(Source(self.line, self.scope))}"]
        own, *others = self.levels
        failing = np.argwhere(condition)[0].tolist()
        given = iter(failing)
        example = [next(given) if has else 0 for has in own]
        condition = condition[tuple(failing[: sum(own)])]
        place = tuple(failing[sum(own) :])
        if any(own):
            which = [i for i, has in zip(example, own, strict=True) if has]
            lines.append(f"  in example {', '.join(map(str, which))} of vmap")
        if place:
            count = np.count_nonzero(condition)
            lines.append(
                f"  fails for {count} of {condition.size} elements, the first at "
                f"{[*place]}"
            )
        for name, levels, x in zip(self.names, others, values, strict=True):
            x = x[tuple([i for i, has in zip(example, levels, strict=True) if has])]
            own_place = bool(place) and x.shape == condition.shape
            there = f", {x[place]!s} there" if own_place else ""
            lines.append(f"  {name}: {of_numpy(x)}{there}: {_short(x)}")
        return "\n".join(lines)


def _short(x: np.ndarray) -> str:
    text = np.array2string(x, threshold=_SHOWN, edgeitems=3, separator=", ")
    return " ".join(text.split())


def _type(condition: ArrayType, *values: ArrayType, **params: Any) -> list[ArrayType]:
    if condition.dtype != dtypes.bool_:
        raise TypeError(f"error_if: the condition must be of bools, got {condition}")
    return []


def _run(
    condition: np.ndarray,
    *values: np.ndarray,
    message: str,
    names: tuple[str, ...],
    line: str,
    levels: Levels,
) -> list[Any]:
    if np.any(condition):
        failure = Failure(message, names, line, current.place.path, levels)
        failure(np.asarray(condition), *map(np.asarray, values))
    return []


def _batch(
    size: int,
    args: Sequence[Any],
    axes: Sequence[int | None],
    *,
    levels: Levels,
    **params: Any,
) -> Any:
    moved = [
        x if a is None else move_axis(x, a, 0) for x, a in zip(args, axes, strict=True)
    ]
    levels = tuple(
        (a is not None, *known) for a, known in zip(axes, levels, strict=True)
    )
    return error_if(*moved, levels=levels, **params), []


def _guard(active: Any, args: Sequence[Any], **params: Any) -> Any:
    condition, *values = args
    shape = typeof(condition).shape
    wide = broadcast_in_dim(active, shape=shape, dims=()) if shape else active
    return error_if(bitwise_and(condition, wide), *values, **params)


error_if = Op(
    "error_if",
    _type,
    _run,
    batch=_batch,
    guard=_guard,
    lowering=Expanded(),
    multiple=True,
    differentiable=False,
    effect=True,
)
