"""What slides over the spatial axes of (N, *spatial, C): convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from treadle.api.boundary import boundary
from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.ops import conv, window
from treadle.run.array import Array

Pairs = Sequence[tuple[int, int]]


@boundary
def conv_general(
    x: Any,
    w: Any,
    *,
    strides: Sequence[int],
    padding: Pairs,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    feature_groups: int = 1,
) -> Array:
    """A convolution (not flipped) over any number of spatial axes.

    ``out[n, p, f] = Σ_kc x'[n, p · strides + k · rhs_dilation, c] w[k, c, f]``, where
    x' is x with ``lhs_dilation - 1`` zeros between elements, then padded.

    Shapes: x (N, *spatial, C), w (*kernel, C / feature_groups, F), the result (N,
    *spatial, F). Both of one dtype.

    Args:
      strides, lhs_dilation, rhs_dilation: an int for each spatial axis; dilations are
        1 by default.
      padding: a pair (before, after) for each spatial axis; what is negative cuts.
      feature_groups: in how many independent parts the channels are split.

    Raises:
      ValueError: for shapes or options that don't fit each other.
      TypeError: for different dtypes.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x, w = tnp.arange(5.0).reshape(1, 5, 1), tnp.ones((2, 1, 1))
    >>> td.conv_general(x, w, strides=(2,), padding=[(0, 1)]).ravel()
    Array([1., 5., 4.], dtype=float32)
    """
    name = "conv_general"
    steps = _ints(name, "strides", strides)
    ones = (1,) * len(steps)
    return conv.conv_general(
        x,
        w,
        strides=steps,
        padding=_pairs(name, padding),
        lhs_dilation=_ints(name, "lhs_dilation", lhs_dilation or ones),
        rhs_dilation=_ints(name, "rhs_dilation", rhs_dilation or ones),
        feature_groups=feature_groups,
    )


@boundary
def reduce_window_max(
    x: Any, *, window: Sequence[int], strides: Sequence[int], padding: Pairs
) -> Array:
    """The largest element of each window; padding is smaller than all elements.

    Shapes: (N, *spatial, C) to (N, *spatial, C).

    Args:
      window, strides: an int for each spatial axis.
      padding: a pair (before, after) for each spatial axis.

    Raises:
      ValueError: for options that don't fit the shape.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x = tnp.arange(5.0).reshape(1, 5, 1)
    >>> td.reduce_window_max(x, window=(2,), strides=(2,), padding=[(0, 1)]).ravel()
    Array([1., 3., 4.], dtype=float32)
    """
    return _reduce("max", x, window, strides, padding)


@boundary
def reduce_window_sum(
    x: Any, *, window: Sequence[int], strides: Sequence[int], padding: Pairs
) -> Array:
    """The sum of each window; padding counts as zeros.

    Shapes, arguments and errors are those of `reduce_window_max`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x = tnp.arange(5.0).reshape(1, 5, 1)
    >>> td.reduce_window_sum(x, window=(2,), strides=(2,), padding=[(0, 1)]).ravel()
    Array([1., 5., 4.], dtype=float32)
    """
    return _reduce("sum", x, window, strides, padding)


_OPS = {"max": window.reduce_window_max, "sum": window.reduce_window_sum}


def _reduce(kind: str, x: Any, sizes: Any, strides: Any, padding: Any) -> Any:
    name = f"reduce_window_{kind}"
    return _OPS[kind](
        x,
        window=_ints(name, "window", sizes),
        strides=_ints(name, "strides", strides),
        padding=_pairs(name, padding),
    )


def _ints(function: str, option: str, values: Any) -> tuple[int, ...]:
    try:
        return tuple(map(index, values))
    except TypeError:
        raise ValueError(
            f"{function}: {option} takes an int for each spatial axis, got {values!r}"
            f"{at(user_source())}"
        ) from None


def _pairs(function: str, values: Any) -> tuple[tuple[int, int], ...]:
    try:
        return tuple([(_size(before), _size(after)) for before, after in values])
    except (TypeError, ValueError):
        raise ValueError(
            f"{function}: padding takes a pair (before, after) for each spatial axis, "
            f"got {values!r}{at(user_source())}"
        ) from None


def _size(value: Any) -> int:
    """What is added may depend on sizes that are not fixed."""
    return value if is_dim(value) else index(value)
