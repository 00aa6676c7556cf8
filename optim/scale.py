"""Transforms that scale gradients, by numbers or by moments of earlier gradients."""

from __future__ import annotations

from typing import Any

import treadle.numpy as tnp
from treadle.optim.base import Transform, check_state
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, square
from treadle.optim.limits import check
from treadle.optim.moments import ahead, by_leaf, means, squares


def scale(factor: Hyperparameter) -> Transform:
    """Multiplies by a number (or a schedule).

    >>> halve = scale(0.5)
    >>> halve.update(tnp.ones(2), halve.init(tnp.ones(2)))[0]
    Array([0.5, 0.5], dtype=float32)
    """
    return _scale("scale", "factor", factor, 1.0)


def scale_by_learning_rate(
    learning_rate: Hyperparameter, *, flip_sign: bool = True
) -> Transform:
    """Multiplies by ``-learning_rate``: usually the last of a chain.

    Without `flip_sign` by ``learning_rate``.

    >>> descend = scale_by_learning_rate(0.1)
    >>> descend.update(tnp.ones(2), descend.init(tnp.ones(2)))[0]
    Array([-0.1, -0.1], dtype=float32)
    """
    sign = -1.0 if flip_sign else 1.0
    return _scale("scale_by_learning_rate", "learning_rate", learning_rate, sign)


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

    def rule(now: Any, time: Any) -> Any:
        def leaf(g: Any, v: Any) -> tuple[Any, Any]:
            v = now.momentum * v + g
            return (now.momentum * v + g if nesterov else v), v

        return leaf

    numbers = {"momentum": momentum}
    return by_leaf("trace", numbers, {"velocity": means(moment_dtype)}, rule)


def ema(
    decay: Hyperparameter, debias: bool = True, moment_dtype: Any = None
) -> Transform:
    """A running mean of the gradients.

    ``m ← decay · m + (1 - decay) g``; the update is m, divided by ``1 - decayᵗ`` if
    `debias`, which corrects for its start at zero.

    >>> mean = ema(0.5)
    >>> _, state = mean.update(tnp.ones(2), mean.init(tnp.ones(2)))
    >>> mean.update(3 * tnp.ones(2), state)[0]
    Array([2.3333, 2.3333], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        keep, new = now.decay, 1 - now.decay
        hat = ahead(keep, time, False)

        def leaf(g: Any, m: Any) -> tuple[Any, Any]:
            m = keep * m + new * g
            return (hat(g, m) if debias else m), m

        return leaf

    return by_leaf("ema", {"decay": decay}, {"mean": means(moment_dtype)}, rule)


def scale_by_adam(
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    nesterov: bool = False,
    moment_dtype: Any = None,
    *,
    eps_root: Hyperparameter | None = None,
) -> Transform:
    """Divides a running mean of the gradients by the root of one of their squares.

    With step t from 1: ``m ← b1 m + (1 - b1) g``, ``v ← b2 v + (1 - b2) g²``, and the
    update is ``m̂ / (√v̂ + eps)``, where ``m̂ = m / (1 - b1ᵗ)`` and
    ``v̂ = v / (1 - b2ᵗ)`` correct for the start at zero. With `nesterov` (NAdam),
    ``m̂ = b1 m / (1 - b1ᵗ⁺¹) + (1 - b1) g / (1 - b1ᵗ)``.

    Args:
      moment_dtype: the dtype of m. v, whose slow decay 16 bits can't hold, is at least
        float32, and so is m by default.
      eps_root: added to v̂ inside of the root, for those who differentiate updates.

    Kingma and Ba, *Adam: A Method for Stochastic Optimization*, 2015; Dozat,
    *Incorporating Nesterov Momentum into Adam*, 2016.

    >>> adam = scale_by_adam()
    >>> grads = tnp.array([100.0, -0.01])
    >>> adam.update(grads, adam.init(grads))[0]
    Array([ 1., -1.], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        b1, b2, c1, c2 = now.b1, now.b2, 1 - now.b1, 1 - now.b2
        # m̂ / (√(v̂ + eps_root) + eps) with the corrections outside of the leaves: both
        # sides of the division are multiplied by √(1 - b2ᵗ).
        rest = 1 - b2**time
        root = tnp.sqrt(rest)
        eps = root * now.eps
        inside = None if eps_root is None else rest * now.eps_root
        hat = ahead(b1, time, nesterov, root)

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            m = b1 * m + c1 * g
            v = b2 * v + c2 * square(g)
            scale = tnp.sqrt(v if inside is None else v + inside)
            return hat(g, m) / (scale + eps), m, v

        return leaf

    numbers = {"b1": b1, "b2": b2, "eps": eps}
    return by_leaf(
        "scale_by_adam",
        numbers if eps_root is None else numbers | {"eps_root": eps_root},
        {"mean": means(moment_dtype), "mean_square": squares()},
        rule,
    )


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

    def rule(now: Any, time: Any) -> Any:
        b1, b2, c1, c2 = now.b1, now.b2, 1 - now.b1, 1 - now.b2
        return lambda g, m: (tnp.sign(b1 * m + c1 * g), b2 * m + c2 * g)

    return by_leaf(
        "scale_by_lion", {"b1": b1, "b2": b2}, {"mean": means(moment_dtype)}, rule
    )


def scale_by_rms(
    decay: Hyperparameter = 0.9,
    eps: Hyperparameter = 1e-8,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    *,
    bias_correction: bool = False,
) -> Transform:
    """Divides by the root of a running mean of squared gradients.

    ``v ← decay · v + (1 - decay) g²``; the update is ``g / √(v + eps)``, or
    ``g / (√v + eps)`` unless `eps_in_sqrt`. If `centered`, ``v - m²`` stands for v,
    with ``m ← decay · m + (1 - decay) g``. With `bias_correction`, ``v / (1 - decayᵗ)``
    and ``m / (1 - decayᵗ)`` stand for v and m.

    Tieleman and Hinton, *Lecture 6.5: RMSProp*, 2012; Graves, *Generating Sequences
    With Recurrent Neural Networks*, 2013 (centered).

    >>> rms = scale_by_rms(decay=0.75)
    >>> grads = tnp.array([100.0, -0.01])
    >>> rms.update(grads, rms.init(grads))[0]
    Array([ 2.    , -1.9996], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        keep, new = now.decay, 1 - now.decay
        whole = 1 / (1 - keep**time) if bias_correction else 1.0

        def scaled(g: Any, variance: Any) -> Any:
            if eps_in_sqrt:
                return g / tnp.sqrt(variance + now.eps)
            return g / (tnp.sqrt(variance) + now.eps)

        def plain(g: Any, v: Any) -> tuple[Any, Any]:
            v = keep * v + new * square(g)
            return scaled(g, whole * v if bias_correction else v), v

        def around_mean(g: Any, v: Any, m: Any) -> tuple[Any, Any, Any]:
            m = keep * m + new * g
            v = keep * v + new * square(g)
            # Rounding may make the difference negative, by a little.
            spread = tnp.maximum(whole * v - square(whole * m), 0.0)
            return scaled(g, spread), v, m

        return around_mean if centered else plain

    moments = {"mean_square": squares()} | ({"mean": means()} if centered else {})
    return by_leaf("scale_by_rms", {"decay": decay, "eps": eps}, moments, rule)
