"""One of several values for each element, by conditions or by numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np.binary import clip, logical_or, mod, select_where
from treadle.np.elementwise import logical_not
from treadle.np.operands import (
    ArrayLike,
    agreed,
    as_array,
    broadcast,
    broadcast_to_shape,
    cast,
    common_shape,
    operand,
    promoted,
)
from treadle.ops import compare
from treadle.ops.movement import full
from treadle.run.array import Array
from treadle.trace.value import Tracer, Value, typeof


def select(
    conditions: Sequence[ArrayLike], choices: Sequence[ArrayLike], default: Any = 0
) -> Array:
    """Elements of the first choice whose condition holds, of the default elsewhere."""
    if len(conditions) != len(choices) or not conditions:
        raise ValueError(
            f"select takes as many choices as conditions; got {len(choices)} and "
            f"{len(conditions)}{at(user_source())}"
        )
    *choices, out = agreed("select", *choices, default)
    for condition, choice in reversed([*zip(conditions, choices, strict=True)]):
        out = select_where(condition, choice, out)
    return out


def choose(
    index: ArrayLike, choices: Sequence[ArrayLike], mode: str = "raise"
) -> Array:
    """For each element of `index` the element of the choice with that number.

    Args:
      mode: what is meant by a number for which there is no choice: an error ("raise";
        where the numbers are not known, "clip"), the nearest ("clip"), or counted on
        from the other end ("wrap").

    >>> import treadle.numpy as tnp
    >>> tnp.choose(tnp.array([1, 0]), [tnp.array([5, 6]), tnp.array([7, 8])])
    Array([7, 6], dtype=int32)
    """
    index = operand("choose", index)
    n = len(choices)
    if not dtypes.is_integer(typeof(index).dtype):
        raise TypeError(
            f"choose: the numbers of choices are integers, got {typeof(index)}"
            f"{at(user_source())}"
        )
    if mode == "wrap":
        index = mod(index, n)
    elif mode in ("raise", "clip"):
        if mode == "raise" and not isinstance(index, Tracer):
            _check_range(np.asarray(index), n)
        index = clip(index, 0, n - 1)
    else:
        raise ValueError(
            f"choose: mode {mode!r} is none of 'raise', 'clip' and 'wrap'"
            f"{at(user_source())}"
        )
    index, *arrays = broadcast("choose", [index, *promoted("choose", *choices)])
    shape = common_shape("choose", [typeof(x).shape for x in (index, *arrays)])
    out = broadcast_to_shape(arrays[-1], shape)
    for k in reversed(range(n - 1)):
        chosen = broadcast_to_shape(compare.eq(index, k), shape)
        out = compare.select(chosen, broadcast_to_shape(arrays[k], shape), out)
    return as_array(out)


def _check_range(index: np.ndarray, n: int) -> None:
    wrong = index[(index < 0) | (index >= n)]
    if wrong.size:
        raise ValueError(
            f"choose: there is no choice {wrong[0]} among {n}{at(user_source())}\n"
            'Pass `mode="clip"` or `mode="wrap"`.'
        )


def piecewise(
    x: ArrayLike,
    conditions: Sequence[ArrayLike],
    functions: Sequence[Callable[..., Any] | ArrayLike],
    *args: Any,
    **options: Any,
) -> Array:
    """Functions of x, each where its condition holds; the last condition counts.

    Args:
      functions: one for each condition, and perhaps one more for the rest (0, if there
        is none): a function of x and of the further arguments, or a number. Every
        function gets the whole x.

    >>> import treadle.numpy as tnp
    >>> x = tnp.array([-2.0, 3.0])
    >>> tnp.piecewise(x, [x < 0], [lambda x: -x, 10.0])
    Array([ 2., 10.], dtype=float32)
    """
    array = as_array(operand("piecewise", x))
    if isinstance(conditions, Value | np.ndarray) and conditions.ndim == array.ndim:
        conditions = [conditions]
    masks = [cast(as_array(operand("piecewise", c)), dtypes.bool_) for c in conditions]
    rest = len(functions) - len(masks)
    if rest not in (0, 1):
        raise ValueError(
            f"piecewise takes as many functions as conditions, or one more; got "
            f"{len(functions)} and {len(masks)}{at(user_source())}"
        )
    if rest:
        covered = full(array.shape, False, dtypes.bool_)
        for mask in masks:
            covered = logical_or(covered, mask)
        masks.append(logical_not(covered))
    out = full(array.shape, 0, array.dtype)
    for mask, function in zip(masks, functions, strict=True):
        value = function(array, *args, **options) if callable(function) else function
        out = select_where(mask, cast(operand("piecewise", value), array.dtype), out)
    return out
