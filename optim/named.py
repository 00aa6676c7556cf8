"""Optimizers by name: each a short chain of transforms."""

from __future__ import annotations

from typing import Any

from treadle.optim.base import Transform
from treadle.optim.chain import chain
from treadle.optim.decay import Mask, add_decayed_weights
from treadle.optim.hyper import Hyperparameter
from treadle.optim.limits import check
from treadle.optim.scale import (
    scale_by_adam,
    scale_by_learning_rate,
    scale_by_lion,
    scale_by_rms,
    trace,
)


def sgd(
    learning_rate: Hyperparameter,
    momentum: Hyperparameter | None = None,
    nesterov: bool = False,
    moment_dtype: Any = None,
) -> Transform:
    """Stochastic gradient descent: ``p ← p - learning_rate · v``.

    Without momentum v is the gradient g; with it ``v ← momentum · v + g``, and with
    `nesterov` the step is along ``momentum · v + g``.

    Robbins and Monro, *A Stochastic Approximation Method*, 1951; Sutskever et al., *On
    the importance of initialization and momentum in deep learning*, 2013.

    >>> import treadle as td, treadle.numpy as tnp
    >>> from treadle import optim
    >>> params = {"w": tnp.array([1.0, 2.0])}
    >>> optimizer = optim.sgd(0.1, momentum=0.9)
    >>> state = optimizer.init(params)
    >>> grads = td.grad(lambda p: (p["w"] ** 2).sum())(params)
    >>> updates, state = optimizer.update(grads, state, params)
    >>> optim.apply_updates(params, updates)
    {'w': Array([0.8, 1.6], dtype=float32)}
    """
    check("sgd", learning_rate=learning_rate)
    rate = scale_by_learning_rate(learning_rate)
    if momentum is None:
        return named("sgd", rate)
    return named("sgd", trace(momentum, nesterov, moment_dtype), rate)


def adam(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    nesterov: bool = False,
    moment_dtype: Any = None,
    *,
    eps_root: Hyperparameter | None = None,
) -> Transform:
    """Adam: ``p ← p - learning_rate · m̂ / (√v̂ + eps)``; see `scale_by_adam`.

    Kingma and Ba, *Adam: A Method for Stochastic Optimization*, 2015.

    >>> import treadle.numpy as tnp
    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.adam(0.1)
    >>> optimizer.update(grads, optimizer.init(params))[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    check("adam", learning_rate=learning_rate, b1=b1, b2=b2, eps=eps)
    return named(
        "adam",
        scale_by_adam(b1, b2, eps, nesterov, moment_dtype, eps_root=eps_root),
        scale_by_learning_rate(learning_rate),
    )


def adamw(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 1e-4,
    mask: Mask | None = None,
    nesterov: bool = False,
    moment_dtype: Any = None,
    *,
    eps_root: Hyperparameter | None = None,
) -> Transform:
    """Adam with decoupled weight decay.

    ``p ← p - learning_rate (m̂ / (√v̂ + eps) + weight_decay · p)``; see `scale_by_adam`.

    Args:
      learning_rate: a number, or a schedule: a function of the step count. So may all
        other numbers be.
      mask: which parameters decay: a pytree of booleans or a function from the
        parameters to one; all by default. `matrices` leaves out biases.
      moment_dtype: the dtype of the mean of gradients, to save memory.

    Loshchilov and Hutter, *Decoupled Weight Decay Regularization*, 2019.

    >>> import treadle.numpy as tnp
    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.adamw(0.1, weight_decay=0.5)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.15], dtype=float32)}
    """
    check("adamw", learning_rate=learning_rate, b1=b1, b2=b2, eps=eps)
    return named(
        "adamw",
        scale_by_adam(b1, b2, eps, nesterov, moment_dtype, eps_root=eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def lion(
    learning_rate: Hyperparameter,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.99,
    weight_decay: Hyperparameter = 1e-3,
    mask: Mask | None = None,
    moment_dtype: Any = None,
) -> Transform:
    """Lion: ``p ← p - learning_rate (sign(b1 m + (1 - b1) g) + weight_decay · p)``.

    Then ``m ← b2 m + (1 - b2) g``. It wants a learning rate 3 to 10 times smaller than
    AdamW's, and a weight decay as many times larger.

    Chen et al., *Symbolic Discovery of Optimization Algorithms*, 2023.

    >>> import treadle.numpy as tnp
    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.lion(0.1, weight_decay=0.5)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.15], dtype=float32)}
    """
    check("lion", learning_rate=learning_rate, b1=b1, b2=b2)
    return named(
        "lion",
        scale_by_lion(b1, b2, moment_dtype),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def rmsprop(
    learning_rate: Hyperparameter,
    decay: Hyperparameter = 0.9,
    eps: Hyperparameter = 1e-8,
    momentum: Hyperparameter | None = None,
    nesterov: bool = False,
    centered: bool = False,
    eps_in_sqrt: bool = True,
) -> Transform:
    """RMSProp: ``p ← p - learning_rate · g / √(v + eps)``; see `scale_by_rms`.

    With momentum, steps (learning rate included) add up: ``s ← momentum · s + step``.

    Tieleman and Hinton, *Lecture 6.5: RMSProp*, 2012; Graves, *Generating Sequences
    With Recurrent Neural Networks*, 2013 (centered).

    >>> import treadle.numpy as tnp
    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.rmsprop(0.1, decay=0.75)
    >>> optimizer.update(grads, optimizer.init(params))[0]
    {'w': Array([-0.2], dtype=float32)}
    """
    check("rmsprop", learning_rate=learning_rate, decay=decay, eps=eps)
    parts = [
        scale_by_rms(decay, eps, eps_in_sqrt, centered),
        scale_by_learning_rate(learning_rate),
    ]
    if momentum is not None:
        parts.append(trace(momentum, nesterov))
    return named("rmsprop", *parts)


def named(name: str, *parts: Transform) -> Transform:
    """A chain under a name of its own."""
    whole = chain(*parts)
    return Transform(whole.init, whole.update, name)
