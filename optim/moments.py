"""Transforms that treat each leaf alone, with what they remember of its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import dtypes, tree
from treadle.errors import at, user_source
from treadle.optim.base import Record, Transform, check_params, check_state
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_trainable, map_updates, wide, widen, zeros_for
from treadle.optim.limits import check

Rule = Callable[[Any, Any], Callable[..., tuple[Any, ...]]]


class MomentState(Record):
    """The state of a transform with moments: its numbers, and each moment by its name.

    >>> from treadle import optim
    >>> state = optim.scale_by_adam().init({"w": tnp.ones(2)})
    >>> state.mean_square
    {'w': Array([0., 0.], dtype=float32)}
    """

    hyper: Hyperparameters

    def __init__(self, hyper: Hyperparameters, **moments: Any) -> None:
        self.__dict__.update(hyper=hyper, **moments)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"this state has no moment {name!r}, but {', '.join(vars(self))}"
        )


def _flatten(state: MomentState) -> tuple[list[Any], tuple[str, ...]]:
    return list(vars(state).values()), tuple(vars(state))


def _unflatten(names: tuple[str, ...], children: Any) -> MomentState:
    state = object.__new__(MomentState)
    state.__dict__.update(zip(names, children, strict=True))
    return state


tree.register(
    MomentState,
    _flatten,
    _unflatten,
    lambda names, n: [tree.Attribute(name) for name in names],
)


def by_leaf(
    name: str,
    numbers: Mapping[str, Hyperparameter],
    moments: Mapping[str, Callable[[Any], Any]],
    rule: Rule,
    needs_params: bool = False,
) -> Transform:
    """A transform given by what it does with one leaf.

    Args:
      numbers: the hyperparameters.
      moments: by name, how each is made of the parameters.
      rule: from the numbers (as attributes) and the step t, counted from 1, to a
        function ``(g, *moments) -> (update, *moments)`` of the arrays of a leaf; g is
        at least float32. With `needs_params` the parameter comes last.
    """
    check(name, **numbers)

    def init(params: Any) -> MomentState:
        made = {key: make(params) for key, make in moments.items()}
        return MomentState(hyper(**numbers), **made)

    def update(grads: Any, state: MomentState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, MomentState, name)
        if vars(state).keys() != {"hyper", *moments}:
            raise TypeError(
                f"{name}.update got a state with {', '.join(vars(state))}, not the one "
                f"with {', '.join(('hyper', *moments))} that {name}.init makes"
                f"{at(user_source())}"
            )
        if needs_params:
            check_params(params, grads, name)
        now, after = state.hyper.step()
        leaf = rule(now, after.count.astype(td.float32))
        updates, *new = map_updates(
            lambda g, *rest: leaf(widen(g), *rest),
            grads,
            *[getattr(state, key) for key in moments],
            read=(params,) if needs_params else (),
        )
        return updates, MomentState(after, **dict(zip(moments, new, strict=True)))

    return Transform(init, update, name)


def means(dtype: Any = None) -> Callable[[Any], Any]:
    """How a mean of gradients begins: at zero, in at least float32 or in `dtype`."""
    return lambda params: zeros_for(params, dtype)


def squares() -> Callable[[Any], Any]:
    """How a moment of squares begins: at zero, real, in at least float32."""
    return lambda params: zeros_for(params, real=True)


def norms(params: Any) -> Any:
    """How a moment begins of which there is one number a leaf."""
    return map_trainable(lambda x: tnp.zeros((), wide(_real(x))), params)


def _real(x: Any) -> Any:
    return dtypes.to_real(td.typeof(x).dtype)


def copies(params: Any, chosen: Sequence[bool] | None = None) -> Any:
    """Copies in at least float32, in memory of their own: states get donated.

    chosen: for each leaf, whether it is copied; by default those that are trained.
    """
    return map_trainable(_copy, params, chosen)


def _copy(x: Any) -> Any:
    dtype = wide(td.typeof(x).dtype)
    if isinstance(x, td.Array) and not td.is_traced(x):
        x = np.asarray(x)
    return tnp.array(x, dtype)


def ahead(b1: Any, time: Any, nesterov: bool, factor: Any = 1.0) -> Callable[..., Any]:
    """The mean ``m / (1 - b1ᵗ)`` from g and m, corrected for its start at zero.

    With `nesterov` that of the step after, ``b1 m / (1 - b1ᵗ⁺¹) + (1 - b1) g /
    (1 - b1ᵗ)``. Both times `factor`, which is done outside of the leaves.
    """
    if not nesterov:
        past = factor / (1 - b1**time)
        return lambda g, m: past * m
    past = factor * b1 / (1 - b1 ** (time + 1))
    present = factor * (1 - b1) / (1 - b1**time)
    return lambda g, m: past * m + present * g
