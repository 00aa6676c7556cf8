"""Schedules: hyperparameters that are functions of the step count.

A schedule is a rule (static: programs are compiled for it) with its numbers (run-time
values: other numbers compile nothing). It stands wherever a hyperparameter may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source

Number = Any
"""A Python number, or an array of one number."""


@partial(tree.register_dataclass, static=("rule",))
@dataclass(frozen=True, repr=False)
class Schedule:
    """A function of the number of updates made so far.

    rule: ``(count, **numbers) -> value``, made of `treadle.numpy`.
    numbers: by name; a pytree, which may hold other schedules.

    >>> def halving(count, start, steps):
    ...     return start * 0.5 ** (count / steps)
    >>> Schedule(halving, {"start": 1.0, "steps": 10})(20)
    Array(0.25, dtype=float32)
    """

    rule: Callable[..., Any]
    numbers: dict[str, Any]

    def __call__(self, count: Any) -> Any:
        return self.rule(tnp.asarray(count), **self.numbers)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            remedy = _REMEDIES.get(name, "")
            where = at(user_source()) if remedy else ""
            raise AttributeError(
                f"a schedule has no `{name}`{where}{remedy}", name=name, obj=self
            )

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}={show(v)}" for n, v in self.numbers.items())
        name = getattr(self.rule, "__name__", type(self.rule).__name__)
        return f"{name.strip('_')}({inside})"


_COUNTED = (
    "\nIt is a function of the count of updates, which the optimizer's state keeps: "
    "`optim.adam(schedule)`; `schedule(count)` is its value."
)
_REMEDIES = {
    "step": _COUNTED,
    "get_lr": _COUNTED,
    "last_epoch": _COUNTED,
    "get_last_lr": "\nWhat is used is in the state: `optim.hyperparameters(state)`.",
    "state_dict": "\nThe count is in the optimizer's state, a pytree, to be saved.",
    "load_state_dict": "\nThe count is in the optimizer's state: restore that.",
}


def show(value: Any) -> str:
    """A number as a reader wants it: without its dtype."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(show, value))}]"
    shown = isinstance(value, td.Array | np.generic) and _is_known(value)
    return str(value) if shown else repr(value)


def _is_known(value: Any) -> bool:
    numbers = (int, float, np.generic, td.Array)
    return isinstance(value, numbers) and not td.is_traced(value)


def positive(name: str, **numbers: Number) -> None:
    """
    Raises:
      ValueError: naming the first of the given numbers that is not positive.
    """
    for argument, value in numbers.items():
        if _is_known(value) and not float(value) > 0:
            raise ValueError(
                f"{name}: {argument} must be positive, got {value}{at(user_source())}"
            )


def within(name: str, most: float = np.inf, **numbers: Number) -> None:
    """
    Raises:
      ValueError: naming the first of the given numbers that is not from 0 to `most`.
    """
    for argument, value in numbers.items():
        if _is_known(value) and not 0 <= float(value) <= most:
            wanted = "0 or more" if most == np.inf else f"from 0 to {most:g}"
            raise ValueError(
                f"{name}: {argument} must be {wanted}, got {value}{at(user_source())}"
            )


# Constant, polynomial, linear ---------------------------------------------------------


def _constant(count: Any, value: Any) -> Any:
    return tnp.asarray(value, td.float32)


def constant_schedule(value: Number) -> Schedule:
    """The same value at every step.

    >>> constant_schedule(0.1)(1000)
    Array(0.1, dtype=float32)
    """
    return Schedule(_constant, {"value": value})


def _passed(count: Any, begin: Any, steps: Any) -> Any:
    """The fraction of a transition that lies behind, from 0 to 1."""
    return tnp.clip((count - begin) / steps, 0.0, 1.0)


def _polynomial(
    count: Any,
    init_value: Any,
    end_value: Any,
    power: Any,
    transition_steps: Any,
    transition_begin: Any,
) -> Any:
    left = 1 - _passed(count, transition_begin, transition_steps)
    return (init_value - end_value) * left**power + end_value


def polynomial_schedule(
    init_value: Number,
    end_value: Number,
    power: Number,
    transition_steps: Number,
    transition_begin: Number = 0,
) -> Schedule:
    """From one value to another along a polynomial.

    ``(init_value - end_value) (1 - f)**power + end_value``, where f goes from 0 at
    `transition_begin` to 1 after `transition_steps` more.

    >>> polynomial_schedule(1.0, 0.0, power=2, transition_steps=10)(5)
    Array(0.25, dtype=float32)
    """
    positive("polynomial_schedule", transition_steps=transition_steps, power=power)
    within("polynomial_schedule", transition_begin=transition_begin)
    return Schedule(
        _polynomial,
        {
            "init_value": init_value,
            "end_value": end_value,
            "power": float(power) if isinstance(power, int) else power,
            "transition_steps": transition_steps,
            "transition_begin": transition_begin,
        },
    )


def _linear(
    count: Any,
    init_value: Any,
    end_value: Any,
    transition_steps: Any,
    transition_begin: Any,
) -> Any:
    left = 1 - _passed(count, transition_begin, transition_steps)
    return (init_value - end_value) * left + end_value


def linear_schedule(
    init_value: Number,
    end_value: Number,
    transition_steps: Number,
    transition_begin: Number = 0,
) -> Schedule:
    """From one value to another along a line, then constant: a warm-up, or a decay.

    >>> linear_schedule(0.0, 1.0, transition_steps=10)(5)
    Array(0.5, dtype=float32)
    """
    positive("linear_schedule", transition_steps=transition_steps)
    within("linear_schedule", transition_begin=transition_begin)
    return Schedule(
        _linear,
        {
            "init_value": init_value,
            "end_value": end_value,
            "transition_steps": transition_steps,
            "transition_begin": transition_begin,
        },
    )


def warmup_constant_schedule(
    init_value: Number, peak_value: Number, warmup_steps: Number
) -> Schedule:
    """A linear warm-up from `init_value`, then `peak_value` for ever.

    >>> warmup_constant_schedule(0.0, 0.1, warmup_steps=10)(25)
    Array(0.1, dtype=float32)
    """
    positive("warmup_constant_schedule", warmup_steps=warmup_steps)
    return linear_schedule(init_value, peak_value, warmup_steps)


# Cosine -------------------------------------------------------------------------------


def _wave(fraction: Any, exponent: Any) -> Any:
    """From 1 to 0 along half a period of a cosine."""
    return (0.5 * (1 + tnp.cos(np.pi * fraction))) ** exponent


def _cosine_decay(
    count: Any, init_value: Any, decay_steps: Any, alpha: Any, exponent: Any
) -> Any:
    wave = _wave(_passed(count, 0, decay_steps), exponent)
    return init_value * ((1 - alpha) * wave + alpha)


def cosine_decay_schedule(
    init_value: Number,
    decay_steps: Number,
    alpha: Number = 0.0,
    exponent: Number = 1.0,
) -> Schedule:
    """Half a period of a cosine, from `init_value` to ``alpha * init_value``.

    ``init_value ((1 - alpha) (½ (1 + cos(π t / decay_steps)))**exponent + alpha)``

    Loshchilov and Hutter, *SGDR: Stochastic Gradient Descent with Warm Restarts*, 2017.

    >>> cosine_decay_schedule(0.1, decay_steps=100)(50)
    Array(0.05, dtype=float32)
    """
    positive("cosine_decay_schedule", decay_steps=decay_steps, exponent=exponent)
    within("cosine_decay_schedule", alpha=alpha)
    return Schedule(
        _cosine_decay,
        {
            "init_value": init_value,
            "decay_steps": decay_steps,
            "alpha": alpha,
            "exponent": exponent,
        },
    )


def _warmup_cosine_decay(
    count: Any,
    init_value: Any,
    peak_value: Any,
    end_value: Any,
    warmup_steps: Any,
    decay_steps: Any,
    exponent: Any,
) -> Any:
    rise = _linear(count, init_value, peak_value, tnp.maximum(warmup_steps, 1), 0)
    wave = _wave(_passed(count, warmup_steps, decay_steps - warmup_steps), exponent)
    fall = (peak_value - end_value) * wave + end_value
    return tnp.where(count < warmup_steps, rise, fall)


def warmup_cosine_decay_schedule(
    init_value: Number,
    peak_value: Number,
    warmup_steps: Number,
    decay_steps: Number,
    end_value: Number = 0.0,
    exponent: Number = 1.0,
) -> Schedule:
    """A linear warm-up to `peak_value`, then a cosine down to `end_value`.

    Args:
      warmup_steps: the length of the warm-up; 0 for none.
      decay_steps: the length of the whole, including the warm-up.

    Raises:
      ValueError: if nothing is left for the cosine.

    >>> schedule = warmup_cosine_decay_schedule(0.0, 0.1, 10, 110)
    >>> schedule(5), schedule(60)
    (Array(0.05, dtype=float32), Array(0.05, dtype=float32))
    """
    name = "warmup_cosine_decay_schedule"
    positive(name, decay_steps=decay_steps, exponent=exponent)
    within(name, warmup_steps=warmup_steps)
    plain = isinstance(warmup_steps, int) and isinstance(decay_steps, int)
    if plain and not 0 <= warmup_steps < decay_steps:
        raise ValueError(
            f"warmup_cosine_decay_schedule: decay_steps={decay_steps} counts the "
            f"warm-up too, so it must be above warmup_steps={warmup_steps}, which must "
            "not be negative"
            f"{at(user_source())}"
        )
    return Schedule(
        _warmup_cosine_decay,
        {
            "init_value": init_value,
            "peak_value": peak_value,
            "end_value": end_value,
            "warmup_steps": warmup_steps,
            "decay_steps": decay_steps,
            "exponent": exponent,
        },
    )


# Exponential --------------------------------------------------------------------------


def _exponential_decay(
    count: Any,
    init_value: Any,
    transition_steps: Any,
    decay_rate: Any,
    transition_begin: Any,
    end_value: Any = None,
) -> Any:
    passed = tnp.maximum((count - transition_begin) / transition_steps, 0.0)
    return _decayed(init_value, decay_rate, passed, end_value)


def _staircase_decay(
    count: Any,
    init_value: Any,
    transition_steps: Any,
    decay_rate: Any,
    transition_begin: Any,
    end_value: Any = None,
) -> Any:
    passed = tnp.maximum((count - transition_begin) / transition_steps, 0.0)
    return _decayed(init_value, decay_rate, tnp.floor(passed), end_value)


def _decayed(start: Any, rate: Any, exponent: Any, limit: Any) -> Any:
    rate = tnp.asarray(rate, td.float32)
    value = start * rate**exponent
    if limit is None:
        return value
    lower, upper = tnp.maximum(value, limit), tnp.minimum(value, limit)
    return tnp.where(rate < 1, lower, upper)


def exponential_decay(
    init_value: Number,
    transition_steps: Number,
    decay_rate: Number,
    transition_begin: Number = 0,
    staircase: bool = False,
    end_value: Number | None = None,
) -> Schedule:
    """``init_value * decay_rate**(t / transition_steps)``.

    Args:
      transition_steps: after how many steps the value is multiplied by `decay_rate`.
      transition_begin: for how long the value stays at first.
      staircase: whether the exponent is rounded down to an integer.
      end_value: where the decay (or growth, if `decay_rate` is above 1) ends.

    >>> exponential_decay(1.0, transition_steps=10, decay_rate=0.5)(20)
    Array(0.25, dtype=float32)
    """
    positive(
        "exponential_decay", transition_steps=transition_steps, decay_rate=decay_rate
    )
    within("exponential_decay", transition_begin=transition_begin)
    numbers = {
        "init_value": init_value,
        "transition_steps": transition_steps,
        "decay_rate": decay_rate,
        "transition_begin": transition_begin,
    }
    if end_value is not None:
        numbers["end_value"] = end_value
    return Schedule(_staircase_decay if staircase else _exponential_decay, numbers)


# Pieces -------------------------------------------------------------------------------


def _piecewise_constant(
    count: Any, init_value: Any, boundaries: Sequence, scales: Sequence
) -> Any:
    value = tnp.asarray(init_value, td.float32)
    for boundary, scale in zip(boundaries, scales, strict=True):
        value = tnp.where(count < boundary, value, value * scale)
    return value


def piecewise_constant_schedule(
    init_value: Number, boundaries_and_scales: Mapping[int, Number]
) -> Schedule:
    """A value that is multiplied by a factor at each of some steps.

    Args:
      boundaries_and_scales: for each step at which the value changes, the factor.

    >>> schedule = piecewise_constant_schedule(1.0, {100: 0.1, 200: 0.5})
    >>> schedule(99), schedule(100), schedule(200)
    (Array(1., dtype=float32), Array(0.1, dtype=float32), Array(0.05, dtype=float32))
    """
    pieces = sorted(boundaries_and_scales.items())
    for step, _ in pieces:
        within("piecewise_constant_schedule", boundaries_and_scales=step)
    return Schedule(
        _piecewise_constant,
        {
            "init_value": init_value,
            "boundaries": tuple(step for step, _ in pieces),
            "scales": tuple(scale for _, scale in pieces),
        },
    )


def _joined(count: Any, schedules: Sequence, boundaries: Sequence) -> Any:
    value = schedules[0](count)
    for schedule, boundary in zip(schedules[1:], boundaries, strict=True):
        value = tnp.where(count < boundary, value, schedule(count - boundary))
    return value


def join_schedules(
    schedules: Sequence[Callable[[Any], Any]], boundaries: Sequence[Number]
) -> Schedule:
    """One schedule after the other; each counts from its own beginning.

    Args:
      boundaries: where the second schedule begins, the third, and so on.

    Raises:
      ValueError: unless there is one boundary less than there are schedules.

    >>> warm = linear_schedule(0.0, 1.0, transition_steps=10)
    >>> join_schedules([warm, constant_schedule(0.5)], [10])(12)
    Array(0.5, dtype=float32)
    """
    if not schedules or len(boundaries) != len(schedules) - 1:
        raise ValueError(
            f"join_schedules: {len(schedules)} schedules with {len(boundaries)} "
            f"boundaries between them{at(user_source())}\n"
            "There is one boundary less than there are schedules."
        )
    for step in boundaries:
        within("join_schedules", boundaries=step)
    parts = tuple(s if isinstance(s, Schedule) else Schedule(s, {}) for s in schedules)
    return Schedule(_joined, {"schedules": parts, "boundaries": tuple(boundaries)})
