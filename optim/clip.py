"""Transforms that limit gradients."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.optim.base import Transform, check_state
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, square, widen
from treadle.optim.limits import check


def global_norm(values: Any) -> td.Array:
    """The Euclidean norm of all leaves together, in at least float32.

    >>> global_norm({"a": tnp.array([3.0]), "b": (tnp.array([4.0]), None)})
    Array(5., dtype=float32)
    """
    total: Any = 0.0
    for leaf in tree.leaves(values):
        total = total + tnp.sum(square(widen(tnp.asarray(leaf))))
    return tnp.sqrt(total)


def clip_by_global_norm(max_norm: Hyperparameter) -> Transform:
    """Scales all gradients by one factor, so that their global norm is bounded.

    ``g ← g · min(1, max_norm / ‖g‖)``

    Pascanu et al., *On the difficulty of training Recurrent Neural Networks*, 2013.

    >>> limit = clip_by_global_norm(1.0)
    >>> grads = tnp.array([3.0, 4.0])
    >>> limit.update(grads, limit.init(grads))[0]
    Array([0.6, 0.8], dtype=float32)
    """
    check("clip_by_global_norm", max_norm=max_norm)

    def init(params: Any) -> Hyperparameters:
        return hyper(max_norm=max_norm)

    def update(
        grads: Any, state: Hyperparameters, params: Any = None
    ) -> tuple[Any, Any]:
        check_state(state, Hyperparameters, "clip_by_global_norm")
        now, after = state.step()
        factor = tnp.minimum(1.0, now.max_norm / global_norm(grads))
        (updates,) = map_updates(lambda g: (factor * g,), grads)
        return updates, after

    return Transform(init, update, "clip_by_global_norm")


def clip(max_delta: Hyperparameter) -> Transform:
    """Limits each element of the gradients to ``[-max_delta, max_delta]``.

    >>> limit = clip(1.0)
    >>> grads = tnp.array([3.0, -0.5])
    >>> limit.update(grads, limit.init(grads))[0]
    Array([ 1. , -0.5], dtype=float32)
    """
    check("clip", max_delta=max_delta)

    def init(params: Any) -> Hyperparameters:
        return hyper(max_delta=max_delta)

    def update(
        grads: Any, state: Hyperparameters, params: Any = None
    ) -> tuple[Any, Any]:
        check_state(state, Hyperparameters, "clip")
        now, after = state.step()
        low, high = -now.max_delta, now.max_delta
        (updates,) = map_updates(lambda g: (tnp.clip(widen(g), low, high),), grads)
        return updates, after

    return Transform(init, update, "clip")
