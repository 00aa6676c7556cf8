"""Convolutions and correlations of vectors."""

from __future__ import annotations

from typing import Any

from treadle.errors import at, user_source
from treadle.np.complex_parts import conj
from treadle.np.contract import factors, matmul, of_dtype, preference
from treadle.np.index import counted
from treadle.np.operands import ArrayLike
from treadle.np.shapes import flip
from treadle.ops.shape import pad
from treadle.run.array import Array
from treadle.trace.value import typeof


def convolve(
    x: ArrayLike,
    y: ArrayLike,
    mode: str = "full",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The convolution of two vectors.

    Args:
      mode: "full", where they overlap at all; "same", the middle of that, as long as
        the longer vector; "valid", where they overlap wholly.
      precision, preferred_element_type: as in `matmul`.
    """
    wide = preference(preferred_element_type, x, y)
    x, y = factors("convolve", x, y, precision=precision, preferred=wide)
    return of_dtype(_slid("convolve", x, flip(y), mode), wide)


def correlate(
    x: ArrayLike,
    y: ArrayLike,
    mode: str = "valid",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The correlation of two vectors: x convolved with y reversed and conjugated. The
    options are those of `convolve`."""
    wide = preference(preferred_element_type, x, y)
    x, y = factors("correlate", x, y, precision=precision, preferred=wide)
    return of_dtype(_slid("correlate", x, conj(y), mode), wide)


def _slid(name: str, x: Any, y: Any, mode: str) -> Any:
    """The products of a vector with another one at every place."""
    n, k = typeof(x).size, typeof(y).size
    if typeof(x).ndim != 1 or typeof(y).ndim != 1 or not n or not k:
        raise ValueError(
            f"{name} takes two vectors with elements, got shapes {typeof(x).shape} and "
            f"{typeof(y).shape}{at(user_source())}"
        )
    if mode not in ("full", "same", "valid"):
        raise ValueError(
            f"{name}: mode is 'full', 'same' or 'valid', got {mode!r}"
            f"{at(user_source())}"
        )
    zero = typeof(x).dtype.type(0)
    beyond = k - min(n, k) if mode == "valid" else k - 1
    x = pad(x, zero, padding=((beyond, beyond, 0),))
    places = counted(typeof(x).size - k + 1)[:, None] + counted(k)
    out = matmul(x[places], y)
    if mode != "same":
        return out
    short, longest = min(n, k), max(n, k)
    start = (short - 1) // 2
    if name == "correlate" and k > n:
        start = short // 2
    return out[start : start + longest]
