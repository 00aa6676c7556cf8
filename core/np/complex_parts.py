"""Real and imaginary parts; a real array is its own real part."""

from __future__ import annotations

from typing import Any

from treadle import dtypes
from treadle.np.binary import arctan2
from treadle.np.elementwise import rad2deg
from treadle.np.operands import ArrayLike, as_array, as_inexact, operand
from treadle.ops import complex as parts
from treadle.ops.compare import eq, ne
from treadle.ops.movement import full
from treadle.run.array import Array
from treadle.trace.value import typeof


def _is_complex(x: Any) -> bool:
    return dtypes.is_complex(typeof(x).dtype)


def real(x: ArrayLike, /) -> Array:
    """The real part."""
    x = operand("real", x)
    return parts.real(x) if _is_complex(x) else as_array(x)


def imag(x: ArrayLike, /) -> Array:
    """The imaginary part; zeros for a real array."""
    x = operand("imag", x)
    t = typeof(x)
    return parts.imag(x) if _is_complex(x) else full(t.shape, 0, t.dtype)


def conjugate(x: ArrayLike, /) -> Array:
    """The complex conjugate; a real array is its own."""
    x = operand("conjugate", x)
    return parts.conj(x) if _is_complex(x) else as_array(x)


conj = conjugate


def angle(x: ArrayLike, /, deg: bool = False) -> Array:
    """The angle of a complex number in its plane, in radians, or in degrees."""
    x = operand("angle", x)
    if _is_complex(x):
        out = arctan2(parts.imag(x), parts.real(x))
    else:
        x = as_inexact("angle", x)
        out = arctan2(full(typeof(x).shape, 0, typeof(x).dtype), x)
    return rad2deg(out) if deg else out


def iscomplex(x: ArrayLike, /) -> Array:
    """True where the imaginary part is not 0."""
    y = imag(x)
    return ne(y, typeof(y).dtype.type(0))


def isreal(x: ArrayLike, /) -> Array:
    """True where the imaginary part is 0."""
    y = imag(x)
    return eq(y, typeof(y).dtype.type(0))
