"""How far to go in a direction: to where Wolfe's strong conditions hold.

J. Nocedal, S. J. Wright: Numerical Optimization (2006), algorithms 3.5 and 3.6; what is
taken where values differ by rounding alone: W. W. Hager, H. Zhang: A new conjugate
gradient method (2005).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from treadle import np as tnp
from treadle.api.while_loops import while_loop

DECREASE, CURVATURE = 1e-4, 0.9


class Point(NamedTuple):
    """A place on the line.

    far: from the start, in lengths of the direction. value, gradient: of the function
    there. slope: along the line.
    """

    far: Any
    value: Any
    slope: Any
    gradient: Any


class Search(NamedTuple):
    """What was found: the best place, how many were tried, and if both conditions hold
    there."""

    best: Point
    tried: Any
    fine: Any


class _State(NamedTuple):
    """The minimum lies between `low`, the best place, and `high`, which is infinitely
    far until one is found. `now` is tried next."""

    low: Point
    high: Point
    now: Any
    tried: Any
    fine: Any


def line_search(
    value_and_grad: Callable[[Any], tuple[Any, Any]],
    x: Any,
    value: Any,
    gradient: Any,
    direction: Any,
    first: Any,
    most: int,
) -> Search:
    """Searches from x along a direction in which the function falls.

    Args:
      value, gradient: at x.
      first: what is tried first, in lengths of the direction.
      most: how many places are tried.
    """
    start = Point(tnp.zeros_like(value), value, tnp.sum(gradient * direction), gradient)

    def going(state: _State) -> Any:
        width = tnp.abs(state.high.far - state.low.far)
        apart = state.low.far + width != state.low.far
        return ~state.fine & (state.tried < most) & apart & (start.slope < 0)

    def step(state: _State) -> _State:
        value, gradient = value_and_grad(x + state.now * direction)
        slope = tnp.sum(gradient * direction)
        trial = Point(state.now, value, slope, gradient)
        low, high = state.low, state.high
        falls = value <= start.value + DECREASE * trial.far * start.slope
        flatter = tnp.abs(slope) <= -CURVATURE * start.slope
        # Near the minimum values are the same but for rounding, and slopes tell more.
        level = flatter & (value <= start.value + rounding)
        better = (falls & (value < low.value)) | level
        fine = better & flatter
        turned = slope * (high.far - low.far) >= 0
        high = _either(~better, trial, _either(turned, low, high))
        low = _either(better, trial, low)
        return _State(low, high, _between(low, high), state.tried + 1, fine)

    rounding = 4 * tnp.finfo(value.dtype).eps * tnp.abs(value)
    far = start._replace(far=tnp.full_like(value, tnp.inf))
    state = while_loop(going, step, _State(start, far, first, 0, tnp.zeros((), bool)))
    return Search(state.low, state.tried, state.fine)


def _either(condition: Any, a: Point, b: Point) -> Point:
    return Point(*[tnp.where(condition, x, y) for x, y in zip(a, b, strict=True)])


def _between(low: Point, high: Point) -> Any:
    """Where the cubic through both has its minimum, but not too close to either; twice
    as far where there is no end yet."""
    open_end = tnp.isinf(high.far)
    width = tnp.where(open_end, 1, high.far - low.far)
    mean = (high.value - low.value) / width
    turn = low.slope + high.slope - 3 * mean
    root = tnp.sqrt(tnp.maximum(turn**2 - low.slope * high.slope, 0))
    root = tnp.sign(width) * root
    part = 1 - (high.slope + root - turn) / (high.slope - low.slope + 2 * root)
    part = tnp.where(tnp.isfinite(part), tnp.clip(part, 0.1, 0.9), 0.5)
    return tnp.where(open_end, 2 * low.far, low.far + part * width)
