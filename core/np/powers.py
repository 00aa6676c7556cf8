"""Powers of two operands, by whichever way their exponents allow."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim, is_symbolic
from treadle.errors import at, user_source
from treadle.np.binary import numbers
from treadle.np.operands import PYTHON_SCALARS, ArrayLike, inexact_pair
from treadle.np.ufunc import ufunc
from treadle.ops import binary, unary
from treadle.ops.cast import convert
from treadle.ops.compare import eq, select
from treadle.ops.powers import half_power, is_half, power_of_size
from treadle.ops.unary import integer_pow
from treadle.run.array import Array
from treadle.trace.value import Value, typeof


@ufunc
def power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x ** y``. Whole Python numbers as exponents become multiplications, and halves
    of small odd ones these and a square root."""
    if isinstance(x, Value) and type(y) in PYTHON_SCALARS:
        known = _known_power(x, y)
        if known is not None:
            return known
    number, (x, y) = y, numbers("power", x, y)
    dtype = typeof(x).dtype
    if dtypes.is_integer(dtype):
        return binary.power_of_integers(x, y)
    if is_symbolic(number):
        return _power_of_size(x, y, dtype, not is_dim(number))
    return binary.pow_(x, y)


pow = power
_MAX_UNROLLED = 64


def _known_power(x: Any, n: Any) -> Any:
    dtype = x.type.dtype
    if dtype == dtypes.bool_ or isinstance(n, complex):
        return None
    if dtypes.is_integer(dtype):
        if isinstance(n, float):
            return None
        if n < 0:
            raise ValueError(
                f"power: integers to the power of {n}: make the base a float, "
                f"`x.astype(float) ** {n}`{at(user_source())}"
            )
        return integer_pow(x, n=_within_period(dtype, int(n)))
    if -_MAX_UNROLLED <= n <= _MAX_UNROLLED and n == int(n):
        return integer_pow(x, n=int(n))
    if dtypes.is_float(dtype) and is_half(n):
        if dtype.itemsize > 2:
            return half_power(x, n=float(n))
        # Products on the way leave the range of half floats before the result does.
        wide = half_power(convert(x, dtype=np.dtype(np.float32)), n=float(n))
        return convert(wide, dtype=dtype)
    return unary.sqrt(x) if n == 0.5 else None


def _within_period(dtype: np.dtype, n: int) -> int:
    """An exponent in the dtype's reach with the same powers of all its integers: those
    of an odd one repeat after ``2 ** (bits - 2)``, of an even one they end in zeros."""
    bits = 8 * dtype.itemsize
    period = 1 << (bits - 2)
    return n if n < bits + period else bits + (n - bits) % period


def _power_of_size(x: Any, y: Any, dtype: np.dtype, root: bool) -> Any:
    if dtypes.is_float(dtype) and dtype.itemsize > 2:
        return power_of_size(x, y, y, root=root)
    if root:
        return _power_or_root(x, y)
    if dtypes.is_complex(dtype):
        return binary.pow_(x, y)
    x, y = (convert(a, dtype=np.dtype(np.float32)) for a in (x, y))
    return convert(power_of_size(x, y, y, root=root), dtype=dtype)


def _power_or_root(x: Any, y: Any) -> Any:
    """A power, which is a root if the exponent is a half. Each of the two is of 1 where
    it isn't wanted: there, derivatives at 0 are infinite."""
    is_root = eq(y, typeof(y).dtype.type(0.5))
    one = typeof(x).dtype.type(1)
    power = binary.pow_(select(is_root, one, x), y)
    return select(is_root, unary.sqrt(select(is_root, x, one)), power)


@ufunc
def float_power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``x ** y`` as floats."""
    return binary.pow_(*inexact_pair("float_power", x, y))
