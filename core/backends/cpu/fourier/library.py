"""The Fourier transforms of NumPy: pocketfft, called without the interpreter.

NumPy has them as generalised universal functions, whose inner loops are C functions
that need no lock: ``void loop(char **args, intp *sizes, intp *steps, void *data)``. The
record of such a function (`PyUFuncObject`, part of NumPy's C interface) says where they
are.
"""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from treadle.trace.routine import Kind

_NAMES: dict[Kind, tuple[str, str]] = {
    "fft": ("fft", "fft"),
    "ifft": ("ifft", "ifft"),
    "rfft": ("rfft_n_even", "rfft_n_odd"),
    "irfft": ("irfft", "irfft"),
}
_SIGNATURES = {"fft": "{0}{1}->{0}", "rfft": "{1}{1}->{0}", "irfft": "{0}{1}->{1}"}
_LETTERS = {"float32": ("F", "f"), "float64": ("D", "d")}


class Loop(NamedTuple):
    """Addresses: of a function for lines of even and of odd lengths, and of what it is
    given as its last argument."""

    even: int
    odd: int
    data: int


class _UFunc(ctypes.Structure):
    """The first fields of NumPy's record of a universal function."""

    _fields_ = (
        ("references", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        *[(name, ctypes.c_int) for name in ("nin", "nout", "nargs", "identity")],
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
    )


_Function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)


@cache
def loop(kind: Kind, dtype: np.dtype) -> Loop:
    """What transforms lines of real or complex numbers with parts of this dtype."""
    module = importlib.import_module("numpy.fft._pocketfft_umath")
    letters = _LETTERS[dtype.name]
    signature = _SIGNATURES[kind.removeprefix("i") if kind == "ifft" else kind]
    found = [
        _function(getattr(module, name), signature.format(*letters))
        for name in _NAMES[kind]
    ]
    (even, data), (odd, _) = found
    return Loop(even, odd, data)


def _function(ufunc: Any, signature: str) -> tuple[int, int]:
    record = _UFunc.from_address(id(ufunc))
    if (record.nin, record.nout, record.ntypes) != (2, 1, len(ufunc.types)):
        raise LookupError(f"{ufunc} is not laid out as expected")
    place = ufunc.types.index(signature)
    data = record.data[place] if record.data else 0
    return record.functions[place] or 0, data or 0


@cache
def available() -> bool:
    """Whether the functions were found, and transform as NumPy does."""
    try:
        return all([_works(np.dtype(name)) for name in _LETTERS])
    except (ImportError, AttributeError, LookupError, ValueError):
        return False


def _works(dtype: np.dtype) -> bool:
    """Transforms four numbers, which tells a wrong function, direction or dtype."""
    real = np.array([1, 2, 4, 8], dtype)
    spectrum = np.fft.rfft(real)
    numbers = real + 1j * real[::-1]
    pairs: dict[Kind, tuple[np.ndarray, np.ndarray]] = {
        "fft": (numbers, np.fft.fft(numbers)),
        "ifft": (numbers, 4 * np.fft.ifft(numbers)),
        "rfft": (real, spectrum),
        "irfft": (spectrum, 4 * real),
    }
    return all(
        [
            np.allclose(_call(loop(kind, dtype), x, wanted), wanted, rtol=1e-5)
            for kind, (x, wanted) in pairs.items()
        ]
    )


def _call(loop: Loop, x: np.ndarray, like: np.ndarray) -> np.ndarray:
    out, factor = np.zeros_like(like), np.ones(1, like.real.dtype)
    args = np.array([a.ctypes.data for a in (x, factor, out)], np.uint64)
    sizes = np.array([1, len(x), len(out)], np.int64)
    steps = np.array([0, 0, 0, x.itemsize, out.itemsize], np.int64)
    given = [a.ctypes.data for a in (args, sizes, steps)]
    _Function(loop.even)(*given, loop.data)
    return out
