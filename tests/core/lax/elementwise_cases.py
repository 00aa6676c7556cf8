"""Rows for functions of each element by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.core.lax.cases import Case, bools, complexes, floats, inside, ints, positive

X, Y = floats(3, 4), floats(3, 4, seed=7)

_ANY = ["abs", "neg", "sign", "floor", "ceil", "exp", "exp2", "expm1", "square"]
_ANY += ["sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "logistic"]
_ANY += ["erf", "erfc", "cbrt", "is_finite", "round", "reciprocal"]
_POSITIVE = ["log", "log1p", "sqrt", "rsqrt", "acosh", "lgamma", "digamma"]
_INSIDE = ["asin", "acos", "atanh", "erf_inv"]
_BOTH = ["add", "sub", "mul", "div", "max", "min", "atan2", "rem"]
_COMPARED = ["eq", "ne", "lt", "le", "gt", "ge"]
_BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]
_SHIFTS = ["shift_left", "shift_right_logical", "shift_right_arithmetic"]
_INTEGER = ["add", "sub", "mul", "div", "rem", "max", "min", *_COMPARED, *_BITS]


def _row(name: str, *args: Any, smooth: bool = True, label: str = "") -> Case:
    def function(lax: Any, *xs: Any) -> Any:
        return getattr(lax, name)(*xs)

    return Case(f"{name}{label}", function, args, smooth)


BITS = np.array([1.5, -0.1, 3e38, 1e-38, np.inf, -np.inf, np.nan, 0.0, -0.0], "float32")


def _reduced(exponent: int, mantissa: int) -> Case:
    return Case(
        f"reduce_precision-{exponent}-{mantissa}",
        lambda lax, x: lax.reduce_precision(x, exponent, mantissa),
        (np.concatenate([BITS, 70000 * floats(9), 1e-6 * floats(9, seed=4)]),),
    )


def _cast(x: Any, dtype: str) -> Case:
    return Case(
        f"bitcast-{x.dtype.name}-{dtype}",
        lambda lax, x: lax.bitcast_convert_type(x, dtype),
        (x,),
        smooth=False,
    )


CASES = [
    *[_row(n, X, smooth=n not in ("is_finite",)) for n in _ANY],
    *[_row(n, positive(3, 4)) for n in _POSITIVE],
    *[_row(n, inside(3, 4)) for n in _INSIDE],
    *[_row(n, X, Y) for n in _BOTH],
    *[_row(n, X, Y, smooth=False) for n in _COMPARED],
    *[
        _row(n, ints(3, 4), ints(3, 4, low=1), smooth=False, label="-int")
        for n in _INTEGER
    ],
    *[_row(n, bools(5), bools(1, 5)[0], smooth=False, label="-bool") for n in _BITS],
    *[_row(n, ints(9), ints(9, low=0, high=40), smooth=False) for n in _SHIFTS],
    _row("bitwise_not", ints(4), smooth=False),
    _row("population_count", ints(9), smooth=False),
    _row("population_count", ints(9, low=0, dtype="uint8"), smooth=False, label="-u8"),
    _row("clz", ints(9), smooth=False),
    _row("nextafter", X, Y, smooth=False),
    _row("pow", positive(3), floats(3)),
    _row("pow", X, ints(3, 4, low=0, high=4), label="-int"),
    _row("complex", X, Y, smooth=False),
    _row("real", complexes(3), smooth=False),
    _row("imag", complexes(3), smooth=False),
    _row("conj", complexes(3), smooth=False),
    _row("conj", floats(3), smooth=False, label="-real"),
    _row("clamp", np.float32(-0.5), X, np.float32(0.5), smooth=False, label="-scalars"),
    _row("clamp", X - 1, 2 * Y, X + 1),
    _row("select", bools(3, 4), X, Y),
    Case("select-true", lambda lax, x, y: lax.select(True, x, y), (X, Y)),
    Case("select-false", lambda lax, x, y: lax.select(False, x, y), (X, Y)),
    _row("select_n", bools(3, 4), X, Y, label="-bool"),
    _row("select_n", ints(3, 4, low=0, high=3), X, Y, X + Y),
    _row("select_n", ints(3, 4, low=0, high=1), X, label="-one"),
    Case("scalar", lambda lax, x: lax.mul(lax.add(x, 1.0), 2.5), (X,)),
    Case("integer_pow", lambda lax, x: lax.integer_pow(x, 3), (X,)),
    Case("integer_pow-negative", lambda lax, x: lax.integer_pow(x, -2), (positive(3),)),
    Case("round-even", lambda lax, x: lax.round(x, lax.RoundingMethod(1)), (X,)),
    Case(
        "round-middles",
        lambda lax, x: lax.round(x),
        (np.array([0.5, -0.5, 1.5, 0.49999997, -2.5, 8388609.0], "float32"),),
    ),
    Case(
        "polygamma", lambda lax, x: lax.polygamma(2.0, x), (positive(3),), smooth=False
    ),
    Case("convert", lambda lax, x: lax.convert_element_type(x, "int32"), (X,), False),
    Case("convert-bool", lambda lax, x: lax.convert_element_type(x, bool), (ints(4),)),
    Case("convert-half", lambda lax, x: lax.convert_element_type(x, "bfloat16"), (X,)),
    *[_reduced(*bits) for bits in ((5, 10), (8, 7), (4, 3), (5, 2), (3, 23), (8, 23))],
    _cast(X, "int32"),
    _cast(X, "uint16"),
    _cast(X, "uint8"),
    _cast(ints(3, 4), "int8"),
    _cast(ints(3, 2, dtype="int16"), "float32"),
    _cast(ints(3, 4, low=0, dtype="uint8"), "int32"),
    _cast(ints(3, 2, dtype="int8"), "bfloat16"),
]
