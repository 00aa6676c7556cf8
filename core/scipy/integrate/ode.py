"""odeint: ordinary differential equations, by steps that follow the errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from treadle import dtypes, tree
from treadle import np as tnp
from treadle.api.args import as_results, check_function, name_of
from treadle.api.boundary import boundary
from treadle.api.closure import closure_convert
from treadle.api.custom import custom_vjp
from treadle.api.implicit import Vectors
from treadle.api.linear import vjp
from treadle.api.loops import scan
from treadle.api.vmap import vmap
from treadle.errors import at, user_source
from treadle.np.operands import operand
from treadle.scipy.flat import Flat
from treadle.scipy.integrate.dopri import Control, Field, Progress, advanced, start
from treadle.trace.value import typeof

_TOLERANCE = {dtypes.float32: 1e-5, dtypes.float64: 1.4e-8}


@boundary
def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float | None = None,
    atol: float | None = None,
    mxstep: int = 4096,
    hmax: float = float("inf"),
    gradient: Literal["adjoint", "marks", "steps"] = "adjoint",
) -> Any:
    """The solution of ``dy/dt = func(y, t, *args)`` at the times `t`, from `y0` at
    ``t[0]``.

    The method is that of Dormand and Prince, of order 5. Steps are as long as the
    tolerances allow, wherever the times are; values between their ends are those of a
    polynomial of degree 4.

    Args:
      func: from a pytree of arrays like `y0`, the time, and `args`, to a derivative
        like `y0`. What it closes over may be differentiated, as may the arguments.
      y0: a pytree of floating or complex arrays.
      t: a vector of times, increasing or decreasing.
      rtol, atol: the error of a step may be ``atol + rtol * abs(y)``, in the mean over
        all numbers. None: 1e-5, or 1.4e-8 for float64.
      mxstep: how many steps there may be between two times. What is not reached by
        then, and what comes after it, is NaN.
      hmax: the longest step.
      gradient: how reverse mode comes back. "adjoint": by another equation, solved
        backwards in time, which takes no memory; it differs from the derivative of what
        was computed by errors like those of the solution, and has no forward mode.
        "marks", "steps": through the steps, as `td.while_loop(remember=...)` does.

    Returns:
      A pytree like `y0`; each array has a first axis as long as `t`.

    Raises:
      StructureError, TypeError: if `func` gives what is not like `y0`.
      ValueError: if `t` is no vector, or for another `gradient`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> def decay(y, t, rate):
    ...     return -rate * y
    >>> td.scipy.integrate.odeint(decay, 1.0, tnp.array([0.0, 1.0, 2.0]), 0.5)
    Array([1.    , 0.6065, 0.3679], dtype=float32)
    """
    check_function("odeint", func)
    times = tnp.asarray(operand("odeint: t", t))
    _check(times, gradient, mxstep)
    first = tnp.astype(times[0], float) if times.dtype.kind in "iu" else times[0]
    vectors = Vectors("odeint", "y0", y0, lambda y: func(y, first, *args))
    flat = Flat(vectors.types)
    times = tnp.astype(times, flat.real)
    given, form = tree.flatten(args)

    def field(y: Any, t: Any, given: Sequence[Any]) -> Any:
        now = vectors.form.unflatten(as_results(flat.unravel(y)))
        rate = func(now, t, *form.unflatten(given))
        return flat.ravel(vectors.flat(rate, name_of(func)))

    default = _TOLERANCE[flat.real]
    control = Control(
        default if rtol is None else rtol,
        default if atol is None else atol,
        hmax,
        mxstep,
        "marks" if gradient == "adjoint" else gradient,
    )
    y = flat.ravel(vectors.leaves)
    if gradient == "adjoint":
        whole, closed = closure_convert(field, y, times[0], given)
        found = _adjoint(whole, control)(y, times, (given, *closed))
    else:
        found = _solution(lambda y, t: field(y, t, given), y, times, control)
    return vectors.form.unflatten(as_results(vmap(flat.unravel)(found)))


def _check(times: Any, gradient: Any, mxstep: Any) -> None:
    where = at(user_source())
    if times.ndim != 1 or times.size == 0 or dtypes.is_complex(times.dtype):
        raise ValueError(
            f"odeint: t must be a vector of times, the first that of y0, got "
            f"{typeof(times)}{where}"
        )
    if gradient not in ("adjoint", "marks", "steps"):
        raise ValueError(
            f"odeint: gradient={gradient!r} is none of 'adjoint', 'marks' and 'steps'"
            f"{where}"
        )
    if not isinstance(mxstep, int) or mxstep < 1:
        raise ValueError(
            f"odeint: mxstep={mxstep!r} is no positive number of steps{where}"
        )


def _solution(field: Field, y: Any, times: Any, control: Control) -> Any:
    """The values at all times, as rows."""
    # What runs backwards in time is another equation that runs forwards.
    sign = tnp.where(times[-1] < times[0], -1, 1).astype(times.dtype)
    ahead = sign * times

    def rate(y: Any, t: Any) -> Any:
        return sign * field(y, sign * t)

    def reach(progress: Progress, target: Any) -> tuple[Progress, Any]:
        progress = advanced(rate, progress, target, ahead[-1], control)
        return progress, progress.at(target)

    if times.size == 1:
        return y[None]
    _, later = scan(reach, start(rate, y, ahead[0], control), ahead[1:])
    return tnp.concatenate([y[None], later])


def _adjoint(field: Callable[..., Any], control: Control) -> Callable[..., Any]:
    """The solution of ``field(y, t, *inputs)``, as a function of ``(y, times, inputs)``
    whose derivative is found by an equation that runs back.

    The cotangent a of y fulfils da/dt = -a df/dy, and that of the inputs grows by
    a df/dinputs. (R. T. Q. Chen et al., Neural Ordinary Differential Equations, 2018.)
    """

    @custom_vjp
    def solve(y: Any, times: Any, inputs: Any) -> Any:
        return _solution(lambda y, t: field(y, t, *inputs), y, times, control)

    def forward(y: Any, times: Any, inputs: Any) -> tuple[Any, Any]:
        found = solve(y, times, inputs)
        return found, (found, times, inputs)

    def backward(known: Any, cts: Any) -> tuple[Any, Any, Any]:
        found, times, inputs = known
        return _back(field, control, found, times, inputs, cts)

    solve.defvjp(forward, backward)
    return solve


def _back(
    field: Callable[..., Any],
    control: Control,
    found: Any,
    times: Any,
    inputs: Any,
    cts: Any,
) -> tuple[Any, Any, Any]:
    leaves, form = tree.flatten(inputs)
    moving = [dtypes.is_differentiable(typeof(x).dtype) for x in leaves]
    own = [x for x, m in zip(leaves, moving, strict=True) if m]
    flat = Flat([typeof(x) for x in (found[0], found[0], *own)])

    def whole(own: Sequence[Any]) -> Any:
        rest = iter(own)
        return form.unflatten(
            [next(rest) if m else x for x, m in zip(leaves, moving, strict=True)]
        )

    def rate(state: Any, t: Any, *own: Any) -> Any:
        y, a, *_ = flat.unravel(state)
        slope, pullback = vjp(lambda y, own: field(y, t, *whole(own)), y, own)
        to_y, to_own = pullback(a)
        return flat.ravel([slope, -to_y, *(-x for x in to_own)])

    solve = _adjoint(rate, control)

    def piece(carry: Any, rows: Any) -> tuple[Any, Any]:
        a, totals = carry
        y, t, before, ct = rows
        a = a + ct
        moved = tnp.real(tnp.sum(field(y, t, *inputs) * ct))
        state = solve(flat.ravel([y, a, *totals]), tnp.stack([t, before]), own)[1]
        _, a, *totals = flat.unravel(state)
        return (a, totals), moved

    zeros = [tnp.zeros_like(x) for x in own]
    rows = found[1:], times[1:], times[:-1], cts[1:]
    init = tnp.zeros_like(found[0]), zeros
    (a, totals), moved = scan(piece, init, rows, reverse=True)
    begins = -tnp.real(tnp.sum(field(found[0], times[0], *inputs) * a))
    return (
        a + cts[0],
        tnp.concatenate([begins[None], moved]),
        form.unflatten(_spread(totals, moving)),
    )


def _spread(values: Sequence[Any], where: Sequence[bool]) -> list[Any]:
    """The values where it says so, None elsewhere."""
    rest = iter(values)
    return [next(rest) if w else None for w in where]
