"""Optimizers that look at the signs of gradients alone."""

from __future__ import annotations

from typing import Any

import treadle.numpy as tnp
from treadle.optim.base import Transform
from treadle.optim.hyper import Hyperparameter
from treadle.optim.limits import check
from treadle.optim.moments import by_leaf, means, squares
from treadle.optim.named import named
from treadle.optim.scale import scale, scale_by_learning_rate


def scale_by_sign(
    b1: Hyperparameter | None = None, moment_dtype: Any = None
) -> Transform:
    """The sign of each gradient; with `b1` that of ``m ← b1 m + (1 - b1) g``.

    Complex gradients keep their direction: ``g / |g|``.

    Bernstein et al., *signSGD: Compressed Optimisation for Non-Convex Problems*, 2018.

    >>> sign = scale_by_sign()
    >>> grads = tnp.array([100.0, -0.5])
    >>> sign.update(grads, sign.init(grads))[0]
    Array([ 1., -1.], dtype=float32)
    """

    def plain(now: Any, time: Any) -> Any:
        return lambda g: (tnp.sign(g),)

    def rule(now: Any, time: Any) -> Any:
        def leaf(g: Any, m: Any) -> tuple[Any, Any]:
            m = now.b1 * m + (1 - now.b1) * g
            return tnp.sign(m), m

        return leaf

    if b1 is None:
        return by_leaf("scale_by_sign", {}, {}, plain)
    return by_leaf("scale_by_sign", {"b1": b1}, {"mean": means(moment_dtype)}, rule)


def sign_sgd(learning_rate: Hyperparameter) -> Transform:
    """signSGD: ``p ← p - learning_rate · sign(g)``.

    Bernstein et al., *signSGD: Compressed Optimisation for Non-Convex Problems*, 2018.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.sign_sgd(0.1)
    >>> optimizer.update(grads, optimizer.init(params))[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("sign_sgd", learning_rate=learning_rate)
    return named("sign_sgd", scale_by_sign(), scale_by_learning_rate(learning_rate))


def signum(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    moment_dtype: Any = None,
) -> Transform:
    """Signum: ``p ← p - learning_rate · sign(m)``, ``m ← b1 m + (1 - b1) g``.

    Bernstein et al., *signSGD: Compressed Optimisation for Non-Convex Problems*, 2018.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.signum(0.1)
    >>> optimizer.update(grads, optimizer.init(params))[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("signum", learning_rate=learning_rate)
    return named(
        "signum",
        scale_by_sign(b1, moment_dtype),
        scale_by_learning_rate(learning_rate),
    )


def scale_by_rprop(
    learning_rate: Hyperparameter,
    eta_minus: Hyperparameter = 0.5,
    eta_plus: Hyperparameter = 1.2,
    min_step_size: Hyperparameter = 1e-6,
    max_step_size: Hyperparameter = 50.0,
) -> Transform:
    """Each element has a step size of its own, which follows the sign of its gradient.

    From `learning_rate` at its first gradient on it is multiplied by `eta_plus` where
    the gradient has the sign of the one before, and by `eta_minus` where it has the
    other sign; there the gradient counts as 0. The update is ``step_size · sign(g)``.
    In the state, a step size of 0 is one that there was no gradient for yet.

    Riedmiller and Braun, *A Direct Adaptive Method for Faster Backpropagation Learning:
    The RPROP Algorithm*, 1993; Igel and Hüsken, *Improving the Rprop Learning
    Algorithm*, 2000 (iRprop-).

    >>> rprop = scale_by_rprop(0.1)
    >>> grads = tnp.array([100.0, -0.5])
    >>> rprop.update(grads, rprop.init(grads))[0]
    Array([ 0.1, -0.1], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        def leaf(g: Any, before: Any, size: Any) -> tuple[Any, Any, Any]:
            size = tnp.where(size > 0, size, now.learning_rate)
            turned = tnp.sign(g) * tnp.sign(before)
            factor = tnp.where(turned > 0, now.eta_plus, now.eta_minus)
            new = tnp.clip(size * factor, now.min_step_size, now.max_step_size)
            size = tnp.where(turned == 0, size, new)
            g = tnp.where(turned < 0, 0, g)
            return size * tnp.sign(g), g, size

        return leaf

    numbers = {
        "learning_rate": learning_rate,
        "eta_minus": eta_minus,
        "eta_plus": eta_plus,
        "min_step_size": min_step_size,
        "max_step_size": max_step_size,
    }
    moments = {"gradient": means(), "step_size": squares()}
    return by_leaf("scale_by_rprop", numbers, moments, rule)


def rprop(
    learning_rate: Hyperparameter,
    eta_minus: Hyperparameter = 0.5,
    eta_plus: Hyperparameter = 1.2,
    min_step_size: Hyperparameter = 1e-6,
    max_step_size: Hyperparameter = 50.0,
) -> Transform:
    """Rprop: steps from signs alone, for gradients of all data; see `scale_by_rprop`.

    Args:
      learning_rate: the first step size, read at the first gradient of a leaf.

    Riedmiller and Braun, *A Direct Adaptive Method for Faster Backpropagation Learning:
    The RPROP Algorithm*, 1993.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.rprop(0.1)
    >>> optimizer.update(grads, optimizer.init(params))[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("rprop", learning_rate=learning_rate)
    sizes = (min_step_size, max_step_size)
    return named(
        "rprop",
        scale_by_rprop(learning_rate, eta_minus, eta_plus, *sizes),
        scale(-1.0),
    )
