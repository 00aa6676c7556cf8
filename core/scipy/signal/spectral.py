"""Spectra of signals, by Fourier transforms of windowed pieces."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from treadle import dtypes
from treadle import np as tnp
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike, as_array, as_inexact, one_axis, promoted
from treadle.run.array import Array
from treadle.scipy.operands import whole
from treadle.scipy.signal.trend import detrend as without_trend

_COSINES = {
    "boxcar": (1.0,),
    "hann": (0.5, -0.5),
    "hamming": (0.54, -0.46),
    "blackman": (0.42, -0.5, 0.08),
}
"""Of windows that are sums of cosines: what these are multiplied by."""

_WINDOWS = *_COSINES, "bartlett"
_EXTENSIONS = {"zeros": "constant", "even": "reflect", "odd": "reflect"}
_EXTENSIONS["constant"] = "edge"


class _Pieces(NamedTuple):
    """How a signal is cut. length: of a piece; step: from one to the next; n: numbers
    of a transform; window: as long as a piece."""

    length: int
    step: int
    n: int
    window: Any


def _window(name: str, window: Any, n: int | None, dtype: Any) -> tuple[Any, int]:
    """A window, and its length: n, or for an array as long as that is."""
    if isinstance(window, str):
        assert n is not None
        if window not in _WINDOWS:
            raise ValueError(
                f"{name}: window {window!r} is none of "
                f"{', '.join(map(repr, _WINDOWS))}{at(user_source())}\n"
                "Give another one as an array."
            )
        return _period(window, n).astype(dtype), n
    found = as_array(as_inexact(name, window)).astype(dtype)
    if found.ndim != 1 or n not in (None, found.shape[0]):
        raise ValueError(
            f"{name}: a window of shape {found.shape} for pieces of {n} numbers"
            f"{at(user_source())}"
        )
    return found, found.shape[0]


def _period(window: str, n: int) -> Any:
    """The n numbers of a period of a window, the first of the next one left out: in
    float64, so that no dtype sees their rounding. The length may be open."""
    place = tnp.arange(n, dtype=dtypes.float64) / n
    if window == "bartlett":
        return 1 - tnp.abs(2 * place - 1)
    return sum(
        weight * tnp.cos(place * (2 * math.pi * k))
        for k, weight in enumerate(_COSINES[window])
    )


def _pieces(
    name: str,
    window: Any,
    length: int | None,
    overlap: int | None,
    n: int | None,
    size: int,
    dtype: Any,
) -> _Pieces:
    if length is None and isinstance(window, str):
        length = 256
    if length is not None:
        length = min(whole(name, "nperseg", length, 1), size)
    window, length = _window(name, window, length, dtype)
    overlap = length // 2 if overlap is None else whole(name, "noverlap", overlap, 0)
    n = length if n is None else whole(name, "nfft", n, 1)
    if n < length or overlap >= length or length > size:
        raise ValueError(
            f"{name}: pieces of {length} numbers (nperseg), of which {overlap} overlap "
            f"(noverlap), and transforms of {n} (nfft), for a signal of {size}"
            f"{at(user_source())}"
        )
    return _Pieces(length, length - overlap, n, window)


def _cut(x: Any, pieces: _Pieces) -> Any:
    """The pieces of x along its last axis: shape (..., pieces, length)."""
    count = (x.shape[-1] - pieces.length) // pieces.step + 1
    starts = tnp.arange(count)[:, None] * pieces.step
    return x[..., starts + tnp.arange(pieces.length)]


def _transformed(x: Any, pieces: _Pieces, trend: Any, half: bool) -> Any:
    cut = _cut(x, pieces)
    if callable(trend):
        cut = trend(cut)
    elif trend:
        cut = without_trend(cut, type=trend)
    transform = tnp.fft.rfft if half else tnp.fft.fft
    return tnp.swapaxes(transform(cut * pieces.window, pieces.n), -1, -2)


def _frequencies(pieces: _Pieces, fs: Any, half: bool, dtype: Any) -> Any:
    find = tnp.fft.rfftfreq if half else tnp.fft.fftfreq
    return find(pieces.n, dtype=dtype) * fs


def _power(name: str, window: Any, scaling: str, fs: Any) -> Any:
    """What the squares of a spectrum are multiplied by."""
    if scaling not in ("density", "spectrum"):
        raise ValueError(
            f"{name}: scaling is 'density' or 'spectrum', got {scaling!r}"
            f"{at(user_source())}"
        )
    if scaling == "density":
        return 1 / (fs * (window * window).sum())
    return 1 / window.sum() ** 2


def csd(
    x: ArrayLike,
    y: ArrayLike,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Frequencies, and the cross power spectral density of two signals, by the mean
    over pieces (Welch 1967).

    Args:
      fs: how many numbers there are in a unit of time.
      window: "boxcar", "hann", "hamming", "blackman" or "bartlett", or an array.
      nperseg: the length of a piece: 256, or that of the window; at most all.
      noverlap: how many numbers two pieces share; half of them by default.
      nfft: the length of a transform; zeros are added. `nperseg` by default.
      detrend: what is taken off each piece: "constant", "linear", a function of pieces
        along the last axis, or False for nothing.
      return_onesided: gives real signals no negative frequencies. (Complex ones always
        have them.)
      scaling: "density", the power in a unit of frequency; or "spectrum".
      axis: that of time.
      average: "mean" or "median" of the pieces.

    Raises:
      ValueError: for options that don't fit each other or the signals.
    """
    return _welch(
        "csd",
        x,
        y,
        fs,
        window,
        (nperseg, noverlap, nfft),
        detrend,
        return_onesided,
        scaling,
        axis,
        average,
    )


def welch(
    x: ArrayLike,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Frequencies, and the power spectral density of a signal; arguments as those of
    `csd`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> wave = tnp.sin(tnp.arange(64.0) * tnp.pi / 2)
    >>> frequencies, power = td.scipy.signal.welch(wave, nperseg=16)
    >>> float(frequencies[power.argmax()])
    0.25
    """
    return _welch(
        "welch",
        x,
        None,
        fs,
        window,
        (nperseg, noverlap, nfft),
        detrend,
        return_onesided,
        scaling,
        axis,
        average,
    )


def _welch(
    name: str,
    x: Any,
    y: Any,
    fs: Any,
    window: Any,
    lengths: Any,
    trend: Any,
    onesided: bool,
    scaling: str,
    axis: int,
    average: str,
) -> tuple[Array, Array]:
    signals = [as_inexact(name, a) for a in ((x,) if y is None else (x, y))]
    signals = [as_array(a) for a in promoted(name, *signals)]
    signals = [tnp.moveaxis(a, one_axis(name, axis, a.ndim), -1) for a in signals]
    size = max([a.shape[-1] for a in signals])
    signals = [_longer(a, size) for a in signals]
    dtype = signals[0].dtype
    real = dtypes.to_real(dtype)
    half = onesided and not dtypes.is_complex(dtype)
    length, overlap, n = lengths
    pieces = _pieces(name, window, length, overlap, n, size, real)
    spectra = [_transformed(a, pieces, trend, half) for a in signals]
    first, last = spectra[0], spectra[-1]
    power = tnp.conj(first) * last * _power(name, pieces.window, scaling, fs)
    if half:
        # What is said of a negative frequency, too; there is none of zero and of half.
        place = tnp.arange(pieces.n // 2 + 1)
        alone = (place == 0) | (2 * place == pieces.n)
        power = power * tnp.where(alone, 1, 2).astype(real)[:, None]
    power = _averaged(name, power if y is not None else power.real, average)
    frequencies = _frequencies(pieces, fs, half, real)
    return frequencies, tnp.moveaxis(power, -1, axis)


def _longer(x: Any, n: int) -> Any:
    """x with zeros at its end, n numbers along the last axis."""
    return tnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n - x.shape[-1])])


def _averaged(name: str, power: Any, average: str) -> Any:
    if average == "mean":
        return power.mean(-1)
    if average != "median":
        raise ValueError(
            f"{name}: average is 'mean' or 'median', got {average!r}{at(user_source())}"
        )
    # The median of such powers is less than their mean (Allen et al. 2012, appendix B).
    n = power.shape[-1]
    even = 2.0 * tnp.arange(1, (n - 1) // 2 + 1, dtype=dtypes.float64)
    bias = 1 + tnp.sum(1 / (even + 1) - 1 / even)
    if dtypes.is_complex(power.dtype):
        middle = tnp.median(power.real, -1) + 1j * tnp.median(power.imag, -1)
    else:
        middle = tnp.median(power, -1)
    return middle / bias.astype(dtypes.to_real(power.dtype))


def stft(
    x: ArrayLike,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Array, Array, Array]:
    """Frequencies, times, and the Fourier transforms of pieces around these times: the
    axis of time becomes one of frequencies, and times are the last one.

    Args:
      boundary: what is added at both ends, half a piece: "zeros", the signal's mirror
        image ("even", or "odd" around the end), its last number ("constant"), or None.
      padded: adds zeros at the end until pieces fit.

    The others as those of `csd`. `istft` is the inverse.

    Raises:
      ValueError: for options that don't fit each other or the signal.

    >>> import treadle as td, treadle.numpy as tnp
    >>> _, _, z = td.scipy.signal.stft(tnp.arange(8.0), nperseg=4)
    >>> z.shape
    (3, 5)
    >>> td.scipy.signal.istft(z)[1]
    Array([0., 1., 2., 3., 4., 5., 6., 7.], dtype=float32)
    """
    name = "stft"
    if boundary is not None and boundary not in _EXTENSIONS:
        raise ValueError(
            f"{name}: boundary is None or one of {', '.join(map(repr, _EXTENSIONS))}, "
            f"got {boundary!r}{at(user_source())}"
        )
    signal = as_array(as_inexact(name, x))
    axis = one_axis(name, axis, signal.ndim)
    signal = tnp.moveaxis(signal, axis, -1)
    real = dtypes.to_real(signal.dtype)
    half = return_onesided and not dtypes.is_complex(signal.dtype)
    pieces = _pieces(name, window, nperseg, noverlap, nfft, signal.shape[-1], real)
    side = pieces.length // 2
    if boundary is not None:
        how: dict[str, Any] = {"mode": _EXTENSIONS[boundary]}
        if boundary == "odd":
            how["reflect_type"] = "odd"
        signal = tnp.pad(signal, [(0, 0)] * (signal.ndim - 1) + [(side, side)], **how)
    if padded:
        more = -(signal.shape[-1] - pieces.length) % pieces.step % pieces.length
        signal = _longer(signal, signal.shape[-1] + more)
    found = _transformed(signal, pieces, detrend, half) / pieces.window.sum()
    middle = 0.0 if boundary is not None else pieces.length / 2
    times = (tnp.arange(found.shape[-1]) * pieces.step).astype(real) + middle
    frequencies = _frequencies(pieces, fs, half, real)
    return frequencies, times / fs, tnp.moveaxis(found, -2, axis)


def istft(
    Zxx: ArrayLike,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:
    """Times, and the signal that `stft` would make these transforms of, by least
    squares (Griffin and Lim 1984).

    Args:
      input_onesided: there are no negative frequencies.
      boundary: half a piece was added at both ends.
      time_axis, freq_axis: where the times and the frequencies are.

    The others as those of `stft`.

    Raises:
      ValueError: for options that don't fit each other or the transforms.
    """
    name = "istft"
    z = as_array(as_inexact(name, Zxx))
    t, f = (one_axis(name, a, z.ndim) for a in (time_axis, freq_axis))
    if t == f:
        raise ValueError(
            f"{name}: times and frequencies are along one axis, {t}{at(user_source())}"
        )
    z = tnp.moveaxis(z, (t, f), (-2, -1))
    real = dtypes.to_real(z.dtype)
    default = 2 * (z.shape[-1] - 1) if input_onesided else z.shape[-1]
    length = default if nperseg is None else whole(name, "nperseg", nperseg, 1)
    n = default + (input_onesided and length == default + 1) if nfft is None else nfft
    pieces = _pieces(name, window, length, noverlap, n, length, real)
    parts = (tnp.fft.irfft if input_onesided else tnp.fft.ifft)(z, pieces.n)
    parts = parts[..., : pieces.length] * pieces.window * pieces.window.sum()
    weight = tnp.broadcast_to(pieces.window**2, parts.shape[-2:])
    x, weights = _added(parts, pieces), _added(weight, pieces)
    if boundary:
        inner = slice(pieces.length // 2, x.shape[-1] - pieces.length // 2)
        x, weights = x[..., inner], weights[inner]
    x = x / tnp.where(weights > 1e-10, weights, 1)
    times = tnp.arange(x.shape[-1]).astype(real) / fs
    return times, tnp.moveaxis(x, -1, t - (f < t))


def _added(parts: Any, pieces: _Pieces) -> Any:
    """Pieces, added where they lie: from (..., pieces, length) to (..., time)."""
    *lead, count, length = parts.shape
    places = tnp.arange(count)[:, None] * pieces.step + tnp.arange(length)
    whole_length = (count - 1) * pieces.step + length
    return tnp.zeros((*lead, whole_length), parts.dtype).at[..., places].add(parts)
