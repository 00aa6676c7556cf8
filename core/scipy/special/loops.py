"""Series and continued fractions that go on until they have all digits.

All elements go on together; those that have theirs don't change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import treadle.numpy as tnp
from treadle.api.while_loops import while_loop
from treadle.trace.value import typeof

_MOST = 100_000


def epsilon(x: Any) -> float:
    """The distance from 1 to the next number of the dtype of x."""
    return float(np.finfo(typeof(x).dtype).eps)


def series(
    first: Any,
    following: Callable[[Any, Any], Any],
    added: Callable[[Any, Any], Any] = lambda term, k: term,
    settled: Any = 0.0,
) -> Any:
    """A sum of terms.

    Args:
      first: the term 0.
      following: ``(term, k) -> term`` number k.
      added: ``(term, k) ->`` what is added of it.
      settled: no sum ends before this number of terms.
    """
    eps = epsilon(first)
    k = tnp.full((), 0, typeof(first).dtype)
    start = added(first, k)

    def go_on(state: Any) -> Any:
        k, _, _, busy = state
        return tnp.any(busy) & (k < _MOST)

    def add(state: Any) -> Any:
        k, term, total, busy = state
        k = k + 1
        term = tnp.where(busy, following(term, k), term)
        more = added(term, k)
        more = tnp.where(busy, more, 0.0 * total)
        total = total + more
        small = (tnp.abs(term) <= eps * tnp.abs(total)) & (k >= settled)
        return k, term, total, busy & ~small & tnp.isfinite(total)

    busy = tnp.isfinite(start)
    return while_loop(go_on, add, (k, first + 0.0 * start, start + 0.0 * first, busy))[
        2
    ]


def fraction(
    terms: Callable[[Any], tuple[Any, Any]], first: Any, settled: Any = 0.0
) -> Any:
    """The continued fraction b₀ + a₁ / (b₁ + a₂ / (b₂ + …)), by Lentz's method.

    Args:
      terms: ``k -> (a, b)`` number k.
      first: b₀, which is not 0.
      settled: none ends before this number of terms. Where a numerator is 0 the value
        has all digits and its derivatives have not.
    """
    eps = epsilon(first)
    tiny = float(np.finfo(typeof(first).dtype).tiny) * 1e6
    k = tnp.full((), 0, typeof(first).dtype)

    def away(x: Any) -> Any:
        return tnp.where(tnp.abs(x) < tiny, tiny, x)

    def go_on(state: Any) -> Any:
        k, _, _, _, busy = state
        return tnp.any(busy) & (k < _MOST)

    def step(state: Any) -> Any:
        k, value, c, d, busy = state
        k = k + 1
        a, b = terms(k)
        d = tnp.where(busy, 1 / away(b + a * d), d)
        c = tnp.where(busy, away(b + a / c), c)
        ratio = tnp.where(busy, c * d, 1.0)
        open_ = (tnp.abs(ratio - 1) > eps) | (k < settled)
        busy = busy & open_ & tnp.isfinite(ratio)
        return k, value * ratio, c, d, busy

    start = (k, first, first, 0.0 * first, tnp.isfinite(first))
    return while_loop(go_on, step, start)[1]
