"""Transforms that limit gradients."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.optim.base import Transform, check_params, check_state
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


def safe_norm(
    x: tnp.ArrayLike,
    min_norm: float = 0.0,
    ord: int | float | str | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> td.Array:
    """``max(‖x‖, min_norm)`` over some axes, all by default; where the bound holds, at
    0 too, the derivative is 0, not NaN. ord: which norm, as for `tnp.linalg.norm`.

    >>> td.grad(safe_norm)(tnp.zeros(2))
    Array([0., 0.], dtype=float32)
    """
    if ord is not None:
        x = tnp.asarray(x)
        norm = tnp.linalg.norm(x, ord, axis, keepdims=True)
        below = norm <= min_norm
        norm = tnp.linalg.norm(tnp.where(below, 1.0, x), ord, axis, keepdims=True)
        out = tnp.where(below, min_norm, norm)
        return out if keepdims else out.squeeze(axis)
    squares = square(tnp.asarray(x)).sum(axis, keepdims=keepdims)
    return _safe_root(squares, min_norm)


def safe_root_mean_squares(x: tnp.ArrayLike, min_rms: float = 0.0) -> td.Array:
    """``max(root of the mean square of x, min_rms)``, with derivative 0 where the bound
    holds.

    >>> td.grad(safe_root_mean_squares)(tnp.zeros(2))
    Array([0., 0.], dtype=float32)
    """
    mean = square(tnp.asarray(x)).mean()
    return _safe_root(mean, min_rms)


def _safe_root(square: td.Array, least: float) -> td.Array:
    """``max(root of a square, least)``; of not-a-number it is that."""
    below = square <= least**2
    return tnp.where(below, least, tnp.sqrt(tnp.where(below, 1.0, square)))


def unit_norm(x: td.Array) -> td.Array:
    """The norm of all that leads to one output, in at least float32: over all axes but
    the last; of arrays with one axis or none, over all. Axes that are left have length
    1.

    >>> unit_norm(tnp.array([[3.0, 1.0], [4.0, 0.0]]))
    Array([[5., 1.]], dtype=float32)
    """
    axes = tuple(range(x.ndim - 1)) if x.ndim > 1 else None
    return tnp.sqrt(square(widen(x)).sum(axes, keepdims=True))


def adaptive_grad_clip(
    clipping: Hyperparameter, eps: Hyperparameter = 1e-3
) -> Transform:
    """Limits gradients relative to their parameters, output by output.

    ``g ← g · min(1, clipping · max(‖p‖, eps) / ‖g‖)`` with norms as `unit_norm` says.

    Brock et al., *High-Performance Large-Scale Image Recognition Without
    Normalization*, 2021.

    >>> limit = adaptive_grad_clip(0.1)
    >>> params, grads = tnp.array([3.0, 4.0]), tnp.array([0.0, 2.0])
    >>> limit.update(grads, limit.init(params), params)[0]
    Array([0. , 0.5], dtype=float32)
    """
    check("adaptive_grad_clip", clipping=clipping, eps=eps)

    def init(params: Any) -> Hyperparameters:
        return hyper(clipping=clipping, eps=eps)

    def update(
        grads: Any, state: Hyperparameters, params: Any = None
    ) -> tuple[Any, Any]:
        check_state(state, Hyperparameters, "adaptive_grad_clip")
        check_params(params, grads, "adaptive_grad_clip")
        now, after = state.step()

        def leaf(g: Any, p: Any) -> tuple[Any]:
            most, norm = now.clipping * tnp.maximum(unit_norm(p), now.eps), unit_norm(g)
            return (tnp.where(norm < most, g, g * (most / tnp.maximum(norm, 1e-6))),)

        return map_updates(leaf, grads, read=(params,))[0], after

    return Transform(init, update, "adaptive_grad_clip")
