"""Scalar instructions: what every backend computes on one element.

Elementwise ops are written in them (`treadle.trace.lowering`), loop nests are made of
them (`treadle.kernels.nest`), and a backend has one rule for each.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

# Those that the compiler itself writes.
SELECT = "select"
MUL = "mul"
MULTIPLY_ADD = "multiply_add"
ADD = "add"
SUB = "sub"
DIV = "div"
EQ = "eq"
NE = "ne"
LT = "lt"
LE = "le"
GE = "ge"
MAXIMUM = "maximum"
MINIMUM = "minimum"
AND = "bitwise_and"
OR = "bitwise_or"
CONVERT = "convert"
INTEGER_POW = "integer_pow"
BITCAST = "bitcast"
# Code from outside (see `treadle.trace.foreign`): the one with operands of any dtypes.
CALL = "scalar_call"

Result = Literal["same", "bool", "given"]
Role = Literal["arithmetic", "passing", "telling"]


class Scalar(NamedTuple):
    """One instruction.

    cost: roughly how many simple vector instructions it takes.
    role: "arithmetic" gives numbers that don't jump with the last bits of what it
      reads, "passing" gives bits that it reads, "telling" can tell any bit.
    result: its dtype: that of the last argument, bool, or given where it stands.
    """

    cost: int
    role: Role = "arithmetic"
    result: Result = "same"


_PASSES, _TELLS = Scalar(1, "passing"), Scalar(1, "telling")

SCALARS: dict[str, Scalar] = {
    **dict.fromkeys(("add", "sub", "mul", "multiply_add", "integer_pow"), Scalar(1)),
    **dict.fromkeys(("neg", "abs", "maximum", "minimum", "select"), _PASSES),
    **dict.fromkeys(("sign", "floor", "ceil", "round", "trunc"), _TELLS),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), _TELLS),
    **dict.fromkeys(("bitwise_not", "population_count", "clz"), _TELLS),
    **dict.fromkeys(("shift_left", "shift_right_logical"), _TELLS),
    **dict.fromkeys(("shift_right_arithmetic", "nextafter"), _TELLS),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), Scalar(1, "telling", "bool")),
    "is_finite": Scalar(1, "telling", "bool"),
    **dict.fromkeys(("convert", "bitcast"), Scalar(1, "telling", "given")),
    **dict.fromkeys(("div", "sqrt", "rsqrt"), Scalar(4)),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log1p", "log2"), Scalar(12)),
    "rem": Scalar(12, "telling"),
    **dict.fromkeys(("tanh", "logistic", "erf", "erfc", "cbrt"), Scalar(16)),
    **dict.fromkeys(("sin", "cos"), Scalar(16)),
    "softplus": Scalar(24),
    **dict.fromkeys(("tan", "asin", "acos", "atan", "atan2"), Scalar(20)),
    **dict.fromkeys(("sinh", "cosh"), Scalar(20)),
    **dict.fromkeys(("asinh", "acosh", "atanh", "erf_inv", "pow"), Scalar(30)),
    **dict.fromkeys(("lgamma", "digamma"), Scalar(80)),
    "threefry2x32": Scalar(120, "telling"),
    "polygamma": Scalar(160),
    "power_of_integers": Scalar(40, "telling"),
    CALL: Scalar(100, "telling"),
}

_ONE = (
    *("add", "sub", "mul", "div", "rem", "maximum", "minimum", "sqrt", "rsqrt"),
    *("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"),
    *("running_sum", "running_prod", "running_max", "running_min"),
    *("store_add", "store_mul", "store_max", "store_min"),
)
FLOPS = dict.fromkeys(_ONE, 1) | {"multiply_add": 2, "running_linear": 2}
"""Operations of arithmetic in an instruction, by name; 0 in others."""
TRANSCENDENTAL = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log1p", "log2", "pow", "cbrt"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "logistic"),
        "softplus",
        *("erf", "erfc", "erf_inv", "lgamma", "digamma", "polygamma"),
        "running_logsumexp",
    )
)
"""Instructions that approximate a function."""
