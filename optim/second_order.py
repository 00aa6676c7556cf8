"""Second derivatives of losses, without their matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import treadle as td
import treadle.numpy as tnp
from treadle import tree

T = TypeVar("T")


def hvp(loss: Callable[..., Any], params: T, direction: T, *args: Any) -> T:
    """The Hessian of a loss times a direction, for the price of two gradients.

    Args:
      loss: ``(params, *args) -> scalar``.

    Pearlmutter, *Fast Exact Multiplication by the Hessian*, 1994.

    >>> hvp(lambda x: x[0] ** 2 * x[1], tnp.array([1.0, 2.0]), tnp.array([1.0, 0.0]))
    Array([4., 2.], dtype=float32)
    """
    slope = td.grad(lambda p: loss(p, *args))
    return td.jvp(slope, (params,), (direction,))[1]


def hessian_diag(loss: Callable[..., Any], params: T, *args: Any) -> T:
    """The second derivatives of a loss in each parameter by itself.

    Exact, by one product with the Hessian for each number: for small models.

    Args:
      loss: ``(params, *args) -> scalar``.

    >>> hessian_diag(lambda x: x[0] ** 2 * x[1], tnp.array([1.0, 2.0]))
    Array([4., 0.], dtype=float32)
    """
    flat, unravel = tree.ravel(params)

    def flat_loss(values: Any) -> Any:
        return loss(unravel(values), *args)

    def entry(number: Any) -> Any:
        axis = (tnp.arange(flat.size) == number).astype(flat.dtype)
        return hvp(flat_loss, flat, axis)[number]

    return unravel(td.map(entry, tnp.arange(flat.size)))


def fisher_diag(loss: Callable[..., Any], params: T, *examples: Any) -> T:
    """The mean over examples of the squares of their gradients: the diagonal of the
    empirical Fisher information, if the loss is a negative log-likelihood.

    Args:
      loss: ``(params, *example) -> scalar`` of one example.
      examples: arrays whose first axis counts examples.

    >>> fisher_diag(lambda w, x: w * x, tnp.array(1.0), tnp.array([1.0, 3.0]))
    Array(5., dtype=float32)
    """
    slopes = td.vmap(td.grad(loss), (None, *[0] * len(examples)))(params, *examples)
    return tree.map(lambda g: (abs(g) ** 2).mean(0), slopes)
