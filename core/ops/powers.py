"""Powers with exponents that are, or may be, halves of odd numbers or whole ones.

Of a few halves they are products and a square root, which take a quarter of the time of
the general power and are as near.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle.ir.scalar import AND
from treadle.ops.arithmetic import div, mul, sub
from treadle.ops.binary import pow_
from treadle.ops.compare import eq, select
from treadle.ops.elementwise import elementwise, floating
from treadle.ops.unary import log, sqrt
from treadle.trace.lowering import Elementwise
from treadle.trace.value import typeof

_MOST = 3
"""The largest exponent, without its half: up to this, no product on the way leaves the
range of floats before the result does."""


def is_half(n: float) -> bool:
    """Whether an exponent is one of those, and no plain root."""
    return abs(n) <= _MOST + 0.5 and abs(n) % 1 == 0.5 and n != 0.5


def half_power_of(w: Any, x: Any, n: float) -> Any:
    """The instructions. A power of -inf is that of inf, and of other negative numbers
    there is none."""
    size = w("abs", x)
    root = w("sqrt", size)
    result = root if n > 0 else w("div", 1.0, root)
    if whole := int(abs(n)):
        product = size
        for _ in range(whole - 1):
            product = w("mul", product, size)
        result = w("mul" if n > 0 else "div", result, product)
    is_negative = w(AND, w("lt", x, 0.0), w("gt", x, -np.inf))
    return w("select", is_negative, np.nan, result)


def _half_power_partial(g: Any, out: Any, x: Any, *, n: float) -> Any:
    if n == 1.5:
        power = sqrt(x)
    elif is_half(n - 1):
        power = half_power(x, n=n - 1)
    else:
        power = pow_(x, n - 1)
    return mul(g, mul(n, power))


half_power = elementwise(
    "half_power",
    lambda x, *, n: np.power(x, np.asarray(n, x.dtype)),
    [_half_power_partial],
    accepts=floating,
    lowering=Elementwise(lambda w, x, *, n: half_power_of(w, x, n)),
)
"""``x ** n``, where ``2 * n`` is an odd number from -7 to 7, but 1."""


_HALVES = [sign * (k + 0.5) for k in range(_MOST + 1) for sign in (-1, 1)]
_HALVES.remove(0.5)

_BITS = 7
_MOST_MULTIPLIED = 64
"""Whole numbers up to this are powers by multiplication, as of Python's numbers."""


def _power_of_size(w: Any, x: Any, y: Any, size: Any, *, root: bool) -> Any:
    """The instructions: products by squaring, a root, or the general power."""
    least = w("abs", y)
    power, product = x, 1.0
    for _ in range(_BITS):
        half = w("floor", w("mul", least, 0.5))
        is_odd = w("ne", w("add", half, half), least)
        product = w("select", is_odd, w("mul", product, power), product)
        least, power = half, w("mul", power, power)
    product = w("select", w("lt", y, 0.0), w("div", 1.0, product), product)
    general = w("pow", x, y)
    if root:
        general = w("select", w("eq", y, 0.5), w("sqrt", x), general)
        for n in _HALVES:
            general = w("select", w("eq", y, n), half_power_of(w, x, n), general)
    is_whole = w("eq", w("floor", size), size)
    is_small = w("le", w("abs", size), float(_MOST_MULTIPLIED))
    return w("select", w(AND, is_whole, is_small), product, general)


def _power_of_size_partial(
    g: Any, out: Any, x: Any, y: Any, size: Any, *, root: bool
) -> Any:
    zero, half, one = map(typeof(x).dtype.type, (0, 0.5, 1))
    slope = mul(y, power_of_size(x, sub(y, 1.0), size, root=root))
    slope = select(eq(y, 0.0), zero, slope)
    if not root:
        return mul(g, slope)
    # (One product with g: what a branch leaves out would be added as a zero.)
    is_root = eq(y, 0.5)
    return div(mul(g, select(is_root, half, slope)), select(is_root, out, one))


def _power_of_size_run(x: Any, y: Any, size: Any, *, root: bool) -> Any:
    return np.where(y == 0.5, np.sqrt(x), np.power(x, y))


power_of_size = elementwise(
    "power_of_size",
    _power_of_size_run,
    [
        _power_of_size_partial,
        lambda g, out, x, y, size, *, root: mul(
            g, mul(log(select(eq(x, 0.0), typeof(x).dtype.type(1), x)), out)
        ),
        None,
    ],
    accepts=floating,
    lowering=Elementwise(_power_of_size),
)
"""``x ** y``, computed as if y were a number that is known: a whole one gives products.
`size` is the number that says so: y, or in a derivative what y was. root: whether y may
be a half of an odd number, which gives square roots."""
