"""Convolutions and correlations of arrays with any number of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle import dtypes
from treadle import np as tnp
from treadle.errors import at, user_source
from treadle.np.contract import check_precision
from treadle.np.operands import ArrayLike, as_array, operand, promoted
from treadle.ops.shape import pad
from treadle.ops.slide import slide
from treadle.run.array import Array

Span = tuple[Any, Any]
"""Of a full convolution along an axis: where what is wanted begins, and its length."""


def convolve(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    method: str = "auto",
    precision: Any = None,
) -> Array:
    """The convolution of two arrays with the same number of axes.

    Args:
      mode: "full", wherever they overlap; "same", the middle of that, of the first
        one's shape; "valid", where the smaller lies wholly within the larger.
      method: "direct", by products and sums; "fft", by Fourier transforms, for floats;
        "auto" is "direct".
      precision: is accepted, and changes nothing: products have all digits.

    Raises:
      ValueError: for another mode or method, other numbers of axes, arrays without
        elements, or if none lies within the other along all axes ("valid").

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.scipy.signal.convolve(tnp.array([1.0, 2.0, 3.0]), tnp.array([1.0, 1.0]))
    Array([1., 3., 5., 3.], dtype=float32)
    """
    check_precision("convolve", precision)
    x, y = _pair("convolve", in1, in2)
    if _by_fft("convolve", method):
        return fftconvolve(x, y, mode)
    return _slid(x, tnp.flip(y), _spans("convolve", mode, x.shape, y.shape))


def correlate(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    method: str = "auto",
    precision: Any = None,
) -> Array:
    """The correlation of two arrays: `convolve`, with the second one reversed and
    conjugated."""
    check_precision("correlate", precision)
    x, y = _pair("correlate", in1, in2)
    if _by_fft("correlate", method):
        return fftconvolve(x, tnp.flip(tnp.conj(y)), mode)
    return _slid(x, tnp.conj(y), _spans("correlate", mode, x.shape, y.shape))


def _pair(name: str, x: Any, y: Any, ndim: int | None = None) -> tuple[Any, Any]:
    """The operands in one dtype that has sums."""
    x, y = (as_array(a) for a in promoted(name, operand(name, x), operand(name, y)))
    if x.ndim != y.ndim or (ndim is not None and x.ndim != ndim):
        wanted = "the same number of" if ndim is None else ndim
        raise ValueError(
            f"{name} takes two arrays with {wanted} axes, got shapes {x.shape} and "
            f"{y.shape}{at(user_source())}"
        )
    if 0 in x.shape or 0 in y.shape:
        raise ValueError(
            f"{name}: there are no elements in shapes {x.shape} and {y.shape}"
            f"{at(user_source())}"
        )
    if x.dtype == dtypes.bool_:
        x, y = x.astype(dtypes.int32), y.astype(dtypes.int32)
    return x, y


def _by_fft(name: str, method: str) -> bool:
    if method not in ("auto", "direct", "fft"):
        raise ValueError(
            f"{name}: method is 'auto', 'direct' or 'fft', got {method!r}"
            f"{at(user_source())}"
        )
    return method == "fft"


def _spans(name: str, mode: str, first: Any, second: Any) -> list[Span]:
    pairs = list(zip(first, second, strict=True))
    if mode == "full":
        return [(0, n + k - 1) for n, k in pairs]
    if mode == "same":
        return [((k - 1) // 2, n) for n, k in pairs]
    if mode != "valid":
        raise ValueError(
            f"{name}: mode is 'full', 'same' or 'valid', got {mode!r}"
            f"{at(user_source())}"
        )
    if all(n >= k for n, k in pairs):
        return [(k - 1, n - k + 1) for n, k in pairs]
    if all(n <= k for n, k in pairs):
        return [(n - 1, k - n + 1) for n, k in pairs]
    raise ValueError(
        f"{name}: neither of shapes {first} and {second} lies within the other along "
        f"all axes{at(user_source())}"
    )


def _slid(x: Any, kernel: Any, spans: Sequence[Span]) -> Any:
    """The sums of products of x with a kernel at these places."""
    if not x.ndim:
        return x * kernel
    pairs = zip(x.shape, kernel.shape, strict=True)
    if all(n <= k for n, k in pairs):
        x, kernel = tnp.flip(kernel), tnp.flip(x)
    padding = []
    for n, k, (start, length) in zip(x.shape, kernel.shape, spans, strict=True):
        before = k - 1 - start
        padding.append((before, length - 1 + k - n - before, 0))
    x = pad(x, x.dtype.type(0), padding=tuple(padding))
    return slide(x, kernel, batch_dims=0)


def fftconvolve(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    axes: int | Sequence[int] | None = None,
) -> Array:
    """The convolution of two arrays by Fourier transforms: for long ones.

    Args:
      mode: as in `convolve`.
      axes: along which; along the others one element of each belongs to another, or
        one to all. All by default.

    Raises:
      ValueError: as `convolve`, and if the lengths of other axes don't fit.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x = td.scipy.signal.fftconvolve(tnp.array([1.0, 2.0]), tnp.array([1.0, 1.0]))
    >>> x.round(4)
    Array([1., 3., 2.], dtype=float32)
    """
    x, y = _pair("fftconvolve", in1, in2)
    x, y = promoted("fftconvolve", *[_inexact(a) for a in (x, y)])
    if not x.ndim:
        return x * y
    if axes is None:
        axes = range(x.ndim)
    chosen = [axes] if isinstance(axes, int) else list(axes)
    places = sorted({a % x.ndim if -x.ndim <= a < x.ndim else a for a in chosen})
    if len(places) != len(chosen) or places[-1:] >= [x.ndim] or places[:1] < [0]:
        raise ValueError(
            f"fftconvolve: axes {tuple(chosen)} of shape {x.shape}{at(user_source())}"
        )
    sizes = [[a.shape[i] for i in places] for a in (x, y)]
    spans = _spans("fftconvolve", mode, *sizes)
    lengths = [n + k - 1 for n, k in zip(*sizes, strict=True)]
    if dtypes.is_complex(x.dtype):
        forth, back = tnp.fft.fftn, tnp.fft.ifftn
    else:
        forth, back = tnp.fft.rfftn, tnp.fft.irfftn
    product = forth(x, lengths, places) * forth(y, lengths, places)
    full = back(product, lengths, places)
    cut: list[Any] = [slice(None)] * x.ndim
    for axis, (start, length) in zip(places, spans, strict=True):
        cut[axis] = slice(start, start + length)
    return full[tuple(cut)].astype(x.dtype)


def _inexact(x: Any) -> Any:
    return x if dtypes.is_differentiable(x.dtype) else x.astype(dtypes.float32)


# Two axes -----------------------------------------------------------------------------

_BOUNDARIES = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}


def convolve2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: Any = 0,
    precision: Any = None,
) -> Array:
    """The convolution of two matrices.

    Args:
      mode: as in `convolve`.
      boundary: what is around the first one: `fillvalue` ("fill"), it again ("wrap"),
        or its mirror image ("symm").

    Raises:
      ValueError: as `convolve`, and for another boundary.
    """
    check_precision("convolve2d", precision)
    x, y = _pair("convolve2d", in1, in2, 2)
    return _bounded("convolve2d", x, tnp.flip(y), mode, boundary, fillvalue)


def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: Any = 0,
    precision: Any = None,
) -> Array:
    """The correlation of two matrices: `convolve2d`, with the second one reversed and
    conjugated."""
    check_precision("correlate2d", precision)
    x, y = _pair("correlate2d", in1, in2, 2)
    return _bounded("correlate2d", x, tnp.conj(y), mode, boundary, fillvalue)


def _bounded(name: str, x: Any, y: Any, mode: str, boundary: str, fill: Any) -> Any:
    if boundary not in _BOUNDARIES:
        raise ValueError(
            f"{name}: boundary is one of {', '.join(map(repr, _BOUNDARIES))}, got "
            f"{boundary!r}{at(user_source())}"
        )
    spans = _spans(name, mode, x.shape, y.shape)
    if mode == "same" and name == "correlate2d":
        # SciPy's other middle, for kernels of an even length.
        spans = [(k // 2, n) for n, k in zip(x.shape, y.shape, strict=True)]
    if mode == "valid" or (boundary == "fill" and _is_zero(fill)):
        return _slid(x, y, spans)
    widths = [(k - 1, k - 1) for k in y.shape]
    how = {"constant_values": fill} if boundary == "fill" else {}
    around = tnp.pad(x, widths, _BOUNDARIES[boundary], **how)
    inner = [
        (start + k - 1, length)
        for (start, length), k in zip(spans, y.shape, strict=True)
    ]
    return _slid(around, y, inner)


def _is_zero(number: Any) -> bool:
    return isinstance(number, int | float) and number == 0
