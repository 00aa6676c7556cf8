"""C functions on whole arrays. They are made by LLVM here: no compiler is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.run import native

SIGNATURE = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)
)

# out[i] = sum of x[i, :] * y, for x of shape (n, m).
PRODUCT = """
define void @rows(ptr %buffers, ptr %sizes) {
entry:
  %x = load ptr, ptr %buffers
  %y_at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y_at
  %out_at = getelementptr ptr, ptr %buffers, i64 2
  %out = load ptr, ptr %out_at
  %n = load i64, ptr %sizes
  %m_at = getelementptr i64, ptr %sizes, i64 1
  %m = load i64, ptr %m_at
  br label %row
row:
  %i = phi i64 [0, %entry], [%i_next, %row_end]
  %done = icmp sge i64 %i, %n
  br i1 %done, label %exit, label %begin
begin:
  %start = mul i64 %i, %m
  br label %column
column:
  %j = phi i64 [0, %begin], [%j_next, %more]
  %sum = phi float [0.0, %begin], [%sum_next, %more]
  %ended = icmp sge i64 %j, %m
  br i1 %ended, label %row_end, label %more
more:
  %k = add i64 %start, %j
  %a_at = getelementptr float, ptr %x, i64 %k
  %a = load float, ptr %a_at
  %b_at = getelementptr float, ptr %y, i64 %j
  %b = load float, ptr %b_at
  %ab = fmul float %a, %b
  %sum_next = fadd float %sum, %ab
  %j_next = add i64 %j, 1
  br label %column
row_end:
  %to = getelementptr float, ptr %out, i64 %i
  store float %sum, ptr %to
  %i_next = add i64 %i, 1
  br label %row
exit:
  ret void
}
"""


@cache
def address() -> int:
    source = native.Source(PRODUCT, "rows", lambda: PRODUCT)
    return native.load([source])[PRODUCT]


def times(x: Any, y: Any) -> Any:
    return td.ffi_call(address(), td.ShapeDtype((x.shape[0],), x.dtype), x, y)


RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 3, 4)).astype("float32")
Y = RNG.normal(size=(5, 4)).astype("float32")


def agree(function: Callable[..., Any], *args: Any, wanted: Any) -> None:
    for run in (function, td.jit(function)):
        np.testing.assert_allclose(run(*args), wanted, rtol=1e-5, atol=1e-6)


def test_a_c_function_of_arrays(checked_by_reference: None) -> None:
    agree(times, X[0], Y[0], wanted=X[0] @ Y[0])
    agree(
        lambda x, y: times(2 * x.T, y[:3]) + 1,
        X[0],
        Y[0],
        wanted=2 * X[0].T @ Y[0, :3] + 1,
    )
    agree(lambda x: times(x, tnp.ones(4)), X[0], wanted=X[0].sum(1))
    program = td.jit(times)
    text = str(program.explain(X[0], Y[0]))
    assert "foreign_call" in text and "host" not in text


def test_vmap_calls_it_for_each_example(checked_by_reference: None) -> None:
    both = np.einsum("bij,bj->bi", X, Y)
    agree(td.vmap(times), X, Y, wanted=both)
    agree(td.vmap(times, in_axes=(0, None)), X, Y[1], wanted=X @ Y[1])
    agree(td.vmap(times, in_axes=(None, 1), out_axes=1), X[0], Y.T, wanted=X[0] @ Y.T)
    twice = td.vmap(td.vmap(times, in_axes=(None, 0)), in_axes=(0, None))
    agree(twice, X, Y, wanted=np.einsum("aij,bj->abi", X, Y))


def test_sizes_may_be_open_and_loops_may_call_it() -> None:
    program = td.jit(times, dynamic={"x": ("n", "m"), "y": ("m",)})
    for n, m in ((3, 4), (1, 1), (7, 2)):
        x, y = RNG.normal(size=(n, m)).astype("float32"), np.ones(m, "float32")
        np.testing.assert_allclose(program(x, y), x.sum(1), rtol=1e-5, atol=1e-6)

    @td.jit
    def power(a: Any, v: Any) -> Any:
        return td.fori_loop(0, 3, lambda i, v: times(a, v), v)

    a = X[0, :, :3]
    np.testing.assert_allclose(power(a, Y[0, :3]), a @ (a @ (a @ Y[0, :3])), rtol=1e-4)


def test_its_derivative_is_given() -> None:
    @td.custom_vjp
    def product(x: Any, y: Any) -> Any:
        return times(x, y)

    product.defvjp(
        lambda x, y: (times(x, y), (x, y)),
        lambda known, ct: (ct[:, None] * known[1], times(known[0].T, ct)),
    )
    gradient = td.grad(lambda x, y: tnp.sum(product(x, y) ** 2), argnums=1)
    agree(gradient, X[0], Y[0], wanted=2 * X[0].T @ (X[0] @ Y[0]))
    mapped = td.vmap(gradient)
    agree(
        mapped,
        X,
        Y,
        wanted=2 * np.einsum("bij,bi->bj", X, np.einsum("bij,bj->bi", X, Y)),
    )


def test_a_function_of_ctypes_with_several_results() -> None:
    @SIGNATURE
    def both_ends(buffers: Any, sizes: Any) -> None:
        n = sizes[0]
        x = (ctypes.c_double * n).from_address(buffers[0])
        first = (ctypes.c_double * n).from_address(buffers[1])
        last = ctypes.c_int32.from_address(buffers[2])
        for i in range(n):
            first[i] = x[n - 1 - i]
        last.value = n * sizes[1]

    def call(x: Any) -> Any:
        kinds = {"first": x, "last": td.ShapeDtype((), "int32")}
        return td.ffi_call(both_ends, kinds, x)

    x = np.arange(4.0)
    for run in (call, td.jit(call)):
        found = run(x)
        np.testing.assert_array_equal(found["first"], x[::-1])
        assert int(found["last"]) == 16
    rows = td.jit(td.vmap(call))(np.arange(40.0).reshape(10, 4))
    np.testing.assert_array_equal(
        rows["first"], np.arange(40.0).reshape(10, 4)[:, ::-1]
    )


def test_nothing_to_do() -> None:
    empty = np.zeros((0, 3, 4), "float32")
    agree(td.vmap(times, in_axes=(0, None)), empty, Y[0], wanted=np.zeros((0, 3)))


KIND = td.ShapeDtype((3,), "float32")
WRONG: list[tuple[Any, str]] = [
    (
        lambda: td.ffi_call("rows", KIND, X),
        r"ffi_call of 'rows'[\s\S]*void \*\*buffers",
    ),
    (lambda: td.ffi_call(0, KIND, X), "ffi_call of 0"),
    (lambda: td.ffi_call(ctypes.CDLL(None).abs, KIND, X), "argtypes None"),
    (lambda: td.ffi_call(ctypes.CFUNCTYPE(None, ctypes.c_int)(), KIND, X), "argtypes"),
    (lambda: td.ffi_call(SIGNATURE(0), KIND, X), "null pointer"),
    (lambda: td.ffi_call(address(), KIND), "at least"),
    (lambda: td.ffi_call(address(), (), X), "at least"),
    (lambda: td.ffi_call(address(), KIND, "x"), "argument"),
    (lambda: td.ffi_call(address(), 3j.real.hex, X), "result type"),
    (
        lambda: td.grad(lambda x: times(x, x[0]).sum())(X[0]),
        r"ffi_call has no derivative[\s\S]*custom_vjp",
    ),
]


@pytest.mark.parametrize("call, message", WRONG, ids=lambda x: str(x)[:40])
def test_what_is_wrong_says_so_at_the_users_line(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        call()
    assert f"\n  at {__file__}" in str(caught.value)


def test_scalars_have_no_sizes() -> None:
    @SIGNATURE
    def scaled(buffers: Any, sizes: Any) -> None:
        n = sizes[0]
        factor = ctypes.c_float.from_address(buffers[0]).value
        x = (ctypes.c_float * n).from_address(buffers[1])
        out = (ctypes.c_float * n).from_address(buffers[2])
        for i in range(n):
            out[i] = factor * x[i]

    def call(factor: Any, x: Any) -> Any:
        return td.ffi_call(scaled, x, factor, x)

    agree(call, np.float32(3), Y[0], wanted=3 * Y[0])
    agree(lambda x: call(2.0, x[::2]), Y[0], wanted=2 * Y[0, ::2])
    agree(
        td.vmap(call, in_axes=(0, None)), Y[:, 0], Y[1], wanted=np.outer(Y[:, 0], Y[1])
    )
