"""Complex numbers and their parts.

Cotangents follow JAX: transposition never conjugates, and the pair (real, imaginary) of
a cotangent belongs to the real part and to minus the imaginary part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.arithmetic import neg
from treadle.ops.elementwise import elementwise, linear_in
from treadle.ops.movement import move_axis, zeros_like
from treadle.trace.lowering import Expanded, Join, Same
from treadle.trace.op import Op
from treadle.trace.value import typeof


def _zero_like(x: Any) -> Any:
    return zeros_like(typeof(x))


def _complex(re: Any, im: Any) -> Any:
    out = np.empty(np.broadcast_shapes(re.shape, im.shape), dtypes.to_complex(re.dtype))
    out.real, out.imag = re, im
    return out


def _complex_pieces(types: Any, steps: Any) -> list[tuple[int, tuple[int, ...]]]:
    """The parts alternate."""
    strides = tuple([2 * s for s in steps])
    return [(0, strides), (1, strides)]


def _parts_type(x: ArrayType) -> ArrayType:
    return ArrayType((*x.shape, 2), dtypes.to_real(x.dtype))


def _parts(x: Any) -> Any:
    pairs = np.ascontiguousarray(x)[..., None]
    return pairs.view(dtypes.to_real(x.dtype)).reshape(*x.shape, 2)


real = elementwise(
    "real",
    np.real,
    [lambda g, out, x: real(g)],
    accepts=dtypes.is_complex,
    result=dtypes.to_real,
    transpose=linear_in(lambda ct, x: complex_(ct, _zero_like(ct))),
    lowering=Expanded(),
)
imag = elementwise(
    "imag",
    np.imag,
    [lambda g, out, x: imag(g)],
    accepts=dtypes.is_complex,
    result=dtypes.to_real,
    transpose=linear_in(lambda ct, x: complex_(_zero_like(ct), neg(ct))),
    lowering=Expanded(),
)
conj = elementwise(
    "conj",
    np.conjugate,
    [lambda g, out, x: conj(g)],
    accepts=dtypes.is_complex,
    transpose=linear_in(lambda ct, x: conj(ct)),
    lowering=Expanded(),
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
    lowering=Join(_complex_pieces),
)
"""The complex number with the given real and imaginary parts."""

parts = Op(
    "parts",
    _parts_type,
    _parts,
    batch=lambda size, args, axes: (parts(args[0]), axes[0]),
    lowering=Same(),
    differentiable=False,
)
"""The parts of a complex array, along a new last axis: the same memory. The compiler
writes it; from a user's function it is not reached."""


def _words_type(x: ArrayType) -> ArrayType:
    if x.dtype != dtypes.complex64:
        raise TypeError(f"words are of 64 bits, got {x}")
    return ArrayType(x.shape, dtypes.uint64)


words = Op(
    "words",
    _words_type,
    lambda x: np.ascontiguousarray(x).view(np.uint64).reshape(x.shape),
    batch=lambda size, args, axes: (words(args[0]), axes[0]),
    lowering=Same(),
    differentiable=False,
)
"""Complex numbers of 64 bits as words: the same memory. The compiler writes it."""


def _whole_type(x: ArrayType) -> ArrayType:
    if x.dtype == dtypes.uint64:
        return ArrayType(x.shape, dtypes.complex64)
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise TypeError(f"parts are float32 or float64, got {x}")
    if not x.shape or x.shape[-1] != 2:
        raise ValueError(f"the last axis holds two parts, got {x}")
    return ArrayType(x.shape[:-1], dtypes.to_complex(x.dtype))


def _whole(x: Any) -> Any:
    if x.dtype == np.uint64:
        return np.ascontiguousarray(x).view(np.complex64).reshape(x.shape)
    return np.ascontiguousarray(x).view(dtypes.to_complex(x.dtype))[..., 0]


whole = Op(
    "whole",
    _whole_type,
    _whole,
    batch=lambda size, args, axes: (whole(move_axis(args[0], axes[0], 0)), 0),
    lowering=Same(),
    differentiable=False,
)
"""The complex array of which these are the `parts`, or the `words`: the same memory."""
