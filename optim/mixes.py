"""Optimizers that mix several moments: Adan, AdEMAMix, ADOPT."""

from __future__ import annotations

from typing import Any

import treadle.numpy as tnp
from treadle.optim.base import Transform
from treadle.optim.decay import Mask, add_decayed_weights
from treadle.optim.hyper import Hyperparameter
from treadle.optim.leaves import square
from treadle.optim.limits import check
from treadle.optim.moments import ahead, by_leaf, means, squares
from treadle.optim.named import named
from treadle.optim.scale import scale_by_learning_rate


def scale_by_adan(
    b1: Hyperparameter = 0.98,
    b2: Hyperparameter = 0.92,
    b3: Hyperparameter = 0.99,
    eps: Hyperparameter = 1e-8,
    eps_root: Hyperparameter = 0.0,
) -> Transform:
    """Adam with a running mean of the gradient's changes, for Nesterov's look ahead.

    With ``d = g - g₀``, where g₀ is the gradient before (d is 0 at first):
    ``m ← b1 m + (1 - b1) g``, ``v ← b2 v + (1 - b2) d``,
    ``n ← b3 n + (1 - b3) (g + (1 - b2) d)²``; the update is
    ``(m̂ + (1 - b2) v̂) / (√(n̂ + eps_root) + eps)``, each corrected for its start.

    Xie et al., *Adan: Adaptive Nesterov Momentum Algorithm for Faster Optimizing Deep
    Models*, 2022.

    >>> adan = scale_by_adan()
    >>> grads = tnp.array([100.0, -0.5])
    >>> adan.update(grads, adan.init(grads))[0]
    Array([ 1., -1.], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        b1, b2, b3 = now.b1, now.b2, now.b3
        c1, c2, c3 = 1 - b1, 1 - b2, 1 - b3
        mean, change = 1 / (1 - b1**time), c2 / (1 - b2**time)
        size = 1 / (1 - b3**time)

        def leaf(g: Any, m: Any, v: Any, n: Any, before: Any) -> tuple[Any, ...]:
            d = tnp.where(time == 1, 0, g - before)
            m = b1 * m + c1 * g
            v = b2 * v + c2 * d
            n = b3 * n + c3 * square(g + c2 * d)
            scale = tnp.sqrt(size * n + now.eps_root) + now.eps
            return (mean * m + change * v) / scale, m, v, n, g

        return leaf

    numbers = {"b1": b1, "b2": b2, "b3": b3, "eps": eps, "eps_root": eps_root}
    moments = {
        "mean": means(),
        "mean_change": means(),
        "mean_square": squares(),
        "gradient": means(),
    }
    return by_leaf("scale_by_adan", numbers, moments, rule)


def adan(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.98,
    b2: Hyperparameter = 0.92,
    b3: Hyperparameter = 0.99,
    eps: Hyperparameter = 1e-8,
    eps_root: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 0.0,
    mask: Mask | None = None,
) -> Transform:
    """Adan: Adam with Nesterov momentum of its own; see `scale_by_adan`.

    Xie et al., *Adan: Adaptive Nesterov Momentum Algorithm for Faster Optimizing Deep
    Models*, 2022.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.adan(0.1)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("adan", learning_rate=learning_rate)
    return named(
        "adan",
        scale_by_adan(b1, b2, b3, eps, eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def scale_by_ademamix(
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    b3: Hyperparameter = 0.9999,
    alpha: Hyperparameter = 6.0,
    eps: Hyperparameter = 1e-8,
    eps_root: Hyperparameter = 0.0,
    moment_dtype: Any = None,
) -> Transform:
    """Adam with a second, much slower mean of the gradients.

    ``m ← b1 m + (1 - b1) g``, ``s ← b3 s + (1 - b3) g``, ``v ← b2 v + (1 - b2) g²``;
    the update is ``(m̂ + alpha · s) / (√(v̂ + eps_root) + eps)``.

    Args:
      b3, alpha: best schedules that rise from b1 and 0: the slow mean harms early
        steps.
      moment_dtype: the dtype of m and s.

    Pagliardini et al., *The AdEMAMix Optimizer: Better, Faster, Older*, 2024.

    >>> ademamix = scale_by_ademamix(alpha=0.0)
    >>> grads = tnp.array([100.0, -0.5])
    >>> ademamix.update(grads, ademamix.init(grads))[0]
    Array([ 1., -1.], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        b1, b2, b3 = now.b1, now.b2, now.b3
        whole = 1 / (1 - b2**time)
        hat = ahead(b1, time, False)

        def leaf(g: Any, m: Any, s: Any, v: Any) -> tuple[Any, Any, Any, Any]:
            m = b1 * m + (1 - b1) * g
            s = b3 * s + (1 - b3) * g
            v = b2 * v + (1 - b2) * square(g)
            scale = tnp.sqrt(whole * v + now.eps_root) + now.eps
            return (hat(g, m) + now.alpha * s) / scale, m, s, v

        return leaf

    numbers = {"b1": b1, "b2": b2, "b3": b3, "alpha": alpha, "eps": eps}
    moments = {
        "mean": means(moment_dtype),
        "slow_mean": means(moment_dtype),
        "mean_square": squares(),
    }
    numbers["eps_root"] = eps_root
    return by_leaf("scale_by_ademamix", numbers, moments, rule)


def ademamix(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    b3: Hyperparameter = 0.9999,
    alpha: Hyperparameter = 5.0,
    eps: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 0.0,
    mask: Mask | None = None,
    moment_dtype: Any = None,
) -> Transform:
    """AdEMAMix: AdamW with a second, slow momentum; see `scale_by_ademamix`.

    Pagliardini et al., *The AdEMAMix Optimizer: Better, Faster, Older*, 2024.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.ademamix(0.1, alpha=optim.linear_schedule(0.0, 5.0, 100))
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("ademamix", learning_rate=learning_rate)
    return named(
        "ademamix",
        scale_by_ademamix(b1, b2, b3, alpha, eps, moment_dtype=moment_dtype),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def scale_by_simplified_ademamix(
    b1: Hyperparameter = 0.99,
    b2: Hyperparameter = 0.95,
    alpha: Hyperparameter = 0.0,
    eps: Hyperparameter = 1e-8,
    eps_root: Hyperparameter = 0.0,
) -> Transform:
    """AdEMAMix with one momentum, to which the gradient is added once more.

    ``m ← b1 m + g``, ``v ← b2 v + (1 - b2) g²``; the update is
    ``(m + alpha · g) / (√(v̂ + eps_root) + eps)``.

    Morwani et al., *Connections between Schedule-Free Optimizers, AdEMAMix, and
    Accelerated SGD Variants*, 2025.

    >>> simplified = scale_by_simplified_ademamix()
    >>> grads = tnp.array([100.0, -0.5])
    >>> simplified.update(grads, simplified.init(grads))[0]
    Array([ 1., -1.], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        b2 = now.b2
        whole = 1 / (1 - b2**time)

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            m = now.b1 * m + g
            v = b2 * v + (1 - b2) * square(g)
            scale = tnp.sqrt(whole * v + now.eps_root) + now.eps
            return (m + now.alpha * g) / scale, m, v

        return leaf

    numbers = {"b1": b1, "b2": b2, "alpha": alpha, "eps": eps, "eps_root": eps_root}
    moments = {"velocity": means(), "mean_square": squares()}
    return by_leaf("scale_by_simplified_ademamix", numbers, moments, rule)


def simplified_ademamix(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.99,
    b2: Hyperparameter = 0.95,
    alpha: Hyperparameter = 0.0,
    eps: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 0.0,
    mask: Mask | None = None,
) -> Transform:
    """Simplified AdEMAMix: one momentum; see `scale_by_simplified_ademamix`.

    Its momentum sums gradients up: learning rates are smaller, by ``1 - b1``.

    Morwani et al., *Connections between Schedule-Free Optimizers, AdEMAMix, and
    Accelerated SGD Variants*, 2025.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.simplified_ademamix(0.1)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("simplified_ademamix", learning_rate=learning_rate)
    return named(
        "simplified_ademamix",
        scale_by_simplified_ademamix(b1, b2, alpha, eps),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def scale_by_adopt(
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.9999,
    eps: Hyperparameter = 1e-6,
    clip_power: Hyperparameter | None = 0.25,
    nesterov: bool = False,
    moment_dtype: Any = None,
) -> Transform:
    """Adam that converges for every b2: gradients are scaled by what was known before.

    ``n = g / max(√v, eps)``, limited to ``±(t - 1)**clip_power``; then
    ``v ← b2 v + (1 - b2) g²`` and ``m ← b1 m + (1 - b1) n``, which is the update, or
    ``b1 m + (1 - b1) n`` with the new m if `nesterov`. At the first step v is g² and
    the update 0.

    Args:
      clip_power: None for no limit; then the first update is ``g / eps``.

    Taniguchi et al., *ADOPT: Modified Adam Can Converge with Any β₂ with the Optimal
    Rate*, 2024.

    >>> adopt = scale_by_adopt()
    >>> grads = tnp.array([100.0, -0.5])
    >>> _, state = adopt.update(grads, adopt.init(grads))
    >>> adopt.update(grads, state)[0]
    Array([ 0.1, -0.1], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        first = time == 1
        b1, b2 = tnp.where(first, 1, now.b1), tnp.where(first, 0, now.b2)
        limit = None if clip_power is None else (time - 1) ** now.clip_power

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            scaled = g / tnp.maximum(tnp.sqrt(v), now.eps)
            if limit is not None:
                scaled = tnp.clip(scaled, -limit, limit)
            v = b2 * v + (1 - b2) * square(g)
            m = b1 * m + (1 - b1) * scaled
            return (b1 * m + (1 - b1) * scaled if nesterov else m), m, v

        return leaf

    numbers = {"b1": b1, "b2": b2, "eps": eps}
    moments = {"mean": means(moment_dtype), "mean_square": squares()}
    if clip_power is not None:
        numbers["clip_power"] = clip_power
    return by_leaf("scale_by_adopt", numbers, moments, rule)


def adopt(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.9999,
    eps: Hyperparameter = 1e-6,
    clip_power: Hyperparameter | None = 0.25,
    nesterov: bool = False,
    moment_dtype: Any = None,
) -> Transform:
    """ADOPT: Adam that converges for every b2; see `scale_by_adopt`.

    The first step only looks: its update is 0.

    Taniguchi et al., *ADOPT: Modified Adam Can Converge with Any β₂ with the Optimal
    Rate*, 2024.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.adopt(0.1)
    >>> _, state = optimizer.update(grads, optimizer.init(params))
    >>> optimizer.update(grads, state)[0]
    {'w': Array([-0.01], dtype=float32)}
    """
    check("adopt", learning_rate=learning_rate)
    return named(
        "adopt",
        scale_by_adopt(b1, b2, eps, clip_power, nesterov, moment_dtype),
        scale_by_learning_rate(learning_rate),
    )
