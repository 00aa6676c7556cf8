"""Circular functions, their inverses and the remainder."""

from __future__ import annotations

from collections.abc import Callable

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import (
    Value,
    fma,
    intrinsic,
    mangled,
    multiply_add,
    select,
)
from treadle.backends.cpu.math.exp import (
    INF,
    NAN,
    magnitude,
    polynomial,
    to_int,
    with_sign,
)
from treadle.backends.cpu.run.shared import SHARED

PI = 3.141592653589793
# pi / 2 in three parts of a full mantissa each; with fused multiply-add the differences
# x - n * part are exact as long as n is.
_HALF_PI = {
    "float": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100059e-15),
    "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
}
_REDUCIBLE = {"float": 1e5, "double": 1e9}
# sin(r) = r + r^3 P(r^2) and cos(r) = 1 - r^2 / 2 + r^4 P(r^2) for |r| <= pi / 4.
_SIN = {
    "float": (
        *(2.724378140946123e-06, -0.00019840038872556747, 0.008333331785217696),
        -0.1666666666362283,
    ),
    "double": (
        *(-7.585486485235938e-13, 1.6058510875319195e-10, -2.505210610025599e-08),
        *(2.7557319218954762e-06, -0.00019841269841264567, 0.008333333333333331),
        -0.16666666666666666,
    ),
}
_COS = {
    "float": (2.4542871110870263e-05, -0.0013888279330556918, 0.04166666453632113),
    "double": (
        *(-1.1380868171449914e-11, 2.0876121534608454e-09, -2.7557317151858866e-07),
        *(2.480158729853226e-05, -0.0013888888888887241, 0.041666666666666664),
    ),
}
# atan(x) = x + x^3 P(x^2) for 0 <= x <= 1 (float) or tan(pi / 8) (double).
_ATAN = {
    "float": (
        *(0.0014886919393047597, -0.009144629760592396, 0.026305001110062377),
        *(-0.04896051402709067, 0.07031914250029966, -0.08931826777381315),
        *(0.11088261628735159, -0.1428400379473353, 0.19999949321141888),
        -0.3333333308107325,
    ),
    "double": (
        *(0.016285756855221028, -0.034570561981427744, 0.04551593220626549),
        *(-0.05230454270650244, 0.05878928997834775, -0.06666424885738255),
        *(0.07692296375032143, -0.09090908753500877, 0.11111111105155447),
        *(-0.14285714285659828, 0.19999999999999804, -0.3333333333333333),
    ),
}
# asin(x) = x + x^3 P(x^2) for |x| <= 1/2.
_ASIN = {
    "float": (
        *(0.03369084720283012, 0.017149238357677253, 0.03110066273549457),
        *(0.04459940152851218, 0.07500094543497424, 0.16666666337430908),
    ),
    "double": (
        *(0.02961201126495512, -0.01924167174674304, 0.019554513336123378),
        *(0.0030448799094556773, 0.009319560794767446, 0.009621842970100282),
        *(0.011566459612121669, 0.01396378001220357, 0.017352816540325496),
        *(0.02237215744350722, 0.03038194447553234, 0.044642857142551895),
        *(0.07500000000000118, 0.16666666666666666),
    ),
}


def rescued(result: Value, bad: Value, function: str, *args: Value) -> Value:
    """The result, with the lanes that are `bad` computed by the C library instead.

    For arguments that are too rare to deserve vector code.
    """
    b, kind, lanes = result.b, result.kind, result.lanes
    name = function + ("f" if kind == "float" else "")
    b.declare(f"{kind} @{name}({', '.join([kind] * len(args))})")
    any_bad = bad
    if lanes > 1:
        symbol = f"@llvm.vector.reduce.or.v{lanes}i1"
        b.declare(f"i1 {symbol}({bad.type})")
        any_bad = Value(b, b.op(f"call i1 {symbol}({bad.type} {bad.text})"), "i1", 1)
    before = b.block
    rescue, done = b.fresh_label("rescue"), b.fresh_label("done")
    b(f"br i1 {any_bad.text}, label %{rescue}, label %{done}")
    b.label(rescue)
    of = _exact if lanes == 1 else _one_by_one
    text = of(result, bad, name, args)
    b(f"br label %{done}")
    b.label(done)
    phi = f"phi {result.type} [{result.text}, %{before}], [{text}, %{rescue}]"
    return result.new(phi)


def _exact(result: Value, bad: Value, name: str, args: tuple[Value, ...]) -> str:
    """A scalar, from the C library if it is bad."""
    passed = ", ".join(f"{a.kind} {a.text}" for a in args)
    exact = result.new(f"call {result.kind} @{name}({passed})")
    return select(bad, exact, result).text


def _one_by_one(result: Value, bad: Value, name: str, args: tuple[Value, ...]) -> str:
    """Calls a function that asks the C library for each bad lane."""
    b, kind, lanes = result.b, result.kind, result.lanes
    symbol = f"@treadle.rescued.{name}.{mangled(kind, lanes)}"
    given = (result, bad, *args)
    if symbol not in b.library:
        inner = Builder()
        own = [Value(inner, f"%x{i}", x.kind, lanes) for i, x in enumerate(given)]
        parameters = ", ".join(f"{x.type} {x.text}" for x in own)
        signature = f"define internal {result.type} {symbol}({parameters}) {SHARED}"
        with inner.function(signature):
            text = own[0].text
            for i in range(lanes):
                old, is_bad, *some = (x.lane(i) for x in own)
                one = _exact(old, is_bad, name, (*some,))
                to = f"{result.type} {text}, {kind} {one}, i64 {i}"
                text = inner.op(f"insertelement {to}")
            inner(f"ret {result.type} {text}")
        b.library[symbol] = "\n".join(inner.lines)
    passed = ", ".join(f"{x.type} {x.text}" for x in given)
    return b.op(f"call {result.type} {symbol}({passed})")


def _reduced(x: Value) -> tuple[Value, Value]:
    """(n, r) with x = n pi / 2 + r, |r| <= pi / 4, for |x| within _REDUCIBLE."""
    n = intrinsic("roundeven", x * (2.0 / PI))
    r = x
    for part in _HALF_PI[x.kind]:
        r = fma(n, -part, r)
    return n, r


def _sin_cos(r: Value) -> tuple[Value, Value]:
    z = r * r
    sin = multiply_add(r * z, polynomial(z, _SIN[r.kind]), r)
    cos = multiply_add(z * z, polynomial(z, _COS[r.kind]), multiply_add(z, -0.5, 1.0))
    return sin, cos


def _circular(x: Value, turns: int, function: str) -> Value:
    """sin(x + turns * pi / 2)."""
    bad = magnitude(x).compare("ogt", _REDUCIBLE[x.kind])
    safe = select(bad, 0.0, x)
    n, r = _reduced(safe)
    sin, cos = _sin_cos(r)
    quadrant = to_int(n) + turns
    odd = (quadrant & 1).compare("ne", 0)
    flip = (quadrant & 2).compare("ne", 0)
    result = select(odd, cos, sin)
    result = select(flip, -result, result)
    if not turns:
        result = select(safe.compare("oeq", 0.0), safe, result)
    return rescued(result, bad, function, x)


def sin(x: Value) -> Value:
    return _circular(x, 0, "sin")


def cos(x: Value) -> Value:
    return _circular(x, 1, "cos")


def tan(x: Value) -> Value:
    bad = magnitude(x).compare("ogt", _REDUCIBLE[x.kind])
    safe = select(bad, 0.0, x)
    n, r = _reduced(safe)
    sin, cos = _sin_cos(r)
    odd = (to_int(n) & 1).compare("ne", 0)
    result = select(odd, -cos, sin) / select(odd, sin, cos)
    result = select(safe.compare("oeq", 0.0), safe, result)
    return rescued(result, bad, "tan", x)


def _atan_of_fraction(x: Value) -> Value:
    """atan(x) for 0 <= x <= 1."""
    if x.kind == "float":
        z = x * x
        return multiply_add(x * z, polynomial(z, _ATAN[x.kind]), x)
    large = x.compare("ogt", 0.41421356237309503)
    t = select(large, (x - 1.0) / (x + 1.0), x)
    z = t * t
    small = multiply_add(t * z, polynomial(z, _ATAN[x.kind]), t)
    return select(large, small + PI / 4, small)


def atan(x: Value) -> Value:
    size = magnitude(x)
    large = size.compare("ogt", 1.0)
    angle = _atan_of_fraction(select(large, 1.0 / size, size))
    return with_sign(select(large, PI / 2 - angle, angle), x)


def atan2(y: Value, x: Value) -> Value:
    height, width = magnitude(y), magnitude(x)
    steep = height.compare("ogt", width)
    least, most = select(steep, width, height), select(steep, height, width)
    ratio = least / most
    ratio = select(most.compare("oeq", 0.0), 0.0, ratio)
    ratio = select(least.compare("oeq", INF), 1.0, ratio)
    angle = _atan_of_fraction(ratio)
    angle = select(steep, PI / 2 - angle, angle)
    negative = x.as_int().compare("slt", 0)
    angle = select(negative, PI - angle, angle)
    either_nan = x.compare("uno", y)
    return select(either_nan, NAN, with_sign(angle, y))


def _asin_of_half(x: Value) -> Value:
    z = x * x
    return multiply_add(x * z, polynomial(z, _ASIN[x.kind]), x)


def asin(x: Value) -> Value:
    size = magnitude(x)
    large = size.compare("ogt", 0.5)
    root = intrinsic("sqrt", (1.0 - size) * 0.5)
    angle = _asin_of_half(select(large, root, size))
    return with_sign(select(large, PI / 2 - angle * 2.0, angle), x)


def acos(x: Value) -> Value:
    size = magnitude(x)
    large = size.compare("ogt", 0.5)
    root = intrinsic("sqrt", (1.0 - size) * 0.5)
    angle = _asin_of_half(select(large, root, x))
    negative = x.compare("olt", 0.0)
    beyond = select(negative, PI - angle * 2.0, angle * 2.0)
    return select(large, beyond, PI / 2 - angle)


def rem(x: Value, y: Value) -> Value:
    """x - trunc(x / y) * y, exactly, with the sign of x."""
    size, step = magnitude(x), magnitude(y)
    count = intrinsic("trunc", size / step)
    # The quotient may have been rounded up to a whole number.
    r = fma(-count, step, size)
    r = select(r.compare("olt", 0.0), r + step, r)
    r = select(r.compare("oge", step), r - step, r)
    r = select(step.compare("oeq", INF), size, r)
    limit = 2.0**22 if x.kind == "float" else 2.0**51
    bad = ~count.compare("olt", limit)
    return rescued(with_sign(r, x), bad, "fmod", x, y)


CIRCULAR: dict[str, Callable[..., Value]] = {
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "atan2": atan2,
    "rem": rem,
}
