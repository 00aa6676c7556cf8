"""Cases of the elementwise ops."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
from jax import lax
from jax.extend.random import threefry_2x32

from tests.core.ops.cases import (
    Case,
    Draw,
    between,
    booleans,
    complexes,
    constant,
    distinct,
    integers,
    normal,
)
from treadle.ops import (
    arithmetic,
    bessel,
    binary,
    cast,
    compare,
    complex,
    error_functions,
    exponential_integrals,
    identity,
    powers,
    random_bits,
    unary,
)

SHAPE = (3, 4)
ANY, POSITIVE, UNIT = (
    normal(*SHAPE),
    between(0.3, 3, *SHAPE),
    between(-0.9, 0.9, *SHAPE),
)
COMPLEX = complexes(*SHAPE)
SMOOTH = {
    unary.exp: (jnp.exp, ANY),
    unary.exp2: (jnp.exp2, ANY),
    unary.expm1: (jnp.expm1, ANY),
    unary.log: (jnp.log, POSITIVE),
    unary.log1p: (jnp.log1p, POSITIVE),
    unary.log2: (jnp.log2, POSITIVE),
    unary.sqrt: (jnp.sqrt, POSITIVE),
    unary.rsqrt: (lax.rsqrt, POSITIVE),
    unary.cbrt: (jnp.cbrt, POSITIVE),
    unary.sin: (jnp.sin, ANY),
    unary.cos: (jnp.cos, ANY),
    unary.tan: (jnp.tan, UNIT),
    unary.asin: (jnp.arcsin, UNIT),
    unary.acos: (jnp.arccos, UNIT),
    unary.atan: (jnp.arctan, ANY),
    unary.sinh: (jnp.sinh, ANY),
    unary.cosh: (jnp.cosh, ANY),
    unary.tanh: (jnp.tanh, ANY),
    unary.asinh: (jnp.arcsinh, ANY),
    unary.acosh: (jnp.arccosh, between(1.2, 3, *SHAPE)),
    unary.atanh: (jnp.arctanh, UNIT),
    unary.logistic: (lax.logistic, ANY),
    unary.softplus: (lambda x: jnp.logaddexp(x, 0.0), ANY),
    unary.erf: (lax.erf, ANY),
    unary.erfc: (lax.erfc, ANY),
    unary.erf_inv: (lax.erf_inv, UNIT),
    arithmetic.neg: (jnp.negative, ANY),
    identity.copy: (jnp.array, ANY),
}
WIDE = constant([-9.5, -2.0, -0.3, 0.4, 1.7, 4.5, 11.0, 26.0])
ABOVE = constant([0.2, 0.49, 0.98, 1.4, 2.3, 5.0, 7.0, 21.0])
SPECIAL = {
    error_functions.erfcx: (jsp.erfcx, constant([-1.5, -0.3, 0.4, 1.7, 4.5, 26.0])),
    error_functions.dawsn: (jsp.dawsn, WIDE),
    error_functions.ndtri: (jsp.ndtri, constant([0.01, 0.3, 0.5, 0.8, 0.98])),
    error_functions.log_ndtr: (jsp.log_ndtr, WIDE),
    error_functions.fresnel_sin: (lambda x: jsp.fresnel(x)[0], WIDE),
    error_functions.fresnel_cos: (lambda x: jsp.fresnel(x)[1], WIDE),
    exponential_integrals.exp1: (jsp.exp1, ABOVE),
    exponential_integrals.expi: (jsp.expi, constant([-3.0, -0.4, 0.5, 2.0, 7.0])),
    exponential_integrals.sine_integral: (lambda x: jsp.sici(x)[0], WIDE),
    exponential_integrals.cosine_integral: (lambda x: jsp.sici(x)[1], ABOVE),
    # The derivatives of JAX are not numbers between 1 and 2.
    exponential_integrals.spence: (jsp.spence, constant([0.2, 0.49, 0.98, 2.3, 7.0])),
    bessel.i0: (jsp.i0, constant([-9.5, -2.0, 0.4, 4.5])),
    bessel.i1: (jsp.i1, constant([-9.5, -2.0, 0.4, 4.5])),
    bessel.i0e: (jsp.i0e, WIDE),
    bessel.i1e: (jsp.i1e, WIDE),
}
KINKED = {
    unary.abs_: jnp.abs,
    unary.sign: jnp.sign,
    unary.floor: jnp.floor,
    unary.ceil: jnp.ceil,
    unary.round_: lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    compare.is_finite: jnp.isfinite,
    identity.stop_gradient: lax.stop_gradient,
}
OF_COMPLEX = {
    unary.exp: jnp.exp,
    unary.log: jnp.log,
    unary.sqrt: jnp.sqrt,
    unary.sin: jnp.sin,
    unary.cos: jnp.cos,
    unary.tanh: jnp.tanh,
    arithmetic.neg: jnp.negative,
    complex.conj: jnp.conj,
    complex.real: jnp.real,
    complex.imag: jnp.imag,
    unary.abs_: jnp.abs,
    # JAX counts the sign of a complex number as constant.
    unary.sign: lambda z: z / jnp.abs(z),
}
COMPARISONS = {
    compare.eq: jnp.equal,
    compare.ne: jnp.not_equal,
    compare.lt: jnp.less,
    compare.le: jnp.less_equal,
    compare.gt: jnp.greater,
    compare.ge: jnp.greater_equal,
}
FOUR = {
    arithmetic.add: jnp.add,
    arithmetic.sub: jnp.subtract,
    arithmetic.mul: jnp.multiply,
    arithmetic.div: jnp.divide,
}
BITS = {
    compare.bitwise_and: jnp.bitwise_and,
    compare.bitwise_or: jnp.bitwise_or,
    compare.bitwise_xor: jnp.bitwise_xor,
    compare.shift_left: lax.shift_left,
    compare.shift_right_logical: lax.shift_right_logical,
    compare.shift_right_arithmetic: lax.shift_right_arithmetic,
}
BITS_OF_ONE = {
    compare.bitwise_not: jnp.invert,
    compare.population_count: lax.population_count,
    compare.clz: lax.clz,
}


def _pair(op: Any, oracle: Any, x: Draw, y: Draw, **options: Any) -> list[Case]:
    """Both operands whole, and each in turn a scalar that all elements see."""

    def scalar(draw: Draw) -> Draw:
        return lambda rng: draw(rng).reshape(-1)[0]

    return [
        Case(op, oracle, (x, y), **options),
        Case(op, oracle, (scalar(x), y), label="scalar-first", **options),
        Case(op, oracle, (x, scalar(y)), label="scalar-second", **options),
    ]


def _threefry(k0: Any, k1: Any, x0: Any, x1: Any) -> Any:
    key = jnp.stack([k0.reshape(-1)[0], k1.reshape(-1)[0]])
    counts = jnp.concatenate([x0.reshape(-1), x1.reshape(-1)])
    return threefry_2x32(key, counts).reshape(2, *x0.shape)


def _draw_word() -> Draw:
    return integers(0, 2**32, dtype="uint32")


def _nextafter(x: Any, y: Any) -> Any:
    """JAX has the value only; the derivative is that of x."""
    step = lax.nextafter(lax.stop_gradient(x), lax.stop_gradient(y)) - x
    return x + lax.stop_gradient(step)


def _words() -> list[Case]:
    args = (
        *(_draw_word() for _ in "ab"),
        *(integers(0, 2**32, 5, dtype="uint32"),) * 2,
    )
    oracles = {
        "first": lambda *xs: _threefry(*xs)[0],
        "second": lambda *xs: _threefry(*xs)[1],
        "xor": lambda *xs: _threefry(*xs)[0] ^ _threefry(*xs)[1],
    }
    return [
        Case(random_bits.threefry2x32, f, args, {"word": word}, label=word)
        for word, f in oracles.items()
    ]


def _integer_ops() -> list[Case]:
    a, b = integers(-9, 9, *SHAPE), integers(-3, 3, *SHAPE)
    nonzero = integers(1, 4, *SHAPE)
    special = (
        constant([-7, 7, -(2**31), 5, 0], "int32"),
        constant([2, -2, -1, 0, 0], "int32"),
    )
    out = [
        Case(op, f, (a, b), label="int32") for op, f in FOUR.items() if op.name != "div"
    ]
    out += [
        Case(arithmetic.div, lax.div, (a, nonzero), label="int32"),
        Case(arithmetic.div, lax.div, special, label="int32-special"),
        Case(binary.rem, lax.rem, (a, nonzero), label="int32"),
        Case(binary.rem, lax.rem, special, label="int32-special"),
        Case(binary.maximum, jnp.maximum, (a, b), label="int32"),
        Case(unary.sign, jnp.sign, (a,), label="int32"),
        Case(unary.abs_, jnp.abs, (a,), label="int32"),
        # (JAX reads six bits of an exponent.)
        Case(
            binary.power_of_integers,
            jnp.power,
            (a, integers(0, 64, *SHAPE)),
            label="int32",
        ),
    ]
    amounts = integers(0, 31, *SHAPE)
    for op, f in BITS.items():
        out.append(Case(op, f, (a, amounts), label="int32"))
    for op, f in BITS_OF_ONE.items():
        out.append(Case(op, f, (a,), label="int32"))
    out.append(
        Case(
            compare.shift_left,
            BITS[compare.shift_left],
            special[:1] * 2,
            label="too-far",
        )
    )
    masks = booleans(*SHAPE), booleans(*SHAPE)
    for op in (compare.bitwise_and, compare.bitwise_or, compare.bitwise_xor):
        out.append(Case(op, BITS[op], masks, label="bool"))
    return out


def _casts() -> list[Case]:
    edges = constant([0.0, -0.0, np.inf, -np.inf, np.nan, 240, 248, 2**-7, 1.5 * 2**-7])

    def convert(draw: Draw, dtype: str) -> Case:
        d = np.dtype(dtype)
        return Case(
            cast.convert,
            lambda x: lax.convert_element_type(x, d),
            (draw,),
            {"dtype": d},
            label=dtype,
            second=dtype != "float32",  # rounding has no finite differences
        )

    special = constant([np.nan, np.inf, -np.inf, 3e9, -1.5])
    return [
        convert(ANY, "float32"),
        convert(ANY, "int32"),
        convert(ANY, "complex128"),
        convert(integers(-5, 5, *SHAPE), "float64"),
        convert(special, "int32"),
        convert(booleans(*SHAPE), "float64"),
        Case(
            cast.bitcast,
            lambda x: lax.bitcast_convert_type(x, jnp.int64),
            (ANY,),
            {"dtype": np.dtype("int64")},
        ),
        *(
            Case(
                cast.reduce_precision,
                lambda x, e=e, m=m: lax.reduce_precision(x, e, m),
                (draw,),
                {"exponent_bits": e, "mantissa_bits": m},
                label=f"{label}-{e}-{m}",
                second=False,
            )
            for e, m in ((4, 3), (8, 30))
            for label, draw in (("any", ANY), ("edge", edges))
        ),
    ]


CASES = [
    *(Case(op, f, (draw,)) for op, (f, draw) in SMOOTH.items()),
    *(Case(op, f, (draw,)) for op, (f, draw) in SPECIAL.items()),
    *(Case(op, f, (ANY,), second=False) for op, f in KINKED.items()),
    *(Case(op, f, (COMPLEX,), label="complex") for op, f in OF_COMPLEX.items()),
    *(Case(op, f, (COMPLEX, COMPLEX), label="complex") for op, f in FOUR.items()),
    *(Case(op, f, (ANY, ANY)) for op, f in COMPARISONS.items()),
    *(case for op, f in FOUR.items() for case in _pair(op, f, POSITIVE, POSITIVE)),
    *_pair(binary.pow_, jnp.power, POSITIVE, ANY),
    *(
        Case(
            powers.power_of_size,
            lambda x, y, size: jnp.power(x, y),
            (POSITIVE, draw, draw),
            {"root": False},
            label=label,
        )
        for label, draw in (
            ("any", normal()),
            ("whole", lambda rng: np.asarray(5.0)),
            ("negative", lambda rng: np.asarray(-3.0)),
        )
    ),
    *_pair(binary.atan2, jnp.arctan2, POSITIVE, ANY),
    *_pair(binary.maximum, jnp.maximum, ANY, ANY),
    *_pair(binary.minimum, jnp.minimum, ANY, ANY),
    *_pair(binary.rem, lax.rem, distinct(*SHAPE), POSITIVE),
    Case(binary.nextafter, _nextafter, (ANY, ANY), second=False),
    Case(
        binary.clamp,
        lax.clamp,
        (between(-2, -0.5, *SHAPE), normal(*SHAPE), between(0.5, 2, *SHAPE)),
    ),
    *(
        Case(
            arithmetic.multiply_add,
            lambda x, y, z, f=f: f(x * y, z),
            (ANY, ANY, ANY),
            {"minus": minus},
            label=minus or "",
        )
        for minus, f in {
            None: lambda product, z: product + z,
            "term": lambda product, z: product - z,
            "product": lambda product, z: z - product,
        }.items()
    ),
    Case(unary.lgamma, lax.lgamma, (POSITIVE,)),
    Case(unary.digamma, lax.digamma, (POSITIVE,)),
    *(
        Case(
            unary.polygamma,
            lambda x, n=n: lax.polygamma(float(n), x),
            (POSITIVE,),
            {"n": n},
            label=str(n),
        )
        for n in (1, 2, 3)
    ),
    *(
        Case(
            unary.integer_pow,
            lambda x, n=n: lax.integer_pow(x, n),
            (POSITIVE,),
            {"n": n},
            label=str(n),
        )
        for n in (-2, 0, 1, 3)
    ),
    *(
        Case(
            powers.half_power,
            lambda x, n=n: lax.pow(x, n),
            (POSITIVE,),
            {"n": n},
            label=str(n),
        )
        for n in (-1.5, -0.5, 1.5, 2.5)
    ),
    Case(identity.checkpoint_name, lambda x: x, (ANY,), {"name": "x"}),
    Case(compare.select, jnp.where, (booleans(*SHAPE), ANY, ANY)),
    Case(compare.select, jnp.where, (booleans(), ANY, normal()), label="scalars"),
    Case(complex.complex_, lax.complex, (ANY, ANY)),
    Case(complex.parts, lambda z: jnp.stack([z.real, z.imag], -1), (COMPLEX,)),
    *_integer_ops(),
    *_casts(),
    *_words(),
]
