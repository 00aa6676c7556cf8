"""Exponentials, logarithms and what is made of them.

Polynomial coefficients, highest power first, were fitted at Chebyshev nodes with 60
digits; their own error is at most an eighth of the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.backends.cpu.emit.lanes import (
    Value,
    bits,
    fma,
    has_scale_instruction,
    intrinsic,
    multiply_add,
    scale,
    select,
)

INF = float("inf")
NAN = float("nan")
LOG2E = 1.4426950408889634
# log(2) in two parts; the first has trailing zeros, so integer multiples are exact.
LN2 = {
    "float": (0.693359375, -2.12194440054690583e-4),
    "double": (0.693147180369123816490, 1.90821492927058770002e-10),
}
# e^r = 1 + r + r^2 P(r) for |r| <= log(2) / 2.
_EXP = {
    "float": (
        *(0.0013918719669483097, 0.008357204929019698, 0.04166662186183431),
        *(0.16666630810836075, 0.5),
    ),
    "double": (
        *(2.0914686968086876e-09, 2.5105217004720745e-08, 2.75572736431103e-07),
        *(2.7557255400206422e-06, 2.4801587325547743e-05, 0.00019841269874820627),
        *(0.0013888888888883748, 0.008333333333326136, 0.04166666666666667),
        *(0.1666666666666667, 0.5),
    ),
}
# log(1 + f) = f - f^2 / 2 + f^3 P(f) for f in [sqrt(1/2) - 1, sqrt(2) - 1], with P in
# three parts: the powers from f^6, those from f^3, and the rest. In float, log and
# log1p are those of the Cephes library [1], with the roundings in the order in which
# XLA has them: random numbers made by them agree with JAX's to the last bit.
# [1] S. L. Moshier, Methods and Programs for Mathematical Functions (1989).
_LOG_FLOAT = (
    (0.070376836, -0.1151461, 0.116769984),
    (-0.12420141, 0.14249323, -0.16668057),
    (0.20000714, -0.24999994, 0.3333333),
)
# log(1 + x) = x - x^2 / 2 + x^3 P(x) / Q(x) for |x| < sqrt(2) - 1.
_LOG1P_P = (
    *(4.527e-05, 0.49854103, 6.5787325, 29.911919, 60.94967, 57.112965, 20.039553),
)
_LOG1P_Q = (1.0, 15.062909, 83.04757, 221.7624, 309.09872, 216.42789, 60.11866)
# 2 atanh(s) = 2 s + s^3 Q(s^2) for |s| <= 1/3.
_SOFTPLUS_FLOAT = (
    *(0.23224329224074028, 0.2170657580086774, 0.28592357994303885),
    *(0.39999706331929685, 0.6666666732052742),
)
# 2 atanh(s) = 2 s + s^3 Q(s^2) for the s = f / (2 + f) of the same range.
LOG_DOUBLE = (
    *(0.13088034850927555, 0.13268638369266825, 0.15386244737621665),
    *(0.18181795547521137, 0.22222222392581045, 0.28571428570799784),
    *(0.40000000000000885, 0.6666666666666666),
)
# tanh(x) = x P(x^2) / Q(x^2) for |x| <= 9.02.
_TANH_P = (
    *(-1.220440320451138e-11, 3.05865783647563e-08, 2.8008208576620426e-05),
    *(0.003868368044820284, 0.13679948078020376, 0.9999999987070826),
)
_TANH_Q = (
    *(1.2874156593654406e-06, 0.0003938699892656387, 0.02724598903792575),
    *(0.4701328015073749, 1.0),
)


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule; the first coefficient is that of the highest power."""
    result = x.like(coefficients[0])
    for c in coefficients[1:]:
        result = multiply_add(result, x, c)
    return result


def magnitude(x: Value) -> Value:
    return intrinsic("fabs", x)


def with_sign(x: Value, sign: Value) -> Value:
    return intrinsic("copysign", x, sign)


def clipped(x: Value, low: float, high: float) -> Value:
    """x limited to [low, high]; NaN stays."""
    x = select(x.compare("olt", low), low, x)
    return select(x.compare("ogt", high), high, x)


def to_int(x: Value) -> Value:
    return x.cast("fptosi", f"i{bits(x.kind)}")


def _mantissa(kind: str) -> tuple[int, int]:
    """Bits of the mantissa, and the exponent's bias."""
    return (23, 127) if kind == "float" else (52, 1023)


def power_of_two(n: Value, kind: str) -> Value:
    """2**n for integers n among the exponents of normal numbers."""
    mantissa, bias = _mantissa(kind)
    return ((n + bias) << mantissa).as_float()


def scaled(x: Value, n: Value) -> Value:
    """x * 2**n for a whole float n, right also if the result is subnormal or inf."""
    if has_scale_instruction():
        return scale(x, n)
    whole = to_int(n)
    half = whole.op("ashr", 1)
    return x * power_of_two(half, x.kind) * power_of_two(whole - half, x.kind)


def _reduced(x: Value) -> tuple[Value, Value]:
    """(n, r) with x = n log(2) + r and |r| <= log(2) / 2."""
    n = intrinsic("roundeven", x * LOG2E)
    high, low = LN2[x.kind]
    return n, multiply_add(n, -low, multiply_add(n, -high, x))


def exp(x: Value) -> Value:
    low, high = (-104.0, 89.0) if x.kind == "float" else (-746.0, 710.0)
    # What is 0 anyway must not get there through subnormal numbers: those cost the
    # processor 100 cycles and more, and half of a causal mask is such values.
    gone = x.compare("olt", low)
    zero = x.like(0.0)
    limited = select(gone, zero, x)
    n, r = _reduced(select(limited.compare("ogt", high), high, limited))
    return select(
        gone, zero, scaled(multiply_add(r * r, polynomial(r, _EXP[x.kind]), r) + 1.0, n)
    )


def exp2(x: Value) -> Value:
    limits = (-151.0, 129.0) if x.kind == "float" else (-1076.0, 1025.0)
    x = clipped(x, *limits)
    n = intrinsic("roundeven", x)
    r = (x - n) * 0.6931471805599453
    return scaled(multiply_add(r * r, polynomial(r, _EXP[x.kind]), r) + 1.0, n)


def expm1(x: Value) -> Value:
    limits = (-25.0, 89.0) if x.kind == "float" else (-40.0, 710.0)
    n, r = _reduced(clipped(x, *limits))
    p = multiply_add(r * r, polynomial(r, _EXP[x.kind]), r)
    # Half of everything, because 2**n itself may overflow.
    half = power_of_two(to_int(n) - 1, x.kind)
    result = multiply_add(half, p, half - 0.5) * 2.0
    # The smallest of all have no half.
    return select(magnitude(x).compare("olt", 2.0**-60), x, result)


def logistic(x: Value) -> Value:
    return 1.0 / (exp(-x) + 1.0)


def softplus(x: Value) -> Value:
    """Of z = exp(-|x|), log(1 + z) is 2 atanh(s) with s = z / (2 + z) <= 1/3."""
    z = exp(-magnitude(x))
    if x.kind == "float":
        s = z / (z + 2.0)
        square = s * s
        small = multiply_add(s * square, polynomial(square, _SOFTPLUS_FLOAT), s * 2.0)
    else:
        small = log1p(z)
    return select(x.compare("ogt", 0.0), x, 0.0) + small


def tanh(x: Value) -> Value:
    if x.kind == "float":
        limited = clipped(x, -9.02, 9.02)
        z = limited * limited
        ratio = polynomial(z, _TANH_P) / polynomial(z, _TANH_Q)
        return clipped(limited * ratio, -1.0, 1.0)
    t = expm1(clipped(magnitude(x), 0.0, 20.0) * 2.0)
    return with_sign(t / (t + 2.0), x)


def sinh(x: Value) -> Value:
    size = magnitude(x)
    t = expm1(size)
    usual = (t + t / (t + 1.0)) * 0.5
    # exp(|x|) overflows a little before sinh(x) does.
    half = exp(size * 0.5)
    limit = 88.0 if x.kind == "float" else 709.0
    return with_sign(select(size.compare("ogt", limit), half * 0.5 * half, usual), x)


def cosh(x: Value) -> Value:
    half = exp(magnitude(x) * 0.5)
    return half * 0.5 * half + 0.5 / (half * half)


def split_exponent(x: Value) -> tuple[Value, Value]:
    """(n, m) with x = 2**n m and m in [sqrt(1/2), sqrt(2)), for finite x > 0."""
    mantissa, bias = _mantissa(x.kind)
    tiny = x.compare("olt", 2.0 ** (1 - bias))
    x = select(tiny, x * 2.0**mantissa, x)
    word = x.as_int()
    root_half = x.like(0.7071067811865476).as_int()
    n = (word - root_half).op("ashr", mantissa)
    m = (word - (n << mantissa)).as_float()
    whole = n.cast("sitofp", x.kind)
    return select(tiny, whole - float(mantissa), whole), m


def _log_of_mantissa(m: Value) -> tuple[Value, Value]:
    """log(m) as (f, rest), log(m) = f + rest, where f = m - 1 is exact."""
    f = m - 1.0
    if m.kind == "float":
        square, cube, p = _log_terms(f)
        return f, multiply_add(square, -0.5, cube * p)
    s = f / (f + 2.0)
    z = s * s
    return f, -(s * (f - z * polynomial(z, LOG_DOUBLE)))


def _log_terms(f: Value) -> tuple[Value, Value, Value]:
    """f^2, f^3 and P with log(1 + f) = f - f^2 / 2 + f^3 P, in float."""
    square = f * f
    cube = square * f
    high, middle, low = [polynomial(f, part) for part in _LOG_FLOAT]
    return square, cube, multiply_add(cube, multiply_add(cube, high, middle), low)


def log_domain(x: Value, result: Value) -> Value:
    """A logarithm's values outside the finite positive numbers."""
    result = select(x.compare("oeq", INF), INF, result)
    result = select(x.compare("ult", 0.0), NAN, result)
    return select(x.compare("oeq", 0.0), -INF, result)


def log(x: Value) -> Value:
    n, m = split_exponent(x)
    high, low = LN2[x.kind]
    if x.kind == "float":
        f = m - 1.0
        square, cube, p = _log_terms(f)
        result = multiply_add(cube, p, n * low) + multiply_add(square, -0.5, f)
        return log_domain(x, multiply_add(n, high, result))
    f, rest = _log_of_mantissa(m)
    return log_domain(x, multiply_add(n, high, f + multiply_add(n, low, rest)))


def log2(x: Value) -> Value:
    n, m = split_exponent(x)
    f, rest = _log_of_mantissa(m)
    return log_domain(x, n + fma(f, LOG2E, rest * LOG2E))


def log1p(x: Value) -> Value:
    u = x + 1.0
    result = log(u)
    if x.kind == "float":
        square = x * x
        ratio = polynomial(x, _LOG1P_P) / polynomial(x, _LOG1P_Q)
        near = x + multiply_add(square, -0.5, x * square * ratio)
        return select(magnitude(x).compare("olt", 0.41421357), near, result)
    correction = (x - (u - 1.0)) / u
    result = select(correction.is_nan(), result, result + correction)
    return select(x.compare("oeq", 0.0), x, result)


def asinh(x: Value) -> Value:
    size = magnitude(x)
    square = size * size
    usual = log1p(size + square / (intrinsic("sqrt", square + 1.0) + 1.0))
    large = size.compare("ogt", 1e9)
    return with_sign(select(large, log(size) + 0.6931471805599453, usual), x)


def acosh(x: Value) -> Value:
    t = x - 1.0
    usual = log1p(t + intrinsic("sqrt", t * (t + 2.0)))
    result = select(x.compare("ogt", 1e9), log(x) + 0.6931471805599453, usual)
    return select(x.compare("ult", 1.0), NAN, result)


def atanh(x: Value) -> Value:
    size = magnitude(x)
    return with_sign(log1p(size * 2.0 / (1.0 - size)) * 0.5, x)


EXPONENTIALS: dict[str, Callable[..., Value]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "logistic": logistic,
    "softplus": softplus,
    "tanh": tanh,
    "sinh": sinh,
    "cosh": cosh,
    "log": log,
    "log2": log2,
    "log1p": log1p,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
}
