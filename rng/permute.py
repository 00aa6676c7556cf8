"""Random orders."""

from __future__ import annotations

import math
from typing import Any

import treadle.numpy as tnp
from treadle import Array, dtypes, is_array, typeof
from treadle.dims import settled
from treadle.errors import at, user_source
from treadle.np.operands import one_axis
from treadle.rng.key import Key, bits, check_key, compiled, split


def permutation(key: Key, x: Any, axis: int = 0, independent: bool = False) -> Array:
    """An array with its slices along an axis in random order, or 0…x-1 in random order.

    Args:
      x: an array, or an integer.
      independent: whether each vector along the axis gets an order of its own.

    >>> from treadle import rng
    >>> rng.permutation(rng.key(0), 5)
    Array([0, 1, 4, 3, 2], dtype=int32)
    """
    check_key("permutation", key)
    if not is_array(x):
        if isinstance(x, bool) or not isinstance(x, int):
            raise TypeError(
                f"permutation takes an array or an integer, got {x!r:.60}"
                f"{at(user_source())}"
            )
        return _shuffled(key, tnp.arange(x), axis=0)
    shape = typeof(x).shape
    if not shape:
        if not dtypes.is_integer(typeof(x).dtype):
            raise TypeError(
                f"permutation takes an array or an integer, got {typeof(x)}"
                f"{at(user_source())}"
            )
        return permutation(key, int(x), axis)
    axis = one_axis("permutation", axis, len(shape))
    if independent or len(shape) == 1:
        return _shuffled(key, tnp.asarray(x), axis=axis)
    return tnp.take(x, _shuffled(key, tnp.arange(shape[axis]), axis=0), axis)


def _shuffle_rounds(size: int) -> int:
    return math.ceil(3 * math.log(max(1, size)) / math.log(2**32 - 1))


@compiled
def _shuffled(key: Key, x: Any, *, axis: int) -> Any:
    """Sorts by random numbers, often enough that ties of 32-bit numbers don't matter:
    the numbers of all rounds together are distinct with high probability."""
    for _ in range(settled(_shuffle_rounds, (x.size,))):
        key, used = split(key)
        order = tnp.argsort(bits(used, x.shape), axis)
        x = tnp.take_along_axis(x, order, axis)
    return x
