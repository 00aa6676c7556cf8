"""`treadle.scipy.fft`: cosine transforms, differentiable and batched.

Discrete Fourier transforms are in `treadle.numpy.fft`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle import np as tnp
from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.np.fft import resized, sizes_and_axes
from treadle.np.operands import ArrayLike, as_array, as_inexact, one_axis
from treadle.run.array import Array

__all__ = ["dct", "dctn", "idct", "idctn"]

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def dct(
    x: ArrayLike,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
) -> Array:
    """The discrete cosine transform of real numbers along an axis.

    Args:
      type: 1 to 4. The second one is ``2 Σⱼ xⱼ cos(πk(2j + 1) / 2n)``.
      n: of how many numbers: x is cropped, or zeros are added; all by default.
      norm: "backward" (or None) multiplies nothing here, and 1/2n in the inverse
        (1/(2n - 2) in type 1); "forward" the other way round; "ortho" makes the
        transform orthogonal.

    Raises:
      TypeError: for complex numbers.
      ValueError: for another type or norm, or no numbers (fewer than two, in type 1).

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.scipy.fft.dct(tnp.array([1.0, 1.0, 1.0])).round(3)
    Array([6., 0., 0.], dtype=float32)
    """
    return _along("dct", x, type, n, axis, norm)


def idct(
    x: ArrayLike,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
) -> Array:
    """The inverse of `dct`, with its arguments."""
    return _along("idct", x, type, n, axis, norm)


def dctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """`dct` along several axes: all, or as many last ones as there are lengths `s`."""
    return _along_all("dctn", x, type, s, axes, norm)


def idctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `dctn`, with its arguments."""
    return _along_all("idctn", x, type, s, axes, norm)


def _along_all(name: str, x: Any, type: int, s: Any, axes: Any, norm: Any) -> Any:
    x = as_array(as_inexact(name, x))
    sizes, places = sizes_and_axes(name, x, s, axes)
    for n, axis in zip(sizes, places, strict=True):
        x = _along(name, x, type, n, axis, norm)
    return x


def _along(name: str, x: Any, type: int, n: Any, axis: int, norm: Any) -> Any:
    x = as_array(as_inexact(name, x))
    dtype, norm = x.dtype, norm or "backward"
    if dtypes.is_complex(dtype):
        raise TypeError(f"{name} takes real numbers, got {x.type}{at(user_source())}")
    if type not in _INVERSE or norm not in _OPPOSITE:
        raise ValueError(
            f"{name}: type is 1, 2, 3 or 4, and norm 'backward', 'ortho' or 'forward', "
            f"got {type!r} and {norm!r}{at(user_source())}"
        )
    axis = one_axis(name, axis, x.ndim)
    n = x.shape[axis] if n is None else n
    if not is_dim(n) and n < 1 + (type == 1):
        raise ValueError(
            f"{name}: a transform of type {type} of {n} numbers{at(user_source())}"
        )
    if name.startswith("i"):
        type, norm = _INVERSE[type], _OPPOSITE[norm]
    x = tnp.moveaxis(resized(x, axis, n), axis, -1)
    wide = x.astype(dtypes.float32) if dtype.itemsize == 2 else x
    out = (_orthogonal if norm == "ortho" else _plain)(wide, type)
    if norm == "forward":
        out = out / (2 * (n - 1) if type == 1 else 2 * n)
    return tnp.moveaxis(out.astype(dtype), -1, axis)


def _turned(n: Any, dtype: Any, parts: Any, offset: float = 0.0) -> Any:
    """``exp(πi (k + offset) / parts)`` for n k's."""
    angles = (tnp.arange(n).astype(dtype) + offset) * (np.pi / parts)
    return tnp.cos(angles) + 1j * tnp.sin(angles)


def _plain(x: Any, type: int) -> Any:
    n, dtype = x.shape[-1], x.dtype
    if type == 1:
        mirrored = tnp.concatenate([x, tnp.flip(x[..., 1 : n - 1], -1)], -1)
        return tnp.fft.rfft(mirrored).real
    if type == 2:
        mirrored = tnp.concatenate([x, tnp.flip(x, -1)], -1)
        spectrum = tnp.fft.rfft(mirrored)[..., :n]
        return (spectrum * tnp.conj(_turned(n, dtype, 2 * n))).real
    if type == 3:
        spectrum = resized(x * _turned(n, dtype, 2 * n), x.ndim - 1, n + 1)
        return tnp.fft.irfft(spectrum, 2 * n, norm="forward")[..., :n]
    turned = x * tnp.conj(_turned(n, dtype, 2 * n))
    spectrum = tnp.fft.fft(turned, 2 * n)[..., :n]
    return 2 * (spectrum * tnp.conj(_turned(n, dtype, 2 * n, 0.5))).real


def _orthogonal(x: Any, type: int) -> Any:
    n, dtype = x.shape[-1], x.dtype
    places = tnp.arange(n)
    root, one = tnp.asarray(np.sqrt(0.5), dtype), tnp.asarray(1, dtype)
    first = tnp.where(places == 0, root, one)
    if type == 1:
        ends = tnp.where((places == 0) | (places == n - 1), root, one)
        return _plain(x / ends, 1) * ends / tnp.sqrt(tnp.asarray(2 * (n - 1), dtype))
    size = tnp.sqrt(tnp.asarray(2 * n, dtype))
    if type == 2:
        return _plain(x, 2) * first / size
    # The first number counts once there, all others twice.
    return _plain(x / first if type == 3 else x, type) / size
