"""Exponentials, logarithms and the functions made of them."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.backends.cpu.lanes import Value, bits, fma, intrinsic, select

LOG2E = 1.4426950408889634
# log(2) in two parts; the first has trailing zeros, so integer multiples are exact.
LN2 = {
    "float": (0.693359375, -2.12194440054690583e-4),
    "double": (0.693147180369123816490, 1.90821492927058770002e-10),
}


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule; the first coefficient is that of the highest power."""
    result = x.like(coefficients[0])
    for c in coefficients[1:]:
        result = fma(result, x, c)
    return result


def power_of_two(n: Value, kind: str) -> Value:
    """2**n for an integer vector n within the exponents of normal numbers."""
    width = bits(kind)
    mantissa, bias = (23, 127) if width == 32 else (52, 1023)
    return ((n + bias) << mantissa).as_float()


def to_int(x: Value) -> Value:
    return x.cast("fptosi", f"i{bits(x.kind)}")


def scaled(x: Value, n: Value) -> Value:
    """x * 2**n, right also where the result is subnormal or overflows."""
    half = n.op("ashr", 1)
    return x * power_of_two(half, x.kind) * power_of_two(n - half, x.kind)


def exp(x: Value) -> Value:
    low, high = (-104.0, 89.0) if x.kind == "float" else (-746.0, 710.0)
    x = select(x.compare("olt", low), low, x)
    x = select(x.compare("ogt", high), high, x)
    n = intrinsic("roundeven", x * LOG2E)
    ln2_high, ln2_low = LN2[x.kind]
    r = fma(n, -ln2_low, fma(n, -ln2_high, x))
    if x.kind == "float":
        p = polynomial(r, (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1, 1))
    else:
        p = polynomial(r, [1.0 / _factorial(k) for k in range(13, -1, -1)])
    return scaled(p, to_int(n))


def _factorial(n: int) -> int:
    return 1 if n < 2 else n * _factorial(n - 1)


EXPONENTIALS = {"exp": exp}
