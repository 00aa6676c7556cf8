"""In which order columns are taken: the longest of what others leave comes first."""

from __future__ import annotations

from typing import Any

from treadle import dtypes
from treadle.api.jacobian import stop_gradient
from treadle.api.loops import scan
from treadle.api.vmap import vmap
from treadle.np import reductions
from treadle.np.contract import matmul
from treadle.np.creation import arange
from treadle.np.elementwise import sqrt, square
from treadle.np.linalg.operands import adjoint, empty
from treadle.np.operands import broadcast_to_shape, cast
from treadle.np.places import where
from treadle.np.shapes import reshape
from treadle.ops.matrix import real as real_of
from treadle.trace.value import typeof


def column_pivots(a: Any) -> Any:
    """The order of columns in which each is the longest of those that are left, once
    what it shares with those before is taken away [1]: ``(..., m, n) -> (..., n)``.

    [1] P. Businger, G. Golub, Linear least squares solutions by Householder
    transformations (1965).
    """
    *lead, m, n = typeof(a).shape
    if empty(typeof(a).shape):
        return broadcast_to_shape(arange(n, dtype=dtypes.int32), (*lead, n))
    order = vmap(_pivots)(reshape(stop_gradient(a), (-1, m, n)))
    return reshape(order, (*lead, n))


def _pivots(a: Any) -> Any:
    places = arange(a.shape[1])

    def step(carry: Any, i: Any) -> Any:
        rest, order = carry
        lengths = sqrt(reductions.sum(_squares(rest), 0))
        chosen = reductions.argmax(where(places < i, -1, lengths))
        # The chosen column and the one that stands in its place change places.
        swapped = where(places == i, chosen, where(places == chosen, i, places))
        rest, order = rest[:, swapped], order[swapped]
        column = rest[:, i][:, None]
        size = sqrt(reductions.sum(_squares(column)))
        unit = column / cast(where(size > 0, size, 1), rest.dtype)
        # Twice is enough: what is left stays orthogonal to what was taken.
        for _ in range(2):
            rest = rest - matmul(unit, matmul(adjoint(unit), rest))
        return (rest, order), None

    steps = arange(min(a.shape))
    return scan(step, (a, cast(places, dtypes.int32)), steps)[0][1]


def _squares(x: Any) -> Any:
    parts = square(real_of(x))
    return parts + square(x.imag) if dtypes.is_complex(x.dtype) else parts
