"""Schedules that rise and fall: one cycle, or cycle after cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.optim.schedule import (
    Number,
    Schedule,
    join_schedules,
    positive,
    warmup_cosine_decay_schedule,
    within,
)


def _along_line(start: Any, end: Any, fraction: Any) -> Any:
    return (end - start) * fraction + start


def _along_cosine(start: Any, end: Any, fraction: Any) -> Any:
    return end + 0.5 * (start - end) * (1 + tnp.cos(np.pi * fraction))


def _interpolated(
    between: Any, count: Any, init_value: Any, boundaries: Sequence, scales: Sequence
) -> Any:
    value = left = tnp.asarray(init_value, td.float32)
    begin: Any = 0
    for boundary, scale in zip(boundaries, scales, strict=True):
        right = left * scale
        passed = (count - begin) / tnp.maximum(boundary - begin, 1)
        inside = between(left, right, tnp.where(count < boundary, passed, 1.0))
        value = tnp.where(count < begin, value, inside)
        begin, left = boundary, right
    return value


def _piecewise_linear(count: Any, **numbers: Any) -> Any:
    return _interpolated(_along_line, count, **numbers)


def _piecewise_cosine(count: Any, **numbers: Any) -> Any:
    return _interpolated(_along_cosine, count, **numbers)


_RULES = {"linear": _piecewise_linear, "cosine": _piecewise_cosine}


def piecewise_interpolate_schedule(
    interpolation: str,
    init_value: Number,
    boundaries_and_scales: Mapping[int, Number],
) -> Schedule:
    """From one value to the next along lines, or half periods of a cosine.

    Args:
      interpolation: "linear" or "cosine".
      boundaries_and_scales: for each step that ends a piece, what the value has been
        multiplied by since the end of the piece before.

    Raises:
      ValueError: for another kind of interpolation.

    >>> schedule = piecewise_interpolate_schedule("linear", 1.0, {10: 3.0, 20: 0.5})
    >>> [schedule(step).item() for step in (5, 10, 15, 100)]
    [2.0, 3.0, 2.25, 1.5]
    """
    if interpolation not in _RULES:
        raise ValueError(
            "piecewise_interpolate_schedule: interpolation is 'linear' or 'cosine', "
            f"got {interpolation!r}{at(user_source())}"
        )
    pieces = sorted(boundaries_and_scales.items())
    for step, _ in pieces:
        within("piecewise_interpolate_schedule", boundaries_and_scales=step)
    return Schedule(
        _RULES[interpolation],
        {
            "init_value": init_value,
            "boundaries": tuple(step for step, _ in pieces),
            "scales": tuple(scale for _, scale in pieces),
        },
    )


def linear_onecycle_schedule(
    transition_steps: int,
    peak_value: Number,
    pct_start: float = 0.3,
    pct_final: float = 0.85,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Up to a peak, down again, and down to almost nothing, along lines.

    From ``peak_value / div_factor`` to `peak_value` in the first `pct_start` of the
    steps, back until `pct_final` of them, then to a `final_div_factor`-th of that.

    Smith and Topin, *Super-Convergence: Very Fast Training of Neural Networks Using
    Large Learning Rates*, 2019.

    >>> schedule = linear_onecycle_schedule(100, peak_value=1.0)
    >>> [round(schedule(step).item(), 6) for step in (0, 30, 85, 100)]
    [0.04, 1.0, 0.04, 4e-06]
    """
    positive(
        "linear_onecycle_schedule",
        transition_steps=transition_steps,
        div_factor=div_factor,
        final_div_factor=final_div_factor,
    )
    within("linear_onecycle_schedule", 1, pct_start=pct_start, pct_final=pct_final)
    return piecewise_interpolate_schedule(
        "linear",
        peak_value / div_factor,
        {
            int(pct_start * transition_steps): div_factor,
            int(pct_final * transition_steps): 1 / div_factor,
            transition_steps: 1 / final_div_factor,
        },
    )


def cosine_onecycle_schedule(
    transition_steps: int,
    peak_value: Number,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Up to a peak and down to almost nothing, each along half a period of a cosine.

    From ``peak_value / div_factor`` to `peak_value` in the first `pct_start` of the
    steps, then to ``peak_value / (div_factor · final_div_factor)``.

    Smith and Topin, *Super-Convergence: Very Fast Training of Neural Networks Using
    Large Learning Rates*, 2019.

    >>> schedule = cosine_onecycle_schedule(100, peak_value=1.0)
    >>> [round(schedule(step).item(), 6) for step in (0, 30, 65, 100)]
    [0.04, 1.0, 0.500002, 4e-06]
    """
    positive(
        "cosine_onecycle_schedule",
        transition_steps=transition_steps,
        div_factor=div_factor,
        final_div_factor=final_div_factor,
    )
    within("cosine_onecycle_schedule", 1, pct_start=pct_start)
    return piecewise_interpolate_schedule(
        "cosine",
        peak_value / div_factor,
        {
            int(pct_start * transition_steps): div_factor,
            transition_steps: 1 / (div_factor * final_div_factor),
        },
    )


def sgdr_schedule(cosine_kwargs: Iterable[Mapping[str, Number]]) -> Schedule:
    """Warm-ups and cosine decays, one after the other, each with numbers of its own.

    Args:
      cosine_kwargs: for each cycle the arguments of `warmup_cosine_decay_schedule`.

    Loshchilov and Hutter, *SGDR: Stochastic Gradient Descent with Warm Restarts*, 2017.

    >>> cycle = {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 5}
    >>> schedule = sgdr_schedule([cycle | {"decay_steps": n} for n in (20, 40)])
    >>> schedule(5), schedule(20), schedule(25)
    (Array(1., dtype=float32), Array(0., dtype=float32), Array(1., dtype=float32))
    """
    cycles = [dict(kwargs) for kwargs in cosine_kwargs]
    lengths = [cycle["decay_steps"] for cycle in cycles[:-1]]
    ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]
    return join_schedules([warmup_cosine_decay_schedule(**c) for c in cycles], ends)


def _cycle_start(number: Any, first: Any, factor: Any) -> Any:
    """After how many steps a cycle begins, where each is `factor` times the last."""
    growth = tnp.where(factor == 1, 1.0, factor - 1)
    grown = (factor**number - 1) / growth
    return first * tnp.where(factor == 1, number, grown)


def _cosine_restarts(
    count: Any, init_value: Any, first_steps: Any, factor: Any, end_value: Any
) -> Any:
    factor = tnp.asarray(factor, td.float32)
    cycles = count / first_steps
    base = tnp.where(factor == 1, 2.0, factor)
    grown = tnp.log(cycles * (base - 1) + 1) / tnp.log(base)
    number = tnp.floor(tnp.where(factor == 1, cycles, grown))
    # The logarithm is rounded, and may be off by one at the ends of cycles.
    number = number - (count < _cycle_start(number, first_steps, factor))
    number = number + (count >= _cycle_start(number + 1, first_steps, factor))
    passed = count - _cycle_start(number, first_steps, factor)
    fraction = passed / (first_steps * factor**number)
    return _along_cosine(init_value, end_value, fraction)


def cosine_restarts_schedule(
    init_value: Number,
    first_steps: Number,
    factor: Number = 1.0,
    end_value: Number = 0.0,
) -> Schedule:
    """Half a period of a cosine again and again, without end.

    Args:
      first_steps: the length of the first cycle.
      factor: how many times as long as the one before each cycle is.

    Loshchilov and Hutter, *SGDR: Stochastic Gradient Descent with Warm Restarts*, 2017.

    >>> schedule = cosine_restarts_schedule(1.0, first_steps=10, factor=2.0)
    >>> schedule(5), schedule(10), schedule(20)
    (Array(0.5, dtype=float32), Array(1., dtype=float32), Array(0.5, dtype=float32))
    """
    positive("cosine_restarts_schedule", first_steps=first_steps, factor=factor)
    return Schedule(
        _cosine_restarts,
        {
            "init_value": init_value,
            "first_steps": first_steps,
            "factor": float(factor) if isinstance(factor, int) else factor,
            "end_value": end_value,
        },
    )


def _cyclic(
    count: Any,
    init_value: Any,
    peak_value: Any,
    steps_up: Any,
    steps_down: Any,
    cycle_decay: Any,
    step_decay: Any,
) -> Any:
    cycle = tnp.floor(count / (steps_up + steps_down))
    inside = count - cycle * (steps_up + steps_down)
    fall = (steps_up + steps_down - inside) / steps_down
    height = (peak_value - init_value) * tnp.minimum(inside / steps_up, fall)
    cycle_decay = tnp.asarray(cycle_decay, td.float32)
    step_decay = tnp.asarray(step_decay, td.float32)
    return init_value + height * cycle_decay**cycle * step_decay**count


def cyclic_schedule(
    init_value: Number,
    peak_value: Number,
    steps_up: Number,
    steps_down: Number | None = None,
    cycle_decay: Number = 1.0,
    step_decay: Number = 1.0,
) -> Schedule:
    """Up and down between two values along lines, without end.

    Args:
      steps_down: as many as `steps_up` by default.
      cycle_decay: what each cycle multiplies the height of the peak by: 0.5 is the
        "triangular2" of the paper.
      step_decay: what each step multiplies it by: its "exp_range".

    Smith, *Cyclical Learning Rates for Training Neural Networks*, 2017.

    >>> schedule = cyclic_schedule(0.0, 1.0, steps_up=10, cycle_decay=0.5)
    >>> schedule(5), schedule(10), schedule(30)
    (Array(0.5, dtype=float32), Array(1., dtype=float32), Array(0.5, dtype=float32))
    """
    steps_down = steps_up if steps_down is None else steps_down
    positive("cyclic_schedule", steps_up=steps_up, steps_down=steps_down)
    within("cyclic_schedule", cycle_decay=cycle_decay, step_decay=step_decay)
    return Schedule(
        _cyclic,
        {
            "init_value": init_value,
            "peak_value": peak_value,
            "steps_up": steps_up,
            "steps_down": steps_down,
            "cycle_decay": cycle_decay,
            "step_decay": step_decay,
        },
    )
