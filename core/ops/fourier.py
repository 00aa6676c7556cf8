"""Discrete Fourier transforms of the lines of an array along one axis.

A transform of n numbers is scaled by its `norm`, as NumPy's is: by nothing, by
``n ** -0.5`` ("ortho"), or by ``1 / n``: "backward" puts that into the inverse,
"forward" into the other direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import is_dim, same_shape
from treadle.ops.arithmetic import mul
from treadle.ops.cast import convert
from treadle.ops.compare import bitwise_or, eq, select
from treadle.ops.complex import conj
from treadle.ops.shape import iota
from treadle.trace.lowering import Fourier
from treadle.trace.op import Op, Zero
from treadle.trace.routine import Kind, Transform
from treadle.trace.value import typeof

_POWERS = {"backward": 0.0, "ortho": 0.5, "forward": 1.0}
_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _script(
    types: Sequence[ArrayType],
    outs: Sequence[ArrayType],
    kind: Kind,
    n: int,
    axis: int,
    norm: str,
) -> Transform:
    """What a library is to do for these types."""
    (x,), (out,) = types, outs
    power = _POWERS[norm if kind in ("fft", "rfft") else _OPPOSITE[norm]]
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    if axis == x.ndim - 1 or (not is_dim(inner) and inner == 1):
        # Lines that follow each other are those of one matrix.
        outer, inner = 1, outer
        between = x.shape[axis], out.shape[axis]
        within = 1, 1
    else:
        between, within = (1, 1), (inner, inner)
    return Transform(
        kind,
        dtypes.to_real(x.dtype),
        n,
        power,
        outer,
        inner,
        (x.shape[axis], out.shape[axis]),
        between,
        within,
    )


def _check(name: str, x: ArrayType, axis: int, accepts: Callable[..., bool]) -> None:
    if not 0 <= axis < x.ndim:
        raise ValueError(f"{name} of {x} along axis {axis}")
    if not accepts(x.dtype):
        raise TypeError(f"{name} is not defined for dtype {x.dtype.name}")
    if not is_dim(x.shape[axis]) and x.shape[axis] == 0:
        raise ValueError(f"{name} of {x}, whose axis {axis} has no elements")


def _linear_jvp(op: Callable[[], Op]) -> Callable[..., Any]:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        out = op()(primals[0], **params)
        if isinstance(tangents[0], Zero):
            return out, Zero(typeof(out).strong())
        return out, op()(tangents[0], **params)

    return jvp


def _batched(op: Callable[[], Op]) -> Callable[..., Any]:
    def batch(size: int, args: Any, axes: Any, *, axis: int, **params: Any) -> Any:
        moved = axis + (axis >= axes[0])
        return op()(args[0], axis=moved, **params), axes[0]

    return batch


def _with_axis(shape: tuple[int, ...], axis: int, n: int) -> tuple[int, ...]:
    return (*shape[:axis], n, *shape[axis + 1 :])


# fft ----------------------------------------------------------------------------------


def _fft_type(x: ArrayType, *, axis: int, norm: str, inverse: bool) -> ArrayType:
    _check("fft", x, axis, dtypes.is_complex)
    return ArrayType(x.shape, x.dtype)


def _fft_run(x: Any, *, axis: int, norm: str, inverse: bool) -> Any:
    run: Callable[..., Any] = np.fft.ifft if inverse else np.fft.fft
    return run(x, axis=axis, norm=norm)


def _fft_script(types: Any, outs: Any, params: dict[str, Any]) -> Transform:
    axis = params["axis"]
    kind: Kind = "ifft" if params["inverse"] else "fft"
    return _script(types, outs, kind, types[0].shape[axis], axis, params["norm"])


fft = Op(
    "fft",
    _fft_type,
    _fft_run,
    jvp=_linear_jvp(lambda: fft),
    # The matrix of a transform is symmetric.
    transpose=lambda ct, x, **params: [fft(ct, **params)],
    batch=_batched(lambda: fft),
    lowering=Fourier(_fft_script),
)
"""The transform of complex lines along `axis`, or its inverse."""


# rfft ---------------------------------------------------------------------------------


def _rfft_type(x: ArrayType, *, axis: int, norm: str) -> ArrayType:
    _check("rfft", x, axis, _full_float)
    half = x.shape[axis] // 2 + 1
    return ArrayType(_with_axis(x.shape, axis, half), dtypes.to_complex(x.dtype))


def _full_float(dtype: np.dtype) -> bool:
    return dtype in (dtypes.float32, dtypes.float64)


def _rfft_script(types: Any, outs: Any, params: dict[str, Any]) -> Transform:
    axis = params["axis"]
    return _script(types, outs, "rfft", types[0].shape[axis], axis, params["norm"])


def _rfft_transpose(ct: Any, x: Any, *, axis: int, norm: str) -> list[Any]:
    """The inverse counts twice what stands for two conjugate numbers; the transpose
    counts each number once."""
    n, other = x.shape[axis], _OPPOSITE[norm]
    return [irfft(_scaled_pairs(conj(ct), axis, n, 0.5), axis=axis, norm=other, n=n)]


def _scaled_pairs(z: Any, axis: int, n: int, factor: float) -> Any:
    """Half a spectrum of n real numbers, in which those numbers are multiplied that
    stand for themselves and their conjugates: not the first, nor that in the middle."""
    t = typeof(z)
    k = iota(shape=t.shape, axis=axis, dtype=np.dtype(np.int32))
    alone = bitwise_or(eq(k, 0), eq(mul(k, 2), n))
    dtype = dtypes.to_real(t.dtype)
    weights = select(alone, dtype.type(1), dtype.type(factor))
    return mul(z, convert(weights, dtype=t.dtype))


rfft = Op(
    "rfft",
    _rfft_type,
    lambda x, *, axis, norm: np.fft.rfft(x, axis=axis, norm=norm),
    jvp=_linear_jvp(lambda: rfft),
    transpose=_rfft_transpose,
    batch=_batched(lambda: rfft),
    lowering=Fourier(_rfft_script),
)
"""The first half of the transform of real lines: ``n // 2 + 1`` complex numbers."""


# irfft --------------------------------------------------------------------------------


def _irfft_type(z: ArrayType, *, axis: int, norm: str, n: int) -> ArrayType:
    _check("irfft", z, axis, dtypes.is_complex)
    if not same_shape((z.shape[axis],), (n // 2 + 1,)):
        raise ValueError(f"irfft of {z} along axis {axis} to {n} numbers")
    return ArrayType(_with_axis(z.shape, axis, n), dtypes.to_real(z.dtype))


def _irfft_script(types: Any, outs: Any, params: dict[str, Any]) -> Transform:
    return _script(types, outs, "irfft", params["n"], params["axis"], params["norm"])


def _irfft_transpose(ct: Any, z: Any, *, axis: int, norm: str, n: int) -> list[Any]:
    spectrum = rfft(ct, axis=axis, norm=_OPPOSITE[norm])
    return [conj(_scaled_pairs(spectrum, axis, n, 2.0))]


irfft = Op(
    "irfft",
    _irfft_type,
    lambda z, *, axis, norm, n: np.fft.irfft(z, n, axis=axis, norm=norm),
    jvp=_linear_jvp(lambda: irfft),
    transpose=_irfft_transpose,
    batch=_batched(lambda: irfft),
    lowering=Fourier(_irfft_script),
)
"""The n real numbers of which `rfft` would make these. The imaginary parts of the first
and of that in the middle are not looked at."""
