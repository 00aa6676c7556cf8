"""Transforms of transforms: what is done only now and then, or only if all is well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.nn import all_finite
from treadle.optim.base import Record, Transform, check_state, with_extras
from treadle.optim.clip import global_norm
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import positions, settle
from treadle.optim.limits import check


def either(
    go: Any,
    inner: Transform,
    grads: Any,
    state: Any,
    params: Any,
    extra: dict[str, Any],
    otherwise: Callable[[Any, Any], Any],
) -> tuple[Any, Any]:
    """A transform's updates and state if `go`; else the old state, and `otherwise` of
    each update's type and gradient."""

    def act() -> tuple[Any, Any]:
        updates, after = inner.update(grads, state, params, **extra)
        return updates, tree.map(settle, state, after)

    # Which leaves have updates, and of which types, is known to the transform only.
    wanted, form = tree.flatten(td.eval_shape(act)[0])
    given, whole = tree.flatten(grads)
    mine = [given[i] for i in positions(form, whole, "the updates")]

    def leave() -> tuple[Any, Any]:
        left = [otherwise(t, g) for t, g in zip(wanted, mine, strict=True)]
        return form.unflatten(left), state

    return td.cond(go, act, leave)


def nothing(wanted: Any, grad: Any) -> Any:
    """An update that changes nothing."""
    return tnp.zeros(wanted.shape, wanted.dtype)


def _passed_on(wanted: Any, grad: Any) -> Any:
    return tnp.asarray(grad, wanted.dtype)


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class ConditionalState(Record):
    """The state of `conditionally_transform` and `conditionally_mask`.

    count: how many updates were asked for, int32.
    """

    count: Any
    inner: Any


def _conditional(
    inner: Transform, condition: Callable[..., Any], name: str, otherwise: Callable
) -> Transform:
    condition = with_extras(condition)

    def init(params: Any) -> ConditionalState:
        return ConditionalState(tnp.zeros((), td.int32), inner.init(params))

    def update(
        grads: Any, state: ConditionalState, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        check_state(state, ConditionalState, name)
        go: Any = condition(state.count, **extra)
        updates, after = either(go, inner, grads, state.inner, params, extra, otherwise)
        return updates, ConditionalState(state.count + 1, after)

    return Transform(init, update, f"{name} {inner.name}")


def conditionally_transform(
    inner: Transform, condition: Callable[..., Any]
) -> Transform:
    """A transform while a condition holds; otherwise gradients are passed on.

    Args:
      condition: from the number of updates before this one, and those keywords of
        `update` that it names, to a bool.

    >>> from treadle import optim
    >>> rarely = conditionally_transform(optim.scale(0.5), lambda count: count % 2 == 1)
    >>> state = rarely.init(tnp.ones(1))
    >>> first, state = rarely.update(tnp.ones(1), state)
    >>> first, rarely.update(tnp.ones(1), state)[0]
    (Array([1.], dtype=float32), Array([0.5], dtype=float32))
    """
    return _conditional(inner, condition, "conditionally_transform", _passed_on)


def conditionally_mask(inner: Transform, condition: Callable[..., Any]) -> Transform:
    """A transform while a condition holds; otherwise updates are zeros.

    Args:
      condition: as for `conditionally_transform`.

    >>> from treadle import optim
    >>> late = conditionally_mask(optim.sgd(0.5), lambda count: count >= 1)
    >>> state = late.init(tnp.ones(1))
    >>> first, state = late.update(tnp.ones(1), state)
    >>> first, late.update(tnp.ones(1), state)[0]
    (Array([0.], dtype=float32), Array([-0.5], dtype=float32))
    """
    return _conditional(inner, condition, "conditionally_mask", nothing)


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class SkipState(Record):
    """The state of `apply_if_finite` and `skip_large_updates`.

    in_a_row: how many gradients, up to the last one, were bad, int32.
    total: how many there were, int32.
    """

    hyper: Hyperparameters
    in_a_row: Any
    total: Any
    inner: Any


def _skipping(
    inner: Transform, name: str, is_bad: Callable[..., Any], **values: Hyperparameter
) -> Transform:
    check(name, **values)

    def init(params: Any) -> SkipState:
        in_a_row, total = (tnp.zeros((), td.int32) for _ in range(2))
        return SkipState(hyper(**values), in_a_row, total, inner.init(params))

    def update(
        grads: Any, state: SkipState, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        check_state(state, SkipState, name)
        now, after = state.hyper.step()
        bad, allowed = is_bad(grads, now)
        in_a_row = tnp.where(bad, state.in_a_row + 1, 0)
        go = ~bad | (in_a_row > allowed)
        updates, inside = either(go, inner, grads, state.inner, params, extra, nothing)
        return updates, SkipState(after, in_a_row, state.total + bad, inside)

    return Transform(init, update, f"{name} {inner.name}")


def _is_not_finite(grads: Any, now: Any) -> tuple[Any, Any]:
    return ~all_finite(grads), now.max_consecutive_errors


def apply_if_finite(
    inner: Transform, max_consecutive_errors: Hyperparameter
) -> Transform:
    """An optimizer that leaves out gradients with NaN or infinite elements: updates are
    zeros then, and its state stays.

    Args:
      max_consecutive_errors: after how many of them, one after the other, the next is
        applied nevertheless, so that the fault shows.

    Around `multi_steps` it leaves out single gradients of those that are accumulated.

    >>> from treadle import optim
    >>> optimizer = apply_if_finite(optim.sgd(0.1), 5)
    >>> updates, state = optimizer.update(tnp.array([tnp.inf]), optimizer.init(None))
    >>> updates, state.total
    (Array([0.], dtype=float32), Array(1, dtype=int32))
    """
    return _skipping(
        inner,
        "apply_if_finite",
        _is_not_finite,
        max_consecutive_errors=max_consecutive_errors,
    )


def _is_large(grads: Any, now: Any) -> tuple[Any, Any]:
    # Of NaN, neither is true: it is left out.
    return ~(global_norm(grads) < now.max_norm), tnp.inf


def skip_large_updates(inner: Transform, max_norm: Hyperparameter) -> Transform:
    """An optimizer that leaves out gradients whose global norm is not below a bound:
    updates are zeros then, and its state stays. NaN is not below any.

    Around `multi_steps` it leaves out single gradients of those that are accumulated.

    >>> from treadle import optim
    >>> optimizer = skip_large_updates(optim.sgd(0.1), max_norm=10.0)
    >>> updates, state = optimizer.update(tnp.array([11.0]), optimizer.init(None))
    >>> updates, state.total
    (Array([0.], dtype=float32), Array(1, dtype=int32))
    """
    return _skipping(inner, "skip_large_updates", _is_large, max_norm=max_norm)
