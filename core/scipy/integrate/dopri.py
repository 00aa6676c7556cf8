"""Dormand and Prince's Runge-Kutta steps of order 5, with error estimates of order 4.

J. R. Dormand, P. J. Prince: A family of embedded Runge-Kutta formulae (1980); the
values within a step: L. F. Shampine, Some practical Runge-Kutta formulas (1986); the
control of steps: E. Hairer, S. P. Nørsett, G. Wanner, Solving Ordinary Differential
Equations I (1993), II.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from treadle import np as tnp
from treadle import tree
from treadle.api.jacobian import stop_gradient
from treadle.api.while_loops import while_loop

Field = Callable[[Any, Any], Any]
"""From a vector and the time to its derivative."""

_TIMES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES: tuple[tuple[float, ...], ...] = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (
    35 / 384 - 1951 / 21600,
    0.0,
    500 / 1113 - 22642 / 50085,
    125 / 192 - 451 / 720,
    -2187 / 6784 + 12231 / 42400,
    11 / 84 - 649 / 6300,
    -1 / 60,
)
_MIDDLE = (
    6025192743 / 30085553152 / 2,
    0.0,
    51252292925 / 65400821598 / 2,
    -2691868925 / 45128329728 / 2,
    187940372067 / 1594534317056 / 2,
    -1776094331 / 19743644256 / 2,
    11237099 / 235043384 / 2,
)
_ORDER = 5
_SAFETY, _LEAST, _MOST = 0.9, 0.2, 10.0


class Control(NamedTuple):
    """Which errors are allowed, how long a step may be, and how many there may be."""

    rtol: float
    atol: float
    hmax: float
    mxstep: int
    remember: Literal["marks", "steps"] = "marks"


class Progress(NamedTuple):
    """How far an integration is.

    slope: at y and t. step: to be tried next. since: where the last step began; within
    it the values are ``start`` and a polynomial in the part of the step, whose
    coefficients are those of the powers 1 to 4.
    """

    y: Any
    slope: Any
    t: Any
    step: Any
    since: Any
    start: Any
    powers: tuple[Any, Any, Any, Any]

    def at(self, t: Any) -> Any:
        """The value at a time in the last step."""
        # Steps are what they are: only when they were made depends on times.
        width = stop_gradient(self.t - self.since)
        part = (t - self.since) / tnp.where(width == 0, 1, width)
        a, b, c, d = self.powers
        return self.start + part * (a + part * (b + part * (c + part * d)))


def start(field: Field, y: Any, t: Any, control: Control) -> Progress:
    """Before the first step."""
    slope = field(y, t)
    nothing = tnp.zeros_like(y)
    step = stop_gradient(_first_step(field, y, slope, t, control))
    return Progress(y, slope, t, step, t, y, (nothing, nothing, nothing, nothing))


def advanced(
    field: Field, progress: Progress, target: Any, end: Any, control: Control
) -> Progress:
    """Steps until a time is reached, none beyond `end`. What is not reached is NaN."""

    def going(carry: Any) -> Any:
        count, now = carry
        moves = now.t + tnp.minimum(now.step, end - now.t) > now.t
        return (now.t < target) & moves & (count < control.mxstep)

    def stepped(carry: Any) -> Any:
        count, now = carry
        return count + 1, _stepped(field, now, end, control)

    _, now = while_loop(
        going,
        stepped,
        (0, progress),
        max_steps=control.mxstep,
        remember=control.remember,
    )
    failed = tnp.where(now.t < target, tnp.nan, 0)
    return now._replace(start=now.start + failed, y=now.y + failed)


def _stepped(field: Field, now: Progress, end: Any, control: Control) -> Progress:
    """After a step, or with a shorter one to be tried."""
    last = now.t + now.step >= end
    step = tnp.where(last, stop_gradient(end - now.t), now.step)
    slopes = [now.slope]
    for time, weights in zip(_TIMES, _STAGES, strict=True):
        rise = step * _sum(weights, slopes)
        y = now.y + rise
        slopes.append(field(y, now.t + time * step))
    error = step * _sum(_ERROR, slopes)
    ratio = _norm(error, now.y, y, control)
    fine = ratio <= 1
    t = tnp.where(last, end, now.t + step)
    tried = Progress(
        y, slopes[-1], t, now.step, now.t, now.y, _powers(step, slopes, rise)
    )
    # Where a step failed, what came before is still there.
    after = tree.map(lambda new, old: tnp.where(fine, new, old), tried, now)
    return after._replace(step=_next_step(step, ratio, control))


def _sum(weights: Sequence[float], values: Sequence[Any]) -> Any:
    return sum(
        [w * v for w, v in zip(weights, values, strict=True) if w][1:],
        start=weights[0] * values[0],
    )


def _powers(step: Any, slopes: Sequence[Any], rise: Any) -> tuple[Any, Any, Any, Any]:
    """The polynomial of degree 4 with the values and slopes at both ends of a step, and
    the value in its middle."""
    middle = step * _sum(_MIDDLE, slopes)
    first, last = step * slopes[0], step * slopes[-1]
    return (
        first,
        last - 4 * first - 5 * rise + 16 * middle,
        5 * first - 3 * last + 14 * rise - 32 * middle,
        2 * last - 2 * first - 8 * rise + 16 * middle,
    )


def _norm(error: Any, before: Any, after: Any, control: Control) -> Any:
    """The mean error, in units of what is allowed; infinite where it is none."""
    size = tnp.maximum(tnp.abs(before), tnp.abs(after))
    scaled = tnp.abs(error) / (control.atol + control.rtol * size)
    ratio = tnp.sqrt(tnp.mean(scaled**2)) if error.size else tnp.sum(scaled)
    return stop_gradient(tnp.where(tnp.isfinite(ratio), ratio, tnp.inf))


def _next_step(step: Any, ratio: Any, control: Control) -> Any:
    most = tnp.where(ratio <= 1, _MOST, 1.0)
    factor = _SAFETY * tnp.maximum(ratio, 1e-30) ** (-1 / _ORDER)
    factor = tnp.clip(factor, _LEAST, most)
    return stop_gradient(tnp.minimum(step * factor, control.hmax))


def _first_step(field: Field, y: Any, slope: Any, t: Any, control: Control) -> Any:
    """A step whose error is small, as far as the first two derivatives say."""
    scale = control.atol + control.rtol * tnp.abs(y)
    d0, d1 = (_length(x / scale) for x in (y, slope))
    small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = tnp.where(small, 1e-6, 0.01 * d0 / tnp.where(small, 1, d1))
    d2 = _length((field(y + h0 * slope, t + h0) - slope) / scale) / h0
    steep = tnp.maximum(d1, d2)
    h1 = tnp.where(
        steep <= 1e-15,
        tnp.maximum(1e-6, 1e-3 * h0),
        (0.01 / tnp.maximum(steep, 1e-15)) ** (1 / _ORDER),
    )
    return tnp.minimum(tnp.minimum(100 * h0, h1), control.hmax)


def _length(x: Any) -> Any:
    """The root of the mean square."""
    return tnp.sqrt(tnp.sum(tnp.abs(x) ** 2) / max(x.size, 1))
