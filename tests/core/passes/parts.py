"""Complex numbers as pairs of real ones, for rules that are run by themselves."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from treadle.passes.pairs import Pair

INF, NAN = float("inf"), float("nan")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3e30, 1e-30, INF, -INF, NAN]


def grid(parts: Any = None, dtype: str = "complex128") -> np.ndarray:
    """Each part with each other."""
    pairs = itertools.product(SPECIAL if parts is None else parts, repeat=2)
    return np.array([complex(a, b) for a, b in pairs], dtype)


def pair(z: Any) -> Pair:
    return Pair(np.ascontiguousarray(z.real), np.ascontiguousarray(z.imag))


def joined(found: Any) -> np.ndarray:
    """The complex array that a pair stands for; others as they are."""
    if not isinstance(found, Pair):
        return np.asarray(found)
    re, im = map(np.asarray, found)
    z = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
    z.real, z.imag = re, im
    return z


def equal(found: Any, wanted: Any, rtol: float = 1e-12) -> None:
    """Numbers agree to rounding of the whole, what is none and infinities exactly."""
    found, wanted = joined(found), np.asarray(wanted)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype == bool:
        assert np.array_equal(found, wanted)
        return
    plain = np.isfinite(wanted)
    error = abs(found[plain] - wanted[plain])
    assert (error <= rtol * abs(wanted[plain]) + 1e-300).all()
    for part in ("real", "imag"):
        a, b = getattr(found, part)[~plain], getattr(wanted, part)[~plain]
        np.testing.assert_allclose(a, b, rtol)
