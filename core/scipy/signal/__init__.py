"""`treadle.scipy.signal`: convolutions, spectra, and what is taken off before."""

from treadle.scipy.signal.convolution import convolve as convolve
from treadle.scipy.signal.convolution import convolve2d as convolve2d
from treadle.scipy.signal.convolution import correlate as correlate
from treadle.scipy.signal.convolution import correlate2d as correlate2d
from treadle.scipy.signal.convolution import fftconvolve as fftconvolve
from treadle.scipy.signal.spectral import csd as csd
from treadle.scipy.signal.spectral import istft as istft
from treadle.scipy.signal.spectral import stft as stft
from treadle.scipy.signal.spectral import welch as welch
from treadle.scipy.signal.trend import detrend as detrend

__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]
