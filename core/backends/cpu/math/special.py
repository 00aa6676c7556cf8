"""Powers, roots, error functions and gamma functions."""

from __future__ import annotations

import math
from collections.abc import Callable

from treadle.backends.cpu.emit.lanes import (
    Value,
    counted_intrinsic,
    fma,
    intrinsic,
    mangled,
    select,
)
from treadle.backends.cpu.math.exp import (
    INF,
    LN2,
    LOG_DOUBLE,
    NAN,
    clipped,
    exp,
    exp2,
    log,
    log1p,
    log2,
    log_domain,
    magnitude,
    polynomial,
    split_exponent,
    with_sign,
)
from treadle.backends.cpu.math.trig import PI, sin
from treadle.ops.special import cotangent_derivative, polygamma_series

# erf(x) = x P(x^2) for |x| <= 1.
_ERF_DOUBLE = (
    *(5.957176147748911e-11, -1.1372848856791674e-09, 1.4659775274047436e-08),
    *(-1.6350312701054695e-07, 1.6461000484121368e-06, -1.4925595266831182e-05),
    *(0.0001205533111164271, -0.000854832698083379, 0.0052239776248180145),
    *(-0.026866170645076792, 0.11283791670954879, -0.3761263890318375),
    1.1283791670955126,
)
_ERF_FLOAT = (
    *(7.875875062685488e-05, -0.000801686428716587, 0.005189087423433974),
    *(-0.026854212010626412, 0.11283594715160218, -0.37612626666720334),
    1.1283791658483509,
)
# erf(x) = x P(x^2) / Q(x^2) for |x| <= 3.83, where it rounds to 1 in float. This and
# erf_inv in float have coefficients and roundings in common with XLA, for the sake of
# equal random numbers.
_ERF_P = (0.00022905065, 0.003408291, 0.050955694, 0.18520832, 1.1283791)
_ERF_Q = (
    *(-1.1791603e-07, 2.3547966e-05, 0.0010179626, 0.01407047, 0.11098505),
    *(0.49746925, 1.0),
)
# exp(x^2) erfc(x) = P((x - 3.75) / (x + 3.75)) for x >= 1/2.
_ERFC = {
    "float": (
        *(-0.00020437082914136133, -2.1670508949309313e-05, 0.0018299273187251219),
        *(-0.008214621587876449, 0.02413841783980185, -0.05480379548665687),
        *(0.10260466449941243, -0.16357178760275926, 0.2260080573822468),
        *(-0.2734219335123828, 0.1455897213220839),
    ),
    "double": (
        *(4.828229360787738e-10, -8.288053302179355e-10, -4.676270341848215e-09),
        *(8.527698280158498e-09, 3.136033117159193e-08, -7.212718124825321e-08),
        *(-1.8338931339860206e-07, 6.592155419961036e-07, 7.485729012046656e-07),
        *(-6.183355972544596e-06, 3.5836974539752403e-06, 4.789876463571062e-05),
        *(-0.00015246265953669383, -2.5535328659508275e-05, 0.001802962415869804),
        *(-0.008220621154338139, 0.02414322397252685, -0.054802326694969115),
        *(0.1026043120321943, -0.16357189552392412, 0.2260080669166215),
        *(-0.2734219314954265, 0.14558972127503855),
    ),
}
# erf_inv(x) / x by w = -log(1 - x^2): in w - 2.5 for w < 5, else in sqrt(w) - centre
# (M. Giles, Approximating the erfinv function, GPU Computing Gems, 2011).
_ERF_INV_NEAR = {
    "float": (
        *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06),
        *(0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
    ),
    "double": (
        *(-8.931925970244222e-09, 2.3335967195708108e-08, 4.6813134805534123e-07),
        *(-3.4639852676333717e-06, -4.9724196894547514e-06, 0.00021834938623976644),
        *(-0.001252726391773229, -0.004177392875203149, 0.24664027905463662),
        1.501409360450329,
    ),
}
_ERF_INV_FAR = {
    "float": (
        *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844),
        *(0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
    ),
    "double": (
        *(9.759081078462649e-08, -5.797134512083061e-07, 5.836795978516708e-07),
        *(3.270024391993912e-06, -1.146920401939309e-05, 1.905923870356456e-05),
        *(-2.9214461835200987e-05, 5.491800006701659e-05, -0.00012003905938736446),
        *(0.00032128847056106676, -0.0008683524925621012, 0.0012598344094120724),
        *(1.0094931955015187, 3.839783794723352),
    ),
}
_ERF_INV_CENTRE = {"float": 3.0, "double": 4.0}
# Stirling's series for log(gamma) and for digamma, in 1 / x^2.
_STIRLING = (
    *(1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12),
)
_DIGAMMA = (*(-1 / 12, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12),)


def erf(x: Value) -> Value:
    size = magnitude(x)
    if x.kind == "float":
        z = x * x
        near = x * polynomial(z, _ERF_P) / polynomial(z, _ERF_Q)
        return select(size.compare("oge", 3.832507), with_sign(x.like(1.0), x), near)
    small = x * polynomial(x * x, _ERF_DOUBLE)
    return select(size.compare("olt", 1.0), small, with_sign(1.0 - _erfc_tail(size), x))


def _erfc_tail(x: Value) -> Value:
    """erfc(x) for x >= 1/2."""
    x = clipped(x, 0.5, 10.2 if x.kind == "float" else 27.5)
    square = x * x
    lost = fma(x, x, -square)
    p = polynomial((x - 3.75) / (x + 3.75), _ERFC[x.kind])
    return exp(-square) * fma(-lost, p, p)


def erfc(x: Value) -> Value:
    size = magnitude(x)
    coefficients = _ERF_FLOAT if x.kind == "float" else _ERF_DOUBLE
    near = 1.0 - x * polynomial(x * x, coefficients)
    tail = _erfc_tail(size)
    far = select(x.compare("olt", 0.0), 2.0 - tail, tail)
    return select(size.compare("olt", 0.5), near, far)


def erf_inv(x: Value) -> Value:
    size = magnitude(x)
    if x.kind == "float":
        w = -log1p((x * -x).rounded_once())
    else:
        w = -log((1.0 - size) * (1.0 + size))
    near = polynomial(w - 2.5, _ERF_INV_NEAR[x.kind])
    centred = intrinsic("sqrt", w) - _ERF_INV_CENTRE[x.kind]
    far = polynomial(centred, _ERF_INV_FAR[x.kind])
    result = select(w.compare("olt", 5.0), near, far) * x
    if x.kind == "double":
        result = _erf_inv_step(result, x, size)
    result = select(size.compare("oeq", 1.0), with_sign(x.like(INF), x), result)
    return select(size.compare("ugt", 1.0), NAN, result)


def _erf_inv_step(y: Value, x: Value, size: Value) -> Value:
    """A step of Halley's method on erf(y) = x, by erfc where x is near 1."""
    root = magnitude(y)
    small = root * polynomial(root * root, _ERF_DOUBLE) - size
    error = select(size.compare("olt", 0.7), small, (1.0 - size) - _erfc_tail(root))
    newton = error * 0.8862269254527580 * exp(root * root)
    return with_sign(root - newton / fma(root, newton, 1.0), x)


def cbrt(x: Value) -> Value:
    """From a third of the exponent, by Halley's method."""
    is_float = x.kind == "float"
    size = magnitude(x)
    tiny = size.compare("olt", 1e-30 if is_float else 1e-290)
    huge = size.compare("ogt", 1e30 if is_float else 1e290)
    scale, root = (2.0**30, 2.0**-10) if is_float else (2.0**60, 2.0**-20)
    a = select(tiny, size * scale, select(huge, size * (1.0 / scale), size))
    third = a.as_int().cast("uitofp", "double") * (1.0 / 3.0)
    magic = 709957561 if is_float else 0x2A9F7893_782DA1CE
    y = (third.cast("fptoui", f"i{32 if is_float else 64}") + magic).as_float()
    for _ in range(2 if is_float else 3):
        cube = y * y * y
        y = y - y * ((cube - a) / (cube * 2.0 + a))
    y = select(tiny, y * root, select(huge, y * (1.0 / root), y))
    y = with_sign(y, x)
    special = (size * 0.0).compare("une", 0.0) | size.compare("oeq", 0.0)
    return select(special, x, y)


def pow(x: Value, y: Value) -> Value:
    size = magnitude(x)
    if x.kind == "float":
        wide = log2(size.cast("fpext", "double")) * y.cast("fpext", "double")
        result = exp2(wide).cast("fptrunc", "float")
    else:
        result = _wide_pow(size, y)
    whole = intrinsic("trunc", y).compare("oeq", y)
    half = y * 0.5
    odd = whole & intrinsic("trunc", half).compare("une", half)
    negative = x.as_int().compare("slt", 0)
    result = select(negative & odd, -result, result)
    strange = x.compare("olt", 0.0) & ~whole & size.compare("olt", INF)
    result = select(strange, NAN, result)
    even_one = size.compare("oeq", 1.0) & magnitude(y).compare("oeq", INF)
    is_one = x.compare("oeq", 1.0) | y.compare("oeq", 0.0) | even_one
    return select(is_one, 1.0, result)


def _wide_pow(x: Value, y: Value) -> Value:
    """x**y for x >= 0 in double: the logarithm as a sum of two doubles."""
    n, m = split_exponent(x)
    high, low = _wide_log(n, m)
    product = high * y
    rest = fma(high, y, -product) + low * y
    usual = magnitude(product).compare("olt", 746.0)
    usual = usual & x.compare("ogt", 0.0) & x.compare("olt", INF)
    special = exp(log_domain(x, high) * y)
    result = exp(product)
    corrected = select(result.compare("oeq", INF), INF, fma(result, rest, result))
    return select(usual, corrected, special)


def _wide_log(n: Value, m: Value) -> tuple[Value, Value]:
    """n log(2) + log(m) as a sum of two doubles."""
    f = m - 1.0
    d = f + 2.0
    d_low = f - (d - 2.0)
    s = f / d
    s_low = (fma(-s, d, f) - s * d_low) / d
    z = s * s
    z_low = fma(s, s, -z) + s * s_low * 2.0
    # 2 atanh(s) = 2 s + 2/3 s^3 + s^5 Q(s^2): the first two terms with their errors.
    *rest, third = LOG_DOUBLE
    t = z * s
    t_low = fma(z, s, -t) + z * s_low + z_low * s
    cubic = t * third
    cubic_low = fma(t, third, -cubic) + t_low * third + t * 3.700743415417188e-17
    tail = polynomial(z, rest) * z * t
    high, low = _two_sum(n * LN2["double"][0], s * 2.0)
    high, error = _two_sum(high, cubic)
    low = low + error + (s_low * 2.0 + cubic_low + tail + n * LN2["double"][1])
    return _two_sum(high, low)


def _two_sum(x: Value, y: Value) -> tuple[Value, Value]:
    """x + y and its rounding error."""
    x, y = x.rounded_once(), y.rounded_once()
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def whole_power(x: Value, n: int) -> Value:
    """x**n for an integer n >= 0, by squaring."""
    power, result = x, None
    while n:
        if n & 1:
            result = power if result is None else result * power
        n >>= 1
        if n:
            power = power * power
    return x.like(1) if result is None else result


def power_of_integers(x: Value, n: Value) -> Value:
    """x**n for unsigned n, by squaring, up to the last bit of any lane's exponent."""
    b, most = x.b, n
    if n.lanes > 1:
        symbol = f"@llvm.vector.reduce.or.{mangled(n.kind, n.lanes)}"
        b.declare(f"{n.kind} {symbol}({n.type})")
        text = b.op(f"call {n.kind} {symbol}({n.type} {n.text})")
        most = Value(b, text, n.kind, 1)
    most = most if most.kind == "i64" else most.cast("zext", "i64")
    count = b.op(f"sub i64 64, {counted_intrinsic('ctlz', most, False).text}")
    first = [(v.type, v.text) for v in (x.like(1), x, n)]
    with b.carrying("0", count, "1", first) as turn:
        result, power, left = (Value(b, t, x.kind, x.lanes) for t in turn.values)
        is_odd = (left & 1).compare("ne", 0)
        result = select(is_odd, result * power, result)
        turn.next = [v.text for v in (result, power * power, left.op("lshr", 1))]
    return Value(b, turn.values[0], x.kind, x.lanes)


def lgamma(x: Value) -> Value:
    if x.kind == "float":
        return lgamma(x.cast("fpext", "double")).cast("fptrunc", "float")
    mirrored = x.compare("olt", 0.5)
    reflected = select(mirrored, 1.0 - x, x)
    shifted, product = reflected, x.like(1.0)
    for _ in range(8):
        low = shifted.compare("olt", 8.0)
        product = select(low, product * shifted, product)
        shifted = select(low, shifted + 1.0, shifted)
    inverse = 1.0 / shifted
    series = polynomial(inverse * inverse, _STIRLING) * inverse
    log_shifted = log(shifted)
    value = (shifted - 0.5) * log_shifted - shifted + 0.9189385332046728 + series
    value = select(reflected.compare("oeq", INF), INF, value)
    fraction = x - intrinsic("roundeven", x)
    sine = sin(fraction * PI)
    # One logarithm for the steps to 8 and for the reflection, π / |sin(π x)|.
    factor = select(mirrored, magnitude(sine) / (product * PI), product)
    result = select(mirrored, -value, value) - log(factor)
    whole = fraction.compare("oeq", 0.0) & x.compare("ole", 0.0)
    result = select(whole, INF, result)
    return select(magnitude(x).compare("oeq", INF), INF, result)


def _cotangent(fraction: Value) -> Value:
    """cot(π x) of numbers up to 1/2, exactly 0 there."""
    cosine = sin((0.5 - magnitude(fraction)) * PI)
    return cosine / sin(fraction * PI)


def digamma(x: Value) -> Value:
    if x.kind == "float":
        return digamma(x.cast("fpext", "double")).cast("fptrunc", "float")
    mirrored = x.compare("olt", 0.5)
    shifted, total = select(mirrored, 1.0 - x, x), x.like(0.0)
    for _ in range(8):
        low = shifted.compare("olt", 8.0)
        total = select(low, total + 1.0 / shifted, total)
        shifted = select(low, shifted + 1.0, shifted)
    inverse = 1.0 / shifted
    z = inverse * inverse
    series = polynomial(z, _DIGAMMA) * z
    value = log(shifted) - inverse * 0.5 + series - total
    fraction = x - intrinsic("roundeven", x)
    mirror = value - _cotangent(fraction) * PI
    result = select(mirrored, mirror, value)
    pole = fraction.compare("oeq", 0.0) & x.compare("ole", 0.0)
    return select(pole, NAN, result)


def polygamma(x: Value, n: int) -> Value:
    """The n-th derivative of digamma, n >= 1."""
    if x.kind == "float":
        return polygamma(x.cast("fpext", "double"), n).cast("fptrunc", "float")
    mirrored = x.compare("ole", 0.0)
    shifted, total = select(mirrored, 1.0 - x, x), x.like(0.0)
    for _ in range(n + 10):
        low = shifted.compare("olt", n + 10.0)
        term = whole_power(1.0 / shifted, n + 1)
        total = select(low, total + term, total)
        shifted = select(low, shifted + 1.0, shifted)
    inverse = 1.0 / shifted
    z = inverse * inverse
    series = polynomial(z, polygamma_series(n)) * z + inverse * 0.5 + 1 / n
    factor = math.factorial(n) * (1.0 if n % 2 else -1.0)
    value = (series * whole_power(inverse, n) + total) * factor
    fraction = x - intrinsic("roundeven", x)
    slope = polynomial(_cotangent(fraction), cotangent_derivative(n))
    mirror = value * (-1.0) ** n - slope * PI ** (n + 1)
    pole = fraction.compare("oeq", 0.0)
    mirror = select(pole, math.copysign(INF, factor), mirror)
    return select(mirrored, mirror, value)


SPECIAL: dict[str, Callable[..., Value]] = {
    "erf": erf,
    "erfc": erfc,
    "erf_inv": erf_inv,
    "cbrt": cbrt,
    "pow": pow,
    "lgamma": lgamma,
    "digamma": digamma,
}
