"""Gradients of several small batches make one update."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.optim.base import Record, Transform, check_state
from treadle.optim.conditional import either, nothing
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, widen, zeros_for
from treadle.optim.limits import check


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class MultiStepsState(Record):
    """The state of `multi_steps`; the count of `hyper` is that of updates made.

    mini_step: how many gradients wait, int32.
    accumulated: their mean or sum, in at least float32.
    """

    hyper: Hyperparameters
    mini_step: Any
    accumulated: Any
    inner: Any


def multi_steps(
    inner: Transform, every: Hyperparameter, use_mean: bool = True
) -> Transform:
    """An optimizer that makes one update of several gradients; the updates between are
    zeros.

    Args:
      every: of how many; may be a schedule, of the number of updates made.
      use_mean: whether the optimizer gets their mean, or their sum.

    To leave out single gradients: ``apply_if_finite(multi_steps(...), 10)``. To have
    the optimizer see each gradient, and only gather its updates:
    ``chain(optimizer, multi_steps(identity(), every, use_mean=False))``.

    >>> from treadle import optim
    >>> optimizer = multi_steps(optim.sgd(0.1), every=2)
    >>> state = optimizer.init(tnp.zeros(1))
    >>> first, state = optimizer.update(tnp.array([1.0]), state)
    >>> first, optimizer.update(tnp.array([3.0]), state)[0]
    (Array([0.], dtype=float32), Array([-0.2], dtype=float32))
    """
    check("multi_steps", every=every)

    def init(params: Any) -> MultiStepsState:
        return MultiStepsState(
            hyper(every=every),
            tnp.zeros((), td.int32),
            zeros_for(params),
            inner.init(params),
        )

    def update(
        grads: Any, state: MultiStepsState, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        check_state(state, MultiStepsState, "multi_steps")
        now, after = state.hyper.step()
        number = state.mini_step + 1

        def gather(g: Any, a: Any) -> tuple[Any, Any]:
            total = a + ((widen(g) - a) / number if use_mean else widen(g))
            return total, total

        gathered, accumulated = map_updates(gather, grads, state.accumulated)
        full = number >= now.every
        updates, inside = either(
            full, inner, gathered, state.inner, params, extra, nothing
        )
        return updates, MultiStepsState(
            replace(after, count=state.hyper.count + full),
            tnp.where(full, 0, number),
            tree.map(lambda a: tnp.where(full, 0, a), accumulated),
            inside,
        )

    return Transform(init, update, f"multi_steps {inner.name}")


def has_updated(state: Any) -> Any:
    """Whether the last gradient that `multi_steps` got completed an update.

    >>> from treadle import optim
    >>> optimizer = multi_steps(optim.sgd(0.1), every=1)
    >>> state = optimizer.init(tnp.zeros(1))
    >>> has_updated(state), has_updated(optimizer.update(tnp.ones(1), state)[1])
    (Array(False, dtype=bool), Array(True, dtype=bool))
    """
    check_state(state, MultiStepsState, "multi_steps")
    return (state.mini_step == 0) & (state.hyper.count > 0)
