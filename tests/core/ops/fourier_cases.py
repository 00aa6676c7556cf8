"""Cases of the Fourier transforms."""

from __future__ import annotations

import jax.numpy as jnp

from tests.core.ops.cases import Case, complexes, normal
from treadle.ops import fourier


def _fft(label: str, *shape: int, axis: int, norm: str, inverse: bool = False) -> Case:
    oracle = jnp.fft.ifft if inverse else jnp.fft.fft
    return Case(
        fourier.fft,
        lambda x: oracle(x, axis=axis, norm=norm),
        (complexes(*shape),),
        {"axis": axis, "norm": norm, "inverse": inverse},
        label=label,
    )


def _rfft(label: str, *shape: int, axis: int, norm: str) -> Case:
    return Case(
        fourier.rfft,
        lambda x: jnp.fft.rfft(x, axis=axis, norm=norm),
        (normal(*shape),),
        {"axis": axis, "norm": norm},
        label=label,
    )


def _irfft(label: str, *shape: int, axis: int, norm: str, n: int) -> Case:
    return Case(
        fourier.irfft,
        lambda x: jnp.fft.irfft(x, n, axis=axis, norm=norm),
        (complexes(*shape),),
        {"axis": axis, "norm": norm, "n": n},
        label=label,
    )


CASES = [
    _fft("", 2, 4, axis=1, norm="backward"),
    _fft("columns", 2, 3, 2, axis=1, norm="ortho"),
    _fft("inverse", 5, 2, axis=0, norm="backward", inverse=True),
    _rfft("even", 2, 4, axis=1, norm="backward"),
    _rfft("odd", 5, 2, axis=0, norm="forward"),
    _rfft("one", 1, axis=0, norm="ortho"),
    _irfft("even", 2, 3, axis=1, norm="backward", n=4),
    _irfft("odd", 3, 2, axis=0, norm="ortho", n=5),
    _irfft("one", 1, axis=0, norm="forward", n=1),
]
