"""Elementwise ops that are declared by one formula.

The formula is run on NumPy arrays, in float64, as the meaning of the op, and on
registers by the compiler, in scalar instructions; of half floats in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.ops.chebyshev_tables import Series
from treadle.ops.elementwise import elementwise, floating
from treadle.ops.special import erf_inv_run, erf_run, erfc_run, lgamma_run
from treadle.trace.lowering import Element, Elementwise
from treadle.trace.op import Op

Formula = Callable[..., Any]
"""``(m, *operands) -> value``: operands know Python's operators, `m` has functions by
the names of scalar instructions, `where`, and `digits` that results need."""


class _Reference:
    """The functions of formulas on NumPy arrays."""

    digits = 16
    exp, log, log1p, sqrt = np.exp, np.log, np.log1p, np.sqrt
    sin, cos, abs, round = np.sin, np.cos, np.abs, np.round
    where = np.where
    erf, erfc = staticmethod(erf_run), staticmethod(erfc_run)
    erf_inv, lgamma = staticmethod(erf_inv_run), staticmethod(lgamma_run)

    @staticmethod
    def multiply_add(x: Any, y: Any, z: Any) -> Any:
        return x * y + z


_SINGLE = np.dtype(np.float32)


class _Term:
    """A register in a formula."""

    __slots__ = ("element", "write")

    def __init__(self, write: Any, element: Element) -> None:
        self.write, self.element = write, element

    def __add__(self, other: Any) -> _Term:
        return _apply("add", self, other)

    def __sub__(self, other: Any) -> _Term:
        return _apply("sub", self, other)

    def __mul__(self, other: Any) -> _Term:
        return _apply("mul", self, other)

    def __truediv__(self, other: Any) -> _Term:
        return _apply("div", self, other)

    def __radd__(self, other: Any) -> _Term:
        return _apply("add", other, self)

    def __rsub__(self, other: Any) -> _Term:
        return _apply("sub", other, self)

    def __rmul__(self, other: Any) -> _Term:
        return _apply("mul", other, self)

    def __rtruediv__(self, other: Any) -> _Term:
        return _apply("div", other, self)

    def __neg__(self) -> _Term:
        return _apply("neg", self)

    def __lt__(self, other: Any) -> _Term:
        return _apply("lt", self, other)

    def __gt__(self, other: Any) -> _Term:
        return _apply("gt", self, other)


def _apply(name: str, *args: Any) -> _Term:
    write = next(a.write for a in args if isinstance(a, _Term))
    given = [a.element if isinstance(a, _Term) else a for a in args]
    return _Term(write, write(name, *given))


class _Written:
    """The functions of formulas on registers."""

    def __init__(self, dtype: np.dtype) -> None:
        self.digits = 16 if dtype.itemsize == 8 else 8

    def __getattr__(self, name: str) -> Callable[..., _Term]:
        return lambda *args: _apply(name, *args)

    def where(self, condition: Any, x: Any, y: Any) -> _Term:
        return _apply("select", condition, x, y)


def formula_op(
    name: str,
    formula: Formula,
    partials: Sequence[Callable[..., Any] | None],
) -> Op:
    """An elementwise op of floats. partials: as for `elementwise`."""

    def run(*arrays: Any) -> Any:
        dtype = arrays[0].dtype
        wide = [np.asarray(a, np.float64) for a in arrays]
        return np.asarray(formula(_Reference, *wide)).astype(dtype)

    def expression(write: Any, *elements: Element) -> Element:
        dtype = elements[0].dtype
        half = dtype.itemsize == 2
        if half:
            # One rounding, of the result: series of halves would have few digits left.
            elements = tuple([write("convert", e, dtype=_SINGLE) for e in elements])
        m = _Written(elements[0].dtype)
        value = formula(m, *[_Term(write, e) for e in elements]).element
        return write("convert", value, dtype=dtype) if half else value

    return elementwise(
        name,
        run,
        partials,
        accepts=floating,
        lowering=Elementwise(expression),
    )


def chebyshev(m: Any, series: Series, x: Any) -> Any:
    """The value of a series at x, without the coefficients that a dtype has no digits
    for."""
    scale = 2 / (series.high - series.low)
    t = scale * x - (series.low * scale + 1)
    table = series.coefficients
    least = max(map(abs, table)) * 10.0 ** -(m.digits + 1)
    count = max(i + 1 for i, c in enumerate(table) if abs(c) >= least)
    twice = t + t
    last: Any = table[count - 1]
    before: Any = 0.0
    for c in reversed(table[1 : count - 1]):
        last, before = m.multiply_add(twice, last, c - before), last
    # What is small first: one rounding of the size of the value.
    return m.multiply_add(t, last, -before) + table[0]


def odd(m: Any, x: Any, of_magnitude: Any) -> Any:
    """The value of an odd function, from that for the magnitude of x."""
    return m.where(x < 0.0, -of_magnitude, of_magnitude)


EULER = 0.5772156649015329
HALF_PI = math.pi / 2
