"""Whether arrays are equal, exactly or nearly."""

from __future__ import annotations

import numpy as np

from treadle import dtypes
from treadle.dims import equal_shapes
from treadle.np.binary import (
    add,
    less_equal,
    logical_and,
    logical_or,
    multiply,
    subtract,
)
from treadle.np.elementwise import abs, isfinite, isnan
from treadle.np.operands import (
    ArrayLike,
    as_inexact,
    common_shape,
    matched,
    operand,
)
from treadle.np.reductions import all
from treadle.ops.compare import eq
from treadle.run.array import Array
from treadle.trace.value import typeof


def isclose(
    x: ArrayLike,
    y: ArrayLike,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Array:
    """Where ``|x - y| <= atol + rtol * |y|``, or both are the same infinity."""
    x, y = (float(v) if type(v) is int else v for v in (x, y))
    a, b = matched("isclose", x, y)
    same = eq(a, b)
    if typeof(a).dtype == dtypes.bool_:
        return same
    a, b = as_inexact("isclose", a), as_inexact("isclose", b)
    near = less_equal(abs(subtract(a, b)), add(multiply(abs(b), rtol), atol))
    finite = logical_and(isfinite(a), isfinite(b))
    result = logical_or(same, logical_and(near, finite))
    if not equal_nan:
        return result
    return logical_or(result, logical_and(isnan(a), isnan(b)))


def allclose(
    x: ArrayLike,
    y: ArrayLike,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Array:
    """Whether `isclose` holds everywhere."""
    return all(isclose(x, y, rtol, atol, equal_nan))


def array_equal(x: ArrayLike, y: ArrayLike, equal_nan: bool = False) -> Array:
    """Whether two arrays have the same shape and elements.

    `equal_nan`: whether not-a-number equals itself.
    """
    a, b = operand("array_equal", x), operand("array_equal", y)
    if not equal_shapes(typeof(a).shape, typeof(b).shape):
        return Array(np.array(False))
    a, b = matched("array_equal", a, b)
    same = eq(a, b)
    return all(logical_or(same, logical_and(isnan(a), isnan(b))) if equal_nan else same)


def array_equiv(x: ArrayLike, y: ArrayLike) -> Array:
    """Whether two arrays, broadcast together, have the same elements."""
    a, b = operand("array_equiv", x), operand("array_equiv", y)
    try:
        common_shape("array_equiv", (typeof(a).shape, typeof(b).shape))
    except ValueError:
        return Array(np.array(False))
    return all(eq(*matched("array_equiv", a, b)))
