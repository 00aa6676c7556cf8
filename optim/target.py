"""Parameters that follow others: target networks."""

from __future__ import annotations

from typing import Any, TypeVar

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.optim.leaves import settle

T = TypeVar("T")


def incremental_update(new: T, old: T, step_size: Any) -> T:
    """``step_size · new + (1 - step_size) · old``, in the dtypes of the old ones. What
    has no such mean (integers, keys) is the new one.

    >>> incremental_update({"w": tnp.ones(1)}, {"w": tnp.zeros(1)}, 0.1)
    {'w': Array([0.1], dtype=float32)}
    """

    def mixed(a: Any, b: Any) -> Any:
        if not td.dtypes.is_differentiable(td.typeof(b).dtype):
            return a
        return settle(b, tnp.asarray(step_size * a + (1.0 - step_size) * b))

    return tree.map(mixed, new, old)


def periodic_update(new: T, old: T, steps: Any, update_period: Any) -> T:
    """The new ones whenever the number of steps is a multiple of the period, else the
    old ones.

    >>> periodic_update({"w": tnp.ones(1)}, {"w": tnp.zeros(1)}, 10, 5)
    {'w': Array([1.], dtype=float32)}
    """
    due = tnp.asarray(steps) % update_period == 0
    return tree.map(lambda a, b: settle(b, tnp.where(due, a, b)), new, old)
