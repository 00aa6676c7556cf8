"""Compiled against eager: one comparison that all random and small programs share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import treadle as td
from treadle.backends import memory
from treadle.backends.cpu import cost
from treadle.backends.cpu.run import callpath

TOLERANCE = {"float64": 1e-9, "float32": 5e-4, "float16": 3e-2, "bfloat16": 0.25}
TOLERANCE |= {"complex128": 1e-9, "complex64": 5e-4}


@contextmanager
def hard_conditions() -> Iterator[None]:
    """Every kernel is cut into many tasks, and fresh memory is full of NaN."""
    allocate = memory.SizeClass.allocate

    def poisoned(size_class: memory.SizeClass, nbytes: int) -> memory.Buffer:
        buffer = allocate(size_class, nbytes)
        ctypes.memset(buffer.address, 0xFF, nbytes)
        return buffer

    with (
        mock.patch.object(memory.SizeClass, "allocate", poisoned),
        # Native paths take blocks without asking.
        mock.patch.object(callpath, "available", lambda: False),
        mock.patch.object(cost, "_WORTH_SPLITTING_NS", 0),
        mock.patch.object(cost, "_TASK_NS", 1),
    ):
        yield


def values(out: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in td.tree.flatten(out)[0]]


def both(
    function: Callable[..., Any], args: Sequence[Any]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What a function gives when compiled, and what it gives without a compiler."""
    with td.disable_jit():
        wanted = values(function(*args))
    with hard_conditions():
        return values(td.jit(function)(*args)), wanted


def agrees(function: Callable[..., Any], args: Sequence[Any]) -> None:
    """Asserts that a compiled function gives what it gives without a compiler."""
    found, wanted = both(function, args)
    same(found, wanted, tolerance_of([*values(list(args)), *wanted]))


def agrees_exactly(function: Callable[..., Any], args: Sequence[Any]) -> None:
    """The same to the last bit, signs of zeros included."""
    for a, b in zip(*both(function, args), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(a[b == 0]), np.signbit(b[b == 0]))


def tolerance_of(arrays: Sequence[np.ndarray]) -> float:
    return max([TOLERANCE.get(x.dtype.name, 0.0) for x in arrays], default=0.0)


def same(
    found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float
) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            x, y = a.astype(wide), b.astype(wide)
            finite = np.abs(y[np.isfinite(y)])
            scale = max(1.0, float(finite.mean())) if finite.size else 1.0
            np.testing.assert_allclose(x, y, tolerance, tolerance * scale)
