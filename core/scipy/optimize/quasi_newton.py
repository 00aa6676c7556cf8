"""Descent in directions that gradients of the steps before suggest: BFGS, L-BFGS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from treadle import np as tnp
from treadle.api.loops import scan
from treadle.api.while_loops import while_loop
from treadle.scipy.optimize.line_search import line_search

CONVERGED, TOO_LONG, NO_DESCENT, NOT_FINITE = range(4)


class Memory(NamedTuple):
    """A method: what it remembers, as pytrees of arrays.

    first: for a number of unknowns and a dtype.
    direction: from what is remembered and a gradient.
    after: from what is remembered and a step, by how much that changed the gradient,
      and one over the product of both.
    """

    first: Callable[[int, Any], Any]
    direction: Callable[[Any, Any], Any]
    after: Callable[[Any, Any, Any, Any], Any]


class Limits(NamedTuple):
    """When a descent ends: the largest number in the gradient, and how many steps and
    places of a line search there may be."""

    gtol: float
    maxiter: int
    line_search_maxiter: int


class Descent(NamedTuple):
    """How far a descent is. status: negative while it goes on."""

    x: Any
    value: Any
    gradient: Any
    memory: Any
    steps: Any
    evaluations: Any
    status: Any


def descend(
    value_and_grad: Callable[[Any], tuple[Any, Any]],
    x: Any,
    method: Memory,
    limits: Limits,
) -> Descent:
    """Goes down from x until the gradient is small."""

    def status(value: Any, gradient: Any, steps: Any, moved: Any) -> Any:
        least = tnp.max(tnp.abs(gradient), initial=0)
        found = tnp.where(steps < limits.maxiter, -1, TOO_LONG)
        found = tnp.where(moved, found, NO_DESCENT)
        known = tnp.isfinite(value) & tnp.isfinite(least)
        found = tnp.where(known, found, NOT_FINITE)
        return tnp.where(least <= limits.gtol, CONVERGED, found)

    def step(now: Descent) -> Descent:
        direction = -method.direction(now.memory, now.gradient)
        # Nothing is known of lengths before the first step.
        size = tnp.sqrt(tnp.sum(now.gradient**2))
        first = tnp.where(now.steps == 0, tnp.minimum(1, 1 / size), 1)
        found = line_search(
            value_and_grad,
            now.x,
            now.value,
            now.gradient,
            direction,
            tnp.astype(first, now.x.dtype),
            limits.line_search_maxiter,
        )
        best = found.best
        move = best.far * direction
        change = best.gradient - now.gradient
        product = tnp.sum(move * change)
        curved = product > 1e-10 * tnp.sum(change * change)
        inverse = tnp.where(curved, 1 / tnp.where(curved, product, 1), 0)
        return Descent(
            now.x + move,
            best.value,
            best.gradient,
            method.after(now.memory, move, change, inverse),
            now.steps + 1,
            now.evaluations + found.tried,
            status(best.value, best.gradient, now.steps + 1, best.far > 0),
        )

    value, gradient = value_and_grad(x)
    begin = Descent(
        x,
        value,
        gradient,
        method.first(x.size, x.dtype),
        0,
        1,
        status(value, gradient, 0, True),
    )
    return while_loop(lambda now: now.status < 0, step, begin)


def _bfgs_first(n: int, dtype: Any) -> Any:
    return tnp.eye(n, dtype=dtype), tnp.zeros((), bool)


def _bfgs_after(memory: Any, move: Any, change: Any, inverse: Any) -> Any:
    H, scaled = memory
    # The first step shows how large the inverse of the Hessian is.
    curved = inverse > 0
    square = inverse * tnp.sum(change * change)
    first = curved & ~scaled
    H = H * tnp.where(first, 1 / tnp.where(first, square, 1), 1)
    image = H @ change
    cross = inverse * tnp.outer(move, image)
    weight = inverse * (1 + inverse * tnp.sum(change * image))
    return H - cross - cross.T + weight * tnp.outer(move, move), scaled | curved


BFGS = Memory(_bfgs_first, lambda memory, gradient: memory[0] @ gradient, _bfgs_after)
"""The inverse of the Hessian, as far as it is known (Broyden, Fletcher, Goldfarb and
Shanno, 1970)."""


def lbfgs(count: int) -> Memory:
    """The last `count` steps, and how they changed the gradient (J. Nocedal, 1980)."""

    def first(n: int, dtype: Any) -> Any:
        rows = tnp.zeros((count, n), dtype)
        return rows, rows, tnp.zeros(count, dtype), tnp.ones((), dtype)

    def direction(memory: Any, gradient: Any) -> Any:
        moves, changes, inverses, scale = memory

        def back(q: Any, row: Any) -> tuple[Any, Any]:
            move, change, inverse = row
            part = inverse * tnp.sum(move * q)
            return q - part * change, part

        def forth(r: Any, row: Any) -> tuple[Any, None]:
            move, change, inverse, part = row
            return r + move * (part - inverse * tnp.sum(change * r)), None

        rows = moves, changes, inverses
        q, parts = scan(back, gradient, rows, reverse=True)
        return scan(forth, scale * q, (*rows, parts))[0]

    def after(memory: Any, move: Any, change: Any, inverse: Any) -> Any:
        # What says nothing of the curvature is left out.
        curved = inverse > 0
        rows = (move, change, inverse)
        kept = [
            tnp.where(curved, tnp.concatenate([old[1:], new[None]]), old)
            for old, new in zip(memory[:3], rows, strict=True)
        ]
        square = inverse * tnp.sum(change * change)
        scale = tnp.where(curved, 1 / tnp.where(curved, square, 1), memory[3])
        return *kept, scale

    return Memory(first, direction, after)
