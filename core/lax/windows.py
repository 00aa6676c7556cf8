"""Reductions over sliding windows of any axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload

from treadle import tree
from treadle.api.boundary import boundary
from treadle.errors import at, user_source
from treadle.lax.fold import Monoid, begun, in_pairs, neutral, seeds
from treadle.lax.operands import Ints, all_alike, array, ints
from treadle.lax.padding import Pairs, pads, reaches
from treadle.ops import window as native
from treadle.ops.arithmetic import add
from treadle.ops.binary import maximum, minimum
from treadle.ops.movement import expand, reshape
from treadle.ops.shape import pad, slice_axis
from treadle.run.array import Array, ArrayLike
from treadle.trace.value import typeof

_NATIVE = {
    add: native.reduce_window_sum,
    maximum: native.reduce_window_max,
    minimum: native.reduce_window_min,
}


class _Windows(NamedTuple):
    """One entry for each axis."""

    lengths: Ints
    strides: Ints
    padding: Pairs
    base: Ints
    dilation: Ints


@overload
def reduce_window(
    operand: ArrayLike,
    init_value: ArrayLike,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Array: ...
@overload
def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any: ...
@boundary
def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Combines the elements of each window by a function of two.

    Args:
      operand: an array, or a pytree of arrays of one shape.
      init_value: the like of scalars: what a window begins with, and (as far as there
        is padding) what changes nothing when it is combined.
      computation: takes two pytrees like `init_value`, of scalars, and gives one. It is
        associative and commutative: the order is not defined. Sums, `td.lax.max` and
        `td.lax.min` have kernels of their own.
      window_dimensions, window_strides: for each axis of the operand.
      padding: "SAME", "SAME_LOWER", "VALID", or a pair (before, after) for each axis.
      base_dilation: how far apart elements are put, with `init_value` between them.
      window_dilation: how far apart the elements of a window are.

    Raises:
      ValueError: for options that do not fit the shape.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x = tnp.arange(16.0).reshape(1, 1, 4, 4)
    >>> td.lax.reduce_window(x, -tnp.inf, td.lax.max, (1, 1, 2, 2), (1, 1, 2, 2))
    Array([[[[ 5.,  7.],
             [13., 15.]]]], dtype=float32)
    """
    name = "reduce_window"
    leaves, form = tree.flatten(operand)
    xs = [array(name, x) for x in leaves]
    all_alike(name, xs)
    rank = xs[0].ndim
    ones = (1,) * rank
    lengths = ints(name, "window_dimensions", window_dimensions, rank)
    strides = ints(name, "window_strides", window_strides or ones, rank)
    base = ints(name, "base_dilation", base_dilation or ones, rank)
    dilation = ints(name, "window_dilation", window_dilation or ones, rank)
    if any(n < 1 for n in (*lengths, *strides, *base, *dilation)):
        raise ValueError(
            f"{name}: windows {lengths}, strides {strides} and dilations {base}, "
            f"{dilation} must be positive{at(user_source())}"
        )
    seen = reaches(xs[0].shape, base), reaches(lengths, dilation)
    around = pads(name, padding, *seen, strides)
    windows = _Windows(lengths, strides, around, base, dilation)
    inits = seeds(name, form, init_value, xs)
    monoid = Monoid(name, computation, form, inits)
    if monoid.op in _NATIVE and dilation == ones:
        zero = neutral(monoid.op, xs[0].dtype)
        out = _kernel(_NATIVE[monoid.op], xs[0], zero, windows)
        return form.unflatten([begun(monoid.op, inits[0], out)])
    return form.unflatten(_composed(monoid, xs, windows))


def _kernel(op: Any, x: Any, zero: Any, windows: _Windows) -> Any:
    """By the operation for (N, *spatial, C)."""
    lengths, strides, padding, base, _ = windows
    if any(d != 1 for d in base):
        x = pad(x, zero, padding=_config(padding, base))
        padding = ((0, 0),) * x.ndim
    whole = [
        w == s == 1 and p == (0, 0)
        for w, s, p in zip(lengths, strides, padding, strict=True)
    ]
    moving = [i for i, idle in enumerate(whole) if not idle]
    if not moving:
        return x
    first, last = moving[0], moving[-1] + 1
    space = slice(first, last)
    lead, channels = x.shape[:first], x.shape[last:]
    flat = (math.prod(lead), *x.shape[space], math.prod(channels))
    one_each = len(lead) == len(channels) == 1
    out = op(
        x if one_each else reshape(x, shape=flat),
        window=lengths[space],
        strides=strides[space],
        padding=padding[space],
    )
    if one_each:
        return out
    return reshape(out, shape=(*lead, *typeof(out).shape[1:-1], *channels))


def _config(padding: Pairs, base: Ints) -> tuple[tuple[int, int, int], ...]:
    return tuple(
        [(low, high, d - 1) for (low, high), d in zip(padding, base, strict=True)]
    )


def _composed(monoid: Monoid, xs: list[Any], windows: _Windows) -> list[Any]:
    """Axis by axis: the elements of all windows with one number are a slice."""
    lengths, strides, padding, base, dilation = windows
    config = _config(padding, base)
    xs = [pad(x, i, padding=config) for x, i in zip(xs, monoid.inits, strict=True)]
    for axis, (w, s, d) in enumerate(zip(lengths, strides, dilation, strict=True)):
        n, reach = typeof(xs[0]).shape[axis], (w - 1) * d + 1
        if n < reach:
            raise ValueError(
                f"{monoid.name}: windows reach over {reach} elements of axis {axis}, "
                f"which has {n} with its padding{at(user_source())}"
            )
        end = (n - reach) // s * s + 1
        xs = in_pairs(
            monoid,
            [
                [slice_axis(x, axis, i, i + end, s) for x in xs]
                for i in range(0, reach, d)
            ],
        )
    begin = [expand(i, typeof(x).shape) for i, x in zip(monoid.inits, xs, strict=True)]
    return monoid(begin, xs)
