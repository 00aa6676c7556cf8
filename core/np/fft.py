"""`treadle.numpy.fft`: discrete Fourier transforms, differentiable and batched.

    import treadle.numpy as tnp
    spectrum = tnp.fft.rfft(x)

Names and arguments are those of `numpy.fft`. Single precision stays single; integers
and half floats are transformed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim, same_shape
from treadle.errors import at, user_source
from treadle.np.complex_parts import conj
from treadle.np.operands import ArrayLike, as_inexact, cast, one_axis, static_integer
from treadle.np.rearrange import roll
from treadle.ops import fourier
from treadle.ops.arithmetic import div
from treadle.ops.shape import concatenate as join
from treadle.ops.shape import iota, pad, slice_axis
from treadle.run.array import Array
from treadle.trace.value import typeof

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

Norm = Literal["backward", "ortho", "forward"] | None
_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _norm(name: str, norm: Norm) -> str:
    norm = "backward" if norm is None else norm
    if norm not in _OPPOSITE:
        raise ValueError(
            f"{name}: norm is 'backward', 'ortho' or 'forward', got {norm!r}"
            f"{at(user_source())}"
        )
    return norm


def _complex(name: str, x: ArrayLike) -> Any:
    x = as_inexact(name, x)
    dtype = typeof(x).dtype
    if dtype.itemsize == 2:
        dtype = dtypes.float32
    return cast(x, dtypes.to_complex(dtype))


def _real(name: str, x: ArrayLike) -> Any:
    x = as_inexact(name, x)
    dtype = typeof(x).dtype
    if dtypes.is_complex(dtype):
        raise TypeError(
            f"{name} takes real numbers, got {typeof(x)}{at(user_source())}\n"
            f"Use `{name.replace('rfft', 'fft').replace('ihfft', 'ifft')}`, or take"
            " `tnp.real(x)` first."
        )
    return cast(x, dtypes.float32) if dtype.itemsize == 2 else x


def _axis(name: str, x: Any, axis: int) -> int:
    ndim = typeof(x).ndim
    if not ndim:
        raise ValueError(
            f"{name} takes arrays with an axis, got a scalar{at(user_source())}"
        )
    return one_axis(name, axis, ndim)


def _length(name: str, n: Any, default: int) -> int:
    """Of how many numbers a transform is."""
    n = default if n is None else static_integer(name, "the length of a transform", n)
    if n < 1:
        raise ValueError(
            f"{name}: a transform of {n} numbers: there must be one or more"
            f"{at(user_source())}"
        )
    return n


def resized(x: Any, axis: int, n: int) -> Any:
    """x with n elements along an axis: the first ones, or zeros behind them."""
    t = typeof(x)
    have = t.shape[axis]
    if same_shape((have,), (n,)):
        return x
    if not is_dim(n) and not is_dim(have) and n < have:
        return slice_axis(x, axis, 0, n)
    none = (0, 0, 0)
    padding = [none] * t.ndim
    padding[axis] = (0, n - have, 0)
    return pad(x, t.dtype.type(0), padding=tuple(padding))


def _transform(
    name: str, x: Any, n: Any, axis: int, norm: str, inverse: bool = False
) -> Any:
    axis = _axis(name, x, axis)
    n = _length(name, n, typeof(x).shape[axis])
    return fourier.fft(resized(x, axis, n), axis=axis, norm=norm, inverse=inverse)


def fft(x: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None) -> Array:
    """The discrete Fourier transform along an axis, ``Σⱼ xⱼ exp(-2πi jk/n)``.

    Args:
      n: of how many numbers: x is cropped, or zeros are added; as many as there are by
        default.
      norm: "backward" (or None) multiplies nothing here and 1/n in the inverse,
        "forward" 1/n here, "ortho" 1/√n in both.

    Raises:
      ValueError: if `n`, `axis` or `norm` is none.

    >>> import treadle.numpy as tnp
    >>> tnp.fft.fft(tnp.array([1.0, 2.0, 3.0, 4.0]))
    Array([10.+0.j, -2.+2.j, -2.+0.j, -2.-2.j], dtype=complex64)
    """
    return _transform("fft", _complex("fft", x), n, axis, _norm("fft", norm))


def ifft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None
) -> Array:
    """The inverse of `fft`, with its arguments."""
    z = _complex("ifft", x)
    return _transform("ifft", z, n, axis, _norm("ifft", norm), inverse=True)


def rfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None
) -> Array:
    """The first ``n // 2 + 1`` numbers of the transform of n real numbers; the others
    are their conjugates. Arguments as those of `fft`.

    Raises:
      TypeError: if x is complex.

    >>> import treadle.numpy as tnp
    >>> tnp.fft.rfft(tnp.array([1.0, 2.0, 3.0, 4.0]))
    Array([10.+0.j, -2.+2.j, -2.+0.j], dtype=complex64)
    """
    return _half("rfft", x, n, axis, _norm("rfft", norm))


def _half(name: str, x: ArrayLike, n: int | None, axis: int, norm: str) -> Any:
    x = _real(name, x)
    axis = _axis(name, x, axis)
    n = _length(name, n, typeof(x).shape[axis])
    return fourier.rfft(resized(x, axis, n), axis=axis, norm=norm)


def irfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None
) -> Array:
    """The inverse of `rfft`: n real numbers, by default ``2 * (m - 1)`` of m.

    >>> import treadle.numpy as tnp
    >>> x = tnp.array([1.0, 2.0, 3.0])
    >>> tnp.fft.irfft(tnp.fft.rfft(x), n=3)
    Array([1., 2., 3.], dtype=float32)
    """
    return _whole("irfft", _complex("irfft", x), n, axis, _norm("irfft", norm))


def _whole(name: str, z: Any, n: int | None, axis: int, norm: str) -> Any:
    axis = _axis(name, z, axis)
    n = _length(name, n, 2 * (typeof(z).shape[axis] - 1))
    return fourier.irfft(resized(z, axis, n // 2 + 1), axis=axis, norm=norm, n=n)


def hfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None
) -> Array:
    """The transform of n numbers of which the second half are the conjugates of the
    first, which is x; its results are real."""
    opposite = _OPPOSITE[_norm("hfft", norm)]
    return _whole("hfft", conj(_complex("hfft", x)), n, axis, opposite)


def ihfft(
    x: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None
) -> Array:
    """The inverse of `hfft`: the first half of the inverse transform of real numbers.

    Raises:
      TypeError: if x is complex.
    """
    return conj(_half("ihfft", x, n, axis, _OPPOSITE[_norm("ihfft", norm)]))


# Several axes -------------------------------------------------------------------------

Sizes = Sequence[int] | None
Axes = Sequence[int] | None


def sizes_and_axes(
    name: str, x: Any, s: Sizes, axes: Axes
) -> tuple[list[Any], list[int]]:
    """For each axis of how many numbers a transform is, None for as many as there
    are."""
    ndim = typeof(x).ndim
    if axes is None:
        axes = range(ndim) if s is None else range(-len(s), 0)
    found = [one_axis(name, a, ndim) for a in axes]
    sizes: list[Any] = [None] * len(found) if s is None else list(s)
    if len(sizes) != len(found):
        raise ValueError(
            f"{name}: {len(sizes)} lengths for {len(found)} axes: s={tuple(sizes)}, "
            f"axes={tuple(axes)}{at(user_source())}"
        )
    # NumPy's way to say that an axis keeps its length.
    whole = [None if n is None or (not is_dim(n) and n == -1) else n for n in sizes]
    return whole, found


def _transforms(
    name: str, z: Any, s: Sizes, axes: Axes, norm: Norm, inverse: bool = False
) -> Any:
    sizes, places = sizes_and_axes(name, z, s, axes)
    how = _norm(name, norm)
    for n, axis in zip(reversed(sizes), reversed(places), strict=True):
        z = _transform(name, z, n, axis, how, inverse)
    return z


def fftn(x: ArrayLike, s: Sizes = None, axes: Axes = None, norm: Norm = None) -> Array:
    """The discrete Fourier transform along several axes, by default all.

    Args:
      s: of how many numbers along each: x is cropped, or zeros are added.
      axes: which; by default as many of the last as there are in s.
      norm: as for `fft`, for each axis.
    """
    return _transforms("fftn", _complex("fftn", x), s, axes, norm)


def ifftn(x: ArrayLike, s: Sizes = None, axes: Axes = None, norm: Norm = None) -> Array:
    """The inverse of `fftn`, with its arguments."""
    return _transforms("ifftn", _complex("ifftn", x), s, axes, norm, inverse=True)


def rfftn(x: ArrayLike, s: Sizes = None, axes: Axes = None, norm: Norm = None) -> Array:
    """`rfft` along the last of the axes, `fft` along the others."""
    return _halves("rfftn", x, s, axes, norm)


def _halves(name: str, x: ArrayLike, s: Sizes, axes: Axes, norm: Norm) -> Any:
    x = _real(name, x)
    sizes, places = sizes_and_axes(name, x, s, axes)
    _some(name, places)
    z = _half(name, x, sizes[-1], places[-1], _norm(name, norm))
    return _transforms(name, z, sizes[:-1], places[:-1], norm)


def irfftn(
    x: ArrayLike, s: Sizes = None, axes: Axes = None, norm: Norm = None
) -> Array:
    """The inverse of `rfftn`: along the last of the axes ``2 * (m - 1)`` of m, if `s`
    does not say how many."""
    return _wholes("irfftn", x, s, axes, norm)


def _wholes(name: str, x: ArrayLike, s: Sizes, axes: Axes, norm: Norm) -> Any:
    z = _complex(name, x)
    sizes, places = sizes_and_axes(name, z, s, axes)
    _some(name, places)
    z = _transforms(name, z, sizes[:-1], places[:-1], norm, inverse=True)
    return _whole(name, z, sizes[-1], places[-1], _norm(name, norm))


def _some(name: str, axes: Sequence[int]) -> None:
    if not axes:
        raise ValueError(f"{name} takes at least one axis{at(user_source())}")


_LAST_TWO = (-2, -1)


def fft2(
    x: ArrayLike, s: Sizes = None, axes: Axes = _LAST_TWO, norm: Norm = None
) -> Array:
    """`fftn` along the last two axes."""
    return _transforms("fft2", _complex("fft2", x), s, axes, norm)


def ifft2(
    x: ArrayLike, s: Sizes = None, axes: Axes = _LAST_TWO, norm: Norm = None
) -> Array:
    """`ifftn` along the last two axes."""
    return _transforms("ifft2", _complex("ifft2", x), s, axes, norm, inverse=True)


def rfft2(
    x: ArrayLike, s: Sizes = None, axes: Axes = _LAST_TWO, norm: Norm = None
) -> Array:
    """`rfftn` along the last two axes."""
    return _halves("rfft2", x, s, axes, norm)


def irfft2(
    x: ArrayLike, s: Sizes = None, axes: Axes = _LAST_TWO, norm: Norm = None
) -> Array:
    """`irfftn` along the last two axes."""
    return _wholes("irfft2", x, s, axes, norm)


# Frequencies --------------------------------------------------------------------------


def fftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: Any = None, device: Any = None
) -> Array:
    """The frequencies of the results of `fft`, for samples at a distance of d.

    >>> import treadle.numpy as tnp
    >>> tnp.fft.fftfreq(4, 0.5)
    Array([ 0. ,  0.5, -1. , -0.5], dtype=float32)
    """
    n = _length("fftfreq", n, 1)
    k = iota(shape=(n,), axis=0, dtype=np.dtype(np.int32))
    positive = (n + 1) // 2
    upper = slice_axis(k, 0, 0, n // 2) - n // 2
    return _frequencies(join(slice_axis(k, 0, 0, positive), upper, axis=0), n, d, dtype)


def rfftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: Any = None, device: Any = None
) -> Array:
    """The frequencies of the results of `rfft`, for samples at a distance of d."""
    n = _length("rfftfreq", n, 1)
    k = iota(shape=(n // 2 + 1,), axis=0, dtype=np.dtype(np.int32))
    return _frequencies(k, n, d, dtype)


def _frequencies(k: Any, n: int, d: Any, dtype: Any) -> Any:
    dtype = dtypes.float32 if dtype is None else dtypes.canonical(dtype)
    return div(cast(k, dtype), d * n)


def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """Moves the frequency zero to the middle of each axis, or of some.

    >>> import treadle.numpy as tnp
    >>> tnp.fft.fftshift(tnp.fft.fftfreq(4))
    Array([-0.5 , -0.25,  0.  ,  0.25], dtype=float32)
    """
    return _shifted("fftshift", x, axes, lambda n: n // 2)


def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, lambda n: (n + 1) // 2)


def _shifted(name: str, x: ArrayLike, axes: Any, by: Any) -> Any:
    shape = typeof(x).shape
    chosen = range(len(shape)) if axes is None else axes
    if not isinstance(chosen, Sequence):
        chosen = [chosen]
    places = [one_axis(name, a, len(shape)) for a in chosen]
    return roll(x, [by(shape[a]) for a in places], places)
