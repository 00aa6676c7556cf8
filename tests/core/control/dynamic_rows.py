"""Programs of the ops that hold a graph or a Python function, with axes of any size."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import floats, ints
from tests.core.extend.test_ffi import times
from tests.core.extend.test_kernel import libm
from tests.core.ops.dynamic_rows import Row
from treadle.trace.op import registry

X, ROWS_OF_X, VECTOR = floats("n 4"), floats("n m"), floats("4")
SQUARE = floats("n n m")
SUMS = "how members are summed depends on whether there is one"


def _row(op: str, label: str, function: Any, *args: Any, **options: Any) -> Row:
    return Row(registry[op], label, function, args, **options)


def _step(c: Any, x: Any) -> Any:
    c = tnp.tanh(c * 0.5 + x)
    return c, c * x


def _halved(x: Any, **memory: Any) -> Any:
    """Halves until it is small."""
    return td.while_loop(
        lambda s: tnp.max(tnp.abs(s[1])) > 0.5,
        lambda s: (s[0] + 1, s[1] * 0.5 - tnp.mean(s[1]) * 0.1),
        (0, x),
        **memory,
    )


def _decayed(x: Any) -> Any:
    way = {"max_steps": 20, "remember": "steps"}
    return td.while_loop(
        lambda c: tnp.max(c) > 0.5, lambda c: c * 0.5 * tnp.cos(c), x, **way
    )


@td.sequential_vmap
def _one_by_one(x: Any) -> Any:
    return x / tnp.sum(x * x)


_root = td.kernel(libm("cbrtf", ctypes.c_float, ctypes.c_float))


@td.custom_jvp
def _cube(x: Any) -> Any:
    return x * x * x


@_cube.defjvp
def _cube_jvp(primals: Any, tangents: Any) -> Any:
    ((x,), (t,)) = primals, tangents
    return _cube(x), 3 * x * x * t


@td.custom_vjp
def _square(x: Any) -> Any:
    return x * x


_square.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * ct * x,))


@td.custom_vjp
def _product(x: Any, y: Any) -> Any:
    return x * y


_product.defvjp(
    lambda x, y: (x.value * y.value, (x.value, y.value if x.perturbed else None)),
    lambda res, ct: (None if res[1] is None else ct * res[1], ct * res[0]),
    symbolic_zeros=True,
)


def _solved(x: Any) -> Any:
    """A linear equation for each row, whose factors are as many as there are rows."""

    def solve(matvec: Any, b: Any) -> Any:
        return td.fori_loop(0, 8, lambda i, x: x + 0.2 * (b - matvec(x)), 0 * b)

    scale = 2 + tnp.tanh(x) / x.shape[0]
    return td.custom_linear_solve(lambda y: y * scale, x, solve, symmetric=True)


def _pulled(x: Any) -> Any:
    """By a linear map that a jitted function gives, and one takes."""
    back = td.jit(lambda x: td.vjp(lambda x: tnp.sin(x) / x.shape[0], x)[1])(x)
    linear = td.jit(lambda x: td.linearize(lambda x: tnp.sin(x) @ x.T, x)[1])(x)
    return td.jit(lambda back, x: back(x)[0])(back, x), linear(x)


@td.remat(policy=td.save_only_these_names("c"))
def _named(x: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = td.checkpoint_name(tnp.exp(0.1 * c * x), "c")
        return tnp.sin(c), c

    return td.scan(step, x[0], x)


def _on_host(x: Any) -> Any:
    return td.pure_callback(np.cbrt, x, x)


def _sum_on_host(x: Any) -> Any:
    out = td.ShapeDtype(x.shape[:1], x.dtype)
    return td.pure_callback(lambda x: x.sum(1), out, x)


def _seen(x: Any) -> Any:
    """An effect that checks what it sees."""

    def check(seen: Any, rows: Any) -> None:
        assert seen.shape[0] == rows

    td.io_callback(check, None, x, x.shape[0] + tnp.zeros((), tnp.int32))
    td.debug.callback(check, x, x.shape[0] + tnp.zeros((), tnp.int32))
    return x * 2


def _members(f: Any) -> Any:
    return td.vmap(f, axis_name="i")


def _attended(q: Any, k: Any) -> Any:
    return td.lax.attention(q, k, k, scale=0.5, after=0)


def _attended_backward(q: Any, k: Any) -> Any:
    out, back = td.vjp(_attended, q, k)
    return back(tnp.sin(out))


def _attended_forward(q: Any, k: Any) -> Any:
    return td.jvp(_attended, (q, k), (q, k))


CONTROL = [
    _row("attention", "", _attended, floats("n t 4 3"), floats("n k 2 3")),
    _row(
        "attention_grad", "", _attended_backward, floats("n t 2 3"), floats("n k 2 3")
    ),
    _row(
        *("attention_tangent", "", _attended_forward),
        *(floats("n t 2 3"), floats("n k 2 3")),
    ),
    _row("psum", "", _members(lambda x: x / td.psum(x * x, "i")), ROWS_OF_X),
    _row("pmax", "", _members(lambda x: x - td.pmax(x, "i")), ROWS_OF_X),
    _row("pmin", "", _members(lambda x: x * td.pmin(x, "i")), ROWS_OF_X),
    _row(
        "all_gather",
        "",
        _members(lambda x: td.all_gather(x, "i") * x),
        ROWS_OF_X,
        guards=SUMS,
    ),
    _row(
        "psum_scatter",
        "",
        _members(lambda x: td.psum_scatter(x, "i")),
        SQUARE,
        guards=SUMS,
    ),
    _row("all_to_all", "", _members(lambda x: td.all_to_all(x, "i", 0, 0)), SQUARE),
    _row(
        "ppermute",
        "",
        _members(lambda x: td.ppermute(x, "i", [(0, 2), (1, 0)])),
        floats("3 n"),
    ),
    _row("axis_index", "", _members(lambda x: x * td.axis_index("i")), ROWS_OF_X),
    _row("call", "", lambda x: td.jit(lambda x: tnp.tanh(x) * x)(x) + 1, ROWS_OF_X),
    _row("call", "size", lambda x: td.jit(lambda x: x / x.shape[0])(x), ROWS_OF_X),
    _row(
        "scan", "batch", lambda x, c: td.scan(_step, c, x), floats("3 n m"), ROWS_OF_X
    ),
    _row("scan", "length", lambda x, c: td.scan(_step, c, x), X, VECTOR),
    _row(
        "scan",
        "backwards",
        lambda x, c: td.scan(_step, c, x, reverse=True)[0],
        floats("n m 4"),
        floats("m 4"),
    ),
    _row(
        "scan",
        "numbers",
        lambda x: td.fori_loop(0, 3, lambda i, c: c * 0.5 + x, x),
        ROWS_OF_X,
    ),
    _row("while_loop", "", lambda x: _halved(td.stop_gradient(x)), ROWS_OF_X),
    _row("going_scan", "", _halved, X, sizes=((3,), (8,)), batched=False),
    _row(
        "counted_scan",
        "",
        lambda x: _halved(x, max_steps=30, remember="steps"),
        X,
        sizes=((3,), (8,)),
    ),
    _row("checked_count", "", _decayed, X, sizes=((3,), (8,)), batched=False),
    _row("while_running", "", td.vmap(_decayed), X, sizes=((3,), (8,)), batched=False),
    _row(
        "while_loop",
        "size",
        lambda x: td.fori_loop(
            0, x.shape[0], lambda i, c: c + x[i], tnp.zeros(4, x.dtype)
        ),
        X,
    ),
    _row(
        "cond",
        "",
        lambda x: td.cond(tnp.sum(x) > 0, tnp.sin, lambda x: x * tnp.mean(x), x),
        ROWS_OF_X,
    ),
    _row(
        "cond",
        "switch",
        lambda i, x: td.switch(i, [tnp.sin, tnp.cos, lambda x: x / x.shape[1]], x),
        ints("", 0, 3),
        ROWS_OF_X,
    ),
    _row("custom_vmap", "", td.vmap(_one_by_one), ROWS_OF_X),
    _row("custom_jvp", "", lambda x: _cube(x) + 1, ROWS_OF_X),
    _row("custom_vjp", "", lambda x: _square(x) + 1, ROWS_OF_X),
    _row(
        "custom_vjp",
        "zeros",
        lambda x: _product(x, td.stop_gradient(-x)) + 1,
        ROWS_OF_X,
    ),
    _row("linear_solve", "", _solved, ROWS_OF_X),
    _row("call", "linear maps", _pulled, X),
    _row("custom_vjp_tangent", "", lambda x: _square(_square(x)), ROWS_OF_X),
    _row("remat", "", td.remat(lambda x: tnp.tanh(tnp.sin(x) @ x.T)), X),
    _row("remat", "scan", lambda x: td.scan(td.remat(_step), x[0], x), floats("3 n m")),
    _row("remat", "names", _named, floats("3 n m")),
    _row("pure_callback", "", lambda x: _on_host(td.stop_gradient(x)), ROWS_OF_X),
    _row(
        "pure_callback", "sum", lambda x: _sum_on_host(td.stop_gradient(x)), ROWS_OF_X
    ),
    _row("io_callback", "", lambda x: _seen(td.stop_gradient(x)), ROWS_OF_X),
    _row("error_if", "", lambda x: td.debug.error_if(x, x > 1e9, "large"), ROWS_OF_X),
    _row("scalar_call", "", lambda x: _root(td.stop_gradient(x)), ROWS_OF_X),
    _row(
        "foreign_call",
        "",
        lambda x: times(*map(td.stop_gradient, (x, x[0]))),
        ROWS_OF_X,
    ),
    _row("debug_callback", "", lambda x: _seen(td.stop_gradient(x)), ROWS_OF_X),
    _row("size", "int", lambda x: x + x.shape[0] * x.shape[1], ROWS_OF_X),
    _row(
        "size", "float", lambda x: x * (1 / x.shape[0]) + x.shape[1] ** -0.5, ROWS_OF_X
    ),
]
