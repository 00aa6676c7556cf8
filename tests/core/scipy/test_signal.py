"""Convolutions, spectra and cosine transforms, against SciPy and JAX."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.scipy.signal
import numpy as np
import pytest
import scipy.fft
import scipy.signal

import treadle as td
from treadle.scipy import fft, signal

MODES = ("full", "same", "valid")


def close(found: Any, wanted: Any, tolerance: float = 1e-10) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def draw(*shape: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = 3 * rng.normal(size=shape)
    if dtype.startswith("c"):
        x = x + 1j * rng.normal(size=shape)
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", ["float64", "complex128", "int32"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_convolutions_are_scipys(name: str, mode: str, dtype: str) -> None:
    ours, theirs = getattr(signal, name), getattr(scipy.signal, name)
    shapes = (((7,), (3,)), ((3,), (6,)), ((1,), (4,)), ((5, 4), (2, 3)))
    for first, second in (*shapes, ((2, 3, 4), (1, 2, 2))):
        x, y = draw(*first, dtype=dtype), draw(*second, dtype=dtype, seed=1)
        found, wanted = ours(x, y, mode), theirs(x, y, mode)
        close(found, wanted)
        assert found.dtype == dtype
        if dtype != "int32":
            close(ours(x, y, mode, "fft"), wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("boundary", ["fill", "wrap", "symm"])
@pytest.mark.parametrize("name", ["convolve2d", "correlate2d"])
def test_boundaries_are_scipys(name: str, boundary: str, mode: str) -> None:
    x, y = draw(5, 6), draw(3, 2, seed=1)
    for fill in (0, 2.0):
        wanted = getattr(scipy.signal, name)(x, y, mode, boundary, fill)
        close(getattr(signal, name)(x, y, mode, boundary, fill), wanted)


def test_fftconvolve_along_some_axes() -> None:
    x, y = draw(3, 6), draw(1, 4, seed=1)
    for mode in MODES:
        wanted = scipy.signal.fftconvolve(x, y, mode, axes=1)
        close(signal.fftconvolve(x, y, mode, axes=1), wanted)
        close(signal.fftconvolve(x, y, mode, axes=[-1]), wanted)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", ["linear", "constant"])
def test_detrend_is_scipys(kind: str, axis: int) -> None:
    x = draw(3, 20, 2)
    close(signal.detrend(x, axis, kind), scipy.signal.detrend(x, axis, kind))
    wanted = scipy.signal.detrend(x, 1, kind, [5, 9])
    close(signal.detrend(x, 1, kind, [5, 9]), wanted)


WELCH: list[dict[str, Any]] = [
    {},
    {"nperseg": 32, "fs": 10.0},
    {"nperseg": 31, "noverlap": 7},
    {"nperseg": 32, "nfft": 50, "window": "hamming"},
    {"nperseg": 32, "detrend": "linear", "scaling": "spectrum"},
    {"nperseg": 30, "detrend": False, "average": "median"},
    {"nperseg": 16, "return_onesided": False, "window": "bartlett"},
    {"window": draw(40) ** 2},
    {"axis": 0, "window": "blackman", "nperseg": 2},
]


@pytest.mark.parametrize("options", WELCH, ids=lambda o: " ".join(o))
def test_spectra_are_scipys(options: dict[str, Any]) -> None:
    x, y = draw(2, 260), draw(2, 260, seed=1)
    for found, wanted in (
        (signal.welch(x, **options), scipy.signal.welch(x, **options)),
        (signal.csd(x, y, **options), scipy.signal.csd(x, y, **options)),
    ):
        for f, w in zip(found, wanted, strict=True):
            close(f, w, 1e-9)


def test_spectra_of_other_lengths_and_complex_numbers() -> None:
    x, y = draw(2, 90), draw(2, 70, seed=1)
    wanted = scipy.signal.csd(x, y, nperseg=16)
    for f, w in zip(signal.csd(x, y, nperseg=16), wanted, strict=True):
        close(f, w, 1e-9)
    x, y = x + 1j * x[::-1], np.pad(1j * y, [(0, 0), (0, 20)])
    with warnings.catch_warnings():
        # SciPy says that complex signals have two sides.
        warnings.simplefilter("ignore")
        wanted = scipy.signal.csd(x, y, nperseg=16)
    for f, w in zip(signal.csd(x, y, nperseg=16), wanted, strict=True):
        close(f, w, 1e-9)


STFT: list[dict[str, Any]] = [
    {"nperseg": 32},
    {"nperseg": 31, "noverlap": 20},
    {"nperseg": 32, "boundary": "even"},
    {"nperseg": 32, "boundary": "odd"},
    {"nperseg": 32, "boundary": "constant", "axis": 0},
    {"nperseg": 32, "boundary": None, "padded": False},
    {"nperseg": 32, "nfft": 64},
    {"nperseg": 32, "fs": 8.0, "detrend": "constant"},
    {"nperseg": 16, "return_onesided": False},
]


@pytest.mark.parametrize("options", STFT, ids=lambda o: " ".join(o))
def test_stft_is_scipys(options: dict[str, Any]) -> None:
    x = draw(100) if "axis" in options else draw(2, 100)
    wanted = scipy.signal.stft(x, **options)
    for f, w in zip(signal.stft(x, **options), wanted, strict=True):
        close(f, w, 1e-9)


@pytest.mark.parametrize("options", [{}, {"noverlap": 20}, {"fs": 4.0}])
def test_istft_is_scipys(options: dict[str, Any]) -> None:
    x = draw(2, 100)
    z = scipy.signal.stft(x, nperseg=32, **options)[2]
    found, times = signal.istft(z, nperseg=32, **options)[::-1]
    wanted = scipy.signal.istft(z, nperseg=32, **options)[1]
    close(found, wanted, 1e-9)
    close(found[:, :100], x, 1e-9)
    # SciPy's times are as many as there are signals.
    close(times, np.arange(wanted.shape[-1]) / options.get("fs", 1.0))
    turned = np.moveaxis(z, (0, 1, 2), (2, 1, 0))
    again = signal.istft(turned, time_axis=0, freq_axis=1, **options)[1]
    close(np.moveaxis(np.asarray(again), 0, -1), wanted, 1e-9)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize(("name", "along_all"), [("dct", "dctn"), ("idct", "idctn")])
def test_cosine_transforms_are_scipys(
    name: str, along_all: str, kind: int, norm: Any
) -> None:
    ours, theirs = getattr(fft, name), getattr(scipy.fft, name)
    for n in (2, 3, 8):
        x = draw(3, n)
        for length in (None, 5):
            wanted = theirs(x, kind, length, norm=norm)
            close(ours(x, kind, length, norm=norm), wanted)
        close(ours(x, kind, axis=0, norm=norm), theirs(x, kind, axis=0, norm=norm))
    several = getattr(fft, along_all), getattr(scipy.fft, along_all)
    found, wanted = (f(x, kind, (2, 4), (1, 0), norm) for f in several)
    close(found, wanted)


SMOOTH: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "convolve": (lambda m, x, y: m.convolve(x, y, "same"), (9, 4)),
    "fftconvolve": (lambda m, x, y: m.fftconvolve(x, y), (9, 4)),
    "detrend": (lambda m, x, y: m.detrend(x) * y, (12, 12)),
    "welch": (lambda m, x, y: m.welch(x, nperseg=8)[1] * y, (24, 5)),
    "csd": (lambda m, x, y: abs(m.csd(x, y, nperseg=8)[1]), (24, 20)),
    "stft": (lambda m, x, y: abs(m.stft(x, nperseg=8)[2]) * y[:, None], (24, 5)),
    "istft": (
        lambda m, x, y: m.istft(m.stft(x, nperseg=8)[2], nperseg=8)[1] * y,
        (24, 24),
    ),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n != "convolve")) for n in SMOOTH],
)
def test_gradients_are_jaxs(name: str) -> None:
    function, lengths = SMOOTH[name]
    args = [draw(n, seed=i).astype("float32") for i, n in enumerate(lengths)]

    def loss(module: Any) -> Callable[..., Any]:
        return lambda x, y: (function(module, x, y) ** 2).sum()

    found = td.jit(td.grad(loss(signal), argnums=(0, 1)))(*args)
    wanted = jax.jit(jax.grad(loss(jax.scipy.signal), argnums=(0, 1)))(*args)
    for f, w in zip(found, wanted, strict=True):
        assert f.dtype == "float32"
        size = float(np.abs(w).max())
        np.testing.assert_allclose(f, w, rtol=1e-3, atol=1e-4 * size)
    batch = [np.stack([a, 2 * a]) for a in args]
    mapped = td.vmap(lambda x, y: function(signal, x, y))(*batch)
    assert mapped.dtype == "float32"
    close(mapped[0], function(signal, *args), 1e-4)


def test_a_cosine_transform_is_linear_and_its_inverse_ends_it() -> None:
    x = draw(2, 7).astype("float32")
    matrix = td.jacobian(fft.dct)(x[0])
    close(matrix @ x[0], fft.dct(x[0]), 1e-4)
    close(td.jit(lambda x: fft.idct(fft.dct(x)))(x), x, 1e-5)
    assert fft.dct(x.astype("float16")).dtype == "float16"
    assert fft.dct(np.arange(4)).dtype == "float32"


def test_sizes_may_be_open() -> None:
    def both(x: Any) -> Any:
        smooth = signal.convolve(x, np.ones(3, "float32"), "same")
        return fft.dct(signal.detrend(smooth))

    compiled = td.jit(both, dynamic={"x": ("n",)})
    for n in (8, 5, 21):
        x = draw(n).astype("float32")
        close(compiled(x), both(x), 1e-4)
    assert compiled.report().traces == 1


@pytest.mark.filterwarnings("ignore:nperseg:UserWarning")
@pytest.mark.parametrize("window", ["hann", "hamming", "blackman", "bartlett"])
def test_pieces_are_as_long_as_an_open_signal(window: str) -> None:
    """Shorter than a piece would be, a signal is one."""

    def spectra(module: Any, x: Any) -> Any:
        median = module.welch(x, window=window, nperseg=8, average="median")
        density = module.csd(x, 2 * x + 1, window=window)
        return density, median, module.stft(x, window=window)[1:]

    compiled = td.jit(lambda x: spectra(signal, x), dynamic={"x": ("n",)})
    for n in (300, 41, 64, 513):
        x = draw(n).astype("float32")
        wanted = td.tree.leaves(spectra(scipy.signal, x))
        for f, w in zip(td.tree.leaves(compiled(x)), wanted, strict=True):
            close(f, w, 1e-4)
            assert f.dtype.itemsize <= 8
    assert compiled.report().traces <= 4


WRONG = {
    "convolve: mode is 'full', 'same' or 'valid', got 'some'": (
        lambda: signal.convolve(np.ones(2), np.ones(2), "some")
    ),
    "convolve: method is 'auto', 'direct' or 'fft', got 'slow'": (
        lambda: signal.convolve(np.ones(2), np.ones(2), method="slow")
    ),
    "correlate takes two arrays with the same number of axes": (
        lambda: signal.correlate(np.ones(2), np.ones((2, 2)))
    ),
    "convolve: there are no elements": (
        lambda: signal.convolve(np.ones(0), np.ones(2))
    ),
    "convolve2d takes two arrays with 2 axes": (
        lambda: signal.convolve2d(np.ones(2), np.ones(2))
    ),
    "lies within the other along all axes": (
        lambda: signal.convolve(np.ones((2, 3)), np.ones((3, 2)), "valid")
    ),
    "fftconvolve: axes (2,) of shape (2, 2)": (
        lambda: signal.fftconvolve(np.ones((2, 2)), np.ones((2, 2)), axes=2)
    ),
    "welch: window 'round' is none of": lambda: signal.welch(
        np.ones(9), window="round"
    ),
    "(nperseg), of which 8 overlap": (
        lambda: signal.welch(np.ones(9), nperseg=8, noverlap=8)
    ),
    "detrend: lines begin at 7, of 5 numbers": (
        lambda: signal.detrend(np.ones(5), bp=7)
    ),
    "stft: boundary is None or one of": (
        lambda: signal.stft(np.ones(9), nperseg=4, boundary="none")
    ),
    "dct: type is 1, 2, 3 or 4": lambda: fft.dct(np.ones(3), 5),
    "dct: a transform of type 1 of 1 numbers": lambda: fft.dct(np.ones(1), 1),
}


@pytest.mark.parametrize("message", WRONG)
def test_errors_name_the_values_and_the_line(message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        WRONG[message]()
    assert f"at {__file__}:" in str(caught.value)
