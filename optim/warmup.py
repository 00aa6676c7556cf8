"""Schedules that begin with a warm-up, and products of schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.optim.schedule import (
    Number,
    Schedule,
    exponential_decay,
    join_schedules,
    linear_schedule,
    positive,
    within,
)


def warmup_exponential_decay_schedule(
    init_value: Number,
    peak_value: Number,
    warmup_steps: Number,
    transition_steps: Number,
    decay_rate: Number,
    transition_begin: Number = 0,
    staircase: bool = False,
    end_value: Number | None = None,
) -> Schedule:
    """A linear warm-up to `peak_value`, then an `exponential_decay`, which counts its
    steps from the end of the warm-up.

    >>> schedule = warmup_exponential_decay_schedule(0.0, 1.0, 10, 20, 0.5)
    >>> schedule(5), schedule(30)
    (Array(0.5, dtype=float32), Array(0.5, dtype=float32))
    """
    positive("warmup_exponential_decay_schedule", warmup_steps=warmup_steps)
    decay = exponential_decay(
        peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value
    )
    rise = linear_schedule(init_value, peak_value, warmup_steps)
    return join_schedules([rise, decay], [warmup_steps])


def _inverse_sqrt(
    count: Any, init_value: Any, peak_value: Any, warmup_steps: Any, timescale: Any
) -> Any:
    risen = tnp.minimum(count / tnp.maximum(warmup_steps, 1), 1.0)
    late = tnp.maximum(count - warmup_steps, 0) / timescale
    rise = init_value + (peak_value - init_value) * risen
    return tnp.where(count < warmup_steps, rise, peak_value / tnp.sqrt(1 + late))


def inverse_sqrt_schedule(
    peak_value: Number,
    warmup_steps: Number,
    timescale: Number | None = None,
    init_value: Number = 0.0,
) -> Schedule:
    """A linear warm-up to `peak_value`, then a decay like ``1 / √t``.

    ``peak_value / √(1 + (t - warmup_steps) / timescale)``

    Args:
      timescale: `warmup_steps` by default, and then this is
        ``peak_value √(warmup_steps / t)``; it is needed where there is no warm-up.

    Vaswani et al., *Attention Is All You Need*, 2017.

    >>> schedule = inverse_sqrt_schedule(1.0, warmup_steps=10)
    >>> schedule(5), schedule(10), schedule(40)
    (Array(0.5, dtype=float32), Array(1., dtype=float32), Array(0.5, dtype=float32))
    """
    timescale = warmup_steps if timescale is None else timescale
    within("inverse_sqrt_schedule", warmup_steps=warmup_steps)
    positive("inverse_sqrt_schedule", timescale=timescale)
    return Schedule(
        _inverse_sqrt,
        {
            "init_value": init_value,
            "peak_value": peak_value,
            "warmup_steps": warmup_steps,
            "timescale": timescale,
        },
    )


def _warmup_stable_decay(
    fall: Callable[[Any], Any],
    count: Any,
    init_value: Any,
    peak_value: Any,
    end_value: Any,
    warmup_steps: Any,
    stable_steps: Any,
    decay_steps: Any,
) -> Any:
    risen = tnp.minimum(count / tnp.maximum(warmup_steps, 1), 1.0)
    rise = init_value + (peak_value - init_value) * risen
    passed = tnp.clip((count - warmup_steps - stable_steps) / decay_steps, 0.0, 1.0)
    after = end_value + (peak_value - end_value) * fall(passed)
    return tnp.where(count < warmup_steps, rise, after)


def _warmup_stable_linear(count: Any, **numbers: Any) -> Any:
    return _warmup_stable_decay(lambda f: 1 - f, count, **numbers)


def _warmup_stable_cosine(count: Any, **numbers: Any) -> Any:
    return _warmup_stable_decay(
        lambda f: 0.5 * (1 + tnp.cos(np.pi * f)), count, **numbers
    )


def _warmup_stable_sqrt(count: Any, **numbers: Any) -> Any:
    return _warmup_stable_decay(lambda f: 1 - tnp.sqrt(f), count, **numbers)


_FALLS = {
    "linear": _warmup_stable_linear,
    "cosine": _warmup_stable_cosine,
    "sqrt": _warmup_stable_sqrt,
}


def warmup_stable_decay_schedule(
    peak_value: Number,
    warmup_steps: Number,
    stable_steps: Number,
    decay_steps: Number,
    init_value: Number = 0.0,
    end_value: Number = 0.0,
    decay: str = "linear",
) -> Schedule:
    """A trapezoid: a linear warm-up, the same value for a long time, then a decay.

    Args:
      decay: what share of the fall is left after a fraction f of the decay: "linear"
        ``1 - f``, "cosine" ``½ (1 + cos πf)``, or "sqrt" ``1 - √f``.

    Raises:
      ValueError: for another kind of decay.

    Hu et al., *MiniCPM: Unveiling the Potential of Small Language Models*, 2024;
    Hägele et al., *Scaling Laws and Compute-Optimal Training Beyond Fixed Training
    Durations*, 2024.

    >>> schedule = warmup_stable_decay_schedule(1.0, 10, 80, 10)
    >>> [schedule(step).item() for step in (5, 10, 90, 95, 200)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if decay not in _FALLS:
        raise ValueError(
            "warmup_stable_decay_schedule: decay is 'linear', 'cosine' or 'sqrt', got "
            f"{decay!r}{at(user_source())}"
        )
    name = "warmup_stable_decay_schedule"
    positive(name, decay_steps=decay_steps)
    within(name, warmup_steps=warmup_steps, stable_steps=stable_steps)
    return Schedule(
        _FALLS[decay],
        {
            "init_value": init_value,
            "peak_value": peak_value,
            "end_value": end_value,
            "warmup_steps": warmup_steps,
            "stable_steps": stable_steps,
            "decay_steps": decay_steps,
        },
    )


def _product(count: Any, schedules: Sequence) -> Any:
    return reduce(mul, [schedule(count) for schedule in schedules])


def product_schedule(*schedules: Callable[[Any], Any]) -> Schedule:
    """The product of several schedules, which all count the same steps.

    >>> warm = linear_schedule(0.0, 1.0, transition_steps=10)
    >>> product_schedule(warm, exponential_decay(1.0, 5, 0.5))(5)
    Array(0.25, dtype=float32)
    """
    parts = tuple(s if isinstance(s, Schedule) else Schedule(s, {}) for s in schedules)
    return Schedule(_product, {"schedules": parts})
