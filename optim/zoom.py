"""A search along a line for a place where Wolfe's strong conditions hold.

Nocedal and Wright, *Numerical Optimization*, 2006, algorithms 3.5 and 3.6; Hager and
Zhang, *Algorithm 851: CG_DESCENT*, 2006, for values that differ by rounding alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.optim.objective import Objective

T = TypeVar("T")


class Point(NamedTuple):
    """A place on the line: how far, the loss there, and its slope along the line."""

    step: Any
    value: Any
    slope: Any


class Search(NamedTuple):
    """How far a search is.

    at, grads: where the loss was evaluated last, and its gradients there.
    safe: the lowest place where the loss has fallen enough; at first the start.
    low, high: once an interval was found, its best end and its other one. reference: an
      end that it had before.
    """

    tried: Any
    at: Point
    grads: list[Any]
    safe: Point
    safe_grads: list[Any]
    low: Point
    high: Point
    reference: Point
    found: Any
    done: Any
    failed: Any
    decrease_error: Any


def zoom(
    loss: Objective,
    direction: list[Any],
    start: tuple[Any, list[Any], Any],
    guess: Any,
    now: Any,
) -> Search:
    """Searches along a direction from where the loss has a value, gradients, a slope.

    Args:
      guess: the length that is tried first.
      now: the numbers of `scale_by_zoom_linesearch`.
    """
    value, grads, slope = start
    dtype = value.dtype

    def step(state: Search) -> Search:
        longer = tnp.where(state.tried == 0, guess, now.increase_factor * state.at.step)
        reached: Any = False
        if hasattr(now, "max_learning_rate"):
            reached = longer >= now.max_learning_rate
            longer = tnp.minimum(longer, now.max_learning_rate)
        far = tnp.where(state.found, _between(state), longer).astype(dtype)
        there, found = loss.value_and_grad(loss.moved(far, direction))
        along = [
            tnp.sum(tnp.real(u * g)) for u, g in zip(direction, found, strict=True)
        ]
        trial = Point(
            far, there.astype(dtype), sum(along, tnp.zeros((), dtype)).astype(dtype)
        )
        fall = _decrease_error(trial, value, slope, now)
        bend = tnp.abs(trial.slope) - now.curv_rtol * tnp.abs(slope)
        fine = tnp.maximum(fall, _known(bend)) <= now.tol
        lower = (fall <= now.tol) & (~state.found | (trial.value < state.safe.value))
        state = state._replace(
            safe=_either(lower, trial, state.safe),
            safe_grads=_either(lower, found, state.safe_grads),
        )
        after = _either(
            state.found,
            _narrowed(state, trial, fall, fine, now),
            _widened(state, trial, fall, fine, reached, now),
        )
        after = after._replace(
            tried=state.tried + 1, at=trial, grads=found, decrease_error=fall
        )
        return _as(state, _settled(after))

    origin = Point(tnp.zeros((), dtype), value, slope)
    no = tnp.zeros((), bool)
    begin = Search(
        tnp.zeros((), td.int32),
        origin,
        grads,
        origin,
        grads,
        origin,
        origin,
        origin,
        no,
        no,
        no,
        tnp.full((), tnp.inf, dtype),
    )
    return td.while_loop(lambda state: ~(state.done | state.failed), step, begin)


def _either(condition: Any, a: T, b: T) -> T:
    return tree.map(lambda x, y: tnp.where(condition, x, y), a, b)


def _as(old: T, new: T) -> T:
    """With the dtypes that it had."""
    return tree.map(lambda x, y: y.astype(x.dtype), old, new)


def _known(error: Any) -> Any:
    error = tnp.maximum(error, 0)
    return tnp.where(tnp.isnan(error), tnp.inf, error)


def _decrease_error(trial: Point, value: Any, slope: Any, now: Any) -> Any:
    """By how much too little the loss has fallen."""
    error = trial.value - value - now.slope_rtol * trial.step * slope
    if hasattr(now, "approx_dec_rtol"):
        bend = trial.slope - (2 * now.slope_rtol - 1) * slope
        rise = trial.value - value - now.approx_dec_rtol * tnp.abs(value)
        error = tnp.minimum(tnp.maximum(bend, rise), error)
    return _known(error)


def _widened(
    state: Search, trial: Point, fall: Any, fine: Any, reached: Any, now: Any
) -> Search:
    """After a longer step: is there an interval now?"""
    above = (fall > 0) | ((trial.value >= state.at.value) & (state.tried > 0))
    turned = (trial.slope >= 0) & ~above
    low = _either(turned, trial, state.at)
    found = above | turned | fine
    done = fine | (reached & ~found)
    failed = (state.tried + 1 >= now.max_steps) & ~done
    high = _either(turned, state.at, trial)
    return state._replace(
        low=low, high=high, reference=low, found=found, done=done, failed=failed
    )


def _narrowed(state: Search, trial: Point, fall: Any, fine: Any, now: Any) -> Search:
    """After a step inside of the interval: which part of it is left?"""
    low, high = state.low, state.high
    above = (fall > 0) | (trial.value >= low.value)
    turned = (trial.slope * (high.step - low.step) >= 0) & ~above
    small = tnp.abs(high.step - low.step) <= now.stepsize_precision
    ends = (state.tried + 1 >= now.max_steps) | (small & (state.safe.step > 0))
    return state._replace(
        low=_either(above, low, trial),
        high=_either(above, trial, _either(turned, low, high)),
        reference=_either(above | turned, high, low),
        done=fine,
        failed=ends & ~fine,
    )


def _settled(state: Search) -> Search:
    """A search that failed ends at the safe place, if there is one. One that never saw
    a finite value stays at the start."""
    back = state.failed & ((state.safe.step > 0) | tnp.isinf(state.decrease_error))
    return state._replace(
        at=_either(back, state.safe, state.at),
        grads=_either(back, state.safe_grads, state.grads),
    )


def _between(state: Search) -> Any:
    """The minimum of a cubic through both ends and the reference, else of a parabola,
    else the middle; the first two only where they are well inside."""
    low, high, reference = state.low, state.high, state.reference
    width = tnp.abs(high.step - low.step)
    left, right = tnp.minimum(low.step, high.step), tnp.maximum(low.step, high.step)

    def inside(x: Any, margin: float) -> Any:
        return (x > left + margin * width) & (x < right - margin * width)

    b, c = high.step - low.step, reference.step - low.step
    rise_b = high.value - low.value - low.slope * b
    rise_c = reference.value - low.value - low.slope * c
    scale = (b * c) ** 2 * (b - c)
    cube = (c**2 * rise_b - b**2 * rise_c) / scale
    square = (b**3 * rise_c - c**3 * rise_b) / scale
    root = tnp.sqrt(square**2 - 3 * cube * low.slope)
    cubic = low.step + (root - square) / (3 * cube)
    parabola = low.step - low.slope / (2 * rise_b / b**2)
    middle = (low.step + high.step) / 2
    found = tnp.where(inside(parabola, 0.1), parabola, middle)
    return tnp.where(inside(cubic, 0.2), cubic, found)
