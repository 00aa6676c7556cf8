"""Real and imaginary parts; a real array is its own real part."""

from __future__ import annotations

from typing import Any

from treadle import dtypes
from treadle.np.binary import arctan2, select_where
from treadle.np.operands import ArrayLike, as_array, operand
from treadle.ops import complex as parts
from treadle.ops.compare import lt
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


def angle(x: ArrayLike, /) -> Array:
    """The angle of a complex number in its plane, in radians."""
    x = operand("angle", x)
    if _is_complex(x):
        return arctan2(parts.imag(x), parts.real(x))
    dtype = dtypes.to_float(typeof(x).dtype)
    return select_where(lt(x, 0), dtype.type(3.141592653589793), dtype.type(0))


def iscomplexobj(x: ArrayLike) -> bool:
    """Whether the dtype is complex."""
    return _is_complex(operand("iscomplexobj", x))
