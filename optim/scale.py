"""Transforms that scale gradients, by numbers or by moments of earlier gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import treadle.numpy as tnp
from treadle import tree
from treadle.optim.base import Record, Transform, check_state
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, square, widen, zeros_for
from treadle.optim.limits import check


def scale(factor: Hyperparameter) -> Transform:
    """Multiplies by a number (or a schedule).

    >>> halve = scale(0.5)
    >>> halve.update(tnp.ones(2), halve.init(tnp.ones(2)))[0]
    Array([0.5, 0.5], dtype=float32)
    """
    return _scale("scale", "factor", factor, 1.0)


def scale_by_learning_rate(learning_rate: Hyperparameter) -> Transform:
    """Multiplies by ``-learning_rate``: usually the last of a chain.

    >>> descend = scale_by_learning_rate(0.1)
    >>> descend.update(tnp.ones(2), descend.init(tnp.ones(2)))[0]
    Array([-0.1, -0.1], dtype=float32)
    """
    return _scale("scale_by_learning_rate", "learning_rate", learning_rate, -1.0)


def _scale(name: str, key: str, value: Hyperparameter, sign: float) -> Transform:
    check(name, **{key: value})

    def init(params: Any) -> Hyperparameters:
        return hyper(**{key: value})

    def update(
        grads: Any, state: Hyperparameters, params: Any = None
    ) -> tuple[Any, Any]:
        check_state(state, Hyperparameters, name)
        now, after = state.step()
        factor = sign * getattr(now, key)
        (updates,) = map_updates(lambda g: (factor * g,), grads)
        return updates, after

    return Transform(init, update, name)


# Momentum -----------------------------------------------------------------------------


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class TraceState(Record):
    """The state of `trace`."""

    hyper: Hyperparameters
    velocity: Any


def trace(
    momentum: Hyperparameter, nesterov: bool = False, moment_dtype: Any = None
) -> Transform:
    """Adds up gradients with decaying weights: momentum.

    ``v ← momentum · v + g``; the update is v, or ``momentum · v + g`` with the new v if
    `nesterov`.

    Polyak, *Some methods of speeding up the convergence of iteration methods*, 1964;
    Sutskever et al., *On the importance of initialization and momentum in deep
    learning*, 2013.

    >>> heavy = trace(0.9)
    >>> state = heavy.init(tnp.ones(2))
    >>> _, state = heavy.update(tnp.ones(2), state)
    >>> heavy.update(tnp.ones(2), state)[0]
    Array([1.9, 1.9], dtype=float32)
    """
    check("trace", momentum=momentum)

    def init(params: Any) -> TraceState:
        return TraceState(hyper(momentum=momentum), zeros_for(params, moment_dtype))

    def update(grads: Any, state: TraceState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, TraceState, "trace")
        now, after = state.hyper.step()

        def leaf(g: Any, v: Any) -> tuple[Any, Any]:
            v = now.momentum * v + g
            return (now.momentum * v + g if nesterov else v), v

        updates, velocity = map_updates(leaf, grads, state.velocity)
        return updates, TraceState(after, velocity)

    return Transform(init, update, "trace")


# Adam ---------------------------------------------------------------------------------


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class AdamState(Record):
    """The state of `scale_by_adam`: running means of gradients and of their squares."""

    hyper: Hyperparameters
    mean: Any
    mean_square: Any


def scale_by_adam(
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    nesterov: bool = False,
    moment_dtype: Any = None,
) -> Transform:
    """Divides a running mean of the gradients by the root of one of their squares.

    With step t from 1: ``m ← b1 m + (1 - b1) g``, ``v ← b2 v + (1 - b2) g²``, and the
    update is ``m̂ / (√v̂ + eps)``, where ``m̂ = m / (1 - b1ᵗ)`` and ``v̂ = v / (1 - b2ᵗ)``
    correct for the start at zero. With `nesterov` (NAdam), ``m̂ = b1 m / (1 - b1ᵗ⁺¹) +
    (1 - b1) g / (1 - b1ᵗ)``.

    Args:
      moment_dtype: the dtype of m. v, whose slow decay 16 bits can't hold, is at least
        float32, and so is m by default.

    Kingma and Ba, *Adam: A Method for Stochastic Optimization*, 2015; Dozat,
    *Incorporating Nesterov Momentum into Adam*, 2016.

    >>> adam = scale_by_adam()
    >>> grads = tnp.array([100.0, -0.01])
    >>> adam.update(grads, adam.init(grads))[0]
    Array([ 1., -1.], dtype=float32)
    """
    check("scale_by_adam", b1=b1, b2=b2, eps=eps)

    def init(params: Any) -> AdamState:
        return AdamState(
            hyper(b1=b1, b2=b2, eps=eps),
            zeros_for(params, moment_dtype),
            zeros_for(params, real=True),
        )

    def update(grads: Any, state: AdamState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, AdamState, "scale_by_adam")
        now, after = state.hyper.step()
        b1, b2, c1, c2 = now.b1, now.b2, 1 - now.b1, 1 - now.b2
        # m̂ / (√v̂ + eps) with the corrections outside the leaves: both sides of the
        # division are multiplied by √(1 - b2ᵗ).
        time = after.count.astype(now.b1.dtype)
        root = tnp.sqrt(1 - b2**time)
        eps = root * now.eps
        past = root / (1 - b1 ** (time + 1 if nesterov else time))
        present = c1 * root / (1 - b1**time) if nesterov else None

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            g = widen(g)
            m = b1 * m + c1 * g
            v = b2 * v + c2 * square(g)
            ahead = past * m if present is None else past * b1 * m + present * g
            return ahead / (tnp.sqrt(v) + eps), m, v

        updates, mean, mean_square = map_updates(
            leaf, grads, state.mean, state.mean_square
        )
        return updates, AdamState(after, mean, mean_square)

    return Transform(init, update, "scale_by_adam")


# Lion ---------------------------------------------------------------------------------


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class LionState(Record):
    """The state of `scale_by_lion`."""

    hyper: Hyperparameters
    mean: Any


def scale_by_lion(
    b1: Hyperparameter = 0.9, b2: Hyperparameter = 0.99, moment_dtype: Any = None
) -> Transform:
    """The sign of an interpolation between a running mean and the gradient.

    The update is ``sign(b1 m + (1 - b1) g)``; then ``m ← b2 m + (1 - b2) g``.

    Chen et al., *Symbolic Discovery of Optimization Algorithms*, 2023.

    >>> lion = scale_by_lion()
    >>> grads = tnp.array([100.0, -0.01])
    >>> lion.update(grads, lion.init(grads))[0]
    Array([ 1., -1.], dtype=float32)
    """
    check("scale_by_lion", b1=b1, b2=b2)

    def init(params: Any) -> LionState:
        return LionState(hyper(b1=b1, b2=b2), zeros_for(params, moment_dtype))

    def update(grads: Any, state: LionState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, LionState, "scale_by_lion")
        now, after = state.hyper.step()
        b1, b2, c1, c2 = now.b1, now.b2, 1 - now.b1, 1 - now.b2

        def leaf(g: Any, m: Any) -> tuple[Any, Any]:
            return tnp.sign(b1 * m + c1 * g), b2 * m + c2 * g

        updates, mean = map_updates(leaf, grads, state.mean)
        return updates, LionState(after, mean)

    return Transform(init, update, "scale_by_lion")


# RMSProp ------------------------------------------------------------------------------


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class RmsState(Record):
    """The state of `scale_by_rms`; no mean unless it is centered."""

    hyper: Hyperparameters
    mean: Any
    mean_square: Any


def scale_by_rms(
    decay: Hyperparameter = 0.9,
    eps: Hyperparameter = 1e-8,
    eps_in_sqrt: bool = True,
    centered: bool = False,
) -> Transform:
    """Divides by the root of a running mean of squared gradients.

    ``v ← decay · v + (1 - decay) g²``; the update is ``g / √(v + eps)``, or
    ``g / (√v + eps)`` unless `eps_in_sqrt`. If `centered`, ``v - m²`` stands for v,
    with ``m ← decay · m + (1 - decay) g``.

    Tieleman and Hinton, *Lecture 6.5: RMSProp*, 2012; Graves, *Generating Sequences
    With Recurrent Neural Networks*, 2013 (centered).

    >>> rms = scale_by_rms(decay=0.75)
    >>> grads = tnp.array([100.0, -0.01])
    >>> rms.update(grads, rms.init(grads))[0]
    Array([ 2.    , -1.9996], dtype=float32)
    """
    check("scale_by_rms", decay=decay, eps=eps)

    def init(params: Any) -> RmsState:
        mean = zeros_for(params) if centered else None
        return RmsState(hyper(decay=decay, eps=eps), mean, zeros_for(params, real=True))

    def update(grads: Any, state: RmsState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, RmsState, "scale_by_rms")
        now, after = state.hyper.step()
        keep, new = now.decay, 1 - now.decay

        def scaled(g: Any, variance: Any) -> Any:
            if eps_in_sqrt:
                return g / tnp.sqrt(variance + now.eps)
            return g / (tnp.sqrt(variance) + now.eps)

        def plain(g: Any, v: Any) -> tuple[Any, Any]:
            g = widen(g)
            v = keep * v + new * square(g)
            return scaled(g, v), v

        def around_mean(g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            g = widen(g)
            m = keep * m + new * g
            v = keep * v + new * square(g)
            # Rounding may make the difference negative, by a little.
            return scaled(g, tnp.maximum(v - square(m), 0.0)), m, v

        if centered:
            updates, mean, mean_square = map_updates(
                around_mean, grads, state.mean, state.mean_square
            )
            return updates, RmsState(after, mean, mean_square)
        updates, mean_square = map_updates(plain, grads, state.mean_square)
        return updates, RmsState(after, None, mean_square)

    return Transform(init, update, "scale_by_rms")
