"""Functions from outside as operations: types, examples, and no derivatives."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
from tests.core.fuse.graphs import traced
from treadle.arraytype import ArrayType
from treadle.control.foreign import devices, foreign_call, scalar_call
from treadle.trace.foreign import Address, ScalarCode

F4 = np.dtype(np.float32)
X = np.arange(24, dtype=F4).reshape(2, 3, 4)
Y = np.float32([1, 10, 100, 1000])

CODE = """
define double @scaled(double %x, i32 %n) {
  %y = sitofp i32 %n to double
  %z = fmul double %x, %y
  ret double %z
}
"""


def code() -> ScalarCode:
    return devices().code_of_text(CODE)


def scaled(x: Any, n: Any) -> Any:
    return scalar_call(x, n, code=code())


# scalar_call --------------------------------------------------------------------------


def test_elements_go_through_code() -> None:
    x, n = (
        np.linspace(-1, 1, 6).reshape(2, 3),
        np.arange(6, dtype="int32").reshape(2, 3),
    )
    for run in (scaled, td.jit(scaled)):
        found = np.asarray(run(x, n))
        assert found.dtype == np.float64
        assert np.array_equal(found, x * n)
    # An operand without examples is the same for all.
    found = td.vmap(scaled, (1, None), 1)(x, n[0, :2])
    assert np.array_equal(found, x * n[0, :2, None])


@pytest.mark.parametrize(
    ("x", "n", "text"),
    [
        (np.zeros(2, F4), np.zeros(2, "int32"), r"takes \('float64', 'int32'\), got"),
        (np.zeros(2), np.zeros(2, "int64"), r"takes \('float64', 'int32'\), got"),
        (np.zeros(2), np.zeros(3, "int32"), "shapes"),
    ],
)
def test_code_takes_its_own_types(x: Any, n: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        traced(scaled, x, n)


def test_code_has_no_derivative() -> None:
    n = np.int32(2)  # a scalar beside an array
    with pytest.raises(TypeError, match=r"(?s)native code.*test_foreign.py.*partials="):
        td.grad(lambda x: scaled(x, n).sum())(np.ones(2))
    function = lambda x: (x + scaled(td.stop_gradient(x), n)).sum()  # noqa: E731
    assert np.array_equal(td.grad(function)(np.ones(2)), [1, 1])


# foreign_call -------------------------------------------------------------------------

SIGNATURE = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)
)
CALLS: list[tuple[int, ...]] = []


def array(address: int, *shape: int) -> np.ndarray:
    return np.ctypeslib.as_array(
        ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), shape
    )


@SIGNATURE
def rows(buffers: Any, sizes: Any) -> None:
    """Sums of products of rows with a vector, and those rows the other way round."""
    n, m = sizes[0], sizes[1]
    CALLS.append(tuple(sizes[:6]))
    x, y = array(buffers[0], n, m), array(buffers[1], m)
    array(buffers[2], n)[:] = x @ y
    array(buffers[3], m, n)[:] = x.T


FUNCTION = Address(ctypes.cast(rows, ctypes.c_void_p).value or 0, rows)


def products(x: Any, y: Any) -> Any:
    n, m = x.shape
    types = (ArrayType((n,), F4), ArrayType((m, n), F4))
    return foreign_call(x, y, function=FUNCTION, types=types, lead=0)


def wanted(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x @ y, x.T


def test_a_function_of_arrays_gets_memory_and_sizes() -> None:
    CALLS.clear()
    for run in (products, td.jit(products)):
        for found, right in zip(run(X[0], Y), wanted(X[0], Y), strict=True):
            assert np.array_equal(found, right)
    # What lies in another order is put in order first.
    for found, right in zip(
        products(X[0].T[:, ::-1], Y[:3]), wanted(X[0].T[:, ::-1], Y[:3]), strict=True
    ):
        assert np.array_equal(found, right)
    # Sizes of both operands, then of both results.
    assert CALLS == [(3, 4, 4, 3, 4, 3)] * 2 + [(4, 3, 3, 4, 3, 4)]


@pytest.mark.parametrize(
    ("axes", "args"),
    [
        ((0, None), (X, Y)),
        ((1, None), (X.swapaxes(0, 1), Y)),
        ((None, 0), (X[0], np.stack([Y, 2 * Y]))),
        ((2, 1), (np.moveaxis(X, 0, 2), np.stack([Y, 2 * Y], 1))),
    ],
)
def test_it_is_called_for_each_example(axes: Any, args: Any) -> None:
    x, y = (
        [a] * 2 if axis is None else np.moveaxis(a, axis, 0)
        for a, axis in zip(args, axes, strict=True)
    )
    each = [wanted(*pair) for pair in zip(x, y, strict=True)]
    mapped: Callable[..., Any] = td.vmap(products, axes)
    for run in (mapped, td.jit(mapped)):
        for i, found in enumerate(run(*args)):
            assert np.array_equal(found, np.stack([out[i] for out in each]))


def test_examples_of_examples_are_called_in_one_call() -> None:
    mapped = td.vmap(td.vmap(products, (0, None)), (1, 0))
    x, y = np.moveaxis(np.stack([X, X + 1, X - 1]), 0, 1), np.stack([Y, -Y, 2 * Y])
    graph = traced(mapped, x, y)
    (eq,) = [eq for eq in graph.equations if eq.op is foreign_call]
    assert eq.params["lead"] == 2
    assert eq.params["types"] == (ArrayType((3, 2, 3), F4), ArrayType((3, 2, 4, 3), F4))
    a, b = mapped(x, y)
    for i in range(3):
        for j in range(2):
            right = wanted(x[j, i], y[i])
            assert np.array_equal(a[i, j], right[0])
            assert np.array_equal(b[i, j], right[1])


def test_all_have_the_axes_of_the_batch() -> None:
    types = (ArrayType((2, 3), F4),)
    with pytest.raises(ValueError, match="by 1 axes"):
        traced(
            lambda x, y: foreign_call(x, y, function=FUNCTION, types=types, lead=1),
            X,
            Y,
        )
    with pytest.raises(ValueError, match="by 2 axes"):
        traced(
            lambda x: foreign_call(x, function=FUNCTION, types=types[:1], lead=2),
            X[:, :2],
        )


def test_a_c_function_has_no_derivative() -> None:
    with pytest.raises(
        TypeError, match=r"(?s)ffi_call has.*test_foreign.py.*custom_vjp"
    ):
        td.grad(lambda x: products(x, Y)[0].sum())(X[0])
