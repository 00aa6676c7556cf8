"""Transforms that change gradients or updates element by element, or row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import treadle.numpy as tnp
from treadle import rng, tree
from treadle.optim.base import Record, Transform, check_params, check_state
from treadle.optim.clip import global_norm
from treadle.optim.decay import Mask
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_trainable, map_updates, widen
from treadle.optim.limits import check

Axes = int | tuple[int, ...]


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class ZeroNansState(Record):
    """The state of `zero_nans`.

    found: for each parameter whether there was a NaN in its last gradient.
    """

    found: Any


def zero_nans() -> Transform:
    """Puts 0 for each element of the gradients that is NaN.

    >>> clean = zero_nans()
    >>> grads = {"w": tnp.array([1.0, tnp.nan])}
    >>> updates, state = clean.update(grads, clean.init(grads))
    >>> updates["w"], state.found["w"]
    (Array([1., 0.], dtype=float32), Array(True, dtype=bool))
    """

    def init(params: Any) -> ZeroNansState:
        return ZeroNansState(map_trainable(lambda p: tnp.asarray(False), params))

    def update(grads: Any, state: ZeroNansState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, ZeroNansState, "zero_nans")

        def leaf(g: Any, before: Any) -> tuple[Any, Any]:
            wrong = tnp.isnan(g)
            return tnp.where(wrong, 0, g), wrong.any()

        updates, found = map_updates(leaf, grads, state.found)
        return updates, ZeroNansState(found)

    return Transform(init, update, "zero_nans")


def centralize() -> Transform:
    """Takes from each gradient its mean over all axes but the last, that of outputs;
    those of one axis stay.

    Yong et al., *Gradient Centralization: A New Optimization Technique for Deep Neural
    Networks*, 2020.

    >>> middle = centralize()
    >>> middle.update(tnp.array([[1.0, 5.0], [3.0, 5.0]]), ())[0]
    Array([[-1.,  0.],
           [ 1.,  0.]], dtype=float32)
    """

    def leaf(g: Any) -> tuple[Any]:
        if g.ndim < 2:
            return (g,)
        g = widen(g)
        return (g - g.mean(tuple(range(g.ndim - 1)), keepdims=True),)

    def update(grads: Any, state: tuple, params: Any = None) -> tuple[Any, Any]:
        return map_updates(leaf, grads)[0], ()

    return Transform(lambda params: (), update, "centralize")


def keep_params_nonnegative() -> Transform:
    """Lets no parameter fall below 0: the last of a chain.

    >>> above = keep_params_nonnegative()
    >>> above.update(tnp.array([-2.0, -0.5]), (), tnp.ones(2))[0]
    Array([-1. , -0.5], dtype=float32)
    """

    def update(grads: Any, state: tuple, params: Any = None) -> tuple[Any, Any]:
        check_params(params, grads, "keep_params_nonnegative")
        (updates,) = map_updates(
            lambda u, p: (tnp.where(p + u < 0, -p, u),), grads, read=(params,)
        )
        return updates, ()

    return Transform(lambda params: (), update, "keep_params_nonnegative")


def keep_params_max_norm(
    max_norm: Hyperparameter,
    mask: Mask | None = None,
    *,
    axis: Axes = -1,
) -> Transform:
    """Lets no row of a parameter be longer than `max_norm`: the last of a chain.

    ``p ← p · min(1, max_norm / ‖p‖)`` after each step, for each row: vectors of an
    embedding by default; with ``axis=0`` what leads to each feature of a `Linear`. Rows
    that are too long to begin with are as long as they may be after the first step.
    A parameter without such an axis, as a number is, stays as the step makes it.

    Args:
      mask: which parameters are bounded; all by default.
      axis: over which the Euclidean norm is taken, one or several.

    >>> params = {"table": tnp.array([[3.0, 4.0], [0.3, 0.4]]), "w": tnp.array([9.0])}
    >>> bounded = keep_params_max_norm(1.0, mask="table")
    >>> still = tree.map(tnp.zeros_like, params)
    >>> updates, _ = bounded.update(still, bounded.init(params), params)
    >>> (params["table"] + updates["table"]).round(3)
    Array([[0.6, 0.8],
           [0.3, 0.4]], dtype=float32)
    """
    check("keep_params_max_norm", max_norm=max_norm)
    axes = (axis,) if isinstance(axis, int) else axis

    def init(params: Any) -> Hyperparameters:
        return hyper(max_norm=max_norm)

    def update(
        grads: Any, state: Hyperparameters, params: Any = None
    ) -> tuple[Any, Any]:
        check_state(state, Hyperparameters, "keep_params_max_norm")
        check_params(params, grads, "keep_params_max_norm")
        now, after = state.step()

        def bounded(u: Any, p: Any, here: bool) -> tuple[Any]:
            if not here or not all(-p.ndim <= a < p.ndim for a in axes):
                return (u,)
            p = widen(p)
            new = p + u
            size = tnp.linalg.vector_norm(new, axis=axis, keepdims=True)
            long = size > now.max_norm
            factor = now.max_norm / tnp.where(long, size, 1)
            return (tnp.where(long, factor * new - p, u),)

        where = tree.select(True if mask is None else mask)(params)
        return map_updates(bounded, grads, read=(params, where))[0], after

    return Transform(init, update, "keep_params_max_norm")


def normalize_by_update_norm(
    scale_factor: Hyperparameter = 1.0, eps: Hyperparameter = 1e-6
) -> Transform:
    """Scales all gradients by one factor, so that their global norm is the given one.

    ``g ← scale_factor · g / (‖g‖ + eps)``

    >>> unit = normalize_by_update_norm()
    >>> unit.update(tnp.array([3.0, 4.0]), unit.init(None))[0]
    Array([0.6, 0.8], dtype=float32)
    """
    check("normalize_by_update_norm", scale_factor=scale_factor, eps=eps)

    def init(params: Any) -> Hyperparameters:
        return hyper(scale_factor=scale_factor, eps=eps)

    def update(
        grads: Any, state: Hyperparameters, params: Any = None
    ) -> tuple[Any, Any]:
        check_state(state, Hyperparameters, "normalize_by_update_norm")
        now, after = state.step()
        factor = now.scale_factor / (global_norm(grads) + now.eps)
        return map_updates(lambda g: (factor * g,), grads)[0], after

    return Transform(init, update, "normalize_by_update_norm")


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class NoiseState(Record):
    """The state of `add_noise`."""

    hyper: Hyperparameters
    key: rng.Key


def add_noise(eta: Hyperparameter, gamma: Hyperparameter, *, key: rng.Key) -> Transform:
    """Adds normal noise that gets smaller: with variance ``eta / (1 + t)**gamma``.

    Neelakantan et al., *Adding Gradient Noise Improves Learning for Very Deep
    Networks*, 2015.

    >>> noise = add_noise(0.01, 0.55, key=rng.key(0))
    >>> noise.update(tnp.zeros(3), noise.init(None))[0].std() < 0.3
    Array(True, dtype=bool)
    """
    check("add_noise", eta=eta, gamma=gamma)

    def init(params: Any) -> NoiseState:
        return NoiseState(hyper(eta=eta, gamma=gamma), rng.clone(key))

    def update(grads: Any, state: NoiseState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, NoiseState, "add_noise")
        now, after = state.hyper.step()
        width = tnp.sqrt(now.eta / after.count**now.gamma)
        next_key, key = rng.split(state.key)
        leaves, form = tree.flatten(grads)
        noisy = [
            widen(g) + width * rng.normal(k, g.shape, widen(g).dtype)
            for g, k in zip(leaves, rng.split(key, len(leaves)), strict=True)
        ]
        return form.unflatten(noisy), NoiseState(after, next_key)

    return Transform(init, update, "add_noise")
