"""Optimizers that divide by what they know of the size of each gradient: AdaGrad and
what was made of it and of Adam."""

from __future__ import annotations

from typing import Any

import treadle.numpy as tnp
from treadle.optim.base import Transform
from treadle.optim.decay import Mask, add_decayed_weights
from treadle.optim.hyper import Hyperparameter
from treadle.optim.leaves import square
from treadle.optim.limits import check
from treadle.optim.moments import ahead, by_leaf, means, squares
from treadle.optim.named import adam, adamw, named
from treadle.optim.scale import scale_by_learning_rate

# Sums of squares ----------------------------------------------------------------------


def scale_by_rss(
    initial_accumulator_value: Hyperparameter = 0.1, eps: Hyperparameter = 1e-7
) -> Transform:
    """Divides by the root of the sum of all squared gradients so far.

    With ``s = initial_accumulator_value + Σ g²`` the update is ``g / √(s + eps)``, and
    0 where s is 0. The state has the sum, without the number that it is added to.

    Duchi et al., *Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization*, 2011.

    >>> rss = scale_by_rss(0.0)
    >>> grads = tnp.array([100.0, -0.5])
    >>> rss.update(grads, rss.init(grads))[0]
    Array([ 1., -1.], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        def leaf(g: Any, total: Any) -> tuple[Any, Any]:
            total = total + square(g)
            s = total + now.initial_accumulator_value
            some = s > 0
            update = g / tnp.sqrt(tnp.where(some, s, 1) + now.eps)
            return tnp.where(some, update, 0), total

        return leaf

    numbers = {"initial_accumulator_value": initial_accumulator_value, "eps": eps}
    return by_leaf("scale_by_rss", numbers, {"sum_of_squares": squares()}, rule)


def adagrad(
    learning_rate: Hyperparameter,
    initial_accumulator_value: Hyperparameter = 0.1,
    eps: Hyperparameter = 1e-7,
) -> Transform:
    """AdaGrad: ``p ← p - learning_rate · g / √(Σ g² + eps)``; see `scale_by_rss`.

    Steps get shorter for ever: for sparse gradients and convex problems.

    Duchi et al., *Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization*, 2011.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.adagrad(0.1, initial_accumulator_value=0.0)
    >>> optimizer.update(grads, optimizer.init(params))[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("adagrad", learning_rate=learning_rate)
    return named(
        "adagrad",
        scale_by_rss(initial_accumulator_value, eps),
        scale_by_learning_rate(learning_rate),
    )


def scale_by_adadelta(
    decay: Hyperparameter = 0.9, eps: Hyperparameter = 1e-6
) -> Transform:
    """Gives gradients the size of earlier updates.

    ``v ← decay · v + (1 - decay) g²``, the update is ``u = g √(d + eps) / √(v + eps)``,
    then ``d ← decay · d + (1 - decay) u²``.

    Zeiler, *ADADELTA: An Adaptive Learning Rate Method*, 2012.

    >>> delta = scale_by_adadelta(eps=1.0)
    >>> delta.update(tnp.zeros(2), delta.init(tnp.zeros(2)))[0]
    Array([0., 0.], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        keep, new = now.decay, 1 - now.decay

        def leaf(g: Any, v: Any, d: Any) -> tuple[Any, Any, Any]:
            v = keep * v + new * square(g)
            update = g * (tnp.sqrt(d + now.eps) / tnp.sqrt(v + now.eps))
            return update, v, keep * d + new * square(update)

        return leaf

    moments = {"mean_square": squares(), "mean_square_update": squares()}
    numbers = {"decay": decay, "eps": eps}
    return by_leaf("scale_by_adadelta", numbers, moments, rule)


def adadelta(
    learning_rate: Hyperparameter = 1.0,
    decay: Hyperparameter = 0.9,
    eps: Hyperparameter = 1e-6,
    weight_decay: Hyperparameter = 0.0,
    mask: Mask | None = None,
) -> Transform:
    """AdaDelta: steps of the size of earlier steps; see `scale_by_adadelta`.

    The weight decay is added to the gradient.

    Zeiler, *ADADELTA: An Adaptive Learning Rate Method*, 2012.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.adadelta(eps=0.1)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.9487], dtype=float32)}
    """
    check("adadelta", learning_rate=learning_rate)
    return named(
        "adadelta",
        add_decayed_weights(weight_decay, mask),
        scale_by_adadelta(decay, eps),
        scale_by_learning_rate(learning_rate),
    )


# Maxima -------------------------------------------------------------------------------


def scale_by_adamax(
    b1: Hyperparameter = 0.9, b2: Hyperparameter = 0.999, eps: Hyperparameter = 1e-8
) -> Transform:
    """Divides a running mean of the gradients by a decaying maximum of their sizes.

    ``m ← b1 m + (1 - b1) g``, ``v ← max(b2 v, |g| + eps)``; the update is ``m̂ / v``
    with ``m̂ = m / (1 - b1ᵗ)``.

    Kingma and Ba, *Adam: A Method for Stochastic Optimization*, 2015.

    >>> adamax = scale_by_adamax()
    >>> grads = tnp.array([100.0, -0.5])
    >>> adamax.update(grads, adamax.init(grads))[0]
    Array([ 1., -1.], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        b1, c1 = now.b1, 1 - now.b1
        hat = ahead(b1, time, False)

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            m = b1 * m + c1 * g
            v = tnp.maximum(now.b2 * v, tnp.abs(g) + now.eps)
            return hat(g, m) / v, m, v

        return leaf

    moments = {"mean": means(), "maximum": squares()}
    numbers = {"b1": b1, "b2": b2, "eps": eps}
    return by_leaf("scale_by_adamax", numbers, moments, rule)


def adamax(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
) -> Transform:
    """AdaMax: Adam with a decaying maximum for a mean square; see `scale_by_adamax`.

    Kingma and Ba, *Adam: A Method for Stochastic Optimization*, 2015.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.adamax(0.1)
    >>> optimizer.update(grads, optimizer.init(params))[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("adamax", learning_rate=learning_rate)
    return named(
        "adamax", scale_by_adamax(b1, b2, eps), scale_by_learning_rate(learning_rate)
    )


def adamaxw(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 1e-4,
    mask: Mask | None = None,
) -> Transform:
    """AdaMax with decoupled weight decay: what `adamw` is to `adam`.

    Loshchilov and Hutter, *Decoupled Weight Decay Regularization*, 2019.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.adamaxw(0.1, weight_decay=0.5)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.15], dtype=float32)}
    """
    check("adamaxw", learning_rate=learning_rate)
    return named(
        "adamaxw",
        scale_by_adamax(b1, b2, eps),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def scale_by_amsgrad(
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    moment_dtype: Any = None,
) -> Transform:
    """Adam whose denominators never shrink.

    As `scale_by_adam`, with the maximum of all v̂ so far for v̂.

    Reddi et al., *On the Convergence of Adam and Beyond*, 2018.

    >>> amsgrad = scale_by_amsgrad()
    >>> grads = tnp.array([100.0, -0.5])
    >>> amsgrad.update(grads, amsgrad.init(grads))[0]
    Array([ 1., -1.], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        b1, b2, c1, c2 = now.b1, now.b2, 1 - now.b1, 1 - now.b2
        hat = ahead(b1, time, False)
        whole = 1 / (1 - b2**time)

        def leaf(g: Any, m: Any, v: Any, most: Any) -> tuple[Any, Any, Any, Any]:
            m = b1 * m + c1 * g
            v = b2 * v + c2 * square(g)
            most = tnp.maximum(most, whole * v)
            return hat(g, m) / (tnp.sqrt(most) + now.eps), m, v, most

        return leaf

    moments = {
        "mean": means(moment_dtype),
        "mean_square": squares(),
        "maximum": squares(),
    }
    numbers = {"b1": b1, "b2": b2, "eps": eps}
    return by_leaf("scale_by_amsgrad", numbers, moments, rule)


def amsgrad(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    moment_dtype: Any = None,
) -> Transform:
    """AMSGrad: Adam whose denominators never shrink; see `scale_by_amsgrad`.

    Reddi et al., *On the Convergence of Adam and Beyond*, 2018.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.amsgrad(0.1)
    >>> optimizer.update(grads, optimizer.init(params))[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("amsgrad", learning_rate=learning_rate)
    return named(
        "amsgrad",
        scale_by_amsgrad(b1, b2, eps, moment_dtype),
        scale_by_learning_rate(learning_rate),
    )


# Nesterov -----------------------------------------------------------------------------


def nadam(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    moment_dtype: Any = None,
) -> Transform:
    """NAdam: `adam` with ``nesterov=True``.

    Dozat, *Incorporating Nesterov Momentum into Adam*, 2016.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.nadam(0.1)
    >>> optimizer.update(grads, optimizer.init(params))[0]
    {'w': Array([-0.1474], dtype=float32)}
    """
    return named("nadam", adam(learning_rate, b1, b2, eps, True, moment_dtype))


def nadamw(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 1e-4,
    mask: Mask | None = None,
    moment_dtype: Any = None,
) -> Transform:
    """NAdam with decoupled weight decay: `adamw` with ``nesterov=True``.

    Dozat, *Incorporating Nesterov Momentum into Adam*, 2016; Loshchilov and Hutter,
    *Decoupled Weight Decay Regularization*, 2019.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.nadamw(0.1, weight_decay=0.5)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.1974], dtype=float32)}
    """
    return named(
        "nadamw",
        adamw(learning_rate, b1, b2, eps, weight_decay, mask, True, moment_dtype),
    )
