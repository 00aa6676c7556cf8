"""Optimizers whose steps follow the norm of each layer's parameters: LARS, LAMB."""

from __future__ import annotations

from typing import Any

import treadle.numpy as tnp
from treadle import tree
from treadle.optim.base import Transform, check_params, check_state
from treadle.optim.decay import Mask, add_decayed_weights
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, square, widen
from treadle.optim.limits import check
from treadle.optim.moments import by_leaf
from treadle.optim.named import named
from treadle.optim.scale import scale_by_adam, scale_by_learning_rate, trace


def scale_by_trust_ratio(
    min_norm: Hyperparameter = 0.0,
    trust_coefficient: Hyperparameter = 1.0,
    eps: Hyperparameter = 0.0,
    mask: Mask | None = None,
) -> Transform:
    """Gives the update of each leaf a norm proportional to that of the parameter.

    ``u ← u · trust_coefficient · ‖p‖ / (‖u‖ + eps)``; u where either norm is 0. Norms
    are at least `min_norm`.

    Args:
      mask: which parameters this concerns; all by default.

    You et al., *Large Batch Training of Convolutional Networks*, 2017.

    >>> ratio = scale_by_trust_ratio()
    >>> params, grads = tnp.array([6.0, 8.0]), tnp.array([0.3, 0.4])
    >>> ratio.update(grads, ratio.init(params), params)[0]
    Array([6., 8.], dtype=float32)
    """
    name = "scale_by_trust_ratio"
    numbers = {
        "trust_coefficient": trust_coefficient,
        "eps": eps,
        "min_norm": min_norm,
    }
    check(name, **numbers)

    def init(params: Any) -> Hyperparameters:
        return hyper(**numbers)

    def update(
        grads: Any, state: Hyperparameters, params: Any = None
    ) -> tuple[Any, Any]:
        check_state(state, Hyperparameters, name)
        check_params(params, grads, name)
        now, after = state.step()
        chosen = tree.select(True if mask is None else mask)(params)

        def norm(x: Any) -> Any:
            return tnp.maximum(tnp.sqrt(tnp.sum(square(widen(x)))), now.min_norm)

        def leaf(u: Any, p: Any, here: Any) -> tuple[Any]:
            if not here:
                return (u,)
            size, step = norm(p), norm(u)
            ratio = now.trust_coefficient * size / (step + now.eps)
            return (u * tnp.where((size == 0) | (step == 0), 1, ratio),)

        (updates,) = map_updates(leaf, grads, read=(params, chosen))
        return updates, after

    return Transform(init, update, name)


def clip_by_block_rms(threshold: Hyperparameter) -> Transform:
    """Limits the root mean square of the update of each leaf.

    ``u ← u / max(1, rms(u) / threshold)``

    Shazeer and Stern, *Adafactor: Adaptive Learning Rates with Sublinear Memory Cost*,
    2018.

    >>> limit = clip_by_block_rms(1.0)
    >>> grads = [tnp.array([4.0, -4.0]), tnp.array([0.5, 0.5])]
    >>> limit.update(grads, limit.init(grads))[0]
    [Array([ 1., -1.], dtype=float32), Array([0.5, 0.5], dtype=float32)]
    """

    def rule(now: Any, time: Any) -> Any:
        return lambda g: (g / tnp.maximum(1, rms(g) / now.threshold),)

    return by_leaf("clip_by_block_rms", {"threshold": threshold}, {}, rule)


def scale_by_param_block_rms(min_scale: Hyperparameter = 1e-3) -> Transform:
    """Multiplies the update of each leaf by the root mean square of the parameter.

    ``u ← u · max(rms(p), min_scale)``

    Shazeer and Stern, *Adafactor: Adaptive Learning Rates with Sublinear Memory Cost*,
    2018.

    >>> relative = scale_by_param_block_rms()
    >>> params = tnp.array([4.0, -4.0])
    >>> relative.update(tnp.ones(2), relative.init(params), params)[0]
    Array([4., 4.], dtype=float32)
    """

    def rule(now: Any, time: Any) -> Any:
        return lambda g, p: (g * tnp.maximum(rms(widen(p)), now.min_scale),)

    return by_leaf("scale_by_param_block_rms", {"min_scale": min_scale}, {}, rule, True)


def rms(x: Any) -> Any:
    """The root of the mean square of all elements; 0 if there are none."""
    return tnp.sqrt(tnp.sum(square(x)) / max(x.size, 1))


def lars(
    learning_rate: Hyperparameter,
    weight_decay: Hyperparameter = 0.0,
    mask: Mask | None = None,
    trust_coefficient: Hyperparameter = 0.001,
    eps: Hyperparameter = 0.0,
    trust_mask: Mask | None = None,
    momentum: Hyperparameter = 0.9,
    nesterov: bool = False,
) -> Transform:
    """LARS: SGD with momentum for large batches; see `scale_by_trust_ratio`.

    ``v ← momentum · v - learning_rate · r (g + weight_decay · p)``, ``p ← p + v``,
    where r makes the step proportional to the norm of p, leaf by leaf.

    Args:
      mask: which parameters decay. trust_mask: which are scaled by r. All by default;
        `matrices` leaves out biases.

    You et al., *Large Batch Training of Convolutional Networks*, 2017.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.lars(0.1, trust_coefficient=1.0)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("lars", learning_rate=learning_rate)
    return named(
        "lars",
        add_decayed_weights(weight_decay, mask),
        scale_by_trust_ratio(0.0, trust_coefficient, eps, trust_mask),
        scale_by_learning_rate(learning_rate),
        trace(momentum, nesterov),
    )


def lamb(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-6,
    weight_decay: Hyperparameter = 0.0,
    mask: Mask | None = None,
    trust_mask: Mask | None = None,
) -> Transform:
    """LAMB: AdamW for large batches; see `scale_by_adam` and `scale_by_trust_ratio`.

    Args:
      mask: which parameters decay. trust_mask: whose step follows their norm. All by
        default; `matrices` leaves out biases.

    You et al., *Large Batch Optimization for Deep Learning: Training BERT in 76
    minutes*, 2020.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.array([2.0])}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.lamb(0.1)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.2], dtype=float32)}
    """
    check("lamb", learning_rate=learning_rate)
    return named(
        "lamb",
        scale_by_adam(b1, b2, eps),
        add_decayed_weights(weight_decay, mask),
        scale_by_trust_ratio(mask=trust_mask),
        scale_by_learning_rate(learning_rate),
    )
