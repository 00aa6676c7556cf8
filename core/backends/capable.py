"""Which operations a backend has kernels for, by what they are and their dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from treadle import dtypes
from treadle.ir.graph import Equation
from treadle.trace.lowering import (
    Blocked,
    Branch,
    Convolution,
    Elementwise,
    Expanded,
    Foreign,
    Fourier,
    Host,
    Inline,
    Join,
    Lowering,
    Multiplied,
    Order,
    Product,
    Routine,
    Same,
    Scan,
    View,
    While,
    written,
)

Supported = Callable[[str, np.dtype], bool]
"""Whether there is code for a scalar instruction on arguments of a dtype."""

_ANY_DTYPE = (Host, View, Join, Same, Scan, While)
"""Nothing is computed here: data are moved, or others compute."""

_NO_HALVES = Multiplied()
_COMPLEX = Host("it has no kernel for complex numbers")
_HALF_OR_INTEGER = Host("the matrix kernel is for float32 and float64")
_WHOLE = (dtypes.int32, dtypes.uint32)
"""Integers of which there is a kernel for products, but none for convolutions."""
_EMPTY = Host("there is nothing to compute")
_NO_BLOCKS = Host("it has no kernel of its own")
_LONG = Host("the kernel of orders counts in 32 bits")
_NO_LAPACK = Host("the LAPACK of this NumPy was not found")
_NO_FOURIER = Host("the Fourier transforms of this NumPy were not found")
_INDEX = Host("a branch is chosen by a bool, int32 or int64")


def lowering_of(
    eq: Equation,
    supported: Supported,
    has_lapack: Callable[[], bool] = lambda: True,
    has_fourier: Callable[[], bool] = lambda: True,
    multiplied: Multiplied = _NO_HALVES,
) -> Lowering:
    """What becomes of an equation: what its op says, or `Host`."""
    how = eq.op.lowering
    if isinstance(how, _ANY_DTYPE):
        return how
    if isinstance(how, Elementwise):
        return _elementwise(eq, how, supported)
    if isinstance(how, Branch):
        integers = (dtypes.bool_, dtypes.int32, dtypes.int64)
        return how if eq.inputs[0].type.dtype in integers else _INDEX
    if isinstance(how, (Routine, Foreign)):
        if not all([a.type.size for a in eq.inputs]):
            return _EMPTY
        return how if isinstance(how, Foreign) or has_lapack() else _NO_LAPACK
    if isinstance(how, Fourier):
        return how if has_fourier() else _NO_FOURIER
    if isinstance(how, Blocked):
        return _blocked(eq, how)
    if _has_complex(eq):
        return _COMPLEX
    if isinstance(how, Order) and eq.outputs[0].type.dtype != dtypes.int32:
        return _LONG
    if isinstance(how, Product):
        images = isinstance(how, Convolution)
        return _product(eq, how, multiplied.images if images else multiplied.matrices)
    if isinstance(how, (Expanded, Inline)):
        raise AssertionError(f"a pass should have replaced {eq.op.name}")
    return how


def _has_complex(eq: Equation) -> bool:
    return "c" in [a.type.dtype.kind for a in (*eq.inputs, *eq.outputs)]


def _blocked(eq: Equation, how: Blocked) -> Lowering:
    if how.script is None:
        return _NO_BLOCKS
    sized = all(a.type.size for a in (*eq.inputs, *eq.outputs))
    return how if sized else _EMPTY


def _elementwise(eq: Equation, how: Elementwise, supported: Supported) -> Lowering:
    if _has_complex(eq):
        return _COMPLEX
    if isinstance(how.expression, str):
        of = eq.inputs[-1].type.dtype
        return how if supported(how.expression, of) else _no_code(how.expression, of)
    for i in written(eq):
        if not supported(i.name, i.of):
            return _no_code(i.name, i.of)
    return how


def _no_code(name: str, of: np.dtype) -> Host:
    return Host(f"there is no code for {name} of {of.name}")


def _product(eq: Equation, how: Product, multiplied: Sequence[np.dtype]) -> Lowering:
    out = eq.outputs[0].type
    whole = () if isinstance(how, Convolution) else _WHOLE
    if out.dtype not in (dtypes.float32, dtypes.float64, *whole, *multiplied):
        return _HALF_OR_INTEGER
    if not all(a.type.size for a in (*eq.inputs, *eq.outputs)):
        return _EMPTY
    return how
