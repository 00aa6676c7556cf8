"""`treadle.numpy.fft`: discrete Fourier transforms, differentiable and batched.

    import treadle.numpy as tnp
    spectrum = tnp.fft.rfft(x)

Names and arguments are those of `numpy.fft`.
"""

from treadle.names import suggest as _suggest
from treadle.np.fft import *  # noqa: F403

_suggest("treadle.numpy.fft")
