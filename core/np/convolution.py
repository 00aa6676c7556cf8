"""Convolutions and correlations of vectors."""

from __future__ import annotations

from typing import Any

from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.np.complex_parts import conj
from treadle.np.contract import factors, of_dtype, preference
from treadle.np.join import concatenate
from treadle.np.operands import ArrayLike
from treadle.np.shapes import flip
from treadle.ops.shape import pad
from treadle.ops.slide import slide
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
    short = min(n, k)
    start = short // 2 if name == "correlate" and k > n else (short - 1) // 2
    if n < k:
        x, y = flip(y), flip(x)
    low = high = short - 1
    if mode == "valid":
        low = high = 0
    elif mode == "same":
        low -= start
        high -= low
    return _beyond(x, y, low, high)


_LARGE = 1 << 18
"""Bytes of a vector that takes longer to copy than its ends take apart. No result
depends on it."""


def _beyond(x: Any, y: Any, low: Any, high: Any) -> Any:
    """The products of a vector with a shorter one, which meets so many zeros before and
    after it."""
    t, k = typeof(x), typeof(y).size

    def meeting(part: Any, *ends: Any) -> Any:
        padding = ((*ends, 0),)
        part = pad(part, t.dtype.type(0), padding=padding) if any(ends) else part
        return slide(part, y, batch_dims=0)

    if is_dim(t.size) or is_dim(k) or t.nbytes < _LARGE:
        return meeting(x, low, high)
    pieces = [meeting(x)]
    if low:
        pieces.insert(0, meeting(x[: k - 1], low, 0))
    if high:
        pieces.append(meeting(x[t.size - k + 1 :], 0, high))
    return concatenate(pieces)
