"""Elementwise operations on registers: one table from op name to its code.

A rule takes the instruction, the dtype of its first argument and the arguments (same
number of lanes), and gives the result. Integers wrap, shift counts past the width shift
everything out, and division by zero gives -1 (all bits set), as in XLA; nothing traps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle.backends.cpu.emit.half import packed, rounded, widened
from treadle.backends.cpu.emit.lanes import (
    Value,
    bits,
    counted_intrinsic,
    half_name,
    intrinsic,
    is_signed,
    multiply_add,
    native,
    register_kind,
    select,
)
from treadle.backends.cpu.foreign.scalar import emit_call
from treadle.backends.cpu.math import library, threefry
from treadle.backends.cpu.math.special import (
    polygamma,
    power_of_integers,
    whole_power,
)
from treadle.ir.scalar import CALL
from treadle.kernels.nest import Instr, rounds_half

Rule = Callable[..., Value]

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def elementwise(instr: Instr, dtype: np.dtype, args: list[Value]) -> Value:
    """Emits one instruction; `dtype` is that of its first argument.

    The result has the same bits wherever the instruction stands: half floats are
    rounded, and no other instruction becomes one with this.
    """
    result = computed(instr, dtype, args)
    return rounded(result, instr.dtype) if rounds(instr, dtype) else result


def computed(instr: Instr, dtype: np.dtype, args: list[Value]) -> Value:
    """The same, not yet rounded to a half float, if it `rounds`."""
    return RULES[instr.name](instr, dtype, *args).rounded_once()


def rounds(instr: Instr, dtype: np.dtype) -> bool:
    """Whether an instruction is rounded to a half float."""
    converts = instr.name == "convert" and dtype != instr.dtype
    return rounds_half(instr) or (converts and bool(half_name(instr.dtype)))


@rule("add")
def _add(instr: Instr, dtype: np.dtype, x: Value, y: Value) -> Value:
    return x | y if x.kind == "i1" else x + y


@rule("sub")
def _sub(instr: Instr, dtype: np.dtype, x: Value, y: Value) -> Value:
    return x - y


@rule("mul")
def _mul(instr: Instr, dtype: np.dtype, x: Value, y: Value) -> Value:
    return x & y if x.kind == "i1" else x * y


@rule("multiply_add")
def _multiply_add(instr: Instr, dtype: np.dtype, x: Value, y: Value, z: Value) -> Value:
    if instr.attr == "product":
        x = -x
    return multiply_add(x, y, -z if instr.attr == "term" else z)


@rule("neg")
def _neg(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    return -x


@rule("div")
def _div(instr: Instr, dtype: np.dtype, x: Value, y: Value) -> Value:
    if x.is_float:
        return x / y
    return select(y.compare("eq", 0), -1, _quotient(x, y, is_signed(dtype)))


@rule("rem")
def _rem(instr: Instr, dtype: np.dtype, x: Value, y: Value) -> Value:
    if x.is_float:
        return library.call("rem", x, y)
    quotient = _quotient(x, y, is_signed(dtype))
    return select(y.compare("eq", 0), x, x - quotient * y)


def _quotient(x: Value, y: Value, signed: bool) -> Value:
    """x / y towards zero, for y not 0 (then anything, but no trap)."""
    if bits(x.kind) <= 32:
        return _quotient_of_floats(x, y, signed)
    if not signed:
        return x.op("udiv", select(y.compare("eq", 0), 1, y))
    by_minus_one = y.compare("eq", -1)
    safe = select(y.compare("eq", 0) | by_minus_one, 1, y)
    return select(by_minus_one, -x, x.op("sdiv", safe))


def _quotient_of_floats(x: Value, y: Value, signed: bool) -> Value:
    """The quotient of floats that hold the operands exactly, and a few bits more, which
    truncates correctly.

    By one divisor it is a product with its reciprocal: half of one more than x is at
    least half a step of 1 / y from whole numbers, and errors are far less than that.
    """
    wide = "double" if bits(x.kind) > 16 else "float"
    to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    safe = select(y.compare("eq", 0), 1, y)
    if y.one is None:
        quotient = x.cast(to, wide) / safe.cast(to, wide)
    else:
        one = select(y.one.compare("eq", 0), 1, y.one).cast(to, wide)
        upper = x.cast(to, wide)
        half = intrinsic("copysign", upper.like(0.5), upper) if signed else 0.5
        quotient = (upper + half) * (1.0 / one).splat(x.lanes)
    if wide == "float":
        return quotient.cast(back, "i32").cast("trunc", x.kind)
    if not signed:
        return quotient.cast(back, x.kind)
    # INT_MIN / -1 does not fit.
    return select(y.compare("eq", -1), -x, quotient.cast(back, x.kind))


@rule("abs")
def _abs(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    if x.is_float:
        return intrinsic("fabs", x)
    return counted_intrinsic("abs", x, False) if is_signed(dtype) else x


@rule("sign")
def _sign(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    if x.is_float:
        one = intrinsic("copysign", x.like(1.0), x)
        # Not-a-number stays; -0.0 becomes 0.0, as in NumPy.
        return select(x.compare("ueq", 0.0), x + 0.0, one)
    positive = x.compare("ne", 0).cast("zext", x.kind)
    return select(x.compare("slt", 0), -1, positive) if is_signed(dtype) else positive


@rule("floor", "ceil", "trunc")
def _rounding(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    return intrinsic(instr.name, x)


@rule("round")
def _round(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    return intrinsic("roundeven", x)


@rule("sqrt")
def _sqrt(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    return intrinsic("sqrt", x)


@rule("rsqrt")
def _rsqrt(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    return 1.0 / intrinsic("sqrt", x)


@rule("nextafter")
def _nextafter(instr: Instr, dtype: np.dtype, x: Value, y: Value) -> Value:
    short = half_name(dtype)
    word, other = (packed(v, dtype) if short else v.as_int() for v in (x, y))
    # Away from zero, the bits of a float count up.
    outward = y.compare("ogt", x) ^ x.compare("olt", 0.0)
    neighbour = word + select(outward, word.like(1), -1)
    smallest = (other & (-1 << (bits(word.kind) - 1))) | 1
    found = select(x.compare("oeq", 0.0), smallest, neighbour)
    result = widened(found, dtype) if short else found.as_float()
    result = select(x.compare("oeq", y), y, result)
    return select(x.compare("uno", y), float("nan"), result)


@rule("is_finite")
def _is_finite(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    return intrinsic("fabs", x).compare("olt", float("inf"))


@rule("integer_pow")
def _integer_pow(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    exponent = int(instr.attr)
    result = whole_power(x, abs(exponent))
    return 1.0 / result if exponent < 0 else result


@rule("polygamma")
def _polygamma(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    return polygamma(x, int(instr.attr))


@rule("maximum", "minimum")
def _extremum(instr: Instr, dtype: np.dtype, x: Value, y: Value) -> Value:
    return extremum(x, y, instr.name == "maximum", is_signed(dtype))


def extremum(x: Value, y: Value, largest: bool, signed: bool) -> Value:
    """The larger (or smaller) of two, the first if they are equal; NaN if either is."""
    if not x.is_float:
        prefix = "s" if signed else "u"
        return intrinsic(f"{prefix}{'max' if largest else 'min'}", x, y)
    if x.number is not None and y.number is None:
        if x.number == 0:
            # Equal to it are zeros of both signs.
            return select(x.compare("oge" if largest else "ole", y), x, y)
        x, y = y, x
    # "y beats x, or else x": one instruction, and x if either is NaN.
    best = select(y.compare("ogt" if largest else "olt", x), y, x)
    if y.number is not None and y.number == y.number:
        return best
    return select(y.is_nan(), y, best)


_COMPARISONS = {
    "eq": ("oeq", "eq", "eq"),
    "ne": ("une", "ne", "ne"),
    "lt": ("olt", "slt", "ult"),
    "le": ("ole", "sle", "ule"),
    "gt": ("ogt", "sgt", "ugt"),
    "ge": ("oge", "sge", "uge"),
}


@rule(*_COMPARISONS)
def _compare(instr: Instr, dtype: np.dtype, x: Value, y: Value) -> Value:
    of_float, signed, unsigned = _COMPARISONS[instr.name]
    if x.is_float:
        return x.compare(of_float, y)
    return x.compare(signed if is_signed(dtype) else unsigned, y)


@rule("bitwise_and", "bitwise_or", "bitwise_xor")
def _bitwise(instr: Instr, dtype: np.dtype, x: Value, y: Value) -> Value:
    return x.op(instr.name.removeprefix("bitwise_"), y)


@rule("bitwise_not")
def _bitwise_not(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    return ~x


@rule("shift_left", "shift_right_logical")
def _shift(instr: Instr, dtype: np.dtype, x: Value, count: Value) -> Value:
    shifted = x.op("shl" if instr.name == "shift_left" else "lshr", count)
    return select(count.compare("ult", bits(x.kind)), shifted, 0)


@rule("shift_right_arithmetic")
def _shift_arithmetic(instr: Instr, dtype: np.dtype, x: Value, count: Value) -> Value:
    return x.op("ashr", intrinsic("umin", count, bits(x.kind) - 1))


@rule("population_count")
def _population_count(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    return intrinsic("ctpop", x)


@rule("clz")
def _clz(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    return counted_intrinsic("ctlz", x, False)


@rule("power_of_integers")
def _power_of_integers(instr: Instr, dtype: np.dtype, x: Value, y: Value) -> Value:
    greatest = (1 << (bits(y.kind) - 1)) - 1
    return power_of_integers(x, y & greatest if is_signed(dtype) else y)


@rule("select")
def _select(
    instr: Instr, dtype: np.dtype, condition: Value, yes: Value, no: Value
) -> Value:
    return select(condition, yes, no)


@rule("convert")
def _convert(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    return convert(x, dtype, instr.dtype)


def convert(x: Value, source: np.dtype, target: np.dtype) -> Value:
    """From register to register form; floats saturate towards integers, NaN gives 0."""
    kind = register_kind(target)
    if kind == "i1":
        return x if x.kind == "i1" else x.compare("une" if x.is_float else "ne", 0)
    if x.kind == kind:
        return x
    if x.is_float and kind in ("float", "double"):
        return x.cast("fpext" if kind == "double" else "fptrunc", kind)
    if x.is_float:
        return _saturate(x, kind, is_signed(target))
    extension = "s" if is_signed(source) else "u"
    if kind in ("float", "double"):
        return x.cast(f"{extension}itofp", kind)
    if bits(kind) < bits(x.kind):
        return x.cast("trunc", kind)
    return x.cast("sext" if is_signed(source) else "zext", kind)


def _saturate(x: Value, kind: str, signed: bool) -> Value:
    # llvm.fptosi.sat would do, but LLVM 22 makes scalar code of its vector forms.
    width = bits(kind)
    low = -(2.0 ** (width - 1)) if signed else 0.0
    beyond = 2.0 ** (width - signed)
    greatest = (1 << (width - signed)) - 1
    if width <= 16:
        # Bounds are floats: each takes one instruction, of which NaN gives the bound.
        inside = select(x.compare("ogt", low), x, low)
        inside = select(inside.compare("olt", float(greatest)), inside, float(greatest))
        whole = inside.cast("fptosi", "i32").cast("trunc", kind)
        return select(x.is_nan(), 0, whole) if signed else whole
    whole = x.cast(f"fpto{'s' if signed else 'u'}i", kind)
    # Lanes out of range are poison up to here.
    whole = select(x.compare("oge", beyond), greatest, whole)
    whole = select(x.compare("ole", low), int(low), whole)
    return select(x.is_nan(), 0, whole)


@rule("bitcast")
def _bitcast(instr: Instr, dtype: np.dtype, x: Value) -> Value:
    if half_name(dtype):
        x = packed(x, dtype)
    elif x.kind == "i1":
        x = x.cast("zext", "i8")
    if half_name(instr.dtype):
        return widened(x, instr.dtype)
    kind = register_kind(instr.dtype)
    return x if x.kind == kind else x.cast("bitcast", kind)


@rule(*(name for name in library.FUNCTIONS if name != "rem"))
def _function(instr: Instr, dtype: np.dtype, *args: Value) -> Value:
    return library.call(instr.name, *args)


@rule("threefry2x32")
def _threefry(
    instr: Instr, dtype: np.dtype, k0: Value, k1: Value, x0: Value, x1: Value
) -> Value:
    first, second = threefry.words(k0, k1, x0, x1)
    return {"first": first, "second": second}.get(instr.attr) or first ^ second


@rule(CALL)
def _scalar_call(instr: Instr, dtype: np.dtype, *args: Value) -> Value:
    return emit_call(instr.attr, args)


_FLOAT_ONLY = {
    *library.FUNCTIONS,
    *("sqrt", "rsqrt", "floor", "ceil", "round", "trunc", "is_finite", "nextafter"),
    "polygamma",
}
_INTEGER_ONLY = {
    *("shift_left", "shift_right_logical", "shift_right_arithmetic"),
    *("population_count", "clz", "threefry2x32", "power_of_integers"),
}
_INTEGER_OR_BOOL = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"}
_NO_BOOL = {
    *("sub", "neg", "div", "rem", "abs", "sign", "integer_pow"),
}


def supported(name: str, dtype: np.dtype) -> bool:
    """Whether an elementwise op has code here for first arguments of this dtype."""
    dtype = np.dtype(dtype)
    if name not in RULES or not native(dtype):
        return False
    is_bool, is_int = dtype.kind == "b", dtype.kind in "iu"
    if name in _FLOAT_ONLY and name != "rem":
        return not is_bool and not is_int
    if name in _INTEGER_ONLY:
        return is_int
    if name in _INTEGER_OR_BOOL:
        return is_int or is_bool
    return not (name in _NO_BOOL and is_bool)
