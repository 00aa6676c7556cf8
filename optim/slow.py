"""Optimizers around others, with second weights to evaluate: lookahead, schedule-free.

`averaged` gives those weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source
from treadle.optim.average import Averaged
from treadle.optim.base import Transform, check_params, check_state
from treadle.optim.chain import chain
from treadle.optim.decay import Mask, add_decayed_weights
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper, hyperparameters
from treadle.optim.leaves import map_updates, widen
from treadle.optim.limits import check
from treadle.optim.moments import copies
from treadle.optim.named import sgd
from treadle.optim.scale import scale_by_learning_rate, scale_by_rms
from treadle.optim.schedule import Schedule, linear_schedule


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class LookaheadState(Averaged):
    """The state of `lookahead`: that of the optimizer within, and the slow weights."""

    hyper: Hyperparameters
    fast: Any
    slow: Any

    def weights(self, params: Any) -> Any:
        return self.slow


def lookahead(
    optimizer: Transform,
    sync_period: Hyperparameter = 6,
    slow_step_size: Hyperparameter = 0.5,
    reset_state: bool = False,
) -> Transform:
    """Lookahead: every few steps goes back part of the way.

    The optimizer's steps are taken as they are; after each `sync_period` of them the
    slow weights s follow, ``s ← s + slow_step_size (p - s)``, and the parameters go
    back there, ``p ← s``. `averaged` gives the slow weights.

    Args:
      reset_state: whether the optimizer's moments and counts start anew from there.

    Zhang et al., *Lookahead Optimizer: k steps forward, 1 step back*, 2019.

    >>> from treadle import optim
    >>> optimizer = optim.lookahead(optim.sgd(1.0), sync_period=2)
    >>> params, grads = {"w": tnp.zeros(1)}, {"w": tnp.ones(1)}
    >>> state = optimizer.init(params)
    >>> for _ in range(2):
    ...     updates, state = optimizer.update(grads, state, params)
    ...     params = optim.apply_updates(params, updates)
    >>> params
    {'w': Array([-1.], dtype=float32)}
    """
    name = "lookahead"
    numbers = {"sync_period": sync_period, "slow_step_size": slow_step_size}
    check(name, **numbers)

    def init(params: Any) -> LookaheadState:
        return LookaheadState(hyper(**numbers), optimizer.init(params), copies(params))

    def update(
        grads: Any, state: LookaheadState, params: Any = None, **extra: Any
    ) -> tuple[Any, LookaheadState]:
        check_state(state, LookaheadState, name)
        check_params(params, grads, name)
        now, after = state.hyper.step()
        updates, fast = optimizer.update(grads, state.fast, params, **extra)
        sync = after.count % tnp.maximum(now.sync_period, 1).astype(td.int32) == 0

        def leaf(u: Any, slow: Any, p: Any) -> tuple[Any, Any]:
            # In terms of the difference, which is small: so nothing is lost of u.
            apart = widen(p) + u - slow
            back = u - (1 - now.slow_step_size) * apart
            ahead = slow + now.slow_step_size * apart
            return tnp.where(sync, back, u), tnp.where(sync, ahead, slow)

        updates, slow = map_updates(leaf, updates, state.slow, read=(params,))
        if reset_state:
            fast = _reset(sync, optimizer.init(params), fast)
        return updates, LookaheadState(after, fast, slow)

    return Transform(init, update, name)


def _reset(when: Any, fresh: Any, state: Any) -> Any:
    """The state, as at first where `when`, but for its hyperparameters."""

    def choose(new: Any, old: Any) -> Any:
        if isinstance(old, Hyperparameters):
            return Hyperparameters(tnp.where(when, 0, old.count), old.values)
        return tnp.where(when, new, old)

    return tree.map(
        choose, fresh, state, is_leaf=lambda x: isinstance(x, Hyperparameters)
    )


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class ScheduleFreeState(Averaged):
    """The state of `schedule_free`: that of the optimizer within, and its weights z."""

    hyper: Hyperparameters
    base: Any
    z: Any
    weight_sum: Any
    max_learning_rate: Any

    def weights(self, params: Any) -> Any:
        """x, of which the parameters y are ``b1 x + (1 - b1) z``."""
        b1 = self.hyper.current()["b1"]
        return map_updates(lambda z, y: (_x(y, z, b1),), self.z, read=(params,))[0]


def _x(y: Any, z: Any, b1: Any) -> Any:
    return (widen(y) - (1 - b1) * z) / b1


def schedule_free(
    optimizer: Transform,
    b1: Hyperparameter = 0.9,
    weight_lr_power: Hyperparameter = 2.0,
) -> Transform:
    """Schedule-free training: an average of the weights in place of a schedule.

    The optimizer moves z by gradients at y, the parameters; x is a running average of
    z, with weights ``c = wₜ / Σ w``, ``w = (largest learning rate)**weight_lr_power``:
    ``z ← z + update(∇f(y))``, ``x ← (1 - c) x + c z``, ``y ← b1 x + (1 - b1) z``.
    Evaluate x: `averaged` gives it.

    Args:
      optimizer: without momentum (b1 is in place of it), with a constant learning rate
        or a warm-up.
      b1: may be set between steps, but is no schedule: x is found from y, z and it.

    Defazio et al., *The Road Less Scheduled*, 2024.

    >>> from treadle import optim
    >>> optimizer = optim.schedule_free(optim.sgd(0.5))
    >>> params = {"w": tnp.ones(1)}
    >>> state = optimizer.init(params)
    >>> for _ in range(20):
    ...     updates, state = optimizer.update(params, state, params)
    ...     params = optim.apply_updates(params, updates)
    >>> bool(abs(optim.averaged(params, state)["w"][0]) < 0.1)
    True
    """
    name = "schedule_free"
    numbers = {"b1": b1, "weight_lr_power": weight_lr_power}
    check(name, **numbers)
    if callable(b1) or isinstance(b1, Schedule):
        raise TypeError(f"{name}: b1 is a number, no schedule{at(user_source())}")

    def init(params: Any) -> ScheduleFreeState:
        base = optimizer.init(params)
        if "learning_rate" not in hyperparameters(base):
            raise ValueError(
                f"{name} found no single learning rate in {optimizer}"
                f"{at(user_source())}\nThe optimizer within must have one, with which "
                "the average is weighted."
            )
        zeros = [tnp.zeros((), td.float32) for _ in range(2)]
        return ScheduleFreeState(hyper(**numbers), base, copies(params), *zeros)

    def update(
        grads: Any, state: ScheduleFreeState, params: Any = None, **extra: Any
    ) -> tuple[Any, ScheduleFreeState]:
        check_state(state, ScheduleFreeState, name)
        check_params(params, grads, name)
        now, after = state.hyper.step()
        rate = hyperparameters(state.base)["learning_rate"]
        most = tnp.maximum(state.max_learning_rate, rate)
        weight = most**now.weight_lr_power
        total = state.weight_sum + weight
        share = tnp.where(total > 0, weight / tnp.where(total > 0, total, 1), 0)
        updates, base = optimizer.update(grads, state.base, params, **extra)
        b1 = now.b1

        def leaf(u: Any, z: Any, y: Any) -> tuple[Any, Any]:
            moved = z + u
            x = (1 - share) * _x(y, z, b1) + share * moved
            return b1 * x + (1 - b1) * moved - widen(y), moved

        updates, z = map_updates(leaf, updates, state.z, read=(params,))
        return updates, ScheduleFreeState(after, base, z, total, most)

    return Transform(init, update, name)


def schedule_free_sgd(
    learning_rate: float = 1.0,
    warmup_steps: int = 0,
    b1: Hyperparameter = 0.9,
    weight_decay: Hyperparameter = 0.0,
    mask: Mask | None = None,
    weight_lr_power: Hyperparameter = 2.0,
) -> Transform:
    """SGD without a schedule; see `schedule_free`. The decay is added to the gradient.

    Args:
      warmup_steps: over how many steps the learning rate rises, in equal parts.

    Defazio et al., *The Road Less Scheduled*, 2024.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.schedule_free_sgd(0.1)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.3], dtype=float32)}
    """
    numbers = {"learning_rate": learning_rate, "warmup_steps": warmup_steps}
    check("schedule_free_sgd", **numbers)
    base = chain(
        add_decayed_weights(weight_decay, mask), sgd(_warm(learning_rate, warmup_steps))
    )
    whole = schedule_free(base, b1, weight_lr_power)
    return Transform(whole.init, whole.update, "schedule_free_sgd")


def schedule_free_adamw(
    learning_rate: float = 0.0025,
    warmup_steps: int = 0,
    b1: Hyperparameter = 0.9,
    b2: Hyperparameter = 0.999,
    eps: Hyperparameter = 1e-8,
    weight_decay: Hyperparameter = 0.0,
    mask: Mask | None = None,
    weight_lr_power: Hyperparameter = 2.0,
) -> Transform:
    """AdamW without a schedule; see `schedule_free`.

    The optimizer within is AdamW without its mean of gradients, in place of which there
    is the average of weights.

    Args:
      warmup_steps: over how many steps the learning rate rises, in equal parts.

    Defazio et al., *The Road Less Scheduled*, 2024.

    >>> from treadle import optim
    >>> params, grads = {"w": tnp.ones(1)}, {"w": tnp.array([3.0])}
    >>> optimizer = optim.schedule_free_adamw(0.1)
    >>> optimizer.update(grads, optimizer.init(params), params)[0]
    {'w': Array([-0.1], dtype=float32)}
    """
    numbers = {"learning_rate": learning_rate, "warmup_steps": warmup_steps}
    check("schedule_free_adamw", **numbers)
    base = chain(
        scale_by_rms(b2, eps, eps_in_sqrt=False, bias_correction=True),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(_warm(learning_rate, warmup_steps)),
    )
    whole = schedule_free(base, b1, weight_lr_power)
    return Transform(whole.init, whole.update, "schedule_free_adamw")


def _warm(learning_rate: float, steps: int) -> Any:
    """``learning_rate · min(1, t / steps)`` for the step t from 1."""
    if steps < 2:
        return learning_rate
    return linear_schedule(learning_rate / steps, learning_rate, steps - 1)
