"""Linear algebra on arrays: norms."""

from __future__ import annotations

import math
from typing import Any

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np import reductions
from treadle.np.binary import power
from treadle.np.complex_parts import imag, real
from treadle.np.elementwise import abs, sqrt, square
from treadle.np.operands import ArrayLike, Axis, all_axes, as_inexact, cast
from treadle.ops.arithmetic import add
from treadle.ops.compare import ne
from treadle.run.array import Array
from treadle.trace.value import typeof


def norm(
    x: ArrayLike,
    ord: float | str | None = None,
    axis: Axis = None,
    keepdims: bool = False,
) -> Array:
    """The length of vectors along one axis, or the Frobenius norm over two and more.

    Args:
      ord: of a vector norm: 2 (the default), 1, any other p > 0, 0 (how many elements
        are not zero), inf (the largest) or -inf. Over several axes only the default,
        which may be written "fro".
    """
    x = as_inexact("norm", x)
    dtype = typeof(x).dtype
    if dtype.itemsize == 2:
        # The squares of halves overflow early.
        return cast(norm(cast(x, dtypes.float32), ord, axis, keepdims), dtype)
    axes = all_axes("norm", axis, typeof(x).ndim)
    if ord in (None, "fro") or (ord == 2 and len(axes) == 1):
        return sqrt(reductions.sum(_squares(x), axes, None, keepdims))
    if len(axes) != 1 or isinstance(ord, str):
        raise ValueError(
            f"norm: order {ord!r} over {len(axes)} axes{at(user_source())}\n"
            "Orders are those of vectors: give one axis."
        )
    return _vector_norm(abs(x), ord, axes, keepdims)


def _squares(x: Any) -> Any:
    parts = real(x), imag(x)
    same = typeof(parts[0]).dtype == typeof(x).dtype
    return square(x) if same else add(square(parts[0]), square(parts[1]))


def _vector_norm(size: Any, ord: Any, axes: Any, keepdims: bool) -> Any:
    if ord == math.inf:
        return reductions.max(size, axes, keepdims)
    if ord == -math.inf:
        return reductions.min(size, axes, keepdims)
    if ord == 0:
        present = cast(ne(size, 0.0), typeof(size).dtype)
        return reductions.sum(present, axes, None, keepdims)
    total = reductions.sum(power(size, ord), axes, None, keepdims)
    return power(total, 1 / ord)
