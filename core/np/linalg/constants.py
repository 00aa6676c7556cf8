"""Matrices that are known by their size, by their names in `scipy.linalg`."""

from __future__ import annotations

from math import comb
from operator import index
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np.creation import array
from treadle.run.array import Array

_KINDS = ("symmetric", "lower", "upper")


def _size(name: str, n: Any, least: int = 0) -> int:
    n = index(n)
    if n < least:
        raise ValueError(
            f"{name}: n is a size of at least {least}, got {n}{at(user_source())}"
        )
    return n


def _made(elements: Any, n: int, dtype: DTypeLike) -> Array:
    """A square matrix by its elements, which may be whole numbers of any size."""
    found = [[float(elements(i, j)) for j in range(n)] for i in range(n)]
    return array(np.array(found).reshape(n, n), dtype)


def hilbert(n: int, *, dtype: DTypeLike = dtypes.float32) -> Array:
    """The Hilbert matrix, ``1 / (i + j + 1)`` counted from 0.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.hilbert(2)
    Array([[1.    , 0.5   ],
           [0.5   , 0.3333]], dtype=float32)
    """
    return _made(lambda i, j: 1 / (i + j + 1), _size("hilbert", n), dtype)


def invhilbert(n: int, *, dtype: DTypeLike = dtypes.float32) -> Array:
    """The inverse of the Hilbert matrix: of whole numbers, which the dtype rounds."""
    n = _size("invhilbert", n)

    def element(i: int, j: int) -> int:
        mixed = comb(n + i, n - j - 1) * comb(n + j, n - i - 1)
        return (-1) ** (i + j) * (i + j + 1) * mixed * comb(i + j, i) ** 2

    return _made(element, n, dtype)


def _kind(name: str, kind: str | None) -> str:
    kind = kind or "symmetric"
    if kind not in _KINDS:
        raise ValueError(
            f"{name}: kind is one of {', '.join(map(repr, _KINDS))}, got {kind!r}"
            f"{at(user_source())}"
        )
    return kind


def pascal(
    n: int, kind: str | None = None, *, dtype: DTypeLike = dtypes.float32
) -> Array:
    """Pascal's matrix of binomial coefficients.

    Args:
      kind: "symmetric" (or None): row i and column j hold i + j over i; "lower": i over
        j; "upper": the transpose of that.

    Raises:
      ValueError: for another kind.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.pascal(3)
    Array([[1., 1., 1.],
           [1., 2., 3.],
           [1., 3., 6.]], dtype=float32)
    """
    how = _kind("pascal", kind)
    elements = {
        "symmetric": lambda i, j: comb(i + j, i),
        "lower": comb,
        "upper": lambda i, j: comb(j, i),
    }
    return _made(elements[how], _size("pascal", n), dtype)


def invpascal(
    n: int, kind: str | None = None, *, dtype: DTypeLike = dtypes.float32
) -> Array:
    """The inverse of `pascal(n, kind)`."""
    how, n = _kind("invpascal", kind), _size("invpascal", n)
    elements = {
        "symmetric": lambda i, j: sum([comb(k, i) * comb(k, j) for k in range(n)]),
        "lower": comb,
        "upper": lambda i, j: comb(j, i),
    }
    return _made(lambda i, j: (-1) ** (i + j) * elements[how](i, j), n, dtype)


def hadamard(n: int, dtype: DTypeLike = dtypes.int32) -> Array:
    """Sylvester's Hadamard matrix: ones and minus ones, in orthogonal rows.

    Raises:
      ValueError: unless n is a power of 2.
    """
    n = _size("hadamard", n, 1)
    if n & (n - 1):
        raise ValueError(f"hadamard: n is a power of 2, got {n}{at(user_source())}")
    found = np.array([[1]])
    while found.shape[0] < n:
        found = np.block([[found, found], [found, -found]])
    return array(found, dtype)


def helmert(n: int, full: bool = False, *, dtype: DTypeLike = dtypes.float32) -> Array:
    """Helmert's matrix: orthonormal rows, of which all but the first have sum 0. The
    first is left out unless `full`."""
    n = _size("helmert", n, 1)
    found = np.tril(np.ones((n, n)), -1) - np.diag(np.arange(n))
    found[0] = 1
    sizes = np.arange(n) * np.arange(1, n + 1)
    sizes[0] = n
    found /= np.sqrt(sizes)[:, None]
    return array(found if full else found[1:], dtype)


def dft(
    n: int, scale: str | None = None, *, dtype: DTypeLike = dtypes.complex64
) -> Array:
    """The matrix of the discrete Fourier transform.

    Args:
      scale: "sqrtn" makes it unitary, "n" divides by n; None does nothing.

    Raises:
      ValueError: for another scale.
    """
    n = _size("dft", n)
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(
            f"dft: scale is None, 'sqrtn' or 'n', got {scale!r}{at(user_source())}"
        )
    turns = np.outer(np.arange(n), np.arange(n)) % max(n, 1) / max(n, 1)
    by = {None: 1.0, "sqrtn": np.sqrt(n), "n": n}[scale]
    return array(np.exp(-2j * np.pi * turns) / max(by, 1), dtype)
