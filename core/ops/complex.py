"""Complex numbers and their parts.

Cotangents follow JAX: transposition never conjugates, and the pair (real, imaginary) of
a cotangent belongs to the real part and to minus the imaginary part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.ops.arithmetic import neg
from treadle.ops.elementwise import elementwise, linear_in
from treadle.ops.movement import zeros_like
from treadle.trace.lowering import Host
from treadle.trace.value import typeof

_HOST = Host("there is no native arithmetic of complex numbers")


def _zero_like(x: Any) -> Any:
    return zeros_like(typeof(x))


def _complex(re: Any, im: Any) -> Any:
    out = np.empty(np.broadcast_shapes(re.shape, im.shape), dtypes.to_complex(re.dtype))
    out.real, out.imag = re, im
    return out


real = elementwise(
    "real",
    np.real,
    [lambda g, out, x: real(g)],
    accepts=dtypes.is_complex,
    result=dtypes.to_real,
    transpose=linear_in(lambda ct, x: complex_(ct, _zero_like(ct))),
    lowering=_HOST,
)
imag = elementwise(
    "imag",
    np.imag,
    [lambda g, out, x: imag(g)],
    accepts=dtypes.is_complex,
    result=dtypes.to_real,
    transpose=linear_in(lambda ct, x: complex_(_zero_like(ct), neg(ct))),
    lowering=_HOST,
)
conj = elementwise(
    "conj",
    np.conjugate,
    [lambda g, out, x: conj(g)],
    accepts=dtypes.is_complex,
    transpose=linear_in(lambda ct, x: conj(ct)),
    lowering=_HOST,
)
complex_ = elementwise(
    "complex",
    _complex,
    [
        lambda g, out, re, im: complex_(g, _zero_like(g)),
        lambda g, out, re, im: complex_(_zero_like(g), g),
    ],
    accepts=lambda d: d in (dtypes.float32, dtypes.float64),
    result=dtypes.to_complex,
    transpose=linear_in(lambda ct, re, im: real(ct), lambda ct, re, im: neg(imag(ct))),
    lowering=_HOST,
)
"""The complex number with the given real and imaginary parts."""
