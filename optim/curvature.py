"""Sophia: steps divided by an estimate of the curvature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng, tree
from treadle.optim.base import Record, Transform, check_state
from treadle.optim.decay import Mask, add_decayed_weights
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, widen, zeros_for
from treadle.optim.limits import check
from treadle.optim.moments import ahead
from treadle.optim.named import named
from treadle.optim.objective import Objective, objective
from treadle.optim.scale import scale_by_learning_rate


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class SophiaState(Record):
    """The state of `scale_by_sophia`: means of gradients and of the curvature."""

    hyper: Hyperparameters
    mean: Any
    curvature: Any
    key: Any


def scale_by_sophia(
    b1: Hyperparameter = 0.965,
    b2: Hyperparameter = 0.99,
    eps: Hyperparameter = 1e-8,
    gamma: Hyperparameter = 0.01,
    clip_threshold: Hyperparameter | None = 1.0,
    update_interval: Hyperparameter = 10,
    moment_dtype: Any = None,
    *,
    key: rng.Key,
) -> Transform:
    """Divides a mean of the gradients by one of the diagonal of the Hessian.

    ``m ← b1 m + (1 - b1) g``; the update is ``m̂ / max(gamma · h, eps)`` with
    ``m̂ = m / (1 - b1ᵗ)``, limited to ±`clip_threshold`. Then, at the first step and
    every `update_interval` steps, ``h ← b2 h + (1 - b2) z (H z)`` for random signs z
    (Hutchinson's estimate): a product with the Hessian, about two gradients.

    `update` takes the loss by keyword, as a function of the parameters on the data of
    this step: ``value_fn=loss``.

    Liu et al., *Sophia: A Scalable Stochastic Second-order Optimizer for Language Model
    Pre-training*, 2023.

    >>> sophia = scale_by_sophia(key=rng.key(0))
    >>> params = tnp.array([1.0, -2.0])
    >>> loss = lambda p: (p**2).sum()
    >>> state = sophia.init(params)
    >>> updates, state = sophia.update(2 * params, state, params, value_fn=loss)
    >>> state.curvature
    Array([0.02, 0.02], dtype=float32)
    """
    name = "scale_by_sophia"
    numbers = {"b1": b1, "b2": b2, "eps": eps, "gamma": gamma}
    numbers["update_interval"] = update_interval
    if clip_threshold is not None:
        numbers["clip_threshold"] = clip_threshold
    check(name, **numbers)

    def init(params: Any) -> SophiaState:
        zeros = zeros_for(params, moment_dtype), zeros_for(params)
        return SophiaState(hyper(**numbers), *zeros, rng.clone(key))

    def update(
        grads: Any, state: SophiaState, params: Any = None, *, value_fn: Any = None
    ) -> tuple[Any, Any]:
        check_state(state, SophiaState, name)
        now, after = state.hyper.step()
        loss = objective(value_fn, params, grads, name)
        hat = ahead(now.b1, after.count.astype(td.float32), False)

        def leaf(g: Any, m: Any, h: Any) -> tuple[Any, Any, Any]:
            m = now.b1 * m + (1 - now.b1) * widen(g)
            update = hat(g, m) / tnp.maximum(now.gamma * h, now.eps)
            if clip_threshold is not None:
                update = tnp.clip(update, -now.clip_threshold, now.clip_threshold)
            return update, m, h

        updates, mean, _ = map_updates(leaf, grads, state.mean, state.curvature)

        def look(old: Any) -> Any:
            key = rng.fold_in(state.key, state.hyper.count)
            diagonal = tree.structure(grads).unflatten(_diagonal(loss, key))
            return map_updates(
                lambda d, h: (d, now.b2 * h + (1 - now.b2) * widen(d)), diagonal, old
            )[1]

        due = state.hyper.count % now.update_interval.astype(td.int32) == 0
        curvature = td.cond(due, look, lambda old: old, state.curvature)
        return updates, SophiaState(after, mean, curvature, state.key)

    return Transform(init, update, name)


def _diagonal(loss: Objective, key: rng.Key) -> list[Any]:
    """Hutchinson's estimate of the diagonal of the Hessian."""
    signs = [
        rng.rademacher(rng.fold_in(key, n), x.shape).astype(x.dtype)
        for n, x in enumerate(loss.start)
    ]
    _, products = td.jvp(td.grad(loss.value), (loss.start,), (signs,))
    return [z * product for z, product in zip(signs, products, strict=True)]


def sophia(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.965,
    b2: Hyperparameter = 0.99,
    eps: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 1e-4,
    mask: Mask | None = None,
    gamma: Hyperparameter = 0.01,
    clip_threshold: Hyperparameter | None = 1.0,
    update_interval: Hyperparameter = 10,
    moment_dtype: Any = None,
    *,
    key: rng.Key,
) -> Transform:
    """Sophia: Adam with the Hessian's diagonal for squares; see `scale_by_sophia`.

    `update` takes the loss by keyword: ``value_fn=loss``.

    Liu et al., *Sophia: A Scalable Stochastic Second-order Optimizer for Language Model
    Pre-training*, 2023.

    >>> from treadle import optim
    >>> params = {"w": tnp.ones(1)}
    >>> optimizer = optim.sophia(0.1, weight_decay=0.5, key=rng.key(0))
    >>> updates, state = optimizer.update(
    ...     params, optimizer.init(params), params, value_fn=lambda p: p["w"][0] ** 2
    ... )
    >>> updates
    {'w': Array([-0.15], dtype=float32)}
    """
    check("sophia", learning_rate=learning_rate)
    scaled = scale_by_sophia(
        b1,
        b2,
        eps,
        gamma,
        clip_threshold,
        update_interval,
        moment_dtype,
        key=key,
    )
    return named(
        "sophia",
        scaled,
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )
