"""Functions of bit patterns: what random number generators are made of."""

from __future__ import annotations

from typing import Any

from treadle import dtypes
from treadle.np.operands import ArrayLike, as_array, matched, operand
from treadle.ops import cast, random_bits
from treadle.run.array import Array
from treadle.trace.value import typeof


def bitcast(x: ArrayLike, dtype: Any) -> Array:
    """The same bits read as another dtype of the same width."""
    x, dtype = operand("bitcast", x), dtypes.canonical(dtype)
    return as_array(x) if typeof(x).dtype == dtype else cast.bitcast(x, dtype=dtype)


def threefry2x32(
    k0: ArrayLike, k1: ArrayLike, x0: ArrayLike, x1: ArrayLike, word: str
) -> Array:
    """Threefry-2x32: encrypts the counter (x0, x1) with the key (k0, k1), all uint32.

    word: which word of the result to return: "first", "second", or "xor" of both.
    """
    return random_bits.threefry2x32(*matched("threefry2x32", k0, k1, x0, x1), word=word)
