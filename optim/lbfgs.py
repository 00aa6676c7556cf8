"""L-BFGS: Newton's method with what gradients told of the curvature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.optim.base import Record, Transform, check_params, check_state
from treadle.optim.chain import chain
from treadle.optim.hyper import Hyperparameter, Hyperparameters, hyper
from treadle.optim.leaves import map_updates, widen, zeros_for
from treadle.optim.limits import check
from treadle.optim.line_search import scale_by_zoom_linesearch
from treadle.optim.objective import inner, value_dtype
from treadle.optim.scale import scale_by_learning_rate


@tree.register_dataclass
@dataclass(frozen=True, repr=False)
class LbfgsState(Record):
    """The state of `scale_by_lbfgs`: parameters and gradients of the step before, and
    the last differences of both, with one over the product of each pair."""

    hyper: Hyperparameters
    params: Any
    grads: Any
    moves: Any
    changes: Any
    weights: Any


def scale_by_lbfgs(memory_size: int = 10, scale_first: bool = True) -> Transform:
    """Multiplies by an approximation of the inverse of the Hessian.

    It is what the last `memory_size` differences of parameters s and of gradients y
    tell: with ``r = 1 / <s, y>``, ``H ← (1 - r s yᵀ) H (1 - r y sᵀ) + r s sᵀ``, from
    ``H = <s, y> / <y, y>`` of the last pair (before there is one, ``min(1, 1 / ‖g‖)``),
    or from 1 unless `scale_first`. Pairs with ``<s, y> ≤ 0`` don't count.

    Args:
      memory_size: a static int: shapes of the state depend on it.

    Nocedal, *Updating Quasi-Newton Matrices with Limited Storage*, 1980; Liu and
    Nocedal, *On the limited memory BFGS method for large scale optimization*, 1989.

    >>> newton = scale_by_lbfgs()
    >>> params = tnp.array([3.0, 4.0])
    >>> newton.update(params, newton.init(params), params)[0]
    Array([0.6, 0.8], dtype=float32)
    """
    check("scale_by_lbfgs", memory_size=memory_size)

    def init(params: Any) -> LbfgsState:
        def rows() -> Any:
            return tree.map(
                lambda zero: tnp.zeros((memory_size, *zero.shape), zero.dtype),
                zeros_for(params),
            )

        before = zeros_for(params)
        weights = tnp.zeros(memory_size, value_dtype(params))
        return LbfgsState(hyper(), before, zeros_for(params), rows(), rows(), weights)

    def update(grads: Any, state: LbfgsState, params: Any = None) -> tuple[Any, Any]:
        check_state(state, LbfgsState, "scale_by_lbfgs")
        check_params(params, grads, "scale_by_lbfgs")
        _, after = state.hyper.step()
        some = state.hyper.count > 0
        slot = (state.hyper.count - 1) % memory_size
        moves, changes = [], []

        def leaf(g: Any, p0: Any, g0: Any, s: Any, y: Any, p: Any) -> tuple[Any, ...]:
            g, p = widen(g), widen(p)
            moves.append(tnp.where(some, p - p0, 0))
            changes.append(tnp.where(some, g - g0, 0))
            return g, p, g, s.at[slot].set(moves[-1]), y.at[slot].set(changes[-1])

        old = (state.params, state.grads, state.moves, state.changes)
        wide, p, g0, s, y = map_updates(leaf, grads, *old, read=(params,))
        g = tree.leaves(wide)
        product = inner(changes, moves)
        # Where the slope did not grow, the pair would make H indefinite: updates might
        # ascend. Only a search for Wolfe's conditions never ends there.
        convex = product > 0
        weight = tnp.where(convex, 1 / tnp.where(convex, product, 1), 0)
        weights = state.weights.at[slot].set(weight.astype(state.weights.dtype))
        scale: Any = 1.0
        if scale_first:
            size = inner(changes, changes)
            known = tnp.where(size > 0, product / tnp.where(size > 0, size, 1), 1)
            norm = tnp.sqrt(inner(g, g))
            unknown = tnp.minimum(1, 1 / tnp.where(norm > 0, norm, 1))
            scale = tnp.where(convex, known, unknown)
        columns = _columns(wide, s), _columns(wide, y)
        order = (state.hyper.count + tnp.arange(memory_size)) % memory_size
        direction = _inverse_times(g, *columns, weights, scale, order)
        updates = tree.structure(grads).unflatten(direction)
        return updates, LbfgsState(after, p, g0, s, y, weights)

    return Transform(init, update, "scale_by_lbfgs")


def _columns(grads: Any, rows: Any) -> list[Any]:
    """The rows of those leaves that have a gradient."""
    return tree.leaves(map_updates(lambda g, row: (row,), grads, read=(rows,))[0])


def _inverse_times(
    g: list[Any],
    moves: list[Any],
    changes: list[Any],
    weights: Any,
    scale: Any,
    order: Any,
) -> list[Any]:
    """The two loops: from the newest pair to the oldest, and back."""

    def plus(a: list[Any], factor: Any, b: list[Any]) -> list[Any]:
        return [(x + factor * y).astype(x.dtype) for x, y in zip(a, b, strict=True)]

    def back(q: list[Any], n: Any) -> tuple[list[Any], Any]:
        part = weights[n] * inner([s[n] for s in moves], q)
        return plus(q, -part, [y[n] for y in changes]), part

    def forth(r: list[Any], row: Any) -> tuple[list[Any], None]:
        n, part = row
        rest = part - weights[n] * inner([y[n] for y in changes], r)
        return plus(r, rest, [s[n] for s in moves]), None

    q, parts = td.scan(back, g, order, reverse=True)
    scaled = [(scale * x).astype(x.dtype) for x in q]
    return td.scan(forth, scaled, (order, parts))[0]


def lbfgs(
    learning_rate: Hyperparameter = 1.0,
    memory_size: int = 10,
    scale_first: bool = True,
    line_search: Transform | None = None,
) -> Transform:
    """L-BFGS with a line search: for smooth losses of all data; see `scale_by_lbfgs`.

    `update` takes the loss by keyword: ``value_fn=loss``, a function of the parameters,
    and ``value=`` where its value is known. With `value_and_grad_from_state` no
    evaluation is done twice.

    Args:
      learning_rate: multiplies the direction in which the line search goes.
      memory_size: a static int: shapes of the state depend on it.
      line_search: None for `scale_by_zoom_linesearch` from a length of 1;
        `scale_by_backtracking_linesearch` evaluates no gradients; `identity` for none.

    Liu and Nocedal, *On the limited memory BFGS method for large scale optimization*,
    1989.

    >>> from treadle import optim
    >>> def rosenbrock(p):
    ...     return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
    >>> optimizer = optim.lbfgs()
    >>> @td.jit
    ... def step(params, state):
    ...     value, grads = optim.value_and_grad_from_state(rosenbrock, params, state)
    ...     updates, state = optimizer.update(
    ...         grads, state, params, value=value, value_fn=rosenbrock
    ...     )
    ...     return optim.apply_updates(params, updates), state
    >>> params = tnp.array([-1.2, 1.0])
    >>> state = optimizer.init(params)
    >>> for _ in range(40):
    ...     params, state = step(params, state)
    >>> tnp.round(params, 2)
    Array([1., 1.], dtype=float32)
    """
    if line_search is None:
        line_search = scale_by_zoom_linesearch(initial_guess="one")
    whole = chain(
        scale_by_lbfgs(memory_size, scale_first),
        scale_by_learning_rate(learning_rate),
        line_search,
    )

    def update(
        grads: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        # The search goes along the direction, but starts with the slope of the loss.
        return whole.update(grads, state, params, **{"grad": grads, **extra})

    return Transform(whole.init, update, "lbfgs")
