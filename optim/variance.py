"""Optimizers that know another variance than Adam: AdaBelief, Yogi, RAdam, NovoGrad."""

from __future__ import annotations

from typing import Any

import treadle.numpy as tnp
from treadle.optim.base import Transform
from treadle.optim.hyper import Hyperparameter
from treadle.optim.leaves import square
from treadle.optim.limits import check
from treadle.optim.moments import ahead, by_leaf, means, norms, squares
from treadle.optim.named import named
from treadle.optim.scale import scale_by_learning_rate


def scale_by_belief(
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-16,
    eps_root: Hyperparameter = 1e-16,
    nesterov: bool = False,
) -> Transform:
    """Divides by how far gradients are from what was expected of them.

    ``m ← b1 m + (1 - b1) g``, ``v ← b2 v + (1 - b2) (g - m)² + eps_root``; the update
    is ``m̂ / (√v̂ + eps)``, corrected as in `scale_by_adam`.

    Zhuang et al., *AdaBelief Optimizer: Adapting Stepsizes by the Belief in Observed
    Gradients*, 2020.

    >>> belief = scale_by_belief(b1=0.5)
    >>> grads = tnp.array([100.0, -0.5])
    >>> belief.update(grads, belief.init(grads))[0]
    Array([ 2., -2.], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        b1, b2, c1, c2 = now.b1, now.b2, 1 - now.b1, 1 - now.b2
        root = tnp.sqrt(1 - b2**time)
        hat = ahead(b1, time, nesterov, root)
        eps = root * now.eps

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            m = b1 * m + c1 * g
            v = b2 * v + c2 * square(g - m) + now.eps_root
            return hat(g, m) / (tnp.sqrt(v) + eps), m, v

        return leaf

    numbers = {"b1": b1, "b2": b2, "eps": eps, "eps_root": eps_root}
    moments = {"mean": means(), "variance": squares()}
    return by_leaf("scale_by_belief", numbers, moments, rule)


def adabelief(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-16,
    eps_root: Hyperparameter = 1e-16,
    nesterov: bool = False,
) -> Transform:
    """AdaBelief: large steps where gradients are as expected; see `scale_by_belief`.

    Zhuang et al., *AdaBelief Optimizer: Adapting Stepsizes by the Belief in Observed
    Gradients*, 2020.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.adabelief(0.1, b1=0.5)
    >>> optimizer.update(grads, optimizer.init(params))[0]
    {'w': Array([-0.2], dtype=float32)}
    """
    check("adabelief", learning_rate=learning_rate)
    return named(
        "adabelief",
        scale_by_belief(b1, b2, eps, eps_root, nesterov),
        scale_by_learning_rate(learning_rate),
    )


def scale_by_yogi(
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-3,
    initial_accumulator_value: Hyperparameter = 1e-6,
) -> Transform:
    """Adam whose mean square changes by no more than the square of the gradient.

    ``m ← b1 m + (1 - b1) g``, ``v ← v - (1 - b2) sign(v - g²) g²``, both from
    `initial_accumulator_value` as it is at a leaf's first gradient; the update is
    ``m̂ / (√v̂ + eps)``, corrected as in `scale_by_adam`.

    Zaheer et al., *Adaptive Methods for Nonconvex Optimization*, 2018.

    >>> yogi = scale_by_yogi(eps=0.0, initial_accumulator_value=0.0)
    >>> grads = tnp.array([100.0, -0.5])
    >>> yogi.update(grads, yogi.init(grads))[0]
    Array([ 1., -1.], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        b1, c1, c2 = now.b1, 1 - now.b1, 1 - now.b2
        root = tnp.sqrt(1 - now.b2**time)
        hat = ahead(b1, time, False, root)
        eps = root * now.eps

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            # v never falls to 0: there it is before the first gradient.
            m = tnp.where(v > 0, m, now.initial_accumulator_value)
            v = tnp.where(v > 0, v, now.initial_accumulator_value)
            m = b1 * m + c1 * g
            size = square(g)
            v = v - c2 * tnp.sign(v - size) * size
            return hat(g, m) / (tnp.sqrt(v) + eps), m, v

        return leaf

    numbers = {
        "b1": b1,
        "b2": b2,
        "eps": eps,
        "initial_accumulator_value": initial_accumulator_value,
    }
    moments = {"mean": means(), "mean_square": squares()}
    return by_leaf("scale_by_yogi", numbers, moments, rule)


def yogi(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-3,
) -> Transform:
    """Yogi: Adam whose denominators change slowly; see `scale_by_yogi`.

    Zaheer et al., *Adaptive Methods for Nonconvex Optimization*, 2018.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.yogi(0.1)
    >>> updates, state = optimizer.update(grads, optimizer.init(params))
    >>> optim.apply_updates(params, updates)
    {'w': Array([0.9], dtype=float32)}
    """
    check("yogi", learning_rate=learning_rate)
    return named(
        "yogi", scale_by_yogi(b1, b2, eps), scale_by_learning_rate(learning_rate)
    )


def scale_by_radam(
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    threshold: Hyperparameter = 5.0,
    nesterov: bool = False,
) -> Transform:
    """Adam that leaves out the division while too few gradients were seen for it.

    With ``last = 2 / (1 - b2) - 1`` and ``n = last - 2 t b2ᵗ / (1 - b2ᵗ)``, the update
    is ``r m̂ / (√v̂ + eps)`` where n is `threshold` or more, for ``r² = (n - 4) (n - 2)
    last / ((last - 4) (last - 2) n)``, and m̂ before.

    Liu et al., *On the Variance of the Adaptive Learning Rate and Beyond*, 2020.

    >>> radam = scale_by_radam()
    >>> grads = tnp.array([100.0, -0.5])
    >>> radam.update(grads, radam.init(grads))[0]
    Array([100. ,  -0.5], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        b1, b2, c1, c2 = now.b1, now.b2, 1 - now.b1, 1 - now.b2
        # 1 - b2ᵗ without cancellation: n is a difference of large numbers.
        rest = -tnp.expm1(time * tnp.log1p(-c2))
        last = 2 / c2 - 1
        n = last - 2 * time * b2**time / rest
        enough = n >= now.threshold
        above = tnp.where(enough, (n - 4) * (n - 2) * last, 1)
        rate = tnp.sqrt(above / tnp.where(enough, (last - 4) * (last - 2) * n, 1))
        hat = ahead(b1, time, nesterov)

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            m = b1 * m + c1 * g
            v = b2 * v + c2 * square(g)
            scale = tnp.sqrt(v / rest) + now.eps
            return hat(g, m) * tnp.where(enough, rate / scale, 1), m, v

        return leaf

    numbers = {"b1": b1, "b2": b2, "eps": eps, "threshold": threshold}
    moments = {"mean": means(), "mean_square": squares()}
    return by_leaf("scale_by_radam", numbers, moments, rule)


def radam(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    threshold: Hyperparameter = 5.0,
    nesterov: bool = False,
) -> Transform:
    """RAdam: Adam that needs no warm-up; see `scale_by_radam`.

    Liu et al., *On the Variance of the Adaptive Learning Rate and Beyond*, 2020.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.radam(0.1)
    >>> optimizer.update(grads, optimizer.init(params))[0]
    {'w': Array([-0.3], dtype=float32)}
    """
    check("radam", learning_rate=learning_rate)
    return named(
        "radam",
        scale_by_radam(b1, b2, eps, threshold, nesterov),
        scale_by_learning_rate(learning_rate),
    )


def scale_by_novograd(
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.25,
    eps: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 0.0,
    moment_dtype: Any = None,
) -> Transform:
    """Divides each layer's gradient by a running mean of its norm, then adds momentum.

    ``v ← b2 v + (1 - b2) ‖g‖²``, one number for each leaf, from the first ‖g‖²; the
    update is ``m ← b1 m + g / (√v + eps) + weight_decay · p``.

    Ginsburg et al., *Stochastic Gradient Methods with Layer-wise Adaptive Moments for
    Training of Deep Networks*, 2019.

    >>> novograd = scale_by_novograd()
    >>> grads = tnp.array([3.0, -4.0])
    >>> novograd.update(grads, novograd.init(grads), grads)[0]
    Array([ 0.6, -0.8], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        b1, b2 = now.b1, tnp.where(time == 1, 0, now.b2)

        def leaf(g: Any, m: Any, v: Any, p: Any) -> tuple[Any, Any, Any]:
            v = b2 * v + (1 - b2) * tnp.sum(square(g))
            m = b1 * m + g / (tnp.sqrt(v) + now.eps) + now.weight_decay * p
            return m, m, v

        return leaf

    numbers = {"b1": b1, "b2": b2, "eps": eps, "weight_decay": weight_decay}
    moments = {"mean": means(moment_dtype), "mean_square": norms}
    return by_leaf("scale_by_novograd", numbers, moments, rule, needs_params=True)


def novograd(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.25,
    eps: Hyperparameter = 1e-6,
    weight_decay: Hyperparameter = 0.0,
    moment_dtype: Any = None,
) -> Transform:
    """NovoGrad: gradients divided by the norm of their layer; see `scale_by_novograd`.

    It holds one moment of the size of the parameters, as momentum does.

    Ginsburg et al., *Stochastic Gradient Methods with Layer-wise Adaptive Moments for
    Training of Deep Networks*, 2019.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.novograd(0.1)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("novograd", learning_rate=learning_rate)
    return named(
        "novograd",
        scale_by_novograd(b1, b2, eps, weight_decay, moment_dtype),
        scale_by_learning_rate(learning_rate),
    )
