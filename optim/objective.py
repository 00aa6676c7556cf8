"""The loss as a function of what is trained, for optimizers that evaluate it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import dtypes, tree
from treadle.errors import at, user_source
from treadle.optim.base import check_params
from treadle.optim.leaves import positions, settle, trainable, wide

Leaves = list[Any]


@dataclass(frozen=True)
class Objective:
    """The loss as a function of the leaves that have a gradient.

    value: ``leaves -> loss``.
    start: the leaves as they are.
    """

    value: Callable[[Leaves], Any]
    start: Leaves

    def value_and_grad(self, leaves: Leaves) -> tuple[Any, Leaves]:
        return td.value_and_grad(self.value)(leaves)

    def moved(self, step: Any, direction: Leaves) -> Leaves:
        """The leaves `step` lengths of a direction away from the start."""
        return [
            settle(x, x + step * u) for x, u in zip(self.start, direction, strict=True)
        ]


def objective(
    value_fn: Callable[[Any], Any] | None, params: Any, grads: Any, name: str
) -> Objective:
    """The loss along the leaves for which there are gradients.

    Raises:
      ValueError: if the loss or the parameters were left out.
    """
    check_params(params, grads, name)
    if value_fn is None:
        raise ValueError(
            f"{name} evaluates the loss, which it was not given{at(user_source())}\n"
            "Pass it to update: `optimizer.update(grads, state, params, "
            "value_fn=loss)`, a function of the parameters alone."
        )
    values, whole = tree.flatten(params)
    places = positions(tree.structure(grads), whole, "the parameters")

    def value(leaves: Leaves) -> Any:
        changed = list(values)
        for place, leaf in zip(places, leaves, strict=True):
            changed[place] = leaf
        return value_fn(whole.unflatten(changed))

    return Objective(value, [tnp.asarray(values[place]) for place in places])


def value_dtype(params: Any) -> Any:
    """The real dtype of what is computed of all trained leaves: at least float32."""
    chosen = zip(tree.leaves(params), trainable(params), strict=True)
    found = [dtypes.to_real(td.typeof(x).dtype) for x, wanted in chosen if wanted]
    return tnp.result_type(td.float32, *map(wide, found))


def check_value(value: Any, name: str) -> None:
    """
    Raises:
      ValueError: if the value of the loss was left out.
    """
    if value is None:
        raise ValueError(
            f"{name} needs the loss{at(user_source())}\n"
            "Pass its value to update: `optimizer.update(grads, state, params, "
            "value=loss)`; `td.value_and_grad` gives both."
        )


def inner(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """The real part of the product of two lists of leaves, ``Σ Re(conj(a) b)``."""
    total: Any = 0.0
    for x, y in zip(a, b, strict=True):
        total = total + tnp.sum(tnp.real(tnp.conj(x) * y))
    return total
