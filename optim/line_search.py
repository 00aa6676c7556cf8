"""Line searches: how far to go along updates, by looking at the loss there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source
from treadle.optim.base import Record, Transform, check_state
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, positions, zeros_for
from treadle.optim.limits import check
from treadle.optim.objective import Objective, objective, value_dtype
from treadle.optim.zoom import zoom

T = TypeVar("T")


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class LineSearchState(Record):
    """The state of a line search.

    learning_rate: how far the last step went, in lengths of the updates.
    value, grads: of the loss there; infinite before the first step. No grads where the
      search doesn't keep them.
    evaluations: how often the loss was evaluated.
    decrease_error: by how much the value there is too large, 0 where it is not.
    """

    hyper: Hyperparameters
    learning_rate: Any
    value: Any
    grads: Any
    evaluations: Any
    decrease_error: Any


class _Start(NamedTuple):
    """Where a search begins: the loss, its value and slope, the direction."""

    loss: Objective
    direction: list[Any]
    value: Any
    grads: list[Any]
    slope: Any


def _first(numbers: dict[str, Any], params: Any, grads: Any) -> LineSearchState:
    dtype = value_dtype(params)
    return LineSearchState(
        hyper(**numbers),
        tnp.ones((), dtype),
        tnp.full((), tnp.inf, dtype),
        grads,
        tnp.zeros((), td.int32),
        tnp.full((), tnp.inf, dtype),
    )


def _start(
    name: str,
    updates: Any,
    state: LineSearchState,
    params: Any,
    value: Any,
    grad: Any,
    value_fn: Any,
) -> _Start:
    """What the caller knows; the rest is evaluated."""
    check_state(state, LineSearchState, name)
    loss = objective(value_fn, params, updates, name)
    direction, form = tree.flatten(updates)
    if grad is None:
        value, grads = loss.value_and_grad(loss.start)
    else:
        leaves, own = tree.flatten(grad)
        grads = [leaves[i] for i in positions(form, own, "the gradients")]
        value = loss.value(loss.start) if value is None else value
    value = tnp.asarray(value).astype(state.value.dtype)
    slope = sum(
        [tnp.sum(tnp.real(u * g)) for u, g in zip(direction, grads, strict=True)],
        tnp.zeros_like(value),
    )
    return _Start(loss, direction, value, grads, slope.astype(value.dtype))


class _Found(NamedTuple):
    """Where a search ended. grads: None if they were not evaluated."""

    step: Any
    value: Any
    grads: list[Any] | None
    tried: Any
    decrease_error: Any


def _searching(
    name: str,
    numbers: dict[str, Any],
    find: Callable[[_Start, Any, Any], _Found],
    keeps_grads: bool,
) -> Transform:
    """A line search, by what finds the end from the start, the last length and the
    numbers of this step."""
    check(name, **numbers)

    def init(params: Any) -> LineSearchState:
        return _first(numbers, params, zeros_for(params) if keeps_grads else None)

    def update(
        updates: Any,
        state: LineSearchState,
        params: Any = None,
        *,
        value: Any = None,
        grad: Any = None,
        value_fn: Any = None,
    ) -> tuple[Any, LineSearchState]:
        start = _start(name, updates, state, params, value, grad, value_fn)
        now, after = state.hyper.step()
        found = find(start, state.learning_rate, now)
        grads = state.grads
        if found.grads is not None:
            new = tree.structure(updates).unflatten(found.grads)
            grads = map_updates(lambda g, old: (g, g), new, grads)[1]
        (scaled,) = map_updates(lambda u: (found.step * u,), updates)
        return scaled, LineSearchState(
            after, found.step, found.value, grads, found.tried, found.decrease_error
        )

    return Transform(init, update, name)


def scale_by_backtracking_linesearch(
    max_steps: Hyperparameter = 20,
    slope_rtol: Hyperparameter = 1e-4,
    decrease_factor: Hyperparameter = 0.8,
    increase_factor: Hyperparameter = 1.5,
    max_learning_rate: Hyperparameter = 1.0,
    atol: Hyperparameter = 0.0,
    rtol: Hyperparameter = 0.0,
    *,
    store_grads: bool = False,
) -> Transform:
    """Shortens updates until the loss falls enough along them.

    The first length tried is that of the last step times `increase_factor`, at most
    `max_learning_rate`. It is multiplied by `decrease_factor` until ``f(p + s u) ≤
    (1 + rtol) f(p) + s · slope_rtol · <u, ∇f(p)> + atol``, at most `max_steps` times.

    `update` takes the loss by keyword: ``value_fn=loss``, and ``value=`` and ``grad=``
    where they are known; else they are evaluated. Put it after an optimizer.

    Args:
      store_grads: whether the gradients at the end are evaluated, for
        `value_and_grad_from_state`.

    Armijo, *Minimization of Functions Having Lipschitz Continuous First Partial
    Derivatives*, 1966; Vaswani et al., *Painless Stochastic Gradient*, 2019.

    >>> from treadle import optim
    >>> optimizer = optim.chain(optim.sgd(1.0), scale_by_backtracking_linesearch())
    >>> params, loss = tnp.array([1.0, -2.0]), lambda p: (p**2).sum()
    >>> state = optimizer.init(params)
    >>> optimizer.update(2 * params, state, params, value_fn=loss)[0]
    Array([-1.6,  3.2], dtype=float32)
    """
    name = "scale_by_backtracking_linesearch"
    numbers = {
        "max_steps": max_steps,
        "slope_rtol": slope_rtol,
        "decrease_factor": decrease_factor,
        "increase_factor": increase_factor,
        "max_learning_rate": max_learning_rate,
        "atol": atol,
        "rtol": rtol,
    }

    def find(start: _Start, last: Any, now: Any) -> _Found:
        far = tnp.minimum(now.increase_factor * last, now.max_learning_rate)
        return _backtracked(start, far.astype(last.dtype), now, store_grads)

    return _searching(name, numbers, find, store_grads)


def _backtracked(start: _Start, far: Any, now: Any, with_grads: bool) -> _Found:
    loss, direction = start.loss, start.direction
    dtype = start.value.dtype

    def going(carry: Any) -> Any:
        _, _, error, tried = carry
        return ~(error <= now.atol) & (tried <= now.max_steps)

    def shorter(carry: Any) -> Any:
        rate, _, _, tried = carry
        rate = rate * tnp.where(tried > 0, now.decrease_factor, 1).astype(dtype)
        there = loss.value(loss.moved(rate, direction)).astype(dtype)
        least = (1 + now.rtol) * start.value + rate * now.slope_rtol * start.slope
        error = tnp.maximum(there - least, 0)
        error = tnp.where(tnp.isnan(error), tnp.inf, error).astype(dtype)
        return rate, there, error, tried + 1

    none = tnp.full((), tnp.inf, dtype)
    begin = (far, start.value, none, tnp.zeros((), td.int32))
    rate, there, error, tried = td.while_loop(going, shorter, begin)
    rate = tnp.where(tnp.isinf(error), 0, rate)
    if not with_grads:
        return _Found(rate, there, None, tried, error)
    there, grads = loss.value_and_grad(loss.moved(rate, direction))
    return _Found(rate, there.astype(dtype), grads, tried, error)


def scale_by_zoom_linesearch(
    max_steps: Hyperparameter = 20,
    max_learning_rate: Hyperparameter | None = None,
    tol: Hyperparameter = 0.0,
    increase_factor: Hyperparameter = 2.0,
    slope_rtol: Hyperparameter = 1e-4,
    curv_rtol: Hyperparameter = 0.9,
    approx_dec_rtol: Hyperparameter | None = 1e-6,
    stepsize_precision: Hyperparameter = 1e-5,
    initial_guess: Literal["keep", "one"] = "keep",
) -> Transform:
    """Gives updates a length at which the loss has fallen enough, and is flat enough.

    A length s with ``f(p + s u) ≤ f(p) + slope_rtol · s · <u, ∇f(p)> + tol`` and
    ``|<u, ∇f(p + s u)>| ≤ curv_rtol · |<u, ∇f(p)>| + tol`` (Wolfe's strong conditions).
    Where values differ by rounding alone, slopes tell whether the loss has fallen.

    `update` takes the loss by keyword: ``value_fn=loss``, and ``value=`` and ``grad=``
    where they are known; else they are evaluated. Put it after an optimizer.

    Args:
      max_steps: how many lengths are tried.
      increase_factor: by how much lengths grow until one is too far.
      approx_dec_rtol: by what part values may rise where slopes tell; None: never.
      stepsize_precision: a shorter interval is not searched further.
      initial_guess: the length tried first: that of the last step, or 1 (for Newton's
        method and those like it).

    Nocedal and Wright, *Numerical Optimization*, 2006, algorithms 3.5 and 3.6; Hager
    and Zhang, *Algorithm 851: CG_DESCENT*, 2006.

    >>> from treadle import optim
    >>> optimizer = optim.chain(optim.sgd(1.0), scale_by_zoom_linesearch())
    >>> params, loss = tnp.array([1.0, -2.0]), lambda p: (p**2).sum()
    >>> state = optimizer.init(params)
    >>> optimizer.update(2 * params, state, params, value_fn=loss)[0]
    Array([-1.,  2.], dtype=float32)
    """
    name = "scale_by_zoom_linesearch"
    numbers = {
        "max_steps": max_steps,
        "tol": tol,
        "increase_factor": increase_factor,
        "slope_rtol": slope_rtol,
        "curv_rtol": curv_rtol,
        "stepsize_precision": stepsize_precision,
    }
    if max_learning_rate is not None:
        numbers["max_learning_rate"] = max_learning_rate
    if approx_dec_rtol is not None:
        numbers["approx_dec_rtol"] = approx_dec_rtol
    if initial_guess not in ("keep", "one"):
        raise ValueError(
            f"{name}: initial_guess={initial_guess!r}, not 'keep' or 'one'"
            f"{at(user_source())}"
        )

    def find(start: _Start, last: Any, now: Any) -> _Found:
        first = last if initial_guess == "keep" else tnp.ones_like(last)
        known = (start.value, start.grads, start.slope)
        end = zoom(start.loss, start.direction, known, first, now)
        step, value, _ = end.at
        return _Found(step, value, end.grads, end.tried, end.decrease_error)

    return _searching(name, numbers, find, True)


def value_and_grad_from_state(
    value_fn: Callable[[T], Any], params: T, state: Any
) -> tuple[Any, T]:
    """The loss and its gradients, from the last line search if there was one.

    A search ends with both at the new parameters: nothing is evaluated once more. Only
    for a loss that is the same at every step: not for one of other data.

    Args:
      params: as the last update left them.
      state: of an optimizer with a line search that keeps gradients, such as `lbfgs`.

    Raises:
      ValueError: unless there is one such line search in the state.

    >>> from treadle import optim
    >>> loss = lambda p: ((p - 3.0) ** 2).sum()
    >>> params = tnp.zeros(2)
    >>> optimizer = optim.lbfgs()
    >>> state = optimizer.init(params)
    >>> for _ in range(3):
    ...     value, grads = optim.value_and_grad_from_state(loss, params, state)
    ...     updates, state = optimizer.update(
    ...         grads, state, params, value=value, value_fn=loss
    ...     )
    ...     params = optim.apply_updates(params, updates)
    >>> params
    Array([3., 3.], dtype=float32)
    """
    parts = tree.leaves(state, is_leaf=lambda s: isinstance(s, LineSearchState))
    found = [
        part
        for part in parts
        if isinstance(part, LineSearchState) and tree.leaves(part.grads)
    ]
    if len(found) != 1:
        raise ValueError(
            f"expected one line search that keeps gradients in the optimizer's state, "
            f"found {len(found)}{at(user_source())}\n"
            "`lbfgs` and `scale_by_zoom_linesearch` have one, "
            "`scale_by_backtracking_linesearch` with store_grads=True."
        )
    search = found[0]

    def known(_: T) -> tuple[Any, Any]:
        return search.value, search.grads

    def evaluated(params: T) -> tuple[Any, Any]:
        value, grads = td.value_and_grad(value_fn)(params)
        _, grads = map_updates(lambda g, old: (g, g), grads, search.grads)
        return value.astype(search.value.dtype), grads

    value, grads = td.cond(tnp.isfinite(search.value), known, evaluated, params)
    (grads,) = map_updates(
        lambda g, p: (g.astype(td.typeof(p).dtype),), grads, read=(params,)
    )
    return value, grads
