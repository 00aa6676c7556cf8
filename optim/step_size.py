"""Optimizers that find out how long steps should be: Prodigy, Polyak's step size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source
from treadle.optim.base import Record, Transform, check_params, check_state
from treadle.optim.clip import global_norm
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, widen, zeros_for
from treadle.optim.limits import check
from treadle.optim.moments import copies
from treadle.optim.named import named, sgd
from treadle.optim.objective import check_value


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class ProdigyState(Record):
    """The state of `prodigy`. estimate: of the distance to the solution, d."""

    hyper: Hyperparameters
    mean: Any
    mean_square: Any
    sum: Any
    start: Any
    estimate: Any
    numerator: Any


def prodigy(
    learning_rate: Hyperparameter = 1.0,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    b3: Hyperparameter | None = None,
    eps: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 0.0,
    d0: Hyperparameter = 1e-6,
    d_coef: Hyperparameter = 1.0,
    safeguard_warmup: bool = False,
) -> Transform:
    """Prodigy: Adam that estimates its learning rate.

    With d for the distance to the solution, from d = `d0`, the start p₀ and
    ``r = d · learning_rate · √(1 - b2ᵗ) / (1 - b1ᵗ)``:
    ``m ← b1 m + (1 - b1) d g``, ``v ← b2 v + (1 - b2) (d g)²``,
    ``s ← b3 s + r d g / d0``, ``n ← b3 n + (r d / d0) <g, p₀ - p>``,
    ``d ← max(d, d_coef · n / ‖s‖₁)``; the update is
    ``-r (m / (√v + d · eps) + weight_decay · p)``.

    Args:
      learning_rate: 1, or a schedule; what to tune, if anything, is `d_coef`.
      b3: √b2 if None.
      safeguard_warmup: whether s leaves out the learning rate: for warm-ups.

    Mishchenko and Defazio, *Prodigy: An Expeditiously Adaptive Learner*, 2023.

    >>> from treadle import optim
    >>> params = {"w": tnp.array([1.0, -2.0])}
    >>> optimizer = optim.prodigy()
    >>> optimizer.update(params, optimizer.init(params), params)[0]
    {'w': Array([-0., 0.], dtype=float32)}
    """
    numbers = {"learning_rate": learning_rate, "b1": b1, "b2": b2, "eps": eps}
    numbers |= {"weight_decay": weight_decay, "d0": d0, "d_coef": d_coef}
    numbers |= {} if b3 is None else {"b3": b3}
    check("prodigy", **numbers)

    def init(params: Any) -> ProdigyState:
        made = hyper(**numbers)
        mean, square, total = (zeros_for(params) for _ in range(3))
        d = 1 * made.current()["d0"]
        return ProdigyState(made, mean, square, total, copies(params), d, _sum([]))

    def update(grads: Any, state: ProdigyState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, ProdigyState, "prodigy")
        check_params(params, grads, "prodigy")
        now, after = state.hyper.step()
        time, d = after.count.astype(td.float32), state.estimate
        b3 = getattr(now, "b3", tnp.sqrt(now.b2))
        rate = d * now.learning_rate * tnp.sqrt(1 - now.b2**time) / (1 - now.b1**time)
        weight = d / now.d0 * (d if safeguard_warmup else rate)
        products, sums = [], []

        def leaf(g: Any, m: Any, v: Any, s: Any, start: Any, p: Any) -> tuple[Any, ...]:
            g = widen(g)
            step = d * g
            m = now.b1 * m + (1 - now.b1) * step
            v = now.b2 * v + (1 - now.b2) * step * step
            s = b3 * s + weight * g
            products.append(tnp.sum(g * (start - p)))
            sums.append(tnp.sum(tnp.abs(s)))
            return g, m, v, s

        old = (state.mean, state.mean_square, state.sum)
        read = (state.start, params)
        _, mean, square, total = map_updates(leaf, grads, *old, read=read)
        numerator = b3 * state.numerator + d / now.d0 * rate * _sum(products)
        length = _sum(sums)
        found = now.d_coef * numerator / tnp.where(length > 0, length, 1)
        d = tnp.maximum(d, tnp.where(length > 0, found, 0))

        def step(g: Any, m: Any, v: Any, p: Any) -> tuple[Any]:
            return (-rate * (m / (tnp.sqrt(v) + d * now.eps) + now.weight_decay * p),)

        (updates,) = map_updates(step, grads, read=(mean, square, params))
        last = (state.start, d, numerator)
        return updates, ProdigyState(after, mean, square, total, *last)

    return Transform(init, update, "prodigy")


def _sum(parts: list[Any]) -> Any:
    return sum(parts, tnp.zeros((), td.float32)).astype(td.float32)


def scale_by_polyak(
    f_min: Hyperparameter = 0.0,
    max_learning_rate: Hyperparameter = 1.0,
    eps: Hyperparameter = 0.0,
    variant: Literal["sps", "sps+"] = "sps",
) -> Transform:
    """Multiplies by Polyak's step size.

    ``u · min((value - f_min) / (‖u‖² + eps), max_learning_rate)``, where the value of
    the loss is given to `update` by keyword: ``value=loss``. 0 where ‖u‖² is.

    Args:
      f_min: the least value that the loss can have.
      variant: "sps+" takes 0 for ``value - f_min`` where it is negative.

    Polyak, *Introduction to Optimization*, 1987; Loizou et al., *Stochastic Polyak
    Step-size for SGD*, 2021; Garrigos et al., *Function Value Learning*, 2023 (sps+).

    >>> polyak = scale_by_polyak()
    >>> grads = tnp.array([3.0, 4.0])
    >>> polyak.update(grads, polyak.init(grads), value=5.0)[0]
    Array([0.6, 0.8], dtype=float32)
    """
    name = "scale_by_polyak"
    numbers = {"max_learning_rate": max_learning_rate, "f_min": f_min, "eps": eps}
    check(name, **numbers)
    if variant not in ("sps", "sps+"):
        raise ValueError(
            f"{name}: variant={variant!r}, not 'sps' or 'sps+'{at(user_source())}"
        )

    def init(params: Any) -> Hyperparameters:
        return hyper(**numbers)

    def update(
        grads: Any, state: Hyperparameters, params: Any = None, *, value: Any = None
    ) -> tuple[Any, Any]:
        check_state(state, Hyperparameters, name)
        check_value(value, name)
        now, after = state.step()
        square = tnp.square(global_norm(grads)) + now.eps
        gap = tnp.asarray(value).astype(square.dtype) - now.f_min
        if variant == "sps+":
            gap = tnp.maximum(gap, 0)
        some = square > np.finfo(np.float64).eps
        step = tnp.minimum(gap / tnp.where(some, square, 1), now.max_learning_rate)
        step = tnp.where(some, step, 0)
        (updates,) = map_updates(lambda u: (step * u,), grads)
        return updates, after

    return Transform(init, update, name)


def polyak_sgd(
    max_learning_rate: Hyperparameter = 1.0,
    scaling: Hyperparameter = 1.0,
    f_min: Hyperparameter = 0.0,
    eps: Hyperparameter = 0.0,
    variant: Literal["sps", "sps+"] = "sps",
) -> Transform:
    """SGD with Polyak's step size; see `scale_by_polyak`.

    For losses whose least value is known, as 0 is where a model can fit all data.
    `update` takes the loss by keyword: ``value=loss``.

    Loizou et al., *Stochastic Polyak Step-size for SGD: An Adaptive Learning Rate for
    Fast Convergence*, 2021.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([2.0])}
    >>> optimizer = optim.polyak_sgd()
    >>> optimizer.update(grads, optimizer.init(params), value=1.0)[0]
    {'w': Array([-0.5], dtype=float32)}
    """
    return named(
        "polyak_sgd",
        sgd(scaling),
        scale_by_polyak(f_min, max_learning_rate, eps, variant),
    )
