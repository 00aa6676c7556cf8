"""Modified Bessel functions of the first kind, each with its derivative beside it.

Their series are Chebyshev's, up to 8 in x and beyond in 1 / x (see `chebyshev_tables`).
"""

from __future__ import annotations

from typing import Any

from treadle.ops import chebyshev_tables as tables
from treadle.ops.arithmetic import div, mul, sub
from treadle.ops.compare import eq, select
from treadle.ops.formula import chebyshev, formula_op, odd
from treadle.ops.unary import sign

_MIDDLE = 8.0
_HUGE = 1e4
"""What is this large has an infinite exponential, and no scaled function's zero."""


def _i0e(m: Any, x: Any) -> Any:
    y = m.abs(x)
    far = chebyshev(m, tables.I0E_LARGE, 1.0 / y) / m.sqrt(y)
    return m.where(y < _MIDDLE, chebyshev(m, tables.I0E_SMALL, y), far)


def _i1e(m: Any, x: Any) -> Any:
    y = m.abs(x)
    far = chebyshev(m, tables.I1E_LARGE, 1.0 / y) / m.sqrt(y)
    return odd(m, x, m.where(y < _MIDDLE, y * chebyshev(m, tables.I1E_SMALL, y), far))


def _i0(m: Any, x: Any) -> Any:
    # By halves of the exponent: the exponential overflows before the function.
    half = m.exp(0.5 * m.abs(x))
    return m.where(m.abs(x) > _HUGE, half, half * _i0e(m, x) * half)


def _i1(m: Any, x: Any) -> Any:
    half = m.exp(0.5 * m.abs(x))
    return m.where(m.abs(x) > _HUGE, odd(m, x, half), half * _i1e(m, x) * half)


def _by_x(value: Any, x: Any) -> Any:
    """i1 or i1e divided by x: 1/2 at 0."""
    zero = eq(x, 0.0)
    return select(zero, 0.5, div(value, select(zero, 1.0, x)))


i0 = formula_op("i0", _i0, [lambda g, out, x: mul(g, i1(x))])
i1 = formula_op("i1", _i1, [lambda g, out, x: mul(g, sub(i0(x), _by_x(out, x)))])
i0e = formula_op(
    "i0e", _i0e, [lambda g, out, x: mul(g, sub(i1e(x), mul(sign(x), out)))]
)
i1e = formula_op(
    "i1e",
    _i1e,
    [lambda g, out, x: mul(g, sub(sub(i0e(x), mul(sign(x), out)), _by_x(out, x)))],
)
